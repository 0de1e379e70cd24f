"""Heart-beats: Artemis's table, but nobody who promised nothing is cut off unless a TTL is configured."""

import pytest

from stompring.errors import ProtocolError
from stompring.session.heartbeat import MAX_INTERVAL, HeartbeatIntervals, agree
from stompring.settings.acceptor import StompAcceptor

from .session_fixture import Server

TTL = {"connection_ttl": 1000, "connection_ttl_min": 5000, "connection_ttl_max": 10_000}


@pytest.mark.parametrize(
    ("header", "options", "pace"),
    [
        (None, {}, HeartbeatIntervals(0, 0, 0)),
        ("0,0", {}, HeartbeatIntervals(0, 0, 0)),
        ("0,6000", {}, HeartbeatIntervals(6000, 0, 0)),
        ("1,0", {}, HeartbeatIntervals(0, 500, 1000)),
        ("1,1", {}, HeartbeatIntervals(500, 500, 1000)),
        ("500,1000", {}, HeartbeatIntervals(1000, 500, 1000)),
        ("500,500", {}, HeartbeatIntervals(500, 500, 1000)),
        (" 500 , 500 ", {}, HeartbeatIntervals(500, 500, 1000)),
        ("10000,10000", {}, HeartbeatIntervals(10_000, 10_000, 20_000)),
        (None, TTL, HeartbeatIntervals(0, 500, 1000)),
        ("0,0", TTL, HeartbeatIntervals(0, 500, 1000)),
        ("1,0", TTL, HeartbeatIntervals(0, 2500, 5000)),
        ("20000,0", TTL, HeartbeatIntervals(0, 5000, 10_000)),
        ("5000,0", {"heart_beat_to_connection_ttl_modifier": 1.0}, HeartbeatIntervals(0, 5000, 5000)),
        ("5000,0", {"heart_beat_to_connection_ttl_modifier": 1.5}, HeartbeatIntervals(0, 5000, 7500)),
        ("99999999999999,0", {}, HeartbeatIntervals(0, MAX_INTERVAL, 2 * MAX_INTERVAL)),
    ],
)
def test_the_pace_that_is_agreed(header, options, pace):
    assert agree(header, StompAcceptor("a", "h", 1, **options), -1) == pace


def test_ttl_override():
    assert agree("0,0", StompAcceptor("a", "h", 1), 4000).ttl == 4000
    assert agree("0,0", StompAcceptor("a", "h", 1, connection_ttl=2000), 4000).ttl == 2000


@pytest.mark.parametrize("header", ["", "1", "1,2,3", "a,b", "-1,0", "1.5,0", "1,", "²,1"])
def test_what_cannot_be_read(header):
    with pytest.raises(ProtocolError, match="heart-beat must be two numbers"):
        agree(header, StompAcceptor("a", "h", 1), -1)


def beats(data):
    return data.count(b"\n") if not data.strip() else -1


def test_beats_come_within_the_promised_time():
    server = Server()
    client = server.client(heart_beat="0,1000")
    for _ in range(10):
        server.world.pass_time(1000)
        assert beats(client.wire.written) >= 1
        client.wire.written = b""


def test_no_beats_while_there_is_traffic():
    server = Server()
    client = server.client(heart_beat="0,1000")
    for number in range(20):
        client.say("SEND", destination="/topic/t", receipt=number)
        server.world.pass_time(500)
        assert [got.command for got in client.read()] == ["RECEIPT"]


def test_a_silent_client_is_told_and_closed():
    server = Server()
    client = server.client(heart_beat="1000,0")
    server.world.pass_time(1875)
    assert client.read() == []
    server.world.pass_time(250)
    assert "within the 2000ms connection TTL" in client.error()["message"]


def rings_late(server, seconds):
    """Time goes by while the process stands still; then timers ring, before any socket is read."""
    clock = server.world.clock
    clock.rightNow += seconds
    for timer in [call for call in clock.calls if call.getTime() <= clock.seconds()]:
        clock.calls.remove(timer)
        timer.called = 1
        timer.func(*timer.args, **timer.kw)


def test_what_waits_in_the_socket_is_read_before_a_connection_is_called_silent():
    server = Server()
    client = server.client(heart_beat="1000,0")
    for _ in range(3):
        rings_late(server, 60)
        client.write(b"\n")
        server.world.pass_time(1875)
        assert client.read() == [] and not client.session.closed
    rings_late(server, 60)
    server.world.pass_time(0)
    assert "within the 2000ms connection TTL" in client.error()["message"]


@pytest.mark.parametrize("data", [b"\n", b"\r\n", b"SEND\ndestination:/topic/t\n\n\0"])
def test_any_byte_is_a_sign_of_life(data):
    server = Server()
    client = server.client(heart_beat="1000,0")
    for _ in range(10):
        server.world.pass_time(1500)
        client.write(data)
    assert not client.session.closed


def test_a_client_that_promised_nothing_may_be_silent():
    server = Server()
    client = server.client(heart_beat="0,0")
    server.world.pass_time(3600_000)
    assert client.read() == [] and not client.session.closed


def test_nothing_is_left_of_a_closed_connection():
    server = Server()
    client = server.client(heart_beat="1000,1000")
    client.say("DISCONNECT")
    server.world.pass_time(0)
    assert not server.world.clock.calls
