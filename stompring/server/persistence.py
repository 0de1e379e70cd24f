"""The persistence of a broker: the lock of the data directory, the disk threads, the store; and its health checks.

While a former standby recovers, its reactor is busy, and a thread answers the health checks over HTTP. Without this
thread they would fail during the recovery, and a service manager might restart the broker. Acceptors with TLS or the
PROXY protocol stay closed until the broker opens its own listeners.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial
from threading import Thread
from typing import Any, cast

from stompring.admin.api import Answer, problem_answer
from stompring.admin.http import plain_answer
from stompring.admin.standby import LIVE, READY, recovering_problem
from stompring.broker import ports as seam
from stompring.broker.address import Paging as BrokerPaging
from stompring.broker.address import resume_paging
from stompring.broker.broker import Broker
from stompring.broker.clock import Clock
from stompring.paging.paged_queue import TargetAreas
from stompring.settings.machine import data_directory
from stompring.settings.model import BrokerConfiguration
from stompring.store.datadir import DataLock
from stompring.store.durable import Durable
from stompring.store.files import Files
from stompring.store.pages import Paging
from stompring.store.retention import Retention, Samples
from stompring.store.writer import ReactorSync

from .disk import DiskMonitor, DiskThreads, LogUsage

log = logging.getLogger(__name__)

#: Maximum number of bytes of an HTTP request, and of open connections; further connections are closed.
MAX_REQUEST, MAX_CONNECTIONS = 8192, 64

Address = tuple[str, int]


@contextmanager
def answer_health(addresses: Sequence[Address], live: Answer, ready: Answer) -> Iterator[None]:
    """Context manager: a thread answers health checks at ``addresses`` while the body runs.

    It skips addresses that are in use.

    Each connection gets one answer: ``live``, ``ready``, or 503 for every other path. The addresses are free again when
    the body has ended.
    """
    listeners = [found for each in addresses if (found := _listener(each)) is not None]
    if not listeners:
        yield
        return
    stopped: Future[None] = Future()
    serving = _serve(listeners, partial(_response, live, ready), stopped)
    thread = Thread(target=asyncio.run, args=(serving,), name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set_result(None)
        thread.join()


async def _serve(
    listeners: Sequence[socket.socket], respond: Callable[[bytes], bytes], stopped: Future[None]
) -> None:
    """Serve until ``stopped``. Connections without a complete request get no answer."""
    number = 0  # number of open connections

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal number
        number += 1
        try:
            with closing(writer), suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
                if number <= MAX_CONNECTIONS:
                    writer.write(respond(await reader.readuntil(b"\r\n\r\n")))
        finally:
            number -= 1

    servers = [await asyncio.start_server(answer, sock=each, limit=MAX_REQUEST) for each in listeners]
    await asyncio.wrap_future(stopped)
    for server in servers:
        server.close()


def _listener(address: Address) -> socket.socket | None:
    host, port = address
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as fault:
        log.debug("health is not served at %s:%d during the recovery: %s", host, port, fault)
        found.close()
        return None
    return found


def _response(live: Answer, ready: Answer, request: bytes) -> bytes:
    method, _, rest = request.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    uri = rest.partition(" ")[0]
    served = {LIVE: live, READY: ready} if method in ("GET", "HEAD") else {}
    answer = served.get(uri.partition("?")[0]) or problem_answer(recovering_problem(), uri)
    return plain_answer(answer, body=method != "HEAD")


#: Names of Artemis's journal files. The data directory may contain some if the broker.xml comes from Artemis.
ARTEMIS_JOURNAL = "activemq-data-*.amq"

ARTEMIS_MESSAGES = (
    "%s has journal files of Artemis, whose messages are not read: 'artemis data exp' exports them, "
    "'stompring data import --from artemis-xml' imports them (docs/data.md)"
)


class Persistence:
    """The data directory and the store of a broker, open from construction to `close`."""

    retention: Retention | None = None
    samples: Samples | None = None

    def __init__(
        self,
        configuration: BrokerConfiguration,
        data: str | None,
        reactor: Any,
        lock: DataLock | None = None,
        files: Files | None = None,
        pool: DiskThreads | None = None,
    ) -> None:
        """Lock the data directory and open the store. Raises `StoreError`.

        ``data`` overrides the configured directory. ``lock``: lock of the directory, if this process has it already.
        ``files``: files of a replicated log; `close` then leaves the directory locked, because the local copy is still
        open. ``pool`` replaces the disk threads.
        """
        self.directory = directory = data_directory(configuration, data)
        self._lock = lock or DataLock(directory.root)
        self._keeps_lock = files is not None
        if files is not None:
            self._lock.use(files)
        log.info("data directory: %s", directory.root)
        if any(directory.journal.glob(ARTEMIS_JOURNAL)):
            log.warning(ARTEMIS_MESSAGES, directory.journal)
        self.pool = DiskThreads(reactor) if pool is None else pool
        identity = self._lock.identity(directory.journal)
        self.durable = durable = Durable(
            configuration, directory.journal, self.pool.writing, reactor, files, identity
        )
        is_idle: Callable[[], bool] | None = getattr(reactor, "is_idle", None)
        if is_idle is not None and not durable.files.replicated:
            durable.writer.reactor_sync = ReactorSync(Clock(reactor), is_idle)
        self.paging = durable.pages = Paging(
            durable.journal,
            durable.writer,
            self.pool.reading,
            Clock(reactor),
            directory.paging,
            purge=configuration.purge_page_folders,
            sync=configuration.journal_sync_transactional or configuration.journal_sync_non_transactional,
        )

        if directory.retention is not None:
            settings = configuration.journal_retention_directory
            assert settings is not None
            self.retention = retention = Retention(
                settings, directory.retention, durable.writer, Clock(reactor), identity
            )
            durable.retain(retention)
            self.paging.retention = retention
            log.info("retaining consumed journal and page files in %s", directory.retention)

    def attach(self, broker: Broker) -> TargetAreas:
        """Enable paging in ``broker``."""
        dispatch = TargetAreas(broker)
        # the cast is safe: the broker passes to ``paging`` only pages and blocks that came from it
        broker.paging = cast(BrokerPaging, self.paging)
        self.paging.reads.account = dispatch.budget
        return dispatch

    def recover(self, broker: Broker) -> None:
        """Recover the journal and the pages. Raises `StoreError`."""
        self.durable.recover(broker)
        recovered, self.paging.recovered = self.paging.recovered, []
        for pages in recovered:
            resume_paging(pages.address, cast(seam.Pages, pages))

    def take_samples(self, broker: Broker) -> None:
        """Take a first sample of all queues, and begin to take them periodically. Call it before clients can send."""
        if self.retention is not None and self.retention.settings.sample_period > 0:
            self.samples = Samples(
                self.retention,
                broker,
                self.retention.settings.sample_period,
                self.durable.journal.next_address,
            )
            self.samples.start()

    def disk_monitor(self, broker: Broker, log_usage: Callable[[], LogUsage] | None = None) -> DiskMonitor:
        """Return the monitor of the disks, and of the replicated log, of ``broker``."""
        return DiskMonitor(
            broker,
            self.pool.reading,  # not the writing thread, where a measurement would wait for a sync
            (self.directory.journal, self.directory.paging),
            log_usage=log_usage,
            free=self.durable.compaction.consider,
        )

    def stop(self) -> None:
        """Complete open pages and end the samples. Call it before the broker stops."""
        self.paging.stop()
        if self.samples is not None:
            self.samples.stop()

    def close(self) -> None:
        """End the disk threads, and release the lock of the data directory. Call it after the broker has stopped."""
        self.pool.stop()
        if not self._keeps_lock:
            self._lock.release()
