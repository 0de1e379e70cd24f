"""Addresses and queues by name."""

import pytest

from stompring.errors import NotFound, Refused
from stompring.settings.model import QueueConfiguration

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture, join


@pytest.mark.parametrize("name", ["", " a", "a ", "a::b", "a\nb", "a\x7f", "half \ud800 a pair", "x" * 3000])
def test_names_that_cannot_be(name):
    with pytest.raises(Refused) as refused:
        BrokerFixture().queue(name)
    assert refused.value.status == 400


@pytest.mark.parametrize("name", ["a", "/queue/a", "a.b/c", "naïve ☕", "a:b", "a b"])
def test_names_that_can_be(name):
    world = BrokerFixture()
    assert world.queue(name) is world.directory.queue(name)


def test_a_queue_name_is_unique_in_the_broker():
    world = BrokerFixture()
    world.queue("q", "a")
    with pytest.raises(Refused, match="Queue q exists already on address a"):
        world.queue("q", "b")
    assert "b" not in world.directory.addresses


def test_what_is_not_there():
    directory = BrokerFixture().directory
    for look in (directory.address, directory.queue, directory.delete_queue, directory.delete_address):
        with pytest.raises(NotFound, match="x does not exist"):
            look("x")


def test_a_queue_brings_its_address_and_its_type():
    world = BrokerFixture()
    world.queue("q", "a", ANYCAST)
    assert world.address("a").routing_types == {ANYCAST}
    world.queue("m", "a", MULTICAST)
    assert world.address("a").routing_types == {ANYCAST, MULTICAST}
    with pytest.raises(Refused, match="ANYCAST queue q"):
        world.directory.update_address(world.address("a"), frozenset({MULTICAST}))


def test_default_ring_size_is_read_at_creation():  # RQ-5
    world = BrokerFixture({"a.#": {"default_ring_size": 100}})
    assert [world.queue(name).ring_size for name in ("a.x", "b")] == [100, -1]
    assert world.queue("own", "a.x", ring_size=7).ring_size == 7


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"durable": False}, "durable of queue q cannot change"),
        ({"routing_type": MULTICAST}, "routing-type"),
        ({"non_destructive": True}, "non-destructive"),
        ({"last_value": True}, "last-value"),
        ({"last_value_key": "code"}, "last-value"),
        ({"max_consumers": 1}, "less than the 2 consumers"),
        ({"ring_size": 0, "exclusive": True}, "ring-size"),
    ],
)
def test_changes_that_cannot_be_change_nothing(changes, words):
    world = BrokerFixture()
    queue = world.queue()
    join(queue), join(queue)
    before = queue.attributes
    with pytest.raises(Refused, match=words):
        world.directory.update_queue(queue, changes)
    assert queue.attributes == before


def test_a_queue_with_consumers_is_deleted_by_force_only():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue)
    with pytest.raises(Refused, match="has 1 consumer$"):
        world.directory.delete_queue("q")
    assert not queue.deleted
    world.directory.delete_queue("q", force=True)
    assert taker.cancel_reason == "Queue q was deleted"
    assert "q" not in world.directory.queues and not queue.address.queues


def test_an_address_with_queues_is_deleted_by_force_only():
    world = BrokerFixture()
    world.queue("q", "a"), world.queue("p", "a")
    with pytest.raises(Refused, match="still has queues: p, q"):
        world.directory.delete_address("a")
    world.directory.delete_address("a", force=True)
    assert not world.directory.addresses and not world.directory.queues


def test_an_auto_created_address_may_go_with_its_last_queue():
    world = BrokerFixture()
    world.queue("q", "a", auto_created=True)
    world.directory.delete_address("a", force=True)
    assert not world.directory.addresses


def test_deleted_wildcards_match_no_more():
    world = BrokerFixture()
    world.queue("w", "a.#", MULTICAST)
    world.send("a.b")
    world.directory.delete_address("a.#", force=True)
    world.send("a.b")
    assert world.address("a.b").unrouted_messages == 1
    again = world.queue("w", "a.#", MULTICAST)
    world.send("a.b")
    assert again.count == 1


def test_a_new_queue_of_a_paused_address_is_paused():
    world = BrokerFixture()
    world.queue("q", "a").address.paused = True
    assert world.directory.create_queue(QueueConfiguration("p", "a", ANYCAST)).paused
