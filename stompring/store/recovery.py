"""From a journal back to a broker: what was read is mended on disk, and made anew in memory."""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompring.broker.address import Address
from stompring.broker.attributes import QueueAttributes
from stompring.broker.message import MessageNumbers
from stompring.broker.queue import Queue
from stompring.errors import StoreError
from stompring.settings.model import QueueConfiguration, RoutingType

from .bindings import UNUSABLE, StoredAddress, StoredQueue
from .datadir import IDENTITY
from .files import Files, free_name
from .journal import MESSAGE_LEASE
from .kept import DAMAGED, Kept, Segment
from .mending import Mending
from .record import ADDRESS, NOTE, QUEUE
from .replay import ReadSegment, Replay
from .revival import Progress, Revival
from .segment import FORMAT
from .survey import survey
from .tail import Tail

if TYPE_CHECKING:
    from stompring.broker.broker import Broker

    from .durable import Durable

log = logging.getLogger(__name__)


class Recovery:
    """One start. ``messages`` counts what came back, ``lost_bytes`` what could not be read."""

    def __init__(self, durable: Durable, replay: Replay, broker: Broker) -> None:
        self._durable = durable
        self.journal = durable.journal
        self._files: Files = durable.files
        self.replay = replay
        self._broker = broker
        self.addresses: dict[int, Address] = {}
        self.queues: dict[int, Queue] = {}  # by id
        self.segments: dict[int, Segment] = {}  # by number
        self._progress = Progress(broker)
        self.messages = 0
        self.dangling = 0  # messages whose queues are all gone
        self._numbers: MessageNumbers | None = None
        self.lost_bytes = 0
        self.damaged: list[str] = []  # what was set aside or left out, for people

    def run(self) -> None:
        """Do it all. Raises `StoreError` where a file cannot be touched or was made by a newer version."""
        durable = self._durable
        began = self._broker.clock.steady.refresh()
        collecting = gc.isenabled()
        gc.disable()  # nothing that is made here is garbage, and a million objects are looked at again and again
        try:
            self.replay.read(self._progress.reading)
            self._begin_journal()
            self._restore_addresses()
            self._restore_queues()
            self._restore_notes()
            self._restore_numbers()
            if durable.pages is not None:
                durable.pages.recover(self, self._broker)
                self._restore_numbers()
            self.messages, self.dangling = Revival(self).run(self._progress)
            self._restore_ids()
        except OSError as fault:
            raise StoreError(fault.strerror or str(fault), str(fault.filename), 0) from fault
        finally:
            if collecting:
                gc.enable()
        if self.dangling:
            log.warning("%d messages in the journal have no queue any more and are left out", self.dangling)
        seconds = (self._broker.clock.steady.refresh() - began) / 1000
        log.info(
            "the journal has %d queues and %d messages (%d segments, %.1f MB, %.1f s)",
            len(self.queues),
            self.messages,
            len(self.replay.segments),
            sum(segment.size for segment in self.replay.segments) / 1e6,
            seconds,
        )

    # ---- files

    def _begin_journal(self) -> None:
        self._set_misplaced_aside()
        replay = self.replay
        mending = Mending(self._files)
        kept = mending.mend(replay.segments)
        for text in mending.reports:
            self._report(text)
        self.lost_bytes = mending.lost_bytes
        segments = [self._segment_of(each) for each in kept]
        for number in replay.missing:
            self._report(
                f"segment {number} of the journal in {replay.directory} is missing; how many messages are lost "
                "with it is not known"
            )
        for text in replay.strange:
            self._report(f"a record in {text} is not understood and left out")
        journal = self.journal
        journal.next_message = replay.next_message
        journal.next_queue = replay.next_queue
        journal.next_transaction = replay.next_transaction
        journal.complete_transaction = replay.complete_transaction
        journal.next_address = count(replay.next_address)
        journal.next_page = replay.next_page if replay.lists_pages else 0
        numbers = (each.number for each in (*kept, *(read for read, _ in replay.misplaced)))
        journal.last_segment = max(*numbers, *replay.missing, 0, 0)
        journal.begin(
            segments,
            self._tail_of(kept[-1], segments[-1]) if kept else None,
            roll=bool(kept) and kept[-1].header.format < FORMAT,
        )

    def _set_misplaced_aside(self) -> None:
        """Segments that are not what their names say. Raises `StoreError` where all are another directory's."""
        replay = self.replay
        foreign = [read for read, _ in replay.misplaced if read.header.directory != replay.identity]
        if foreign and not any(read.header.directory == replay.identity for read in replay.segments):
            raise StoreError(
                f"the journal belongs to the data directory {foreign[-1].header.directory.hex()}, and this one is "
                f"{replay.identity.hex()}: put back the journal or the file '{IDENTITY}'",
                str(replay.directory),
                0,
            )
        for read, why in replay.misplaced:
            aside = free_name(self._files, read.path, DAMAGED)
            self._files.rename(read.path, aside)
            self._report(f"{read.path} is not segment {read.number}: {why}; it is set aside as {aside.name}")

    def _segment_of(self, read: ReadSegment) -> Segment:
        segment = self.segments[read.number] = Segment(read.number, read.path, size=read.size)
        segment.damaged = bool(read.faults)
        return segment

    def _tail_of(self, read: ReadSegment, segment: Segment) -> Tail | None:
        """Where to go on in the last segment, unless it is sealed or damaged."""
        if read.sealed or read.faults:
            return None
        footer = survey(self._files.read(read.path))
        return Tail(read.size, self.journal.next_address, footer, read.consumers)

    def _report(self, text: str) -> None:
        self.damaged.append(text)
        log.error("%s", text)

    # ---- addresses and queues

    def queue_of(self, number: int, address: Address, *, wanted: bool = False) -> Queue | None:
        """The queue with that id, which messages of ``address`` name; None for one that is deleted.

        Where part of the journal is lost, so may be what it said of the queue. Then the queue is made anew with the
        name that it has elsewhere in the journal, so that its messages are not lost too. ``wanted`` says that it is
        known not to be deleted.
        """
        queue = self.queues.get(number)
        if queue is None and (wanted or self.damaged) and (QUEUE, number) not in self.replay.ended:
            name = self.replay.names.get((QUEUE, number))
            if name is not None and name not in self._broker.directory.queues:
                queue = self.queues[number] = self._make_anew(name, number, address)
        return queue

    def _make_anew(self, name: str, number: int, address: Address) -> Queue:
        directory = self._broker.directory
        kind = RoutingType.ANYCAST if name == address.name else RoutingType.MULTICAST
        if directory.addresses.get(address.name) is not address:
            directory.restore_address(address)
        address.routing_types |= {kind}
        settings = directory.settings.lookup(address.name)
        attributes = QueueAttributes.of(QueueConfiguration(name, address.name, kind), settings)
        queue = directory.restore_queue(name, address.name, attributes, number)
        self._durable.rebind(queue)
        self._report(
            f"queue {name}: what it was is lost, it is made anew with defaults on address {address.name}"
        )
        return queue

    def address_in_page(self, number: int, description: Mapping[str, Any], path: Path) -> Address | None:
        """An address that the journal does not know, as the page ``path`` describes it; None where it cannot be."""
        address = self._address_from(number, description, path)
        if address is not None:
            self._durable.rebind_address(address)
            log.info("%s: address %s is restored from there, not from the journal", path, address.name)
        return address

    def queue_in_page(self, number: int, description: Mapping[str, Any], path: Path) -> Queue | None:
        """The same of a queue. A crash came between the page and the journal, which is written after it."""
        named = str(description.get("name"))
        if (QUEUE, number) in self.replay.ended or named in self._broker.directory.queues:
            return None
        queue = self._queue_from(number, description, path)
        if queue is not None:
            self._durable.rebind(queue)
            log.info("%s: queue %s is restored from there, not from the journal", path, queue.name)
        return queue

    def _restore_addresses(self) -> None:
        for (what, number), (segment, value) in self.replay.bindings.items():
            if what == ADDRESS:
                address = self._address_from(number, value, segment.path)
                if address is not None:
                    self._durable.adopt_address(address, self.segments[segment.number])

    def _address_from(self, number: int, value: Mapping[str, Any], path: Path) -> Address | None:
        try:
            stored = StoredAddress.parse(number, value)
            address = self._broker.directory.create_address(
                stored.name,
                stored.routing_types,
                auto_created=stored.auto_created,
                configured=stored.configured,
            )
        except UNUSABLE as fault:
            self._report(f"an address in {path} cannot be restored: {_why(fault)}")
            return None
        address.number = number
        address.paused = stored.paused
        address.used = stored.auto_created
        self.addresses[number] = address
        return address

    def _restore_queues(self) -> None:
        for (what, number), (segment, value) in self.replay.bindings.items():
            if what == QUEUE:
                queue = self._queue_from(number, value, segment.path)
                if queue is not None:
                    self._durable.adopt_queue(queue, self.segments[segment.number])

    def _queue_from(self, number: int, value: Mapping[str, Any], path: Path) -> Queue | None:
        try:
            return self._restore_queue(StoredQueue.parse(number, value))
        except UNUSABLE as fault:
            self._report(f"queue {value.get('name', number)} in {path} cannot be restored: {_why(fault)}")
            return None

    def _restore_queue(self, stored: StoredQueue) -> Queue:
        directory = self._broker.directory
        attributes = stored.make_attributes()
        if stored.address not in directory.addresses:
            directory.create_address(stored.address, frozenset({attributes.routing_type}), auto_created=True)
        queue = directory.restore_queue(stored.name, stored.address, attributes, stored.number)
        queue.no_local = stored.no_local
        queue.as_configured = stored.make_as_configured()
        queue.paused = stored.paused
        queue.review_filter()
        queue.review()
        self.queues[stored.number] = queue
        return queue

    def _restore_notes(self) -> None:
        for (what, number), (segment, value) in self.replay.bindings.items():
            if what == NOTE:
                self._durable.adopt_note(number, value, self.segments[segment.number])

    def _restore_ids(self) -> None:
        while self.replay.duplicate_ids:  # which are not held longer than needed
            number, found = self.replay.duplicate_ids.popitem()
            address = self.addresses.get(number)
            if address is not None and not address.deleted:
                self._durable.adopt_ids(address, found, self)

    def _restore_numbers(self) -> None:
        journal, broker = self.journal, self._broker
        if self._numbers is None:
            self._numbers = MessageNumbers(
                journal.next_message, MESSAGE_LEASE, lambda: broker.clock.now, journal.lease_messages
            )
            journal.on_lease = self._numbers.granted
            broker.next_message_number = self._numbers.next
        else:
            self._numbers.skip_to(journal.next_message)
            journal.lease_messages(journal.next_message + MESSAGE_LEASE)
        broker.next_queue_number = count(journal.next_queue).__next__

    def adopt(self, kept: Kept, read: ReadSegment) -> None:
        """The oldest record of ``kept`` that counts is in a segment that was read."""
        segment = kept.segment = self.segments[read.number]
        segment.live[kept] = kept

    @property
    def persist_ids(self) -> bool:
        """Whether duplicate ids that were kept count (``persist-id-cache``)."""
        return self._broker.configuration.persist_id_cache

    @property
    def names(self) -> dict[tuple[int, int], str]:
        """Names of addresses and queues by ADDRESS or QUEUE and their id, also of those that are deleted."""
        return self.replay.names

    def address_of(self, number: int) -> Address:
        """The address with that id; one that is deleted, and yet has messages in wildcard queues, is made for them."""
        address = self.addresses.get(number)
        if address is None:
            directory = self._broker.directory
            name = self.replay.names.get((ADDRESS, number), f"#{number}")
            address = directory.addresses.get(name)
            if address is None:
                address = Address(name, frozenset(), directory.settings.lookup(name), directory)
                address.number, address.deleted = number, True
            self.addresses[number] = address
        return address


def _why(fault: Exception) -> str:
    return f"{fault.args[0]!r} is missing" if isinstance(fault, KeyError) else str(fault)
