"""The shell around a session, on a transport in memory."""

from unittest import mock

from stompring.server.protocol import (
    CHECK_INTERVAL,
    LINGER,
    SLOW_READ,
)

from ..session.session_fixture import frame, parse
from .transport import ServerTest

CONNECT = frame("CONNECT", accept_version="1.2", host="/")


class ProtocolTest(ServerTest):
    def connect(self, data=CONNECT):
        protocol, transport = self.join(self.make_factory())
        if data:
            protocol.dataReceived(data)
            transport.clear()
        return protocol, transport

    def said(self, transport):
        commands = [got.command for got in parse(transport.value())]
        transport.clear()
        return commands

    def test_connections_are_counted(self):
        _, first = self.connect()
        self.connect()
        assert (len(self.connections), self.connections.total) == (2, 2)
        assert len({session.number for session in self.connections}) == 2
        first.hang_up()
        assert (len(self.connections), self.connections.total) == (1, 2)

    def test_no_connect_in_time(self):
        _, transport = self.connect(b"")
        self.clock.advance(9)
        assert transport.connected
        self.clock.advance(1)
        (error,) = parse(transport.value())
        assert "handshake-timeout" in error["message"]
        self.clock.advance(0)
        assert not transport.connected

    def test_a_login_that_is_being_checked_was_in_time(self):
        protocol, transport = self.connect(b"")
        assert protocol.session is not None
        protocol.session.await_login()
        self.clock.advance(3600)
        assert transport.connected
        assert transport.value() == b""

    def test_who_has_connected_may_take_its_time(self):
        _, transport = self.connect()
        self.clock.advance(3600)
        assert transport.connected

    def test_a_client_that_does_not_take_its_last_frames(self):
        protocol, transport = self.connect()
        transport.loseConnection = lambda: None
        protocol.dataReceived(frame("DISCONNECT"))
        self.clock.advance(LINGER - 1)
        assert not transport.aborted
        self.clock.advance(1)
        assert transport.aborted

    def test_a_connection_rests_after_a_read_that_took_long(self):
        """Reads are timed by a clock that is turned by hand."""
        for spent, state in ((SLOW_READ, "producing"), (SLOW_READ + 0.01, "paused")):
            protocol, transport = self.connect()
            with mock.patch("stompring.server.protocol.perf_counter", side_effect=[0.0, spent]):
                protocol.dataReceived(frame("SEND", destination="/queue/q"))
            assert transport.producerState == state
        assert self.broker.directory.queue("q").count == 2
        other, _ = self.connect()
        for _ in range(round((SLOW_READ + 0.01) / CHECK_INTERVAL) - 1):
            other.dataReceived(b"\n")
            assert transport.producerState == "paused"
            self.clock.advance(CHECK_INTERVAL)
        self.clock.pump([CHECK_INTERVAL] * 3)
        assert transport.producerState == "producing"

    def test_a_bug_of_ours_closes_only_the_connection_it_happened_on(self):
        protocol, transport = self.connect()
        other, _ = self.connect()
        self.patch(self.broker.auto_create, "address_for_send", lambda *_: 1 / 0)
        with self.assertLogs("stompring", "ERROR") as logged:
            protocol.dataReceived(frame("SEND", destination="/queue/new", receipt="r"))
        assert "ZeroDivisionError" in "".join(logged.output)
        (error,) = parse(transport.value())
        assert "Internal error" in error["message"]
        self.clock.advance(0)
        assert not transport.connected
        assert other.session is not None
        assert not other.session.closed
