"""What a task of a sink does, at a real broker: all of its rows or none, and none of them twice."""

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from stompring.pipeline.stomp import sink
from stompring.pipeline.stomp.connection import BrokerError, ConnectionFailed
from stompring.pipeline.stomp.options import SinkOptions
from stompring.pipeline.stomp.sink import TaskResult, is_duplicate, send_rows

from .queue_contents import drained_bodies, url
from .scripted_broker import ScriptedBroker, greet, receive_until


def batches(*numbers, size=100):
    """Record batches with these numbers as bodies."""
    for at in range(0, len(numbers), size):
        yield pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in numbers[at : at + size]]})


def options(broker, destination, **more):
    given = {"url": f"127.0.0.1:{broker.port}", "destination": destination, **more}
    return SinkOptions.of({name: str(value) for name, value in given.items()})


def test_nothing_to_send():
    given = SinkOptions.of({"url": "127.0.0.1:1", "destination": "q"})
    with pytest.raises(ConnectionFailed, match="127.0.0.1:1 cannot be reached"):
        send_rows(given, None, batches(1))
    for nothing in (batches(), [next(batches(1)).slice(1)]):
        assert send_rows(given, None, nothing) == TaskResult()


@pytest.mark.parametrize("memory", [sink.BUFFER_LIMIT, 2000])
@pytest.mark.parametrize("transaction", ["true", "false"])
def test_a_task_that_is_done_again(lasting, memory, transaction):
    """By itself, with rows that were not there, after others, and with ids of its own."""
    lasting.start()
    given = options(lasting.process, "q", transaction=transaction, receiptRows=70)
    again = transaction == "true"

    def send(prefix, *rows):
        return send_rows(given, prefix, rows, memory)

    assert send("job-0", *batches(*range(500))) == TaskResult(500)
    assert send("job-0", *batches(*range(500))) == TaskResult(500, again)
    assert send("job-0", *batches(*range(750))) == TaskResult(750, again)
    assert send("job-1", *batches(*range(1000, 1010))) == TaskResult(10)
    own = pa.RecordBatch.from_pydict({"body": [b"a", b"b"], "dedup_id": ["job-0-5", None]})
    assert send(None, own) == TaskResult(2, again)
    assert drained_bodies(lasting, "q") == [*map(str, range(750)), *map(str, range(1000, 1010)), "b"]


@pytest.mark.parametrize("prefix", [None, "job-0"])
def test_all_or_nothing(broker, name, management, connect, prefix):
    def failing():
        yield from batches(*range(1000))
        raise RuntimeError("no more rows")

    connect().put(name, "first")
    with pytest.raises(RuntimeError, match="no more rows"):
        send_rows(options(broker, name), prefix, failing())
    management.expect(name, messageCount=1)
    assert send_rows(options(broker, name), prefix, batches(*range(1000))) == TaskResult(1000)
    management.expect(name, messageCount=1001)


def test_a_broker_that_goes_away_between_the_rows(lasting):
    lasting.start()
    given = options(lasting.process, "q")

    def interrupted():
        yield from batches(*range(200))
        lasting.kill()
        while True:
            yield from batches(*range(10_000))

    with pytest.raises(ConnectionFailed, match=f"{url(lasting)} (has closed the connection|is gone)"):
        send_rows(given, "job-0", interrupted())
    lasting.start()
    assert send_rows(options(lasting.process, "q"), "job-0", batches(*range(200))) == TaskResult(200)
    assert len(drained_bodies(lasting, "q")) == 200


def test_a_full_address_is_no_duplicate(lasting):
    lasting.start(settings={"q": {"max-size-messages": 5, "address-full-policy": "FAIL"}})
    lasting.connect().put("q", *"12345")
    with pytest.raises(BrokerError, match="Transaction 1 is not committed: "):
        send_rows(options(lasting.process, "q"), "job-0", batches(*range(10)))


def test_a_duplicate_that_is_told_at_once():
    """Other brokers may refuse a SEND before the rows are at an end: those to come are sent as well."""
    said = []

    def refusing(peer):
        greet(peer)
        receive_until(peer, b"-0\ncontent-length:1\n\n0\0\n")
        peer.sendall(b"ERROR\nmessage:AMQ1: Duplicate message detected - message will not be routed\n\n\0")
        while peer.recv(1 << 16):
            pass

    def taking(peer):
        greet(peer)
        said.append(receive_until(peer, b"DISCONNECT\nreceipt:4\n\n\0\n"))
        peer.sendall(b"RECEIPT\nreceipt-id:4\n\n\0")

    with ScriptedBroker(refusing, taking) as other:
        given = SinkOptions.of({"url": f"127.0.0.1:{other.port}", "destination": "q"})
        assert send_rows(given, "job-0", batches(*range(3000), size=10)) == TaskResult(3000, again=True)
    assert said[0].count(b"SEND\n") == 3000 and b"transaction" not in said[0]


def test_what_speaks_of_a_duplicate():
    assert is_duplicate(BrokerError("duplicate x-dedup '5' on address q"), "x-dedup")
    assert not is_duplicate(BrokerError("address q is full"), "x-dedup")
