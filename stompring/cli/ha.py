"""``stompring ha``: create a replicated log, show it, and change which broker is active.

The commands read broker.xml and connect to the engine, not to a broker: they work on any machine that reaches the
engine, even if no broker runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import click

from stompring.replication.log import (
    BEATS,
    Beat,
    LogEntry,
    LogFull,
    LogMissing,
    LogStatus,
    LogUnavailable,
    Operation,
    ReplicatedLog,
    UnsafeLog,
    decode_beat,
    this_process,
)
from stompring.settings.broker_xml import read_broker_xml
from stompring.settings.machine import DataDirectory, data_directory
from stompring.settings.model import BrokerConfiguration, ReplicatedLogSettings
from stompring.settings.value_types import byte_size

from .options import JSON, command, option
from .output import (
    DEFAULT,
    FAILED,
    UNREACHABLE,
    CommandFailed,
    JsonObject,
    Parsed,
    age_text,
    bytes_text,
    count_text,
    done,
    echo_json,
    existing,
    one_line,
    print_rows,
    progress,
    warn,
)

# The functions below import the engines themselves: an import at the top of the module would make --help slow.

#: Seconds in which an active broker appends at least one entry: it writes a beat every 0.5 s. Includes a margin for the
#: engine.
BEAT_WAIT = 3.0

#: Time limit in seconds for the first answer of the engine.
CONNECT_TIMEOUT = 10.0

#: Time limit in seconds for a change of the active broker.
PROMOTE_TIMEOUT = 30.0

#: Interval of ``--watch`` in seconds.
WATCH_INTERVAL = 2.0


@click.group()
def ha() -> None:
    """Create a replicated log, show it, and change which broker is active.

    The commands need the broker.xml with <replicated-log>, and a machine that reaches the engine; no broker has to run.

    \b
    Examples:
      stompring ha init --max-bytes 50GB
      stompring ha status
      stompring ha promote
    """


CONFIG = option("FILE", f"The broker.xml.  [default: {DEFAULT}]")


def read_settings(config: str | None) -> tuple[BrokerConfiguration, ReplicatedLogSettings]:
    """Return the configuration and the settings of its replicated log.

    Raises `ConfigurationError`, or `CommandFailed` if the configuration has no replicated log.
    """
    file = existing(config)
    configuration = read_broker_xml(file)
    settings = configuration.replicated_log
    if settings is None:
        raise CommandFailed(
            f'{file} has no <ha-policy><replicated-log url="…" stream="…"/></ha-policy>: there is no log to show'
        )
    return configuration, settings


@contextmanager
def reported() -> Iterator[None]:
    """Context manager: convert errors of the engine to errors of the command."""
    try:
        yield
    except UnsafeLog as fault:
        raise CommandFailed(str(fault)) from None
    except LogFull as fault:
        raise CommandFailed(f"the replicated log is full: {fault}") from None
    except LogUnavailable as fault:
        raise CommandFailed(f"the engine does not answer: {fault}", UNREACHABLE) from None


def opened(settings: ReplicatedLogSettings) -> closing[ReplicatedLog]:
    """A context manager that yields the log, not connected yet, and closes it."""
    from stompring.replication import engines

    return closing(engines.open_log(settings))


def connect(log: ReplicatedLog) -> LogStatus:
    """Connect to the engine. Tries again for `CONNECT_TIMEOUT` seconds: the engine may be electing a leader.

    Raises `LogUnavailable`, `UnsafeLog`.
    """
    end = time.monotonic() + CONNECT_TIMEOUT
    while True:
        try:
            return log.connect()
        except LogUnavailable:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


# ---- init


#: Minimum size of a log: a smaller one is full before the broker deletes entries.
MIN_BYTES = 64 * 1024 * 1024


def _log_size(text: str) -> int:
    size = byte_size(text)
    if size < MIN_BYTES:
        raise ValueError(f"must be at least {bytes_text(MIN_BYTES)}")
    return size


SIZE = Parsed("size", _log_size)


@command(ha)
def init(
    config: str | None = CONFIG,
    max_bytes: int | None = option(
        "SIZE",
        "Size of the log, for example 50GB, on each node. A full log is as a full disk: durable messages wait. "
        "Without it the disks of the engine are the limit.",
        type=SIZE,
    ),
    from_data: bool = option(
        "Upload the data directory of a broker that is stopped: its messages are in the log then."
    ),
    data: str | None = option("DIR", "Data directory, as for stompring run; needs --from-data."),
    dry_run: bool = option("Show what would be created, and create nothing."),
) -> None:
    """Create the replicated log of broker.xml: the stream of NATS, or the tables of PostgreSQL.

    A log that exists is never changed. With --from-data the messages of a broker without a replicated log are uploaded;
    that broker must be stopped, and its data directory is used by the broker again as its local copy.

    \b
    Examples:
      stompring ha init --max-bytes 50GB
      stompring ha init --max-bytes 50GB --dry-run
      stompring ha init --from-data --config /srv/orders/etc/broker.xml
    """
    from stompring.replication import engines
    from stompring.store.datadir import is_locked

    if data is not None and not from_data:
        raise click.UsageError("--data needs --from-data")
    configuration, settings = read_settings(config)
    directory = data_directory(configuration, data)
    where = f"log {settings.stream} at {settings.url}"
    with reported():
        if from_data:
            if is_locked(directory.root):
                raise CommandFailed(f"a broker runs on {directory.root}: stop it first")
            if not directory.journal.is_dir():
                raise CommandFailed(f"there is no data directory in {directory.root}: nothing to upload")
        if dry_run:
            _refuse_existing(settings)
            limit = "without a limit" if max_bytes is None else f"of at most {bytes_text(max_bytes)}"
            done(f"would create {where}, {limit}")
            if from_data:
                done(f"would upload {directory.root}")
            return
        engines.create_log(settings, -1 if max_bytes is None else max_bytes)
        done(f"created {where}")
        if max_bytes is None:
            warn("no --max-bytes: the log grows until a disk of the engine is full")
        if from_data:
            _upload(settings, directory)


def _refuse_existing(settings: ReplicatedLogSettings) -> None:
    """Raise `CommandFailed` if the log exists."""
    with opened(settings) as log:
        try:
            connect(log)
        except LogMissing:
            return
        except UnsafeLog as fault:
            raise CommandFailed(f"the log exists, and is not safe: {fault}") from None
    raise CommandFailed(f"the log {settings.stream} exists: 'stompring ha status' shows it")


def _upload(settings: ReplicatedLogSettings, directory: DataDirectory) -> None:
    from stompring.replication import engines
    from stompring.store.datadir import DataLock

    beat = replace(this_process(settings.broker), reason="stopped")
    lock = DataLock(directory.root)
    complete = False
    try:
        with opened(settings) as log, progress("bytes uploaded") as step:
            connect(log)
            size = engines.seed(log, directory, beat, step)
            complete = True
    except OSError as fault:
        raise CommandFailed(f"cannot upload {directory.root}: {fault}") from None
    finally:
        lock.release()
        if not complete:
            warn(
                f"the log {settings.stream} is incomplete, and no broker starts with it; the data directory is "
                f"unchanged. Delete the log, and begin again: {engines.deletion_of(settings)}"
            )
    done(f"uploaded {bytes_text(size)} of {directory.root}, which is a local copy of the log now")


# ---- status


class LogView(NamedTuple):
    """The result of `ha status`. ``active``: the last beat in the log, None if no broker has written one yet.

    ``released``: whether the broker stepped down with this beat. ``alive``: whether the active broker appended an entry
    while the command waited. ``copied``: sequence of the last entry in the local copy on this machine, None without a
    copy.
    """

    settings: ReplicatedLogSettings
    status: LogStatus | None = None
    unsafe: str | None = None
    active: Beat | None = None
    released: bool = False
    beat_time: int = 0  # time at which the engine stored the beat, epoch ms; 0 without a beat
    alive: bool = False
    copied: int | None = None

    @property
    def problems(self) -> list[str]:
        """The reasons why the log or its broker is not healthy."""
        found, status, beat = [], self.status, self.active
        if self.unsafe is not None:
            found.append(f"not safe: {self.unsafe}")
        if status and not status.healthy:
            found.append("too few nodes of the engine answer: one more that is lost stops the broker")
        if status and 0 < status.max_bytes <= status.bytes / FULL_SHARE:
            found.append(
                f"the log is almost full: {bytes_text(status.bytes)} of {bytes_text(status.max_bytes)}"
            )
        why = None
        if beat is None:
            why = "none has used this log yet" if self.unsafe is None else None
        elif self.released and beat.failures:
            why = (
                f"{beat.failures} in a row became active and could not start, {beat.broker} the last one; "
                "its log has the reason"
            )
        elif self.released:
            why = f"{beat.broker} has stepped down ({beat.reason or 'stopped'})"
        elif not self.alive:
            why = f"{beat.broker} is silent"
        if why:
            found.append(f"no broker is active: {why}")
        return found

    def as_json(self) -> JsonObject:
        """The output of ``--json``."""
        status, active = self.status, self.active
        return {
            "healthy": not self.problems,
            "problems": self.problems,
            "engine": status and status.engine,
            "url": self.settings.url,
            "stream": self.settings.stream,
            "identity": status and status.identity,
            "replicas": status and status.replicas,
            "leader": status and status.leader,
            "entries": status and status.entries,
            "lastSequence": status and status.last,
            "bytes": status and status.bytes,
            "maxBytes": status and status.max_bytes,
            "copiedSequence": self.copied,
            "safe": self.unsafe is None,
            "activeBroker": active.broker if active and self.alive else None,
            "lastBeat": self.beat_time or None,
            "lastBeatBroker": active and active.broker,
            "host": active and active.host,
            "pid": active and active.pid,
            "started": active and active.started,
            "version": active and active.version,
        }


#: Used share of the log above which it is almost full.
FULL_SHARE = 0.9


def look(log: ReplicatedLog, settings: ReplicatedLogSettings, *, connected: bool = False) -> LogView:
    """The state of a log. Raises `LogUnavailable`, and `LogMissing` if the log does not exist."""
    try:
        status = log.status() if connected else connect(log)
    except LogMissing:
        raise
    except UnsafeLog as fault:
        view = LogView(settings, unsafe=str(fault))
        with suppress(LogUnavailable, UnsafeLog):  # the engine may still report the status of an unsafe log
            view = view._replace(status=log.status())
        return view
    alive = bool(log.read(status.last, BEAT_WAIT))
    entry = log.last(BEATS)
    if entry is None:
        return LogView(settings, status)
    released = entry.change.operation is Operation.RELEASE
    return LogView(
        settings,
        status,
        None,
        decode_beat(entry.change.data),
        released,
        entry.time,
        alive and not released,
    )


@command(ha)
def status(
    config: str | None = CONFIG,
    data: str | None = option("DIR", "Data directory of the broker of this machine, as for stompring run."),
    as_json: bool = JSON,
    watch: bool = option(f"Show it every {WATCH_INTERVAL:.0f} seconds, until Ctrl-C."),
) -> None:
    """Show the replicated log, whether it is safe, and which broker is active.

    The exit status is 0 if the log is safe, its engine is complete and a broker is active; 1 if not; 5 if the engine
    does not answer. It looks for up to 3 seconds for an entry of the active broker. On the machine of a broker it also
    shows how far the local copy of that broker is.

    \b
    Examples:
      stompring ha status
      stompring ha status --watch
      stompring ha status --json | jq -r .activeBroker
    """
    from stompring.replication.copy import copied_sequence

    configuration, settings = read_settings(config)
    root = data_directory(configuration, data).root
    with reported(), opened(settings) as log:
        connected = False
        while True:
            view = look(log, settings, connected=connected)
            if view.status:
                view = view._replace(copied=copied_sequence(root, view.status))
            connected = view.unsafe is None
            _show(view, as_json, clear=watch)
            if not watch:
                break
            time.sleep(WATCH_INTERVAL)
    if view.problems:
        raise SystemExit(FAILED)


def _show(view: LogView, as_json: bool, clear: bool) -> None:
    if as_json:
        echo_json(view.as_json())
        return
    if clear:
        click.clear()
    problems = view.problems
    state = click.style(
        "NOT HEALTHY" if problems else "healthy", fg="red" if problems else "green", bold=True
    )
    click.echo(f"log {one_line(view.settings.stream)} at {one_line(view.settings.url)}: {state}")
    for each in problems:
        click.echo(f"  {one_line(each)}")
    print_rows([*_rows(view)])


def _rows(view: LogView) -> Iterator[tuple[str, str]]:
    status, beat = view.status, view.active
    if status:
        limit = "no limit" if status.max_bytes < 0 else f"of {bytes_text(status.max_bytes)}"
        yield "engine", status.engine
        yield "replicas", count_text(status.replicas)
        yield "leader", status.leader or "-"
        yield "size", f"{bytes_text(status.bytes)}, {limit}"
        yield "entries", f"{count_text(status.entries)}, the last is {status.last}"
        if view.copied is not None:
            last = max(status.last, view.copied, 1)  # the copy may have entries newer than the status
            yield (
                "copy on this machine",
                f"up to entry {view.copied} of {last}, {100 * view.copied // last} %",
            )
    yield "safe", "no" if view.unsafe else "yes"
    if beat:
        yield "active broker", beat.broker if view.alive else "none"
        yield "last beat", f"{beat.broker}, {age_text(view.beat_time)} ago"
        yield "process", f"{beat.pid} on {beat.host}, {beat.version}, up {age_text(beat.started)}"


# ---- promote and leave


@command(ha)
def promote(
    broker: str | None,
    config: str | None = CONFIG,
    timeout: float = option(
        "DURATION",
        "End the wait after so long, with exit status 1.",
        default=PROMOTE_TIMEOUT,
        show_default="30s",
    ),
) -> None:
    """Let a standby become active: the active broker steps down, BROKER or any standby takes over.

    BROKER is the attribute broker of its <replicated-log>, by default the broker's name, @ and its machine. The active
    broker stops in an orderly way with exit status 75, and a supervisor starts it again, as a standby. The command
    waits until another broker is active.

    \b
    Examples:
      stompring ha promote
      stompring ha promote orders@node2 --timeout 1m
    """
    _, settings = read_settings(config)
    with reported(), opened(settings) as log:
        after = connect(log).last
        active = _active(log, settings)
        if broker == active:
            done(f"{broker} is active already")
            return
        if broker is not None and not log.request("ping", broker):
            raise CommandFailed(f"no standby {broker} follows the log: nothing was changed")
        if not log.request("release" if broker is None else f"release {broker}", ""):
            raise CommandFailed(f"{active} did not receive the request: nothing was changed")
        for entry in _entries(log, after, timeout):
            if entry.change.operation is not Operation.CLAIM:
                continue
            found = decode_beat(entry.change.data).broker
            if broker is not None and found != broker:
                raise CommandFailed(f"{found} became active, not {broker}")
            if found == active:
                raise CommandFailed(f"{active} is active again: no other broker took over")
            done(f"{found} is active; {active} has stepped down")
            return
    raise CommandFailed(
        f"no broker became active in {timeout:.0f} seconds; 'stompring ha status' shows the log"
    )


def _active(log: ReplicatedLog, settings: ReplicatedLogSettings) -> str:
    """The name of the active broker. Raises `CommandFailed`."""
    view = look(log, settings, connected=True)
    if view.unsafe is not None:
        raise CommandFailed(view.unsafe)
    if view.active is None or not view.alive:
        raise CommandFailed("no broker is active: a standby takes over by itself, if one runs")
    return view.active.broker


def _entries(log: ReplicatedLog, after: int, timeout: float) -> Iterator[LogEntry]:
    """Yield the entries with a sequence above ``after`` as they arrive, for ``timeout`` seconds."""
    end = time.monotonic() + timeout
    while (left := end - time.monotonic()) > 0:
        try:
            found = log.read(after, min(left, 0.5))
        except LogUnavailable:  # the engine may be electing a leader
            time.sleep(min(left, 0.2))
            continue
        for entry in found:
            after = entry.sequence
            yield entry


@command(ha)
def leave(broker: str | None, config: str | None = CONFIG) -> None:
    """Stop a broker of the log permanently: BROKER, a standby or the active one; without BROKER the active one.

    It stops in an orderly way with exit status 0, after which a supervisor does not start it again. If it was active, a
    standby takes over.

    \b
    Examples:
      stompring ha leave orders@node2
      stompring ha leave
    """
    _, settings = read_settings(config)
    with reported(), opened(settings) as log:
        connect(log)
        name = _active(log, settings) if broker is None else broker
        if not log.request("leave", broker or ""):
            raise CommandFailed(f"{name} did not receive the request: no broker of that name follows the log")
    done(f"{name} stops")
