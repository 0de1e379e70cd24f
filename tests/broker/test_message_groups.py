"""Message groups on a queue: buckets, rebalancing, the header on the first message, resetting."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from stompring.broker.dispatcher import GROUPS, STALE
from stompring.broker.message_groups import MessageGroups
from stompring.errors import Refused

from .broker_fixture import BrokerFixture, Taker, assert_nothing_held, header_is, join

RED = header_is(b"colour", b"red")


def grouped(world, *messages, ends=False, colour="red"):
    """A message for each name: ``a1`` is of group ``a``."""
    for name in messages:
        world.send(
            body=name.encode(),
            group=name[:1].encode(),
            group_sequence=-1 if ends else 0,
            headers={"colour": colour},
        )


def texts(taker):
    return [body.decode() for body in taker.bodies]


class Marked(Taker):
    """A consumer that notes which messages came with an additional header."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.marks: list[tuple[bytes, bytes, bytes]] = []
        self._header: tuple[bytes, bytes] | None = None

    @contextmanager
    def additional_header(self, name, value):
        self._header = name, value
        yield
        self._header = None

    def deliver_reference(self, ref):
        if self._header is not None:
            self.marks.append((ref.message.body, *self._header))
        super().deliver_reference(ref)

    @property
    def first(self):
        return [body.decode() for body, _, _ in self.marks]


def marked(queue, credit=None, **more):
    taker = Marked(credit, **more)
    queue.add_consumer(taker)
    return taker


# ---- buckets


def test_groups_of_one_bucket_have_one_owner():
    world = BrokerFixture()
    queue = world.queue(group_buckets=1)
    one, two = join(queue), join(queue)
    grouped(world, "a1", "b1", "c1", "a2")
    assert (texts(one), texts(two)) == (["a1", "b1", "c1", "a2"], [])
    assert (one.group_count, queue.dispatcher.group_count) == (1, 1)


def test_many_groups_take_the_memory_of_the_buckets():
    world = BrokerFixture()
    queue = world.queue(group_buckets=4)
    takers = [join(queue, auto=True) for _ in range(2)]
    for number in range(200):
        world.send(group=b"%d" % number)
    groups = queue.dispatcher.groups
    assert groups is not None and len(groups.owners) == 4
    assert sorted(len(taker.got) for taker in takers) != [0, 200], "the hash spreads them"
    assert sum(taker.group_count for taker in takers) == 4


def test_bucket_of_a_group_is_the_same_after_its_owner_left():
    groups = [MessageGroups(7), MessageGroups(7)]
    keys = [[each._key(b"%d" % number) for number in range(100)] for each in groups]
    assert keys[0] == keys[1] and set(keys[0]) == set(range(7))


def test_no_buckets_turn_groups_off():
    world = BrokerFixture()
    queue = world.queue(group_buckets=0)
    one, two = join(queue), join(queue)
    grouped(world, "a1", "a2", "a3", "a4")
    assert (texts(one), texts(two)) == (["a1", "a3"], ["a2", "a4"])
    assert not queue.dispatcher.blocks & GROUPS and queue.dispatcher.group_count == 0


def test_buckets_can_change_while_messages_wait_for_their_owners():
    world = BrokerFixture()
    queue = world.queue()
    one, two = join(queue, 1), join(queue, 1)
    grouped(world, "a1", "b1", "a2", "b2", "a3")
    world.directory.update_queue(queue, {"group_buckets": 0})
    two.ack()
    assert texts(two) == ["b1", "a2"], "anybody may have it now"
    world.directory.update_queue(queue, {"group_buckets": -1})
    one.ack()
    assert texts(one) == ["a1", "b2"]
    two.ack()
    assert texts(two) == ["b1", "a2", "a3"]
    grouped(world, "a4")
    one.ack()
    assert queue.count == 1, "group a is with the second consumer"
    two.ack()
    one.close()
    two.ack()
    two.close()
    assert_nothing_held(world)


# ---- rebalancing


def test_without_rebalance_a_new_consumer_gets_new_groups_only():
    world = BrokerFixture()
    queue = world.queue()
    one = join(queue)
    grouped(world, "a1", "b1")
    two = join(queue)
    grouped(world, "a2", "b2", "c1", "d1")
    assert {text[:1] for text in texts(two)} <= {"c", "d"} and texts(two)
    assert texts(one)[:4] == ["a1", "b1", "a2", "b2"]


def test_backlog_of_busy_owners_goes_to_a_new_consumer():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True)
    one = join(queue, 1)
    grouped(world, "a1", "a2", "b1", "a3")
    assert (texts(one), queue.count) == (["a1"], 3)
    two = join(queue)
    assert texts(two) == ["a2", "b1", "a3"]
    one.close()
    assert texts(two) == ["a2", "b1", "a3", "a1"]


def test_pause_dispatch_waits_until_everything_is_settled():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    one = join(queue)
    grouped(world, "a1", "b1")
    two = join(queue)
    grouped(world, "a2", "b2")
    assert queue.dispatcher.rebalancing
    assert (texts(one), texts(two)) == (["a1", "b1"], [])
    one.ack(one.unsettled[0])
    assert (texts(one), texts(two), queue.count) == (["a1", "b1"], [], 2)
    one.ack()
    assert not queue.dispatcher.rebalancing and queue.count == 0
    assert sorted(texts(one)[2:] + texts(two)) == ["a2", "b2"] and len(two.got) == 1


def test_pause_dispatch_ends_with_a_rejected_message():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    one = join(queue)
    grouped(world, "a1")
    two = join(queue)
    grouped(world, "a2")
    one.nack()
    assert not queue.dispatcher.rebalancing
    assert texts(one) + texts(two) == ["a1", "a1", "a2"], "one consumer has both, in order"


def test_pause_dispatch_ends_when_the_owner_leaves():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    one = join(queue)
    grouped(world, "a1")
    two = join(queue, 1)
    grouped(world, "a2")
    one.close()
    assert texts(two) == ["a1"] and not queue.dispatcher.rebalancing
    two.ack()
    assert texts(two) == ["a1", "a2"]


def test_pause_dispatch_is_over_when_it_is_switched_off():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    join(queue)
    grouped(world, "a1")
    two = join(queue)
    grouped(world, "b1")
    world.directory.update_queue(queue, {"group_rebalance_pause_dispatch": False})
    assert texts(two) == ["b1"] or queue.count == 0


def test_nothing_waits_where_nothing_is_in_delivery():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    join(queue, auto=True)
    grouped(world, "a1")
    join(queue, auto=True)
    assert not queue.dispatcher.rebalancing
    grouped(world, "a2")
    assert queue.count == 0


# ---- the header on the first message


def test_first_message_of_each_group_is_marked():
    world = BrokerFixture()
    queue = world.queue(group_first_key="FIRST")
    one = marked(queue)
    grouped(world, "a1", "a2", "b1", "a3")
    world.send(body=b"none")
    assert one.marks == [(b"a1", b"FIRST", b"true"), (b"b1", b"FIRST", b"true")]
    assert len(one.got) == 5


def test_first_message_from_a_backlog_is_marked():
    world = BrokerFixture()
    queue = world.queue(group_first_key="FIRST")
    grouped(world, "a1", "b1", "a2")
    one = marked(queue)
    assert one.first == ["a1", "b1"]


@pytest.mark.parametrize("name", ["destination", "Message-Id", "a\nb"])
def test_first_key_must_be_a_header_of_its_own(name):
    world = BrokerFixture()
    with pytest.raises(Refused, match="group-first-key must not"):
        world.queue(group_first_key=name)
    queue = world.queue("other")
    with pytest.raises(Refused, match="group-first-key must not"):
        world.directory.update_queue(queue, {"group_first_key": name})


# ---- resetting


def test_reset_of_one_group_unpins_only_that():
    world = BrokerFixture()
    queue = world.queue()
    one = join(queue, 2)
    grouped(world, "a1", "b1", "a2", "b2")
    two = join(queue)
    assert queue.dispatcher.reset_groups(b"a") == 1
    assert (texts(one), texts(two), queue.count) == (["a1", "b1"], ["a2"], 1)
    assert queue.dispatcher.reset_groups(b"none") == 0
    assert (one.group_count, two.group_count) == (1, 1)


def test_reset_of_all_groups_gives_the_backlog_to_others():
    world = BrokerFixture()
    queue = world.queue()
    one = join(queue, 2)
    grouped(world, "a1", "b1", "a2", "b2")
    two = join(queue)
    assert queue.dispatcher.reset_groups() == 2
    assert texts(two) == ["a2", "b2"] and one.group_count == 0
    assert world.queue("plain").dispatcher.reset_groups() == 0


# ---- owners that leave


def test_order_of_each_group_survives_owners_that_leave_with_messages_in_delivery():
    world = BrokerFixture()
    queue = world.queue()
    one, two, three = join(queue, 2), join(queue, 2), join(queue, 0)
    grouped(world, "a1", "b1", "a2", "b2", "a3", "b3", "a4")
    one.close(failed=True)
    two.close()
    three.give_credit(100)
    assert texts(three) == ["a1", "b1", "a2", "b2", "a3", "b3", "a4"]


def test_groups_of_consumers_that_left_are_forgotten_in_the_end():
    world = BrokerFixture()
    queue = world.queue()
    for round_ in range(3):
        taker = join(queue, auto=True)
        for number in range(STALE):
            world.send(group=b"%d-%d" % (round_, number))
        assert taker.group_count == STALE
        taker.close()
    world.settle_down()
    groups = queue.dispatcher.groups
    assert groups is not None and len(groups.owners) <= STALE and groups.stale == len(groups.owners)
    assert queue.dispatcher.group_count == 0


def test_group_moves_where_the_selector_of_its_owner_no_longer_matters():
    world = BrokerFixture()
    queue = world.queue()
    owner, other = join(queue, matches=RED), join(queue)
    grouped(world, "a1")
    owned = owner if owner.got else other
    grouped(world, "a2", colour="blue")
    assert texts(other)[-1] == "a2" and owned.group_count == 1


def test_end_of_a_group_frees_what_waits_behind_it_only():
    world = BrokerFixture()
    queue = world.queue()
    owner, other = join(queue, 1), join(queue)
    grouped(world, "a1")
    other.give_credit(0)
    grouped(world, "a2", ends=True)
    grouped(world, "b1", "a3", "a4")
    assert (texts(owner), texts(other)) == (["a1"], ["b1"])
    owner.ack()
    assert texts(owner) == ["a1", "a2"] and texts(other) == ["b1", "a3", "a4"]
    assert_nothing_held_after(world, owner, other)


def assert_nothing_held_after(world, *takers):
    for taker in takers:
        taker.ack()
        taker.close()
    assert_nothing_held(world)
