"""Long answers: slices, slow clients, clients that go away."""

from itertools import count

import pytest
from twisted.internet.error import ConnectionLost
from twisted.python import log
from twisted.python.failure import Failure

from .admin_server import AdminServer

GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUEUES = 2000


def step(server):
    """Do what the reactor has to do now, but not what that leads to; whether there was anything."""
    due = [call for call in server.reactor.calls if call.getTime() <= server.reactor.seconds()]
    for call in due:
        server.reactor.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)
    return bool(due)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("stompring.admin.context.TIME_SLICE", 0)  # every step is a slice of its own
    server = AdminServer()
    for number in range(QUEUES):
        server.queue(f"q{number}")
    faults = []
    log.addObserver(faults.append)
    yield server
    log.removeObserver(faults.append)
    assert not any(event["isError"] for event in faults)


def fill(server):
    client = server.stomp()
    for _ in range(500):
        client.protocol.dataReceived(b"SEND\ndestination:/queue/q1\n\nx\0")


def begin(server, request):
    channel, wire = server.channel()
    channel.dataReceived(request)
    return channel, wire


def finish(server):
    steps = 0
    while step(server):
        steps += 1
        assert steps < 100_000
    return steps


def test_others_have_their_turn_between_slices(server):
    for path, least in ((b"/metrics", 60), (b"/api/v1/queues?sort=-messageCount&size=1000", 40)):
        _, wire = begin(server, GET % path)
        assert finish(server) > least
        assert b"HTTP/1.1 200 OK" in wire.value()


def test_two_scrapes_at_once_are_both_whole(server):
    wires = [begin(server, GET % b"/metrics")[1] for _ in range(2)]
    finish(server)
    for wire in wires:
        reply = AdminServer.parse(wire.value())
        assert reply.text.count("stompring_queue_ring_size{") == QUEUES


def test_a_slow_client_is_waited_for(server):
    _, wire = begin(server, GET % b"/metrics")
    while not wire.value():
        step(server)
    wire.producer.pauseProducing()
    step(server)
    written = len(wire.value())
    finish(server)
    assert len(wire.value()) == written
    wire.producer.resumeProducing()
    finish(server)
    assert AdminServer.parse(wire.value()).text.count("stompring_queue_ring_size{") == QUEUES


def test_the_work_ends_when_the_client_goes_away(server):
    for path in (b"/metrics", b"/api/v1/queues?sort=name"):
        channel, wire = begin(server, GET % path)
        for _ in range(3):
            step(server)
        channel.connectionLost(Failure(ConnectionLost()))
        written = len(wire.value())
        assert finish(server) < 5
        assert len(wire.value()) == written


def test_what_changes_something_goes_on_without_its_client(server):
    fill(server)
    post = b"POST /api/v1/queues/q1/purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    channel, _ = begin(server, post)
    step(server)
    channel.connectionLost(Failure(ConnectionLost()))
    assert 0 < server.directory.queue("q1").message_count
    finish(server)
    assert server.directory.queue("q1").message_count == 0


def test_a_full_queue_is_deleted_in_slices(server):
    fill(server)
    background = server.broker.background
    background.least, background.now = 1, count().__next__  # one step in a turn of the reactor
    _, wire = begin(server, b"DELETE /api/v1/queues/q1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert finish(server) > 8
    assert b"204" in wire.value()
    assert server.broker.memory.messages == 0


def test_messages_that_do_not_match_take_their_turns_too(server):
    fill(server)
    begin(server, GET % b"/api/v1/queues/q1/messages?filter=a%3D1")
    assert finish(server) > 8
    body = b'{"filter":"a=1"}'
    post = b"POST /api/v1/queues/q1/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    _, wire = begin(server, post + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert finish(server) > 8
    assert AdminServer.parse(wire.value()).json == {"removed": 0}


def test_half_an_answer_does_not_look_whole(server, monkeypatch, caplog):
    def breaks(*_):
        yield b"x 1\n"
        raise ZeroDivisionError

    monkeypatch.setattr("stompring.admin.metrics.families", breaks)
    _, wire = begin(server, GET % b"/metrics")
    finish(server)
    assert "while sending its answer" in caplog.text
    assert wire.disconnecting
    assert not wire.value().endswith(b"0\r\n\r\n")
