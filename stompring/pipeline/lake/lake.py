"""A lake: its tables, its folder with the state of ingests and replays, the lease of its writer, and its maintenance.

A lake on object storage has one writer at a time: the owner of a lease. The lease is an object that its owner renews.
If the owner is killed, the next process takes the lease over, after it has watched the object for the duration of the
lease and seen no renewal. So processes need not compare their clocks. A paused owner ends when it finds that another
process has taken over. Writes of this owner before its end are harmless: only one process can start a batch
(`Folder.create`), and a table accepts each batch once (`LakeTable.commit`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow.dataset as ds

from stompring.errors import PipelineError
from stompring.pipeline.arrays import ALL_ENDINGS, ENDINGS, TABLES
from stompring.pipeline.backlog import DirectoryReplaced, end_positions
from stompring.pipeline.files import (
    RETENTION,
    START,
    DataFiles,
    Positions,
    dump_positions,
    load_positions,
    table_batches,
)
from stompring.pipeline.options import TableScan
from stompring.pipeline.records import Records
from stompring.pipeline.storage import Folder, ObjectStore
from stompring.store.datadir import Busy, ingesting, read_ingested, record_ingested

from .data_files import BROKER, BUCKET, DATE
from .delta import (
    BUCKETS,
    Broker,
    LakeTable,
    Table,
    UnknownBroker,
    VersionNotFound,
    commits,
    identified_broker,
    ingested_until,
    iso_time,
)
from .views import Views

log = logging.getLogger(__name__)

#: Duration of a lease in seconds, and number of renewals in this time.
LEASE_SECONDS, RENEWALS = 30.0, 3

_LEASE_NAME = "ingest.lease"


class LeaseLost(Busy):
    """Another process may have taken over the lease: this process must stop writing."""


@dataclass
class Lease:
    """A lease on object storage (see the module). Methods raise `OSError` for failures of the storage."""

    _objects: ObjectStore
    _seconds: float
    _name: str = _LEASE_NAME
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _tag: str = ""
    _renewed: float = 0.0  # time of the last renewal, seconds of `clock`
    _lost: str | None = None

    def __post_init__(self) -> None:
        self._about: dict[str, Any] = {
            "owner": uuid4().hex,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "seconds": self._seconds,
            "renewal": 0,
        }
        self._mutex = Lock()  # held by the renewing thread, `check` and `release`

    @contextmanager
    def acquired(self) -> Iterator[Callable[[], None]]:
        """Context manager: hold and renew the lease. Yields `check`. Raises `Busy`."""
        self.acquire()
        over = Event()
        renewing = Thread(target=self._renew_until, args=(over,), name="lease", daemon=True)
        renewing.start()
        try:
            yield self.check
        finally:
            over.set()
            renewing.join()
            self.release()

    def acquire(self) -> None:
        """Acquire the lease if it is free, or wait until it expires. Raises `Busy` if its owner renews it."""
        while True:
            with suppress(FileExistsError):
                self._put(None)
                return
            try:
                about, tag = self._read()
            except FileNotFoundError:
                continue
            if about.get("owner") not in (None, self._about["owner"]):
                self._wait_for_end(about, tag)
            try:
                self._put(tag)
            except FileExistsError:
                raise self._busy() from None
            return

    def _put(self, tag: str | None) -> None:
        """Write the lease: replace the version ``tag`` of its object (None: create the object). Raises
        `FileExistsError` if another process has written the object."""
        began, data = self.clock(), json.dumps(self._about).encode()
        if tag is None:
            self._tag = self._objects.create(self._name, data)
        else:
            self._tag = self._objects.replace(self._name, data, tag)
        self._renewed = began

    def _read(self) -> tuple[dict[str, Any], str]:
        """Return the contents and the version tag of the lease. For a damaged lease, the contents name an unknown
        owner. Raises `FileNotFoundError`."""
        data, tag = self._objects.read(self._name)
        with suppress(ValueError):
            if isinstance(found := json.loads(data), dict):
                return found, tag
        return {"owner": "?"}, tag

    def _wait_for_end(self, about: dict[str, Any], tag: str) -> None:
        """Wait until the version ``tag`` of the lease expires. Raises `Busy` if its owner renews it."""
        seconds = float(about.get("seconds", self._seconds))
        deadline = self.clock() + seconds
        log.info("waiting up to %g s for %s to renew its lease", seconds, _owner_of(about))
        while (left := deadline - self.clock()) > 0:
            self.sleep(min(left, seconds / RENEWALS / 4))
            now = self._objects.head(self._name)
            if now is None or now.tag != tag:
                raise self._busy()
        log.warning("taking over the lease of %s: not renewed for %g s", _owner_of(about), seconds)

    def _busy(self) -> Busy:
        try:
            owner = _owner_of(self._read()[0])
        except FileNotFoundError:
            owner = "it"
        doing = "is ingesting" if self._name == _LEASE_NAME else "is rewriting files"
        return Busy(f"another process {doing}: {owner} holds {self._objects.url}/{self._name}")

    def check(self) -> None:
        """Raise `LeaseLost` if another process may have taken over. Call this before each write."""
        with self._mutex:
            if self._lost is None and self.clock() - self._renewed > self._seconds:
                self._renew()  # the lease has expired because this process was paused
            if self._lost is not None:
                raise LeaseLost(self._lost)

    def release(self) -> None:
        """Release the lease unless it is lost. The next process need not wait for its expiry."""
        with self._mutex:
            if self._lost is not None:
                return
            self._about["owner"] = None
            try:
                self._put(self._tag)
            except OSError as fault:
                log.warning("cannot release the lease: %s; the next ingest waits until it expires", fault)

    # ---- renewing

    def _renew_until(self, over: Event) -> None:
        while not over.wait(self._seconds / RENEWALS):
            with self._mutex:
                try:
                    self._renew()
                except OSError as fault:
                    log.warning("cannot renew the lease: %s; retrying", fault)
                if self._lost is not None:
                    log.error("%s", self._lost)
                    return

    def _renew(self) -> None:
        self._about["renewal"] += 1  # other contents, so that each version of the object has another tag
        began = self.clock()
        try:
            self._put(self._tag)
        except FileExistsError:
            about, tag = self._read()
            if about.get("owner") != self._about["owner"]:
                self._lost = f"lost the lease: {_owner_of(about)} took it over"
                return
            self._tag, self._renewed = tag, began  # the write succeeded, and its response was lost


def _owner_of(about: dict[str, Any]) -> str:
    return f"process {about.get('process', '?')} of host {about.get('host', '?')}"


_FOLDER = "batches"

#: Number of the newest intents that are kept. Older ones are deleted.
RETAINED_INTENTS = 20


class Intent(NamedTuple):
    """The plan of a batch: its number and its range of positions."""

    number: int
    start: Positions
    end: Positions


@dataclass
class IntentLog:
    """The intents of one broker of a lake. Each intent is a file."""

    _state: Folder

    def last(self) -> Intent | None:
        """Return the newest intent, None if there is none. Raises `ValueError` for a damaged file."""
        names = self._names()
        if not names:
            return None
        text = self._state.read(names[-1])
        try:
            document = json.loads(text)
            start, end = (load_positions(document[name]) for name in ("start", "end"))
            return Intent(int(document["batch"]), start, end)
        except (ValueError, KeyError, TypeError) as fault:
            raise ValueError(f"cannot read {self._state}/{names[-1]}: {fault!r}") from None

    def write(self, intent: Intent) -> None:
        """Write an intent durably. Raises `Busy` if another process has started the same batch."""
        document = {
            "version": 1,
            "batch": intent.number,
            "start": dump_positions(intent.start),
            "end": dump_positions(intent.end),
        }
        try:
            self._state.create(f"{_FOLDER}/{intent.number:09d}.json", json.dumps(document, indent=1).encode())
        except FileExistsError as fault:
            raise Busy(f"another process is ingesting: it started batch {intent.number} ({fault})") from None
        for name in self._names()[:-RETAINED_INTENTS]:
            self._state.remove(name)

    def _names(self) -> list[str]:
        return sorted(one.name for one in self._state.entries(_FOLDER) if one.name.endswith(".json"))


_COLUMNS = ("message_id", "queue", "timestamp")


def check_content(table: LakeTable, broker: str, files: DataFiles, positions: Positions) -> None:
    """Check that a data directory is the one that was ingested: the lake must have all messages of the newest ingested
    file that has messages.

    ``positions``: ends of the ingested parts of the directory. Raises `DirectoryReplaced` if messages are missing in
    the lake.
    """
    end_positions(files, ALL_ENDINGS, positions)  # raises if the directory ends before the positions
    every = files.every(ENDINGS["messages"])
    for one in sorted(every, key=lambda one: (one.folder == "journal", one.number), reverse=True):
        if one.number >= positions.get(one.folder, START).number or not (found := _messages(files, one.name)):
            continue
        number = ds.field("message_id")
        numbers = [each[0] for each in found]
        condition = (ds.field(BROKER) == broker) & (number >= min(numbers)) & (number <= max(numbers))
        known = _rows(table.dataset().to_table(list(_COLUMNS), filter=condition))
        if not found <= known:
            raise DirectoryReplaced(
                f"{files.root}/{one.name} has {len(found - known):,} messages that are missing in {table.folder}, "
                f"although that file of broker {broker!r} was ingested: the data directory belongs to another broker "
                "or was created anew; to ingest both into this lake, use another name: --as NAME"
            )
        return


def _messages(files: DataFiles, name: str) -> set[tuple[Any, ...]]:
    data = files.read(name)
    if data is None:
        return set()
    wanted = TableScan(columns=_COLUMNS, copies=False)
    return set().union(*(_rows(batch) for _, batch in table_batches(Records(data), wanted)))


def _rows(messages: Any) -> set[tuple[Any, ...]]:
    return set(zip(*(messages.column(name).to_pylist() for name in _COLUMNS), strict=True))


#: Name of the folder with the state of ingests, replays and views, in the folder of the lake.
STATE = "_stompring"

_LAKE_FILE = "lake.json"

#: File with the plan of a restore, until it is complete.
_RESTORE_FILE = "restore.json"

#: Version of a lake's format. In version 1 there was no column ``broker``, in version 2 ``events`` had one more column.
VERSION = 3


class LakeNotFound(PipelineError):
    """The location has no lake, or the lake is damaged, or this stompring does not support the lake's version."""


class Lake:
    """A lake. The constructor does not access the storage."""

    def __init__(self, where: str) -> None:
        """``where``: absolute path or URL of the lake, from `storage.resolve_location`."""
        self.folder = Folder(where)
        self.state = self.folder.folder(STATE)
        self._check: Callable[[], None] | None = None
        self.tables: Mapping[str, LakeTable] = {name: LakeTable(self.folder, name) for name in TABLES}
        self.views = Views(self.folder, self.state, self.tables["messages"], self.rewriting)

    def __str__(self) -> str:
        return self.folder.where

    def create(self, buckets: int = BUCKETS) -> None:
        """Create the missing parts of the lake. Raises `LakeNotFound` if a damaged or unsupported lake exists."""
        if self.state.exists(_LAKE_FILE):
            self.require()
        for table in self.tables.values():
            if not table.exists():
                table.create(buckets)
        if not self.state.exists(_LAKE_FILE):
            with suppress(FileExistsError):  # another process has created the file in the meantime
                self.state.create(_LAKE_FILE, _document(uuid4().hex, {}))

    def require(self) -> dict[str, Any]:
        """Return the contents of ``lake.json``. Raises `LakeNotFound` if it is missing, damaged or unsupported."""
        location = f"{self.state}/{_LAKE_FILE}"
        try:
            about = self.state.load(_LAKE_FILE)
            if about is None:
                raise LakeNotFound(
                    f"{self} is not a lake ({location} is missing): create one with 'stompring lake ingest'"
                )
            version, _ = int(about["version"]), about["id"]
        except (ValueError, KeyError, TypeError) as fault:
            raise LakeNotFound(f"{location} is damaged: {fault!r}") from None
        if version != VERSION:
            advice = (
                "use a newer stompring"
                if version > VERSION
                else "export it with the version of stompring that wrote it (lake sql, lake replay), or ingest the "
                "data directory into a new lake"
            )
            raise LakeNotFound(
                f"the lake {self} has version {version}, this stompring supports version {VERSION}: {advice}"
            )
        return dict(about)

    @cached_property
    def id(self) -> str:
        """Identifier of the lake. The retention directory of a broker has the ingested positions under this id."""
        return str(self.require()["id"])

    def brokers(self) -> dict[str, Broker]:
        """Return the brokers of the lake by name. Raises `LakeNotFound`."""
        about = self.require()
        try:
            return {name: Broker.loaded(name, entry) for name, entry in sorted(about["brokers"].items())}
        except (KeyError, TypeError, AttributeError) as fault:
            raise LakeNotFound(f"{self.state}/{_LAKE_FILE} is damaged: {fault!r}") from None

    def broker(self, name: str | None) -> str | None:
        """Return ``name``, or if it is None, the name of the only broker. Returns None if the lake has no brokers.

        Raises `UnknownBroker` for an unknown name, or if ``name`` is None and the lake has several brokers.
        """
        names = list(self.brokers())
        if name is None and len(names) > 1:
            raise UnknownBroker(f"is required: the lake {self} has several brokers: {', '.join(names)}")
        if name is not None and name not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise UnknownBroker(f"the lake {self} has no broker {name!r}; {known}")
        return name or next(iter(names), None)

    def remove_copies(self) -> None:
        """Delete the files with copies of messages that interrupted ingests have left. The caller must hold the lock
        `locked`."""
        for broker in self.brokers().values():
            self.state_folder(broker).remove_all("copies")

    def state_folder(self, broker: Broker) -> Folder:
        """Return the folder with the state of a broker's ingest."""
        return self.state.folder(broker.state)

    def admit(self, name: str, files: DataFiles) -> Broker:
        """Return the broker ``name``, and record the identity of its data directory. The caller must hold the lock
        `locked`.

        Completes an interrupted restore first. Raises `OptionError` if ``files`` is not a data directory, and
        `DirectoryReplaced` if the lake has another data directory for this broker.
        """
        self.complete_restore()
        identity, brokers = files.identity(), self.brokers()
        known = brokers.get(name)
        broker = identified_broker(
            brokers, name, None if identity is None else identity.hex(), files.root.where, str(self)
        )
        if broker == known:
            return broker
        if known is not None and known.identity is None:
            check_content(self.tables["messages"], name, files, self._ingested(known))
        self.state.write(_LAKE_FILE, _document(self.id, {**brokers, name: broker}))
        if known is not None and known.data not in (None, broker.data):
            log.info("data directory of broker %s moved from %s to %s", name, known.data, broker.data)
        return broker

    @contextmanager
    def locked(self, seconds: float = LEASE_SECONDS) -> Iterator[None]:
        """Context manager: hold the lock of the writer. Raises `Busy`.

        A local folder has a file lock, and S3 a lease of ``seconds``. Other storage has no lock: there a second writer
        fails later, when it starts a batch that this process has started.
        """
        with self._exclusive("lake", _LEASE_NAME, seconds) as self._check:
            try:
                yield
            finally:
                self._check = None

    def rewriting(self) -> AbstractContextManager[object]:
        """Return a context manager that holds the lock for replacing files (compaction, restore). Raises `Busy`.

        An ingest does not need this lock: it only adds files.
        """
        return self._exclusive("rewrite", "rewrite.lease")

    def _exclusive(
        self, lock: str, lease: str, seconds: float = LEASE_SECONDS
    ) -> AbstractContextManager[Callable[[], None] | None]:
        """Return a context manager that holds a lock or a lease. It yields `Lease.check` for a lease, else None."""
        if self.state.local is not None:
            return ingesting(self.state.local, lock)
        if self.state.objects is not None:
            return Lease(self.state.objects, seconds, lease).acquired()
        return nullcontext()

    def check_lock(self) -> None:
        """Raise `LeaseLost` if this process no longer holds the lease of `locked`."""
        if self._check is not None:
            self._check()

    def losses(self) -> list[str]:
        """Return a line for each file, or part of a file, that ingests could not read."""
        found: list[str] = []
        brokers = self.brokers()
        for broker in brokers.values():
            state = self.state_folder(broker)
            before = "" if len(brokers) == 1 else f"{broker.name}: "
            for one in sorted(state.entries("losses")):
                found += [f"{before}{line}" for line in state.load(one.name) or ()]
        return found

    def bytes(self) -> int:
        """Return the total size of the tables' files in bytes."""
        return sum(table.bytes() for table in self.tables.values() if table.exists())

    def _ingested(self, broker: Broker) -> Positions:
        """Return positions in a broker's files: ``messages`` has all messages before them."""
        last = IntentLog(self.state_folder(broker)).last()
        if last is None:
            return {}
        return last.end if self.tables["messages"].committed(broker.writer) >= last.number else last.start

    # ---- versions

    def versions(self, version: int | None, time: int | None) -> dict[str, int] | None:
        """Return the versions of all tables that belong to ``version`` of ``messages``, or to the version of
        ``messages`` that was the latest at ``time`` (epoch ms). None if both arguments are None. Raises
        `VersionNotFound`, `LakeNotFound`."""
        self.require()
        if version is None and time is None:
            return None
        known = {name: commits(table) for name, table in self.tables.items()}
        messages = known.pop("messages")
        if version is None:
            assert time is not None
            version = max((one.version for one in messages.values() if one.time <= time), default=None)
            if version is None:
                first = min(messages.values())
                raise VersionNotFound(
                    f"no lake existed at {iso_time(time)}: its history begins at {iso_time(first.time)}"
                )
        if version not in messages:
            raise VersionNotFound(
                f"version {version} does not exist: versions are {min(messages)} to {max(messages)}"
            )
        time = messages[version].time
        versions = {"messages": version}
        # An ingest commits to ``messages`` last: earlier commits to the other tables belong to this version.
        for name, one in known.items():
            versions[name] = max(
                (each.version for each in one.values() if each.time <= time), default=min(one)
            )
        for name, each in versions.items():
            if self.tables[name].has_missing_files(each):
                raise VersionNotFound(
                    f"version {each} of {name} cannot be read: 'lake vacuum' deleted some of its files"
                )
        return versions

    def restore(self, versions: Mapping[str, int]) -> None:
        """Restore versions of the tables. The caller must hold the lock `locked`.

        The next ingest reads the later parts of the broker's files again if they still exist. The plan of the restore
        is written first: after a crash the next writer completes it. Raises `VersionNotFound`.
        """
        self.complete_restore()
        done = ingested_until(self.tables["messages"], versions["messages"])
        begins = {name: dump_positions(done.get(name, {})) for name in self.brokers()}
        plan = {"version": 1, "tables": dict(versions), "positions": begins}
        self.state.save(_RESTORE_FILE, plan)
        self.complete_restore()

    def complete_restore(self) -> None:
        """Complete an interrupted restore if there is one. The caller must hold the lock `locked`."""
        plan = self.state.load(_RESTORE_FILE)
        if plan is None:
            return
        with self.rewriting():
            for name in sorted(plan["tables"]):
                self.check_lock()
                self.tables[name].restore(int(plan["tables"][name]))
        for name, broker in self.brokers().items():
            # Write the intent of an empty batch with the next number. The next ingest starts at its end.
            intents = IntentLog(self.state_folder(broker))
            last = intents.last()
            committed = [table.committed(broker.writer) for table in self.tables.values()]
            number = 1 + max(*committed, -1 if last is None else last.number)
            begin = load_positions(plan["positions"].get(name, {}))
            intents.write(Intent(number, begin, begin))
            self._mark(broker, begin)
        self.state.remove(_RESTORE_FILE)
        log.info("lake %s: restored to version %d", self, plan["tables"]["messages"])

    def _mark(self, broker: Broker, begin: Positions) -> None:
        """Reset the ingested positions in the broker's retention directory, so that the broker keeps the files that
        must be ingested again. Does nothing if this directory is not in the data directory."""
        directory = None if broker.data is None else Folder(f"{broker.data}/{RETENTION}").local
        try:
            if directory is not None and self.id in read_ingested(directory):
                record_ingested(directory, self.id, str(self), begin)
        except (OSError, ValueError) as fault:
            log.warning(
                "broker %s: cannot reset the ingested positions in its retention directory: %s",
                broker.name,
                fault,
            )

    # ---- reading

    def frames(self, spark: Any, *, versions: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return a DataFrame for each table, at the latest version or at ``versions``. Raises `LakeNotFound`."""
        self.require()
        return {name: table.frame(spark, (versions or {}).get(name)) for name, table in self.tables.items()}

    def register(self, spark: Any, versions: Mapping[str, int] | None = None) -> None:
        """Register the tables and views under their names for Spark's SQL."""
        for name, frame in self.frames(spark, versions=versions).items():
            frame.createOrReplaceTempView(name)
        for view in self.views.every():
            view.frame(spark, (versions or {}).get("messages")).createOrReplaceTempView(view.name)


def _document(identifier: str, brokers: Mapping[str, Broker]) -> bytes:
    """Return the contents of ``lake.json``."""
    entries = {name: brokers[name].dumped() for name in sorted(brokers)}
    return json.dumps({"version": VERSION, "id": identifier, "brokers": entries}, indent=1).encode()


#: Approximate size of a compacted file in bytes. Files smaller than half of it are called small.
TARGET_BYTES = 128 << 20

#: Seconds between two runs of vacuum.
VACUUM_INTERVAL = 3600.0


@dataclass
class MaintenanceCounts:
    """Numbers of files by table that compaction replaced and that vacuum deleted."""

    compacted: Counter[str] = field(default_factory=Counter)
    vacuumed: Counter[str] = field(default_factory=Counter)


@dataclass
class Maintenance:
    """Maintenance of a lake's tables: compaction and vacuum."""

    lake: Lake
    small_files: int | None  # compact a day or view with more small files than this; None: no compaction
    hours: int | None  # vacuum deletes files that were unreferenced for this number of hours; None: no vacuum
    now: Callable[[], float] = time.monotonic
    done: MaintenanceCounts = field(default_factory=MaintenanceCounts)  # counts of the last `run_due`
    _looked: float | None = None  # time of the last vacuum, seconds of `now`

    def run_due(self) -> None:
        """Run the maintenance that is due. Raises `OSError` and delta-rs's exceptions; the tables stay consistent."""
        self.done = MaintenanceCounts()
        if self.small_files is not None:
            for table in self.lake.tables.values():
                for date in days_to_compact(table, self.small_files):
                    with self.lake.rewriting():
                        self._compact(table, f"{table.name} of {date}", date)
            for view in self.lake.views.materialized():
                if view.small_files(TARGET_BYTES // 2) > self.small_files:
                    self._compact(view, f"view {view.name}")
        if self.hours is not None and (self._looked is None or self.now() - self._looked >= VACUUM_INTERVAL):
            self._looked = self.now()
            self.lake.check_lock()  # vacuum would delete files that another writer is about to commit
            for name, table in self.lake.tables.items():
                keep = list(needed_versions(self.lake)) if name == "messages" else []
                gone = len(table.vacuum(self.hours, dry_run=False, keep=keep))
                self.done.vacuumed[name] += gone
                if gone:
                    log.info("%s: vacuumed %d files unreferenced for %d hours", name, gone, self.hours)
            for view in self.lake.views.materialized():
                self.done.vacuumed[view.name] += len(view.vacuum(self.hours, dry_run=False))

    def _compact(self, table: Table, what: str, date: str | None = None) -> None:
        made, gone = table.compact(TARGET_BYTES, date)
        self.done.compacted[table.name] += gone
        log.info("%s: compacted %d files into %d", what, gone, made)


def days_to_compact(table: LakeTable, most: int) -> list[str]:
    """Return the days that have more than ``most`` small files in one bucket."""
    counts = Counter(
        (str(file[f"partition.{DATE}"]), file[f"partition.{BUCKET}"])
        for file in table.actions().to_pylist()
        if file["size_bytes"] < TARGET_BYTES // 2
    )
    return sorted({day for (day, _), count in counts.items() if count > most})


def needed_versions(lake: Lake) -> Iterator[int]:
    """Yield the versions of ``messages`` that incomplete replays need."""
    for name in [one.name for one in lake.state.entries("replays", deep=True)]:
        replay, _, file = name.rpartition("/")
        if file == "plan.json" and not lake.state.exists(f"{replay}/complete.json"):
            yield int(lake.state.load(name)["tableVersion"])
