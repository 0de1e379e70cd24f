"""Somebody sets the wall clock: delays go on, deadlines of the wall clock follow it."""

import pytest
from twisted.internet.task import Clock as TurnedByHand

from stompring.broker.clock import NOTICED, Clock, Recurrence

from .broker_fixture import BEGIN, BrokerFixture, bodies, join

DAY = 24 * 3600 * 1000
JUMPS = pytest.mark.parametrize("jump", [-DAY, DAY], ids=["back", "forward"])


class SetClock(TurnedByHand):
    """A reactor with a wall clock that can be set; its own seconds have begun long ago, and only go on."""

    def __init__(self):
        super().__init__()
        self.ahead = 0.0

    def wall_seconds(self):
        return self.seconds() + self.ahead

    def set(self, milliseconds):
        self.ahead += milliseconds / 1000


def world(**settings):
    reactor = SetClock()
    reactor.ahead = BEGIN
    made = BrokerFixture({"q": settings}, reactor=reactor)
    return made, reactor, made.queue()


def test_the_two_clocks_are_one_where_the_reactor_has_one():
    clock = Clock(TurnedByHand())
    assert clock.steady is clock


@JUMPS
def test_a_wall_clock_that_is_set_does_not_move_the_steady_one(jump):
    reactor = SetClock()
    reactor.ahead = BEGIN
    clock = Clock(reactor)
    reactor.advance(1)
    reactor.set(jump)
    assert clock.refresh() == BEGIN * 1000 + 1000 + jump and clock.steady.now == 1000
    reactor.advance(1)
    assert clock.steady.refresh() == 2000 and clock.now == BEGIN * 1000 + 2000 + jump, "both are read"


@JUMPS
def test_a_delay_lasts_as_long_as_it_was_asked_for(jump):
    here, reactor, queue = world()
    here.send(body=b"1", due=here.broker.clock.from_now(5000))
    here.pass_time(2000)
    reactor.set(jump)
    here.pass_time(2875)
    assert bodies(queue) == []
    here.pass_time(125)
    assert bodies(queue) == [b"1"]


@JUMPS
def test_a_redelivery_waits_as_long_as_ever(jump):
    here, reactor, queue = world(redelivery_delay=4000)
    here.send(body=b"1")
    taker = join(queue)
    taker.nack()
    reactor.set(jump)
    here.pass_time(3875)
    assert taker.deliveries == [1]
    here.pass_time(125)
    assert taker.deliveries == [1, 2]


@JUMPS
def test_repeats_go_on_at_their_pace(jump):
    here, reactor, queue = world()
    due = here.broker.clock.from_now(1000)
    here.send(body=b"r", due=due, recurrence=Recurrence(period=1000, repeat=-1))
    here.pass_time(3000)
    assert len(bodies(queue)) == 3
    reactor.set(jump)
    here.pass_time(3000)
    assert len(bodies(queue)) == 6


def test_a_time_of_the_wall_clock_follows_it_forward():
    here, reactor, queue = world()
    here.send(body=b"1", due=here.now + DAY)
    here.pass_time(5000)
    reactor.set(DAY)
    here.pass_time(NOTICED)
    assert bodies(queue) == [b"1"]


def test_a_time_of_the_wall_clock_follows_it_back():
    here, reactor, queue = world()
    here.send(body=b"1", due=here.now + 5000)
    here.pass_time(1000)
    reactor.set(-20_000)
    here.pass_time(23_875)
    assert bodies(queue) == []
    here.pass_time(125)
    assert bodies(queue) == [b"1"]


def test_cron_follows_the_wall_clock():
    here, reactor, queue = world()
    recurrence = Recurrence(cron="0 * * * *", repeat=0)
    due = recurrence.next_cron(here.now)
    assert due is not None
    here.send(body=b"c", due=due, recurrence=recurrence)
    reactor.set(due - here.now - 10_000)
    here.pass_time(9000)
    assert bodies(queue) == []
    here.pass_time(1000 + NOTICED)
    assert bodies(queue) == [b"c"]
    reactor.set(-3_600_000)  # the same hour comes again: the next time is the one that follows the last
    here.pass_time(3_599_000)
    assert bodies(queue) == [b"c"]


@JUMPS
def test_expiry_is_a_time_of_the_wall_clock(jump):
    here, reactor, queue = world()
    here.send(body=b"1", expires=here.now + 5000)
    here.pass_time(1000)
    reactor.set(jump)
    here.pass_time(NOTICED)
    assert bodies(queue) == ([b"1"] if jump < 0 else [])
    here.pass_time(4000 - NOTICED)
    assert bodies(queue) == ([b"1"] if jump < 0 else [])
    reactor.set(-jump)
    here.pass_time(NOTICED)
    assert (bodies(queue), queue.messages_expired) == ([], 1)


def test_a_cancelled_delay_leaves_no_entry_and_a_purge_none_of_many():
    here, _, queue = world()
    for _ in range(1000):
        here.send(due=here.broker.clock.from_now(60_000))
    queue.purge()
    here.settle_down()
    assert len(here.broker.delays) < 130
