"""The log line of a change, or of a request that was rejected with 401 or 403: user, peer, request and result."""

from __future__ import annotations

import logging

from twisted.web.server import Request

from stompring.session.outbox import printable

from .api import Answer, Route, encode
from .context import AdminContext
from .json_schema import JsonObject

log = logging.getLogger(__name__)

READ_METHODS = ("GET", "HEAD")

#: Maximum number of characters of the path, the body and the reason of a rejection in a line.
MAX_PATH, MAX_BODY, MAX_REASON = 200, 500, 300

#: Maximum bytes of an answer that the log line shows as the result, for example ``{"removed":12}``.
MAX_RESULT = 100


#: Text in the log in place of a secret member of a body.
HIDDEN = "***"


#: Names of fields in log lines, by the names that the same fields have in events.
FIELDS_OF_EVENTS = {"user": "user", "queue": "queue", "address": "address", "connectionID": "connection"}


#: Members of a body that name the object to create, and their fields in the log, by path.
NAMED_IN_BODY = {
    "/api/v1/queues": {"name": "queue", "address": "address"},
    "/api/v1/addresses": {"name": "address"},
}


class RequestLog:
    """The log line of one request. ``fields``: its fields in the JSON format. The steps of the request add to them."""

    def __init__(self, request: Request, context: AdminContext) -> None:
        self._context = context
        self._request = request
        self._method = request.method.decode("latin-1")
        client = request.getClientAddress()
        self.peer = f"{getattr(client, 'host', '')}:{getattr(client, 'port', '')}"
        self.fields: dict[str, object] = {
            "peer": self.peer,
            "method": self._method,
            "path": printable(request.uri.decode("latin-1"), MAX_PATH),
        }
        #: method and path, printable
        self.request_line = f"{self._method} {self.fields['path']}"
        self._body: JsonObject = {}

    _reason: str | None = None
    _login_failed = False
    _written = False

    def set_route(self, route: Route, names: dict[str, str]) -> None:
        """Add the queue, the address or the connection in the path to the log line."""
        self._route = route
        directory = self._context.broker.directory
        name = names.get("name", "")
        if route.path.startswith("/api/v1/queues/{"):
            self.fields["queue"] = name
            queue = directory.queues.get(name)
            if queue is not None:
                self.fields["address"] = queue.address.name
        elif route.path.startswith("/api/v1/addresses/{"):
            self.fields["address"] = name
        elif route.path.startswith("/api/v1/connections/{"):
            self.fields["connection"] = names["id"]

    def set_body(self, body: JsonObject) -> None:
        """Add the body to the log line, without its secrets."""
        secret, shown = self._route.secret, self._route.fields.keys() - self._route.secret
        # if the route has a secret member, hide unknown members too: one may be the secret, misspelt
        self._body = {name: HIDDEN if secret and name not in shown else value for name, value in body.items()}
        for member, field in NAMED_IN_BODY.get(self._route.path, {}).items():
            if isinstance(value := body.get(member), str):
                self.fields[field] = value

    def set_error(self, reason: str, *, login: bool = False) -> None:
        """Add the reason of a rejection. ``login``: the login failed, not a later check."""
        self._reason = reason
        self._login_failed = login

    def write(self, answer: Answer) -> None:
        """Write the log line; later calls do nothing. A GET or HEAD has no line unless rejected with 401 or 403."""
        if self._written or (
            self._method in READ_METHODS and not self._login_failed and answer.status != 403
        ):
            return
        self._written = True
        kind = "failed login" if self._login_failed else "management"
        user = self.fields.get("user")
        self.fields["status"] = answer.status
        text = self.request_line
        if self._body:
            text += f" {printable(encode(self._body).decode(), MAX_BODY)}"
        result = ""
        if self._reason is not None:
            result = self.fields["reason"] = printable(" ".join(self._reason.split()), MAX_REASON)
        elif isinstance(answer.body, bytes) and 0 < len(answer.body) <= MAX_RESULT:
            result = self.fields["result"] = answer.body.decode()
        self._notify(answer.status)
        self._context.broker.log_limit.info(
            log,
            kind,
            "%s: %s (%s): %s: %d%s",
            kind,
            "anonymous" if user is None else f"user {printable(str(user))}",
            self.peer,
            text,
            answer.status,
            result and f" {result}",
            fields=self.fields,
        )

    def _notify(self, status: int) -> None:
        """Send a notification of a change, a failed login or a missing permission; none for sent messages."""
        if self._login_failed:
            if not self._request.requestHeaders.hasHeader(b"authorization"):
                return  # not an attack: the client tests whether a login is required
            kind = "SECURITY_AUTHENTICATION_VIOLATION"
        elif status == 403:
            kind = "SECURITY_PERMISSION_VIOLATION"
        elif status < 400 and not self.request_line.startswith("POST /api/v1/messages"):
            kind = "MANAGEMENT"
        else:
            return
        fields = self.fields
        named = {name: str(fields[field]) for name, field in FIELDS_OF_EVENTS.items() if field in fields}
        reason = f": {self._reason}" if self._reason else ""
        self._context.broker.notifications.notify(
            kind,
            printable(f"{self.request_line}: {status}{reason}", MAX_PATH),
            remoteAddress=self.peer,
            **named,
        )
