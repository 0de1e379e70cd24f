"""What a task of a sink does, at a real broker: all of its rows or none, and none of them twice."""

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from stompring.pipeline.stomp.connection import BrokerError, ConnectionFailed

from .queue_contents import drained_bodies, url
from .scripted_broker import ScriptedBroker, greet, receive_until
from .sending import IDS, write


def batches(*numbers, job=None, size=100, padding=b""):
    """Record batches with these numbers as bodies, and duplicate ids of a job."""
    for at in range(0, len(numbers), size):
        some = numbers[at : at + size]
        bodies, ids = [b"%d%b" % (number, padding) for number in some], [f"{job}-{number}" for number in some]
        yield pa.RecordBatch.from_pydict({"body": bodies} | ({"dedup_id": ids} if job else {}))


def send(broker, rows, job=None, **more):
    """The rows of a task, which have duplicate ids where there is a job."""
    given = {"url": f"127.0.0.1:{broker.port}", **more}
    return write(rows, *([IDS] if job else []), **given)


def test_nothing_to_send():
    with pytest.raises(ConnectionFailed, match="127.0.0.1:1 cannot be reached"):
        write(batches(1), url="127.0.0.1:1")
    for nothing in (batches(), [next(batches(1)).slice(1)]):
        assert write(nothing, url="127.0.0.1:1") == (0, False)


@pytest.mark.parametrize("transaction", ["true", "false"])
def test_a_task_that_is_done_again(lasting, transaction):
    """By itself, with rows that were not there, after others, and with ids of few rows."""
    lasting.start()
    again = transaction == "true"

    def sent(job, rows):
        return send(lasting.process, rows, job, transaction=transaction, receiptRows=70)

    for job, numbers, repeated in (
        ("one", range(500), False),
        ("one", range(500), again),
        ("one", range(750), again),
        ("two", range(1000, 1010), False),
    ):
        assert sent(job, batches(*numbers, job=job)) == (len(numbers), repeated)
    own = pa.RecordBatch.from_pydict({"body": [b"a", b"b"], "dedup_id": ["one-5", None]}, IDS)
    assert sent("one", [own]) == (2, again)
    assert drained_bodies(lasting, "q") == [*map(str, range(750)), *map(str, range(1000, 1010)), "b"]


@pytest.mark.parametrize("job", [None, "job"])
def test_all_or_nothing(broker, name, management, connect, job):
    def failing():
        yield from batches(*range(1000), job=job)
        raise RuntimeError("no more rows")

    connect().put(name, "first")
    with pytest.raises(RuntimeError, match="no more rows"):
        send(broker, failing(), job, destination=name)
    management.expect(name, messageCount=1)
    assert send(broker, batches(*range(1000), job=job), job, destination=name) == (1000, False)
    management.expect(name, messageCount=1001)


def test_a_broker_that_goes_away_between_the_rows(lasting):
    lasting.start()

    def interrupted():
        yield from batches(*range(200), job="job")
        lasting.kill()
        while True:
            yield from batches(*range(10_000), job="more")

    with pytest.raises(ConnectionFailed, match=f"{url(lasting)} (has closed the connection|is gone)"):
        send(lasting.process, interrupted(), "job")
    lasting.start()
    assert send(lasting.process, batches(*range(200), job="job"), "job") == (200, False)
    assert len(drained_bodies(lasting, "q")) == 200


def test_a_full_address_is_no_duplicate(lasting):
    lasting.start(settings={"q": {"max-size-messages": 5, "address-full-policy": "FAIL"}})
    lasting.connect().put("q", *"12345")
    with pytest.raises(BrokerError, match="Transaction 1 is not committed: "):
        send(lasting.process, batches(*range(10), job="job"), "job")


@pytest.mark.parametrize(
    "refusal, header, padding",
    [
        (b"AMQ1: Duplicate message detected - message will not be routed", "_AMQ_DUPL_ID", b""),
        (b"duplicate x-dedup '5' on address q", "x-dedup", bytes(30_000)),  # more than is kept in memory
    ],
    ids=["as Artemis", "by the header"],
)
def test_a_duplicate_that_is_told_at_once(refusal, header, padding):
    """Other brokers may refuse a SEND before the rows are at an end: those to come are sent as well."""
    said = []

    def refusing(peer):
        greet(peer)
        receive_until(peer, b"-0\ncontent-length:")
        peer.sendall(b"ERROR\nmessage:%b\n\n\0" % refusal)
        while peer.recv(1 << 20):
            pass

    def taking(peer):
        greet(peer)
        while not said or b"DISCONNECT\nreceipt:4\n\n\0\n" not in said[-1]:
            said[-1:] = (
                [said[-1][:-100], said[-1][-100:] + peer.recv(1 << 20)] if said else [peer.recv(1 << 20)]
            )
        peer.sendall(b"RECEIPT\nreceipt-id:4\n\n\0")

    with ScriptedBroker(refusing, taking) as other:
        rows = batches(*range(3000), job="job", size=10, padding=padding)
        assert send(other, rows, "job", dedupHeader=header) == (3000, True)
    frames = b"".join(said)
    assert frames.count(b"SEND\n") == 3000 and b"transaction" not in frames
    assert len(frames) > 3000 * len(padding)
