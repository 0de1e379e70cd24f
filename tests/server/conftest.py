"""A broker whose connections are in memory."""

import pytest

from stompring.server import protocol

from .transport import House


@pytest.fixture
def house(monkeypatch):
    """A broker, whose reads take no time, or a connection would rest where the machine stood still during one."""
    monkeypatch.setattr(protocol, "perf_counter", lambda: 0.0)
    return House()


@pytest.fixture
def clock(house):
    """Its clock."""
    return house.clock


@pytest.fixture
def queues(house):
    """Its queues by name."""
    return house.broker.directory.queues
