"""Segments roll, and go when nothing in them counts any more; numbers are never used twice."""

from pathlib import Path

import pytest

from stompring.store.journal import JournalSegment, LiveRecord, MessageReferences
from stompring.store.record import BINDING, QUEUE, Kind, StoredMessage
from stompring.store.segment import SegmentScan, build_footer, find_footer

from ..broker.broker_fixture import MULTICAST
from .stored_broker import StoredBroker, pending


@pytest.fixture
def world():
    return StoredBroker()


def test_segments_roll_and_are_sealed():
    world = StoredBroker(journal_file_size=2000)
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
        messages = [StoredMessage(data[b:e]) for b, e in SegmentScan(data) if data[b] == Kind.MESSAGE]
        assert [start + 8 for start in footer.starts] == [begin for begin, _ in SegmentScan(data)]
        assert footer.least_number == messages[0].number and footer.greatest_number == messages[-1].number
        assert footer.least_timestamp == messages[0].timestamp
        assert footer.addresses == (world.address("q").number,)
        numbers += [message.number for message in messages]
    assert find_footer(world.memory.data[last]) is None
    assert numbers == [message.number for message in sent][: len(numbers)] and len(numbers) > 20
    assert [segment.path for segment in world.journal.segments] == [*full, last]
    assert world.journal.bytes == sum(segment.size for segment in world.journal.segments)


def test_a_segment_of_two_runs_has_one_footer():
    world = StoredBroker(journal_file_size=4000)
    world.queue("q")
    first = world.keep("q", b"of the first run")
    world = world.again(after=10)
    world.store.begin()
    second = [
        world.durable("other", b"of the second") for _ in range(2) if world.queue(f"o{_}", "other", MULTICAST)
    ]
    world.store.commit()
    world = world.restarted(after=20)
    while len(world.journal.segments) == 1:
        world.keep("q", b"x" * 300)
    data = world.memory.data[world.journal.segments[0].path]
    footer = find_footer(data)
    assert (footer.least_number, footer.least_timestamp) == (first.number, first.timestamp)
    assert footer.greatest_number > second[-1].number and footer.greatest_timestamp >= world.now - 1000
    assert footer.addresses == tuple(sorted(world.address(name).number for name in ("q", "other")))
    assert [start + 8 for start in footer.starts] == [begin for begin, _ in SegmentScan(data)]
    found = build_footer(data)
    for name in (
        "starts",
        "least_number",
        "greatest_number",
        "least_timestamp",
        "greatest_timestamp",
        "addresses",
    ):
        assert getattr(found, name) == getattr(footer, name)


def test_segment_without_live_records_is_deleted():
    world = StoredBroker(journal_file_size=2000, journal_compact_min_files=0)
    queue = world.queue("q")
    world.turn()
    for _ in range(100):
        world.keep("q", b"x" * 100)
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
    assert world.again().q.message_count == 0


def test_oldest_segment_is_deleted_first():
    world = StoredBroker(journal_file_size=1000, journal_compact_min_files=0)
    queue = world.queue("q")
    oldest = world.durable("q", b"x" * 500)
    for _ in range(20):
        world.keep("q", b"y" * 500)
    for ref in pending(queue):
        if ref.message is not oldest:
            queue.kill(ref)
    world.turn()
    before = [segment.number for segment in world.journal.segments]
    assert before[0] == 1 and len(before) > 10, "what is settled in later ones is settled for the oldest, too"
    assert [ref.message.number for ref in pending(world.again().q)] == [oldest.number]


def test_segment_is_deleted_after_its_settlements_are_synced():
    from .disk import ManualDisk

    hand = ManualDisk()
    world = StoredBroker(disk=hand, journal_file_size=1000, journal_compact_min_files=0)
    queue = world.queue("q")
    queue.broker.storage.unbind(queue)
    world.store.unbind_address(queue.address)
    world.keep("q", b"x" * 2000)
    hand.finish()
    queue.purge()
    world.keep("q")
    first = world.journal.directory / "000000001.journal"
    assert first in world.memory.data
    hand.step()  # the batch with the end of the message
    world.turn()
    assert first in world.memory.data
    hand.finish()
    assert first not in world.memory.data


def test_live_bytes_approximate_the_live_records(world):
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


def test_a_message_that_enters_another_queue_later(world):
    first, second = world.queue("a"), world.queue("b")
    message = world.keep("a", b"body")
    second.enqueue(message)
    again = world.restarted()
    for name in "ab":
        assert [ref.message.number for ref in pending(again.directory.queue(name))] == [message.number]
    third = world.queue("c")
    third.enqueue(message)
    for queue in (first, second, third):
        queue.purge()
    world.turn()
    assert not any(queue.message_count for queue in world.again().directory.queues.values())


# ---- what else is kept


class Counted(LiveRecord):
    """Tells how often it was told."""

    __slots__ = ("news", "told", "whole_of_it")

    def __init__(self, whole):
        super().__init__()
        self.news = 0
        self.told = []
        self.whole_of_it = whole

    @property
    def whole(self):
        return self.whole_of_it

    def encode(self, tail):
        self.told.append("news")
        tail.add(BINDING.pack(Kind.BINDING, QUEUE, 1, 0, 99))

    def encode_all(self, tail):
        self.told.append("all")
        tail.add(BINDING.pack(Kind.BINDING, QUEUE, 1, 0, 99))


def fill(world):
    """Begin another segment."""
    before = len(world.journal.segments)
    while len(world.journal.segments) == before:
        world.keep("q", b"x" * 200)


@pytest.mark.parametrize("whole", [True, False])
def test_live_record_retains_its_oldest_segment(whole):
    world = StoredBroker(journal_file_size=1000, journal_compact_min_files=0)
    world.queue("q")
    kept = Counted(whole)
    world.journal.update(kept)
    world.turn()
    first = kept.segment
    fill(world)
    world.journal.update(kept)
    world.turn()
    assert (kept.segment is first) is not whole
    assert kept in kept.segment.live
    world.journal.forget(kept)
    assert kept.segment is None
    assert not any(kept in segment.live for segment in world.journal.segments)
    world.journal.forget(kept)


def test_removed_live_record_is_written_once_and_retains_no_segment(world):
    kept = Counted(True)
    world.journal.update(kept)
    world.turn()
    kept.gone = True
    world.journal.update(kept)
    world.turn()
    assert kept.segment is None and kept.told == ["news", "news"]


def test_queue_numbers_are_never_used_twice(world):
    """Not those of queues either that are not stored: pages may know them."""
    numbers = set()
    for start in range(3):
        for number in range(1200):
            queue = world.queue(f"{start}.{number}", durable=False)
            assert queue.number not in numbers
            numbers.add(queue.number)
            if number % 100 == 0:
                world.turn()
        world = world.restarted()


def test_message_numbers_go_on():
    world = StoredBroker(journal_file_size=1000)
    queue = world.queue("q")
    greatest = 0
    for _ in range(4):
        for _ in range(10):
            greatest = world.durable("q", b"x" * 100).number
            world.turn()
        queue.purge()
        world = world.restarted()
        queue = world.q
        assert world.durable("q").number > greatest


def test_message_segment_is_set_when_written(world):
    world.queue("a", "t", MULTICAST)
    world.queue("b", "t", MULTICAST)
    message = world.durable("t")
    assert isinstance(message.segment, MessageReferences)
    world.turn()
    assert isinstance(message.segment, JournalSegment)
    held = message.segment.live[message.number]
    assert isinstance(held, MessageReferences) and held.left == 2
    assert Path(message.segment.path).name == "000000001.journal"
