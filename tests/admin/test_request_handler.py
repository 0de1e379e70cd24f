"""Long answers: slices, slow clients, clients that go away."""

from itertools import count
from unittest.mock import patch

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

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


class LongAnswers(TestCase):
    def setUp(self):
        change = patch("stompring.admin.tasks.TIME_SLICE", 0)  # every step is a slice of its own
        change.start()
        self.addCleanup(change.stop)
        self.server = AdminServer()
        for number in range(QUEUES):
            self.server.queue(f"q{number}")

    def begin(self, request):
        channel, wire = self.server.channel()
        channel.dataReceived(request)
        return channel, wire

    def finish(self):
        steps = 0
        while step(self.server):
            steps += 1
            assert steps < 100_000
        return steps

    def test_others_have_their_turn_between_slices(self):
        for path, least in ((b"/metrics", 60), (b"/api/v1/queues?sort=-messageCount&size=1000", 40)):
            _, wire = self.begin(GET % path)
            assert self.finish() > least
            assert b"HTTP/1.1 200 OK" in wire.value()

    def test_two_scrapes_at_once_are_both_whole(self):
        wires = [self.begin(GET % b"/metrics")[1] for _ in range(2)]
        self.finish()
        for wire in wires:
            reply = AdminServer.parse(wire.value())
            assert reply.text.count("stompring_queue_ring_size{") == QUEUES

    def test_a_slow_client_is_waited_for(self):
        _, wire = self.begin(GET % b"/metrics")
        while not wire.value():
            step(self.server)
        wire.producer.pauseProducing()
        step(self.server)
        written = len(wire.value())
        self.finish()
        assert len(wire.value()) == written
        wire.producer.resumeProducing()
        self.finish()
        assert AdminServer.parse(wire.value()).text.count("stompring_queue_ring_size{") == QUEUES

    def test_the_work_ends_when_the_client_goes_away(self):
        for path in (b"/metrics", b"/api/v1/queues?sort=name"):
            channel, wire = self.begin(GET % path)
            for _ in range(3):
                step(self.server)
            channel.connectionLost(Failure(ConnectionLost()))
            written = len(wire.value())
            assert self.finish() < 5
            assert len(wire.value()) == written

    def test_what_changes_something_goes_on_without_its_client(self):
        client = self.server.stomp()
        for _ in range(500):
            client.protocol.dataReceived(b"SEND\ndestination:/queue/q1\n\nx\0")
        post = b"POST /api/v1/queues/q1/purge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        channel, _ = self.begin(post)
        step(self.server)
        channel.connectionLost(Failure(ConnectionLost()))
        left = self.server.directory.queue("q1").message_count
        assert 0 < left
        self.finish()
        assert self.server.directory.queue("q1").message_count == 0
        assert self.flushLoggedErrors() == []

    def test_a_full_queue_is_deleted_in_slices(self):
        client = self.server.stomp()
        for _ in range(500):
            client.protocol.dataReceived(b"SEND\ndestination:/queue/q1\n\nx\0")
        background = self.server.broker.background
        background.least, background.now = 1, count().__next__  # one step in a turn of the reactor
        _, wire = self.begin(b"DELETE /api/v1/queues/q1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert self.finish() > 8
        assert b"204" in wire.value()
        assert self.server.broker.memory.messages == 0

    def test_messages_that_do_not_match_take_their_turns_too(self):
        client = self.server.stomp()
        for _ in range(500):
            client.protocol.dataReceived(b"SEND\ndestination:/queue/q1\n\nx\0")
        self.begin(GET % b"/api/v1/queues/q1/messages?filter=a%3D1")
        assert self.finish() > 8
        body = b'{"filter":"a=1"}'
        post = (
            b"POST /api/v1/queues/q1/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        _, wire = self.begin(post + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert self.finish() > 8
        assert AdminServer.parse(wire.value()).json == {"removed": 0}

    def test_half_an_answer_does_not_look_whole(self):
        def breaks(*_):
            yield b"x 1\n"
            raise ZeroDivisionError

        with (
            patch("stompring.admin.metrics.families", breaks),
            self.assertLogs("stompring.admin", "ERROR") as logs,
        ):
            _, wire = self.begin(GET % b"/metrics")
            self.finish()
        assert "while sending its answer" in logs.output[0]
        assert wire.disconnecting
        assert not wire.value().endswith(b"0\r\n\r\n")
