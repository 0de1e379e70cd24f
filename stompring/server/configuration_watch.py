"""Reloads the configuration when its files have changed (``configuration-file-refresh-period``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from stompring.security.properties_file import Version, version_of

log = logging.getLogger(__name__)

Versions = dict[str, Version]


def versions_of(files: Iterable[str]) -> Versions:
    """The version of each file; None for a file that is missing or out of reach."""
    found: Versions = {}
    for file in files:
        try:
            found[file] = version_of(Path(file))
        except OSError:
            found[file] = None
    return found


class ConfigurationWatch:
    """Compares the versions of files with those that were read, every ``period`` ms, and calls ``reload``.

    The files are looked up in a thread: their disk may be slow. A file with a fault is reloaded once, and again when it
    or another of the files has changed. Without a period, or with 0 or less, nothing is checked.
    """

    def __init__(self, files: Iterable[str], period: int, reload: Callable[[], object], reactor: Any) -> None:
        self.known = versions_of(files)
        self._period = period
        self._reload = reload
        self._reactor = reactor
        self._running = self._checking = False
        self._timer: Any = None

    def start(self) -> None:
        """Begin to check."""
        self._running = True
        self._schedule()

    def stop(self) -> None:
        """Stop checking."""
        self._running = False
        self._cancel()

    def use(self, files: Iterable[str], period: int, before: Versions) -> None:
        """The ``files`` were read; ``before`` are the versions that were looked up before that."""
        files = list(files)
        self.known = versions_of(file for file in files if file not in before)
        self.known |= {file: before[file] for file in files if file in before}
        self._period = period
        self._schedule()

    def current(self) -> Versions:
        """The present versions of the known files."""
        return versions_of(self.known)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._cancel()
        if self._running and not self._checking and self._period > 0:
            self._timer = self._reactor.callLater(self._period / 1000, self._check)

    def _check(self) -> None:
        self._timer = None
        self._checking = True
        known = self.known
        found = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), self.current)
        found.addCallback(self._compare, known)
        found.addErrback(self._failed)
        found.addCallback(lambda _: self._checked())

    def _compare(self, found: Versions, known: Versions) -> None:
        if known is not self.known or not self._running:
            return  # a reload by somebody else has read the files meanwhile
        changed = [file for file, version in found.items() if version != known[file]]
        if changed:
            log.info("%s changed: reloading the configuration", ", ".join(changed))
            self.known = found
            self._reload()

    def _failed(self, failure: Failure) -> None:
        log.error("cannot check the configuration files for changes: %s", failure.getTraceback())

    def _checked(self) -> None:
        self._checking = False
        self._schedule()
