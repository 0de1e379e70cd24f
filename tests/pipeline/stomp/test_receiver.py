"""From a broker to the spool: what is acknowledged is on disk, and a broker that goes away is waited for."""

import socket
import threading

import pytest

pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from stompring.errors import PipelineError
from stompring.pipeline.stomp.connection import BrokerError, ConnectionFailed

from ...end_to_end.lasting import numbers
from ...waiting import until
from ..spark_formats import asked, rows_of
from .scripted_broker import ScriptedBroker, greet, receive_until


class Receiving:
    """A stream that has begun, and what is in its spool."""

    def __init__(self, port, spool, **options):
        given = {"url": f"127.0.0.1:{port}", "destination": "q", "spool": spool, **options}
        self.stream = asked("stomp", "streamReader", **given)
        self.begin = self.stream.initialOffset()

    def settle(self):
        """Until what is available now has come."""
        self.stream.prepareForTriggerAvailableNow()

    def check(self):
        """Raises what ended the receiving."""
        self.take(self.begin)

    def take(self, start):
        """A batch begins here: all before it has been read."""
        return self.stream.latestOffset(start, ReadAllAvailable())

    def bodies(self):
        parts = self.stream.partitions(self.begin, self.stream.reportLatestOffset())
        return [row["body"].decode() for row in rows_of(self.stream, parts)]


@pytest.fixture
def receive(tmp_path):
    """Begins to receive; all streams are stopped after the test."""
    running = []

    def start(port, spool=tmp_path / "spool", **options):
        running.append(Receiving(port, spool, **options))
        return running[-1]

    yield start
    for each in running:
        each.stream.stop()


def test_all_that_is_there(receive, broker, name, connect, management):
    connect().put(name, *numbers(1, 500))
    found = receive(broker.port, destination=name, prefetch=100, idle=300)
    found.settle()
    assert found.bodies() == numbers(1, 500)
    management.expect(name, messageCount=0)
    connect().put(name, *numbers(501, 520))
    management.expect(name, messageCount=0)  # the rest comes by itself
    assert found.bodies() == numbers(1, 520)


def test_a_full_spool_is_no_place_for_more(receive, broker, name, connect, management):
    connect().put(name, *["x" * 1000] * 300)
    found = receive(broker.port, destination=name, prefetch=10, spoolLimit="20K", idle=60_000, drain=600_000)
    found.settle()  # full before that
    assert 20 <= len(found.bodies()) <= 40
    management.expect(name, messageCount=300 - len(found.bodies()))
    tail = found.stream.reportLatestOffset
    until(lambda: found.take(tail()) and len(found.bodies()) == 300, "messages in the spool")
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
        found = receive(broker.port, destination=name, idle=600_000, drain=500)
        found.settle()
        assert found.bodies()
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
    found = []

    def first(peer):
        greeted(peer)
        peer.sendall(message(1) + message(2))
        assert receive_until(peer, b"\0\n") == b"ACK\nid:a2\n\n\0\n"
        assert found[0].bodies() == ["1", "2"]  # before it was acknowledged
        peer.sendall(message(3) + farewell)

    def second(peer):
        greeted(peer)
        peer.sendall(message(3) + message(4) + message(5))
        assert receive_until(peer, b"ACK\nid:a5\n\n\0\n")

    with ScriptedBroker(first, second) as other:
        found.append(receive(other.port, prefetch=7, selector="a = 'b'", heartBeat=0))
        until(lambda: found[0].bodies()[-3:] == ["3", "4", "5"], "messages in the spool")
    found[0].check()
    assert found[0].bodies() in (["1", "2", "3", "4", "5"], ["1", "2", "3", "3", "4", "5"])


@pytest.mark.parametrize(
    "given, connect, subscribe",
    [
        ({}, ["heart-beat:10000,10000"], ["prefetch-count:10000", "receipt:1"]),
        (
            {
                "subscribeHeaders": "durable-subscription-name=d, x=a:b, y = 2=3,",
                "clientId": "me",
                "heartBeat": "5000",
                "prefetch": "7",
                "selector": "a = 'b'",
                "passwordFile": None,
            },
            ["client-id:me", "heart-beat:5000,5000", "passcode:sesame"],
            [
                *("prefetch-count:7", "selector:a = 'b'", "durable-subscription-name:d"),
                *("x:a\\cb", "y:2=3", "receipt:1"),
            ],
        ),
        ({"heartBeat": "0"}, ["heart-beat:0,0"], []),
    ],
)
def test_what_the_broker_is_asked(receive, tmp_path, given, connect, subscribe):
    said = []
    if "passwordFile" in given:
        (tmp_path / "secret").write_text("sesame\n")
        given = {**given, "passwordFile": tmp_path / "secret"}

    def play(peer):
        said.append(greet(peer).decode().split("\n"))
        said.append(receive_until(peer, b"\0\n").decode().split("\n"))
        peer.sendall(b"ERROR\nmessage:not you\n\n\0")

    with ScriptedBroker(play) as other:
        found = receive(other.port, f"file://{tmp_path}/a%20b", **given)
        with pytest.raises(BrokerError, match=r"127.0.0.1:\d+ refuses: not you"):
            found.settle()
        with pytest.raises(BrokerError, match=r"127.0.0.1:\d+ refuses: not you"):
            found.check()
    assert {*connect} <= {*said[0]}
    assert said[1][4 : 4 + len(subscribe)] == subscribe
    assert (tmp_path / "a b").is_dir()


def test_nobody_there(receive):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    found = receive(port, timeout=300)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port} cannot be reached"):
        found.settle()


def test_a_spool_that_is_not_the_right_one(receive, broker, name):
    found = receive(broker.port, destination=name)
    with pytest.raises(ValueError, match="option spool: .* is in use by another query"):
        receive(broker.port, destination=name)
    with pytest.raises(PipelineError, match="ends before the position of the checkpoint, segment 9 at"):
        found.take({"segment": 9, "position": 16})
