"""What a broker sends, read by a client: `Parser` the other way round."""

from __future__ import annotations

from stompring.stomp.parser import Frames, Parser

#: A broker is trusted more than its clients are: as long as Python's own limits allow, and no less than a broker
#: may pass on from its clients.
_LONGEST_BODY, _MOST_HEADERS, _LONGEST_LINE = 1 << 31, 1 << 16, 1 << 20


class Replies:
    """Reads the frames of one connection that speaks STOMP 1.2, the CONNECTED or ERROR that opens it first.

    CONNECTED is not escaped in any version, and an ERROR in its place is of a broker that does not know yet which one
    is spoken: the first frame is read as it stands.
    """

    __slots__ = ("_parser",)

    def __init__(self) -> None:
        self._parser = Parser(_LONGEST_BODY, _MOST_HEADERS, _LONGEST_LINE)

    def feed(self, data: bytes) -> Frames:
        """The frames that ``data`` completes. Raises `ProtocolError` where the broker breaks a rule and no frame is
        left to hand out before that."""
        parser = self._parser
        frames = parser.feed(data)
        if frames and parser.version is None:
            parser.negotiated(b"1.2")
            frames += parser.feed(b"")
        if parser.error is not None and not frames:
            raise parser.error
        return frames
