"""One writer at a time for a lake on object storage: a lease, an object that its owner renews.

A killed owner no longer renews it, and the next process takes it over. No clocks are compared: a waiting process
watches the object for the duration of the lease. An owner that was paused finds that the lease was taken over, and
ends. What it does in the moment before that does no harm either: a batch is begun by one
process alone (`Folder.create`), and a table takes each batch once (`LakeTable.commit`).
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any
from uuid import uuid4

from stompring.pipeline.storage import ObjectStore
from stompring.store.ingested import Busy

log = logging.getLogger(__name__)

#: Seconds without a renewal after which another process takes over; how many renewals there are in that time.
LEASE_SECONDS, RENEWALS = 30.0, 3

_NAME = "ingest.lease"


class LeaseLost(Busy):
    """Another process has taken over; this one must write no more."""


class Lease:
    """See the module. Methods raise `OSError` for a store that does not answer."""

    def __init__(
        self,
        objects: ObjectStore,
        seconds: float = LEASE_SECONDS,
        name: str = _NAME,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._objects = objects
        self._clock, self._sleep = clock, sleep
        self._name = name
        self._seconds = seconds
        self._about: dict[str, Any] = {
            "owner": uuid4().hex,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "seconds": seconds,
            "renewal": 0,
        }
        self._tag = ""
        self._renewed = 0.0  # by the clock
        self._lost: str | None = None
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
            began = self._clock()
            try:
                self._tag = self._objects.create(self._name, self._document())
                self._renewed = began
                return
            except FileExistsError:
                pass
            try:
                data, tag = self._objects.read(self._name)
            except FileNotFoundError:
                continue
            if not self._is_mine(data):
                self._wait_for_end(data, tag)
            began = self._clock()
            try:
                self._tag = self._objects.replace(self._name, self._document(), tag)
            except FileExistsError:
                raise self._busy() from None
            self._renewed = began
            return

    def _wait_for_end(self, data: bytes, tag: str) -> None:
        """Until the version with this tag was there so long that its owner must be dead. Raises `Busy`."""
        about = _parsed(data)
        if about.get("owner") is None:
            return
        seconds = float(about.get("seconds", self._seconds))
        deadline = self._clock() + seconds
        log.info("waiting up to %g s for %s to renew its lease", seconds, _owner_of(about))
        while (left := deadline - self._clock()) > 0:
            self._sleep(min(left, seconds / RENEWALS / 4))
            now = self._objects.head(self._name)
            if now is None or now.tag != tag:
                raise self._busy()
        log.warning("taking over the lease of %s: not renewed for %g s", _owner_of(about), seconds)

    def _busy(self) -> Busy:
        try:
            owner = _owner_of(_parsed(self._objects.read(self._name)[0]))
        except FileNotFoundError:
            owner = "it"
        doing = "is ingesting" if self._name == _NAME else "is rewriting files"
        return Busy(f"another process {doing}: {owner} holds {self._objects.url}/{self._name}")

    def check(self) -> None:
        """Raises `LeaseLost` where another process may have taken over. To be called before each write."""
        with self._mutex:
            if self._lost is None and self._clock() - self._renewed > self._seconds:
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
                self._objects.replace(self._name, self._document(), self._tag)
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
        began = self._clock()
        try:
            self._tag = self._objects.replace(self._name, self._document(), self._tag)
        except FileExistsError:
            data, tag = self._objects.read(self._name)
            if not self._is_mine(data):
                self._lost = f"lost the lease: {_owner_of(_parsed(data))} took it over"
                return
            self._tag = tag  # it was written, and the answer was lost on its way
        self._renewed = began

    def _document(self) -> bytes:
        return json.dumps(self._about).encode()

    def _is_mine(self, data: bytes) -> bool:
        return bool(_parsed(data).get("owner") == self._about["owner"])


def _parsed(data: bytes) -> dict[str, Any]:
    """What a lease says; one that cannot be read is somebody's, and ends as others do."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"owner": "?"}


def _owner_of(about: dict[str, Any]) -> str:
    return f"process {about.get('process', '?')} of host {about.get('host', '?')}"
