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
    queue = world.restarted().q
    assert bodies(queue) == [*SENT[10:], b"new"]
    second = join(queue)
    assert second.bodies == [*SENT[10:], b"new"]
    assert second.deliveries[:301] == [2] * 300 + [1]


def test_rejected_ones_come_back_to_their_places():
    _, queue = started()
    join(queue, 300).cancelled("left")
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


def test_a_ring_counts_them_and_evicts_the_oldest():
    world = StoredBroker()
    world.queue("q", ring_size=600, ring_policy=RingPolicy.DISCARD)
    for body in [*SENT, b"600"]:
        world.durable("q", body)
    world = world.restarted()
    queue = world.q
    assert (deferred(queue), queue.count, queue.messages_replaced) == (600, 600, 0)
    world.durable("q", b"601")
    assert (queue.count, queue.messages_replaced) == (600, 1)
    left = [*SENT[2:], b"600", b"601"]
    assert 0 < deferred(queue) < 600
    again = world.restarted()
    assert bodies(queue) == held(again) == left
    taker = join(again.q, 1)
    again.durable("q", b"602")
    taker.cancelled("left")  # the ring is full: what comes back is dropped
    assert bodies(again.q) == [*left[1:], b"602"]


def test_a_ring_that_became_smaller_has_the_newest_after_the_start():
    world = StoredBroker()
    queue = world.queue("q", ring_size=600)
    for number, body in enumerate(SENT):
        world.durable("q", body, priority=9 if number % 2 else 4)
    queue.attributes = queue.attributes.changed({"ring_size": 400})
    world.broker.bind(queue)
    kept = bodies(queue)[-400:]
    again = world.restarted()
    assert (bodies(again.q), again.q.messages_replaced) == (kept, 200)
    assert held(again.restarted()) == kept


def test_each_consumer_of_a_non_destructive_queue_gets_all():
    world = StoredBroker()
    world.queue("q", non_destructive=True)
    for body in SENT:
        world.durable("q", body)
    world = world.restarted()
    queue = world.q
    assert (deferred(queue), queue.count) == (600, 600)
    first = join(queue, 300)
    world.turn()
    assert first.bodies == SENT[:300]
    first.ack(*first.unsettled[:10])
    second = join(queue)
    world.turn()
    assert second.bodies == SENT
    assert (queue.count, held(world.restarted())) == (600, SENT)


KEYS = [f"{number}" if number % 2 else f"a:{number}" for number in range(600)]


def last_values(attributes, header="code", **more):
    """A started broker with a durable message for each key in its last-value queue."""
    world = StoredBroker()
    world.queue("q", **attributes)
    for key, body in zip(KEYS, SENT, strict=True):
        world.durable("q", body, headers={header: key}, **more)
    return world.restarted()


@pytest.mark.parametrize(
    "attributes, header",
    [
        ({"last_value_key": "code"}, "code"),
        ({"last_value_key": "code"}, "_AMQ_LVQ_NAME"),
        ({"last_value": True}, "_AMQ_LVQ_NAME"),
        ({"last_value_key": "code", "non_destructive": True}, "code"),
    ],
)
def test_a_last_value_queue_replaces_them_by_their_keys(attributes, header):
    world = last_values(attributes, header)
    queue = world.q
    assert (deferred(queue), queue.count, queue.keys) == (600, 600, 600)
    world.durable("q", b"new", headers={header: KEYS[500]})
    assert (queue.count, queue.keys, queue.messages_replaced) == (600, 600, 1)
    assert deferred(queue) > 0
    left = [*SENT[:500], *SENT[501:], b"new"]
    assert bodies(queue) == held(world.restarted()) == left
    taker = join(queue)
    world.turn()
    assert taker.bodies == left


def test_a_last_value_in_delivery_is_dropped_if_a_newer_one_came():
    world = last_values({"last_value_key": "code"})
    taker = join(world.q, 2)
    world.durable("q", b"new", headers={"code": KEYS[1]})
    taker.cancelled("left")
    assert (bodies(world.q), world.q.keys) == ([SENT[0], *SENT[2:], b"new"], 600)


def test_the_newest_of_two_values_that_a_crash_left_stays():
    """The record that the older one was replaced is missing: both are in the journal."""
    world = StoredBroker()
    world.queue("q")
    for body in SENT:
        world.durable("q", body, headers={"code": body.decode()})
    for body in (b"new", b"newer"):
        world.durable("q", body, headers={"code": "7"})
    world.durable("q", b"without a key")
    queue = world.q
    queue.attributes = queue.attributes.changed({"last_value_key": "code"})
    world.broker.bind(queue)
    again = world.restarted()
    left = [*SENT[:7], *SENT[8:], b"newer", b"without a key"]
    assert (bodies(again.q), again.q.keys, again.q.messages_replaced) == (left, 600, 2)
    assert held(again.restarted()) == left


def test_a_key_that_is_no_header_is_read_from_each_message():
    world = last_values({"last_value_key": "JMSCorrelationID"}, "correlation-id")
    assert (deferred(world.q), world.q.keys) == (0, 600)
    world.durable("q", b"new", headers={"correlation-id": KEYS[0]})
    assert bodies(world.q) == [*SENT[1:], b"new"]


def test_values_that_replace_all_of_them_leave_nothing_in_the_lists():
    world = last_values({"last_value_key": "code"})
    queue = world.q
    for _ in range(3):
        for key in reversed(KEYS):
            world.durable("q", b"new", headers={"code": key})
    assert (deferred(queue), queue.count) == (0, 600)
    assert queue.dispatcher.pending.size <= 2 * 600 + 100


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
