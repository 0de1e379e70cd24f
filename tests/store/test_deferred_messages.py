"""After a start the messages of a journal have no objects until they are needed; nobody can tell."""

import pytest

from stompring.broker.reference import ReferenceRun
from stompring.settings.model import RingPolicy

from ..broker.broker_fixture import MULTICAST, assert_nothing_held, bodies, header_is, join
from .stored_broker import StoredBroker, held

SENT = [b"%d" % number for number in range(600)]


def started(bodies=SENT, **configuration):
    """A broker started with durable messages in its journal."""
    world = StoredBroker(**configuration)
    world.queue("q")
    for body in bodies:
        world.durable("q", body)
    again = world.restarted()
    return again, again.q


def deferred(queue):
    """How many of its messages have no object."""
    return sum(
        ref.length
        for level in queue.dispatcher.pending.levels
        for ref in level or ()
        if isinstance(ref, ReferenceRun)
    )


@pytest.fixture
def world():
    return StoredBroker()


def test_a_start_makes_no_objects_of_messages_and_counts_them_all():
    world, queue = started()
    assert deferred(queue) == 600
    assert (queue.count, queue.message_count, queue.messages_added) == (600, 600, 600)
    assert world.broker.memory.messages == world.address("q").memory_limit.messages == 600
    assert queue.persistent_size == world.broker.memory.bytes
    before = queue.persistent_size
    assert bodies(queue) == SENT
    assert sum(ref.message.size for ref in queue.dispatcher.in_order()) == before
    queue.purge()
    world.turn()
    assert_nothing_held(world)
    world.turn()
    assert_nothing_held(world.again())


def test_they_are_made_as_they_are_consumed_and_a_restart_finds_the_others():
    world, queue = started()
    taker = join(queue, 300)
    assert taker.bodies == SENT[:300]
    assert 0 < deferred(queue) < 300
    world.durable("q", b"new")
    taker.ack(*taker.unsettled[:10])
    again = world.restarted()
    queue = again.q
    assert bodies(queue) == [*SENT[10:], b"new"]
    second = join(queue)
    assert second.bodies == [*SENT[10:], b"new"]
    assert second.deliveries[:301] == [2] * 300 + [1]


def test_rejected_ones_come_back_to_their_places():
    _, queue = started()
    taker = join(queue, 300)
    taker.cancelled("left")
    assert join(queue).bodies == SENT


def test_priorities_addresses_and_unlike_messages_between_them_keep_the_order(world):
    world.queue("q")
    for number, body in enumerate(SENT):
        if number % 7 == 3:
            world.durable("q", body, expires=world.now + 10_000_000)
        else:
            world.durable("q", body, priority=9 if number % 20 < 10 else 4, headers={"at": str(number // 30)})
    again = world.restarted()
    queue = again.q
    assert 0 < deferred(queue) < 600
    assert bodies(queue) == bodies(world.q)
    assert join(queue).bodies == bodies(world.q)
    assert all(not 0 < ref.message.expires <= again.now for ref in queue.dispatcher.in_order())


def test_a_wildcard_queue_has_the_messages_of_its_addresses_in_order(world):
    world.queue("w", "t.*", MULTICAST)
    for number, body in enumerate(SENT):
        world.durable("t.a" if number % 10 < 5 else "t.b", body)
    again = world.restarted()
    queue = again.directory.queue("w")
    assert deferred(queue) == 600
    assert [again.address(name).memory_limit.messages for name in ("t.a", "t.b")] == [300, 300]
    assert join(queue, auto=True).bodies == SENT
    assert_nothing_held(again)


def test_a_selector_a_group_and_a_ring_find_them():
    world, queue = started()
    join(queue, 0, matches=header_is(b"colour", b"red"), key="red")
    assert bodies(queue) == SENT
    world, queue = started()
    world.durable("q", b"of a group", group=b"g")
    assert join(queue).bodies == [*SENT, b"of a group"]
    world, queue = started()
    queue.ring_size = 10
    sum(queue.trim())
    assert bodies(queue) == SENT[-10:]


def test_a_queue_that_needs_each_message_gets_each(world):
    world.queue("r", "t", MULTICAST, ring_size=5, ring_policy=RingPolicy.DISCARD)
    world.queue("n", "t", MULTICAST, non_destructive=True)
    world.queue("l", "t", MULTICAST, last_value_key="k")
    for body in SENT[:10]:
        world.durable("t", body, headers={"k": "v"})
    again = world.restarted()
    counts = {name: again.directory.queue(name).count for name in ("r", "n", "l")}
    assert counts == {"r": 5, "n": 10, "l": 1}
    assert all(not deferred(again.directory.queue(name)) for name in counts)


def test_settled_ones_between_them_are_left_out(world):
    queue = world.queue("q")
    for body in SENT:
        world.durable("q", body)
    world.turn()
    taker = join(queue)
    taker.ack(*taker.unsettled[1::3])
    again = world.restarted()
    left = [body for number, body in enumerate(SENT) if number % 3 != 1]
    assert held(again) == left
    assert again.q.count == len(left)


def test_compaction_makes_and_rewrites_them():
    world, queue = started(
        [b"%d" % number + bytes(100) for number in range(60)],
        journal_file_size=4000,
        journal_compact_min_files=2,
        journal_compact_percentage=100,
    )
    before = world.journal.segments[0].number
    for _ in range(200):
        world.keep("q", b"more" + bytes(100))
        world.pass_time(20)
        queue.evict_message(next(iter(reversed(list(queue.dispatcher.in_order())))))
        world.turn()
    assert world.journal.segments[0].number > before
    sent = [b"%d" % number + bytes(100) for number in range(60)]
    assert bodies(queue) == sent
    assert held(world.again()) == sent


def test_a_deleted_queue_takes_them_along():
    world, queue = started()
    queue.purge()
    world.directory.delete_queue("q")
    again = world.restarted()
    assert "q" not in again.directory.queues
    assert_nothing_held(again)


def test_live_bytes_of_the_journal_are_those_of_the_messages():
    world, queue = started()
    before = world.journal.live_bytes
    found = [ref.message for ref in queue.dispatcher.in_order()]
    assert before >= sum(len(message.tail) for message in found)
    queue.purge()
    world.turn()
    assert world.journal.live_bytes == 0
