"""MESSAGE frames to records of a spool, and those to rows."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'stompring[spark]'")

from stompring.pipeline.stomp.spool import COLUMNS, Spool, read_rows, to_record
from stompring.stomp.client import FrameReader
from stompring.stomp.frames import encode_frame

from ...property.profile import examples

text = st.text("aä:\\\n\r,", max_size=4)
headers = st.dictionaries(text.filter(lambda name: name and name not in TAKEN), text, max_size=4)
message = st.tuples(text, text, st.integers(0, 4_000_000_000_000), headers, st.binary(max_size=20))

TAKEN = {"destination", "message-id", "timestamp", "subscription", "ack", "content-length"}


@examples(40)
@given(st.lists(message, min_size=1, max_size=10))
def test_all_that_a_message_has(
    messages,
):
    replies = FrameReader()
    replies.feed(encode_frame(b"CONNECTED", [(b"version", b"1.2")]))
    with TemporaryDirectory() as name, Spool(Path(name), segment=1000) as spool:
        for destination, identifier, timestamp, more, body in messages:
            given = {"subscription": "0", "ack": "a", "destination": destination, "message-id": identifier}
            given |= {"timestamp": str(timestamp), **more}
            pairs = [(key.encode(), value.encode()) for key, value in given.items()]
            ((head, found),) = replies.feed(encode_frame(b"MESSAGE", pairs, body))
            spool.append([to_record(head, found, 1_700_000_000_000)])
        batches = list(read_rows(spool.directory, spool.pieces(spool.head, spool.tail), list(COLUMNS)))
        few = list(read_rows(spool.directory, spool.pieces(spool.head, spool.tail), ["body", "message_id"]))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["body"] for batch in few for row in batch.to_pylist()] == [row[4] for row in messages]
    for row, (destination, identifier, timestamp, more, body) in zip(rows, messages, strict=True):
        assert row["destination"] == (destination or None) and row["message_id"] == (identifier or None)
        assert dict(row["headers"]) == {"timestamp": str(timestamp), **more}
        assert row["body"] == body
        assert row["received"].timestamp() == 1_700_000_000
        assert (row["timestamp"] and round(row["timestamp"].timestamp() * 1000)) == (timestamp or None)
