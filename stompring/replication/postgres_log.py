"""The replicated log in PostgreSQL, or in a database that speaks its protocol.

One row of ``stompring_logs`` is the head of a log. An append is one statement: it advances the head from the sequence
that the writer expects, and stores the entries; if the head is at another sequence, it does nothing. The row's lock
orders the statements of several brokers.

PostgreSQL confirms a commit when its synchronous standby has it. Three events could undo that:

- An administrator cancels a wait for the standby: the statement ends as a success with a warning.
- The primary crashes: a commit that waited for the standby is visible without having arrived there.
- ``synchronous_standby_names`` becomes empty, by hand or by Patroni without its strict mode.

After a warning or a lost connection, an append counts as stored only when PostgreSQL has confirmed a later write to the
head without a warning: the standby has all earlier commits. Every append returns ``synchronous_standby_names``, too.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from psycopg import errors, waiting
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper

from stompring.settings.document import revealed
from stompring.settings.model import ReplicatedLogSettings

from .log import (
    Fenced,
    FileChange,
    LogEntry,
    LogFull,
    LogMissing,
    LogStatus,
    LogUnavailable,
    UnsafeLog,
    decode_entry,
    encode_entry,
)

if TYPE_CHECKING:
    from psycopg.abc import RV, PQGen

#: Maximum seconds of one call; a connection attempt to a host may take as long in addition.
CALL_TIMEOUT = 2.0
#: Seconds between two queries for new entries, and between two queries for the receipt of a request.
POLL_INTERVAL = 0.1
#: Maximum entries and bytes of one append, and of one read.
_APPEND_ENTRIES, _APPEND_BYTES = 512, 2 << 20
_READ_ENTRIES, _READ_BYTES = 2048, 8 << 20
#: Minimum fraction of `_APPEND_BYTES` and `_READ_BYTES` on a slow connection: each timeout halves the fraction.
_LEAST_SHARE = 1 / 32
#: Number of consecutive timeouts after which another host is tried.
_TIMEOUTS = 3
#: Maximum number of entries that are counted. To count so many takes a fraction of `CALL_TIMEOUT`.
MAX_COUNTED = 500_000
#: Number of entries that one statement deletes.
_PURGE_ENTRIES = 500
#: Seconds that a sender waits for the receipt of a request, and age in seconds above which a broker ignores it.
_REQUEST_TIMEOUT, _REQUEST_AGE = 2.0, 10.0

_FORMAT: Final = 1

_TABLES = (
    """
    CREATE TABLE IF NOT EXISTS stompring_logs (
        stream text PRIMARY KEY,
        identity text NOT NULL,
        log uuid NOT NULL,
        format bigint NOT NULL,
        last_sequence bigint NOT NULL,
        writer bigint NOT NULL,
        number bigint NOT NULL,
        entries bigint NOT NULL,
        stored_bytes bigint NOT NULL,
        max_bytes bigint NOT NULL,
        confirmations bigint NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS stompring_entries (
        log uuid NOT NULL,
        sequence bigint NOT NULL,
        key bytea NOT NULL,
        time bigint NOT NULL,
        bytes bigint NOT NULL,
        payload bytea NOT NULL,
        PRIMARY KEY (log, sequence)
    )
    """,
    "CREATE INDEX IF NOT EXISTS stompring_entries_key ON stompring_entries (log, key, sequence)",
    """
    CREATE TABLE IF NOT EXISTS stompring_requests (
        id uuid PRIMARY KEY,
        log uuid NOT NULL,
        broker text NOT NULL,
        command text NOT NULL,
        time bigint NOT NULL
    )
    """,
)

#: Tuning that other databases may lack: uncompressed payloads, space in the page of the head for its versions, and
#: early vacuum of deleted rows.
_TUNING = (
    "ALTER TABLE stompring_entries ALTER COLUMN payload SET STORAGE EXTERNAL",
    """
    ALTER TABLE stompring_entries SET (
        autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_threshold = 20000,
        toast.autovacuum_vacuum_cost_delay = 0
    )
    """,
    "ALTER TABLE stompring_logs SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000)",
)

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_STANDBYS = "current_setting('synchronous_standby_names', true)"

_CREATE = """
INSERT INTO stompring_logs VALUES (%s, %s, %s::uuid, 1, 0, 0, 0, 0, 0, %s, 0) ON CONFLICT (stream) DO NOTHING
RETURNING stream
"""

_APPEND = f"""
WITH head AS (
    UPDATE stompring_logs
    SET last_sequence = last_sequence + %(count)s, entries = entries + %(count)s,
        stored_bytes = stored_bytes + %(bytes)s, writer = %(writer)s, number = %(number)s
    WHERE stream = %(stream)s AND identity = %(identity)s AND last_sequence = %(expected)s
        AND (max_bytes < 0 OR %(unlimited)s::boolean OR stored_bytes + %(bytes)s <= max_bytes)
    RETURNING log
), stored AS (
    INSERT INTO stompring_entries (log, sequence, key, time, bytes, payload)
    SELECT head.log, %(expected)s + entry.position, entry.key, {_NOW}, octet_length(entry.payload), entry.payload
    FROM head, unnest(%(keys)b::bytea[], %(payloads)b::bytea[]) WITH ORDINALITY AS entry (key, payload, position)
    RETURNING sequence
)
SELECT count(*), {_STANDBYS} FROM stored
"""  # nosec B608

_HEAD_COLUMNS = f"""
    identity, log::text, format, last_sequence, writer, number, entries, stored_bytes, max_bytes, {_STANDBYS}
"""
_HEAD = f"SELECT {_HEAD_COLUMNS} FROM stompring_logs WHERE stream = %(stream)s"  # nosec B608
_CONFIRM = f"""
UPDATE stompring_logs SET confirmations = confirmations + 1 WHERE stream = %(stream)s
RETURNING {_HEAD_COLUMNS}
"""  # nosec B608

_READ = """
SELECT sequence, time, payload FROM (
    SELECT sequence, time, bytes, payload, sum(bytes) OVER (ORDER BY sequence) AS total
    FROM stompring_entries WHERE log = %(log)s::uuid AND sequence > %(after)s ORDER BY sequence LIMIT %(limit)s
) AS entry
WHERE total - bytes < %(most)s ORDER BY sequence
"""
_UNDER_KEY = """
SELECT sequence, time, payload FROM stompring_entries
WHERE log = %(log)s::uuid AND key = %(key)b ORDER BY sequence
"""
_FIRST, _LAST = f"{_UNDER_KEY} LIMIT 1", f"{_UNDER_KEY} DESC LIMIT 1"

_COUNTS = "SELECT key, count(*) FROM stompring_entries WHERE log = %(log)s::uuid GROUP BY key"

_PURGE = """
WITH old AS (
    SELECT sequence FROM stompring_entries
    WHERE log = %(log)s::uuid AND key = %(key)b AND sequence > %(after)s AND sequence <= %(through)s
    ORDER BY sequence LIMIT %(limit)s
), gone AS (
    DELETE FROM stompring_entries
    WHERE log = %(log)s::uuid AND sequence IN (SELECT sequence FROM old) RETURNING sequence, bytes
), head AS (
    UPDATE stompring_logs
    SET entries = entries - (SELECT count(*) FROM gone),
        stored_bytes = stored_bytes - (SELECT coalesce(sum(bytes), 0)::bigint FROM gone)
    WHERE stream = %(stream)s AND log = %(log)s::uuid AND EXISTS (SELECT sequence FROM gone)
    RETURNING stream
)
SELECT count(*), coalesce(max(sequence), 0), (SELECT count(*) FROM head) FROM gone
"""

_REQUEST = f"""
INSERT INTO stompring_requests VALUES (%(id)s::uuid, %(log)s::uuid, %(broker)s, %(command)s, {_NOW})
"""  # nosec B608
_REQUESTED = "SELECT id FROM stompring_requests WHERE id = %(id)s::uuid"
_WITHDRAW = "DELETE FROM stompring_requests WHERE id = %(id)s::uuid RETURNING id"
_REQUESTS = f"""
DELETE FROM stompring_requests
WHERE log = %(log)s::uuid AND (broker = %(broker)s OR (%(active)s::boolean AND broker = ''))
RETURNING command, time >= {_NOW} - %(age)s, time
"""  # nosec B608

_SETTINGS = f"""
SELECT {_STANDBYS}, current_setting('fsync', true), current_setting('full_page_writes', true),
    current_setting('synchronous_commit', true)
"""
_UNLOGGED = """
SELECT relname FROM pg_catalog.pg_class
WHERE oid IN ('stompring_logs'::regclass, 'stompring_entries'::regclass, 'stompring_requests'::regclass)
    AND relpersistence <> 'p'
"""
_STANDBY_STATES = "SELECT sync_state FROM pg_catalog.pg_stat_replication"

#: Settings of every session. A database that lacks a setting ignores it.
_SESSION = (
    f"SET statement_timeout = {round(CALL_TIMEOUT * 1000)}",
    f"SET lock_timeout = {round(CALL_TIMEOUT * 900)}",
    "SET default_transaction_isolation = 'read committed'",
)

#: Parameters of libpq, unless the URL sets them: a dead host is noticed within seconds.
_DEFAULTS = {
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "3000",
}

_INIT = "make it with `stompring ha init`"


class _TimedOut(psycopg.OperationalError):
    """There was no answer within the time of a call."""


class _Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection that waits for answers until ``deadline``. It does not cancel a late statement: a statement whose
    wait for the synchronous standby is cancelled counts as a success.
    """

    deadline = 0.0
    warned = False

    def on_notice(self, notice: errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.warned = True

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return waiting.wait(self._until_deadline(gen), self.pgconn.socket, interval)

    def _until_deadline(self, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if time.monotonic() >= self.deadline:
                    raise _TimedOut(
                        f"no answer within {CALL_TIMEOUT:.0f} s; if the server runs, its synchronous standby may not"
                    )
                if ready:  # not ready: nothing arrived within the interval
                    wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result


class _Head(NamedTuple):
    """The head of a log: the columns `_HEAD_COLUMNS` of its row."""

    identity: str
    log: str
    format: int
    last: int
    writer: int
    number: int
    entries: int
    bytes: int
    max_bytes: int
    standbys: str | None


class _Pending(NamedTuple):
    """An entry that was passed to `append` and is not known to be stored. ``unlimited``: stored even in a full log."""

    number: int
    key: bytes
    payload: bytes
    unlimited: bool


class PostgresLog:
    """A `ReplicatedLog`: the row ``stream`` of ``stompring_logs`` and its entries."""

    def __init__(self, settings: ReplicatedLogSettings) -> None:
        self._stream = settings.stream
        self._confirmed_sync = settings.confirmed_sync
        self._hosts = _hosts(settings)
        self._host = 0  # index of the host to try first
        self._timeouts = 0  # number of timeouts since the last answer
        self._share = 1.0  # fraction of `_APPEND_BYTES` and `_READ_BYTES`
        self._session: _Session | None = None
        self._identity = ""
        self._log = ""
        self._safe = False  # whether `_connection` has found that the log keeps confirmed entries
        self._end = 0  # the last known sequence of the log
        self._writer = 0
        self._number = 0
        self._sequence = 0  # sequence of this writer's last confirmed entry
        self._pending: deque[_Pending] = deque()
        self._deadline = 0.0

    # The interface.

    def connect(self) -> LogStatus:
        self._begin()
        self.close()
        return self._status()

    def status(self) -> LogStatus:
        self._begin()
        return self._status()

    def read(self, after: int, wait: float) -> list[LogEntry]:
        until = time.monotonic() + wait
        while True:
            self._begin()
            if self._end <= after:
                self._end = self._current_head(after).last
            if self._end > after:
                most = round(_READ_BYTES * self._share)
                rows = self._query(_READ, {"after": after, "limit": _READ_ENTRIES, "most": most})
                self._share = min(self._share * 2, 1.0)
                if rows:
                    entries = [_entry(row) for row in rows]
                    self._end = max(self._end, entries[-1].sequence)
                    return entries
            remaining = until - time.monotonic()
            if remaining <= 0:
                return []
            time.sleep(min(POLL_INTERVAL, remaining))

    def read_from_leader(self) -> None:
        """Do nothing: `read` always uses the primary."""

    def first(self, key: str) -> LogEntry | None:
        return self._one(_FIRST, key)

    def last(self, key: str) -> LogEntry | None:
        return self._one(_LAST, key)

    def _one(self, statement: str, key: str) -> LogEntry | None:
        self._begin()
        rows = self._query(statement, {"key": key.encode()})
        return _entry(rows[0]) if rows else None

    def counts(self) -> dict[str, int] | None:
        if self.status().entries > MAX_COUNTED:
            return None
        self._begin()
        rows = self._query(_COUNTS, {})
        return {key.decode(): count for key, count in rows}

    def claim(self, writer: int, after: int, change: FileChange) -> int | None:
        self._begin()
        self._writer = 0
        self._pending.clear()
        entry = _Pending(0, change.key.encode(), encode_entry(writer, 0, change), True)
        while not self._store(writer, after, [entry]):
            head = self._confirmed_head()
            if head.writer == _signed(writer) and head.number == 0 and after <= head.last <= after + 1:
                after = head.last - 1  # an earlier call has stored the claim, and its answer was lost
                break
            if head.last < after:
                raise self._lost(head, after)
            if head.last > after:
                return None
        self._writer, self._number, self._sequence = writer, 0, after + 1
        return self._sequence

    def append(self, changes: Sequence[FileChange]) -> int:
        if not self._writer:
            raise Fenced(f"this broker has not claimed the replicated log {self._stream}")
        for change in changes:
            self._number += 1
            payload = encode_entry(self._writer, self._number, change)
            self._pending.append(
                _Pending(self._number, change.key.encode(), payload, change.key.startswith("."))
            )
        self._begin()
        while self._pending:
            batch = self._batch()
            if self._store(self._writer, self._sequence, batch):
                self._stored(len(batch))
            else:
                self._resolve(sum(len(entry.payload) for entry in batch))
        return self._sequence

    def purge(self, key: str, through: int) -> None:
        self._begin()
        count, after = _PURGE_ENTRIES, 0
        while count == _PURGE_ENTRIES:
            rows = self._query(
                _PURGE,
                {
                    "key": key.encode(),
                    "after": after,
                    "through": through,
                    "limit": _PURGE_ENTRIES,
                },
            )
            count, after, _ = rows[0]

    def request(self, command: str, broker: str) -> bool:
        self._begin()
        request = {"id": str(uuid.uuid4()), "broker": broker, "command": command}
        self._query(_REQUEST, request)
        end = time.monotonic() + _REQUEST_TIMEOUT
        while time.monotonic() < end:
            time.sleep(POLL_INTERVAL)
            self._begin()
            if not self._query(_REQUESTED, request):
                return True
        self._begin()
        return not self._query(_WITHDRAW, request)

    def requests(self, broker: str, *, active: bool) -> list[str]:
        self._begin()
        rows = self._query(_REQUESTS, {"broker": broker, "active": active, "age": round(_REQUEST_AGE * 1000)})
        recent = sorted((moment, command) for command, is_recent, moment in rows if is_recent)
        return [command for _, command in recent]

    # Appending.

    def _batch(self) -> list[_Pending]:
        """Return the next pending entries for one statement."""
        batch: list[_Pending] = []
        size = 0
        for entry in self._pending:
            size += len(entry.payload)
            if batch and (size > _APPEND_BYTES * self._share or entry.unlimited != batch[0].unlimited):
                break
            batch.append(entry)
            if len(batch) == _APPEND_ENTRIES:
                break
        return batch

    def _store(self, writer: int, expected: int, batch: Sequence[_Pending]) -> bool:
        """Append ``batch`` after the sequence ``expected``. Returns False and changes nothing if the log does not end
        at ``expected``, or is full.
        """
        self._connection()
        rows = self._query(
            _APPEND,
            {
                "identity": self._identity,
                "expected": expected,
                "count": len(batch),
                "bytes": sum([len(entry.payload) for entry in batch]),
                "unlimited": batch[0].unlimited,
                "writer": _signed(writer),
                "number": batch[-1].number,
                "keys": [entry.key for entry in batch],
                "payloads": [entry.payload for entry in batch],
            },
        )
        self._share = min(self._share * 2, 1.0)
        stored, standbys = rows[0]
        self._check_confirmed(standbys)
        return bool(stored == len(batch))

    def _stored(self, count: int) -> None:
        for _ in range(count):
            self._pending.popleft()
        self._sequence += count
        self._end = max(self._end, self._sequence)

    def _resolve(self, size: int) -> None:
        """Find out which pending entries are stored, because the head was not at the expected sequence. ``size``: bytes
        of the pending entries.
        """
        head = self._confirmed_head()
        stored = head.last - self._sequence
        if stored < 0:
            raise self._lost(head, self._sequence)
        if stored == 0:
            if 0 <= head.max_bytes < head.bytes + size:
                raise LogFull(
                    f"the replicated log {self._stream} has {head.bytes} bytes of at most {head.max_bytes}"
                )
            return
        if (
            head.writer != _signed(self._writer)
            or stored > len(self._pending)
            or self._pending[stored - 1].number != head.number
        ):
            raise Fenced(
                f"another broker has written to the replicated log {self._stream}, from {head.last} on"
            )
        self._stored(stored)

    def _check_confirmed(self, standbys: object) -> None:
        """Raise `LogUnavailable` unless the last statement is on the standby as well."""
        session = self._session
        if session is not None and session.warned:
            session.warned = False
            raise LogUnavailable("PostgreSQL ended the wait for its synchronous standby: not confirmed")
        if not self._confirmed_sync and not standbys:
            raise LogUnavailable(
                "synchronous_standby_names of PostgreSQL is empty: not confirmed by a standby"
            )

    # The head.

    def _confirmed_head(self) -> _Head:
        """Return the head after a write that waits for the synchronous standby, which then has all earlier entries."""
        head = self._checked(self._query(_CONFIRM, {}))
        self._check_confirmed(head.standbys)
        return head

    def _current_head(self, after: int) -> _Head:
        head = self._checked(self._query(_HEAD, {}))
        if head.last < after:
            raise self._lost(head, after)
        return head

    def _checked(self, rows: list[tuple[Any, ...]]) -> _Head:
        if not rows:
            raise LogMissing(f"the database has no replicated log {self._stream}: {_INIT}")
        head = _Head._make(rows[0])
        if head.format != _FORMAT:
            raise UnsafeLog(
                f"replicated log {self._stream} has format {head.format}, this broker knows {_FORMAT}: "
                "upgrade stompring"
            )
        if self._identity and head.identity != self._identity:
            raise UnsafeLog(
                f"replicated log {self._stream} was created again ({head.identity} instead of {self._identity}): "
                "start the broker again"
            )
        return head

    def _lost(self, head: _Head, known: int) -> UnsafeLog:
        return UnsafeLog(
            f"replicated log {self._stream} has lost entries: it ends at {head.last}, this broker knows {known}. "
            "The database was restored, or a standby without synchronous replication became the primary"
        )

    def _status(self) -> LogStatus:
        head = self._current_head(0)
        session = self._connection()
        try:
            states = [row[0] for row in self._query(_STANDBY_STATES, {})]
        except (UnsafeLog, LogUnavailable):
            if self._session is not session:
                raise
            states = []  # the database lacks this view
        synchronous = states.count("sync") + states.count("quorum")
        return LogStatus(
            "postgresql",
            head.identity,
            head.last,
            head.entries,
            head.bytes,
            head.max_bytes,
            1 + len(states),
            f"{session.info.host}:{session.info.port}",
            # None: the user may not read the state of a standby
            self._confirmed_sync or None in states or synchronous >= _required(head.standbys),
        )

    # The connection.

    def _begin(self) -> None:
        """Set the deadline of a call."""
        self._deadline = time.monotonic() + CALL_TIMEOUT

    def _connection(self) -> _Session:
        """Return the session. Without one, connect to the first host that accepts writes, and check that its settings
        keep every confirmed entry.
        """
        if self._session is not None:
            self._session.deadline = self._deadline
            return self._session
        session = self._open()
        try:
            self._check_settings(session)
            self._session = session
            head = self._confirmed_head()
            self._safe = True
            self._identity, self._log = head.identity, head.log
            self._end = 0
        except BaseException:
            session.close()
            self._session = None
            raise
        return session

    def _open(self) -> _Session:
        faults = []
        for _ in range(len(self._hosts)):
            parameters = self._hosts[self._host]
            try:
                session = _Session.connect(make_conninfo("", **parameters), autocommit=True)
                session.add_notice_handler(session.on_notice)
                # one type for all integers, so that the database needs only one plan for each query
                session.adapters.register_dumper(int, Int8BinaryDumper)
                self._deadline = max(self._deadline, time.monotonic() + CALL_TIMEOUT / 2)
                session.deadline = self._deadline
                for statement in _SESSION:
                    with suppress(
                        errors.UndefinedObject, errors.FeatureNotSupported, errors.InvalidParameterValue
                    ):
                        session.execute(statement.encode(), prepare=False)
                return session
            except psycopg.Error as fault:
                host = parameters.get("host", "")
                faults.append(f"{host}:{parameters.get('port', '')}: {_text(fault)}")
                self._host = (self._host + 1) % len(self._hosts)
            if time.monotonic() > self._deadline:
                break
        raise LogUnavailable("no connection to PostgreSQL: " + "; ".join(faults))

    def _check_settings(self, session: _Session) -> None:
        try:
            row = session.execute(_SETTINGS, prepare=False).fetchone()
            assert row is not None
            standbys, fsync, full_pages, commit = row
            if commit is not None and commit not in ("on", "remote_apply"):
                session.execute("SET synchronous_commit = on", prepare=False)
            unlogged = session.execute(_UNLOGGED, prepare=False).fetchall()
        except psycopg.Error as fault:
            raise self._translated(fault) from None
        if unlogged:
            raise UnsafeLog(f"table {unlogged[0][0]} is unlogged: it is empty after a crash. {_INIT}")
        if self._confirmed_sync:
            return
        if fsync != "on" or full_pages != "on":
            raise UnsafeLog(
                f"PostgreSQL has fsync = {fsync} and full_page_writes = {full_pages}: both must be on; where the "
                "storage makes that unnecessary, set confirmed-sync"
            )
        if not standbys:
            text = (
                "synchronous_standby_names of PostgreSQL is empty: no standby confirms what is stored. Set it; "
                "where the storage itself has several copies, set confirmed-sync"
            )
            # at the start a fault of the configuration, later maybe a temporary effect of a failover
            raise LogUnavailable(text) if self._safe else UnsafeLog(text)

    def _query(self, statement: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement. Adds the parameters ``stream`` and ``log``. Retries after conflicts with
        other statements.
        """
        attempt = 0
        while True:
            session = self._connection()
            session.warned = False
            given = {**parameters, "stream": self._stream, "log": self._log}
            try:
                cursor = session.execute(statement.encode(), given, prepare=True, binary=True)
                self._timeouts = 0
                return cursor.fetchall() if cursor.description else []
            except (errors.SerializationFailure, errors.DeadlockDetected) as fault:
                attempt += 1
                pause = random.uniform(0.5, 1.0) * min(0.002 * 2**attempt, 0.2)  # nosec B311
                if time.monotonic() + pause > self._deadline:
                    raise LogUnavailable(f"PostgreSQL: {_text(fault)}, {attempt} times") from None
                time.sleep(pause)
            except psycopg.Error as fault:
                raise self._translated(fault) from None

    def _translated(self, fault: psycopg.Error) -> Exception:
        """Return the error of `ReplicatedLog` for a fault. Closes a connection that may be unusable."""
        state = fault.sqlstate
        text = f"PostgreSQL: {_text(fault)}"
        if isinstance(fault, _TimedOut):
            self.close()
            self._timeouts += 1
            self._share = max(self._share / 2, _LEAST_SHARE)
            if self._timeouts % _TIMEOUTS == 0:
                self._host = (self._host + 1) % len(self._hosts)
            return LogUnavailable(text)
        if state is None or state.startswith(("08", "57P", "25")):
            self.close()
            return LogUnavailable(text)
        if state == "53100":  # disk full
            return LogFull(text)
        if state in ("42P01", "42703"):  # undefined table, undefined column
            return LogMissing(f"the database has no tables of a replicated log, or others: {_INIT} ({text})")
        if state == "42501":  # insufficient privilege
            return UnsafeLog(f"{text}: grant SELECT, INSERT, UPDATE and DELETE on the tables stompring_*")
        return LogUnavailable(text)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def create_postgres_log(settings: ReplicatedLogSettings, max_bytes: int = -1) -> LogStatus:
    """Create missing tables and an empty log of at most ``max_bytes`` (-1: no limit).

    Raises `UnsafeLog` if the stream exists.
    """
    log = PostgresLog(settings)
    log._begin()
    session = log._open()

    def execute(statement: str, *parameters: object) -> psycopg.Cursor[tuple[Any, ...]]:
        session.deadline = time.monotonic() + CALL_TIMEOUT
        return session.execute(statement.encode(), parameters, prepare=False)

    try:
        for statement in _TABLES:
            execute(statement)
        for statement in _TUNING:
            # the log works without tuning, if this is not PostgreSQL or another user owns the tables
            with suppress(psycopg.ProgrammingError, psycopg.NotSupportedError):
                execute(statement)
        log._check_settings(session)
        made = execute(_CREATE, settings.stream, str(uuid.uuid4()), str(uuid.uuid4()), max_bytes).fetchall()
    except psycopg.Error as fault:
        raise log._translated(fault) from None
    finally:
        session.close()
    if not made:
        raise UnsafeLog(f"replicated log {settings.stream} exists already")
    try:
        return log.connect()
    finally:
        log.close()


def _hosts(settings: ReplicatedLogSettings) -> list[dict[str, str]]:
    """Return the parameters of libpq for each host of the URL."""
    try:
        given = conninfo_to_dict(settings.url)
    except psycopg.Error as fault:
        raise UnsafeLog(f"the URL of the replicated log is wrong: {_text(fault)}") from None
    parameters = {**_DEFAULTS, **{name: str(value) for name, value in given.items() if value is not None}}
    attributes = {
        "user": settings.user,
        "password": None if settings.password is None else revealed(settings.password),
        "sslrootcert": settings.ca,
        "sslcert": settings.certificate,
        "sslkey": settings.key or settings.certificate,
    }
    parameters.update({name: value for name, value in attributes.items() if value is not None})
    if settings.ca is not None:
        parameters.setdefault("sslmode", "verify-full")
    if parameters.get("target_session_attrs") != "primary":
        parameters["target_session_attrs"] = "read-write"
    parameters.setdefault("application_name", f"stompring {settings.broker}".strip()[:60])
    parameters["connect_timeout"] = "2"
    parameters["client_encoding"] = "utf8"
    lists = {name: parameters[name].split(",") for name in ("host", "hostaddr", "port") if name in parameters}
    count = max([len(lists[name]) for name in ("host", "hostaddr") if name in lists], default=1)
    hosts = []
    for place in range(count):
        one = dict(parameters)
        for name, values in lists.items():
            one[name] = values[place] if place < len(values) else values[0]
        hosts.append(one)
    return hosts


def _signed(writer: int) -> int:
    """Return the number of a writer as a ``bigint``."""
    return writer - (1 << 64) if writer >= 1 << 63 else writer


def _entry(row: tuple[Any, ...]) -> LogEntry:
    sequence, moment, payload = row
    return decode_entry(payload, sequence, moment)


def _required(standbys: str | None) -> int:
    """Return the number of standbys that must confirm a commit, from ``synchronous_standby_names``: ``a, b``,
    ``2 (a, b)``, ``ANY 2 (a, b, c)``.
    """
    words, _, listed = (standbys or "").partition("(")
    if listed:
        return next((int(word) for word in words.split() if word.isdecimal()), 1)
    return 1 if words.strip() else 0


def _text(fault: psycopg.Error) -> str:
    """Return the first line of a fault."""
    text = fault.diag.message_primary or str(fault) or type(fault).__name__
    return text.strip().splitlines()[0]
