"""Management by messages: a SEND to the management-address is a request (Artemis, "Using management via messages").

The session reads the request and checks `manage`; a `RequestHandler` carries it out, sends the reply and calls back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stompring.broker.publish import ReplyTo
from stompring.errors import Refused
from stompring.settings.model import PermissionType
from stompring.stomp.frames import Head

from .connect import Login
from .destination import OWN, remote_form, temporary_queue, temporary_topic
from .subscribe import expect_replies
from .text import text_of
from .transact import transaction_of

if TYPE_CHECKING:
    from .send import SendPlan
    from .session import Session

RESOURCE, ATTRIBUTE, OPERATION = b"_AMQ_ResourceName", b"_AMQ_Attribute", b"_AMQ_OperationName"


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """One request. ``done`` is called once it has been carried out, with whether it was a change."""

    headers: Mapping[bytes, bytes]
    body: bytes
    login: Login
    connection: str
    peer: str
    reply_to: ReplyTo | None  # None: nobody asked for a reply
    done: Callable[[bool], None]

    def text(self, name: bytes) -> str | None:
        """A header, None where it is absent."""
        value = self.headers.get(name)
        return None if value is None else text_of(value)


class RequestHandler(Protocol):
    """Carries out requests: those of one connection in order."""

    def handle(self, request: ManagementRequest) -> None:
        """Begin, or queue the request. Raises `Refused` while too many of its connection wait."""


def on_request(session: Session, head: Head, body: bytes, plan: SendPlan) -> None:
    """A SEND to the management-address. In a transaction it is carried out by the COMMIT."""
    address = session.broker.management.name
    session.login.authorizer.check(PermissionType.MANAGE, address)
    handler = session.requests
    if handler is None:
        raise Refused(f"Address {address} takes requests over STOMP only: use the HTTP API", status=400)
    headers = head.headers
    reply_to = _reply_to(session, headers.get(b"reply-to"))
    transactional = b"transaction" in headers

    def done(changed: bool) -> None:
        if not (transactional or session.closed):
            session.receipt(head, durable=changed)

    request = ManagementRequest(headers, body, session.login, session.number, session.peer, reply_to, done)
    if not transactional:
        handler.handle(request)
        return
    transaction_of(session, head).send(
        len(body) + sum(map(len, headers.values())),
        lambda: plan.address,
        lambda: handler.handle(request),
        durable=False,
    )
    session.receipt(head)


def _reply_to(session: Session, destination: bytes | None) -> ReplyTo | None:
    """Where the reply goes, created where a SEND of the same client would create it. Raises `Refused`, `NotFound`."""
    if not destination:
        return None
    target = session.parse_destination(destination, None)
    broker, login = session.broker, session.login
    broker.directory.check_concrete(target.address)
    check, create, user = login.authorizer.check, broker.auto_create, login.user
    if target.temporary:
        if destination.startswith(OWN):
            expect_replies(session, destination)
        else:
            check(PermissionType.SEND, target.address, target.queue)
        if target.queue is None:
            temporary_topic(session, target)
        else:
            temporary_queue(session, target)
        shown = remote_form(text_of(destination), session.number).encode()
        return ReplyTo(target.address, target.queue, target.routing_type, shown)
    if target.address == broker.management.name:
        raise Refused(f"reply-to must not be {target.address}: replies are no requests", status=400)
    if target.queue is not None:
        check(PermissionType.SEND, create.address_of(target.address, target.queue), target.queue)
        queue = create.queue_for(target.address, target.queue, target.routing_type, check, user)
        return ReplyTo(queue.address.name, queue.name, target.routing_type, destination)
    check(PermissionType.SEND, target.address)
    address = create.address_for_send(target.address, target.routing_type, check, user)
    return ReplyTo(address.name, None, target.routing_type, destination)
