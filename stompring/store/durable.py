"""The store of a broker with persistence: an implementation of `Storage` with a journal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stompring.broker.address import Address
from stompring.broker.broker import Broker
from stompring.broker.clock import Clock, Reactor
from stompring.broker.ports import NamedValues
from stompring.broker.queue import Queue
from stompring.settings.model import BrokerConfiguration

from .bindings import Bindings, StoredIds
from .files import Disk, Files
from .journal import Compaction, Journal
from .page_recovery import PageRecovery
from .pages import Paging
from .recovery import Recovery
from .retention import Retention
from .segment import NO_IDENTITY
from .writer import Writer


class Durable:
    """The store of one broker in a directory of its own. ``notes``: JSON objects by number, see `store_value`."""

    def __init__(
        self,
        configuration: BrokerConfiguration,
        directory: Path,
        disk: Disk,
        reactor: Reactor,
        files: Files | None = None,
        identity: bytes = NO_IDENTITY,
    ) -> None:
        clock = Clock(reactor)
        self.files = files or Files()
        page_sync = configuration.page_sync_timeout
        self.writer = Writer(
            disk,
            clock,
            self.files,
            configuration.journal_buffer_timeout / 1e9,
            None if page_sync is None else page_sync / 1e9,
        )
        self.writer.sync_transactional = configuration.journal_sync_transactional
        self.writer.sync_others = configuration.journal_sync_non_transactional
        self.journal = Journal(
            directory,
            self.writer,
            clock,
            configuration.journal_file_size,
            sync=self.writer.sync_transactional or self.writer.sync_others,
        )
        self.journal.identity = identity
        self.compaction = Compaction(
            self.journal,
            clock,
            configuration.journal_compact_min_files,
            configuration.journal_compact_percentage,
        )
        self.write_limit = self.writer.write_limit
        self.keeps_all = False
        self.bindings = Bindings(self.journal)
        self.notes = self.bindings.values
        self.values = NamedValues(self.store_value)
        self.pages: Paging | None = None  # None: a broker without pages on disk
        self.lost_bytes = 0  # bytes of the journal that recovery could not read
        self.damaged: list[str] = []  # files and records that recovery set aside or skipped, for operators
        self.retention: Retention | None = None
        # bound methods of the journal, writer and bindings are faster than methods of this class that call them: the
        # broker calls some of them for each message
        self.append = self.journal.append
        self.settle = self.journal.settle
        self.returned = self.journal.returned
        self.postponed = self.journal.postponed
        self.delivered = self.journal.delivered
        self.log = self.journal.log
        self.record = self.journal.record
        self.begin = self.journal.begin_transaction
        self.commit = self.journal.commit
        self.when_synced = self.writer.when_synced
        self.drain = self.writer.drain
        self.unbind = self.bindings.unbind
        self._recovering = False

    @property
    def failing(self) -> str | None:
        """Why writes fail at the moment, None while they succeed."""
        return self.writer.failing

    # ---- bindings

    def bind(self, queue: Queue) -> None:
        if self._recovering:
            return
        # even if the queue is not durable: no other queue may get this number after a restart
        self.journal.reserve_queue(queue.number)
        if not queue.durable or queue.attributes.temporary:
            return
        self.bindings.bind(queue)

    def bind_address(self, address: Address) -> None:
        if not self._recovering:
            self.bindings.bind(address)

    def unbind_address(self, address: Address) -> None:
        self.bindings.unbind(address)
        ids = self.bindings.ids.pop(address, None)
        if ids is not None:
            ids.end()

    def remember(self, address: Address, identifier: bytes) -> None:
        ids = self.bindings.ids.get(address)
        if ids is None:
            ids = self.bindings.ids[address] = StoredIds(self.journal, address)
        ids.remember(identifier)

    def forgot(self, address: Address) -> None:
        ids = self.bindings.ids.get(address)
        if ids is not None:
            ids.drop_forgotten()
            self.journal.drop_dead()

    def forgot_all(self, address: Address) -> None:
        ids = self.bindings.ids.get(address)
        if ids is not None:
            ids.forget_all()
            self.journal.drop_dead()

    def store_value(self, number: int, value: Mapping[str, Any] | None) -> None:
        """Store a JSON object under a number, and replace an earlier object. None deletes it."""
        if value is None:
            self.notes.pop(number, None)
            self.bindings.unbind(number)
        else:
            self.notes[number] = value
            self.bindings.bind(number)

    # ---- the end

    def close(self) -> None:
        self.compaction.stop()
        if self.retention is not None:
            self.retention.stop()
        self.drain()
        self.journal.stop()
        self.writer.stop()

    # ---- recovery

    def retain(self, retention: Retention) -> None:
        """Move consumed journal and page files to ``retention`` instead of deleting them. Call it before `recover`."""
        self.retention = self.journal.retention = retention
        self.keeps_all = True

    def recover(self, broker: Broker) -> None:
        """Restore addresses, queues and messages into ``broker``. Raises `StoreError`."""
        for part in (self.writer, self.journal, self.compaction):
            part.clock = broker.clock
        self._recovering = True
        if self.retention is not None:
            self.retention.clock = broker.clock
            self.retention.begin()
        recovery = Recovery(self.journal, self.bindings, broker)
        paging = self.pages
        try:
            recovery.run(None if paging is None else lambda: PageRecovery(paging, recovery, broker).run())
        finally:
            self._recovering = False
        self.lost_bytes, self.damaged = recovery.lost_bytes, recovery.damaged
        self.writer.write_now()  # writes the reservation of message numbers, before the broker uses one of them
        for address in list(broker.directory.addresses.values()):
            if address.auto_created and not address.queues and address.pages is None:
                broker.consider_deleting_address(address)
        self.compaction.consider()
