"""Last-value queues whose messages are in pages: exact while they page, and after a restart."""

import pytest

from stompring.settings.model import RoutingType

from ..broker.broker_fixture import join
from ..store.stored_broker import BEGUN
from .stored_pages import StoredPages, drained

KEYED = {"last_value_key": "code"}


class Starting(StoredPages):
    """A broker that has begun to start and reads its pages only when it is let."""

    started = False

    def killed(self, pause=0):
        return Starting(files=self.memory.kill(), after=self.clock.seconds() - BEGUN + pause, **self.terms)

    def settle_down(self):
        if self.started:
            super().settle_down()


def put(world, numbers, keys, address="q", **more):
    """Message n has the key n modulo ``keys``."""
    for number in numbers:
        world.send(address, b"%d" % number, headers={"code": f"k{number % keys}"}, **more)


def newest(stop, keys):
    return [b"%d" % number for number in range(stop - keys, stop)]


def index(queue):
    assert queue.attributes.last_value
    return queue


def restarted(world, name="q"):
    """The broker after a kill -9."""
    world.settle_down()
    again = world.killed()
    return again, again.directory.queue(name)


def starting():
    """A broker after a kill -9 that has not read its pages yet: 30 messages of 30 keys."""
    world = StoredPages(limit=0)
    world.queue(**KEYED)
    put(world, range(30), 30, durable=True)
    world.settle_down()
    again = Starting.killed(world)
    return again, again.directory.queue("q")


@pytest.mark.parametrize("memory", [500, 1 << 20])
def test_a_scheduled_message_in_a_page_replaces_when_it_falls_due(memory):
    world = StoredPages(limit=0, memory=memory)
    queue = world.queue(**KEYED)
    put(world, range(5), 5, due=world.now + 1000)
    put(world, range(5, 10), 5)
    world.settle_down()
    assert (queue.message_count, queue.scheduled_count, queue.messages_replaced) == (10, 5, 0)
    world.pass_time(2000)
    world.settle_down()
    assert (queue.message_count, queue.scheduled_count, queue.messages_replaced) == (5, 0, 5)
    assert sorted(drained(world, join(queue))) == [b"%d" % number for number in range(5)]
    assert index(queue).keys == 0


def test_an_expired_value_on_disk_empties_its_key():
    world = StoredPages(limit=0, memory=500)
    queue = world.queue(**KEYED)
    put(world, range(5), 5)
    put(world, range(5, 8), 5, expires=world.now + 1000)
    world.pass_time(2000)
    world.settle_down()
    assert (queue.message_count, queue.messages_expired, index(queue).keys) == (2, 3, 2)


def test_a_purge_empties_the_index():
    world = StoredPages(limit=0, memory=500)
    queue = world.queue(**KEYED)
    put(world, range(30), 30)
    queue.purge()
    world.settle_down()
    assert (queue.message_count, index(queue).keys) == (0, 0)
    put(world, range(30, 60), 30)
    assert (queue.message_count, queue.messages_replaced) == (30, 0)


def test_keys_that_a_ring_evicts_unread_leave_the_index_in_time():
    world = StoredPages(limit=0, memory=500)
    queue = world.queue(ring_size=5, ring_counts_paged=True, **KEYED)
    put(world, range(3000), 3000)
    world.settle_down()
    assert queue.message_count == 5 and index(queue).keys < 1100
    put(world, range(2998, 3003), 3000)
    assert (queue.message_count, queue.messages_replaced) == (5, 3000)


def test_a_wildcard_queue_has_one_value_for_a_key_of_all_addresses():
    world = StoredPages(limit=0, memory=500)
    queue = world.queue("wide", "t.#", RoutingType.MULTICAST, **KEYED)
    put(world, range(10), 10, "t.a")
    put(world, range(10, 15), 10, "t.b")
    world.settle_down()
    assert (queue.message_count, queue.messages_replaced) == (10, 5)
    assert sorted(map(int, drained(world, join(queue)))) == list(range(5, 15))
    put(world, range(15, 20), 10, "t.a")
    assert queue.message_count == 5


class TestRestart:
    def test_the_index_is_rebuilt_before_anything_is_delivered(self):
        world = StoredPages(limit=5)
        world.queue(**KEYED)
        put(world, range(60), 20, durable=True)
        again, queue = restarted(world)
        assert (queue.message_count, index(queue).keys) == (20, 20)
        put(again, range(60, 70), 20, durable=True)
        assert queue.message_count == 20
        assert drained(again, join(queue)) == newest(70, 20)
        assert index(queue).keys == 0
        again, queue = restarted(again)
        assert queue.message_count == 0

    def test_a_value_that_was_superseded_in_delivery_is_replaced_at_the_start(self):
        world = StoredPages(limit=0)
        queue = world.queue(**KEYED)
        put(world, range(10), 10, durable=True)
        taker = join(queue, 10)
        world.settle_down()
        assert len(taker.unsettled) == 10
        put(world, range(10, 15), 10, durable=True)
        world.settle_down()
        assert queue.message_count == 15
        again, queue = restarted(world)
        assert (queue.message_count, queue.messages_replaced) == (10, 5)
        assert drained(again, join(queue)) == newest(15, 10)

    def test_values_in_the_journal_and_in_pages_are_compared(self):
        world = StoredPages(limit=5)
        queue = world.queue(**KEYED)
        put(world, range(5), 5, durable=True)  # in the journal
        taker = join(queue, 3)
        put(world, range(5, 25), 5, durable=True)  # of some of them a newer one is in pages
        world.settle_down()
        assert len(taker.unsettled) == 3
        again, queue = restarted(world)
        assert queue.message_count == 5
        assert drained(again, join(queue)) == newest(25, 5)

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
    def test_messages_that_arrive_while_the_index_is_rebuilt_are_the_newest(self, turns):
        again, queue = starting()
        taker = join(queue)
        for _ in range(turns):
            again.one_turn()
        put(again, range(30, 45), 30, durable=True)
        assert turns or taker.bodies == []
        again.started = True
        got = list(map(int, drained(again, taker)))
        assert got[-15:] == list(range(30, 45)) and got == sorted(got)
        assert turns or got == list(range(15, 45))
        assert queue.message_count == 0 and index(queue).keys == 0

    @pytest.mark.parametrize("turns", [0, 2, 5])
    @pytest.mark.parametrize("act", ["purge", "delete"])
    def test_a_queue_may_be_emptied_while_its_index_is_rebuilt(self, turns, act):
        again, queue = starting()
        for _ in range(turns):
            again.one_turn()
        if act == "purge":
            queue.purge()
        else:
            again.directory.delete_queue("q")
            queue = again.queue(**KEYED)
        put(again, range(30, 35), 30, durable=True)
        again.started = True
        assert drained(again, join(queue)) == [b"%d" % number for number in range(30, 35)]
        assert (queue.message_count, index(queue).keys) == (0, 0)
        again.settle_down()
        assert again.address("q").pages is None or again.pages().empty

    def test_a_wildcard_queue_compares_pages_of_several_addresses(self):
        world = StoredPages(limit=0)
        queue = world.queue("wide", "t.#", RoutingType.MULTICAST, **KEYED)
        put(world, range(10), 10, "t.a", durable=True)
        taker = join(queue, 10)
        world.settle_down()
        assert len(taker.unsettled) == 10
        put(world, range(10, 15), 10, "t.b", durable=True)
        put(world, range(15, 18), 10, "t.a", durable=True)
        again, queue = restarted(world, "wide")
        assert queue.message_count == 10
        assert sorted(map(int, drained(again, join(queue)))) == list(range(8, 18))

    def test_scheduled_values_survive_and_replace(self):
        world = StoredPages(limit=0)
        world.queue(**KEYED)
        put(world, range(5), 5, durable=True, due=world.now + 1000)
        put(world, range(5, 10), 5, durable=True)
        again, queue = restarted(world)
        assert (queue.message_count, queue.scheduled_count) == (10, 5)
        again.pass_time(2000)
        assert (queue.message_count, queue.scheduled_count) == (5, 0)
        assert sorted(drained(again, join(queue))) == [b"%d" % number for number in range(5)]

    def test_a_value_that_falls_due_at_the_start_is_newer_than_those_in_pages(self):
        world = StoredPages(limit=5)
        world.queue(**KEYED)
        put(world, range(1), 1, durable=True, due=world.now + 1000)  # in the journal
        put(world, range(1, 20), 1, durable=True)
        world.queue("other", "q2")
        for number in range(6):
            world.send("q", b"x%d" % number, durable=True)
        put(world, range(20, 21), 1, durable=True)
        world.settle_down()
        after = world.clock.seconds() - BEGUN + 5
        again = StoredPages(files=world.memory.kill(), after=after, **world.terms)
        got = drained(again, join(again.directory.queue("q")))
        assert got[0] == b"0" and b"20" not in got

    def test_a_message_that_waits_for_its_redelivery_is_dropped_after_a_newer_one(self):
        world = StoredPages(limit=0, settings={"redelivery_delay": 5000})
        queue = world.queue(**KEYED)
        put(world, range(3), 3, durable=True)
        taker = join(queue)
        world.settle_down()
        taker.nack(taker.unsettled[0])
        again, queue = restarted(world)
        assert (queue.message_count, queue.scheduled_count) == (3, 1)
        put(again, range(3, 4), 3, durable=True)
        taker = join(queue)
        again.pass_time(6000)
        assert drained(again, taker) == [b"1", b"2", b"3"]
        assert (queue.message_count, queue.messages_replaced, index(queue).keys) == (0, 1, 0)
