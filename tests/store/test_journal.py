"""What the broker tells becomes records, and segments that hold nothing any more go."""

from collections import Counter

import pytest

from stompring.broker.ports import Reason
from stompring.store.record import DELIVERED, SETTLED, STATE, TRANSACTION, Cause, Kind, StoredMessage
from stompring.store.record import unpack_numbers as numbers_in
from stompring.store.segment import SegmentScan

from ..broker.broker_fixture import MULTICAST, join
from .stored_broker import StoredBroker

#: Records that stand before others, for those who read one segment.
NAMING = (Kind.NAME, Kind.QUEUE_ADDRESS)


def records(world):
    """The payloads of all records in all segments, those in transactions within these."""
    found = []
    for path in sorted(world.memory.data):
        data = world.memory.data[path]
        walk = SegmentScan(data)
        found += [data[begin:end] for begin, end in walk]
        assert walk.whole
    return found


def kinds(world, since=0):
    return Counter(Kind(payload[0]) for payload in records(world)[since:])


class Told:
    """The records that something wrote."""

    def __init__(self, world):
        world.turn()
        self.world = world
        self.before = len(records(world))

    @property
    def records(self):
        self.world.turn()
        return [payload for payload in records(self.world)[self.before :] if payload[0] not in NAMING]

    @property
    def kinds(self):
        return [Kind(payload[0]) for payload in self.records]


@pytest.fixture
def world():
    return StoredBroker()


@pytest.fixture
def queue(world):
    return world.queue("q")


def test_a_message_is_written_once_with_all_its_queues(world):
    queues = [world.queue(name, "t", MULTICAST) for name in ("a", "b")]
    world.queue("volatile", "t", MULTICAST, durable=False)
    told = Told(world)
    message = world.durable("t", b"hello", priority=7)
    (payload,) = told.records
    stored = StoredMessage(payload)
    assert stored.queue_ids() == (queues[0].number, queues[1].number)
    assert (stored.number, stored.priority, stored.due, stored.deliveries) == (message.number, 7, 0, 0)
    assert payload.endswith(message.tail)


def test_non_durable_messages_are_not_written(world):
    world.queue("q")
    world.queue("volatile", durable=False)
    told = Told(world)
    world.send("q")
    world.durable("volatile")
    assert told.kinds == []


def test_message_settled_within_its_turn_is_not_written(world, queue):
    told = Told(world)
    world.durable("q")
    world.durable("q")
    queue.purge()
    safe = world.synced()
    assert told.kinds == [] and safe == [True]


def test_settled_messages_share_one_record(world):
    queue, other = world.queue("q"), world.queue("other")
    taker, another = join(queue, 10), join(other, 10)
    sent = [world.durable("q").number for _ in range(3)]
    elsewhere = [world.durable("other").number for _ in range(2)]
    told = Told(world)
    taker.ack(*taker.unsettled[:2])
    another.ack()
    taker.close()
    queue.purge()
    found = {}
    written = told.records
    (came_back,) = [payload for payload in written if payload[0] == Kind.STATE]
    assert STATE.unpack_from(came_back)[4] == sent[2]
    for payload in written:
        if payload is came_back:
            continue
        assert payload[0] == Kind.SETTLED
        _, reason, _, number, time = SETTLED.unpack_from(payload)
        assert time == world.broker.clock.now
        found[number, Reason(reason)] = list(numbers_in(payload[SETTLED.size :]))
    assert found == {
        (queue.number, Reason.ACKNOWLEDGED): sent[:2],
        (other.number, Reason.ACKNOWLEDGED): elsewhere,
        (queue.number, Reason.KILLED): sent[2:],
    }


def test_deliveries_are_recorded(world, queue):
    sent = [world.durable("q").number for _ in range(3)]
    told = Told(world)
    taker = join(queue, 2)
    (payload,) = told.records
    assert payload[0] == Kind.DELIVERED and DELIVERED.unpack_from(payload)[3] == queue.number
    assert list(numbers_in(payload[DELIVERED.size :])) == sent[:2]
    told = Told(world)
    taker.nack(taker.unsettled[0])
    payload, again = told.records  # it goes out once more at once
    _, cause, untold, number, message, deliveries, attempts, due, _ = STATE.unpack_from(payload)
    assert (number, message, attempts, due) == (queue.number, sent[0], 1, 0)
    assert (cause, untold) == (Cause.RETURNED, 0)
    assert deliveries == 1
    assert again[0] == Kind.DELIVERED and list(numbers_in(again[DELIVERED.size :])) == [sent[0]]
    assert next(r.deliveries for r in taker.unsettled if r.message.number == sent[0]) == 2


def test_direct_delivery_is_recorded_in_the_message(world):
    join(world.queue("q"), 1)
    told = Told(world)
    world.durable("q")
    (payload,) = told.records
    assert StoredMessage(payload).deliveries == 1


def test_transactions_nest(world, queue):
    told = Told(world)
    world.store.begin()
    world.durable("q")
    world.store.begin()
    world.durable("q")
    world.store.commit()
    world.durable("q")
    world.store.commit()
    world.durable("q")
    assert told.kinds == [Kind.TRANSACTION, Kind.MESSAGE]
    assert TRANSACTION.unpack_from(told.records[0])[3] == 3
    assert queue.count == 4


def test_a_transaction_of_one_or_nothing_needs_no_record(world):
    world.queue("q")
    told = Told(world)
    world.store.begin()
    world.store.commit()
    world.store.begin()
    world.durable("q")
    world.store.commit()
    assert told.kinds == [Kind.MESSAGE]


def test_half_a_transaction_is_never_written(world):
    world.queue("q")
    told = Told(world)
    world.store.begin()
    world.keep("q")
    world.writer.end_of_turn()
    assert told.kinds == []
    world.durable("q")
    world.store.commit()
    assert told.kinds == [Kind.TRANSACTION]


def test_pages_know_a_transaction_by_its_number(world):
    assert world.journal.transaction() == 0
    told = Told(world)
    world.store.begin()
    first = world.journal.transaction()
    assert world.journal.in_transaction and world.journal.transaction() == first > 0
    world.store.commit()
    world.store.begin()
    assert world.journal.transaction() == first + 1
    world.store.commit()
    found = [TRANSACTION.unpack_from(payload) for payload in told.records]
    assert [(count, number) for _, _, _, count, number in found] == [(0, first), (0, first + 1)]


def test_a_move_is_one_record():
    """Dead letters, expired messages and what rings give up are in one place or in the other, never in both."""
    world = StoredBroker(settings={"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    world.queue("DLQ")
    queue = world.queue("q")
    world.durable("q")
    taker = join(queue, 1)
    told = Told(world)
    taker.nack()
    assert told.kinds == [Kind.TRANSACTION]


def test_name_records_precede_their_numbers_in_each_segment():
    world = StoredBroker(journal_file_size=2000)
    world.queue("q")
    world.queue("other", "t", MULTICAST)
    for number in range(60):
        world.keep("q" if number % 2 else "t", b"x" * 50)
    assert len(world.memory.data) > 4
    for data in world.memory.data.values():
        known = set()
        for begin, end in SegmentScan(data):
            if data[begin] == Kind.NAME:
                known.add((data[begin + 1], int.from_bytes(data[begin + 4 : begin + 8], "little")))
            elif data[begin] == Kind.MESSAGE:
                stored = StoredMessage(data[begin:end])
                assert (1, stored.address) in known
                assert {(2, number) for number in stored.queue_ids()} <= known
