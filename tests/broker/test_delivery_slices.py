"""A long backlog is delivered in slices of the reactor's time: what others see meanwhile, and that nothing is lost."""

from itertools import count

import pytest

from stompring.broker.clock import (
    DELIVERIES,
    DELIVERIES_BETWEEN,
    DELIVERY_SHARE,
    DELIVERY_SLICE,
    LONGEST_DELIVERY_SLICE,
)

from .broker_fixture import BrokerFixture, Taker, assert_nothing_held, join, numbered

MANY = 300
# the first look at the time begins a slice, the second one ends it
A_TURN = 2 * DELIVERIES


class SlicedBroker(BrokerFixture):
    """A broker in which a slice is over at the second look at the time, and queues with `MANY` messages."""

    def __init__(self):
        super().__init__({"#": {"auto_delete_queues": False}})
        self.broker.delivery_slices.now = count().__next__

    def filled(self, name="q", **attributes):
        queue = self.queue(name, **attributes)
        for body in numbered(MANY):
            self.send(name, body)
        return queue


def test_a_long_backlog_leaves_the_reactor_to_others_after_each_slice():
    world = SlicedBroker()
    queue, other = world.filled(), join(world.queue("other"), auto=True)
    taker = join(queue, auto=True)
    turns = 0
    while queue.count:
        assert len(taker.got) <= (turns + 1) * A_TURN
        world.send("other", b"%d" % turns)
        assert other.bodies[-1] == b"%d" % turns, "others are served at once"
        world.one_turn()
        turns += 1
    assert turns >= MANY // A_TURN
    assert taker.bodies == numbered(MANY)
    world.settle_down()
    assert not world.clock.calls
    assert_nothing_held(world)


def test_a_short_backlog_is_delivered_at_once_and_sets_no_timer():
    world = SlicedBroker()
    queue = world.queue()
    for body in numbered(DELIVERIES - 1):
        world.send(body=body)
    assert len(join(queue, auto=True).got) == DELIVERIES - 1
    assert not world.clock.calls


def test_a_short_backlog_is_delivered_at_once_though_others_have_used_up_the_slice():
    world = SlicedBroker()
    long, short = world.filled("long"), world.queue("short")
    world.send("short", b"one")
    join(long, auto=True)
    assert join(short, auto=True).bodies == [b"one"]


def test_queues_share_a_slice_and_go_on_round_robin():
    world = SlicedBroker()
    takers = [join(world.filled(name), auto=True) for name in ("a", "b", "c")]
    most = 0
    while any(taker.queue.count for taker in takers):
        before = [len(taker.got) for taker in takers]
        world.one_turn()
        most = max(most, sum(len(taker.got) for taker in takers) - sum(before))
        ahead = [len(taker.got) for taker in takers if taker.queue.count]
        assert not ahead or max(ahead) - min(ahead) <= 2 * A_TURN
    assert most <= A_TURN + len(takers) * DELIVERIES_BETWEEN
    assert [taker.bodies for taker in takers] == [numbered(MANY)] * 3


def test_a_backlog_shrinks_while_messages_arrive_faster_than_slices():
    world = SlicedBroker()
    queue = world.filled()
    taker = join(queue, auto=True)
    before = queue.count
    sent = 0
    while queue.count:  # without a turn of the reactor
        world.send(body=b"%d" % (MANY + sent))
        sent += 1
        assert queue.count == max(0, before - sent * (DELIVERIES_BETWEEN - 1))
    assert taker.bodies == numbered(MANY + sent)


def test_a_consumer_that_leaves_between_slices_gets_no_more_and_nothing_is_lost():
    world = SlicedBroker()
    queue = world.filled()
    first = join(queue, auto=True)
    world.one_turn()
    first.close()
    got = len(first.got)
    world.settle_down()
    assert len(first.got) == got < MANY
    second = join(queue, auto=True)
    world.settle_down()
    assert first.bodies + second.bodies == numbered(MANY)


def test_a_paused_consumer_gets_no_more_until_it_is_resumed():
    world = SlicedBroker()
    taker = join(world.filled(), 2 * A_TURN)
    world.settle_down()
    assert len(taker.got) == 2 * A_TURN
    taker.give_credit(MANY)
    world.settle_down()
    assert taker.bodies == numbered(MANY)


@pytest.mark.parametrize("act", ["delete", "purge", "pause"])
def test_what_happens_to_a_queue_between_slices_ends_its_delivery(act):
    world = SlicedBroker()
    queue = world.filled()
    taker = join(queue, auto=True)
    got = len(taker.got)
    if act == "delete":
        world.directory.delete_queue("q", force=True)
    elif act == "purge":
        queue.purge()
    else:
        queue.pause()
    world.settle_down()
    assert len(taker.got) == got
    assert queue.count == (MANY - got if act == "pause" else 0)
    if act == "purge":
        world.send(body=b"later")
        assert taker.bodies[-1] == b"later", "delivery is direct again"


def test_consumers_of_one_queue_take_turns_across_slices():
    world = SlicedBroker()
    queue = world.filled()
    takers = [Taker(auto=True) for _ in range(3)]
    queue.dispatcher.suspend()
    for taker in takers:
        queue.add_consumer(taker)
    queue.dispatcher.resume()
    world.settle_down()
    assert [len(taker.got) for taker in takers] == [MANY // 3] * 3


def test_a_queue_with_priorities_is_delivered_in_slices_to_the_highest():
    world = SlicedBroker()
    queue = world.filled()
    low, high = Taker(auto=True), Taker(auto=True)
    high.priority = 1
    queue.dispatcher.suspend()
    for taker in (low, high):
        queue.add_consumer(taker)
    queue.dispatcher.resume()
    assert len(high.got) == A_TURN
    world.settle_down()
    assert high.bodies == numbered(MANY)
    assert not low.got


def test_messages_of_groups_stay_in_order_across_slices():
    world = SlicedBroker()
    queue = world.queue()
    for number in range(MANY):
        world.send(body=b"%d" % number, group=b"%d" % (number % 3))
    takers = [Taker(auto=True) for _ in range(2)]
    queue.dispatcher.suspend()
    for taker in takers:
        queue.add_consumer(taker)
    queue.dispatcher.resume()
    world.settle_down()
    assert sum(len(taker.got) for taker in takers) == MANY
    for taker in takers:
        assert [int(body) for body in taker.bodies] == sorted(int(body) for body in taker.bodies)
        assert not {int(body) % 3 for body in taker.bodies} & {
            int(body) % 3 for other in takers if other is not taker for body in other.bodies
        }


@pytest.mark.parametrize(
    "others, expected",
    [
        (0.0, DELIVERY_SLICE),
        (DELIVERY_SLICE, DELIVERY_SLICE),
        (0.01, 0.01 * DELIVERY_SHARE),
        (1.0, LONGEST_DELIVERY_SLICE),
    ],
)
def test_a_slice_is_a_part_of_what_others_took(others, expected):
    world, time = BrokerFixture(), [0.0]
    slices, per_look = world.broker.delivery_slices, 1e-5

    def now():
        time[0] += per_look
        return time[0]

    slices.now = now
    queue = world.queue()
    for body in numbered(40 * MANY):
        world.send(body=body)
    taker = join(queue, auto=True)
    got = len(taker.got)
    time[0] += others
    world.one_turn()
    looks = (len(taker.got) - got) / DELIVERIES
    assert looks * per_look == pytest.approx(expected, abs=3 * per_look)
