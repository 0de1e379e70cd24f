"""The frame parser: the same frames and the same error however a stream is cut, within the limits, and there and back.

The first byte of an input chooses the version and the line end of CONNECT, the second where the stream is cut; the
rest is the stream.
"""

from random import Random

from stompring.stomp.frames import encode_frame
from stompring.stomp.parser import Parser

from ..stomp.reading import opened, pieces, read
from .oracle import Broken, expect

LONGEST = 4096
MODULES = ["stompring.stomp"]
TOKENS = [
    b"CONNECT\n",
    b"STOMP\n",
    b"SEND\n",
    b"SUBSCRIBE\n",
    b"ACK\n",
    b"CONNECTED\n",
    b"\n\n\0",
    b"\r\n\r\n\0",
    b"accept-version:1.2\n",
    b"accept-version:1.0\n",
    b"content-length:",
    b"receipt:",
    b"destination:/queue/a\n",
    b"\\n",
    b"\\c",
    b"\\r",
    b"\\\\",
    b"\\t",
    b"\r\n",
    b"\0\n",
    b"\n\r\n",
    b"content-length:3\n",
]

BODY, HEADERS, LINE = 300, 12, 120
#: Whatever comes, no more is held back than one frame at its limits.
HELD = BODY + (HEADERS + 3) * (LINE + 2)

_VERSIONS = (None, b"1.0", b"1.1", b"1.2")


def check(data):
    """See the module."""
    if len(data) < 2:
        return
    version, end = _VERSIONS[data[0] & 3], b"\r\n" if data[0] & 4 else b"\n"
    opens = version is None
    spoken = _VERSIONS[1 + (data[0] >> 3) % 3] if opens else None
    stream = data[2:]
    whole, error = read(_parser(version, end), [stream], spoken)
    _bounded(whole)

    random = Random(data[1])
    cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.randrange(1, 9)))
    for reads in (list(pieces(stream, cuts)), [stream[at : at + 1] for at in range(len(stream))]):
        again = read(_Watched(_parser(version, end)), reads, spoken)
        if again != (whole, error):
            raise Broken(f"cut into {len(reads)} reads: {again}, not {(whole, error)}")
    if version is not None:
        _there_and_back(whole, version)


def _parser(version, end):
    return opened(version, end, BODY, HEADERS, LINE)


class _Watched(Parser):
    """A parser whose buffer is looked at after each read."""

    def __init__(self, parser):
        for slot in Parser.__slots__:
            setattr(self, slot, getattr(parser, slot))

    def feed(self, data):  # type: ignore[type-arg]
        before = self.version
        frames = super().feed(data)
        if before is not None:
            held = self.held
            expect(held <= max(HELD, len(data) + 2), f"{held} bytes are held back")
        expect(len(self._heads.memo.heads) <= 256, "the memo grows")
        return frames


def _bounded(frames):
    for command, headers, length, body in frames:
        expect(len(body) <= BODY, f"a body of {len(body)} bytes")
        expect(len(headers) <= HEADERS, f"{len(headers)} headers")
        expect(length in (-1, len(body)), f"content-length {length} of {len(body)} bytes")
        expect(0 < len(command) <= LINE, f"the command {command!r}")
        expect(all(name for name, _ in headers), "a header without a name")


def _there_and_back(frames, version):
    for command, headers, _, body in frames:
        if command == b"CONNECTED":  # no client's; escaped when it comes and not when it goes
            continue
        data = encode_frame(command, headers, body, version)
        again, error = read(opened(version, b"\n", BODY + 1, 10_000, 100_000), [data])
        expect(error is None and len(again) == 1, f"{data!r} was made and cannot be read: {error}")
        same = _compared(command, headers, body) == _compared(again[0][0], again[0][1], again[0][3])
        expect(same, f"{command!r} {headers} came back as {again[0]}")


def _compared(command, headers, body):
    """What must be the same: of the order of headers all but where the receipt stands, which nobody passes on."""
    own = [(name, value) for name, value in headers if name not in (b"content-length", b"receipt")]
    return command, own, dict(headers).get(b"receipt"), body
