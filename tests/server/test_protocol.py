"""The shell around a session, on a transport in memory."""

from unittest import mock

import pytest

from stompring.server.protocol import CHECK_INTERVAL, LINGER, SLOW_READ

from ..session.session_fixture import frame, parse

CONNECT = frame("CONNECT", accept_version="1.2", host="/")


@pytest.fixture
def connected(house):
    """Opens a connection."""

    def connect(data=CONNECT):
        protocol, transport = house.join(house.make_factory())
        if data:
            protocol.dataReceived(data)
            transport.clear()
        return protocol, transport

    return connect


def test_connections_are_counted(house, connected):
    _, first = connected()
    connected()
    assert (len(house.connections), house.connections.total) == (2, 2)
    assert len({session.number for session in house.connections}) == 2
    first.hang_up()
    assert (len(house.connections), house.connections.total) == (1, 2)


def test_no_connect_in_time(clock, connected):
    _, transport = connected(b"")
    clock.advance(9)
    assert transport.connected
    clock.advance(1)
    (error,) = parse(transport.value())
    assert "handshake-timeout" in error["message"]
    clock.advance(0)
    assert not transport.connected


def test_a_login_that_is_being_checked_was_in_time(clock, connected):
    protocol, transport = connected(b"")
    protocol.session.await_login()
    clock.advance(3600)
    assert transport.connected
    assert transport.value() == b""


def test_who_has_connected_may_take_its_time(clock, connected):
    _, transport = connected()
    clock.advance(3600)
    assert transport.connected


def test_a_client_that_does_not_take_its_last_frames(clock, connected):
    protocol, transport = connected()
    transport.loseConnection = lambda: None
    protocol.dataReceived(frame("DISCONNECT"))
    clock.advance(LINGER - 1)
    assert not transport.aborted
    clock.advance(1)
    assert transport.aborted


def test_a_connection_rests_after_a_read_that_took_long(clock, queues, connected):
    """Reads are timed by a clock that is turned by hand."""
    for spent, state in ((SLOW_READ, "producing"), (SLOW_READ + 0.01, "paused")):
        protocol, transport = connected()
        with mock.patch("stompring.server.protocol.perf_counter", side_effect=[0.0, spent]):
            protocol.dataReceived(frame("SEND", destination="/queue/q"))
        assert transport.producerState == state
    assert queues["q"].count == 2
    other, _ = connected()
    for _ in range(round((SLOW_READ + 0.01) / CHECK_INTERVAL) - 1):
        other.dataReceived(b"\n")
        assert transport.producerState == "paused"
        clock.advance(CHECK_INTERVAL)
    clock.pump([CHECK_INTERVAL] * 3)
    assert transport.producerState == "producing"


def test_a_bug_of_ours_closes_only_the_connection_it_happened_on(
    house, clock, connected, monkeypatch, caplog
):
    protocol, transport = connected()
    other, _ = connected()
    monkeypatch.setattr(house.broker.auto_create, "address_for_send", lambda *_: 1 / 0)
    protocol.dataReceived(frame("SEND", destination="/queue/new", receipt="r"))
    assert "ZeroDivisionError" in caplog.text
    (error,) = parse(transport.value())
    assert "Internal error" in error["message"]
    clock.advance(0)
    assert not transport.connected
    assert not other.session.closed
