"""A piece of what a peer sent, made fit for an error message."""

from __future__ import annotations

_LONGEST = 40  # enough to find the place again, and too short to fill a log


def shown(text: bytes) -> str:
    """``text`` in quotes, as ASCII with escapes, cut after 40 bytes."""
    if len(text) > _LONGEST:
        return f"{ascii(bytes(text[:_LONGEST]))[1:]}..."
    return ascii(bytes(text))[1:]
