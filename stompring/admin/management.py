"""Management by messages: requests to the management-address, carried out by the routes of the HTTP API.

`ManagementRequests` queues the requests of each connection, runs them in slices and sends the replies in the format of
Artemis: the result as a JSON array with one element, nothing for an operation without a result, and
``_AMQ_OperationSucceeded``. `management_operations` has the attributes and operations.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Generator, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IDelayedCall

from stompring.broker.publish import send_reply
from stompring.broker.transfer import SUCCEEDED
from stompring.errors import LimitReached, Refused
from stompring.session.permissions import PermissionRejected
from stompring.session.requests import ATTRIBUTE, OPERATION, RESOURCE, ManagementRequest
from stompring.session.text import printable
from stompring.settings.model import PermissionType

from .api import SYNC_TIME, encode, not_synced_text
from .management_operations import NOTHING, Operation, Resource, find_attribute, find_operation, find_resource
from .request_log import HIDDEN, MAX_BODY, MAX_REASON, MAX_RESULT
from .tasks import TIME_SLICE

if TYPE_CHECKING:
    from .api import Routes
    from .context import AdminContext

log = logging.getLogger(__name__)

#: Requests of one connection that may wait.
MAX_WAITING = 1000

#: Maximum length of a request's body, in bytes.
MAX_REQUEST = 1024 * 1024


class ManagementRequests:
    """Carries out requests, those of one connection one after the other. ``succeeded`` and ``failed`` count them."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context
        self._lanes: dict[str, deque[ManagementRequest]] = {}
        self._replies: dict[str, deque[PendingReply]] = {}
        self._routes: Routes | None = None
        self._spent = 0.0  # seconds of this turn of the reactor
        self.succeeded = self.failed = 0
        settings = context.configuration
        self._pattern = re.compile(settings.view_permission_method_match_pattern)

    @property
    def routes(self) -> Routes:
        """The routes of the HTTP API. Made with the first request."""
        if self._routes is None:
            from .http import admin_routes

            self._routes = admin_routes()
        return self._routes

    # ---- the requests of a connection, in order

    def handle(self, request: ManagementRequest) -> None:
        """Begin at once what takes no time, or queue the request. Raises `LimitReached`."""
        lane = self._lanes.get(request.connection)
        if lane is not None:
            if len(lane) >= MAX_WAITING:
                raise LimitReached(
                    f"{len(lane)} management requests of this connection wait: wait for replies",
                    "management-requests",
                )
            lane.append(request)
            return
        self._lanes[request.connection] = lane = deque((request,))
        work = self._serve(request.connection, lane)
        if self._spent >= TIME_SLICE:
            self._context.tasks.cooperator.cooperate(work)
            return
        if not self._spent:
            self._context.broker.clock.soon(self._turn_ended)
        began = perf_counter()
        try:
            wait = next(work)
        except StopIteration:
            return
        finally:
            self._spent += perf_counter() - began
        self._context.tasks.cooperator.cooperate(_after(wait, work))

    def _turn_ended(self) -> None:
        self._spent = 0.0

    def _serve(self, connection: str, lane: deque[ManagementRequest]) -> Iterator[object]:
        while lane:
            yield from self._answer(lane[0])
            lane.popleft()
            if lane:
                yield None
                self._context.broker.clock.refresh()
        del self._lanes[connection]

    # ---- one request

    def _answer(self, request: ManagementRequest) -> Iterator[object]:
        exchange = Exchange(self._context, self.routes, request)
        result: object = NOTHING
        error: str | None = None
        try:
            self._check_length(request)
            exchange.read()
            if exchange.operation is not None:
                self._check_permission(exchange)
            result = yield from exchange.carry_out()
            if exchange.operation is None:  # its value tells the name of its method
                exchange.method = f"{'is' if isinstance(result, bool) else 'get'}{exchange.method}"
                self._check_permission(exchange)
        except Refused as refused:
            error = str(refused)
            if isinstance(refused, PermissionRejected):
                exchange.notify_violation(refused)
        except Exception:
            log.exception("management request %s failed", exchange.text, extra=exchange.fields)
            error = "Internal error; see the broker's log"
        if error is None:
            self.succeeded += 1
            body = b"" if result is NOTHING or result is None else encode([result])
        else:
            self.failed += 1
            body = encode([error])
        reply = PendingReply(request, error is None, body)
        self._replies.setdefault(request.connection, deque()).append(reply)
        if exchange.changes:
            exchange.log(error, body)
            self._reply_when_synced(reply)
        else:
            self._ready(reply)

    def _check_length(self, request: ManagementRequest) -> None:
        if len(request.body) > MAX_REQUEST:
            raise Refused(f"The request is longer than {MAX_REQUEST} bytes")

    def _check_permission(self, exchange: Exchange) -> None:
        """``management-message-rbac``: view or edit on the address of the operation. Raises `Refused`."""
        settings = self._context.configuration
        if not settings.management_message_rbac:
            return
        viewing = self._pattern.match(exchange.method) is not None
        address = ".".join((settings.management_rbac_prefix, exchange.resource_name, exchange.method))
        exchange.request.login.authorizer.check(
            PermissionType.VIEW if viewing else PermissionType.EDIT, address
        )

    # ---- replies, in the order of the requests of a connection

    def _reply_when_synced(self, reply: PendingReply) -> None:
        """As an answer over HTTP, the reply to a change waits until the change is synced."""
        reply.changed = True
        timeout: list[IDelayedCall] = []

        def synced() -> None:
            if timeout:
                if not timeout[0].active():
                    return
                timeout[0].cancel()
            self._ready(reply)

        def not_synced() -> None:
            store = self._context.store
            cause = None if store is None else store.writer.failing
            reply.succeeded, reply.body = False, encode([not_synced_text(cause)])
            self._ready(reply)

        self._context.broker.storage.when_synced(synced)
        if not reply.ready:
            timeout.append(self._context.reactor.callLater(SYNC_TIME, not_synced))

    def _ready(self, reply: PendingReply) -> None:
        reply.ready = True
        connection = reply.request.connection
        replies = self._replies.get(connection)
        while replies and replies[0].ready:
            self._send(replies.popleft())
        if replies is not None and not replies:
            self._replies.pop(connection, None)

    def _send(self, reply: PendingReply) -> None:
        request = reply.request
        if request.reply_to is not None:
            headers = {SUCCEEDED: b"true" if reply.succeeded else b"false"}
            correlation = request.headers.get(b"correlation-id")
            if correlation is not None:
                headers[b"correlation-id"] = correlation
            if not send_reply(self._context.broker, request.reply_to, headers, reply.body):
                log.debug("management reply to %s not routed", request.reply_to.address)
        request.done(reply.changed)


class PendingReply:
    """The outcome of a request, until its reply is sent. ``changed``: it waits for the sync of a change."""

    __slots__ = ("body", "changed", "ready", "request", "succeeded")

    def __init__(self, request: ManagementRequest, succeeded: bool, body: bytes) -> None:
        self.request = request
        self.succeeded = succeeded
        self.body = body
        self.changed = self.ready = False


def _after(first: object, rest: Iterator[object]) -> Iterator[object]:
    yield first
    yield from rest


class Exchange:
    """One request while it is carried out. ``text`` and ``fields`` describe it in the log."""

    def __init__(self, context: AdminContext, routes: Routes, request: ManagementRequest) -> None:
        self.context = context
        self.routes = routes
        self.request = request
        self.resource_name = request.text(RESOURCE) or ""
        self.method = ""
        self.changes = False
        self._resource: Resource | None = None
        self.operation: Operation | None = None
        self._attribute: str | None = None
        self._values: list[Any] = []
        self.fields: dict[str, object] = {"peer": request.peer, "connection": request.connection}
        if request.login.user is not None:
            self.fields["user"] = request.login.user
        self.text = printable(self.resource_name, MAX_REASON)

    def read(self) -> None:
        """Find the resource and what is asked of it. Raises `Refused`."""
        request = self.request
        operation, attribute = request.text(OPERATION), request.text(ATTRIBUTE)
        name = operation or attribute or ""
        self.text = printable(f"{self.resource_name} {name}".strip(), MAX_REASON)
        self._resource = resource = find_resource(self.resource_name)
        if resource.kind in ("queue", "address"):
            self.fields[resource.kind] = resource.name
        if operation is not None:
            self._values = read_parameters(request.body)
            self.operation = found = find_operation(resource.kind, operation, self._values)
            self.method, self.changes = found.name, found.changes
        elif attribute is not None:
            self.method = self._attribute = find_attribute(resource.kind, attribute)
        else:
            raise Refused("The request has neither _AMQ_OperationName nor _AMQ_Attribute")

    def carry_out(self) -> Generator[Any, None, object]:
        """The result as JSON; `NOTHING` for an operation without one. Raises `Refused`."""
        assert self._resource is not None
        target = self._resource.target(self.context, self.routes, self.request)
        if self.operation is not None:
            return (yield from self.operation.run(target, self._values))
        assert self._attribute is not None
        return (yield from target.attribute(self._attribute))

    def notify_violation(self, refused: PermissionRejected) -> None:
        """Notify that the user lacks the permission for the operation."""
        self.context.broker.notifications.notify(
            "SECURITY_PERMISSION_VIOLATION",
            str(refused),
            {"_AMQ_CheckType": refused.permission},
            user=self.request.login.user,
            address=refused.address,
            connectionID=self.request.connection,
            remoteAddress=self.request.peer,
        )

    def log(self, error: str | None, body: bytes) -> None:
        """The log line and the notification of a change."""
        broker, request = self.context.broker, self.request
        shown = [
            HIDDEN if self.operation is not None and index in self.operation.secret else value
            for index, value in enumerate(self._values)
        ]
        parameters = printable(encode(shown).decode(), MAX_BODY) if shown else ""
        result = "" if error is None and len(body) > MAX_RESULT else body.decode()
        outcome = "failed" if error is not None else "succeeded"
        broker.log_limit.info(
            log,
            "management",
            "management: %s (%s): %s%s: %s%s",
            "anonymous" if request.login.user is None else f"user {printable(request.login.user)}",
            request.peer,
            self.text,
            parameters and f" {parameters}",
            outcome,
            result and f" {printable(result, MAX_REASON)}",
            fields={**self.fields, "result": outcome},
        )
        if error is None:
            named = {
                name: str(self.fields[name]) for name in ("user", "queue", "address") if name in self.fields
            }
            broker.notifications.notify(
                "MANAGEMENT",
                f"{self.text}: succeeded",
                remoteAddress=request.peer,
                connectionID=request.connection,
                **named,
            )


def read_parameters(body: bytes) -> list[Any]:
    """The parameters of an operation: a JSON array; an empty body is one without elements. Raises `Refused`."""
    if not body.strip():
        return []
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"The body must be a JSON array of parameters: {fault}") from None
    if not isinstance(values, list):
        raise Refused('The body must be a JSON array of parameters, such as [] or ["orders", true]')
    return values
