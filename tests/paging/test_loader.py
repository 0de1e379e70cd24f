"""The loader takes turns with everybody else, and leaves queues that keep up their part of the time."""

import pytest

from stompring.broker.clock import Clock
from stompring.paging.paged_queue import (
    ALONE_SLICE,
    CHECK_INTERVAL,
    SHORT_TURN,
    SHORTEST_SLICE,
    SLICE,
    WEIGHT,
    ActiveQueues,
    Loader,
)

from ..broker.broker_fixture import join
from .stored_pages import StoredPages

BATCH = 0.0001


class Place:
    """A reactor in which time passes only by what is done, and what is asked for in one turn is called in the next."""

    def __init__(self, others=0):
        self.time = 0.0
        self.calls = []
        self.loader = Loader(Clock(self), lambda: others, self.seconds)

    def seconds(self):
        return self.time

    def callLater(self, delay, call, /, *args, **kw):
        assert not (delay or args or kw)
        self.calls.append(call)

    def turn(self, others=0.0):
        """Everybody else does something, then timers are called."""
        self.time += others
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Endless:
    """Work that never ends, in small steps."""

    def __init__(self, place):
        self.place = place
        self.requested = False
        self.slices = []

    def work(self, in_time):
        began = self.place.time
        while in_time():
            self.place.time += BATCH
        self.slices.append(self.place.time - began)
        self.place.loader.request(self)


@pytest.mark.parametrize(
    "keep_up, took, expected",
    [
        (0, 0.0, ALONE_SLICE),
        (0, 1.0, ALONE_SLICE),
        (9, 0.0, SHORTEST_SLICE),
        (9, SHORT_TURN, SHORTEST_SLICE),
        (9, 0.018, 0.001),
        (3, 0.009, 0.0015),
        (1, 0.002, 0.001),
        (1, 1.0, SLICE),
    ],
)
def test_it_takes_half_as_much_as_each_that_keeps_up(keep_up, took, expected):
    place = Place(keep_up)
    work = Endless(place)
    place.loader.request(work)
    for _ in range(5):
        place.turn(took)
    assert work.slices == [pytest.approx(expected, abs=BATCH)] * 5


@pytest.mark.parametrize("keep_up, took", [(9, 0.001), (9, 0.005), (3, 0.0008), (50, 0.02)])
def test_it_waits_until_a_slice_is_worth_it_where_others_take_all_the_time(keep_up, took):
    place = Place(keep_up)
    work = Endless(place)
    place.loader.request(work)
    turns = 400
    for _ in range(turns):
        place.turn(took)
    assert all(spent >= SHORTEST_SLICE for spent in work.slices)
    part = sum(work.slices) / (turns * took)
    assert part == pytest.approx(WEIGHT / keep_up, rel=0.25)


def test_many_that_catch_up_take_as_much_as_each_together():
    place = Place(4)
    works = [Endless(place) for _ in range(4)]
    for work in works:
        place.loader.request(work)
    place.turn(0.004)
    assert works[0].slices == [pytest.approx(0.002, abs=BATCH)]


def test_two_share_what_there_is():
    place = Place()
    first, second = Endless(place), Endless(place)
    for work in (first, second, first):
        place.loader.request(work)
    for _ in range(6):
        place.turn()
    assert len(first.slices) == len(second.slices) == 3


def test_what_was_idle_begins_with_the_least():
    """The hours in which nobody wanted anything are not what others have done."""
    place = Place(9)
    place.time = 7200.0
    work = Endless(place)
    place.loader.request(work)
    place.turn()
    assert work.slices == [pytest.approx(SHORTEST_SLICE, abs=BATCH)]


def test_nothing_is_done_after_the_end():
    place = Place()
    work = Endless(place)
    place.loader.request(work)
    place.loader.stop()
    place.turn()
    work.requested = False
    place.loader.request(work)
    place.turn()
    assert work.slices == []


def test_who_keeps_up():
    """Queues with consumers that get something and have nothing on disk; known after two looks, a second apart."""
    world = StoredPages(limit=5, memory=0)
    busy, lazy, idle, alone = (world.queue(name) for name in ("busy", "lazy", "idle", "alone"))
    join(busy, auto=True), join(lazy, 0), join(idle)
    active_queues = ActiveQueues(world.broker)

    def after_traffic():
        for address in ("busy", "lazy", "alone"):
            world.fill(20, address)
        world.pass_time(CHECK_INTERVAL)
        return active_queues.count()

    assert active_queues.count() == 0
    assert after_traffic() == 1, "busy: lazy has messages on disk, idle gets none, alone has no consumer"
    assert lazy.paged.waiting and alone.message_count
    world.fill(5, "idle")
    assert active_queues.count() == 1, "not looked at again so soon"
    world.pass_time(CHECK_INTERVAL)
    assert active_queues.count() == 1, "idle now, and not busy"
    world.fill(5, "idle")
    world.pass_time(10 * CHECK_INTERVAL)
    assert active_queues.count() == 0, "that may have been long ago"
