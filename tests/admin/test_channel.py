"""HTTP connections: how many, how long a request may take to come, and an answer to be taken."""

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from stompring.admin.api import BODY_LIMIT
from stompring.admin.http import (
    ANSWER_TIME,
    CLOSE_TIME,
    HEALTH_CONNECTIONS,
    HEALTH_TIME,
    IDLE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_HOST,
    REQUEST_TIME,
)

from .admin_server import HTTP_PORT, AdminServer, Wire

REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = REQUEST.replace(b"/health/live", b"/metrics")


def refused(server):
    return {limit: number for limit, number in server.broker.rejections.counts.items() if number}


def opened(server, host=None):
    kind = IPv6Address if host and ":" in host else IPv4Address
    wire, channel = Wire(HTTP_PORT), server._http.buildProtocol(kind("TCP", host, 5000) if host else None)
    channel.makeConnection(wire)
    return channel, wire


def gone(wire):
    return bool(wire.disconnecting or wire.disconnected)


# ---- how many


def test_connections_above_the_limit_get_503(server):
    channels = [opened(server, f"203.0.113.{number}") for number in range(MAX_CONNECTIONS)]
    assert not any(gone(wire) for _, wire in channels)
    channel, wire = opened(server, "198.51.100.1")
    channel.dataReceived(METRICS)
    reply = server.parse(wire.value())
    assert reply.status == 503 and gone(wire)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["detail"] == f"More than {MAX_CONNECTIONS} HTTP connections"
    assert refused(server) == {"http-connections": 1}
    channels[0][0].connectionLost()
    channel, wire = opened(server, "198.51.100.1")
    channel.dataReceived(REQUEST)
    assert b"200 OK" in wire.value()


def test_one_host_may_have_half_of_the_connections(server):
    for number in range(MAX_CONNECTIONS_PER_HOST):
        _, wire = opened(server, f"2001:db8::{number:x}")
        assert not gone(wire)
    channel, wire = opened(server, "2001:db8::ffff")
    channel.dataReceived(METRICS)
    assert server.parse(wire.value()).status == 503
    assert refused(server) == {"http-connections-per-host": 1}
    _, wire = opened(server, "2001:db8:1::1")
    assert not gone(wire)


def test_local_connections_have_no_limit_per_host(server):
    for _ in range(MAX_CONNECTIONS):
        _, wire = opened(server, "127.0.0.1")
        assert not gone(wire)
    channel, wire = opened(server, "127.0.0.1")
    channel.dataReceived(METRICS)
    assert server.parse(wire.value()).status == 503
    assert refused(server) == {"http-connections": 1}


# ---- health beyond the limits


@pytest.fixture
def full():
    """As many connections as there may be, of which nothing comes."""
    server = AdminServer()
    for number in range(MAX_CONNECTIONS):
        opened(server, f"203.0.113.{number}")
    return server


@pytest.mark.parametrize("path", [b"/health/live", b"/health/ready", b"/health/live?x=y"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_health_is_answered_above_the_limit(full, method, path):
    for _ in range(3 * HEALTH_CONNECTIONS):
        channel, wire = opened(full, "198.51.100.1")
        channel.dataReceived(b"%b %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (method, path))
        status = wire.value().partition(b"\r\n")[0]
        assert status in (
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 503 Service Unavailable",
            b"HTTP/1.1 400 Bad Request",
        )
        assert b"HTTP connections" not in wire.value()
        assert gone(wire), "one answer, and no more"
        channel.connectionLost()
    assert refused(full) == {}


def test_health_is_answered_above_the_limit_per_host(server):
    for _ in range(MAX_CONNECTIONS_PER_HOST):
        opened(server, "203.0.113.1")
    channel, wire = opened(server, "203.0.113.1")
    channel.dataReceived(REQUEST)
    assert b"200 OK" in wire.value() and refused(server) == {}


def test_pipelined_requests_after_health_are_not_answered(full):
    channel, wire = opened(full)
    channel.dataReceived(REQUEST + METRICS + REQUEST)
    assert wire.value().count(b"HTTP/1.1") == 1 and gone(wire)


@pytest.mark.parametrize(
    "data",
    [
        METRICS,
        REQUEST.replace(b"GET /health/live", b"POST /api/v1/queues") + b"{}",
        REQUEST.replace(b"live HTTP/1.1", b"live/../../metrics HTTP/1.1"),
        REQUEST.replace(b"GET /health/live", b"DELETE /api/v1/queues/q"),
        b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{}",
        b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_other_paths_above_the_limit_get_503(full, data):
    full.queue()
    channel, wire = opened(full)
    channel.dataReceived(data)
    assert full.parse(wire.value()).status == 503 and gone(wire)
    assert list(full.directory.queues) == ["q"] and refused(full) == {"http-connections": 1}
    channel.connectionLost()


def test_oldest_reserved_connection_is_closed_first(full):
    slow = [opened(full) for _ in range(HEALTH_CONNECTIONS)]
    for channel, _ in slow:
        channel.dataReceived(REQUEST[:20])
    assert not any(gone(wire) for _, wire in slow)
    for _ in range(3):
        channel, wire = opened(full)
        channel.dataReceived(REQUEST)
        assert b"200 OK" in wire.value()
        channel.connectionLost()
    assert [gone(wire) for _, wire in slow] == [True] + [False] * (HEALTH_CONNECTIONS - 1)
    assert full.parse(slow[0][1].value()).status == 503
    assert refused(full) == {"http-connections": 1}


def test_reserved_connection_is_closed_after_health_time(full):
    channel, wire = opened(full)
    aborted = []
    wire.abortConnection = lambda: aborted.append(True)
    seconds = drip(full, channel, wire, REQUEST, 1)
    assert seconds == HEALTH_TIME and full.parse(wire.value()).status == 503
    full.advance(CLOSE_TIME)
    assert aborted, "whoever does not take the answer has to go without"


def test_closed_connections_are_released(full):
    opened(full)[0].dataReceived(
        METRICS
    )  # the first refusal is logged, and those of the next seconds are added up
    full.advance(CLOSE_TIME)
    before = len(full.reactor.getDelayedCalls())
    for data in (b"", REQUEST, METRICS, REQUEST[:20]):
        for _ in range(HEALTH_CONNECTIONS):
            channel, _ = opened(full)
            channel.dataReceived(data)
            channel.connectionLost()
    assert len(full.reactor.getDelayedCalls()) == before
    waiting = [opened(full) for _ in range(HEALTH_CONNECTIONS)]
    assert not any(gone(wire) for _, wire in waiting)


# ---- how long


def drip(server, channel, wire, data, every):
    """Send bytes one by one; the seconds after which the connection was given up."""
    for place in range(len(data)):
        channel.dataReceived(data[place : place + 1])
        server.advance(every)
        if gone(wire):
            return (place + 1) * every
    raise AssertionError("it is never given up")


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 1000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 400,
        b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"{" * 1000,
    ],
)
def test_slow_request_gets_408(server, data):
    channel, wire = opened(server)
    head, _, _ = data.partition(b"{")
    channel.dataReceived(head[:-1])
    seconds = drip(server, channel, wire, head[-1:] + data[len(head) :] + b"a" * 100, 1)
    assert seconds <= REQUEST_TIME + 1
    reply = server.parse(wire.value())
    assert (reply.status, reply.json["status"]) == (408, 408)
    assert refused(server) == {"http-request-time": 1}


def test_request_time_restarts_with_each_request(server):
    channel, wire = opened(server)
    for _ in range(10):
        channel.dataReceived(REQUEST[:10])
        server.advance(REQUEST_TIME - 1)
        channel.dataReceived(REQUEST[10:])
        server.advance(REQUEST_TIME - 1)
    assert not gone(wire) and wire.value().count(b"200 OK") == 10
    assert refused(server) == {}


def test_partial_pipelined_request_gets_408(server):
    channel, wire = opened(server)
    channel.dataReceived(REQUEST + REQUEST[:10])
    server.advance(REQUEST_TIME)
    assert gone(wire) and b"408 Request Timeout" in wire.value()


def test_idle_connection_is_closed_after_idle_time(server):
    channel, wire = opened(server)
    channel.dataReceived(REQUEST)
    server.advance(IDLE - 1)
    assert not gone(wire)
    server.advance(1)
    assert gone(wire) and refused(server) == {}


def test_unread_answer_closes_the_connection(server):
    channel, wire = opened(server)
    for number in range(1000):
        server.queue(f"queue.{number}")
    channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    aborted = []
    wire.abortConnection = lambda: aborted.append(True)
    channel.pauseProducing()
    server.advance(0, 100)
    before = len(wire.value())
    server.advance(ANSWER_TIME - 1)
    assert not aborted and len(wire.value()) == before, "nothing is made while nothing is taken"
    channel.resumeProducing()
    server.advance(ANSWER_TIME)
    assert not aborted
    channel.pauseProducing()
    server.advance(ANSWER_TIME)
    assert aborted and refused(server) == {"http-answer-time": 1}


def test_closed_connection_leaves_no_timer(server):
    before = len(server.reactor.getDelayedCalls())
    for data in (b"", REQUEST, REQUEST[:10], b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n123"):
        channel, _ = opened(server)
        channel.dataReceived(data)
        channel.connectionLost()
    assert len(server.reactor.getDelayedCalls()) == before


# ---- how much


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"b" * 1000) for n in range(20)),
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: b\r\n" % n for n in range(600)) + b"\r\n",
    ],
)
def test_oversized_heads_get_431(server, data):
    channel, wire = opened(server)
    channel.dataReceived(data)
    reply = server.parse(wire.value())
    assert (reply.status, reply.json["status"]) == (431, 431) and gone(wire)
    assert refused(server) == {"http-head": 1}


def test_oversized_body_is_counted(server):
    server.refused(
        413,
        "POST",
        "/api/v1/queues",
        raw=b"x" * (BODY_LIMIT + 1),
        headers={"Content-Type": "application/json"},
    )
    assert refused(server) == {"http-body": 1}


def test_of_bodies_that_are_not_whole_the_largest_is_refused(server):
    server.broker.unfinished.limit = 500_000
    head = b"POST /api/v1/queues HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n"
    opened_channels = [opened(server) for _ in range(2)]
    for (channel, _), size in zip(opened_channels, (200_000, 400_000), strict=True):
        channel.dataReceived(head)
        channel.dataReceived(b"x" * size)
    server.advance()
    (small, small_wire), (large, large_wire) = opened_channels
    reply = server.parse(large_wire.value())
    assert reply.status == 503 and gone(large_wire) and not gone(small_wire)
    assert "(global-max-unfinished-size)" in reply.json["detail"]
    assert refused(server) == {"global-max-unfinished-size": 1}
    assert server.broker.unfinished.bytes == 200_000
    small.connectionLost()
    assert server.broker.unfinished.bytes == 0


def test_pipelined_requests_are_not_read_during_a_slow_answer(server):
    channel, wire = opened(server)
    for number in range(1000):
        server.queue(f"queue.{number}")
    channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    channel.pauseProducing()
    sent = 0
    while wire.producerState == "producing":
        channel.dataReceived(REQUEST)
        sent += len(REQUEST)
        assert sent < 100_000
    assert sent < 20_000
