"""``POST /api/v1/messages``: send messages as SEND does, with its headers, permissions, policies and limits."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from twisted.internet.task import deferLater

from stompring.broker.publish import publish
from stompring.errors import Refused
from stompring.session.backpressure import Blocked
from stompring.session.connect import Anonymous, Login
from stompring.session.destination import OWN, Destination, Destinations
from stompring.session.permissions import ALLOW_ALL
from stompring.session.send import SendEvaluation, SendPlan, plan_anew
from stompring.session.session import Session
from stompring.settings.acceptor import StompAcceptor
from stompring.settings.model import FullPolicy, PermissionType, RoutingType
from stompring.stomp.frames import Head

from .access import MANAGE, MANAGEMENT, RequiredPermission, permission_rule
from .api import Body, Call, Response, Route, Steps, choice, invalid, json_answer, required, text
from .json_schema import Component, integer, keyword, string, structure

#: Messages that one request may send.
MAX_COUNT = 10_000

#: Messages sent per step, and their bytes.
SENT_PER_STEP, BYTES_PER_STEP = 10, 256 * 1024

#: Headers of the SEND frame itself, which a request has fields for or no use of.
NOT_HERE = frozenset((b"destination", b"destination-type", b"content-length", b"receipt", b"transaction"))

#: Milliseconds for which the policies of an address, or a store with much to write, may delay one message.
LONGEST_DELAY = 10_000

#: Milliseconds between two looks at such a store.
STORE_INTERVAL = 20

#: The acceptor whose limits on headers apply.
ACCEPTOR = StompAcceptor("http", "", 0)


class HttpWire:
    """The `Wire` of a session that sends what an HTTP request says: nothing is written to it."""

    host = ""
    certificate = None
    carrier = "HTTP"

    def __init__(self, peer: str) -> None:
        self.peer = peer

    def write(self, data: bytes) -> None:
        """The answer is that of the request."""

    def close(self) -> None:
        """There is no connection of its own."""

    def pause_reading(self) -> None:
        """There is nothing to read."""

    def resume_reading(self) -> None:
        """The same."""


class HttpSession(Session):
    """A session that sends and nothing else; it is in no list of connections."""

    def __init__(self, call: Call, target: Destination) -> None:
        context = call.context
        super().__init__(
            context.broker,
            ACCEPTOR,
            Destinations(ACCEPTOR),
            Anonymous(),
            HttpWire(call.peer),
            context.outgoing,
            "http",
        )
        authorizer = call.authorizer
        if authorizer.allows(MANAGE, MANAGEMENT):
            authorizer = ALLOW_ALL
        self.login = Login(call.user, authorizer, verified=not call.authorizer.allows_all)
        self._target = target

    def end(self) -> None:
        """Nothing more is sent: free it by its count."""
        self._untie()

    def parse_destination(self, destination: bytes, requested: str | None) -> Destination:
        """What the request names, without the prefixes of any acceptor."""
        self.broker.directory.check_words(self._target.address)
        return self._target


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of one message: why it did not enter, whether that holds for the next one too, and whether a
    queue accepted it."""

    reason: str | None
    final: bool
    routed: bool


def send_one(session: Session, head: Head, body: bytes, reactor: Any) -> Generator[Any, None, Outcome]:
    """Send one message; yields a Deferred while a policy delays it, or the store has much to write.

    Raises `Refused` where a SEND would be answered with an ERROR.
    """
    plan: SendPlan | None = head.plan
    if plan is None or plan.stamp != plan.address.stamp:
        plan = plan_anew(session, head)
    if plan.carry_out is not None:
        plan.carry_out(session, head, body, plan)
    evaluation = SendEvaluation(session, head, body, plan)
    waited = stored = 0
    while True:
        try:
            if not evaluation.decide():
                return Outcome("A policy has dropped the message", False, False)
        except Blocked as blocked:
            delay = blocked.milliseconds
            waited += delay
            if waited > LONGEST_DELAY:
                reason = f"A policy of address {blocked.address.name} delays the message"
                evaluation.refused(reason)
                return Outcome(reason, True, False)
        except Exception as fault:
            evaluation.refused(str(fault))
            raise
        else:
            address = evaluation.plan.address
            unrouted = address.unrouted_messages
            rejection = publish(session.broker, evaluation.plan, body)
            if rejection is None:
                evaluation.entered()
                return Outcome(None, False, address.unrouted_messages == unrouted)
            delay = STORE_INTERVAL
            stored += delay
            if not rejection.of_backlog or stored > LONGEST_DELAY:
                evaluation.refused(rejection.describe())
                return Outcome(rejection.describe(), rejection.policy is not FullPolicy.DROP, False)
        yield deferLater(reactor, delay / 1000, lambda: None)


def send(call: Call) -> Steps:
    target, head = _target(call), _head(call.body)
    body, count = _body(call.body), _count(call.body)
    session = HttpSession(call, target)
    try:
        return (yield from _send_all(session, head, body, count, call.context.reactor))
    finally:
        session.end()


def _send_all(session: Session, head: Head, body: bytes, count: int, reactor: Any) -> Steps:
    sent = rejected = unrouted = size = 0
    reason: str | None = None
    for index in range(count):
        try:
            outcome = yield from send_one(session, head, body, reactor)
        except Refused as refused:
            if not sent:
                raise
            outcome = Outcome(str(refused), True, False)
        if outcome.reason is None:
            sent += 1
            unrouted += not outcome.routed
        elif outcome.final:
            rejected, reason = count - sent, outcome.reason
            if not sent:
                raise Refused(outcome.reason)
            break
        else:
            rejected, reason = rejected + 1, reason or outcome.reason
        size += len(body)
        if index % SENT_PER_STEP == SENT_PER_STEP - 1 or size >= BYTES_PER_STEP:
            size = 0
            yield None
    return json_answer({"sent": sent, "unrouted": unrouted, "rejected": rejected, "reason": reason})


def _target(call: Call) -> Destination:
    body = call.body
    address, queue = _names(body)
    routing_type: RoutingType | None = None
    if "routingType" in body:
        routing_type = RoutingType(choice(RoutingType)("routingType", body["routingType"]))
    if queue is not None and not address:
        address = call.context.broker.auto_create.address_of("", queue)
    return Destination(address, queue, routing_type)


def _names(body: dict[str, Any]) -> tuple[str, str | None]:
    queue = body.get("queue")
    if queue is not None:
        queue = text("queue", queue)
        if not queue:
            raise invalid("queue", "must not be empty")
    address = "" if "address" not in body and queue is not None else required(body, "address")
    if not address and queue is None:
        raise invalid("address", "must not be empty")
    for name, value in (("address", address), ("queue", queue or "")):
        if "::" in value:
            raise invalid(name, "must not contain ::; give address and queue in fields of their own")
    return address, queue


def _head(body: dict[str, Any]) -> Head:
    given = body.get("headers", {})
    if not isinstance(given, dict):
        raise invalid("headers", "must be an object of names and values")
    limits = ACCEPTOR.limits
    if len(given) > limits.max_headers:
        raise invalid("headers", f"has {len(given)} headers, and the limit is {limits.max_headers}")
    headers: dict[bytes, bytes] = {b"destination": b""}
    for name, value in given.items():
        encoded = text("headers", name).encode()
        if isinstance(value, bool):
            value = "true" if value else "false"
        elif isinstance(value, int):
            value = str(value)
        line = encoded, text("headers", value).encode()
        if not encoded or b"\0" in line[0] or b"\0" in line[1]:
            raise invalid(
                "headers", f"has the name or value {name[:60]!r}, which no header of STOMP can have"
            )
        if max(map(len, line)) > limits.max_header_length:
            raise invalid(
                "headers",
                f"has the header {name[:60]!r}, which is longer than {limits.max_header_length} bytes",
            )
        if encoded in NOT_HERE:
            raise invalid("headers", f"must not contain {name}: it belongs to the frame, not to the message")
        if encoded == b"reply-to" and line[1].startswith(OWN):
            raise invalid(
                "headers",
                "has a temporary queue or topic in reply-to: a request has no connection to read it",
            )
        headers[encoded] = line[1]
    address, queue = _names(body)
    headers[b"destination"] = (address if queue is None else f"{address}::{queue}").encode()
    return Head(b"SEND", headers)


def _body(body: dict[str, Any]) -> bytes:
    content = text("body", body.get("body", ""))
    encoding = body.get("encoding", "text")
    try:
        if encoding == "text":
            return content.encode()
        if encoding == "base64":
            return base64.b64decode(content, validate=True)
        if encoding == "hex":
            return bytes.fromhex(content)
    except (binascii.Error, ValueError):
        raise invalid("body", f"is not {encoding}") from None
    raise invalid("encoding", "must be text, base64 or hex")


def _count(body: dict[str, Any]) -> int:
    count = body.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise invalid("count", f"must be a whole number from 1 to {MAX_COUNT}")
    return count


@permission_rule("as for a SEND: send on the address, and the permissions to create it")
def send_message(call: Call) -> Iterator[RequiredPermission]:
    target = _target(call)
    yield PermissionType.SEND, target.address, target.queue


SENT = Component(
    "Sent",
    structure(
        {
            "sent": integer("Messages that have entered."),
            "unrouted": integer("How many of these no queue accepted: they are lost, or dead letters."),
            "rejected": integer("Messages that have not entered."),
            "reason": string("Why the first of these has not; null without one.", null=True),
        }
    ),
)
HEADERS = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer", "boolean"]},
    "description": "Headers of SEND: persistent, priority, expires, AMQ_SCHEDULED_DELAY and so on, and any others.",
}

ROUTES = (
    Route(
        "POST",
        "/api/v1/messages",
        send,
        send_message,
        "sendMessages",
        "Send messages to an address or to a queue.",
        {200: Response("How many have entered.", SENT)},
        "As SEND: headers, creation of the address, policies, limits and duplicate ids. 409 if none has entered "
        "because the address is full or a policy refuses them. While the disk is behind, the request waits for it, at "
        "most ten seconds for each message.",
        body=Body(
            {
                "address": string("Address to send to. Required unless queue is given."),
                "queue": string("The one queue of the address to send to.", null=True),
                "routingType": keyword(RoutingType, "Routing type of the messages."),
                "headers": HEADERS,
                "body": string("The body, in the encoding given."),
                "encoding": keyword(("text", "base64", "hex"), "Encoding of body. Default: text."),
                "count": integer(f"How often to send it, at most {MAX_COUNT}. Default: 1.", 1),
            },
            name="NewMessage",
        ),
        errors=(404, 409),
    ),
)
