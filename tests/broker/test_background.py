"""Jobs in slices: how much is done in a turn of the reactor, in which order, and what happens in between."""

import gc
import weakref
from itertools import count

import pytest
from twisted.internet.task import Clock as TwistedClock

from stompring.broker.clock import HANDFUL, LEAST, SLICE, STEPS, Background, Clock

from .broker_fixture import turn


class Desk:
    """Jobs, on a clock of which each look takes a tenth of a slice."""

    def __init__(self, look=SLICE / 10):
        self.reactor = TwistedClock()
        self.looks = count()
        self.background = Background(Clock(self.reactor), lambda: next(self.looks) * look)
        self.did = []

    def job(self, name, steps):
        for _ in range(steps):
            self.did.append(name)
            yield

    def turn(self):
        """What is done in one turn of the reactor."""
        self.did.clear()
        turn(self.reactor)
        return list(self.did)


def test_a_small_job_is_done_at_once():
    desk = Desk()
    desk.background.run(desk.job("a", LEAST - 2))
    assert len(desk.did) == LEAST - 2
    assert not len(desk.background) and not desk.reactor.calls


def test_a_large_job_leaves_the_reactor_to_others_after_each_slice():
    desk = Desk()
    desk.background.run(desk.job("a", 200))
    assert LEAST <= len(desk.did) <= LEAST + 10
    served = 0
    while len(desk.background):
        desk.reactor.callLater(0, lambda: None)
        assert 0 < len(desk.turn()) <= 11
        served += 1
    assert served >= 10
    desk.turn()
    assert not desk.reactor.calls


def test_many_small_jobs_of_one_turn_share_its_slice():
    desk = Desk()
    for _ in range(100):
        desk.background.run(desk.job("a", 10))
    assert LEAST <= len(desk.did) <= LEAST + 20
    while len(desk.background):
        assert len(desk.turn()) <= 11
    desk.turn()
    desk.background.run(desk.job("b", 10))
    assert desk.did == ["b"] * 10, "a new turn has a slice of its own"


def test_jobs_of_one_key_are_done_one_after_the_other():
    desk = Desk()
    desk.background.run(desk.job("a", 100), "queue")
    desk.background.run(desk.job("b", 3), "queue")
    desk.background.after("queue", lambda: desk.did.append("c"))
    assert "b" not in desk.did
    done = []
    while len(desk.background):
        done += desk.turn()
    assert "".join(done).lstrip("a") == "bbbc"


def test_jobs_of_different_keys_take_turns():
    desk = Desk(look=SLICE / 100)
    desk.background.run(desk.job("a", 1000), "one")
    desk.background.run(desk.job("b", 1000), "other")
    done = "".join(desk.turn())
    assert "a" * (STEPS + 1) not in done and "b" * (STEPS + 1) not in done
    assert abs(done.count("a") - done.count("b")) <= STEPS


def test_a_job_may_begin_another_one_of_its_key():
    desk = Desk()

    def first():
        desk.background.run(desk.job("b", 2), "queue")
        desk.did.append("a")
        yield

    desk.background.run(first(), "queue")
    assert desk.did == ["a", "b", "b"]


def test_an_error_stops_its_own_job_alone(caplog):
    desk = Desk()

    def broken():
        yield from desk.job("a", 100)
        raise ZeroDivisionError

    desk.background.run(broken(), "one")
    desk.background.run(desk.job("b", 3), "one")
    desk.background.run(desk.job("c", 100), "other")
    while len(desk.background):
        desk.reactor.advance(0)
    assert desk.did.count("b") == 3 and desk.did.count("c") == 100
    assert "ZeroDivisionError" in caplog.text


def test_an_error_within_the_first_slice_is_raised():
    def broken():
        raise ZeroDivisionError
        yield

    desk = Desk()
    with pytest.raises(ZeroDivisionError):
        desk.background.run(broken())
    assert not len(desk.background)


def test_all_is_done_when_the_broker_stops():
    desk = Desk()
    for name in "ab":
        desk.background.run(desk.job(name, 1000))
    desk.background.finish()
    assert (desk.did.count("a"), desk.did.count("b")) == (1000, 1000)


class Thing:
    """Something that takes its time to be freed."""


def test_what_is_let_go_of_is_freed_by_and_by():
    desk = Desk()
    things = [Thing() for _ in range(10_000)]
    living = weakref.WeakSet(things)
    gc.collect()
    desk.background.discard(things)
    left = [len(living)]
    while len(desk.background):
        turn(desk.reactor)
        left.append(len(living))
    assert not living and not things
    most = max(before - after for before, after in zip([10_000, *left], left, strict=False))
    assert most <= (LEAST + 11) * HANDFUL
