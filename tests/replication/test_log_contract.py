"""What every `ReplicatedLog` does, whatever its engine."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from random import Random

import pytest

from stompring.replication.engines import create_log, open_log
from stompring.replication.log import (
    BEATS,
    CONTROL,
    MAX_ENTRY_DATA,
    Fenced,
    FileChange,
    LogFull,
    LogMissing,
    Operation,
    UnsafeLog,
)
from stompring.settings.model import ReplicatedLogSettings

from .engines import CLAIM, read_all
from .memory_log import MemoryEngine, MemoryLog

pytestmark = pytest.mark.xdist_group("nats")

BEAT = FileChange(Operation.BEAT, data=b"{}")
JOURNAL = "journal/000000001.journal"

#: Streams of one module have names of their own.
STREAMS = count(1)


class ServerEngine:
    """An engine behind a URL."""

    def __init__(self, url):
        self._url = url
        self._stream = f"s{next(STREAMS)}"

    def settings(self, broker="a"):
        return ReplicatedLogSettings(url=self._url, stream=self._stream, broker=broker)

    def create(self, max_bytes=-1):
        create_log(self.settings(), max_bytes)

    def open(self, broker="a"):
        return open_log(self.settings(broker))


class MemoryServer:
    """The log in memory that other tests use."""

    def __init__(self):
        self._engine = None

    def create(self, max_bytes=-1):
        if self._engine is not None:
            pytest.skip("a log in memory is made once")
        self._engine = MemoryEngine(max_bytes=max_bytes)

    def open(self, broker="a"):
        if self._engine is None:
            pytest.skip("a log in memory is always there")
        return MemoryLog(self._engine, broker)


@pytest.fixture(params=["memory", "nats", "postgresql"])
def engine(request):
    if request.param == "memory":
        return MemoryServer()
    if request.param == "postgresql":
        return ServerEngine(request.getfixturevalue("pair").url())
    pytest.importorskip("nats", reason="nats-py is not installed: pip install stompring[ha]")
    return ServerEngine(request.getfixturevalue("cluster").url)


@pytest.fixture
def connect(engine):
    """Connected clients of a new log, all closed after the test."""
    engine.create()
    with ExitStack() as stack:

        def connect(broker="a"):
            log = engine.open(broker)
            stack.callback(log.close)
            log.connect()
            return log

        yield connect


@pytest.fixture
def log(connect):
    """The one of a broker that has claimed it."""
    log = connect()
    log.claim(1, 0, CLAIM)
    return log


def write(at=0, data=b"x", path=JOURNAL):
    return FileChange(Operation.WRITE, path, at, data)


def test_new_log_is_empty(connect):
    log = connect()
    status = log.status()
    assert status.identity and connect("b").connect().identity == status.identity
    assert (status.last, status.entries, status.bytes) == (0, 0, 0)
    assert status.healthy
    assert log.read(0, 0) == []
    assert log.first(BEATS) is None
    assert log.last(CONTROL) is None


def test_existing_log_is_not_made_again(engine):
    engine.create()
    with pytest.raises(UnsafeLog, match="exists"):
        engine.create()


def test_log_that_was_not_made_is_refused(engine):
    with closing(engine.open()) as log, pytest.raises(LogMissing, match="stompring ha init"):
        log.connect()


def test_entries_are_read_as_they_were_written(connect):
    writer, reader = connect("a"), connect("b")
    changes = [
        FileChange(Operation.WHOLE, "identity", 0, b"\0\xff" * 10),
        write(7, b"y" * MAX_ENTRY_DATA),
        FileChange(Operation.TRUNCATE, JOURNAL, 5),
        FileChange(Operation.REMOVE, "paging/a b.*.>%/ö", 1),
        FileChange(Operation.MOVE, JOURNAL, 2, target="retention/x"),
        BEAT,
        FileChange(Operation.RELEASE, data=b'{"name": "a"}'),
    ]
    first = writer.claim(2**63 - 1, 0, CLAIM)
    last = writer.append(changes)
    entries = read_all(reader)
    assert [entry.change for entry in entries] == [CLAIM, *changes]
    assert [entry.sequence for entry in entries] == list(range(first, last + 1))
    assert [entry.number for entry in entries] == list(range(len(changes) + 1))
    assert {entry.writer for entry in entries} == {2**63 - 1}
    assert all(entry.time > 1_600_000_000_000 for entry in entries)


def test_many_entries_of_one_append_are_in_order(log, connect):
    sizes = Random(1)
    data = [sizes.randbytes(sizes.choice((0, 1, 100, 5000, MAX_ENTRY_DATA))) for _ in range(150)]
    log.append([write(at, one, f"paging/{at % 7}") for at, one in enumerate(data)])
    assert [bytes(entry.change.data) for entry in read_all(connect("b"))[1:]] == data


def test_reader_sees_entries_that_come_while_it_waits(log, connect):
    reader = connect("b")
    assert [entry.sequence for entry in reader.read(0, 0)] == [1]
    thread = threading.Thread(target=log.append, args=[[write()]])
    thread.start()
    found = reader.read(1, 30)
    thread.join()
    assert [entry.sequence for entry in found] == [2]
    assert reader.read(1, 0) == found, "a reader may go back"


def test_claim_at_an_older_end_is_refused(log, connect):
    other = connect("b")
    assert log.append([]) == 1
    assert other.claim(2, 0, CLAIM) is None
    assert log.append([write()]) == 2
    assert other.claim(2, 1, CLAIM) is None
    assert other.claim(2, 2, CLAIM) == 3


@pytest.mark.parametrize("later", [0, 1, 3])
def test_nothing_of_an_append_is_stored_behind_the_claim_of_another(log, connect, later):
    """Not even entries whose place would be free, since a claim has the place of one ahead of them."""
    second = connect()
    log.append([write()])
    second.claim(2, 2, CLAIM)
    for number in range(later):
        second.append([write(number, b"y", "journal/2.journal")])
    with pytest.raises(Fenced):
        log.append([write(at, b"z") for at in range(1, 9)])
    with pytest.raises(Fenced):
        log.append([])
    assert second.append([BEAT]) == 4 + later
    assert [entry.writer for entry in read_all(connect())] == [1, 1, *[2] * (later + 2)]


def test_of_two_claims_at_one_place_exactly_one_wins(connect):
    """The races that decide which broker is active."""
    brokers = [connect("a"), connect("b")]
    with ThreadPoolExecutor(2) as threads:
        for end in range(50):
            start = threading.Barrier(2)

            def claim(at, end=end, start=start):
                start.wait()
                return brokers[at].claim(2 * end + at + 1, end, CLAIM)

            results = list(threads.map(claim, range(2)))
            assert sorted(results, key=str) == [end + 1, None]
            [entry] = brokers[results.index(None)].read(end, 0)
            assert entry.writer == 2 * end + results.index(end + 1) + 1


def test_purged_entries_are_left_out_and_their_sequences_are_not_used_again(log):
    log.append([write(0), write(0, path="paging/1"), write(1), write(2)])
    before = log.status()
    log.purge(JOURNAL, 4)
    assert [entry.sequence for entry in read_all(log)] == [1, 3, 5]
    assert log.status().last == before.last
    assert log.status().entries == before.entries - 2
    assert log.status().bytes < before.bytes
    log.purge(JOURNAL, 5)
    log.purge(JOURNAL, 5)
    assert [entry.sequence for entry in read_all(log)] == [1, 3]
    assert log.status().last == 5
    assert log.claim(2, 5, CLAIM) == 6
    assert log.first(JOURNAL) is None


def test_claim_behind_purged_entries_is_refused(log, connect):
    log.append([write()])
    log.purge(JOURNAL, 2)
    assert connect("b").claim(2, 1, CLAIM) is None


def test_first_and_last_of_a_key(log):
    removals = [FileChange(Operation.REMOVE, f"paging/{at}", at) for at in (1, 2, 3)]
    log.append([removals[0], write(), removals[1], BEAT, removals[2], write(1)])
    first, last = log.first(CONTROL), log.last(CONTROL)
    assert (first.change, last.change) == (removals[0], removals[2])
    log.purge(CONTROL, first.sequence)
    assert log.first(CONTROL).change == removals[1]
    assert log.last(BEATS).change == BEAT


def test_entries_are_read_from_the_leader_where_a_node_may_lack_some(log, connect):
    for number in range(1, 61):
        log.append([write(number, b"x" * number, f"paging/{number % 7}/1.page")])
    log.purge("paging/3/1.page", 61)
    log.purge("paging/4/1.page", 40)
    reader, other = connect(), connect()
    reader.read_from_leader()
    log.append([write(0, b"later", "journal/1.journal")])
    assert read_all(reader) == read_all(other)


def test_entries_are_counted_by_key(log):
    names = ["journal/1.journal", "paging/%41 ä.b/1.page", "identity"]
    for number, name in enumerate(names, 1):
        sequence = log.append([write(at, path=name) for at in range(number)])
    log.append([FileChange(Operation.REMOVE, names[2], 1, b"3"), BEAT])
    expected = {names[0]: 1, names[1]: 2, names[2]: 3, CONTROL: 1, BEATS: 2}
    assert log.counts() == expected
    log.purge(names[2], sequence - 1)
    assert log.counts() == expected | {names[2]: 1}
    log.purge(names[2], sequence)
    del expected[names[2]]
    assert log.counts() == expected


def test_full_log_refuses_until_entries_are_purged(engine):
    engine.create(max_bytes=16 * MAX_ENTRY_DATA)
    with closing(engine.open()) as log:
        log.connect()
        log.claim(1, 0, CLAIM)
        accepted = 0
        with pytest.raises(LogFull):
            for at in range(40):
                log.append([write(at, b"x" * MAX_ENTRY_DATA, f"paging/{at}")])
                accepted += 1
        assert 5 < accepted < 20
        with pytest.raises(LogFull):
            log.append([])
        log.purge("paging/0", 2)
        log.purge("paging/1", 3)
        assert log.append([]) == accepted + 2, "the refused entry is stored when there is space"
        assert read_all(log)[-1].change.path == f"paging/{accepted}"
        assert log.append([BEAT]) == accepted + 3


def test_requests_reach_the_broker_named_and_the_active_one(connect):
    one, other, client = connect("a.b@host 1"), connect("b"), connect("cli")
    assert not client.request("release", "")
    assert not client.request("leave", "b")

    got = [], []

    def poll():
        more = one.requests("a.b@host 1", active=True), other.requests("b", active=False)
        got[0].extend(more[0])
        got[1].extend(more[1])
        return any(more)

    with ThreadPoolExecutor(1) as threads:
        for command, broker in (("release", ""), ("leave", "b"), ("leave", "a.b@host 1")):
            poll()
            was_received = False
            while not was_received:  # they may not listen yet
                asked = threads.submit(client.request, command, broker)
                while not asked.done():
                    poll()
                was_received = asked.result()
    while len(got[0]) < 2 or not got[1]:
        poll()
    assert got == (["release", "leave"], ["leave"])
    assert not poll()


def test_closed_log_says_nothing_to_others(log, connect):
    other = connect("b")
    log.close()
    log.close()
    assert other.read(1, 0) == []
    assert other.claim(2, 1, CLAIM) == 2


def test_path_lengths_up_to_the_limit_of_files_are_stored(log):
    path = "paging/" + "ä" * 120 + "/" + "." * 200
    log.append([write(0, path=path)])
    assert log.last(path).change.path == path
