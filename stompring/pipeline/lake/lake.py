"""A lake: its tables, the state of ingests and replays, and the lease of its writer.

One writer at a time for a lake on object storage: a lease, an object that its owner renews.

A killed owner no longer renews it, and the next process takes it over. No clocks are compared: a waiting process
watches the object for the duration of the lease. An owner that was paused finds that the lease was taken over, and
ends. What it does in the moment before that does no harm either: a batch is begun by one
process alone (`Folder.create`), and a table takes each batch once (`LakeTable.commit`).

A lake: its tables, the folder with the state of ingests and replays, and the plan of each batch.
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

#: Seconds without a renewal after which another process takes over; how many renewals there are in that time.
LEASE_SECONDS, RENEWALS = 30.0, 3

_LEASE_NAME = "ingest.lease"


class LeaseLost(Busy):
    """Another process has taken over; this one must write no more."""


@dataclass
class Lease:
    """See the module. Methods raise `OSError` for a store that does not answer."""

    _objects: ObjectStore
    _seconds: float
    _name: str = _LEASE_NAME
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _tag: str = ""
    _renewed: float = 0.0  # by the clock
    _lost: str | None = None

    def __post_init__(self) -> None:
        self._about: dict[str, Any] = {
            "owner": uuid4().hex,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "seconds": self._seconds,
            "renewal": 0,
        }
        self._mutex = Lock()  # between the thread that renews and who checks

    @contextmanager
    def acquired(self) -> Iterator[Callable[[], None]]:
        """While it is held and renewed; gives what checks that it still is (`check`). Raises `Busy`."""
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
        """Take it, at once or when its owner is dead. Raises `Busy`."""
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
        """Write it, in place of the version with a tag, None for a new one. Raises `FileExistsError`."""
        began, data = self.clock(), json.dumps(self._about).encode()
        if tag is None:
            self._tag = self._objects.create(self._name, data)
        else:
            self._tag = self._objects.replace(self._name, data, tag)
        self._renewed = began

    def _read(self) -> tuple[dict[str, Any], str]:
        """Return the lease and the tag of its version. A damaged lease has an unknown owner, and expires as others do.
        Raises `FileNotFoundError`."""
        data, tag = self._objects.read(self._name)
        with suppress(ValueError):
            if isinstance(found := json.loads(data), dict):
                return found, tag
        return {"owner": "?"}, tag

    def _wait_for_end(self, about: dict[str, Any], tag: str) -> None:
        """Until the version with this tag was there so long that its owner must be dead. Raises `Busy`."""
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
        """Raises `LeaseLost` where another process may have taken over. To be called before each write."""
        with self._mutex:
            if self._lost is None and self.clock() - self._renewed > self._seconds:
                self._renew()  # this process was stopped for a while
            if self._lost is not None:
                raise LeaseLost(self._lost)

    def release(self) -> None:
        """Let the next one have it at once, if it is still this one's."""
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
        self._about["renewal"] += 1  # so that each version has a tag of its own
        began = self.clock()
        try:
            self._put(self._tag)
        except FileExistsError:
            about, tag = self._read()
            if about.get("owner") != self._about["owner"]:
                self._lost = f"lost the lease: {_owner_of(about)} took it over"
                return
            self._tag, self._renewed = tag, began  # it was written, and the answer was lost on its way


def _owner_of(about: dict[str, Any]) -> str:
    return f"process {about.get('process', '?')} of host {about.get('host', '?')}"


_FOLDER = "batches"

#: How many are kept.
RETAINED_INTENTS = 20


class Intent(NamedTuple):
    """Batch ``number``: what is between two positions."""

    number: int
    start: Positions
    end: Positions


@dataclass
class IntentLog:
    """Those of one lake, the last one first to be asked for."""

    _state: Folder

    def last(self) -> Intent | None:
        """The newest one, None before the first. Raises `ValueError` for a file that cannot be read."""
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
        """Remember one, for good when this returns. Raises `Busy` where another process has begun the same batch."""
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
    """Look up messages of the newest file that was ingested wholly and has some.

    ``positions`` are those up to which the lake has the directory. Raises `DirectoryReplaced` where the lake has
    others.
    """
    end_positions(files, ALL_ENDINGS, positions)  # it goes as far as that
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


#: Below a lake, beside its tables.
STATE = "_stompring"

_LAKE_FILE = "lake.json"

#: A restore that is under way.
_RESTORE_FILE = "restore.json"

#: Of ``lake.json``. The tables of version 1 had no column ``broker``, those of version 2 had ``certain`` in ``events``.
VERSION = 3


class LakeNotFound(PipelineError):
    """There is none where one was looked for, or none that this version of stompring can use."""


class Lake:
    """See the module. Opens nothing until it is asked."""

    def __init__(self, where: str) -> None:
        """``where`` as `storage.resolve_location` gives it."""
        self.folder = Folder(where)
        self.state = self.folder.folder(STATE)
        self._check: Callable[[], None] | None = None
        self.tables: Mapping[str, LakeTable] = {name: LakeTable(self.folder, name) for name in TABLES}
        self.views = Views(self.folder, self.state, self.tables["messages"], self.rewriting)

    def __str__(self) -> str:
        return self.folder.where

    def create(self, buckets: int = BUCKETS) -> None:
        """Make what is not there of it. Raises `LakeNotFound` for one that this version of stompring cannot use."""
        if self.state.exists(_LAKE_FILE):
            self.require()
        for table in self.tables.values():
            if not table.exists():
                table.create(buckets)
        if not self.state.exists(_LAKE_FILE):
            with suppress(FileExistsError):  # another process has made it meanwhile
                self.state.create(_LAKE_FILE, _document(uuid4().hex, {}))

    def require(self) -> dict[str, Any]:
        """What ``lake.json`` says. Raises `LakeNotFound` where there is none, and where it is of another version."""
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
        """What names it to the broker."""
        return str(self.require()["id"])

    def brokers(self) -> dict[str, Broker]:
        """The brokers that were ingested into it, by their names. Raises `LakeNotFound`."""
        about = self.require()
        try:
            return {name: Broker.loaded(name, entry) for name, entry in sorted(about["brokers"].items())}
        except (KeyError, TypeError, AttributeError) as fault:
            raise LakeNotFound(f"{self.state}/{_LAKE_FILE} is damaged: {fault!r}") from None

    def broker(self, name: str | None) -> str | None:
        """The name of the broker that is meant: without one the only broker, None where there is none yet.

        Raises `UnknownBroker` for a name that the lake does not know, and where none is given and there are several.
        """
        names = list(self.brokers())
        if name is None and len(names) > 1:
            raise UnknownBroker(f"is required: the lake {self} has several brokers: {', '.join(names)}")
        if name is not None and name not in names:
            known = f"it has {', '.join(names)}" if names else "it has none"
            raise UnknownBroker(f"the lake {self} has no broker {name!r}; {known}")
        return name or next(iter(names), None)

    def remove_copies(self) -> None:
        """What ingests that ended too early have left behind: for who has `locked` it."""
        for broker in self.brokers().values():
            self.state_folder(broker).remove_all("copies")

    def state_folder(self, broker: Broker) -> Folder:
        """What an ingest of a broker must remember."""
        return self.state.folder(broker.state)

    def admit(self, name: str, files: DataFiles) -> Broker:
        """The broker of this name, whose data directory is ``files``: for who has `locked` the lake.

        It is remembered by its identity. Raises `OptionError` for what is no data directory, and `DirectoryReplaced`
        for another one than the lake knows under this name.
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
        """While one process writes to it no other does: by a lock on this machine, by a lease on S3. Raises `Busy`.

        ``seconds`` is how long the lease holds when its owner is killed. Where there is neither, a second process is
        found out later, when it begins a batch that this one has begun.
        """
        with self._exclusive("lake", _LEASE_NAME, seconds) as self._check:
            try:
                yield
            finally:
                self._check = None

    def rewriting(self) -> AbstractContextManager[object]:
        """While one process puts files in place of others (a compaction, a restore) no other does. Raises `Busy`.

        An ingest goes on meanwhile: it only adds files.
        """
        return self._exclusive("rewrite", "rewrite.lease")

    def _exclusive(
        self, lock: str, lease: str, seconds: float = LEASE_SECONDS
    ) -> AbstractContextManager[Callable[[], None] | None]:
        """While this process has a lock or a lease; gives what checks that it still has the lease."""
        if self.state.local is not None:
            return ingesting(self.state.local, lock)
        if self.state.objects is not None:
            return Lease(self.state.objects, seconds, lease).acquired()
        return nullcontext()

    def check_lock(self) -> None:
        """Raises `LeaseLost` where this process holds it no more."""
        if self._check is not None:
            self._check()

    def losses(self) -> list[str]:
        """What could not be ingested, told once for each batch."""
        found: list[str] = []
        brokers = self.brokers()
        for broker in brokers.values():
            state = self.state_folder(broker)
            before = "" if len(brokers) == 1 else f"{broker.name}: "
            for one in sorted(state.entries("losses")):
                found += [f"{before}{line}" for line in state.load(one.name) or ()]
        return found

    def bytes(self) -> int:
        """The size of its tables' files."""
        return sum(table.bytes() for table in self.tables.values() if table.exists())

    def _ingested(self, broker: Broker) -> Positions:
        """Up to where the messages of a broker are in the lake."""
        last = IntentLog(self.state_folder(broker)).last()
        if last is None:
            return {}
        return last.end if self.tables["messages"].committed(broker.writer) >= last.number else last.start

    # ---- versions

    def versions(self, version: int | None, time: int | None) -> dict[str, int] | None:
        """The versions of the tables that belong to a version of ``messages``, or to the last one at a time (epoch ms).

        None where neither is given. Raises `VersionNotFound`, `LakeNotFound`.
        """
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
        for name, one in known.items():  # an ingest commits to them before it does to ``messages``
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
        """Let the tables be as they were at some versions: for who has `locked` the lake.

        What was ingested since is ingested again by the next ingest, as far as the broker still has it. What is to be
        done is written down first; after a crash the next writer completes it. Raises `VersionNotFound`.
        """
        self.complete_restore()
        done = ingested_until(self.tables["messages"], versions["messages"])
        begins = {name: dump_positions(done.get(name, {})) for name in self.brokers()}
        plan = {"version": 1, "tables": dict(versions), "positions": begins}
        self.state.save(_RESTORE_FILE, plan)
        self.complete_restore()

    def complete_restore(self) -> None:
        """Do what is left of a restore that was cut short: for who has `locked` the lake."""
        plan = self.state.load(_RESTORE_FILE)
        if plan is None:
            return
        with self.rewriting():
            for name in sorted(plan["tables"]):
                self.check_lock()
                self.tables[name].restore(int(plan["tables"][name]))
        for name, broker in self.brokers().items():
            # a batch without anything, above all that were committed: what comes behind it begins where the table ends
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
        """Let the broker keep what is to be ingested again, where its retained files are in its data directory."""
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
        """A DataFrame for each table, as it is at this moment or was at some versions. Raises `LakeNotFound`."""
        self.require()
        return {name: table.frame(spark, (versions or {}).get(name)) for name, table in self.tables.items()}

    def register(self, spark: Any, versions: Mapping[str, int] | None = None) -> None:
        """Let SQL know the tables and views by their names."""
        for name, frame in self.frames(spark, versions=versions).items():
            frame.createOrReplaceTempView(name)
        for view in self.views.every():
            view.frame(spark, (versions or {}).get("messages")).createOrReplaceTempView(view.name)


def _document(identifier: str, brokers: Mapping[str, Broker]) -> bytes:
    """``lake.json``."""
    entries = {name: brokers[name].dumped() for name in sorted(brokers)}
    return json.dumps({"version": VERSION, "id": identifier, "brokers": entries}, indent=1).encode()


#: Bytes of the files that compaction makes, about. Smaller than half of that is small.
TARGET_BYTES = 128 << 20

#: Seconds between two times that files of no use are looked for.
VACUUM_INTERVAL = 3600.0


@dataclass
class MaintenanceCounts:
    """What upkeep has done, by table: files that were put together, and files that were deleted."""

    compacted: Counter[str] = field(default_factory=Counter)
    vacuumed: Counter[str] = field(default_factory=Counter)


@dataclass
class Maintenance:
    """See the module. None for a rule switches it off."""

    lake: Lake
    small_files: int | None  # more of them in one partition of a table are put together
    hours: int | None  # for which a file must have been of no use
    now: Callable[[], float] = time.monotonic
    done: MaintenanceCounts = field(default_factory=MaintenanceCounts)  # the last time
    _looked: float | None = None

    def run_due(self) -> None:
        """Do what is due. Raises `OSError` and what delta-rs raises: nothing is half done then."""
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
            self.lake.check_lock()  # it would delete what another process is about to commit
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
    """The days of which some partition has more small files than that."""
    counts = Counter(
        (str(file[f"partition.{DATE}"]), file[f"partition.{BUCKET}"])
        for file in table.actions().to_pylist()
        if file["size_bytes"] < TARGET_BYTES // 2
    )
    return sorted({day for (day, _), count in counts.items() if count > most})


def needed_versions(lake: Lake) -> Iterator[int]:
    """The versions of ``messages`` that replays which are not complete go on with."""
    for name in [one.name for one in lake.state.entries("replays", deep=True)]:
        replay, _, file = name.rpartition("/")
        if file == "plan.json" and not lake.state.exists(f"{replay}/complete.json"):
            yield int(lake.state.load(name)["tableVersion"])
