"""HTTP connections: how many, how long a request may take to come, and an answer to be taken."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from stompring.admin.body import BODY_LIMIT
from stompring.admin.channel import (
    ANSWER_TIME,
    CONNECTIONS,
    CONNECTIONS_OF_ONE,
    HEALTH_CONNECTIONS,
    HEALTH_TIME,
    LINGER,
    REQUEST_TIME,
)
from stompring.admin.site import IDLE

from .house import HTTP_PORT, House, Wire

REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = REQUEST.replace(b"/health/live", b"/metrics")


def refused(house: House) -> dict[str, int]:
    return {limit: number for limit, number in house.broker.refusals.counts.items() if number}


def opened(house: House, host: str | None = None) -> tuple[Any, Wire]:
    kind = IPv6Address if host and ":" in host else IPv4Address
    wire, channel = Wire(HTTP_PORT), house._http.buildProtocol(kind("TCP", host, 5000) if host else None)
    channel.makeConnection(wire)
    return channel, wire


def gone(wire: Wire) -> bool:
    return bool(wire.disconnecting or wire.disconnected)


# ---- how many


def test_so_many_and_no_more() -> None:
    house = House()
    channels = [opened(house, f"203.0.113.{number}") for number in range(CONNECTIONS)]
    assert not any(gone(wire) for _, wire in channels)
    channel, wire = opened(house, "198.51.100.1")
    channel.dataReceived(METRICS)
    reply = house.parse(wire.value())
    assert reply.status == 503 and gone(wire)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json["detail"] == f"More than {CONNECTIONS} HTTP connections"
    assert refused(house) == {"http-connections": 1}
    channels[0][0].connectionLost()
    channel, wire = opened(house, "198.51.100.1")
    channel.dataReceived(REQUEST)
    assert b"200 OK" in wire.value()


def test_one_host_has_half() -> None:
    house = House()
    for number in range(CONNECTIONS_OF_ONE):
        _, wire = opened(house, f"2001:db8::{number:x}")
        assert not gone(wire)
    channel, wire = opened(house, "2001:db8::ffff")
    channel.dataReceived(METRICS)
    assert house.parse(wire.value()).status == 503
    assert refused(house) == {"http-connections-per-host": 1}
    _, wire = opened(house, "2001:db8:1::1")
    assert not gone(wire)


def test_this_machine_may_have_all() -> None:
    house = House()
    for _ in range(CONNECTIONS):
        _, wire = opened(house, "127.0.0.1")
        assert not gone(wire)
    channel, wire = opened(house, "127.0.0.1")
    channel.dataReceived(METRICS)
    assert house.parse(wire.value()).status == 503
    assert refused(house) == {"http-connections": 1}


# ---- health beyond the limits


@pytest.fixture
def full() -> House:
    """As many connections as there may be, of which nothing comes."""
    house = House()
    for number in range(CONNECTIONS):
        opened(house, f"203.0.113.{number}")
    return house


@pytest.mark.parametrize("path", [b"/health/live", b"/health/ready", b"/health/live?x=y"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
def test_health_is_told_beyond_them(full: House, method: bytes, path: bytes) -> None:
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


def test_to_one_host_too() -> None:
    house = House()
    for _ in range(CONNECTIONS_OF_ONE):
        opened(house, "203.0.113.1")
    channel, wire = opened(house, "203.0.113.1")
    channel.dataReceived(REQUEST)
    assert b"200 OK" in wire.value() and refused(house) == {}


def test_nothing_behind_the_request_for_health_is_answered(full: House) -> None:
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
def test_what_else_is_asked_for_is_turned_away(full: House, data: bytes) -> None:
    full.queue()
    channel, wire = opened(full)
    channel.dataReceived(data)
    assert full.parse(wire.value()).status == 503 and gone(wire)
    assert list(full.directory.queues) == ["q"] and refused(full) == {"http-connections": 1}
    channel.connectionLost()


def test_the_oldest_makes_way_where_there_are_more_of_them(full: House) -> None:
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


def test_they_have_little_time(full: House) -> None:
    channel, wire = opened(full)
    aborted: list[bool] = []
    wire.abortConnection = lambda: aborted.append(True)  # type: ignore[method-assign]
    seconds = drip(full, channel, wire, REQUEST, 1)
    assert seconds == HEALTH_TIME and full.parse(wire.value()).status == 503
    full.reactor.advance(LINGER)
    assert aborted, "whoever does not take the answer has to go without"


def test_places_are_given_back(full: House) -> None:
    opened(full)[0].dataReceived(
        METRICS
    )  # the first refusal is logged, and those of the next seconds are added up
    full.reactor.advance(LINGER)
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


def drip(house: House, channel: Any, wire: Wire, data: bytes, every: float) -> float:
    """Send bytes one by one; the seconds after which the connection was given up."""
    for place in range(len(data)):
        channel.dataReceived(data[place : place + 1])
        house.reactor.advance(every)
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
def test_a_request_that_drips(data: bytes) -> None:
    house = House()
    channel, wire = opened(house)
    head, _, _ = data.partition(b"{")
    channel.dataReceived(head[:-1])
    seconds = drip(house, channel, wire, head[-1:] + data[len(head) :] + b"a" * 100, 1)
    assert seconds <= REQUEST_TIME + 1
    reply = house.parse(wire.value())
    assert (reply.status, reply.json["status"]) == (408, 408)
    assert refused(house) == {"http-request-time": 1}


def test_the_time_is_that_of_one_request() -> None:
    house = House()
    channel, wire = opened(house)
    for _ in range(10):
        channel.dataReceived(REQUEST[:10])
        house.reactor.advance(REQUEST_TIME - 1)
        channel.dataReceived(REQUEST[10:])
        house.reactor.advance(REQUEST_TIME - 1)
    assert not gone(wire) and wire.value().count(b"200 OK") == 10
    assert refused(house) == {}


def test_the_beginning_of_a_second_request_behind_the_first() -> None:
    house = House()
    channel, wire = opened(house)
    channel.dataReceived(REQUEST + REQUEST[:10])
    house.reactor.advance(REQUEST_TIME)
    assert gone(wire) and b"408 Request Timeout" in wire.value()


def test_an_idle_connection_has_its_own_time() -> None:
    house = House()
    channel, wire = opened(house)
    channel.dataReceived(REQUEST)
    house.reactor.advance(IDLE - 1)
    assert not gone(wire)
    house.reactor.advance(1)
    assert gone(wire) and refused(house) == {}


def test_an_answer_that_nobody_takes() -> None:
    house = House()
    channel, wire = opened(house)
    for number in range(1000):
        house.queue(f"queue.{number}")
    channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    aborted: list[bool] = []
    wire.abortConnection = lambda: aborted.append(True)  # type: ignore[method-assign]
    channel.pauseProducing()
    for _ in range(100):
        house.reactor.advance(0)
    before = len(wire.value())
    house.reactor.advance(ANSWER_TIME - 1)
    assert not aborted and len(wire.value()) == before, "nothing is made while nothing is taken"
    channel.resumeProducing()
    house.reactor.advance(ANSWER_TIME)
    assert not aborted
    channel.pauseProducing()
    house.reactor.advance(ANSWER_TIME)
    assert aborted and refused(house) == {"http-answer-time": 1}


def test_no_timer_is_left() -> None:
    house = House()
    before = len(house.reactor.getDelayedCalls())
    for data in (b"", REQUEST, REQUEST[:10], b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n123"):
        channel, _ = opened(house)
        channel.dataReceived(data)
        channel.connectionLost()
    assert len(house.reactor.getDelayedCalls()) == before


# ---- how much


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 20_000,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"b" * 1000) for n in range(20)),
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: b\r\n" % n for n in range(600)) + b"\r\n",
    ],
)
def test_heads(data: bytes) -> None:
    house = House()
    channel, wire = opened(house)
    channel.dataReceived(data)
    reply = house.parse(wire.value())
    assert (reply.status, reply.json["status"]) == (431, 431) and gone(wire)
    assert refused(house) == {"http-head": 1}


def test_bodies_are_counted() -> None:
    house = House()
    house.refused(
        413,
        "POST",
        "/api/v1/queues",
        raw=b"x" * (BODY_LIMIT + 1),
        headers={"Content-Type": "application/json"},
    )
    assert refused(house) == {"http-body": 1}


def test_requests_behind_one_that_is_answered_slowly_are_not_read() -> None:
    house = House()
    channel, wire = opened(house)
    for number in range(1000):
        house.queue(f"queue.{number}")
    channel.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    channel.pauseProducing()
    sent = 0
    while wire.producerState == "producing":
        channel.dataReceived(REQUEST)
        sent += len(REQUEST)
        assert sent < 100_000
    assert sent < 20_000
