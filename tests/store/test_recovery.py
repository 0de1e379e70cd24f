"""What comes back after a start, also from a journal that was torn or damaged."""

from random import Random

import pytest

from stompring.settings.model import RingPolicy

from ..broker.broker_fixture import MULTICAST, BrokerFixture, assert_nothing_held, join
from .stored_broker import StoredBroker, held, pending, reported

# ---- messages


@pytest.fixture
def world():
    return StoredBroker()


def test_restart_recovers_every_field_of_a_message(world):
    world.queue("q")
    sent = world.durable(
        "q", b"b\0dy", priority=8, group=b"g", group_sequence=-1, origin="me", user="u", headers={"a": "b:c"}
    )
    world.turn()
    (ref,) = pending(world.again().q)
    got = ref.message
    assert (got.number, got.tail, got.body, got.timestamp) == (
        sent.number,
        sent.tail,
        b"b\0dy",
        sent.timestamp,
    )
    traits = got.traits
    assert (traits.priority, traits.durable, traits.destination) == (8, True, b"q")
    assert (traits.group, traits.group_sequence, traits.origin, traits.user) == (b"g", -1, "me", "u")
    assert got.address.name == "q" and ref.deliveries == 0


def test_memory_is_counted_as_before(world):
    for name in ("a", "b"):
        world.queue(name, "t", MULTICAST)
    for _ in range(5):
        world.durable("t", b"x" * 100)
    again = world.restarted()
    for there in (world, again):
        assert there.broker.memory.messages == 5
    assert again.broker.memory.bytes == world.broker.memory.bytes
    for name in ("a", "b"):
        again.directory.queue(name).purge()
    assert_nothing_held(again)
    again.turn()
    assert_nothing_held(again.again())


def test_a_million_deliveries(world):
    queue = world.queue("q")
    world.keep("q")
    taker = join(queue, 1)
    taker.unsettled[0].deliveries = 1_000_000
    taker.close()
    world.turn()
    assert pending(world.again().q)[0].deliveries == 1_000_000
    other = StoredBroker()
    (first, second) = (other.queue(name, "t", MULTICAST) for name in ("a", "b"))
    other.durable("t")
    pending(first)[0].deliveries = 300
    again = other.restarted()
    assert [pending(again.directory.queue(name))[0].deliveries for name in ("a", "b")] == [300, 0]


def test_each_queue_recovers_its_own_due_time():
    world = StoredBroker(settings={"#": {"redelivery_delay": 60_000}})
    first, second = (world.queue(name, "t", MULTICAST) for name in ("a", "b"))
    world.durable("t")
    join(first, 1).nack()
    again = world.restarted()
    assert len(again.directory.queue("a").scheduled) == 1 and again.directory.queue("b").count == 1
    assert second.count == 1


def test_expiry():
    world = StoredBroker(settings={"#": {"expiry_address": "EXP"}})
    world.queue("q")
    world.queue("EXP")
    world.durable("q", b"short", expires=world.now + 1000)
    world.durable("q", b"long", expires=world.now + 100_000)
    world.keep("q", b"later", expires=world.now + 2000, due=world.now + 50_000)
    again = world.again(after=3)
    again.turn()
    assert held(again) == [b"long"] and held(again, "EXP") == [b"short", b"later"]
    third = again.restarted()
    assert held(third) == [b"long"] and held(third, "EXP") == [b"short", b"later"]


def test_restart_evicts_ring_messages_over_the_size():
    world = StoredBroker(settings={"#": {"dead_letter_address": "DLQ"}})
    world.queue("DLQ")
    queue = world.queue("ring", ring_size=3, ring_policy=RingPolicy.DEAD_LETTER)
    for number in range(5):
        world.durable("ring", b"%d" % number)
    taker = join(queue, 2)
    for number in range(5, 7):
        world.durable("ring", b"%d" % number)
    world.turn()
    assert len(taker.unsettled) == 2
    again = world.again()
    assert held(again, "ring") == [b"4", b"5", b"6"], "what was in delivery came first"
    assert held(again, "DLQ") == [b"0", b"1", b"2", b"3"]
    again.turn()
    assert held(again.again(), "DLQ") == [b"0", b"1", b"2", b"3"]


def test_wildcard_queue_recovers_messages_of_a_deleted_address(world):
    world.queue("all", "a.#", MULTICAST)
    world.directory.create_address("a.b", frozenset({MULTICAST}))
    world.durable("a.b", b"kept")
    world.directory.delete_address("a.b")
    again = world.restarted()
    assert held(again, "all") == [b"kept"]
    (ref,) = pending(again.directory.queue("all"))
    assert ref.message.address.name == "a.b" and ref.message.address.deleted
    assert "a.b" not in again.directory.addresses
    again.directory.queue("all").purge()
    assert again.broker.memory.messages == 0


# ---- queues and addresses


def test_queues_with_all_that_makes_them(world):
    given = {
        "filter": "a = 'x'",
        "ring_size": 5,
        "ring_policy": RingPolicy.DEAD_LETTER,
        "max_consumers": 3,
        "exclusive": True,
        "consumers_before_dispatch": 2,
        "delay_before_dispatch": 1000,
        "user": "somebody",
        "auto_created": True,
        "auto_delete": True,
    }
    queue = world.queue("q", "t", MULTICAST, **given)
    queue.no_local = "client"
    queue.pause()
    world.address("t").paused = True
    world.store.bind_address(world.address("t"))
    world.turn()
    again = world.again().q
    assert again.attributes == queue.attributes.changed({"filter": "a = 'x'"})
    assert (again.number, again.id_prefix, again.no_local, again.paused) == (
        queue.number,
        queue.id_prefix,
        "client",
        True,
    )
    assert again.address.paused and again.address.number == queue.address.number
    assert again.ring_size == 5 and again.accepts is not None and again.dispatcher.blocks


def test_non_durable_and_temporary_queues_are_not_recovered(world):
    world.queue("volatile", durable=False, auto_created=True)
    world.queue("temporary", temporary=True)
    world.queue("mine", "shared", MULTICAST)
    world.queue("theirs", "shared", MULTICAST, durable=False)
    again = world.restarted()
    assert set(again.directory.queues) == {"mine"}
    assert "volatile" not in again.directory.addresses, "made for a queue that is gone"
    again.turn()
    assert "volatile" not in again.again().directory.addresses


def test_invalid_queue_description_is_skipped_and_reported(world, caplog):
    bad, good = world.queue("bad"), world.queue("good")
    world.durable("good", b"kept")
    object.__setattr__(bad.attributes, "filter", "this is ( no filter")
    world.store.bind(bad)
    again = world.restarted()
    assert set(again.directory.queues) == {good.name} and held(again, "good") == [b"kept"]
    assert any("queue bad" in text and "filter" in text for text in reported(again))


# ---- notes


def test_notes(world):
    world.store.store_value(7, {"a": [1, "ü"]})
    world.store.store_value(8, {"b": 2})
    world.store.store_value(8, {"b": 3})
    world.store.store_value(9, {})
    world.turn()
    world.store.store_value(9, None)
    again = world.restarted()
    assert again.store.notes == {7: {"a": [1, "ü"]}, 8: {"b": 3}}
    again.store.store_value(7, None)
    again.turn()
    assert again.again().store.notes == {8: {"b": 3}}


def test_named_values(world):
    """They survive restarts and compaction, keep their numbers, and leave the values of tools alone."""
    world.store.store_value(1, {"import": "a.xml"})
    world.store.store_value(2, {"import": "b.xml"})
    again = world.restarted()
    values = again.store.values
    assert values.durable and values.of("divert") == {}
    values.put("divert", "ü #*\n", {"a": [1, None]})
    values.put("divert", "b", {})
    values.put("bridge", "b", {"n": 1})
    values.put("divert", "b", {"n": 2})
    values.put("divert", "c", {})
    values.put("divert", "c", None)
    values.put("divert", "c", None)
    again = again.restarted()
    values = again.store.values
    assert dict(values.of("divert")) == {"ü #*\n": {"a": [1, None]}, "b": {"n": 2}}
    assert values.of("bridge") == {"b": {"n": 1}} and again.store.notes[1] == {"import": "a.xml"}
    assert sorted(again.store.notes) == [1, 2, 3, 4, 5]
    values.put("divert", "d", {"new": True})
    values.put("bridge", "b", None)
    again = again.restarted()
    assert list(again.store.values.of("divert")) == ["ü #*\n", "b", "d"] and not again.store.values.of(
        "bridge"
    )


def test_changes_of_one_batch_are_one_record(world):
    values = world.store.values
    values.put("k", "n", {"v": "x" * 100})
    world.turn()
    before = world.journal.bytes
    for number in range(100):
        values.put("k", "n", {"v": f"{number:0100}"})
    synced = world.synced()
    world.turn()
    assert synced and world.journal.bytes - before < 300
    assert world.crashed(Random(1)).store.values.of("k") == {"n": {"v": f"{99:0100}"}}


def test_named_values_without_a_store():
    values = BrokerFixture().broker.storage.values
    values.put("divert", "a", {"n": 1})
    assert not values.durable and values.of("divert") == {"a": {"n": 1}}
