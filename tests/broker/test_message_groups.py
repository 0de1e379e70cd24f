"""Message groups on a queue: buckets, rebalancing, the header on the first message, resetting."""

import pytest

from stompring.broker.queue import STALE, MessageGroups
from stompring.errors import Refused

from .broker_fixture import BrokerFixture, assert_nothing_held, join


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


# ---- buckets


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


def test_pause_dispatch_is_over_when_it_is_switched_off():
    world = BrokerFixture()
    queue = world.queue(group_rebalance=True, group_rebalance_pause_dispatch=True)
    join(queue)
    grouped(world, "a1")
    two = join(queue)
    grouped(world, "b1")
    world.directory.update_queue(queue, {"group_rebalance_pause_dispatch": False})
    assert texts(two) == ["b1"] or queue.count == 0


# ---- the header on the first message


@pytest.mark.parametrize("name", ["destination", "Message-Id", "a\nb"])
def test_first_key_must_be_a_header_of_its_own(name):
    world = BrokerFixture()
    with pytest.raises(Refused, match="group-first-key must not"):
        world.queue(group_first_key=name)
    queue = world.queue("other")
    with pytest.raises(Refused, match="group-first-key must not"):
        world.directory.update_queue(queue, {"group_first_key": name})


# ---- resetting


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
