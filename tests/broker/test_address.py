"""Where messages go: round robin, fan-out, mixed addresses, filters, wildcards; and full addresses."""

import pytest

from stompring.settings.model import FullPolicy

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture, bodies, join


def test_queues_that_are_disabled_get_nothing():
    world = BrokerFixture()
    queue = world.queue()
    world.send()
    world.directory.update_queue(queue, {"enabled": False})
    world.send()
    assert queue.messages_added == 1
    world.directory.update_queue(queue, {"enabled": True})
    world.send()
    assert queue.messages_added == 2


def test_a_filter_that_changes_counts_for_what_comes():
    world = BrokerFixture()
    queue = world.queue()
    world.send(body=b"1")
    world.directory.update_queue(queue, {"filter": "a = '1'"})
    world.send(body=b"2")
    world.send(body=b"3", headers={"a": "1"})
    assert bodies(queue) == [b"1", b"3"]


def test_wildcard_size_is_counted_where_it_was_sent():
    world = BrokerFixture()
    queue = world.queue("all", "#", MULTICAST)
    for name in ("a", "b"):
        world.send(name)
    assert [world.address(name).memory_limit.messages for name in ("a", "b", "#")] == [1, 1, 0]
    taker = join(queue)
    for ref in reversed(list(taker.unsettled)):
        taker.ack(ref)
    assert [world.address(name).memory_limit.bytes for name in ("a", "b", "#")] == [0, 0, 0]


def test_full_is_told_and_ends():
    world = BrokerFixture({"q": {"max_size_messages": 2, "address_full_policy": FullPolicy.FAIL}})
    queue = world.queue()
    address = queue.address
    world.send()
    assert address.full is None
    world.send()
    assert address.full is address.memory_limit
    assert address.describe_full() == "Address q is full: max-size-messages 2"
    join(queue, 1).ack()
    assert address.full is None


def test_a_new_limit_holds_at_once():
    world = BrokerFixture()
    queue = world.queue()
    for _ in range(3):
        world.send()
    address = queue.address
    from dataclasses import replace

    address.apply(replace(address.settings, max_size_messages=2))
    assert address.full is address.memory_limit
    address.apply(replace(address.settings, max_size_messages=-1, max_size_bytes=10_000_000))
    assert address.full is None


def test_the_whole_broker_may_be_full():
    world = BrokerFixture(global_max_size=1)
    world.queue("a")
    queue = world.queue("b")
    world.send("a")
    assert queue.address.full is world.broker.memory
    assert "global-max-size 1" in queue.address.describe_full()


CHOICES = [
    ("nobody", []),
    ("one", [(ANYCAST, None)]),
    ("one with a filter", [(ANYCAST, "colour = 'red'")]),
    ("a topic", [(MULTICAST, None), (MULTICAST, None)]),
    ("a topic, filtered", [(MULTICAST, None), (MULTICAST, "colour = 'red'")]),
    ("two in turns", [(ANYCAST, None), (ANYCAST, None)]),
    ("both kinds", [(ANYCAST, None), (MULTICAST, None)]),
]


@pytest.mark.parametrize("routing_type", [None, ANYCAST, MULTICAST])
@pytest.mark.parametrize("queues", [queues for _, queues in CHOICES], ids=[name for name, _ in CHOICES])
def test_who_is_chosen_is_who_is_reached(queues, routing_type):
    """An address that pages asks who should have a message; one that does not gives it to them at once."""
    asked, reached = BrokerFixture(), BrokerFixture()
    for world in (asked, reached):
        for number, (kind, selector) in enumerate(queues):
            world.queue(f"q{number}", "a", kind, filter=selector)
    for colour in ("red", "blue", "red"):
        before = [queue.messages_added for queue in reached.address("a").queues.values()]
        reached.send("a", routing_type=routing_type, headers={"colour": colour})
        after = [queue.messages_added for queue in reached.address("a").queues.values()]
        message = asked.message("a", routing_type=routing_type, headers={"colour": colour})
        chosen = {queue.name for queue in asked.address("a").choose(message)}
        assert chosen == {
            f"q{at}" for at, (was, now) in enumerate(zip(before, after, strict=True)) if now > was
        }


def test_choices_follow_the_bindings():
    world = BrokerFixture()
    first = world.queue("first", "a", MULTICAST)
    assert list(world.address("a").choose(world.message("a"))) == [first]
    second = world.queue("second", "a", MULTICAST)
    assert list(world.address("a").choose(world.message("a"))) == [first, second]
    world.directory.delete_queue("first")
    assert list(world.address("a").choose(world.message("a"))) == [second]
