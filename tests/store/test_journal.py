"""What the broker tells becomes records, and segments that hold nothing any more go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stompring.broker.storage import Reason
from stompring.broker.transaction import Transaction
from stompring.store.kept import Copies, Kept, Segment
from stompring.store.record import BINDING, DELIVERED, QUEUE, SETTLED, STATE, TRANSACTION, Kind, StoredMessage
from stompring.store.record import unpack_numbers as numbers_in
from stompring.store.segment import Walk, find_footer
from stompring.store.tail import Tail

from ..broker.world import MULTICAST, join
from .stored_world import StoredWorld, pending


def records(world: StoredWorld) -> list[bytes]:
    """The payloads of all records in all segments, those in transactions within these."""
    found = []
    for path in sorted(world.memory.data):
        data = world.memory.data[path]
        walk = Walk(data)
        found += [data[begin:end] for begin, end in walk]
        assert walk.whole
    return found


def kinds(world: StoredWorld, since: int = 0) -> Counter[Kind]:
    return Counter(Kind(payload[0]) for payload in records(world)[since:])


class Told:
    """The records that something wrote."""

    def __init__(self, world: StoredWorld) -> None:
        world.turn()
        self.world = world
        self.before = len(records(world))

    @property
    def records(self) -> list[bytes]:
        self.world.turn()
        return [payload for payload in records(self.world)[self.before :] if payload[0] != Kind.NAME]

    @property
    def kinds(self) -> list[Kind]:
        return [Kind(payload[0]) for payload in self.records]


def test_a_message_is_written_once_with_all_its_queues() -> None:
    world = StoredWorld()
    queues = [world.queue(name, "t", MULTICAST) for name in ("a", "b")]
    world.queue("volatile", "t", MULTICAST, durable=False)
    told = Told(world)
    message = world.durable("t", b"hello", priority=7)
    (payload,) = told.records
    stored = StoredMessage(payload)
    assert stored.queue_ids() == (queues[0].number, queues[1].number)
    assert (stored.number, stored.priority, stored.due, stored.deliveries) == (message.number, 7, 0, 0)
    assert payload.endswith(message.tail)


def test_what_is_not_durable_is_not_written() -> None:
    world = StoredWorld()
    world.queue("q")
    world.queue("volatile", durable=False)
    told = Told(world)
    world.send("q")
    world.durable("volatile")
    assert told.kinds == []


def test_what_comes_and_goes_within_a_turn_is_not_written() -> None:
    world = StoredWorld()
    queue = world.queue("q")
    told = Told(world)
    world.durable("q")
    world.durable("q")
    queue.purge()
    safe = world.synced()
    assert told.kinds == [] and safe == [True]


def test_settled_messages_are_told_together() -> None:
    world = StoredWorld()
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
    for payload in told.records:
        assert payload[0] == Kind.SETTLED
        _, reason, _, number, time = SETTLED.unpack_from(payload)
        assert time == world.broker.clock.now
        found[number, Reason(reason)] = list(numbers_in(payload[SETTLED.size :]))
    assert found == {
        (queue.number, Reason.ACKNOWLEDGED): sent[:2],
        (other.number, Reason.ACKNOWLEDGED): elsewhere,
        (queue.number, Reason.KILLED): sent[2:],
    }


def test_deliveries_are_told() -> None:
    world = StoredWorld()
    queue = world.queue("q")
    sent = [world.durable("q").number for _ in range(3)]
    told = Told(world)
    taker = join(queue, 2)
    (payload,) = told.records
    assert payload[0] == Kind.DELIVERED and DELIVERED.unpack_from(payload)[3] == queue.number
    assert list(numbers_in(payload[DELIVERED.size :])) == sent[:2]
    told = Told(world)
    taker.nack(taker.unsettled[0])
    (payload,) = [each for each in told.records if each[0] == Kind.STATE]
    _, _, _, number, message, deliveries, attempts, due = STATE.unpack_from(payload)
    assert (number, message, attempts, due) == (queue.number, sent[0], 1, 0)
    assert deliveries == next(r.deliveries for r in taker.unsettled if r.message.number == sent[0])


def test_a_message_that_goes_straight_out_is_told_as_delivered() -> None:
    world = StoredWorld()
    join(world.queue("q"), 1)
    told = Told(world)
    world.durable("q")
    (payload,) = told.records
    assert StoredMessage(payload).deliveries == 1


def test_a_transaction_is_one_record() -> None:
    world = StoredWorld()
    queue = world.queue("q")
    world.durable("q", b"taken")
    taker = join(queue, 1)
    told = Told(world)
    transaction = Transaction(world.broker)
    transaction.acknowledge(taker.release())
    for body in (b"one", b"two"):
        message = world.message("q", body, durable=True)
        transaction.send(0, lambda: world.address("q"), lambda m=message: world.broker.send(m), durable=True)  # type: ignore[misc]
    transaction.commit()
    (payload,) = told.records
    kind, _, _, count, number = TRANSACTION.unpack_from(payload)
    assert (kind, count, number) == (Kind.TRANSACTION, 3, 0)


def test_transactions_nest() -> None:
    world = StoredWorld()
    queue = world.queue("q")
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


def test_a_transaction_of_one_or_nothing_needs_no_record() -> None:
    world = StoredWorld()
    world.queue("q")
    told = Told(world)
    world.store.begin()
    world.store.commit()
    world.store.begin()
    world.durable("q")
    world.store.commit()
    assert told.kinds == [Kind.MESSAGE]


def test_half_a_transaction_is_never_written() -> None:
    world = StoredWorld()
    world.queue("q")
    told = Told(world)
    world.store.begin()
    world.durable("q")
    world.turn()
    world.writer.attend()
    assert told.kinds == []
    world.durable("q")
    world.store.commit()
    assert told.kinds == [Kind.TRANSACTION]


def test_pages_know_a_transaction_by_its_number() -> None:
    world = StoredWorld()
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


def test_a_move_is_one_record() -> None:
    """Dead letters, expired messages and what rings give up are in one place or in the other, never in both."""
    world = StoredWorld(settings={"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    world.queue("DLQ")
    queue = world.queue("q")
    world.durable("q")
    taker = join(queue, 1)
    told = Told(world)
    taker.nack()
    assert told.kinds == [Kind.TRANSACTION]


def test_names_stand_before_what_they_name_in_each_segment() -> None:
    world = StoredWorld(journal_file_size=2000)
    world.queue("q")
    world.queue("other", "t", MULTICAST)
    for number in range(60):
        world.durable("q" if number % 2 else "t", b"x" * 50)
        world.turn()
    assert len(world.memory.data) > 4
    for data in world.memory.data.values():
        known = set()
        for begin, end in Walk(data):
            if data[begin] == Kind.NAME:
                known.add((data[begin + 1], int.from_bytes(data[begin + 4 : begin + 8], "little")))
            elif data[begin] == Kind.MESSAGE:
                stored = StoredMessage(data[begin:end])
                assert (1, stored.address) in known
                assert {(2, number) for number in stored.queue_ids()} <= known


# ---- segments


def test_segments_roll_and_are_sealed() -> None:
    world = StoredWorld(journal_file_size=2000)
    world.queue("q")
    sent = []
    for _ in range(40):
        sent.append(world.durable("q", b"x" * 100))
        world.turn()
    *full, last = sorted(world.memory.data)
    numbers = []
    for path in full:
        data = world.memory.data[path]
        footer = find_footer(data)
        assert footer is not None
        messages = [StoredMessage(data[b:e]) for b, e in Walk(data) if data[b] == Kind.MESSAGE]
        assert [start + 8 for start in footer.starts] == [begin for begin, _ in Walk(data)]
        assert footer.least_number == messages[0].number and footer.greatest_number == messages[-1].number
        assert footer.least_timestamp == messages[0].timestamp
        assert footer.addresses == (world.address("q").number,)
        numbers += [message.number for message in messages]
    assert find_footer(world.memory.data[last]) is None
    assert numbers == [message.number for message in sent][: len(numbers)] and len(numbers) > 20
    assert [segment.path for segment in world.journal.segments] == [*full, last]
    assert world.journal.bytes == sum(segment.size for segment in world.journal.segments)


def test_a_segment_goes_when_nothing_in_it_counts() -> None:
    world = StoredWorld(journal_file_size=2000, journal_compact_min_files=0)
    queue = world.queue("q")
    world.turn()
    for _ in range(100):
        world.durable("q", b"x" * 100)
        world.turn()
        queue.purge()
        world.turn()
    first, *_ = sorted(world.memory.data)
    assert first.name == "000000001.journal", "it has the queue"
    world.directory.update_queue(queue, {"max_consumers": 3})
    world.directory.update_address(
        world.address("q"), frozenset({MULTICAST, *world.address("q").routing_types})
    )
    world.turn()
    assert len(world.memory.data) <= 2
    assert world.again().directory.queue("q").message_count == 0


def test_the_oldest_goes_first() -> None:
    world = StoredWorld(journal_file_size=1000, journal_compact_min_files=0)
    queue = world.queue("q")
    oldest = world.durable("q", b"x" * 500)
    for _ in range(20):
        world.durable("q", b"y" * 500)
        world.turn()
    for ref in pending(queue):
        if ref.message is not oldest:
            queue.kill(ref)
    world.turn()
    before = [segment.number for segment in world.journal.segments]
    assert before[0] == 1 and len(before) > 10, "what is settled in later ones is settled for the oldest, too"
    assert [ref.message.number for ref in pending(world.again().directory.queue("q"))] == [oldest.number]


def test_it_goes_only_once_what_ended_it_is_safe() -> None:
    from .disk import DiskByHand

    hand = DiskByHand()
    world = StoredWorld(disk=hand, journal_file_size=1000, journal_compact_min_files=0)
    queue = world.queue("q")
    queue.broker.storage.unbind(queue)
    world.store.unbind_address(queue.address)
    world.durable("q", b"x" * 2000)
    world.turn()
    hand.finish()
    queue.purge()
    world.durable("q")
    world.turn()
    first = world.journal.directory / "000000001.journal"
    assert first in world.memory.data
    hand.step()  # the batch with the end of the message
    world.turn()
    assert first in world.memory.data
    hand.finish()
    assert first not in world.memory.data


def test_live_bytes_are_about_what_counts() -> None:
    world = StoredWorld()
    queue, other = world.queue("a", "t", MULTICAST), world.queue("b", "t", MULTICAST)
    for _ in range(10):
        world.durable("t", b"x" * 1000)
    world.turn()
    assert 10 * 1000 < world.journal.live_bytes < 10 * 1300
    queue.purge()
    world.turn()
    assert world.journal.live_bytes > 10 * 1000, "the other queue has them"
    other.purge()
    world.turn()
    assert world.journal.live_bytes == 0


def test_a_message_that_enters_another_queue_later() -> None:
    world = StoredWorld()
    first, second = world.queue("a"), world.queue("b")
    message = world.durable("a", b"body")
    world.turn()
    second.put(message)
    world.turn()
    again = world.again()
    for name in "ab":
        assert [ref.message.number for ref in pending(again.directory.queue(name))] == [message.number]
    third = world.queue("c")
    third.put(message)
    for queue in (first, second, third):
        queue.purge()
    world.turn()
    assert not any(queue.message_count for queue in world.again().directory.queues.values())


# ---- what else is kept


class Counted(Kept):
    """Tells how often it was told."""

    __slots__ = ("news", "told", "whole_of_it")

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.news = 0
        self.told: list[str] = []
        self.whole_of_it = whole

    @property
    def whole(self) -> bool:  # type: ignore[override]
        return self.whole_of_it

    def tell(self, tail: Tail) -> None:
        self.told.append("news")
        tail.add(BINDING.pack(Kind.BINDING, QUEUE, 1, 0, 99))

    def repeat(self, tail: Tail) -> None:
        self.told.append("all")
        tail.add(BINDING.pack(Kind.BINDING, QUEUE, 1, 0, 99))


def fill(world: StoredWorld) -> None:
    """Begin another segment."""
    before = len(world.journal.segments)
    while len(world.journal.segments) == before:
        world.durable("q", b"x" * 200)
        world.turn()


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_kept_holds_the_segment_that_has_the_oldest_of_it(whole: bool) -> None:
    world = StoredWorld(journal_file_size=1000, journal_compact_min_files=0)
    world.queue("q")
    kept = Counted(whole)
    world.journal.tell(kept)
    world.turn()
    first = kept.segment
    fill(world)
    world.journal.tell(kept)
    world.turn()
    assert (kept.segment is first) is not whole
    assert kept.segment is not None and kept in kept.segment.live
    world.journal.forget(kept)
    assert kept.segment is None
    assert not any(kept in segment.live for segment in world.journal.segments)
    world.journal.forget(kept)


def test_what_is_gone_is_told_once_and_holds_nothing() -> None:
    world = StoredWorld()
    kept = Counted(True)
    world.journal.tell(kept)
    world.turn()
    kept.gone = True
    world.journal.tell(kept)
    world.turn()
    assert kept.segment is None and kept.told == ["news", "news"]


def test_queue_numbers_are_never_used_twice() -> None:
    """Not those of queues either that are not stored: pages may know them."""
    world = StoredWorld()
    numbers: set[int] = set()
    for start in range(3):
        for number in range(1200):
            queue = world.queue(f"{start}.{number}", durable=False)
            assert queue.number not in numbers
            numbers.add(queue.number)
            if number % 100 == 0:
                world.turn()
        world.turn()
        world = world.again()


def test_message_numbers_go_on() -> None:
    world = StoredWorld(journal_file_size=1000)
    queue = world.queue("q")
    greatest = 0
    for _ in range(4):
        for _ in range(10):
            greatest = world.durable("q", b"x" * 100).number
            world.turn()
        queue.purge()
        world.turn()
        world = world.again()
        queue = world.directory.queue("q")
        assert world.durable("q").number > greatest


def test_the_kinds_of_what_a_message_is_held_by() -> None:
    world = StoredWorld()
    world.queue("a", "t", MULTICAST)
    world.queue("b", "t", MULTICAST)
    message = world.durable("t")
    assert isinstance(message.segment, Copies)
    world.turn()
    assert isinstance(message.segment, Segment)
    held: Any = message.segment.live[message.number]
    assert isinstance(held, Copies) and held.left == 2
    assert Path(message.segment.path).name == "000000001.journal"
