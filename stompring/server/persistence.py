"""What a broker has on disk, put together: the directory's lock, the disk's threads, the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from stompring.broker import page_mode
from stompring.broker import paging as seam
from stompring.broker.broker import Broker
from stompring.broker.clock import Clock
from stompring.paging.paged_queues import TargetAreas
from stompring.settings.data_directory import data_directory
from stompring.settings.model import BrokerConfiguration
from stompring.store.datadir import DataLock
from stompring.store.durable import Durable
from stompring.store.files import Files
from stompring.store.paging import Paging
from stompring.store.retention import Retention
from stompring.store.samples import Samples
from stompring.store.writer import ReactorSync

from .disk import DiskMonitor, DiskThreads, LogUsage

log = logging.getLogger(__name__)

#: Journal files of Artemis. With its broker.xml, its data directory is taken too.
ARTEMIS_JOURNAL = "activemq-data-*.amq"

ARTEMIS_MESSAGES = (
    "%s has journal files of Artemis, whose messages are not read: 'artemis data exp' exports them, "
    "'stompring data import --from artemis-xml' imports them (docs/artemis.md)"
)


class Persistence:
    """Open from construction to `close`."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        data: str | None,
        reactor: Any,
        lock: DataLock | None = None,
        files: Files | None = None,
    ) -> None:
        """Take the data directory; ``data`` is one in place of the configured. Raises `StoreError`.

        ``lock`` is that of the directory, where this process has it already. With ``files`` of a replicated log the
        lock stays: the local copy is closed after this.
        """
        self.retention: Retention | None = None
        self.samples: Samples | None = None
        self.directory = data_directory(configuration, data)
        self._lock = lock or DataLock(self.directory.root)
        self._keeps_lock = files is not None
        if files is not None:
            self._lock.use(files)
        log.info("data directory: %s", self.directory.root)
        if any(self.directory.journal.glob(ARTEMIS_JOURNAL)):
            log.warning(ARTEMIS_MESSAGES, self.directory.journal)
        self.pool = DiskThreads(reactor)
        identity = self._lock.identity(self.directory.journal)
        self.durable = Durable(
            configuration, self.directory.journal, self.pool.writing, reactor, files, identity
        )
        is_idle: Callable[[], bool] | None = getattr(reactor, "is_idle", None)
        if is_idle is not None and not self.durable.files.replicated:
            self.durable.writer.reactor_sync = ReactorSync(Clock(reactor), is_idle)
        self.paging = self.durable.pages = Paging(
            self.durable.journal,
            self.durable.writer,
            self.pool.reading,
            Clock(reactor),
            self.directory.paging,
            purge=configuration.purge_page_folders,
            sync=configuration.journal_sync_transactional or configuration.journal_sync_non_transactional,
        )

        if self.directory.retention is not None:
            settings = configuration.journal_retention_directory
            assert settings is not None
            self.retention = Retention(
                settings, self.directory.retention, self.durable.writer, Clock(reactor), identity
            )
            self.durable.retain(self.retention)
            self.paging.retention = self.retention
            log.info("retaining consumed journal and page files in %s", self.directory.retention)

    def attach(self, broker: Broker) -> TargetAreas:
        """Let ``broker`` page."""
        dispatch = TargetAreas(broker)
        # it is only ever given pages and blocks of its own, which the types cannot know
        broker.paging = cast(seam.Paging, self.paging)
        self.paging.reads.account = dispatch.budget
        return dispatch

    def recover(self, broker: Broker) -> None:
        """Recover the journal and the pages. Raises `StoreError`."""
        self.durable.recover(broker)
        recovered, self.paging.recovered = self.paging.recovered, []
        for pages in recovered:
            page_mode.resume_paging(pages.address, cast(seam.Pages, pages))

    def take_samples(self, broker: Broker) -> None:
        """Begin with a sample of the queues there are, the configured ones too, before anybody sends to them."""
        if self.retention is not None and self.retention.settings.sample_period > 0:
            next_address = self.durable.journal.next_address
            self.samples = Samples(
                self.retention, broker, self.retention.settings.sample_period, next_address
            )
            self.samples.start()

    def disk_monitor(self, broker: Broker, log_usage: Callable[[], LogUsage] | None = None) -> DiskMonitor:
        """The monitor of the disks, and of the replicated log, that ``broker`` writes to."""
        paths = (self.directory.journal, self.directory.paging)
        # in the thread that reads: a measurement need not wait for a sync
        free = self.durable.compaction.consider
        return DiskMonitor(broker, self.pool.reading, paths, log_usage=log_usage, free=free)

    def stop(self) -> None:
        """The broker is about to stop: what is being written gets its end."""
        self.paging.stop()
        if self.samples is not None:
            self.samples.stop()

    def close(self) -> None:
        """Nothing is under way any more, and others may have the directory. The broker has stopped before."""
        self.pool.stop()
        if not self._keeps_lock:
            self._lock.release()
