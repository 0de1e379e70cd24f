"""The loader takes turns with everybody else, and waits for its turn the longer the more they have to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stompring.broker.clock import Clock
from stompring.dispatch.loader import LEAST, PATIENCE, SLICE, Loader

STEP = 0.0001


class Place:
    """A reactor in which time passes only by what is done, and what is asked for in one turn is called in the next."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: list[Callable[..., object]] = []
        self.loader = Loader(Clock(self), self.seconds)

    def seconds(self) -> float:
        return self.time

    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> None:
        assert not (delay or args or kw)
        self.calls.append(call)

    def turn(self, others: float = 0.0) -> None:
        """Everybody else does something, then timers are called."""
        self.time += others
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Endless:
    """Work that never ends, in small steps."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.wanted = False
        self.slices: list[float] = []

    def work(self, in_time: Callable[[], bool]) -> None:
        began = self.place.time
        while in_time():
            self.place.time += STEP
        self.slices.append(self.place.time - began)
        self.place.loader.want(self)


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        (0.0, LEAST),
        (LEAST, LEAST),
        (PATIENCE * 0.001, 0.001),
        (PATIENCE * 0.002, 0.002),
        (PATIENCE * SLICE * 10, SLICE),
    ],
)
def test_it_takes_a_share_of_what_the_others_take(others: float, expected: float) -> None:
    place = Place()
    work = Endless(place)
    place.loader.want(work)
    for _ in range(5):
        place.turn(others)
    assert work.slices == [pytest.approx(expected, abs=STEP)] * 5


def test_two_share_what_there_is() -> None:
    place = Place()
    first, second = Endless(place), Endless(place)
    for work in (first, second, first):
        place.loader.want(work)
    for _ in range(6):
        place.turn()
    assert len(first.slices) == len(second.slices) == 3


def test_what_was_idle_begins_with_the_least() -> None:
    """The hours in which nobody wanted anything are not what others have done."""
    place = Place()
    place.time = 7200.0
    work = Endless(place)
    place.loader.want(work)
    place.turn()
    assert work.slices == [pytest.approx(LEAST, abs=STEP)]


def test_nothing_is_done_after_the_end() -> None:
    place = Place()
    work = Endless(place)
    place.loader.want(work)
    place.loader.stop()
    place.turn()
    work.wanted = False
    place.loader.want(work)
    place.turn()
    assert work.slices == []
