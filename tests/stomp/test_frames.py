"""Escapes and whole frames, version by version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.errors import ProtocolError
from stompring.stomp.frames import encode_frame, escape, header_line, recode, unescape

EVERYTHING = b"a\\b:c\nd\re"


@pytest.mark.parametrize(
    "version, escaped",
    [
        (b"1.0", b"a\\b:c\\nd\re"),
        (b"1.1", b"a\\\\b\\cc\\nd\re"),
        (b"1.2", b"a\\\\b\\cc\\nd\\re"),
    ],
)
def test_escape(version, escaped):
    assert escape(EVERYTHING, version) == escaped
    if version != b"1.0":
        assert unescape(escaped, version) == EVERYTHING


@pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
def test_plain_text_is_the_same_object(version):
    text = b"/queue/plain text"
    assert escape(text, version) is text
    assert unescape(text, version) is text


@pytest.mark.parametrize(
    "text, plain",
    [
        (b"\\\\", b"\\"),
        (b"\\\\\\\\", b"\\\\"),
        (b"\\\\c", b"\\c"),
        (b"\\\\\\c", b"\\:"),
        (b"\\c\\n\\r", b":\n\r"),
        (b"a\\\\\\\\nb", b"a\\\\nb"),
        (b"\\cx\\c", b":x:"),
    ],
)
def test_unescape(text, plain):
    assert unescape(text) == plain


@pytest.mark.parametrize(
    "text, version, message",
    [
        (b"\\t", b"1.2", "undefined escape \\t in header 'h': STOMP 1.2 defines \\\\ \\n \\c \\r"),
        (b"\\r", b"1.1", "undefined escape \\r in header 'h': STOMP 1.1 defines \\\\ \\n \\c"),
        (b"\\\\\\N", b"1.2", "undefined escape \\N in header 'h': STOMP 1.2 defines \\\\ \\n \\c \\r"),
        (b"\\\xff", b"1.2", "undefined escape \\\\xff in header 'h': STOMP 1.2 defines \\\\ \\n \\c \\r"),
        (
            b"a\\",
            b"1.2",
            "a backslash that escapes nothing in header 'h': STOMP 1.2 defines \\\\ \\n \\c \\r",
        ),
        (b"\\\\\\", b"1.1", "a backslash that escapes nothing in header 'h': STOMP 1.1 defines \\\\ \\n \\c"),
    ],
)
def test_undefined_escapes(text, version, message):
    with pytest.raises(ProtocolError) as caught:
        unescape(text, version, b"h")
    assert str(caught.value) == message


def test_an_undefined_escape_of_no_header():
    with pytest.raises(ProtocolError, match=r"^undefined escape \\x: STOMP 1\.2"):
        unescape(b"\\x")


def test_nothing_is_undefined_in_1_0():
    assert unescape(b"\\t\\", b"1.0") == b"\\t\\"


@pytest.mark.parametrize(
    "version, line",
    [
        (b"1.0", b"n\\cm\\\\:v:w\\\n"),
        (b"1.1", b"n\\cm\\\\\\\\:v\\cw\\\\\n"),
        (b"1.2", b"n\\cm\\\\\\\\:v\\cw\\\\\n"),
    ],
)
def test_header_line(version, line):
    assert header_line(b"n:m\\\\", b"v:w\\", version) == line


def test_header_line_is_1_2_unless_told():
    assert header_line(b"a", b"\r") == b"a:\\r\n"


class TestEncodeFrame:
    def test_without_body(self):
        assert encode_frame(b"RECEIPT", [(b"receipt-id", b"77:1")]) == b"RECEIPT\nreceipt-id:77\\c1\n\n\0\n"

    def test_without_headers(self):
        assert encode_frame(b"ERROR", []) == b"ERROR\n\n\0\n"

    def test_a_body_is_counted(self):
        frame = encode_frame(b"MESSAGE", {b"a": b"b"}.items(), b"x\0y")
        assert frame == b"MESSAGE\na:b\ncontent-length:3\n\nx\0y\0\n"

    @pytest.mark.parametrize("body, count", [(b"", b"0"), (b"1234", b"4")])
    def test_a_content_length_that_is_given_is_made_true(self, body, count):
        frame = encode_frame(b"MESSAGE", [(b"content-length", b"99"), (b"a", b"b")], body)
        assert frame == b"MESSAGE\na:b\ncontent-length:" + count + b"\n\n" + body + b"\0\n"

    @pytest.mark.parametrize("command", [b"CONNECT", b"CONNECTED", b"STOMP"])
    @pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
    def test_what_is_never_escaped(self, command, version):
        frame = encode_frame(command, [(b"server", b"a:b\\c")], b"", version)
        assert frame == command + b"\nserver:a:b\\c\n\n\0\n"

    def test_versions(self):
        headers = [(b"a", EVERYTHING)]
        assert encode_frame(b"ERROR", headers, b"", b"1.0") == b"ERROR\na:a\\b:c\\nd\re\n\n\0\n"
        assert encode_frame(b"ERROR", headers, b"", b"1.1") == b"ERROR\na:a\\\\b\\cc\\nd\re\n\n\0\n"


class TestRecode:
    BLOCK = header_line(b"plain", b"value") + header_line(b"n:\\\n\r", EVERYTHING) + header_line(b"x", b"y")

    def test_1_2_is_the_same_object(self):
        assert recode(self.BLOCK, b"1.2") is self.BLOCK

    @pytest.mark.parametrize("version", [b"1.0", b"1.1", b"1.2"])
    def test_without_escapes_it_is_the_same_object(self, version):
        block = b"a:b\nurl:http://example.org\n"
        assert recode(block, version) is block
        assert recode(b"", version) == b""

    @pytest.mark.parametrize("version", [b"1.0", b"1.1"])
    def test_other_versions(self, version):
        expected = (
            header_line(b"plain", b"value", version)
            + header_line(b"n:\\\n\r", EVERYTHING, version)
            + header_line(b"x", b"y", version)
        )
        assert recode(self.BLOCK, version) == expected

    @given(st.lists(st.tuples(st.binary(), st.binary())), st.sampled_from([b"1.0", b"1.1", b"1.2"]))
    def test_any_headers(self, headers, version):
        block = b"".join(header_line(name, value) for name, value in headers)
        expected = b"".join(header_line(name, value, version) for name, value in headers)
        assert recode(block, version) == expected


@settings(deadline=None)
@given(st.binary(), st.sampled_from([b"1.1", b"1.2"]))
def test_escapes_go_there_and_back(text, version):
    escaped = escape(text, version)
    assert b"\n" not in escaped and b":" not in escaped
    assert unescape(escaped, version) == text
