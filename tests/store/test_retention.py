"""What the broker is done with is kept: every durable message and every fact, within a period and a size; samples."""

import errno
import json
import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from stompring.broker import publish
from stompring.broker.ports import Reason
from stompring.settings.model import Retention as Settings
from stompring.store.files import Files
from stompring.store.record import MESSAGE, PAGE_SETTLED, SAMPLE_ROW, SETTLED, Kind
from stompring.store.segment import SegmentScan

from ..broker.broker_fixture import MULTICAST, join
from .decoded_files import passed_on, payloads, retained, rows
from .format_tables import Format
from .memory_files import Content
from .paged_broker import PagedBroker
from .stored_broker import StoredBroker

KEPT = Path("/data/retention")
SETTINGS = {"#": {"auto_delete_queues": False, "auto_delete_addresses": False}}


def world(files=None, **more):
    """A world with small segments that are kept."""
    names = ("period", "storage_limit", "sample_period")
    kept = {"sample_period": 1000} | {name: more.pop(name) for name in names if name in more}
    return StoredBroker(
        files,
        SETTINGS,
        journal_file_size=2000,
        journal_compact_min_files=2,
        journal_compact_percentage=60,
        journal_retention_directory=Settings(str(KEPT), **kept),
        **more,
    )


def files(one, suffix, kept=None):
    """The files with a suffix; those that are kept, those that are not, or all."""
    return {
        path: data
        for path, data in sorted(one.memory.data.items())
        if path.suffix == suffix and (kept is None or path.is_relative_to(KEPT) is kept)
    }


def history(one):
    """Message numbers in the journal and what is kept of it; what was settled (number, reason); times."""
    messages = set()
    settled = Counter()
    times = []
    for data in files(one, ".journal").values():
        for payload in payloads(data):
            if payload[0] == Kind.MESSAGE:
                messages.add(MESSAGE.unpack_from(payload)[5])
            elif payload[0] == Kind.RETAINED:
                fields, found = retained(payload)
                messages.update(number for number, _ in found)
                settled.update((number, int(Reason.ACKNOWLEDGED)) for number, _, _ in passed_on(payload))
                times.append(fields["time"])
            elif payload[0] == Kind.SETTLED:
                _, reason, _, _, time = SETTLED.unpack_from(payload)
                numbers = struct.unpack(f"<{(len(payload) - SETTLED.size) // 8}Q", payload[SETTLED.size :])
                settled.update((number, reason) for number in numbers)
                times.append(time)
    return messages, settled, times


# ---- the journal


@pytest.fixture
def one():
    return world()


@pytest.fixture
def queue(one):
    return one.queue("q")


def test_immediately_consumed_messages_are_retained(one):
    join(one.queue(), auto=True)
    message = one.keep(body=b"short-lived")
    messages, settled, times = history(one)
    assert messages == {message.number} and settled == {(message.number, Reason.ACKNOWLEDGED): 1}
    assert times == [one.broker.clock.now]


def test_retained_files_have_the_complete_history(one, queue):
    taker = join(queue, credit=3)
    sent = []
    for number in range(200):
        sent.append(one.durable(body=b"%d" % number).number)
        if number % 5 == 4:
            taker.ack()
            one.turn()
    for _ in range(100):
        if not queue.delivering:
            break
        taker.ack()
        one.turn()
    one.pass_time(1000)
    messages, settled, _ = history(one)
    assert messages == set(sent)
    assert {number for number, _ in settled} == set(sent) and set(settled.values()) == {1}
    kept = files(one, ".journal", kept=True)
    assert len(kept) > 5 and all(path.parent == KEPT / "journal" for path in kept)
    assert one.store.retention.files == len(kept)
    numbers = [int(path.stem) for path in (*kept, *files(one, ".journal", kept=False))]
    assert numbers == list(range(1, len(numbers) + 1)), "each is in one place, and none is missing"


def test_a_message_in_several_queues_has_all_its_facts(one):
    takers = [join(one.queue(name, "t", MULTICAST), auto=auto) for name, auto in (("a", True), ("b", False))]
    message = one.keep("t")
    takers[1].ack()
    one.turn()
    messages, settled, _ = history(one)
    assert messages == {message.number} and settled == {(message.number, Reason.ACKNOWLEDGED): 2}


def test_retained_records_have_settlement_reasons(one):
    queue = one.queue(ring_size=1)
    replaced, killed = one.durable(), one.durable()
    queue.purge()
    expired = one.message("q", durable=True, expires=one.now + 125)
    publish.send(expired)
    one.turn()
    one.pass_time(250)
    assert history(one)[1] == {
        (replaced.number, Reason.REPLACED): 1,
        (killed.number, Reason.KILLED): 1,
        (expired.number, Reason.EXPIRED): 1,
    }


def test_recovery_after_a_kill_ignores_retained_files(one, queue):
    taker = join(queue, credit=1)
    for number in range(60):
        one.keep(body=b"%d" % number)
        if number < 50:
            taker.ack()
    one.turn()
    left = [ref.message.number for ref in queue.dispatcher.in_order()]
    delivering = [ref.message.number for ref in taker.unsettled]
    again = one.again()
    found = [ref.message.number for ref in again.q.dispatcher.in_order()]
    assert found == sorted(delivering + left)
    assert again.store.retention.files == len(files(again, ".journal", kept=True))


# ---- limits


def fill(one, count):
    """So many messages that come and go."""
    if "q" not in one.directory.queues:
        join(one.queue(), auto=True)
    for _ in range(count):
        one.keep(body=b"x" * 100)
    for _ in range(5):  # compaction makes pauses, and moves what still counts out of the way
        one.pass_time(125)


def test_oldest_retained_file_is_deleted_over_the_storage_limit():
    one = world(storage_limit=6000)
    fill(one, 100)
    retention = one.store.retention
    kept = files(one, ".journal", kept=True)
    assert retention.deleted > 3 and retention.bytes <= 6000 and len(kept) == retention.files
    newest = max(int(path.stem) for path in kept)
    assert sorted(int(path.stem) for path in kept) == list(range(newest - len(kept) + 1, newest + 1))


def test_retained_files_are_deleted_at_their_age_limit():
    one = world(period=10_000)
    fill(one, 30)
    retention = one.store.retention
    assert retention.files > 1
    one.pass_time(9_000)
    assert retention.deleted == 0
    one.pass_time(1_000)
    one.turn()
    assert retention.files == 0 and files(one, ".journal", kept=True) == {}
    one.store.close()
    assert not [call for call in one.clock.calls if "_rung" in repr(call)]


def test_limits_apply_to_files_of_an_earlier_run(one):
    fill(one, 60)
    again = world(one.memory.kill(), storage_limit=3000)
    again.turn()
    assert 0 < again.store.retention.bytes <= 3000
    assert again.store.retention.deleted > 0


def test_damaged_segment_is_set_aside_with_retention(one, queue):
    one.keep(body=b"x" * 3000)
    one.keep()
    one.journal.segments[0].damaged = True
    queue.purge()
    fill(one, 30)
    assert any(path.name.endswith(".damaged") for path in one.memory.data)


# ---- pages


class Paged(PagedBroker):
    """Pages that are kept."""

    def __init__(self, files=None, **more):
        more.setdefault("journal_retention_directory", Settings(str(KEPT)))
        super().__init__(files, **more)


def test_retained_pages_are_complete():
    one = Paged()
    (queue,) = one.queues("q")
    for _ in range(20):
        one.page([queue], b"x" * 200)
    list(one.pages.cursor(queue).purge(Reason.KILLED))
    one.close_pages()
    one.turn()
    kept = files(one, ".page")
    assert len(kept) > 3 and all(path.is_relative_to(KEPT / "paging") for path in kept)
    numbers = []
    for data in kept.values():
        walk = SegmentScan(data)
        assert list(walk) and walk.whole and walk.footer is not None, "it is sealed, the last one too"
        numbers += [MESSAGE.unpack_from(p)[5] for p in payloads(data) if p[0] == Kind.MESSAGE]
    assert numbers == list(range(1, 21))
    assert not [path for path in one.memory.data if path.name == "address.txt"], (
        "nothing is left of the directory"
    )


def test_numbers_of_pages_are_not_given_again():
    one = Paged()
    one.page(one.queues("q"), b"x")
    list(one.pages.cursor(one.q).purge(Reason.KILLED))
    one.close_pages()
    again = one.restarted()
    again.page(again.queues("q"), b"y")
    again.turn()
    numbers = [int(path.stem) for path in files(again, ".page")]
    assert len(numbers) == len(set(numbers)) == 2


def test_numbers_that_were_ingested_are_not_given_again_either():
    """Nothing is left but that a lake has them: it would pass over new files of the same numbers."""
    one = Paged()
    told = {
        "version": 1,
        "lakes": {"a": {"positions": {"paging/1": "41:0", "samples": "9:0", "journal": "1:50"}}},
    }
    one.files.replace(KEPT / "ingested.json", json.dumps(told).encode())
    again = one.again()
    again.page(again.queues("q"), b"y")
    again.turn()
    assert [int(path.stem) for path in files(again, ".page")] == [41]
    assert again.store.retention.last_samples == 8


def test_page_settlements_are_retained_after_the_page_is_deleted():
    one = Paged()
    (queue,) = one.queues("q")
    for _ in range(3):
        one.page([queue], b"x")
    one.turn()
    list(one.pages.cursor(queue).purge(Reason.KILLED))
    one.paging.close(one.pages)
    one.turn()
    facts = [
        p for data in files(one, ".journal").values() for p in payloads(data) if p[0] == Kind.PAGE_SETTLED
    ]
    assert sum(count for p in facts for _, count in struct.iter_unpack("<II", p[PAGE_SETTLED.size :])) == 3


# ---- samples


def sampled(one):
    one.persistence.take_samples(one.broker)
    return one.persistence.samples


def test_samples_have_changed_queues_only(one):
    one.queue("a", ring_size=5)
    one.queue("b")
    samples = sampled(one)
    begin = one.broker.clock.now
    one.send("b", b"not durable")
    one.pass_time(1000)
    one.pass_time(1000)
    one.directory.queues["b"].purge()
    one.pass_time(1000)
    samples.stop()
    one.turn()
    (data,) = files(one, ".samples").values()
    size = len(b"not durable")
    first, second, third = rows(data)
    assert first[0] == begin and first[1] == {"a": (5, *[0] * 11), "b": (0,) * 12}
    assert second[0] == begin + 1000 and set(second[1]) == {"b"}
    assert second[1]["b"][1] == 1 and second[1]["b"][6] == 1 and second[1]["b"][11] > size
    assert third[0] == begin + 3000 and third[1]["b"][1:] == (0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0)
    walk = SegmentScan(data)
    assert walk.footer.agrees_with(data)
    assert (walk.footer.least_timestamp, walk.footer.greatest_timestamp) == (begin, begin + 3000)
    assert one.store.retention.files == 1


def test_the_document_describes_samples(one):
    one.queue("a", ring_size=7)
    sampled(one).stop()
    one.turn()
    (data,) = files(one, ".samples").values()
    tables = Format.of_document()
    (payload,) = [payload for payload in payloads(data) if payload[0] == Kind.SAMPLE]
    title, fields = tables.payload(payload)
    assert title == "SAMPLE" and fields["time"] == one.broker.clock.now and fields["rows"] == 1
    (row,) = fields["queues"]
    assert row["ring"] == 7 and row["messages"] == row["added"] == 0
    assert list(row.values()) == list(SAMPLE_ROW.unpack(payload[-SAMPLE_ROW.size :]))
    header, _ = tables.read("Header", data)
    assert header["kind"] == 3


def test_new_samples_file_has_every_queue():
    one = world(sample_period=600_000)
    one.queue("a")
    samples = sampled(one)
    for _ in range(13):
        one.pass_time(600_000)
    samples.stop()
    one.turn()
    every = [rows(data) for data in files(one, ".samples").values()]
    assert len(every) == 3 and all(set(each[0][1]) == {"a"} for each in every)
    assert world(one.memory.kill()).store.retention.last_samples == 3


def test_many_queues_are_sampled_in_slices(one):
    for number in range(1200):
        one.queue(f"q{number}")
    one.turn()
    samples = sampled(one)
    one.turn()
    samples.stop()
    one.turn()
    (data,) = files(one, ".samples").values()
    found = rows(data)
    assert [len(each) for _, each in found] == [500, 500, 200] and len({time for time, _ in found}) == 1


# ---- files


def test_a_file_is_moved_to_another_disk(tmp_path, monkeypatch):
    path, target = tmp_path / "a" / "1.journal", tmp_path / "b" / "c" / "1.journal"
    path.parent.mkdir()
    path.write_bytes(b"contents")

    def elsewhere(source, destination):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "rename", elsewhere)
    Files().move(path, target)
    assert target.read_bytes() == b"contents" and not path.exists()
    assert sorted(each.name for each in target.parent.iterdir()) == ["1.journal"]


def test_moving_an_already_moved_file_succeeds(tmp_path):
    Files().move(tmp_path / "gone", tmp_path / "b" / "gone")
    assert not (tmp_path / "b" / "gone").exists()


def test_move_raises_on_other_errors(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    (tmp_path / "b" / "x").mkdir(parents=True)
    with pytest.raises(OSError):
        Files().move(path, tmp_path / "b" / "x")
    assert path.exists()


def test_other_files_in_the_retention_directory_are_ignored(one, tmp_path):
    for name in ("notes.txt", "000000001.journal.damaged", "1.journal"):
        one.memory.contents[KEPT / "journal" / name] = Content(b"x")
    again = world(one.memory.kill(), storage_limit=1)
    again.turn()
    assert again.store.retention.files == 0
    assert len([path for path in again.memory.data if path.is_relative_to(KEPT)]) == 3
