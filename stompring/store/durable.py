"""The store as the broker knows it: `Storage`, with a journal behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from stompring.broker.address import Address, as_address
from stompring.broker.clock import Clock, Reactor
from stompring.broker.ports import Entries, Reason
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference
from stompring.settings.model import BrokerConfiguration

from .bindings import AddressBinding, NamedValue, QueueBinding, ReplayedIds, StoredIds
from .encoder import RecordBatchByConsumer
from .files import Disk, Files
from .journal import Compaction, Journal
from .recovery import Recovery
from .replay import Replay
from .retention import Retention
from .segment import NO_IDENTITY, JournalSegment, LiveRecord
from .writer import Writer

if TYPE_CHECKING:
    from stompring.broker.broker import Broker


class RecoverablePages(Protocol):
    """What is on disk beside the journal."""

    def recover(self, recovery: Recovery, broker: Broker) -> None:
        """Make pages anew; addresses and queues are there, messages in memory come after them."""


class Durable:
    """Durable messages and queues of one broker in one directory, which no other process writes to.

    ``notes`` are JSON objects stored under a number (see `note`).
    """

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
        both = configuration.journal_sync_transactional or configuration.journal_sync_non_transactional
        self.files = files or Files()
        page_sync = configuration.page_sync_timeout
        self.writer = Writer(
            disk,
            clock,
            self.files,
            configuration.journal_buffer_timeout / 1e9,
            None if page_sync is None else page_sync / 1e9,
        )
        self.journal = Journal(directory, self.writer, clock, configuration.journal_file_size, sync=both)
        self.journal.identity = identity
        self.compaction = Compaction(
            self.journal,
            clock,
            configuration.journal_compact_min_files,
            configuration.journal_compact_percentage,
        )
        self.write_limit = self.writer.write_limit
        self.keeps_all = False
        self.notes: dict[int, Mapping[str, Any]] = {}
        self.pages: RecoverablePages | None = None  # what is on disk beside the journal, where something is
        self.recovery: Recovery | None = None
        self.retention: Retention | None = None
        # the hot ones go straight to the journal
        self.append: Callable[[Reference], None] = self.journal.append
        self.append_scheduled: Callable[[Reference], None] = self.journal.append_scheduled
        self.settle: Callable[[Reference, Reason], None] = self.journal.settle
        self.returned: Callable[[Reference], None] = self.journal.returned
        self.postponed: Callable[[Reference], None] = self.journal.postponed
        self.delivered: Callable[[Reference], None] = self.journal.delivered
        self.log: Callable[[Reference, int], None] = self.journal.log
        self.record: Callable[[Entries], None] = self.journal.record
        self.begin: Callable[..., None] = self.journal.begin_transaction
        self.commit: Callable[[], None] = self.journal.commit
        self._sync_transactional = configuration.journal_sync_transactional
        self._sync_others = configuration.journal_sync_non_transactional
        self._queues: dict[Queue, QueueBinding] = {}
        self._addresses: dict[Address, AddressBinding] = {}
        self._notes: dict[int, NamedValue] = {}
        self._ids: dict[Address, StoredIds] = {}
        self._recovering = False

    @property
    def failing(self) -> str | None:
        """Why nothing can be written at the moment, None while all is well."""
        return self.writer.failing

    # ---- bindings

    def bind(self, queue: Queue) -> None:
        """See `Storage.bind`. Of non-durable queues only the number is reserved, so that it is not used again."""
        if self._recovering:
            return
        self.journal.reserve_queue(queue.number)
        if not queue.durable or queue.attributes.temporary:
            return
        self.journal.bind(self._queue_binding(queue))

    def _queue_binding(self, queue: Queue) -> QueueBinding:
        binding = self._queues.get(queue)
        if binding is None:
            binding = self._queues[queue] = QueueBinding(queue)
        return binding

    def unbind(self, queue: Queue) -> None:
        binding = self._queues.pop(queue, None)
        if binding is not None:
            self.journal.unbind(binding)

    def bind_address(self, address: Address) -> None:
        if self._recovering:
            return
        self.journal.bind(self._address_binding(address))

    def _address_binding(self, address: Address) -> AddressBinding:
        binding = self._addresses.get(address)
        if binding is None:
            binding = self._addresses[address] = AddressBinding(address)
        return binding

    def unbind_address(self, address: Address) -> None:
        binding = self._addresses.pop(address, None)
        if binding is not None:
            self.journal.unbind(binding)
        ids = self._ids.pop(address, None)
        if ids is not None:
            ids.end()

    def remember(self, address: Address, identifier: bytes) -> None:
        ids = self._ids.get(address)
        if ids is None:
            ids = self._ids[address] = StoredIds(self.journal, address)
        ids.remember(identifier)

    def forgot(self, address: Address) -> None:
        ids = self._ids.get(address)
        if ids is not None:
            ids.drop_forgotten()
            self.journal.drop_dead()

    def forgot_all(self, address: Address) -> None:
        ids = self._ids.get(address)
        if ids is not None:
            ids.forget_all()
            self.journal.drop_dead()

    def store_value(self, number: int, value: Mapping[str, Any] | None) -> None:
        """Store a JSON object under a number, replacing an older one; None deletes it."""
        if value is None:
            self.notes.pop(number, None)
            ended = self._notes.pop(number, None)
            if ended is not None:
                ended.gone = True
                self.journal.update(ended)
            return
        self.notes[number] = value
        note = self._notes.get(number)
        if note is None:
            note = self._notes[number] = NamedValue(number, value)
        note.value = value
        self.journal.update(note)

    # ---- safety

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """See `Storage.when_synced`; ``journal-sync-…`` says who need not wait."""
        if self._sync_transactional if transactional else self._sync_others:
            self.writer.when_synced(call)
        else:
            call()

    def drain(self) -> bool:
        return self.writer.drain()

    def close(self) -> None:
        self.compaction.stop()
        if self.retention is not None:
            self.retention.stop()
        self.drain()
        self.journal.stop()
        self.writer.stop()

    # ---- recovery

    def retain(self, retention: Retention) -> None:
        """Keep there what is done with. Before `recover`."""
        self.retention = self.journal.retention = retention
        self.journal.batch_type = RecordBatchByConsumer
        self.keeps_all = True

    def recover(self, broker: Broker) -> None:
        """See `Storage.recover`. Raises `StoreError`."""
        for part in (self.writer, self.journal, self.compaction):
            part.clock = broker.clock
        self._recovering = True
        if self.retention is not None:
            self.retention.clock = broker.clock
            self.retention.begin()
        self.recovery = Recovery(
            self, Replay(self.files, self.journal.directory, self.journal.identity), broker
        )
        try:
            self.recovery.run()
        finally:
            self._recovering = False
        self.writer.write_now()  # the lease of message numbers, before the first of them is used
        for address in list(broker.directory.addresses.values()):
            if address.auto_created and not address.queues and address.pages is None:
                broker.consider_deleting_address(address)
        self.compaction.consider()

    def rebind(self, queue: Queue) -> None:
        """A queue was restored, and its address with it perhaps, of which the journal does not know enough."""
        self.journal.bind(self._queue_binding(queue))
        self.rebind_address(as_address(queue.address))

    def rebind_address(self, address: Address) -> None:
        """The same of an address alone."""
        self.journal.bind(self._address_binding(address))

    def adopt_queue(self, queue: Queue, segment: JournalSegment) -> None:
        """A queue was restored, whose binding is in ``segment``."""
        self._queues[queue] = _adopt(QueueBinding(queue), segment)

    def adopt_address(self, address: Address, segment: JournalSegment) -> None:
        """The same of an address."""
        self._addresses[address] = _adopt(AddressBinding(address), segment)

    def adopt_ids(self, address: Address, found: ReplayedIds, recovery: Recovery) -> None:
        """An address was restored, of whose duplicate ids this was found."""
        ids = self._ids[address] = StoredIds(self.journal, address)
        ids.restore(found, recovery)

    def adopt_note(self, number: int, value: Mapping[str, Any], segment: JournalSegment) -> None:
        """The same of a note."""
        self.notes[number] = value
        self._notes[number] = _adopt(NamedValue(number, value), segment)


K = TypeVar("K", bound=LiveRecord)


def _adopt(record: K, segment: JournalSegment) -> K:
    record.segment = segment
    segment.live[record] = record
    return record
