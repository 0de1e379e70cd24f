"""The log line of a request that changes something, or that is refused for who asked: who, from where, what, result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from twisted.web.server import Request

from stompring.session.text import printable

from .api import Answer, encode

if TYPE_CHECKING:
    from .api import Route
    from .context import AdminContext

log = logging.getLogger(__name__)

SAFE = ("GET", "HEAD")

#: Characters of a line that come from the client: the path, the body, the reason of a refusal.
PATH, BODY, REASON = 200, 500, 300

#: Characters of an answer that is logged as the result: ``{"removed":12}`` and the like.
RESULT = 100


class RequestLog:
    """Of one request. Its fields are those of the JSON format, and grow as the request is understood."""

    def __init__(self, request: Request, context: AdminContext) -> None:
        self._context = context
        self._method = request.method.decode("latin-1")
        client = request.getClientAddress()
        self.host = str(getattr(client, "host", ""))
        self.peer = f"{self.host}:{getattr(client, 'port', '')}"
        self.fields: dict[str, object] = {
            "peer": self.peer,
            "method": self._method,
            "path": printable(request.uri.decode("latin-1"), PATH),
        }
        self._body: dict[str, Any] = {}
        self._reason: str | None = None
        self._login_failed = False
        self._done = False

    @property
    def what(self) -> str:
        """Method and path, fit for a log line."""
        return f"{self._method} {self.fields['path']}"

    def found(self, route: Route, names: dict[str, str]) -> None:
        """Which route it is, and the names in its path."""
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
        elif route.path == "/api/v1/queues":
            self._named_in_body = (("name", "queue"), ("address", "address"))
        elif route.path == "/api/v1/addresses":
            self._named_in_body = (("name", "address"),)

    #: Where the body names what is made: its members, and the fields that they become.
    _named_in_body: tuple[tuple[str, str], ...] = ()

    def logged_in(self, user: str | None) -> None:
        """Who asks; None while security is off."""
        if user is not None:
            self.fields["user"] = user

    def read(self, body: dict[str, Any]) -> None:
        """What stands in the body."""
        self._body = body
        for member, field in self._named_in_body:
            if isinstance(value := body.get(member), str):
                self.fields[field] = value

    def refused(self, reason: str, *, login: bool = False) -> None:
        """It is refused, at the ``login`` already or later."""
        self._reason = reason
        self._login_failed = login

    def answered(self, answer: Answer) -> None:
        """What the result is. Only the first call counts; looking is logged where it is refused for who asked."""
        if self._done or (self._method in SAFE and not self._login_failed and answer.status != 403):
            return
        self._done = True
        kind = "failed login" if self._login_failed else "management"
        user = self.fields.get("user")
        self.fields["status"] = answer.status
        text = self.what
        if self._body:
            text += f" {printable(encode(self._body).decode(), BODY)}"
        result = ""
        if self._reason is not None:
            result = self.fields["reason"] = printable(" ".join(self._reason.split()), REASON)
        elif isinstance(answer.body, bytes) and 0 < len(answer.body) <= RESULT:
            result = self.fields["result"] = answer.body.decode()
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
