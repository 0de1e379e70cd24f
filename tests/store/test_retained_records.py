"""Messages that are retained and that no restart brings back: how they are written, and when they are safe."""

import struct
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from stompring.settings.model import Retain
from stompring.settings.model import Retention as Settings
from stompring.store.encoder import MAX_RETAINED_BYTES, MAX_RETAINED_MESSAGES
from stompring.store.record import Kind
from stompring.store.segment import find_footer

from ..broker.broker_fixture import MULTICAST, join
from .decoded_files import passed_on, payloads, retained
from .disk import ManualDisk
from .memory_files import MemoryFiles
from .stored_broker import StoredBroker, held

SETTINGS = {
    "#": {"auto_delete_queues": False, "auto_delete_addresses": False},
    "all": {"retain": Retain.ALL},
    "none": {"retain": Retain.NONE},
}


def world(files=None, **more):
    kept = Settings("/data/retention")
    return StoredBroker(files, SETTINGS, journal_retention_directory=kept, **more)


def of_kind(one, kind):
    """The payloads of a kind in all segments."""
    segments = sorted(path for path in one.memory.data if path.suffix == ".journal")
    return [each for path in segments for each in payloads(one.memory.data[path]) if each[0] == kind]


def bodies_of(one):
    return [body for payload in of_kind(one, Kind.RETAINED) for _, body in retained(payload)[1]]


@pytest.fixture
def one():
    return world()


def test_immediately_consumed_messages_share_one_record(one):
    join(one.queue(), auto=True)
    sent = [one.durable(body=b"%d" % number, expires=one.now + 1000).number for number in range(20)]
    one.turn()
    (payload,) = of_kind(one, Kind.RETAINED)
    fields, found = retained(payload)
    assert found == [(number, b"%d" % place) for place, number in enumerate(sent)]
    assert fields["expires"] == [one.now + 1000] * 20 and fields["timestamps"] == [one.now] * 20
    assert fields["traits_count"] == 1 and fields["which"] == [0] * 20
    assert [number for number, _, _ in passed_on(payload)] == sent
    assert not of_kind(one, Kind.MESSAGE) and not of_kind(one, Kind.SETTLED)


def test_message_of_several_queues_is_written_once(one):
    for name in ("a", "b", "c"):
        join(one.queue(name, "t", MULTICAST), auto=True)
    join(one.queue("d", "t", MULTICAST, filter="colour = 'red'"), auto=True)
    for number in range(10):
        one.durable("t", b"%d" % number, headers={"colour": "red" if number % 2 else "blue"})
    one.turn()
    (payload,) = of_kind(one, Kind.RETAINED)
    assert sorted(bodies_of(one)) == sorted(b"%d" % number for number in range(10))
    assert Counter(Counter(number for number, _, _ in passed_on(payload)).values()) == {3: 5, 4: 5}


@pytest.mark.parametrize(
    "count, size",
    [(2 * MAX_RETAINED_MESSAGES + 1, 10), (5, MAX_RETAINED_BYTES // 2 - 1000), (2, 2 * MAX_RETAINED_BYTES)],
)
def test_large_batches_are_split_into_several_records(count, size):
    one = world(journal_file_size=100 << 20)
    for name in ("a", "b"):
        join(one.queue(name, "t", MULTICAST), auto=True)
    join(one.queue(), auto=True)
    for address in ("t", "q"):
        for number in range(count):
            one.durable(address, b"%d %b" % (number, b"x" * size))
    for _ in range(20):
        one.turn()
    found = of_kind(one, Kind.RETAINED)
    assert len(found) > 1
    assert max(len(payload) for payload in found) < 3 * MAX_RETAINED_BYTES
    there = Counter(body.split()[0] for body in bodies_of(one))
    passed = Counter(number for payload in found for number, _, _ in passed_on(payload))
    assert len(there) == count and len(passed) == 2 * count
    assert Counter(passed.values()) == {1: count, 2: count}


def test_a_receipt_waits_until_it_is_written_and_not_until_it_is_synced(monkeypatch):
    disk = ManualDisk()
    one = world(disk=disk, recover=False)
    one.disk, syncs = disk, []
    sync = MemoryFiles.sync
    monkeypatch.setattr(MemoryFiles, "sync", lambda self, file: (syncs.append(file), sync(self, file)))

    class AtOnce:
        """The start waits for the disk."""

        def __getattr__(self, name):
            return getattr(disk, name)

        def finish(self):
            while disk.jobs:
                disk.step()

    one.writer._disk = AtOnce()
    one.store.recover(one.broker)
    join(one.queue(), auto=True)
    for _ in range(5):
        one.turn()
        while disk.jobs:
            disk.step()
    syncs.clear()
    one.durable(body=b"x")
    heard = one.synced()
    one.turn()
    assert not heard, "nothing is written"
    disk.step()
    assert heard == [True] and not syncs
    assert bodies_of(one) == [b"x"]
    one.pass_time(1100)
    while disk.jobs:
        disk.step()
    assert syncs, "within a second"


def test_a_kill_takes_nothing_of_it_along_and_a_restart_brings_nothing_back(one):
    join(one.queue(), auto=True)
    one.queue("ring", "all", MULTICAST, ring_size=2)
    last = [one.durable(body=b"%d" % number).number for number in range(10)][-1]
    passing = [one.send("all", b"p%d" % number).number for number in range(5)]
    lasting = one.keep("all", b"lasting")
    again = one.again()
    assert held(again) == [] and held(again, "ring") == [b"lasting"]
    assert again.durable().number > max(last, *passing, lasting.number)
    assert {b"p0", b"p4", b"9"} <= set(bodies_of(again))
    assert held(one.crashed(Random(7)), "ring") == [b"lasting"]


def test_the_footer_knows_the_least_and_the_greatest():
    one = world(journal_file_size=3000)
    for name in ("a", "b"):
        join(one.queue(name, "t", MULTICAST, filter=f"own = '{name}'"), auto=True)
    sent = []
    for _ in range(12):
        sent += [
            one.durable("t", bytes(200), headers={"own": "ba"[number % 2]}).number for number in range(4)
        ]
        one.pass_time(1000)
    sealed = [
        data
        for path, data in sorted(one.memory.data.items())
        if find_footer(data) and path.suffix == ".journal"
    ]
    assert len(sealed) > 2
    seen = []
    for data in sealed:
        footer = find_footer(data)
        numbers = [
            number for each in payloads(data) if each[0] == Kind.RETAINED for number, _ in retained(each)[1]
        ]
        times = [
            time
            for each in payloads(data)
            if each[0] == Kind.RETAINED
            for time in retained(each)[0]["timestamps"]
        ]
        if numbers:
            assert (footer.least_number, footer.greatest_number) == (min(numbers), max(numbers))
            assert (footer.least_timestamp, footer.greatest_timestamp) == (min(times), max(times))
        seen += numbers
    assert set(seen) <= set(sent) and len(seen) > 12


def test_a_segment_with_nothing_else_is_moved_and_not_copied():
    one = world(journal_file_size=3000, journal_compact_min_files=2, journal_compact_percentage=90)
    ring = one.queue("ring", "all", MULTICAST, ring_size=3)
    for number in range(100):
        one.send("all", b"%d" % number + bytes(100))
        one.pass_time(50)
    assert ring.messages_replaced == 97
    there = Counter(body[:2].strip(b"\0") for body in bodies_of(one))
    assert len(there) == 100 and set(there.values()) == {1}, "compaction copies none of them"
    assert len([path for path in one.memory.data if path.parent == Path("/data/retention/journal")]) > 3


def test_retain_none_writes_only_restart_records(one):
    taker = join(one.queue("none"), 1)
    for body in (b"out", b"waits"):
        one.durable("none", body)
    one.turn()
    taker.nack(*taker.unsettled)
    one.turn()
    join(one.queue("none.taken", "none", MULTICAST), auto=True)
    one.keep("none", b"taken", routing_type=MULTICAST)
    assert not of_kind(one, Kind.RETAINED) and not of_kind(one, Kind.SETTLED)
    assert not of_kind(one, Kind.STATE) and not of_kind(one, Kind.DELIVERED)
    assert [payload[1] & 128 for payload in of_kind(one, Kind.MESSAGE)] == [128, 128]
    back = one.again().directory.queues["none"].dispatcher.in_order()
    assert [(ref.message.body, ref.deliveries, ref.attempts) for ref in back] == [
        (b"out", 2, 1),
        (b"waits", 0, 0),
    ]


def test_truncated_record_counts_as_malformed(one):
    (path,) = (path for path in one.memory.data if path.suffix == ".journal")
    tail = one.journal._encoder
    tail.add(struct.pack("<BBHIIIQI", Kind.RETAINED, 0, 0, 9, 1, 1, 0, 0))
    one.journal._append_records()
    again = one.restarted()
    assert [text.partition(" in ")[0] for text in again.store.damaged] == ["skipped malformed record"]
