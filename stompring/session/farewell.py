"""The last frame of a connection that never had a session."""

from __future__ import annotations

from stompring.stomp.encode import encode_frame


def farewell(text: str) -> bytes:
    """An ERROR in the form that clients of all versions read."""
    headers = [(b"message", text.encode()), (b"content-type", b"text/plain")]
    return encode_frame(b"ERROR", headers, text.encode() + b"\n", b"1.0")
