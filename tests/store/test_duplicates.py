"""Duplicate ids in the journal: with their messages or not at all, in their order, as long as they count."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.broker.message import Traits
from stompring.broker.publish import Publication, publish
from stompring.server.reload import apply
from stompring.session.outbox import Outgoing
from stompring.store import bindings, journal
from stompring.store.bindings import IdChunk
from stompring.store.record import TRANSACTION, Kind, pack_ids, unpack_ids
from stompring.store.replay import ReadSegment, ReplayedIds
from stompring.store.segment import Header

from ..session.session_fixture import Server
from .disk import ManualDisk
from .memory_files import MemoryFiles
from .paged_broker import PagedBroker
from .stored_broker import JOURNAL, StoredBroker, held, reported

FIRST = JOURNAL / "000000001.journal"


def make(**more):
    world = StoredBroker(**more)
    world.queue("q")
    return world


def send(world, identifier, address="q", *, durable=True):
    """As a session does; False for a duplicate."""
    found = world.address(address)
    publication = Publication(found, None, Traits(b"", address.encode(), durable=durable), None)
    publication.identifier, publication.direct = identifier, False
    return publish(world.broker, publication, identifier) is None


def forget_all(world):
    """What an administrator does."""
    address = world.address("q")
    if address.duplicates is not None:
        address.duplicates.clear()
    world.store.forgot_all(address)


def send_all(world, identifiers, address="q"):
    """Each in a turn of its own."""
    for identifier in identifiers:
        send(world, identifier, address)
        world.turn()


def known(world, address="q"):
    found = world.directory.addresses.get(address)
    cache = None if found is None else found.duplicates
    return [] if cache is None else cache.in_order


def ids(first, last):
    return [b"%d" % number for number in range(first, last + 1)]


def acknowledge_all(world, name="q"):
    world.directory.queues[name].purge()
    world.turn()


# ---- records


@pytest.fixture
def world():
    return make()


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 1 << 63), st.integers(0, 1 << 63))
def test_packed_ids_unpack_unchanged(found, first, oldest):
    payload = pack_ids(7, first, oldest, found)
    assert unpack_ids(b"x" + payload, 1, 1 + len(payload)) == (7, first, oldest, found)


def test_a_record_that_is_too_short():
    payload = pack_ids(7, 0, 0, [b"abc"])
    with pytest.raises(ValueError):
        unpack_ids(payload, 0, len(payload) - 1)


def test_replayed_ids_are_ordered_by_position():
    def segment(number):
        return ReadSegment(number, Path(str(number)), 0, Header())

    first, second = segment(1), segment(2)
    read = ReplayedIds()
    read.include(first, 0, 0, [b"a", b"b", b"c"])
    read.include(second, 3, 1, [b"d", b"b"])
    read.include(second, 1, 1, [b"b", b"c"])  # compaction
    assert [(at, each.number, name) for at, each, name in read.latest()] == [
        (2, 2, b"c"),
        (3, 2, b"d"),
        (4, 2, b"b"),
    ]
    assert [name for _, _, name in read.latest(2)] == [b"d", b"b"] and read.next == 5
    assert list(read.latest(0)) == []


# ---- restarts


def test_a_message_consumed_in_its_turn_leaves_its_id(world):
    send(world, b"1")
    world.q.purge()
    again = world.restarted()
    assert held(again) == [] and known(again) == [b"1"]


def test_ids_removed_by_a_reload_are_not_recovered(world):
    send_all(world, ids(1, 6))
    apply(world.broker, world.again(id_cache_size=2).configuration)
    send_all(world, [b"7"])
    assert known(world) == ids(6, 7)
    assert known(world.again()) == ids(6, 7)


def test_without_persist_id_cache_no_ids_are_recovered(world):
    send_all(world, ids(1, 3))
    off = world.again(persist_id_cache=False)
    assert known(off) == []
    on = off.again(persist_id_cache=True)
    assert known(on) == ids(1, 3)  # nothing was written meanwhile that says otherwise
    apply(off.broker, on.configuration)
    send_all(off, [b"2"])
    assert known(off.again(persist_id_cache=True)) == [b"2"]


def test_ids_go_with_their_address(world):
    send_all(world, ids(1, 3))
    world.directory.delete_queue("q", force=True)
    if "q" in world.directory.addresses:
        world.directory.delete_address("q", force=True)
    world.turn()
    assert not [
        each for segment in world.journal.segments for each in segment.live if isinstance(each, IdChunk)
    ]
    world.queue("q")
    assert known(world) == []
    send_all(world, [b"9"])
    assert known(world.again()) == [b"9"]


def test_a_journal_without_ids_is_read_as_before(world):
    world.keep(body=b"a")
    again = world.again()
    assert held(again) == [b"a"] and again.address("q").duplicates is None and reported(again) == []


# ---- chunks, segments and compaction


def chunks_of(world):
    found = {each for segment in world.journal.segments for each in segment.live if isinstance(each, IdChunk)}
    return sorted(found, key=lambda chunk: chunk.first)


def test_chunks_are_bounded(monkeypatch):
    monkeypatch.setattr(bindings, "CHUNK_IDS", 4)
    world = make(id_cache_size=10)
    send_all(world, ids(1, 30))
    assert [len(chunk.ids) for chunk in chunks_of(world)] == [4, 4, 2]  # 21 to 30, whose chunk began at 21
    again = world.again()
    assert known(again) == ids(21, 30)
    send_all(again, ids(31, 32))
    assert known(again.again()) == ids(23, 32)
    monkeypatch.setattr(bindings, "CHUNK_BYTES", 10)
    send_all(again, [b"x" * 9, b"y" * 9, b"z" * 9])
    assert [len(chunk.ids) for chunk in chunks_of(again)][-2:] == [2, 1]


def test_segments_go_whose_ids_are_forgotten(monkeypatch):
    """Without compaction: nothing is written again."""
    monkeypatch.setattr(bindings, "CHUNK_IDS", 5)
    world = make(id_cache_size=10, journal_file_size=2000, journal_compact_min_files=0)
    binding = world.journal.segments[0]
    for number in range(400):
        send_all(world, [b"%d" % number])
        acknowledge_all(world)
        for kept in [each for each in binding.live if not isinstance(each, IdChunk)]:
            del binding.live[kept]  # what the addresses and queues are
    assert len(world.journal.segments) <= 5
    assert known(world) == ids(390, 399)


@pytest.mark.parametrize("limit", [3, 1000])
def test_compaction_rewrites_valid_ids_only(monkeypatch, limit):
    monkeypatch.setattr(bindings, "CHUNK_IDS", limit)
    world = make(id_cache_size=12, journal_file_size=2000, journal_compact_min_files=0)
    send_all(world, ids(1, 60))
    acknowledge_all(world)
    send_all(world, ids(61, 63))
    while len(world.journal.segments) > 1:
        world.journal.compact_step(10, 100_000)
        world.turn()
        assert known(world.again()) == ids(52, 63)
    data = b"".join(bytes(data) for data in world.memory.data.values())
    assert b"\x02\x00\x00\x0063" in data and b"\x02\x00\x00\x0045" not in data
    again = world.again()
    send_all(again, ids(64, 66))
    assert known(again.again()) == ids(55, 66)


def test_many_ids_are_no_reason_to_compact_for_ever():
    world = make(journal_file_size=2000, journal_compact_min_files=3)
    for number in range(300):
        send_all(world, [b"%0100d" % number])
        acknowledge_all(world)
    world.clock.advance(10)
    before = world.store.compaction.rewritten
    for _ in range(100):
        world.clock.advance(0.01)
    assert world.store.compaction.rewritten == before
    live = sum(chunk.live_bytes for chunk in chunks_of(world))
    assert world.journal.live_bytes >= live > 300 * 100
    again = world.again()
    assert again.journal.live_bytes >= sum(chunk.live_bytes for chunk in chunks_of(again)) > 300 * 100
    again.directory.delete_queue("q", force=True)
    again.turn()
    if "q" in again.directory.addresses:
        again.directory.delete_address("q", force=True)
    again.turn()
    assert again.journal.live_bytes == 0


# ---- forgotten by hand


@pytest.mark.parametrize("count", [0, 1, 25])
def test_cleared_ids_are_not_recovered(world, count):
    world.turn()
    send_all(world, ids(1, count))
    send(world, b"passing", durable=False)
    assert len(known(world)) == count + 1
    forget_all(world)
    assert known(world) == [] and not chunks_of(world)
    again = world.restarted()
    assert known(again) == [] and held(again) == ids(1, count)
    again.q.purge()
    send_all(again, ids(1, 3))
    assert known(again.again()) == held(again.again()) == ids(1, 3)


def test_forgetting_lasts_as_long_as_any_of_the_ids(monkeypatch):
    """Whatever segment goes first, at no time do ids come back."""
    monkeypatch.setattr(bindings, "CHUNK_IDS", 4)
    world = make(journal_file_size=1200, journal_compact_min_files=2, journal_compact_percentage=90)
    world.turn()
    send_all(world, ids(1, 30))
    before = len(world.journal.segments)
    forget_all(world)
    world.turn()
    for number in range(40):
        send_all(world, [b"new %d" % number])
        world.clock.advance(1)
        expected = [b"new %d" % each for each in range(number + 1)]
        assert known(world.again()) == expected == known(world)
        if number == 20:
            acknowledge_all(world)
    assert before > 3 and world.journal.segments[0].number > before


def test_clearing_ids_applies_when_the_cache_was_not_loaded(world):
    send_all(world, ids(1, 5))
    unaware = world.again(persist_id_cache=False)
    assert known(unaware) == []
    forget_all(unaware)
    unaware.turn()
    assert known(unaware.again(persist_id_cache=True)) == []
    assert known(world.again()) == ids(1, 5), "they were there"


def test_an_address_without_ids_and_one_of_another_name(world):
    world.queue("other")
    send_all(world, ids(1, 3), "other")
    assert known(world) == []
    forget_all(world)
    world.turn()
    assert known(world.again(), "other") == ids(1, 3)


# ---- what is torn


def conversing(world):
    server = Server()
    server.world, server.outgoing = world, Outgoing(world.broker.clock)
    return server.client()


def test_every_journal_prefix_of_a_session_recovers_consistently(world):
    client = conversing(world)
    send_one = {"destination": "/queue/q", "persistent": "true"}
    world.turn()
    for identifier in ids(1, 3):
        client.say("SEND", identifier, _AMQ_DUPL_ID=identifier.decode(), **send_one)
        if identifier == b"1":
            world.turn()
    client.say("BEGIN", transaction="t")
    for identifier in ids(4, 6):
        client.say("SEND", identifier, _AMQ_DUPL_ID=identifier.decode(), transaction="t", **send_one)
    client.say("COMMIT", transaction="t")
    world.turn()
    files = world.memory
    seen = set()
    for length in {*range(0, size := files.size(FIRST), 7), size}:
        cut = files.kill()
        cut.truncate(FIRST, length)
        again = world.again(cut)
        assert held(again) == known(again), length
        seen.add(len(known(again)))
    assert seen == {0, 1, 3, 6}  # those of one turn are one, but for what a transaction of the client's has


def test_messages_of_one_turn_become_one_record_with_their_ids(world):
    client = conversing(world)
    world.turn()
    for size, expected in (
        (100, [3]),
        (journal.MAX_JOINED_BYTES // 2 - 100, [2, 1]),
        (journal.MAX_JOINED_BYTES, [1, 1, 1]),
    ):
        before = world.memory.size(FIRST)
        for place in range(3):
            headers = {"destination": "/queue/q", "persistent": "true", "_AMQ_DUPL_ID": f"{size}.{place}"}
            client.say("SEND", b"x" * size, **headers)
        world.turn()
        written = world.memory.read(FIRST, before, world.memory.size(FIRST))
        assert _messages_of_transactions(written) == expected, size
    assert len(known(world.again())) == len(held(world.again())) == 9


def _messages_of_transactions(records):
    """How many messages each TRANSACTION has, beside one record of their ids."""
    found, at = [], 0
    while at < len(records):
        length, at = int.from_bytes(records[at : at + 4], "little"), at + 8
        payload, at = records[at : at + length], at + length
        if payload[0] != Kind.TRANSACTION:
            continue
        kinds, place = [], TRANSACTION.size
        while place < length:
            size = int.from_bytes(payload[place : place + 4], "little")
            kinds.append(payload[place + 4 : place + 4 + size][0])
            place += 4 + size
        assert kinds.count(Kind.DUPLICATE_IDS) == 1
        ids_at = kinds.index(Kind.DUPLICATE_IDS)
        assert set(kinds[:ids_at] + kinds[ids_at + 1 :]) == {Kind.MESSAGE}
        found.append(len(kinds) - 1)
    return found


def test_the_receipt_of_a_duplicate_waits_for_the_first_one():
    disk = ManualDisk()
    world = make(disk=disk)
    client = conversing(world)
    headers = {"destination": "/queue/q", "persistent": "true", "_AMQ_DUPL_ID": "1"}
    client.say("SEND", b"a", **headers)
    client.say("SEND", b"a", receipt="r", **headers)
    world.turn()
    assert client.read() == []
    for _ in range(5):
        disk.finish()
        world.turn()
    assert client.one("RECEIPT")["receipt-id"] == "r" and held(world) == [b"a"]


@pytest.mark.parametrize("together", [False, True], ids=["each", "all as one"])
def test_every_cut_of_the_journal_while_pages_are_whole(together):
    """A message in a page counts only if the journal has its id."""
    world = PagedBroker()
    (queue,) = world.queues("a.one", filter="none = 1")

    def send_to_page(identifier):
        with world.broker.together():
            world.page([queue], identifier)
            send(world, identifier, "a")  # which no queue takes

    world.turn()
    if together:
        with world.broker.together():
            for identifier in ids(1, 6):
                send_to_page(identifier)
    else:
        for identifier in ids(1, 6):
            send_to_page(identifier)
            world.turn()
    world.turn()
    files = world.memory
    seen = set()
    for length in {*range(0, size := files.size(FIRST), 7), size}:
        cut = files.kill()
        cut.truncate(FIRST, length)
        again = world.again(cut)
        found = again.directory.queues.get("a.one")
        pages = again.directory.addresses["a"].pages if "a" in again.directory.addresses else None
        count = 0 if found is None or pages is None else again.pages.cursor(found).remaining
        if length > 32 and "a" in again.directory.addresses and found is not None:
            assert known(again, "a") == ids(1, count), length
            seen.add(count)
    assert seen == ({0, 6} if together else set(range(7)))


def test_a_damaged_segment_loses_its_ids_alone(monkeypatch):
    monkeypatch.setattr(bindings, "CHUNK_IDS", 4)
    world = make(journal_file_size=1500, journal_compact_min_files=0)
    send_all(world, ids(1, 30))
    files = world.memory.kill()
    path = sorted(path for path in files.data if path.suffix == ".journal")[1]
    data = bytearray(files.read(path))
    for at in range(400, len(data), 50):
        data[at] ^= 0xFF
    again = world.again(MemoryFiles({**files.data, path: bytes(data)}))
    found = known(again)
    assert reported(again) and 0 < len(found) < 30
    assert set(held(again)) == set(found) and found == sorted(found, key=int)
    send_all(again, ids(31, 40))
    assert known(again.again())[-10:] == ids(31, 40)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 14), min_size=1, max_size=40))
def test_crashes_at_any_time(seed, steps):
    """What is known after a restart are the latest of those whose messages are there, and nobody consumes."""
    random, size = Random(seed), 6
    world = make(id_cache_size=size, journal_file_size=1500)
    world.turn()
    number, passing = 0, 0
    safe = set()
    sent = set()
    for step in steps:
        if step < 9:
            number += 1
            sent.add(number)
            assert send(world, b"%d" % number)
        elif step < 12:
            world.turn()
            assert world.store.drain()
            safe |= sent
        elif step == 12:
            number, passing = number + 1, passing + 1
            send(world, b"%d" % number, durable=False)
        elif step == 13:
            world.clock.advance(1)
        else:
            world = world.crashed(random) if seed % 2 else world.again()
            there = sorted(int(body) for body in held(world))
            found = [int(identifier) for identifier in known(world)]
            assert safe <= set(there) <= sent
            assert found == there[len(there) - len(found) :]
            assert min(size, len(there)) - passing <= len(found) <= size
            sent = set(there)
