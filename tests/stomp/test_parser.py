"""Streams and the frames in them: read whole, byte by byte, and with the beginning of another frame after them."""

import pytest

from stompring.stomp.parser import Parser
from tests.stomp.reading import byte_by_byte, frame, opened, pieces, read

# version, stream, frames
CASES = {
    "no headers, no body": (b"1.2", b"BEGIN\n\n\0", [frame(b"BEGIN", {})]),
    "headers": (
        b"1.2",
        b"SUBSCRIBE\nid:0\ndestination:/queue/foo\nack:client\n\n\0",
        [frame(b"SUBSCRIBE", {b"id": b"0", b"destination": b"/queue/foo", b"ack": b"client"})],
    ),
    "body that ends in NUL": (
        b"1.2",
        b"SEND\ndestination:/queue/a\n\nhello queue a\0",
        [frame(b"SEND", {b"destination": b"/queue/a"}, b"hello queue a")],
    ),
    "body with empty lines and CR in it": (
        b"1.2",
        b"SEND\na:b\n\n\n\none\n\r\n\r\ntwo\n\n\0",
        [frame(b"SEND", {b"a": b"b"}, b"\n\none\n\r\n\r\ntwo\n\n")],
    ),
    "content-length with NUL in the body": (
        b"1.1",
        b"SEND\ncontent-length:5\n\na\0\0b\0\0",
        [frame(b"SEND", {b"content-length": b"5"}, b"a\0\0b\0")],
    ),
    "content-length of nothing": (
        b"1.1",
        b"SEND\ncontent-length:0\n\n\0",
        [frame(b"SEND", {b"content-length": b"0"}, b"")],
    ),
    "content-length with zeros and blanks": (
        b"1.2",
        b"SEND\ncontent-length: 0000000000000000000000002 \n\nab\0",
        [frame(b"SEND", {b"content-length": b" 0000000000000000000000002 "}, b"ab", 2)],
    ),
    "many frames": (
        b"1.2",
        b"ACK\nid:1\n\n\0ACK\nid:2\n\n\0\nACK\nid:3\n\n\0\n\n\nSEND\n\nx\0SEND\n\ny\0\n",
        [frame(b"ACK", {b"id": b"%d" % number}) for number in (1, 2, 3)]
        + [frame(b"SEND", {}, body) for body in (b"x", b"y")],
    ),
    "the same header block again with another body": (
        b"1.2",
        b"SEND\nd:q\ncontent-length:1\n\na\0\nSEND\nd:q\ncontent-length:1\n\nb\0\nSEND\nd:q\ncontent-length:1\n\n\0\0\n",
        [frame(b"SEND", {b"d": b"q", b"content-length": b"1"}, body) for body in (b"a", b"b", b"\0")],
    ),
    "line ends between frames": (
        b"1.2",
        b"\n\r\n\n\n\r\n\r\nBEGIN\n\n\0\r\n\r\n\n\r\nCOMMIT\n\n\0\r\n",
        [frame(b"BEGIN", {}), frame(b"COMMIT", {})],
    ),
    "CR LF in 1.2": (
        b"1.2",
        b"SEND\r\nfoo:bar\r\nempty:\r\n\r\nbody\r\n\0\r\nBEGIN\r\n\r\n\0",
        [frame(b"SEND", {b"foo": b"bar", b"empty": b""}, b"body\r\n"), frame(b"BEGIN", {})],
    ),
    "mixed line ends in 1.2": (
        b"1.2",
        b"SEND\r\na:1\nb:2\r\n\none\n\r\n\0SEND\na:1\n\r\ntwo\n\n\0SEND\na:1\r\n\n\nthree\0SEND\r\na:1\n\r\n\nfour\0",
        [
            frame(b"SEND", {b"a": b"1", b"b": b"2"}, b"one\n\r\n"),
            frame(b"SEND", {b"a": b"1"}, b"two\n\n"),
            frame(b"SEND", {b"a": b"1"}, b"\nthree"),
            frame(b"SEND", {b"a": b"1"}, b"\nfour"),
        ],
    ),
    "CR belongs to the value in 1.1": (
        b"1.1",
        b"SEND\na:1\r\nb:\r2\n\n\r\nbody\0",
        [frame(b"SEND", {b"a": b"1\r", b"b": b"\r2"}, b"\r\nbody")],
    ),
    "CR belongs to the value in 1.0": (b"1.0", b"SEND\na:1\r\n\n\0", [frame(b"SEND", {b"a": b"1\r"})]),
    "escapes in 1.2": (
        b"1.2",
        b"SEND\n\\cname\\n\\\\:\\r\\n\\c\\\\ \\\\n\n\n\0",
        [frame(b"SEND", {b":name\n\\": b"\r\n:\\ \\n"})],
    ),
    "escapes in 1.1": (
        b"1.1",
        b"SEND\n\\cname:\\n\\c\\\\r\n\n\0",
        [frame(b"SEND", {b":name": b"\n:\\r"})],
    ),
    "no escapes in 1.0": (
        b"1.0",
        b"SEND\na\\n:C:\\new\\c\\t\\\n\n\0",
        [frame(b"SEND", {b"a\\n": b"C:\\new\\c\\t\\"})],
    ),
    "CONNECT is not escaped in any version": (
        b"1.2",
        b"CONNECT\npasscode:a\\cb\\t\n\n\0STOMP\npasscode:\\\n\n\0",
        [frame(b"CONNECT", {b"passcode": b"a\\cb\\t"}), frame(b"STOMP", {b"passcode": b"\\"})],
    ),
    "colons in values": (
        b"1.2",
        b"SEND\nurl:http://example.org:80/\na:b\n\n\0",
        [frame(b"SEND", {b"url": b"http://example.org:80/", b"a": b"b"})],
    ),
    "padding is kept in 1.1": (
        b"1.1",
        b"SEND\n a\t: b \n\n\0",
        [frame(b"SEND", {b" a\t": b" b "})],
    ),
    "padding is kept in 1.2": (b"1.2", b"SEND\na: b\n\n\0", [frame(b"SEND", {b"a": b" b"})]),
    "blanks before values go in 1.0": (
        b"1.0",
        b"SEND\na: \t b \n c:d\ncontent-length: 1\n\nx\0",
        [frame(b"SEND", {b"a": b"b ", b" c": b"d", b"content-length": b"1"}, b"x")],
    ),
    "the first of repeated headers counts in 1.2": (
        b"1.2",
        b"SEND\nfoo:1\nbar:2\nfoo:3\nb\\\\:4\nbar:5\nb\\\\:6\n\n\0SEND\nfoo:1\nbar:2\nfoo:3\n\n\0",
        [
            frame(b"SEND", {b"foo": b"1", b"bar": b"2", b"b\\": b"4"}),
            frame(b"SEND", {b"foo": b"1", b"bar": b"2"}),
        ],
    ),
    "the first of repeated headers counts in 1.1": (
        b"1.1",
        b"SEND\ncontent-length:1\ncontent-length:2\n\na\0",
        [frame(b"SEND", {b"content-length": b"1"}, b"a")],
    ),
    "the last of repeated headers counts in 1.0": (
        b"1.0",
        b"SEND\nfoo:1\nbar:2\nfoo:3\n\n\0",
        [frame(b"SEND", {b"foo": b"3", b"bar": b"2"})],
    ),
    "UTF-8 in names and values": (
        b"1.2",
        "SEND\nключ:значение ☃\n\nтело\0".encode(),
        [frame(b"SEND", {"ключ".encode(): "значение ☃".encode()}, "тело".encode())],
    ),
    "unknown commands": (
        b"1.2",
        b"GET / HTTP/1.1\nHost:a\n\n\0\x01\t\n\n\0",
        [frame(b"GET / HTTP/1.1", {b"Host": b"a"}), frame(b"\x01\t", {})],
    ),
}


@pytest.mark.parametrize("version, stream, frames", CASES.values(), ids=CASES.keys())
class TestStreams:
    def test_however_it_is_cut(self, version, stream, frames):
        for reads in ([stream], byte_by_byte(stream), *(pieces(stream, [cut]) for cut in range(len(stream)))):
            assert read(opened(version), reads) == (frames, None)
        assert read(opened(version), [stream * 7]) == (frames * 7, None)

    def test_the_beginning_of_another_frame_is_left(self, version, stream, frames):
        parser = opened(version)
        assert read(parser, [stream + b"\nSEND\nover:time\ncontent-length:3\n\nab"]) == (frames, None)
        rest = frame(b"SEND", {b"over": b"time", b"content-length": b"3"}, b"abc")
        assert read(parser, [b"c\0"]) == ([rest], None)


def test_frames_of_many_styles_one_after_the_other():
    newer = [case for case in CASES.values() if case[0] == b"1.2"]
    stream = b"".join(stream for _, stream, _ in newer) * 2
    frames = [frame for _, _, frames in newer for frame in frames] * 2
    assert read(opened(b"1.2"), [stream]) == (frames, None)
    assert read(opened(b"1.2"), byte_by_byte(stream)) == (frames, None)


@pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
def test_cr_lf_throughout_when_connect_used_it(version):
    stream = b"SEND\r\na:b\r\nc:\r\n\r\nbody\r\n\0\r\nSEND\na:b\n\nbody\0\n"
    frames = [frame(b"SEND", {b"a": b"b", b"c": b""}, b"body\r\n"), frame(b"SEND", {b"a": b"b"}, b"body")]
    assert read(opened(version, end=b"\r\n"), [stream]) == (frames, None)
    assert read(opened(version, end=b"\r\n"), byte_by_byte(stream)) == (frames, None)


@pytest.mark.parametrize(
    "connect", [b"CONNECT\r\na:b\n\n\0", b"CONNECT\na:b\r\n\n\0", b"CONNECT\na:b\n\r\n\0"]
)
def test_one_cr_lf_in_connect_is_enough(connect):
    frames = read(opened(None), [connect + b"SEND\r\nx:y\r\n\r\n\0"], version=b"1.1")
    assert frames == ([frame(b"CONNECT", {b"a": b"b"}), frame(b"SEND", {b"x": b"y"})], None)


def test_a_connect_that_uses_lf_makes_cr_part_of_values_again():
    parser = opened(b"1.1")
    assert read(parser, [b"SEND\nx:y\r\n\nbody\0"]) == ([frame(b"SEND", {b"x": b"y\r"}, b"body")], None)


class TestOpening:
    """Before the version is known (spec: "CONNECT or STOMP frame")."""

    def test_one_frame_and_the_rest_when_the_version_is_known(self):
        parser = opened(None)
        rest = b"SEND\na:b\\c\n\n\0SEND\na:b\\c\n\n\0SEND\na:"
        [(head, _)] = parser.feed(b"\n\r\nCONNECT\naccept-version:1.2\n\n\0\n" + rest)
        assert (head.command, parser.version) == (b"CONNECT", None)
        assert parser.feed(b"b\n\n") == []
        parser.negotiated(b"1.2")
        assert parser.version == b"1.2"
        sends = [frame(b"SEND", {b"a": b"b:"})] * 2
        assert read(parser, [b""]) == (sends, None)
        assert read(parser, [b"\0"]) == ([frame(b"SEND", {b"a": b"b"})], None)

    def test_how_the_rest_is_read_depends_on_the_version(self):
        stream = b"CONNECT\n\n\0SEND\na: \\c\na: \\n\n\n\0"
        got = {version: read(opened(None), [stream], version)[0][1][1] for version in (b"1.0", b"1.1")}
        assert got == {b"1.0": [(b"a", b"\\n")], b"1.1": [(b"a", b" :")]}

    def test_other_frames_come_one_at_a_time(self):
        parser = opened(None)
        assert [head.command for head, _ in parser.feed(b"SEND\n\n\0SEND\n\n\0BEGIN\n\n\0")] == [b"SEND"]
        assert [head.command for head, _ in parser.feed(b"")] == [b"SEND"]
        assert [head.command for head, _ in parser.feed(b"CONNECT\n\n\0")] == [b"BEGIN"]
        assert [head.command for head, _ in parser.feed(b"")] == [b"CONNECT"]
        assert parser.feed(b"BEGIN\n\n\0") == []

    @pytest.mark.parametrize(
        "headers, expected",
        [
            (b"login: me\nlogin:you", {b"login": b"you"}),
            (b"accept-version:1.0\nlogin: me", {b"accept-version": b"1.0", b"login": b"me"}),
            (b"accept-version: 1.0, 1.1\nlogin: me", {b"accept-version": b" 1.0, 1.1", b"login": b" me"}),
            (b"login: me\nlogin:you\naccept-version:1.2", {b"login": b" me", b"accept-version": b"1.2"}),
            (b"passcode:\\c\\t\\\naccept-version:1.2", {b"passcode": b"\\c\\t\\", b"accept-version": b"1.2"}),
        ],
    )
    def test_headers(self, headers, expected):
        frames, error = read(opened(None), [b"CONNECT\n" + headers + b"\n\n\0"])
        assert error is None
        assert dict(frames[0][1]) == expected

    def test_a_body_in_pieces(self):
        parser = opened(None)
        stream = b"CONNECT\ncontent-length:4\n\nab\0d\0SEND\na:\\c\n\n\0"
        expected = [frame(b"CONNECT", {b"content-length": b"4"}, b"ab\0d"), frame(b"SEND", {b"a": b":"})]
        assert read(parser, byte_by_byte(stream), version=b"1.1") == (expected, None)

    def test_a_version_in_the_middle_of_a_head(self):
        parser = opened(b"1.1")
        parser.feed(b"SEND\na:b\n")
        parser.negotiated(b"1.2")
        assert read(parser, [b"\r", b"\n", b"\0"]) == ([frame(b"SEND", {b"a": b"b"})], None)

    def test_an_unknown_version_is_a_bug_of_ours(self):
        with pytest.raises(KeyError):
            opened(None).negotiated(b"1.3")


class TestHeads:
    def test_the_same_block_of_a_send_gives_the_same_head(self):
        stream = b"SEND\nd:q\n\na\0SEND\nd:q\n\nb\0SEND\nd:r\n\nc\0SEND\nd:q\n\nd\0"
        heads = [head for head, _ in opened().feed(stream)]
        assert heads[0] is heads[1] is heads[3] is not heads[2]
        heads[0].plan = "mine"
        assert heads[3].plan == "mine" and heads[2].plan is None

    @pytest.mark.parametrize("block", [b"ACK\nid:1", b"SEND\nreceipt:1", b"SEND\na:" + b"x" * 1100])
    def test_what_does_not_repeat_is_not_kept(self, block):
        first, second = opened(line=2000).feed((block + b"\n\n\0") * 2)
        assert first[0] is not second[0] and first[0].headers == second[0].headers

    def test_another_version_forgets(self):
        parser = opened(b"1.1")
        stream = b"SEND\na: \\n\n\n\0"
        assert read(parser, [stream]) == ([frame(b"SEND", {b"a": b" \n"})], None)
        parser.negotiated(b"1.0")
        assert read(parser, [stream]) == ([frame(b"SEND", {b"a": b"\\n"})], None)


class TestDiscard:
    @pytest.mark.parametrize("before", [b"", b"SEND\na", b"SEND\n\nab", b"SEND\ncontent-length:9\n\nab"])
    def test_nothing_comes_any_more(self, before):
        parser = opened()
        assert parser.feed(before) == []
        parser.discard()
        assert parser.feed(b"\0\0\nBEGIN\n\n\0SEND\nno colon\n\n\0") == []
        assert parser.error is None

    def test_before_the_version_is_known(self):
        parser = Parser(10, 10, 10)
        parser.feed(b"CONNECT\n\n\0BEGIN\n\n\0")
        parser.discard()
        parser.negotiated(b"1.2")
        assert parser.feed(b"") == []
