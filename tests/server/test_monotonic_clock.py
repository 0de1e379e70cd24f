"""What stompring expects of Twisted's reactors: that they tell the time by their attribute ``seconds`` alone."""

import time

import pytest
from twisted.internet.selectreactor import SelectReactor

from stompring.broker.clock import Clock
from stompring.server import service
from stompring.server.service import use_monotonic_clock


@pytest.fixture
def reactor():
    made = SelectReactor()
    yield made
    made.removeAll()


def test_timers_follow_the_monotonic_clock_alone(reactor, monkeypatch):
    now = 1000.0
    with monkeypatch.context() as patch:
        patch.setattr(service.time, "monotonic", lambda: now)
        use_monotonic_clock(reactor)
        rung = []
        timer = reactor.callLater(5, lambda: rung.append(now))
        later = reactor.callLater(5, lambda: rung.append(-1))
        later.reset(7)
        assert timer.getTime() == 1005
        reactor.runUntilCurrent()
        assert rung == [] and reactor.timeout() == 5
        now = 1004.5
        reactor.runUntilCurrent()
        assert rung == [] and reactor.timeout() == 0.5
        now = 1005.0
        reactor.runUntilCurrent()
        assert rung == [1005] and reactor.timeout() == 2
        later.cancel()


def test_the_broker_knows_both_clocks(reactor):
    use_monotonic_clock(reactor)
    clock = Clock(reactor)
    assert abs(clock.now / 1000 - time.time()) < 5
    assert abs(clock.steady.now / 1000 - time.monotonic()) < 5


def test_it_is_too_late_once_a_timer_is_set(reactor):
    timer = reactor.callLater(5, lambda: None)
    with pytest.raises(RuntimeError, match="the reactor already has timers"):
        use_monotonic_clock(reactor)
    timer.cancel()
    use_monotonic_clock(reactor)
    reactor.callLater(5, lambda: None).cancel()
    use_monotonic_clock(reactor)  # again: nothing changes
