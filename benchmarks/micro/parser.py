"""Duration of the parser for a frame, without a reactor: ``python -m benchmarks.micro.parser``.

Each case is a stream of frames in reads of 64 KiB, the size of Twisted's reads. The output has the best of many rounds,
in microseconds of processor time per frame.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stompring.stomp.frames import encode_frame
from stompring.stomp.parser import Parser

READ = 64 * 1024
FRAMES = 2_000
ROUNDS = 100  # short rounds, so that other programs do not disturb the best one


def connected(version: bytes = b"1.2") -> Parser:
    parser = Parser(100 * 1024 * 1024, 1000, 64 * 1024)
    parser.feed(b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:/\n\n\0")
    parser.negotiated(version)
    return parser


def same(number: int) -> bytes:
    """Create a frame of stompload: all frames have the same headers."""
    headers = [(b"destination", b"/queue/bench.0"), (b"content-type", b"text/plain")]
    return encode_frame(b"SEND", headers, b"%0128d" % number)


def same_to_nul(number: int) -> bytes:
    return b"SEND\ndestination:/queue/bench.0\ncontent-type:text/plain\n\n%0128d\0\n" % number


def unique(number: int) -> bytes:
    """Create a frame with four headers, one of which is unique."""
    headers = [(b"destination", b"/queue/bench.0"), (b"correlation-id", b"%d" % number), (b"type", b"order")]
    return encode_frame(b"SEND", headers, b"%0128d" % number)


def with_receipt(number: int) -> bytes:
    headers = [(b"destination", b"/queue/bench.0"), (b"receipt", b"%d" % number), (b"persistent", b"true")]
    return encode_frame(b"SEND", headers, b"%0128d" % number)


def escaped(number: int) -> bytes:
    headers = [
        (b"destination", b"/queue/bench.0"),
        (b"url", b"http://example.org/%d" % number),
        (b"type", b"order"),
    ]
    return encode_frame(b"SEND", headers, b"%0128d" % number)


def carriage_returns(number: int) -> bytes:
    return b"SEND\r\ndestination:/queue/bench.0\r\nkey:%d\r\ncontent-length:128\r\n\r\n%0128d\0\r\n" % (
        number,
        number,
    )


def ack(number: int) -> bytes:
    return b"ACK\nid:%d\n\n\0\n" % number


CASES: list[Callable[[int], bytes]] = [
    same,
    same_to_nul,
    unique,
    with_receipt,
    escaped,
    carriage_returns,
    ack,
]


def reads(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def seconds(parser: Parser, chunks: list[bytes], frames: int) -> float:
    count = 0
    begun = time.process_time()
    for chunk in chunks:
        count += len(parser.feed(chunk))
    spent = time.process_time() - begun
    if parser.error is not None or count != frames:
        raise AssertionError(f"{count} of {frames} frames, {parser.error}")
    return spent


def report(name: str, chunks: list[bytes]) -> None:
    parser = connected()
    spent = min(seconds(parser, chunks, FRAMES) for _ in range(ROUNDS)) / FRAMES
    print(f"{name:<34}{spent * 1e6:>10.2f}{1 / spent:>12,.0f}")


def main() -> None:
    print(f"{'frame':<34}{'us/frame':>10}{'frames/s':>12}")
    for case in CASES:
        report(case.__name__, reads(b"".join(case(number) for number in range(FRAMES)), READ))
    report("same, one frame in a read", [same(number) for number in range(FRAMES)])
    big = reads(encode_frame(b"SEND", [(b"destination", b"/queue/big")], bytes(100_000_000)), READ)
    spent = min(seconds(connected(), big, 1) for _ in range(3))
    print(f"{'a body of 100 MB':<34}{spent * 1e3:>10.1f} ms")


if __name__ == "__main__":
    main()
