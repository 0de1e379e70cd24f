"""What is answered to a request, and the errors among it (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from stompring.errors import NotFound, Refused

JSON = "application/json"
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, or one whose body comes in pieces: an empty piece is a pause for others."""

    body: bytes | Iterator[bytes] = b""
    status: int = 200
    content_type: str | None = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


#: Work that takes long is a generator: every ``yield`` lets the reactor serve others, its result is the answer. What
#: it yields is None or a Deferred, which is waited for.
Steps = Generator[Any, None, Answer]


class Problem(Refused):
    """A refusal that says more than its text: headers of the answer, members of the problem document."""

    def __init__(
        self, status: int, reason: str, headers: Mapping[str, str] | None = None, **members: object
    ) -> None:
        super().__init__(reason, status)
        self.headers = headers or {}
        self.members = members


def invalid(name: str, reason: str, **members: object) -> Problem:
    """400 for one field of a body."""
    return Problem(400, f"{name} {reason}", None, field=name, **members)


def encode(value: Any) -> bytes:
    """A value as JSON. Text that is no Unicode (a lone surrogate) has ``?`` in its place."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """An answer of one JSON value."""
    return Answer(encode(value), status, headers=headers or {})


NO_CONTENT = Answer(status=204, content_type=None)


def problem_answer(refused: Refused, instance: str) -> Answer:
    """A refusal as ``application/problem+json``: type, title, status, detail, instance, and what it adds."""
    status = HTTPStatus(404 if isinstance(refused, NotFound) else refused.status)
    members: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}
    if isinstance(refused, Problem):
        members, headers = refused.members, refused.headers
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": str(refused),
        "instance": instance,
        **members,
    }
    return Answer(encode(document), int(status), PROBLEM, headers)
