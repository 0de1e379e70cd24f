"""The body of a request: bytes up to a limit, then one JSON object read strictly."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from stompring.errors import LimitReached

from .answer import Problem

#: Bytes. What the API takes is a handful of attributes; the longest is a selector of 8 KiB.
BODY_LIMIT = 1024 * 1024

#: Bytes of a body that are read and thrown away so that its sender gets to hear of the limit; then it is cut off.
PATIENCE = 16 * BODY_LIMIT

#: Characters of a whole number in JSON. None that is wanted has more than 19; int() would refuse 4301 digits.
DIGITS = 40


class LimitedBody(BytesIO):
    """Keeps at most `BODY_LIMIT` bytes; ``length`` tells how many came."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def write(self, data: Any, /) -> int:
        """Keep what still fits."""
        self.length += len(data)
        if self.length <= BODY_LIMIT:
            super().write(data)
        return len(data)

    @property
    def too_large(self) -> bool:
        """Whether something was left out."""
        return self.length > BODY_LIMIT


def check_content_type(content_type: str | None, body: LimitedBody) -> None:
    """Raise 415 for anything but JSON, 413 for too much of it.

    An HTML form always says a type of its own, even without fields, so that no form of a foreign page gets past.
    """
    if content_type is None and not body.length:
        return
    media_type, _, parameters = (content_type or "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if media_type.strip().lower() != "application/json" or charset not in ("", "utf-8"):
        said = f"not {content_type}" if content_type else "and the Content-Type header must say so"
        raise Problem(
            415, f"The body must be application/json in UTF-8, {said}", {"Accept": "application/json"}
        )
    if body.too_large:
        raise LimitReached(f"The body is longer than {BODY_LIMIT} bytes", "http-body", 413)


def read_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a body holds; an empty body is an empty object. Raises 400 with the position."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as fault:
        raise Problem(400, f"The body is not UTF-8 at byte {fault.start}") from None
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as fault:
        raise Problem(
            400,
            f"The body is not JSON: {fault.msg} at line {fault.lineno} column {fault.colno}",
            line=fault.lineno,
            column=fault.colno,
        ) from None
    except RecursionError:
        raise Problem(400, "The body is not usable JSON: it is nested too deeply") from None
    except ValueError as fault:
        raise Problem(400, f"The body is not usable JSON: {fault}") from None
    if not isinstance(value, dict):
        raise Problem(400, "The body must be a JSON object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the member {name!r} comes twice")
        found[name] = value
    return found


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"a whole number has more than {DIGITS} characters")
    return int(text)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
