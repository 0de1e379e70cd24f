"""Importing into the data directory of a stopped broker, through the broker's own store and without its listeners.

Everything is restored: delivery counts, due times, senders and timestamps. What does not fit into the configured memory
is paged, as in a running broker.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import count
from typing import Any, cast
from zlib import crc32

import click

from stompring.broker import page_mode
from stompring.broker import paging as seam
from stompring.broker.address import Address
from stompring.broker.broker import Broker
from stompring.broker.directory import MAX_NAME
from stompring.broker.duplicates import add_id, cache_size, is_known, is_persisted
from stompring.broker.last_value import LastValueQueue
from stompring.broker.message import Message
from stompring.broker.paging import Pages
from stompring.broker.queue import Queue, QueueAttributes
from stompring.broker.reference import GONE, SCHEDULED, Reference
from stompring.cli.data_transfer import check_declared
from stompring.errors import Refused
from stompring.paging.paged_queues import TargetAreas
from stompring.policy.hooks import Policies
from stompring.settings.data_directory import DataDirectory
from stompring.settings.machine_memory import default_global_max_size, machine_memory
from stompring.settings.model import BrokerConfiguration, QueueConfiguration
from stompring.settings.options import CREATE_ONLY, options_of
from stompring.store.bindings import attributes_of
from stompring.store.datadir import DataLock
from stompring.store.durable import Durable
from stompring.store.export import (
    DeclaredQueue,
    PortableAddress,
    PortableMessage,
    PortableQueue,
    QueueEntry,
)
from stompring.store.paging import Paging

#: Messages beyond that are paged, as under a `global-max-size`: a file of any size can be imported.
MOST_MEMORY = 256 * 1024 * 1024

#: The id of duplicate detection, and what only a copy has that the broker made.
DUPLICATE_ID, ORIGIN = b"_AMQ_DUPL_ID", b"_AMQ_ORIG_ADDRESS"


class OfflineReactor:
    """Time for a broker that serves nobody: what it wants to do later is done when `turn` is called."""

    def __init__(self) -> None:
        self._calls: list[ScheduledCall] = []
        self._order = count()

    def seconds(self) -> float:
        return time.time()

    def callLater(self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any) -> ScheduledCall:
        made = ScheduledCall(self.seconds() + delay, next(self._order), lambda: call(*args, **kw))
        heapq.heappush(self._calls, made)
        return made

    def turn(self) -> None:
        """Do all that is due, and what comes of it."""
        while self._calls and self._calls[0].due <= self.seconds():
            made = heapq.heappop(self._calls)
            if made.call is not None:
                call, made.call = made.call, None
                call()


class ScheduledCall:
    """Something to be done later."""

    def __init__(self, due: float, order: int, call: Callable[[], object]) -> None:
        self.due = due
        self.call: Callable[[], object] | None = call
        self._order = order

    def __lt__(self, other: ScheduledCall) -> bool:
        return (self.due, self._order) < (other.due, other._order)

    def active(self) -> bool:
        return self.call is not None

    def cancel(self) -> None:
        self.call = None


class InlineDisk:
    """Does what is to be done in this thread: nobody else needs it. See `store.disk.Disk`."""

    def __init__(self, reactor: OfflineReactor) -> None:
        self._results: list[tuple[Callable[[Any], None], Any]] = []
        self._reactor = reactor

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = job()
        except Exception as fault:
            result = fault
        self._results.append((done, result))
        self._reactor.callLater(0, self.finish)

    def finish(self) -> None:
        while self._results:
            done, result = self._results.pop(0)
            done(result)


#: Attributes that cannot be changed once a queue is there.
IMMUTABLE = (
    "routing_type",
    *(row.name for row in options_of(QueueConfiguration) if row.http == CREATE_ONLY),
)


class OfflineImport:
    """Takes in what an import finds in its file. ``begin`` first, then everything in the order of the file.

    Raises `StoreError` where a broker runs on the directory.
    """

    most_messages, most_bytes = 5000, 4 * 1024 * 1024

    def __init__(
        self, directory: DataDirectory, configuration: BrokerConfiguration, *, again: bool = False
    ) -> None:
        if configuration.file is None:
            configuration = replace(configuration, global_max_size=default_global_max_size(machine_memory()))
        if not 0 <= configuration.global_max_size <= MOST_MEMORY:
            configuration = replace(configuration, global_max_size=MOST_MEMORY)
        self._lock = DataLock(directory.root)
        try:
            self._reactor = OfflineReactor()
            disk = InlineDisk(self._reactor)
            identity = self._lock.identity(directory.journal)
            self._storage = Durable(configuration, directory.journal, disk, self._reactor, identity=identity)
            self._broker = Broker(configuration, self._reactor, Policies(), self._storage)
            self._paging = self._page_to(directory, disk)
            self._storage.recover(self._broker)
            for pages in self._paging.recovered:
                page_mode.resume_paging(pages.address, cast(seam.Pages, pages))
            self._paging.recovered = []
        except BaseException:
            self._lock.release()
            raise
        self._configured = {
            queue.name: queue for address in configuration.addresses for queue in address.queues
        }
        self._again = again
        self._note = 0
        self._name = ""
        self._batch: list[PortableMessage] = []
        self._elsewhere: dict[str, Address] = {}

    def _page_to(self, directory: DataDirectory, disk: InlineDisk) -> Paging:
        """Let the broker page, as `server.persistence` does for one that runs."""
        storage, broker = self._storage, self._broker
        paging = storage.pages = Paging(
            storage.journal, storage.writer, disk, broker.clock, directory.paging, purge=True
        )
        broker.paging = cast(seam.Paging, paging)
        paging.reads.account = TargetAreas(broker).budget
        return paging

    def close(self) -> None:
        """Leave the directory as a broker would that stops."""
        try:
            self._paging.stop()
            self._broker.stop()
        finally:
            self._lock.release()

    # ---- the file

    def begin(self, marker: str) -> int:
        """How many messages of this file have come already."""
        self._name, self._note = marker, crc32(marker.encode())
        note = self._storage.notes.get(self._note, {})
        if note.get("import") != marker:
            return 0
        if not note.get("complete"):
            return int(note.get("done", 0))
        if not self._again:
            raise click.ClickException(
                "this file was already imported completely; use --again to import it again"
            )
        return 0

    def address(self, address: PortableAddress) -> None:
        """Make an address, or give one that is there the routing types it lacks."""
        directory = self._broker.directory
        live = directory.addresses.get(address.name)
        try:
            if live is None:
                live = directory.create_address(
                    address.name,
                    address.routing_types,
                    auto_created=address.auto_created,
                    configured=address.configured,
                )
            live.paused = address.paused
            directory.update_address(live, live.routing_types | address.routing_types)
        except Refused as reason:
            raise click.ClickException(f"address {address.name}: {reason}") from None

    def queue(self, queue: PortableQueue) -> None:
        """Make a queue, or give one that is there the same attributes."""
        try:
            attributes = attributes_of(queue.attributes)
            configured = queue.as_configured
            live = self._queue(queue, attributes)
            live.as_configured = None if configured is None else attributes_of(configured)
        except Refused as reason:
            raise click.ClickException(f"queue {queue.name}: {reason}") from None
        live.no_local = queue.no_local
        live.paused = queue.paused
        live.update_filter()
        live.address.changed()
        self._storage.bind(live)

    def _queue(self, queue: PortableQueue, attributes: QueueAttributes) -> Queue:
        directory = self._broker.directory
        live = directory.queues.get(queue.name)
        if live is not None:
            self._check(live, queue, attributes)
            directory.update_queue(live, _changes(live, attributes))
            return live
        if queue.address not in directory.addresses:
            directory.create_address(queue.address, frozenset({attributes.routing_type}))
        number = self._broker.next_queue_number()
        return directory.restore_queue(queue.name, queue.address, attributes, number)

    def declare(self, queue: DeclaredQueue) -> None:
        """Make a queue as broker.xml describes it, or with defaults; one that is there stays as it is."""
        directory = self._broker.directory
        live = directory.queues.get(queue.name)
        if live is not None:
            check_declared(queue, live.address.name, live.attributes.routing_type)
            return
        configured = self._configured.get(queue.name)
        if configured is not None and configured.address == queue.address:
            made = replace(configured, configured=True)
        else:
            made = QueueConfiguration(queue.name, queue.address, queue.routing_type, filter=queue.filter)
        try:
            directory.create_queue(made)
        except Refused as reason:
            raise click.ClickException(f"queue {queue.name}: {reason}") from None

    @staticmethod
    def _check(live: Queue, queue: PortableQueue, attributes: QueueAttributes) -> None:
        if live.address.name != queue.address:
            raise click.ClickException(
                f"queue {queue.name} is bound to address {live.address.name} in the broker, not to {queue.address}"
            )
        for name in IMMUTABLE:
            there, here = getattr(live.attributes, name), getattr(attributes, name)
            if there != here:
                raise click.ClickException(
                    f"queue {queue.name}: {name.replace('_', '-')} is {there} in the broker and {here} in the file, "
                    "and cannot be changed while the queue exists"
                )

    def message(self, message: PortableMessage) -> None:
        """A message to come with the next `commit`."""
        queues = self._broker.directory.queues
        for place in message.places:
            if place.queue not in queues:
                raise click.ClickException(
                    f"message {message.number} is in queue {place.queue}, which the file does not define before it"
                )
        self._batch.append(message)

    def _put(self, message: PortableMessage) -> None:
        directory = self._broker.directory
        address = directory.addresses.get(message.address) or self._gone(message.address)
        copy = message.message(self._broker.next_message_number(), address)
        places = [(directory.queues[place.queue], place) for place in message.places]
        if pages := self._pages_for(address, places):
            self._page(pages, copy, places)
        else:
            self._enqueue_copy(copy, places)
        identifier = copy.header(DUPLICATE_ID)
        if identifier and len(identifier) <= MAX_NAME and copy.header(ORIGIN) is None:
            self._remember(address, identifier)

    @staticmethod
    def _remember(address: Address, identifier: bytes) -> None:
        """A producer that sends its message again after the import has sent a duplicate."""
        if not address.deleted and cache_size(address) and not is_known(address, identifier):
            add_id(address, identifier, persisted=is_persisted(address, True))

    @staticmethod
    def _pages_for(address: Address, places: Places) -> Pages | None:
        """Where it is written while the address pages; not what has a schedule of its own, as in a running broker."""
        dues = {place.due for _, place in places}
        if len(dues) > 1 or any(queue.in_memory_only or place.recurrence for queue, place in places):
            return None
        return page_mode.pages_for(address)

    def _enqueue_copy(self, message: Message, places: Places) -> None:
        refs = []
        for queue, place in places:
            ref = queue.restore(message)
            ref.deliveries, ref.attempts, ref.due = place.deliveries, place.attempts, place.due
            ref.recurrence = place.recurrence
            refs.append(ref)
            self._storage.append(ref)
        for ref in refs:
            ref.queue.reinstate(ref)

    def _page(self, pages: Pages, message: Message, places: Places) -> None:
        due = places[0][1].due
        areas = self._broker.areas
        assert areas is not None
        page, index = pages.append(message, [queue for queue, _ in places], due)
        for queue, place in places:
            cursor = areas.cursor(queue, pages)
            if isinstance(queue, LastValueQueue) and not due:
                queue.become_last_on_disk(pages, message, (page, index))
            if place.deliveries or place.attempts:
                cursor.take(page, index)
                ref = Reference(message, queue, message.number, SCHEDULED if due else GONE)
                ref.position, ref.due = (page, index), due
                ref.deliveries, ref.attempts = place.deliveries, place.attempts
                cursor.returned(ref)
                cursor.put_back(ref)
            sum(queue.trim())

    def _gone(self, name: str) -> Address:
        """An address that is not there any more, of a message in the queue of a wildcard address."""
        address = self._elsewhere.get(name)
        if address is None:
            directory = self._broker.directory
            address = Address(name, frozenset(), directory.settings.lookup(name), directory)
            address.deleted = True
            self._elsewhere[name] = address
        return address

    # ---- safety

    def commit(self, done: int) -> None:
        """Everything since the last time counts, and with it that ``done`` messages of the file have come.

        All of it is told in one turn, as one transaction: where this process dies, all of it is there or nothing.
        """
        self._storage.begin()
        for message in self._batch:
            self._put(message)
        self._storage.store_value(self._note, {"import": self._name, "done": done})
        self._storage.commit()
        self._batch = []
        self.settle()

    def settle(self) -> None:
        """Wait until all of it is safe."""
        safe: list[bool] = []
        self._storage.journal.when_synced(lambda: safe.append(True))
        self._reactor.turn()
        while not safe:
            if self._storage.failing:
                raise click.ClickException(f"{self._storage.failing}; earlier messages are safe")
            time.sleep(0.001)
            self._reactor.turn()

    def finish(self) -> None:
        """The import is complete and reported. That it is stays noted: the same file is not imported twice."""
        self._storage.store_value(self._note, {"import": self._name, "complete": True})
        self.settle()


Places = list[tuple[Queue, QueueEntry]]


def _changes(live: Queue, attributes: QueueAttributes) -> Mapping[str, Any]:
    return {
        each.name: getattr(attributes, each.name)
        for each in fields(attributes)
        if each.name != "accepts" and getattr(attributes, each.name) != getattr(live.attributes, each.name)
    }
