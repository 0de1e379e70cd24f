"""MESSAGE frames to records of a spool, and those to rows."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow")

from stompring.pipeline.stomp.source import COLUMNS, Spool, read_rows, to_record
from stompring.stomp.client import FrameReader
from stompring.stomp.frames import encode_frame

from ...property.profile import examples
from ..reference_decoder import time

text = st.text("aä:\\\n\r,", max_size=4)
headers = st.dictionaries(text.filter(lambda name: name and name not in TAKEN), text, max_size=4)
message = st.tuples(text, text, st.integers(0, 4_000_000_000_000), headers, st.binary(max_size=20))

TAKEN = {"destination", "message-id", "timestamp", "subscription", "ack", "content-length"}


@examples(40)
@given(st.lists(message, min_size=1, max_size=10))
def test_all_that_a_message_has(messages):
    replies = FrameReader()
    replies.feed(encode_frame(b"CONNECTED", [(b"version", b"1.2")]))
    expected = []
    with TemporaryDirectory() as name, Spool(Path(name), segment=1000) as spool:
        for destination, identifier, timestamp, more, body in messages:
            own = {"destination": destination, "message-id": identifier}
            headers = {"timestamp": str(timestamp), **more}
            given = {"subscription": "0", "ack": "a", **own, **headers}
            pairs = [(key.encode(), value.encode()) for key, value in given.items()]
            ((head, found),) = replies.feed(encode_frame(b"MESSAGE", pairs, body))
            spool.append([to_record(head, found, 1_700_000_000_000)])
            row = {"destination": destination or None, "message_id": identifier or None, "body": body}
            row["timestamp"] = time(timestamp)
            expected.append({**row, "headers": headers, "received": time(1_700_000_000_000)})

        def rows(columns):
            pieces = spool.pieces(spool.head, spool.tail)
            return [row for batch in read_rows(spool.directory, pieces, columns) for row in batch.to_pylist()]

        assert [{**row, "headers": dict(row["headers"])} for row in rows(list(COLUMNS))] == expected
        few = ["body", "message_id"]
        assert rows(few) == [{column: row[column] for column in few} for row in expected]
