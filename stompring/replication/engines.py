"""The engines of a replicated log by URL, and the upload of a data directory to an empty log (``stompring ha init``).

The module of an engine is imported only if the URL names that engine: its packages are optional.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from secrets import randbits
from time import monotonic, sleep
from urllib.parse import urlsplit

from stompring.settings.machine import DataDirectory
from stompring.settings.model import ReplicatedLogSettings
from stompring.settings.network import NATS, POSTGRESQL
from stompring.store.datadir import VERSION

from .copy import LocalCopy, Places
from .log import (
    MAX_ENTRY_DATA,
    Beat,
    Contents,
    Fenced,
    FileChange,
    LogUnavailable,
    Operation,
    ReplicatedLog,
    Summary,
    UnsafeLog,
    encode_beat,
)

#: Maximum bytes of file contents in one append.
APPEND_BYTES = 4 * 1024 * 1024

#: Seconds for which an append is retried while the engine does not answer.
PATIENCE = 60.0

#: Contents of the schema version file during the upload: no broker starts with it.
INCOMPLETE = b"incomplete: the upload of 'stompring ha init' has not finished\n"


def seed(
    log: ReplicatedLog,
    directory: DataDirectory,
    beat: Beat,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> int:
    """Upload the files of a data directory. Returns their size in bytes, 0 without an upload if there are no messages.

    The caller ensures that no process changes the files. ``beat`` describes the writer. ``progress`` is called with the
    bytes stored and the bytes in total. Retained files are not uploaded. In the end the directory is the local copy of
    the log. Raises `UnsafeLog` if the log is not empty, `LogUnavailable`, `LogFull`, `OSError`. A failed upload leaves
    a log that no broker starts with.
    """
    places = Places(directory)
    files = places.files()
    if not places.has_messages():
        return 0
    if log.status().last:
        raise UnsafeLog("the replicated log is not empty: make a new one")
    claim = FileChange(Operation.CLAIM, data=encode_beat(replace(beat, contents=Summary())))
    if log.claim(randbits(62) + 1, 0, claim) is None:
        raise UnsafeLog("another broker has begun to write to the replicated log")
    version = directory.root / VERSION
    total = sum(path.stat().st_size for path in files)
    done = 0
    contents = Contents()
    _append(log, contents, [FileChange(Operation.WHOLE, VERSION, data=INCOMPLETE)])
    waiting: list[FileChange] = []
    size = 0
    for path in files:
        key = places.key(path)
        if path == version or key is None:
            continue
        for change in _changes(path, key):
            waiting.append(change)
            size += len(change.data)
            if size >= APPEND_BYTES:
                _append(log, contents, waiting)
                done += size
                waiting, size = [], 0
                progress(done, total)
    if version in files:
        waiting.append(FileChange(Operation.WHOLE, VERSION, data=version.read_bytes()))
    else:
        waiting.append(FileChange(Operation.REMOVE, VERSION, 1, b"%d" % contents.digests[VERSION]))
    _append(log, contents, waiting)
    released = encode_beat(replace(beat, contents=contents.summary))
    sequence = _append(log, contents, [FileChange(Operation.RELEASE, data=released)])
    LocalCopy(directory).adopt(log, sequence, contents)
    progress(total, total)
    return total


def _changes(path: Path, key: str) -> Iterator[FileChange]:
    with open(path, "rb") as file:
        at = 0
        while (data := file.read(MAX_ENTRY_DATA)) or not at:
            yield FileChange(Operation.WRITE, key, at, data)
            at += len(data)
            if not data:
                return


def _append(log: ReplicatedLog, contents: Contents, changes: Sequence[FileChange]) -> int:
    """Add serials to changes, and append the changes. Retries while the engine does not answer."""
    given: Sequence[FileChange] = [
        change._replace(serial=serial) if change.path else change
        for serial, change in enumerate(changes, contents.serial + 1)
    ]
    for change in given:
        contents.add(change)
    until = monotonic() + PATIENCE
    while True:
        try:
            return log.append(given)
        except LogUnavailable:
            if monotonic() >= until:
                raise
        except Fenced as fault:
            raise UnsafeLog(f"another broker has begun to write to the replicated log: {fault}") from None
        given = ()  # the log keeps these changes, and stores them in the next call
        sleep(0.2)


def open_log(settings: ReplicatedLogSettings) -> ReplicatedLog:
    """Return the log that the settings name, not connected. Raises `UnsafeLog` if the URL or a file in the settings
    cannot be used.
    """
    try:
        if _is_nats(settings):
            from .nats_log import NatsLog

            return NatsLog(settings)
        from .postgres_log import PostgresLog

        return PostgresLog(settings)
    except ImportError as fault:
        raise _missing(fault) from None


def create_log(settings: ReplicatedLogSettings, max_bytes: int) -> None:
    """Create an empty log of at most ``max_bytes`` (-1: no limit). Raises `UnsafeLog` if it exists."""
    try:
        if _is_nats(settings):
            from .nats_log import NatsLog

            with closing(NatsLog(settings)) as log:
                log.create(max_bytes)
        else:
            from .postgres_log import create_postgres_log

            create_postgres_log(settings, max_bytes)
    except ImportError as fault:
        raise _missing(fault) from None


def deletion_of(settings: ReplicatedLogSettings) -> str:
    """Return the engine's command that deletes the log with all its messages. Raises `UnsafeLog` for a wrong URL."""
    stream = settings.stream
    if _is_nats(settings):
        return f"nats stream rm {stream}"
    return (
        f"WITH gone AS (DELETE FROM stompring_logs WHERE stream = '{stream}' RETURNING log) "  # nosec B608: not run
        "DELETE FROM stompring_entries WHERE log IN (SELECT log FROM gone)"
    )


def _is_nats(settings: ReplicatedLogSettings) -> bool:
    scheme = urlsplit(settings.url).scheme
    if scheme in NATS | POSTGRESQL:
        return scheme in NATS
    raise UnsafeLog(f"url of the replicated log: {scheme!r} is not nats, tls or postgresql")


def _missing(fault: ImportError) -> UnsafeLog:
    return UnsafeLog(
        f"the replicated log needs packages that are not installed ({fault}): pip install stompring[ha]"
    )
