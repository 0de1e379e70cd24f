"""From a broker to the spool: what is acknowledged is on disk, and a broker that goes away is waited for."""

import socket
import threading

import pytest

pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from stompring.pipeline.options import OptionError
from stompring.pipeline.stomp.connection import BrokerError, ConnectionFailed
from stompring.pipeline.stomp.options import SourceOptions
from stompring.pipeline.stomp.source import (
    Position,
    Receiver,
    Spool,
    SpoolError,
    StompStreamReader,
    read_rows,
)

from ...broker_process import PATIENCE
from ...end_to_end.lasting import numbers
from ...waiting import until
from .scripted_broker import ScriptedBroker, greet, receive_until

Message = tuple[str, bytes]


def options(port, spool, **more):
    given = {"url": f"127.0.0.1:{port}", "destination": "q", "spool": str(spool), **more}
    return SourceOptions.of({name: str(value) for name, value in given.items()})


def bodies(spool):
    batches = read_rows(spool.directory, spool.pieces(spool.head, spool.tail), ["body"])
    return [row["body"].decode() for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def receive(tmp_path):
    """Starts receivers; all are stopped after the test."""
    running = []

    def start(port, **more):
        given = options(port, tmp_path / "spool", **more)
        spool = Spool(given.spool)
        receiver = Receiver(given, spool)
        running.append((receiver, spool))
        receiver.start()
        return receiver, spool

    yield start
    for receiver, spool in running:
        receiver.stop()
        spool.close()


def test_all_that_is_there(receive, broker, name, connect, management):
    connect().put(name, *numbers(1, 500))
    receiver, spool = receive(broker.port, destination=name, prefetch=100, idle=300)
    receiver.wait_until_idle(0.3, PATIENCE)
    receiver.check()
    assert bodies(spool) == numbers(1, 500)
    management.expect(name, messageCount=0)
    connect().put(name, *numbers(501, 520))
    management.expect(name, messageCount=0)  # the rest comes by itself
    assert bodies(spool) == numbers(1, 520)


def test_a_full_spool_is_no_place_for_more(receive, broker, name, connect, management):
    client = connect()
    client.put(name, *["x" * 1000] * 300)
    receiver, spool = receive(broker.port, destination=name, prefetch=10, spoolLimit="20K")
    receiver.wait_until_idle(60, 600)  # full before that
    receiver.check()
    assert 20 <= len(bodies(spool)) <= 40
    management.expect(name, messageCount=300 - len(bodies(spool)))
    until(lambda: receiver.mark_read(spool.tail) or len(bodies(spool)) == 300, "messages in the spool")
    management.expect(name, messageCount=0)


def test_time_is_up(receive, broker, name, connect):
    """Something comes all the time: what is available now has an end all the same."""
    client, ended = connect(), threading.Event()

    def go_on():
        while not ended.wait(0.02):
            client.put(name, "more")

    producer = threading.Thread(target=go_on)
    producer.start()
    try:
        receiver, spool = receive(broker.port, destination=name)
        receiver.wait_until_idle(PATIENCE, 0.5)
        receiver.check()
        assert bodies(spool)
    finally:
        ended.set()
        producer.join()


def message(number):
    return b"MESSAGE\nsubscription:0\nmessage-id:%d\nack:a%d\ndestination:q\n\n%d\0\n" % ((number,) * 3)


def greeted(peer):
    greet(peer)
    assert b"SUBSCRIBE\nid:0\ndestination:q\nack:client\n" in receive_until(peer, b"\0\n")
    peer.sendall(b"RECEIPT\nreceipt-id:1\n\n\0")


@pytest.mark.parametrize("farewell", [b"", b"ERROR\nmessage:The broker is shutting down\n\n\0"])
def test_a_broker_that_comes_back(receive, farewell):
    """What was not acknowledged comes again: it is there twice, and told so. Nothing is lost."""
    spools = []

    def first(peer):
        greeted(peer)
        peer.sendall(message(1) + message(2))
        assert receive_until(peer, b"\0\n") == b"ACK\nid:a2\n\n\0\n"
        assert bodies(spools[0]) == ["1", "2"]  # before it was acknowledged
        peer.sendall(message(3) + farewell)

    def second(peer):
        greeted(peer)
        peer.sendall(message(3) + message(4) + message(5))
        assert receive_until(peer, b"ACK\nid:a5\n\n\0\n")

    with ScriptedBroker(first, second) as other:
        receiver, spool = receive(other.port, prefetch=7, selector="a = 'b'", heartBeat=0)
        spools.append(spool)
        until(lambda: bodies(spool)[-3:] == ["3", "4", "5"], "messages in the spool")
    receiver.check()
    assert bodies(spool) in (["1", "2", "3", "4", "5"], ["1", "2", "3", "3", "4", "5"])


def test_what_the_broker_is_asked(receive):
    said = []

    def play(peer):
        said.append(greet(peer))
        said.append(receive_until(peer, b"\0\n"))
        peer.sendall(b"ERROR\nmessage:not you\n\n\0")

    with ScriptedBroker(play) as other:
        more = {
            "subscribeHeaders": "durable-subscription-name=d, x=a:b",
            "clientId": "me",
            "heartBeat": "5000",
        }
        receiver, _ = receive(other.port, prefetch=7, selector="a = 'b'", **more)
        receiver.wait_until_idle(1, 60)
        with pytest.raises(BrokerError, match=r"127.0.0.1:\d+ refuses: not you"):
            receiver.check()
    assert b"\nclient-id:me\n" in said[0] and b"\nheart-beat:5000,5000\n" in said[0]
    wanted = [
        b"prefetch-count:7",
        b"selector:a = 'b'",
        b"durable-subscription-name:d",
        b"x:a\\cb",
        b"receipt:1",
    ]
    assert said[1].split(b"\n")[4:9] == wanted


def test_nobody_there(receive):
    with socket.create_server(("127.0.0.1", 0)) as mark_read:
        port = mark_read.getsockname()[1]
    receiver, _ = receive(port, timeout=300)
    receiver.wait_until_idle(1, 60)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port} cannot be reached"):
        receiver.check()


def test_a_spool_that_is_not_the_right_one(broker, name, tmp_path):
    given = {"url": f"127.0.0.1:{broker.port}", "destination": name, "spool": str(tmp_path)}
    reader = StompStreamReader(given, ["body"])
    with Spool(tmp_path), pytest.raises(OptionError, match="option spool: .* is in use by another query"):
        reader.initialOffset()
    with pytest.raises(SpoolError, match="ends before the position of the checkpoint, segment 9 at"):
        reader.latestOffset(Position(9, 16).to_json(), ReadAllAvailable())
    reader.stop()
