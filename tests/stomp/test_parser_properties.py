"""What holds for every stream: it does not matter how it is cut, what was encoded is read again, nothing breaks it."""

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.stomp import headers as scan
from stompring.stomp.frames import encode_frame
from tests.property.profile import examples
from tests.stomp.reading import byte_by_byte, opened, pieces, read

VERSIONS = st.sampled_from([b"1.0", b"1.1", b"1.2"])
LINE_ENDS = st.sampled_from([b"\n", b"\r\n"])
# Small, so that random streams reach them.
LIMITS = {"body": 60, "headers": 6, "line": 24}


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """The limit of all headers together is 72 bytes with lines of 24."""
    with mock.patch.multiple(scan, _LEAST_BLOCK=40, _LINES_PER_BLOCK=3):
        yield


# -- streams that are mostly right, and some that are not at all

WORDS = st.text("ab:\\nc\r \t\0é", max_size=6).map(str.encode)
NAMES = st.one_of(st.sampled_from([b"a", b"destination", b"content-length", b"receipt", b"a\\c"]), WORDS)
VALUES = st.one_of(st.sampled_from([b"", b"1", b"5", b"70", b"\\c\\\\", b"long" * 6]), WORDS)
LINES = st.one_of(st.tuples(NAMES, st.just(b":"), VALUES).map(b"".join), WORDS)
BODIES = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"\n\n", b"\n\r\n", b"\r\n\r\n", b"x" * 61, b"12345"])
)


@st.composite
def frames(draw):
    """A frame with one line end throughout or any mixture of both; often with a true content-length."""
    ends = draw(st.sampled_from([st.just(b"\n"), st.just(b"\r\n"), LINE_ENDS]))
    body = draw(BODIES)
    lines = [draw(st.sampled_from([b"SEND", b"SEND", b"ACK", b"X"])), *draw(st.lists(LINES, max_size=4))]
    if draw(st.booleans()):
        lines.append(b"content-length:%d" % len(body))
    else:
        body = body.replace(b"\0", b"")
    return (
        b"".join(line + draw(ends) for line in [*lines, b""])
        + body
        + b"\0"
        + draw(st.sampled_from([b"", b"\n"]))
    )


@st.composite
def streams(draw):
    parts = draw(st.lists(st.one_of(frames(), st.text("\n\r", max_size=5).map(str.encode)), max_size=6))
    stream = b"".join(part * draw(st.integers(1, 2)) for part in parts)
    for _ in range(draw(st.integers(0, 2))):  # a byte too many, too few, or another one
        place = draw(st.integers(0, len(stream)))
        instead = draw(st.sampled_from([b"", b"\0", b"\n", b"\r", b":", b"\\", b"\n\n", b"z"]))
        stream = stream[:place] + instead + stream[place + draw(st.integers(0, 1)) :]
    return stream


@examples(400, quick=100)
@given(st.one_of(streams(), st.binary(max_size=200)), VERSIONS, LINE_ENDS, st.data())
def test_how_a_stream_is_cut_does_not_matter(stream, version, end, data):
    whole = read(opened(version, end, **LIMITS), [stream])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert read(opened(version, end, **LIMITS), pieces(stream, cuts)) == whole
    assert read(opened(version, end, **LIMITS), byte_by_byte(stream)) == whole


@settings(deadline=None)
@given(streams(), VERSIONS, st.data())
def test_nor_does_it_before_the_version_is_known(stream, version, data):
    end = data.draw(LINE_ENDS)
    stream = end.join([b"CONNECT", b"accept-version:1.1", b"", b""]) + b"\0" + stream
    whole = read(opened(None, **LIMITS), [stream], version)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6))
    assert read(opened(None, **LIMITS), pieces(stream, cuts), version) == whole
    assert read(opened(None, **LIMITS), byte_by_byte(stream), version) == whole


@settings(deadline=None)
@given(streams(), VERSIONS, st.data())
def test_what_was_read_stands(stream, version, data):
    """The frames of a beginning are the beginning of the frames, and an error is never another one later."""
    cut = data.draw(st.integers(0, len(stream)))
    parser = opened(version, **LIMITS)
    first, early = read(parser, [stream[:cut]])
    second, late = read(parser, [stream[cut:]])
    assert (first + second, late) == read(opened(version, **LIMITS), [stream])
    if early is not None:
        assert (second, late) == ([], early)


@settings(deadline=None)
@given(streams(), VERSIONS)
def test_limits_hold(stream, version):
    for _, headers, length, body in read(opened(version, **LIMITS), [stream])[0]:
        assert len(body) <= LIMITS["body"] and length <= LIMITS["body"]
        assert length in (-1, len(body))
        assert len(headers) <= LIMITS["headers"]
        assert all(len(name) + len(value) < LIMITS["line"] for name, value in headers)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5), st.sampled_from([None, b"1.0", b"1.1", b"1.2"]))
def test_random_bytes_give_frames_or_an_error(reads, version):
    read(opened(version, **LIMITS), reads)  # raises nothing


# -- what was encoded is read again

TOKENS = st.binary(min_size=1, max_size=8).map(lambda text: text.replace(b"\0", b"0"))
NOT_THE_LENGTH = TOKENS.filter(lambda name: name != b"content-length")
HEADERS = st.dictionaries(NOT_THE_LENGTH, st.one_of(TOKENS, st.just(b"")), max_size=20)
ROOM = {"headers": 50, "line": 1000}


@settings(deadline=None)
@given(HEADERS, st.binary(max_size=60), st.sampled_from([b"1.1", b"1.2"]), st.data())
def test_round_trip(headers, body, version, data):
    stream = encode_frame(b"SEND", headers.items(), body, version)
    expected = {**headers, b"content-length": b"%d" % len(body)} if body else headers
    one = (b"SEND", expected, len(body) if body else -1, body)
    cut = data.draw(st.integers(0, len(stream) * 2))
    frames, error = read(opened(version, **ROOM), pieces(stream * 2, [cut]))
    # their order means nothing: a receipt is put behind what frames of one kind have in common
    assert [(command, dict(got), *rest) for command, got, *rest in frames] == [one, one]
    assert error is None


@settings(deadline=None)
@given(HEADERS, st.binary(max_size=60))
def test_round_trip_in_1_0(headers, body):
    """Nothing is escaped in 1.0: what a name or value cannot hold there is left out of this test."""
    headers = {
        name.replace(b":", b"").replace(b"\n", b"") + b"!": value.replace(b"\n", b"").lstrip(b" \t")
        for name, value in headers.items()
    }
    got, error = read(opened(b"1.0", **ROOM), [encode_frame(b"SEND", headers.items(), body, b"1.0")])
    assert error is None
    assert [(name, value) for name, value in got[0][1] if name != b"content-length"] == [*headers.items()]
    assert got[0][3] == body


@settings(deadline=None)
@given(HEADERS, VERSIONS)
def test_no_header_becomes_two_or_another(headers, version):
    """Whatever one client puts into a header, another of any version sees no more headers and no frame more."""
    got, error = read(opened(version, **ROOM), [encode_frame(b"MESSAGE", headers.items(), b"", version)])
    assert error is None
    assert len(got) == 1
    lines = {
        name.replace(b"\n", b"\\n").replace(b":", b"\\c") if version == b"1.0" else name for name in headers
    }
    assert {name for name, _ in got[0][1]} == lines
