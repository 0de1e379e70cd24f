"""PROXY headers: whole, in pieces, and wrong ones."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.server.protocol import MAX_V1, MAX_V2, SIGNATURE, ProxyHeader, read_proxy_header


def v2(command, family, body, size=None):
    return SIGNATURE + struct.pack("!BBH", command, family, len(body) if size is None else size) + body


def addresses(source, destination, *ports):
    return ip_address(source).packed + ip_address(destination).packed + struct.pack("!HH", *ports)


V4 = addresses("192.0.2.1", "10.0.0.1", 40000, 61613)
V6 = addresses("2001:db8::1", "::1", 40000, 61613)
V1_LONGEST = b"PROXY TCP6 " + b" ".join([b"ffff:" * 7 + b"ffff"] * 2) + b" 65535 65535\r\n"

GOOD = [
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 40000 61613\r\n", ("192.0.2.1", 40000)),
    (b"PROXY TCP6 2001:db8::1 ::1 40000 61613\r\n", ("2001:db8::1", 40000)),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 0 65535\r\n", ("192.0.2.1", 0)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
    (V1_LONGEST, ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65535)),
    (v2(0x21, 0x11, V4), ("192.0.2.1", 40000)),
    (v2(0x21, 0x11, V4 + b"\x20\x00\x03abc"), ("192.0.2.1", 40000)),
    (v2(0x21, 0x21, V6), ("2001:db8::1", 40000)),
    (v2(0x21, 0x31, b"/" * 216), None),
    (v2(0x21, 0x00, b""), None),
    (v2(0x20, 0x00, b""), None),
    (v2(0x20, 0x11, V4), None),
    (v2(0x21, 0x00, b"x" * MAX_V2), None),
]


@pytest.mark.parametrize("data, source", GOOD, ids=lambda value: repr(value)[:40])
def test_whole_and_in_pieces(data, source):
    assert read_proxy_header(data) == read_proxy_header(data + b"CONNECT") == ProxyHeader(len(data), source)
    for end in range(len(data)):
        assert read_proxy_header(data[:end]) is None


def test_the_longest_line_is_as_long_as_allowed():
    assert len(V1_LONGEST) <= MAX_V1


BAD = [
    (b"CONNECT\n", "no PROXY header"),
    (b"\n", "no PROXY header"),
    (b"\x16\x03\x01", "no PROXY header"),
    (b"PROXY\tTCP4", "no PROXY header"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 40000\r\n", "is not 'PROXY TCP4|TCP6"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 40000 61613 1\r\n", "is not 'PROXY TCP4|TCP6"),
    (b"PROXY TCP4  192.0.2.1 10.0.0.1 40000 61613\r\n", "is not 'PROXY TCP4|TCP6"),
    (b"PROXY UDP4 192.0.2.1 10.0.0.1 40000 61613\r\n", "is not 'PROXY TCP4|TCP6"),
    (b"PROXY \r\n", "is not 'PROXY TCP4|TCP6"),
    (b"PROXY TCP4 2001:db8::1 ::1 1 2\r\n", "an invalid address"),
    (b"PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n", "an invalid address"),
    (b"PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n", "an invalid address"),
    (b"PROXY TCP4 admin 10.0.0.1 1 2\r\n", "an invalid address"),
    (b"PROXY TCP4 \xff\xfe 10.0.0.1 1 2\r\n", "an invalid address"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 65536 2\r\n", "an invalid port"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 -1 2\r\n", "an invalid port"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 01 2\r\n", "an invalid port"),
    (b"PROXY TCP4 192.0.2.1 10.0.0.1 1 \r\n", "an invalid port"),
    (b"PROXY UNKNOWN " + b"x" * MAX_V1, f"longer than {MAX_V1}"),
    (v2(0x11, 0x11, V4), "unknown version or command 0x11"),
    (v2(0x22, 0x11, V4), "unknown version or command 0x22"),
    (v2(0x21, 0x12, V4), "something other than TCP (0x12)"),
    (v2(0x21, 0x13, V4), "something other than TCP (0x13)"),
    (v2(0x21, 0xFF, V4), "something other than TCP (0xff)"),
    (v2(0x21, 0x11, V4[:-1]), "too short for its addresses"),
    (v2(0x21, 0x21, V4), "too short for its addresses"),
    (v2(0x21, 0x11, b"", MAX_V2 + 1), f"longer than {MAX_V2}"),
    (v2(0x20, 0x11, b"", 65535), f"longer than {MAX_V2}"),
]


@pytest.mark.parametrize("data, expected", BAD, ids=lambda value: repr(value)[:40])
def test_wrong_ones(data, expected):
    with pytest.raises(ValueError) as caught:
        read_proxy_header(data)
    assert expected in str(caught.value)


HEADERS = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=200).map(lambda rest: b"PROXY " + rest),
    st.binary(max_size=200).map(lambda rest: SIGNATURE + rest),
    st.binary(max_size=60).map(lambda rest: SIGNATURE + b"\x21" + rest),
    st.text("TCP46UNKOW 0123456789abcdef:.\r\n", max_size=120).map(lambda rest: b"PROXY " + rest.encode()),
)


@given(HEADERS)
def test_anything(data):
    """A header, more needed, or a reason: nothing else comes out, and it never waits for more than it may."""
    try:
        header = read_proxy_header(data)
    except ValueError:
        return
    if header is None:
        assert len(data) < max(MAX_V1, 16 + MAX_V2)
    else:
        assert 0 < header.length <= len(data)
        if header.source is not None:
            ip_address(header.source[0])
