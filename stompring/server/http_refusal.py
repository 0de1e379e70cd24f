"""An answer of HTTP that refuses what was asked for, with the reason as its text; the connection ends with it."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus


def http_refusal(code: int, reason: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """The whole answer."""
    body = f"{reason}\n".encode()
    lines = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
        *headers,
    ]
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{head}\r\n".encode() + body
