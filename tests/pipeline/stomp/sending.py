"""A task of the sink, as Spark carries it out, in this process."""

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from stompring.stomp.parser import Parser

from ..spark_formats import FORMATS
from .scripted_broker import ScriptedBroker, greet, receive_until

BODY = pa.schema({"body": pa.binary()})
IDS = pa.schema({"body": pa.binary(), "dedup_id": pa.string()})


def numbered(count):
    """Rows with numbers as bodies and duplicate ids."""
    names = [str(number) for number in range(count)]
    return pa.RecordBatch.from_pydict({"body": [name.encode() for name in names], "dedup_id": names}, IDS)


def writer(schema=BODY, **options):
    """A sink for rows of this schema (of Arrow), at nobody unless a url is given."""
    given = {"url": "localhost:1", "destination": "q", **options}
    return FORMATS["stomp"]({name: str(value) for name, value in given.items()}).writer(
        from_arrow_schema(schema), False
    )


def write(batches, schema=BODY, **options):
    """Send the rows of a task; returns how many, and whether the task had been done before."""
    sent = writer(schema, **options).write(iter(batches))
    return sent.rows, sent.again


def sent(*batches, **options):
    """What a broker gets of a task without a transaction: its first frame, and headers and bodies of the SENDs."""
    said = []

    def play(peer):
        said.append(greet(peer))
        said.append(receive_until(peer, b"DISCONNECT\n").partition(b"DISCONNECT\n")[0])
        peer.sendall(b"".join(b"RECEIPT\nreceipt-id:%d\n\n\0" % number for number in range(1, 9)))

    with ScriptedBroker(play) as other:
        given = {"url": f"127.0.0.1:{other.port}", "transaction": "false", **options}
        assert write(batches, batches[0].schema, **given) == (sum(map(len, batches)), False)
    connect, frames = said
    return connect, parsed(frames)


def parsed(data):
    """Headers and bodies of SEND frames."""
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
