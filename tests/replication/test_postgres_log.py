"""The replicated log in PostgreSQL: a primary and a synchronous standby, and what happens when one of them is lost."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from random import Random
from urllib.parse import urlsplit

import pytest

from stompring.replication.log import (
    BEATS,
    FileChange,
    LogFull,
    LogMissing,
    LogUnavailable,
    Operation,
    UnsafeLog,
    encode_entry,
)
from stompring.settings.model import ReplicatedLogSettings

from .. import postgres_server
from .engines import CLAIM, PATIENCE, append, read_all, retried

REASON = postgres_server.missing()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.xdist_group("nats"),  # of tests that share the servers
]
if REASON is None:
    from stompring.replication.postgres_log import (
        PostgresLog,
        _hosts,
        _required,
        _TimedOut,
        create_postgres_log,
    )

STREAMS = count(1)
WRITERS = count(2**64 - 1, -1)  # beyond what a bigint has


@pytest.fixture
def settings(pair):
    """Of a log of its own, which exists."""
    found = ReplicatedLogSettings(url=pair.url(), stream=f"stream{next(STREAMS)}")
    create_postgres_log(found)
    return found


@pytest.fixture
def opened(settings):
    """Opens logs of the stream: ``active`` ones have claimed it."""
    with contextlib.ExitStack() as stack:

        def open_one(*, active=False, settings=settings, **changes):
            log = stack.enter_context(contextlib.closing(PostgresLog(replace(settings, **changes))))
            status = log.connect()
            if active:
                assert log.claim(next(WRITERS), status.last, CLAIM) == status.last + 1
            return log

        yield open_one


@pytest.fixture
def database(pair):
    """Settings of a log in a database of its own, without tables."""
    name = f"base{next(STREAMS)}"
    pair.primary.execute(f"CREATE DATABASE {name}")
    yield ReplicatedLogSettings(url=pair.url(database=name), stream="orders")
    pair.primary.execute(f"DROP DATABASE {name} WITH (FORCE)")


def write(text, at=0, path="journal/1"):
    return FileChange(Operation.WRITE, path, at, text)


def contents(log):
    """The data of all file changes, in order."""
    return [bytes(entry.change.data) for entry in read_all(log) if entry.change.path]


@contextlib.contextmanager
def paused_standby(pair):
    pair.standby.pause()
    try:
        yield
    finally:
        pair.standby.resume()


def test_large_append_is_stored_in_order_over_several_statements(opened):
    active, reader = opened(active=True), opened()
    random = Random(1)
    changes = [write(random.randbytes(128 * 1024), at) for at in range(40)]
    changes += [write(b"%d" % at, at, f"paging/{at}") for at in range(3000)]
    assert active.append(changes) == 1 + len(changes)
    found = read_all(reader)
    assert [entry.sequence for entry in found] == list(range(1, len(changes) + 2))
    assert [entry.change for entry in found[1:]] == changes
    assert [entry.number for entry in found] == list(range(len(changes) + 1))
    status = reader.status()
    assert (status.last, status.entries) == (len(changes) + 1, len(changes) + 1)
    assert status.bytes > sum(len(change.data) for change in changes)


def test_beats_and_purges_of_two_connections_keep_the_counts(opened):
    active, other = opened(active=True), opened()
    active.append([write(b"x" * 50, at) for at in range(5000)])

    def purge():
        for through in range(100, 5100, 100):
            other.purge("journal/1", through)

    thread = threading.Thread(target=purge)
    thread.start()
    for at in range(200):
        active.append([write(b"y", at, "journal/2")])
    thread.join()
    active.purge("journal/1", 2**62)
    status = active.status()
    left = read_all(other)
    assert status.entries == len(left) == 201
    assert status.bytes == sum(len(encode_entry(each.writer, each.number, each.change)) for each in left)
    active.purge("journal/2", 2**62)
    active.purge(BEATS, 2**62)
    assert (active.status().entries, active.status().bytes) == (0, 0)
    assert active.append([write(b"z")]) == 5202


def test_pending_append_is_stored_once_when_another_session_holds_the_head(pair, opened, settings):
    active = opened(active=True)
    with pair.primary.connection() as connection, connection.transaction():
        connection.execute("SELECT * FROM stompring_logs WHERE stream = %s FOR UPDATE", [settings.stream])
        with pytest.raises(LogUnavailable):
            active.append([write(b"one")])
    assert active.append([write(b"two")]) == 3
    assert contents(opened()) == [b"one", b"two"]


def test_append_whose_answer_was_lost_is_found(pair, opened):
    active, reader = opened(active=True), opened()
    with paused_standby(pair):
        with pytest.raises(LogUnavailable):
            active.append([write(b"one"), write(b"two")])
        assert contents(reader) == []  # the standby may not have it
        with pytest.raises(LogUnavailable):
            active.append([write(b"three")])
    assert append(active) == 4
    assert contents(reader) == [b"one", b"two", b"three"]


def test_claim_whose_answer_was_lost_is_found(pair, opened):
    log, other = opened(), opened()
    writer = next(WRITERS)
    with paused_standby(pair), pytest.raises(LogUnavailable):
        log.claim(writer, 0, CLAIM)
    assert retried(log.claim, writer, 0, CLAIM) == 1
    assert other.claim(next(WRITERS), 0, CLAIM) is None
    assert log.append([write(b"one")]) == 2


def test_cancelled_wait_for_the_standby_is_not_taken_for_a_confirmation(pair, opened):
    active = opened(active=True)
    with paused_standby(pair):
        with ThreadPoolExecutor(1) as threads:
            appended = threads.submit(active.append, [write(b"one")])
            waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            pair.primary.wait_until(f"SELECT count(*) > 0 {waiting}")
            pair.primary.execute(f"SELECT pg_cancel_backend(pid) {waiting}")
            with pytest.raises(LogUnavailable, match="synchronous standby|no answer"):
                appended.result()
        with pytest.raises(LogUnavailable):
            active.append(())
    assert append(active) == 2
    assert contents(opened()) == [b"one"]


@pytest.mark.long
def test_entries_that_a_crashed_primary_had_not_replicated_are_confirmed_later(pair, opened, settings):
    active, reader = opened(active=True), opened()
    with paused_standby(pair):
        with pytest.raises(LogUnavailable):
            active.append([write(b"one")])
        pair.primary.kill()
        pair.primary.start()
        visible = f"SELECT last_sequence FROM stompring_logs WHERE stream = '{settings.stream}'"
        assert pair.primary.execute(visible) == [(2,)]
        for log in (active, reader):
            with pytest.raises(LogUnavailable):
                log.append(()) if log is active else log.read(0, 0)
    assert append(active) == 2
    retried(reader.connect)
    assert contents(reader) == [b"one"]


@pytest.mark.long
def test_stopped_primary_withholds_appends_until_it_continues(pair, opened):
    active = opened(active=True)
    pair.primary.pause()
    try:
        with pytest.raises(LogUnavailable):
            active.append([write(b"one")])
        with pytest.raises(LogUnavailable):
            active.read(0, 0)
    finally:
        pair.primary.resume()
    assert append(active) == 2
    assert contents(opened()) == [b"one"]


def test_slow_connection_gets_smaller_appends_and_reads(pair, opened, monkeypatch):
    """An append that takes longer than a call may would never end otherwise."""
    active, reader = opened(active=True), opened()
    sent = []
    query = PostgresLog._query

    def slow(log, statement, parameters=(), **options):
        payloads = parameters.get("payloads", [])
        size = sum(map(len, payloads)) or (parameters.get("most", 0) if payloads == [] else 0)
        sent.append(size)
        if size > 500_000:
            raise log._translated(_TimedOut())
        return query(log, statement, parameters, **options)

    monkeypatch.setattr(PostgresLog, "_query", slow)
    data = [write(b"%d" % at + b"x" * 100_000, at) for at in range(30)]
    with pytest.raises(LogUnavailable):
        active.append(data)
    assert append(active) == 31
    assert max(sent) > 1_500_000
    found = []
    while len(found) < 31:
        with contextlib.suppress(LogUnavailable):
            found += reader.read(len(found), 0)
    assert [entry.change for entry in found[1:]] == data


def test_lost_connection_is_made_again(pair, opened):
    active = opened(active=True)
    pair.primary.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'stompring%'"
    )
    with pytest.raises(LogUnavailable):
        active.append([write(b"one")])
    assert append(active) == 2


@pytest.mark.parametrize(
    "act", [pytest.param("pg_terminate_backend", marks=pytest.mark.long), "pg_cancel_backend"]
)
def test_entries_are_stored_once_and_in_order_while_sessions_are_ended_at_random(pair, opened, settings, act):
    """Before, within and after statements and commits."""
    active, random = opened(active=True, broker="victim"), Random(act)
    done = threading.Event()

    def disturb():
        with pair.primary.connection() as connection:
            while not done.wait(random.uniform(0.005, 0.05)):
                connection.execute(
                    f"SELECT {act}(pid) FROM pg_stat_activity WHERE application_name = 'stompring victim'".encode()
                )

    wanted = []
    faults = 0
    with ThreadPoolExecutor(1) as threads:
        disturbed = threads.submit(disturb)
        try:
            end = time.monotonic() + PATIENCE
            while (len(wanted) < 500 or not faults) and time.monotonic() < end:
                batch = [b"%d" % (len(wanted) + at) for at in range(random.randint(1, 8))]
                wanted += batch
                try:
                    active.append([write(one) for one in batch])
                except LogUnavailable:
                    faults += 1
                    append(active)
        finally:
            done.set()
            disturbed.result()
    assert faults
    assert active.append(()) == len(wanted) + 1
    assert contents(opened()) == wanted


def test_emptied_synchronous_standby_names_withhold_appends(pair, opened):
    active = opened(active=True)
    with pytest.raises(LogUnavailable, match="synchronous_standby_names"):
        with changed(pair, synchronous_standby_names=""):
            for at in range(1000):  # sessions read the file between two statements
                active.append([write(b"one", at)])
                time.sleep(0.01)
    append(active)
    assert set(contents(opened())) == {b"one"}


@contextlib.contextmanager
def changed(pair, **settings):
    before = {name: str(pair.primary.execute(f"SHOW {name}")[0][0]) for name in settings}
    pair.primary.configure(settings)
    try:
        yield
    finally:
        pair.primary.configure(before)


@pytest.mark.parametrize("name", ["fsync", "full_page_writes", "synchronous_standby_names"])
def test_unsafe_server_is_refused(pair, opened, settings, name):
    value = "" if name == "synchronous_standby_names" else "off"
    with changed(pair, **{name: value}):
        with pytest.raises(UnsafeLog, match=f"{name}.* confirmed-sync"):
            opened()
        with pytest.raises(UnsafeLog, match=name):
            create_postgres_log(replace(settings, stream="never"))
        opened(confirmed_sync=True, active=True).append([write(b"one")])
    assert contents(opened()) == [b"one"]


def test_weaker_synchronous_commit_of_a_database_is_overridden(pair, database, opened):
    name = urlsplit(database.url).path[1:]
    pair.primary.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    pair.primary.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
    create_postgres_log(database)
    log = opened(settings=database)
    with paused_standby(pair), pytest.raises(LogUnavailable):
        log.claim(next(WRITERS), 0, CLAIM)


def execute(pair, settings, statement):
    """In the database of a log."""
    name = urlsplit(settings.url).path[1:]
    psql = pair.primary.connection(name)
    with psql:
        psql.execute(statement.encode())


def test_log_is_created_once_in_a_database_without_tables(database):
    log = PostgresLog(database)
    with pytest.raises(LogMissing, match="stompring ha init"):
        log.connect()
    status = create_postgres_log(database, 5_000_000)
    assert (status.engine, status.last, status.entries, status.max_bytes) == (
        "postgresql",
        0,
        0,
        5_000_000,
    )
    assert (status.replicas, status.healthy) == (2, True)
    with pytest.raises(UnsafeLog, match="orders exists already"):
        create_postgres_log(database)
    with pytest.raises(LogMissing, match="stompring ha init"):
        PostgresLog(replace(database, stream="invoices")).connect()
    assert create_postgres_log(replace(database, stream="invoices")).identity != status.identity
    assert log.connect().identity == status.identity
    log.close()


def test_unlogged_table_is_refused(pair, database):
    create_postgres_log(database)
    execute(pair, database, "ALTER TABLE stompring_entries SET UNLOGGED")
    with pytest.raises(UnsafeLog, match="stompring_entries is unlogged"):
        PostgresLog(replace(database, confirmed_sync=True)).connect()


def test_log_made_anew_is_noticed(pair, database, opened):
    before = create_postgres_log(database)
    log = opened(settings=database, active=True)
    execute(pair, database, "DELETE FROM stompring_logs")
    with pytest.raises(LogMissing):
        log.append([write(b"one")])
    assert create_postgres_log(database).identity != before.identity
    for use in (lambda: log.append(()), lambda: log.read(1, 0), log.status):
        with pytest.raises(UnsafeLog, match="created again"):
            use()
    execute(pair, database, "DROP TABLE stompring_logs")
    with pytest.raises(LogMissing, match="no tables"):
        log.status()


def test_conflicts_with_other_transactions_are_tried_again(pair, database, opened):
    """Cockroach and Yugabyte report them for what PostgreSQL waits for."""
    create_postgres_log(database)
    log = opened(settings=database, active=True)
    execute(
        pair,
        database,
        """
        CREATE SEQUENCE attempts;
        CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('attempts') % 3 <> 0 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER conflict BEFORE UPDATE ON stompring_logs FOR EACH ROW EXECUTE FUNCTION conflict();
        """,
    )
    for at in range(10):
        assert log.append([write(b"%d" % at)]) == at + 2
    execute(pair, database, body_of_conflict("40P01"))
    with pytest.raises(LogUnavailable, match=r"times|no answer within 2 s"):  # the latter on a busy machine
        log.append([write(b"10")])
    execute(pair, database, body_of_conflict("53100"))
    with pytest.raises(LogFull, match="conflict"):
        log.append(())
    execute(pair, database, "DROP TRIGGER conflict ON stompring_logs")
    assert log.append([write(b"11")]) == 13
    assert contents(log) == [b"%d" % at for at in range(12)]


def body_of_conflict(state):
    return f"""
        CREATE OR REPLACE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = '{state}'; END $$
    """


def test_full_log_takes_removals_and_beats(database, opened):
    create_postgres_log(database, 100_000)
    log = opened(settings=database, active=True)
    log.append([write(b"x" * 60_000)])
    with pytest.raises(LogFull, match="at most 100000"):
        log.append([write(b"y" * 60_000, path="journal/2")])
    log.purge("journal/1", 2)
    assert log.append([FileChange(Operation.BEAT)]) == 4
    with pytest.raises(LogFull):
        log.append([write(b"z" * 60_000, path="journal/3"), FileChange(Operation.REMOVE, "journal/2", 1)])
    other = opened(settings=database, active=True)
    assert other.append([FileChange(Operation.REMOVE, "journal/2", 1)]) == 6
    other.purge("journal/2", 6)
    assert other.append([write(b"z" * 60_000, path="journal/3")]) == 7


def test_read_only_replica_is_not_used(pair, settings):
    url = f"postgresql://stompring@127.0.0.1:{pair.standby.port}/postgres?sslmode=disable&target_session_attrs=any"
    with pytest.raises(LogUnavailable, match="read-only"):
        PostgresLog(replace(settings, url=url)).connect()
    both = pair.url().replace(f"{pair.primary.port},", f"{pair.standby.port},", 1)
    both = both[::-1].replace(str(pair.standby.port)[::-1], str(pair.primary.port)[::-1], 1)[::-1]
    log = PostgresLog(replace(settings, url=both))
    assert log.connect().leader == f"127.0.0.1:{pair.primary.port}"
    log.close()


def test_password_and_tls(pair, settings):
    pair.primary.execute("CREATE ROLE secured LOGIN PASSWORD 'correct horse'")
    url = pair.url(options="application_name=other").replace("stompring@", "")
    secured = replace(
        settings, url=url, user="secured", password="correct horse", ca=str(pair.authority.file)
    )
    with pytest.raises(UnsafeLog, match="grant SELECT"):
        PostgresLog(secured).connect()
    pair.primary.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON stompring_logs, stompring_entries, stompring_requests TO secured"
    )
    log = PostgresLog(secured)
    log.connect()
    assert log.claim(next(WRITERS), 0, CLAIM) == 1
    assert log.append([write(b"one")]) == 2
    assert log.status().healthy
    log.close()
    assert pair.primary.execute("SELECT count(*) > 0 FROM pg_stat_ssl WHERE ssl") != []
    stranger = pair.authority.issue("stranger.pem")
    for fault, text in (
        (replace(secured, password="wrong"), "password authentication failed"),
        (replace(secured, ca=str(stranger)), "certificate verify failed"),
        (replace(secured, url=f"{url}&sslmode=disable"), "rejects connection|no encryption"),
    ):
        with pytest.raises(LogUnavailable, match=text) as raised:
            PostgresLog(fault).connect()
        assert "horse" not in str(raised.value) and "wrong" not in str(raised.value)


@pytest.mark.long
def test_log_goes_on_when_the_synchronous_standby_is_promoted(pair, opened):
    active, reader = opened(active=True), opened()
    active.append([write(b"%d" % at) for at in range(100)])
    pair.fail_over()
    with pytest.raises(LogUnavailable):
        active.append([write(b"100")])
    with pytest.raises(LogUnavailable):
        active.append([write(b"101")])  # the new primary has no standby yet
    pair.add_standby()
    assert append(active) == 103
    retried(reader.connect)
    assert contents(reader) == [b"%d" % at for at in range(102)]
    assert reader.status().leader == f"127.0.0.1:{pair.primary.port}"


@pytest.mark.long
def test_entries_lost_by_asynchronous_replication_are_noticed(pair, opened):
    with changed(pair, synchronous_standby_names=""):
        active, reader = opened(active=True, confirmed_sync=True), opened(confirmed_sync=True)
        pair.primary.wait_until("SELECT replay_lsn = pg_current_wal_lsn() FROM pg_stat_replication")
        pair.standby.kill()
        active.append([write(b"lost")])
        assert reader.read(1, 0)[0].sequence == 2
        pair.primary.kill()
        pair.standby.start()
        pair.standby.promote()
        pair.primary, pair.standby = pair.standby, pair.primary
        pair.standby.copy(pair.primary)
        pair.standby.start()
        with pytest.raises(LogUnavailable):
            active.append([write(b"more")])  # the connection is lost
        with pytest.raises(UnsafeLog, match="has lost entries: it ends at 1, this broker knows 2"):
            append(active)
        retried(reader.connect)
        with pytest.raises(UnsafeLog, match="has lost entries"):
            reader.read(2, 0)
    pair.wait_for_standby()


def test_a_log_that_ends_before_what_it_confirmed_has_lost_entries(pair, settings, opened):
    active, reader = opened(active=True), opened()
    active.append([write(b"lost")])
    assert reader.read(1, 0)[0].sequence == 2
    of_log = f"SELECT log FROM stompring_logs WHERE stream = '{settings.stream}'"
    pair.primary.execute(f"DELETE FROM stompring_entries WHERE log = ({of_log}) AND sequence = 2")
    pair.primary.execute(
        f"UPDATE stompring_logs SET last_sequence = 1, entries = 1 WHERE stream = '{settings.stream}'"
    )
    with pytest.raises(UnsafeLog, match="has lost entries: it ends at 1, this broker knows 2"):
        append(active, write(b"more"))
    with pytest.raises(UnsafeLog, match="has lost entries"):
        reader.read(2, 0)


def test_a_large_log_is_not_counted(opened, monkeypatch):
    active = opened(active=True)
    active.append([write(b"%d" % at) for at in range(3)])
    assert sum((active.counts() or {}).values()) == active.status().entries == 4
    monkeypatch.setattr("stompring.replication.postgres_log.MAX_COUNTED", 3)
    assert active.counts() is None


@pytest.mark.parametrize(
    "names, wanted",
    [("", 0), (None, 0), ("*", 1), ("a, b", 1), ("2 (a, b)", 2), ("FIRST 3(a,b,c)", 3), ("ANY 2 (a, b)", 2)],
)
def test_standbys_that_must_confirm(names, wanted):
    assert _required(names) == wanted


@pytest.mark.parametrize(
    "url, hosts",
    [
        ("postgresql://one,two/stomp", [("one", None), ("two", None)]),
        ("postgresql://one:6000,two:6001/stomp", [("one", "6000"), ("two", "6001")]),
        ("postgresql://[::1]:6000/stomp", [("::1", "6000")]),
        ("postgresql:///stomp", [(None, None)]),
    ],
)
def test_hosts_are_tried_one_by_one(url, hosts):
    found = _hosts(ReplicatedLogSettings(url=url, stream="orders"))
    assert [(one.get("host"), one.get("port") or None) for one in found] == hosts
    assert {one["target_session_attrs"] for one in found} == {"read-write"}
