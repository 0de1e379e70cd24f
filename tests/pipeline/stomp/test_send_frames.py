"""Columns to SEND frames: what comes out is what a frame-by-frame encoder would have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.sink import OMITTED_HEADERS, PIECE_BYTES, SendEncoder, check_columns
from stompring.stomp.parser import Parser

from ...property.profile import examples

TYPES = {
    "body": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
    "destination": pa.string(),
    "priority": pa.int32(),
    "expires": pa.timestamp("us", "UTC"),
    "dedup_id": pa.string(),
}

text = st.text("aä:\\\n\r,", max_size=5)
row = st.fixed_dictionaries(
    {
        "body": st.none() | st.binary(max_size=20),
        "headers": st.none() | st.dictionaries(text.filter(bool), st.none() | text, max_size=3),
        "destination": st.none() | text.filter(bool),
        "priority": st.none() | st.integers(0, 9),
        "expires": st.none() | st.integers(0, 4_000_000_000_000),
        "dedup_id": st.none() | text.filter(bool),
    }
)


def options(**more):
    given = {"url": "localhost:1", "destination": "q", **more}
    return SinkOptions.of({name: str(value) for name, value in given.items()})


def batch(rows, types=TYPES):
    found = []
    for row in rows:
        headers, expires = row.get("headers"), row.get("expires")
        found.append(
            {**row, "headers": headers and [*headers.items()], "expires": expires and expires * 1000}
        )
    return pa.RecordBatch.from_pylist(found, pa.schema(types))


def parsed(data):
    parser = Parser(1 << 30, 1000, 1 << 20)
    parser.negotiated(b"1.2")
    found = []
    for head, body in parser.feed(bytes(data)):
        assert head.command == b"SEND"
        headers = {name.decode(): value.decode() for name, value in head.headers.items()}
        assert headers.pop("content-length") == str(len(body))
        found.append((headers, body))
    assert parser.error is None
    return found


def expected(row, number, prefix):
    headers = {"persistent": "true", "destination": "q" if row["destination"] is None else row["destination"]}
    for name in ("priority", "expires"):
        if row[name] is not None:
            headers[name] = str(row[name])
    identifier = row["dedup_id"]
    if identifier is None and prefix is not None:
        identifier = f"{prefix}-{number}"
    if identifier is not None:
        headers["_AMQ_DUPL_ID"] = identifier
    headers |= {name: value for name, value in (row["headers"] or {}).items() if value is not None}
    return headers, row["body"] or b""


@examples(80)
@given(
    st.lists(row, min_size=1, max_size=6),
    st.none() | st.text("ab:", min_size=1, max_size=3),
    st.integers(0, 5),
    st.integers(0, 1000),
)
def test_as_one_by_one(rows, prefix, skip, first):
    """Also of a slice, whose arrays begin in the middle of their buffers."""
    skip = min(skip, len(rows) - 1)
    made = SendEncoder(options(), prefix).encode(batch(rows).slice(skip), first)
    assert parsed(made) == [expected(one, first + at, prefix) for at, one in enumerate(rows[skip:])]


def test_a_body_alone():
    given = pa.RecordBatch.from_pydict({"body": ["1", "größe"]})
    sends = SendEncoder(options(persistent="false", dedupHeader=""), None)
    assert parsed(sends.encode(given, 0)) == [
        ({"destination": "q"}, b"1"),
        ({"destination": "q"}, "größe".encode()),
    ]
    (found,) = parsed(sends.encode(given.slice(1), 1, transaction=True, receipt="7"))
    assert found[0] == {"transaction": "1", "receipt": "7", "destination": "q"}


def test_wide_types_and_numbers():
    types = {"body": pa.large_string(), "expires": pa.int64(), "priority": pa.int64()}
    given = pa.RecordBatch.from_pylist([{"body": "x", "expires": 5, "priority": 3}], pa.schema(types))
    ((headers, body),) = parsed(SendEncoder(options(), None).encode(given, 0))
    assert (headers["expires"], headers["priority"], body) == ("5", "3", b"x")


def test_headers_that_are_not_sent():
    """A row that came from a broker can be sent as it is."""
    types = {name: TYPES[name] for name in ("body", "headers", "priority")}
    more = dict.fromkeys([*OMITTED_HEADERS, "_AMQ_DUPL_ID", "priority"], "x")
    given = batch([{"body": b"", "headers": {**more, "kept": "y"}, "priority": 2}], types)
    ((headers, _),) = parsed(SendEncoder(options(), "p").encode(given, 0))
    assert headers == {
        "persistent": "true",
        "destination": "q",
        "priority": "2",
        "_AMQ_DUPL_ID": "p-0",
        "kept": "y",
    }


def test_pieces():
    rows = [
        {"body": bytes(size)}
        for size in (PIECE_BYTES // 2, PIECE_BYTES // 3, PIECE_BYTES // 3, 2 * PIECE_BYTES, 1, 1)
    ]
    given = batch(rows, {"body": pa.binary()})
    pieces = list(SendEncoder(options(), "p").pieces(given, 10, transaction=True))
    found = [frame for data, _ in pieces for frame in parsed(data)]
    assert [len(body) for _, body in found] == [len(row["body"]) for row in rows]
    assert [headers["_AMQ_DUPL_ID"] for headers, _ in found] == [f"p-{number}" for number in range(10, 16)]
    assert sum(count for _, count in pieces) == len(rows) and len(pieces) > 2


@pytest.mark.parametrize(
    ("types", "more", "text"),
    [
        (
            {"body": pa.binary(), "size": pa.int32()},
            {},
            "column size: unknown column",
        ),
        ({"headers": TYPES["headers"]}, {}, "column body: is required"),
        ({"body": pa.int32()}, {}, "column body: must be binary or string, not int32"),
        (
            {"body": pa.binary(), "headers": pa.map_(pa.string(), pa.int32())},
            {},
            "column headers: must be map<string,string>, not map",
        ),
        ({"body": pa.binary()}, {"destination": ""}, "option destination: is required without"),
        (
            {"body": pa.binary(), "dedup_id": pa.string()},
            {"dedupHeader": ""},
            "option dedupHeader: must name a header with a column dedup_id",
        ),
    ],
)
def test_columns_that_cannot_be(types, more, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is looked at
        check_columns(pa.schema(types), options(**more))
    assert text in str(caught.value)


def test_rows_that_cannot_be():
    types = {"body": pa.binary(), "destination": pa.string()}
    rows = [{"body": b"", "destination": "q"}, {"body": b"", "destination": None}]
    with pytest.raises(ValueError, match="column destination: is null in row 8, and option destination"):
        SendEncoder(options(destination=""), None).encode(batch(rows, types), 7)
    with pytest.raises(ValueError, match="column headers: NUL is not allowed in a header"):
        given = batch(
            [{"body": b"", "headers": {"a": "b\0"}}], {name: TYPES[name] for name in ("body", "headers")}
        )
        SendEncoder(options(), None).encode(given, 0)
