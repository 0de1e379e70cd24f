"""Ways to put a stream through a parser, as a session would, and to look at what comes out."""

from stompring.stomp.parser import Parser

# command, headers in order, content-length, body
Frame = tuple[bytes, list[tuple[bytes, bytes]], int, bytes]


def frame(command, headers, body=b"", length=None):
    """What is expected; ``length`` is taken from the headers if it is not given."""
    if length is None:
        length = int(headers.get(b"content-length", b"-1"))
    return command, list(headers.items()), length, body


def opened(version=b"1.2", end=b"\n", body=10_000, headers=50, line=1_000):
    """A parser whose connection agreed on ``version``; ``end`` is the line end its CONNECT used."""
    parser = Parser(max_body_length=body, max_headers=headers, max_header_length=line)
    if version is not None:
        assert len(parser.feed(b"CONNECT" + end + b"accept-version:" + version + end + end + b"\0")) == 1
        parser.negotiated(version)
    return parser


def pieces(stream, cuts):
    start = 0
    for cut in [*sorted(cuts), len(stream)]:
        yield stream[start:cut]
        start = cut


def byte_by_byte(stream):
    return pieces(stream, range(1, len(stream)))


def read(parser, reads, version=None):
    """All frames, and the error's text. With ``version`` that is agreed on after the first CONNECT or STOMP."""
    frames = []
    for data in reads:
        got = parser.feed(data)
        while got:
            for head, body in got:
                frames.append((head.command, list(head.headers.items()), head.content_length, body))
            if version is not None and parser.version is None and frames[-1][0] in (b"CONNECT", b"STOMP"):
                parser.negotiated(version)
            got = parser.feed(b"")
    return frames, None if parser.error is None else str(parser.error)
