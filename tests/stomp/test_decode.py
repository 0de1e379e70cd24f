"""The fast way to read a header block says the same as the careful one, or nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.errors import ProtocolError
from stompring.stomp.headers import HeadLimits, decode, decode_plain

LIMITS = HeadLimits(max_headers=3, max_line=40)


@pytest.mark.parametrize(
    "block",
    [b"SEND", b"ACK\nid:1", b"SEND\na:\nb: c \ncontent-length:7", b"\x01\nurl:http://x:80/", b"CONNECT\na:b"],
)
def test_ordinary_blocks(block):
    head = decode_plain(block, LIMITS)
    assert head.plan is None
    assert repr(head) == repr(decode(block, b"1.2"))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"SEND\na:\nb:\nc:\nd:",
        b"SEND\na:" + b"x" * 34,
        b"SEND\ncontent-length:-1",
        b"SEND\ncontent-length:",
        b"SEND\ncontent-length: 1",
        b"SEND\ncontent-length:" + b"1" * 19,
    ],
)
def test_others(block):
    assert decode_plain(block, LIMITS) is None


BLOCKS = st.lists(st.text("ab:\\nc\r\0 1", max_size=5).map(str.encode), max_size=4).map(b"\n".join)


@settings(deadline=None)
@given(st.one_of(BLOCKS, st.binary()), st.sampled_from([b"1.1", b"1.2"]))
def test_the_same_or_nothing(block, version):
    head = decode_plain(block, LIMITS)
    try:
        careful = decode(block, version)
    except ProtocolError:
        assert head is None
    else:
        assert head is None or repr(head) == repr(careful)


def test_a_passcode_is_not_shown():
    head = decode(b"CONNECT\nlogin:ada\npasscode:m4rker", None)
    assert head.headers[b"passcode"] == b"m4rker"
    assert "m4rker" not in repr(head) and "ada" in repr(head)


@pytest.mark.parametrize(
    "block", [b"CONNECT\npasscode m4rker", b"STOMP\npasscode:x\nm4rker", b"CONNECT\n:m4rker"]
)
def test_a_broken_line_of_a_connect_is_not_shown(block):
    with pytest.raises(ProtocolError) as raised:
        decode(block, None)
    assert "m4rker" not in str(raised.value) and "(not shown)" in str(raised.value)
