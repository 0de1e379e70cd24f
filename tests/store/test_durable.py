"""The store as the broker knows it: what waits for the disk, and what the settings say about that."""

import pytest

from stompring.store.files import Files

from ..broker.broker_fixture import bodies
from .disk import ManualDisk
from .memory_files import out_of_space
from .stored_broker import StoredBroker


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_sync_callbacks_follow_the_sync_settings(transactional, waits):
    """journal-sync-transactional and -non-transactional."""
    hand = ManualDisk()
    world = StoredBroker(
        disk=hand,
        journal_sync_transactional=waits if transactional else not waits,
        journal_sync_non_transactional=not waits if transactional else waits,
    )
    world.queue("q")
    hand.finish()
    heard = []
    world.durable("q")
    world.store.when_synced(lambda: heard.append(1), transactional)
    assert heard == ([] if waits else [1])
    world.turn()
    hand.finish()
    assert heard == [1]
    assert len(world.memory.crash_free(world.journal.segments[0].path)) > 500, "it is safe in any case"


def test_without_sync_durable_messages_are_still_written():
    world = StoredBroker(journal_sync_transactional=False, journal_sync_non_transactional=False)
    world.queue("q")
    world.keep("q", b"kept")
    path = world.journal.segments[0].path
    assert b"kept" not in world.memory.crash_free(path)  # the lease of numbers is safe, and nothing else
    assert bodies(world.again().q) == [b"kept"]
    world.broker.stop()
    assert world.memory.crash_free(path) == world.memory.data[path], "a clean stop syncs"


def test_without_sync_compaction_still_syncs_before_it_deletes():
    world = StoredBroker(
        journal_sync_transactional=False,
        journal_sync_non_transactional=False,
        journal_file_size=1000,
        journal_compact_min_files=2,
        journal_compact_percentage=100,
    )
    world.queue("q")
    for number in range(20):
        world.durable("q", b"%d" % number)
        world.pass_time(100)
    assert world.store.compaction.segments > 0
    for segment in world.journal.segments[:-1]:
        assert world.memory.crash_free(segment.path) == world.memory.data[segment.path]


def test_the_buffer_timeout_lets_batches_grow():
    hand = ManualDisk()
    world = StoredBroker(disk=hand, journal_buffer_timeout=250_000_000)
    world.queue("q")
    world.pass_time(250)
    hand.finish()
    for _ in range(3):
        world.durable("q")
    world.pass_time(125)
    assert not hand.jobs
    world.pass_time(125)
    assert len(hand.jobs) == 1
    hand.step()
    assert world.again().q.count == 3


def test_a_receipt_waits_for_its_own_batch():
    hand = ManualDisk()
    world = StoredBroker(disk=hand)
    world.queue("q")
    world.turn()
    assert world.synced() == []
    first = world.synced()
    world.durable("q")
    second = world.synced()
    world.turn()
    hand.step()
    assert (first, second) == ([True], [])
    hand.step()
    assert second == [True]
    assert world.synced() == [True], "nothing is under way"


def test_purge_within_the_turn_writes_nothing():
    hand = ManualDisk()
    world = StoredBroker(disk=hand)
    queue = world.queue("q")
    world.turn()
    hand.finish()
    world.durable("q")
    heard = world.synced()
    queue.purge()
    world.turn()
    assert heard == [True] and not hand.jobs


def test_full_disk_blocks_durable_sends_and_is_logged(caplog):
    world = StoredBroker()
    world.queue("q")
    world.turn()

    def full(operation, path):
        if operation == "write":
            raise out_of_space(path)

    world.memory.fault = full
    world.durable("q", b"kept")
    heard = world.synced()
    world.turn()
    assert heard == [] and world.store.write_limit.full
    assert world.store.failing is not None and "No space left on device" in world.store.failing
    assert bodies(world.q) == [b"kept"], "it is served all the same"
    world.memory.heal()
    world.pass_time(1000)
    assert heard == [True] and world.store.failing is None and not world.store.write_limit.full
    assert bodies(world.again().q) == [b"kept"]


def test_close_writes_everything():
    world = StoredBroker(disk=ManualDisk())
    world.queue("q")
    world.durable("q", b"kept")
    world.broker.stop()
    assert world.writer.idle and bodies(world.again().q) == [b"kept"]


def test_a_real_disk(tmp_path):
    world = StoredBroker(Files(), root=tmp_path, journal_file_size=5000)
    world.queue("q")
    for number in range(50):
        world.keep("q", b"%d" % number)
    world.broker.stop()
    again = StoredBroker(Files(), root=tmp_path, journal_file_size=5000)
    assert bodies(again.q) == [b"%d" % number for number in range(50)]
    again.q.purge()
    again.turn()
    again.broker.stop()
    assert len(list((tmp_path / "journal").iterdir())) < 10
