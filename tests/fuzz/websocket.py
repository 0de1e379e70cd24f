"""Frames of WebSocket: the same in Python and in C, wherever a read ends, and what the library reads and writes.

The first byte of an input is an eighth of the longest payload, the second says where the stream is cut; the rest is
the stream.
"""

from websockets.frames import Frame, apply_mask
from websockets.streams import StreamReader

from ..server.transport import House
from ..stomp.native import builds
from .oracle import expect

LONGEST = 4096
MODULES = ["stompring.stomp.websocket_frames"]
TOKENS = [
    b"\x81\x80\0\0\0\0",
    b"\x82\x83abcd",
    b"\x82\xfe\x01\x00abcd",
    b"\x82\xff",
    b"\x89\x80",
    b"\xc5\xbc",
    b"\0\n",
]

#: The functions in Python, which a checkout has, and those in C.
BUILDS = [build or House().make_factory().websockets.frames for build in builds("_websocket")]


def check(data):
    """See the module."""
    if len(data) < 2:
        return
    longest, stream = 8 * data[0], data[2:]
    cut = data[1] * len(stream) // 255
    for build in BUILDS:
        read = build.read_short_messages
        payload, at, incomplete = read(stream, longest, apply_mask)
        expect(_payloads(stream[:at], masked=True) == payload, f"{payload!r} of {stream[:at]!r}")
        first, half, more = read(stream[:cut], longest, apply_mask)
        second, end, last = read(stream[half:], longest, apply_mask) if more else (b"", 0, False)
        expect(
            (first + second, half + end, last) == (payload, at, incomplete),
            f"cut at {cut}: {first + second!r}",
        )
    parts = [part for part in (stream[:cut], stream[cut:]) if part]
    for build in BUILDS:
        packed = build.pack_binary(parts)
        ended = [number for number, part in enumerate(parts) if part.endswith(b"\n")]
        whole = b"".join(parts[: ended[-1] + 1]) if ended else b""
        expect(_payloads(packed, masked=False) == whole, f"{packed!r} of {parts!r}")


def _payloads(data, *, masked):
    """What the library reads of whole frames, each one a message."""
    reader, payloads = StreamReader(), []
    reader.feed_data(data)
    reader.feed_eof()
    while not (finished(reader.at_eof())):
        frame = finished(Frame.parse(reader.read_exact, mask=masked))
        expect(frame.fin, f"a fragment in {data!r}")
        payloads.append(frame.data)
    return b"".join(payloads)


def finished(reading):
    """The result of a step of the library, which has all its bytes."""
    try:
        next(reading)
    except StopIteration as done:
        return done.value
    raise AssertionError("an unfinished frame")
