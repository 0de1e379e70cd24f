"""Columns to SEND frames: what comes out is what a frame-by-frame encoder would have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

import pyarrow as pa

from ...property.profile import examples
from .scripted_broker import ScriptedBroker, greet
from .sending import sent, write, writer

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


def batch(rows, types=TYPES):
    found = []
    for row in rows:
        headers, expires = row.get("headers"), row.get("expires")
        found.append(
            {**row, "headers": headers and [*headers.items()], "expires": expires and expires * 1000}
        )
    return pa.RecordBatch.from_pylist(found, pa.schema(types))


def expected(row):
    headers = {"persistent": "true", "destination": "q" if row["destination"] is None else row["destination"]}
    for name in ("priority", "expires"):
        if row[name] is not None:
            headers[name] = str(row[name])
    if row["dedup_id"] is not None:
        headers["_AMQ_DUPL_ID"] = row["dedup_id"]
    headers |= {name: value for name, value in (row["headers"] or {}).items() if value is not None}
    return headers, row["body"] or b""


@examples(80)
@given(st.lists(row, min_size=1, max_size=6), st.integers(0, 5))
def test_as_one_by_one(rows, skip):
    """Also of a slice, whose arrays begin in the middle of their buffers."""
    skip = min(skip, len(rows) - 1)
    _, frames = sent(batch(rows).slice(skip))
    assert frames == [expected(one) for one in rows[skip:]]


def test_a_body_alone():
    given = pa.RecordBatch.from_pydict({"body": ["1", "größe"]})
    _, frames = sent(given, persistent="false", dedupHeader="")
    assert frames == [({"destination": "q"}, b"1"), ({"destination": "q"}, "größe".encode())]


def test_wide_types_and_numbers():
    types = {"body": pa.large_string(), "expires": pa.int64(), "priority": pa.int64()}
    given = pa.RecordBatch.from_pylist([{"body": "x", "expires": 5, "priority": 3}], pa.schema(types))
    _, ((headers, body),) = sent(given)
    assert (headers["expires"], headers["priority"], body) == ("5", "3", b"x")


def test_headers_that_are_not_sent():
    """A row that came from a broker can be sent as it is."""
    types = {name: TYPES[name] for name in ("body", "headers", "priority", "dedup_id")}
    omitted = (
        "destination content-length receipt transaction persistent message-id subscription ack redelivered"
    )
    more = dict.fromkeys([*omitted.split(), "timestamp", "_AMQ_DUPL_ID", "priority"], "x")
    given = batch([{"body": b"", "headers": {**more, "kept": "y"}, "priority": 2, "dedup_id": "p-0"}], types)
    _, ((headers, _),) = sent(given)
    assert headers == {
        "persistent": "true",
        "destination": "q",
        "priority": "2",
        "_AMQ_DUPL_ID": "p-0",
        "kept": "y",
    }


def test_large_bodies():
    """More than is encoded at once, alone and together."""
    sizes = [mega << 19 for mega in (4, 3, 3, 16)] + [1, 1]
    _, frames = sent(batch([{"body": bytes(size)} for size in sizes], {"body": pa.binary()}))
    assert [len(body) for _, body in frames] == sizes


@pytest.mark.parametrize(
    "types, more, text",
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
    with pytest.raises(ValueError, match=text):
        writer(pa.schema(types), **more)


@pytest.mark.parametrize(
    "columns, wrong, text",
    [
        ("destination", None, "column destination: is null in row 8, and option destination"),
        ("headers", {"a": "b\0"}, "column headers: NUL is not allowed in a header"),
    ],
)
def test_rows_that_cannot_be(columns, wrong, text):
    types = {name: TYPES[name] for name in ("body", columns)}
    good = {"body": b"", columns: "q" if columns == "destination" else {}}
    batches = [batch([good] * 7, types), batch([good, {**good, columns: wrong}], types)]

    def play(peer):
        greet(peer)
        while peer.recv(1000):
            pass

    with ScriptedBroker(play) as other, pytest.raises(ValueError, match=text):
        option = {} if columns == "headers" else {"destination": ""}
        write(batches, batches[0].schema, url=f"127.0.0.1:{other.port}", **option)
