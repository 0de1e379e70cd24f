"""HTTP connections: how many, how long a request may take to come, and an answer to be taken."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address

from stompring.admin.body import BODY_LIMIT
from stompring.admin.channel import ANSWER_TIME, CONNECTIONS, CONNECTIONS_OF_ONE, REQUEST_TIME
from stompring.admin.site import IDLE

from .house import HTTP_PORT, House, Wire

REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


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
    _, wire = opened(house, "198.51.100.1")
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
    _, wire = opened(house, "2001:db8::ffff")
    assert house.parse(wire.value()).status == 503
    assert refused(house) == {"http-connections-per-host": 1}
    _, wire = opened(house, "2001:db8:1::1")
    assert not gone(wire)


def test_this_machine_may_have_all() -> None:
    house = House()
    for _ in range(CONNECTIONS):
        _, wire = opened(house, "127.0.0.1")
        assert not gone(wire)
    _, wire = opened(house, "127.0.0.1")
    assert house.parse(wire.value()).status == 503
    assert refused(house) == {"http-connections": 1}


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
