"""The journal stays small, in small steps, and nobody notices."""

from types import SimpleNamespace

import pytest

from stompring.broker.clock import Recurrence
from stompring.store.journal import (
    BACKLOG_BYTES,
    BACKLOG_INTERVAL,
    STEP_INTERVAL,
    STEP_RECORDS,
    Compaction,
)

from ..broker.broker_fixture import MULTICAST, bodies, join
from .disk import ManualDisk
from .stored_broker import StoredBroker, pending


def churned(rounds=150, **configuration):
    """A few messages that stay, and many that come and go."""
    world = StoredBroker(journal_file_size=2000, **configuration)
    queue, other = world.queue("stays"), world.queue("goes")
    for number in range(3):
        world.durable("stays", b"%d" % number)
    world.turn()
    for _ in range(rounds):
        world.keep("goes", b"x" * 100)
        other.purge()
        world.pass_time(20)
    assert queue.count == 3
    return world


def test_journal_size_is_bounded_by_live_records():
    world = churned(journal_compact_min_files=3, journal_compact_percentage=50)
    assert len(world.journal.segments) <= 4 and len(world.memory.data) <= 5
    assert world.store.compaction.segments > 0 and world.store.compaction.rewritten > 0
    assert bodies(world.again().directory.queue("stays")) == [b"0", b"1", b"2"]


def test_compaction_ends_when_bindings_are_most_of_the_journal():
    """They count for nothing: it would write them again and again, though nobody had anything to tell."""
    world = StoredBroker(journal_file_size=2000, journal_compact_min_files=2, journal_compact_percentage=80)
    for number in range(12):
        world.queue(f"queue {number}")
        world.turn()

    def churn():
        for _ in range(30):
            world.durable("queue 0", b"x" * 100)
            world.directory.queue("queue 0").purge()
            world.pass_time(20)

    churn()
    world.pass_time(1000)
    done = world.store.compaction.rewritten
    assert done > 0
    world.pass_time(10_000)
    assert world.store.compaction.rewritten == done
    churn()  # and goes on with what comes
    assert world.store.compaction.rewritten > done
    assert len(world.again().directory.queues) == 12


@pytest.mark.parametrize(
    "configuration",
    [
        {"journal_compact_min_files": 0, "journal_compact_percentage": 50},
        {"journal_compact_min_files": 3, "journal_compact_percentage": 0},
        {"journal_compact_min_files": 1000, "journal_compact_percentage": 50},
    ],
)
def test_compaction_can_be_disabled(configuration):
    world = churned(**configuration)
    assert len(world.journal.segments) > 10 and world.store.compaction.segments == 0


@pytest.mark.parametrize("percentage", [1, 30, 99, 100])
def test_compaction_starts_below_the_live_percentage(percentage):
    """Not when it is just that much."""
    segments = [SimpleNamespace(number=number, damaged=False) for number in range(3)]
    journal = SimpleNamespace(segments=segments, bytes=1000, live_bytes=0)
    compaction = Compaction(journal, None, 3, percentage)
    needed = []
    for journal.live_bytes in (percentage * 10 - 1, percentage * 10, percentage * 10 + 1):
        needed.append(compaction.needed)
    assert needed == [True, False, False]


def test_mostly_live_journal_is_not_compacted():
    world = StoredBroker(journal_file_size=2000, journal_compact_min_files=2, journal_compact_percentage=50)
    world.queue("q")
    for _ in range(100):
        world.durable("q", b"x" * 100)
        world.pass_time(20)
    assert len(world.journal.segments) > 10 and world.store.compaction.rewritten == 0


def test_compaction_preserves_the_whole_state_of_a_message():
    world = StoredBroker(
        journal_file_size=2000,
        journal_compact_min_files=2,
        journal_compact_percentage=90,
        settings={"late": {"redelivery_delay": 3_600_000}},
    )
    now = world.now
    for name in ("a", "b", "c"):
        world.queue(name, "t", MULTICAST)
    late, tried = world.queue("late"), world.queue("tried")
    world.durable("t", b"copies")
    world.directory.queue("b").purge()
    world.durable("late", b"late")
    join(late, 1).nack()
    world.durable("tried", b"tried")
    for _ in range(2):
        join(tried, 1).close(failed=True)
    world.send("tried", b"again", durable=True, due=now + 7_200_000, recurrence=Recurrence(1000, 5))
    churn, started = world.queue("goes"), world.journal.segments[0]
    for _ in range(100):
        world.keep("goes", b"x" * 100)
        churn.purge()
        world.pass_time(20)
    assert started not in world.journal.segments and world.store.compaction.segments > 1
    again = world.again().directory
    assert [bodies(again.queue(name)) for name in ("a", "b", "c")] == [[b"copies"], [], [b"copies"]]
    (ref,) = again.queue("late").scheduled.values()
    assert (ref.message.body, ref.deliveries, ref.attempts, ref.due) == (b"late", 1, 1, now + 3_600_000)
    (ref,) = pending(again.queue("tried"))
    assert (ref.message.body, ref.deliveries, ref.attempts) == (b"tried", 2, 2)
    (ref,) = again.queue("tried").scheduled.values()
    assert ref.due == now + 7_200_000 and ref.recurrence == Recurrence(1000, 5)


def test_messages_settled_during_compaction_are_not_recovered():
    world = churned(journal_compact_min_files=0)
    stays = world.directory.queue("stays")
    world.store.compaction._min_files = 2
    world.store.compaction.consider()
    world.clock.advance(STEP_INTERVAL)
    stays.kill(pending(stays)[1])
    world.pass_time(5000)
    assert len(world.journal.segments) <= 3
    assert bodies(world.again().directory.queue("stays")) == [b"0", b"2"]


def test_steps_are_small():
    world = StoredBroker(journal_file_size=1_000_000, journal_compact_min_files=0)
    queue = world.queue("q")
    for _ in range(3 * STEP_RECORDS):
        world.durable("q", b"x")
    world.turn()
    oldest = world.journal.segments[0]
    world.journal.file_size = 100
    world.keep("q")
    held = len(oldest.live)
    world.journal.compact_step(STEP_RECORDS, 1 << 30)
    assert len(oldest.live) == held - STEP_RECORDS
    world.journal.compact_step(STEP_RECORDS, 1000)
    assert held - STEP_RECORDS - 10 < len(oldest.live) < held - STEP_RECORDS
    assert queue.count == 3 * STEP_RECORDS + 1


def test_compaction_waits_for_a_slow_or_failing_disk():
    hand = ManualDisk()
    world = StoredBroker(
        disk=hand, journal_file_size=1000, journal_compact_min_files=2, journal_compact_percentage=100
    )
    queue = world.queue("q")
    for _ in range(10):
        world.keep("q", b"x" * 1000)
    for ref in pending(queue)[1:]:
        queue.kill(ref)
    world.keep("q", bytes(BACKLOG_BYTES))
    world.pass_time(2000)
    assert world.store.compaction.rewritten == 0 and world.writer.waiting_bytes > BACKLOG_BYTES
    world.memory.fail("write")
    hand.step()
    world.pass_time(500)
    assert world.store.compaction.rewritten == 0 and world.writer.failing is not None
    world.memory.heal()
    for _ in range(50):
        world.pass_time(int(BACKLOG_INTERVAL * 1000))
        hand.finish()
    assert world.store.compaction.rewritten > 0 and world.writer.failing is None


def test_stop_cancels_the_compaction_timer():
    world = churned(rounds=20, journal_compact_min_files=0)
    world.store.compaction._min_files = 2
    world.store.compaction.consider()
    world.broker.stop()
    assert [call for call in world.clock.getDelayedCalls() if call.getTime() > world.clock.seconds()] == []
