"""What stands before the body of a frame, decoded."""

from __future__ import annotations

from typing import Any


class Head:
    """Command and headers of one frame. Frames with the same header block share one `Head`: never change it.

    ``headers`` maps decoded names to decoded values in order of first appearance; where a header is repeated,
    1.1 and 1.2 keep the first value and 1.0 the last. ``content_length`` is in bytes, -1 when absent. ``plan`` is
    free for whoever reads the frames: what is stored there is found again with the next frame whose header block
    is the same. ``kin`` is the head of a block that is the same but for its receipt, where one is known: producers
    that ask for a receipt each time would never find anything again otherwise. ``block`` is the header block as it
    came, with LF line ends, where nothing in it was escaped or repeated; empty otherwise.
    """

    __slots__ = ("block", "command", "content_length", "headers", "kin", "plan")

    def __init__(self, command: bytes, headers: dict[bytes, bytes], content_length: int = -1) -> None:
        self.command = command
        self.headers = headers
        self.content_length = content_length
        self.block = b""
        self.kin: Head | None = None
        self.plan: Any = None

    def __repr__(self) -> str:
        headers = self.headers | {b"passcode": b"***"} if b"passcode" in self.headers else self.headers
        return f"Head({self.command!r}, {headers!r}, content_length={self.content_length})"
