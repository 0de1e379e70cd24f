"""A broker whose connections are in memory."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from stompring.server import protocol

from .transport import House


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """A broker, whose reads take no time, or a connection would rest where the machine stood still during one."""
    monkeypatch.setattr(protocol, "perf_counter", lambda: 0.0)
    return House()


@pytest.fixture
def clock(house: House) -> Clock:
    """Its clock."""
    return house.clock


@pytest.fixture
def queues(house: House) -> Any:
    """Its queues by name."""
    return house.broker.directory.queues
