"""``stompring data import``: imports a file into a stopped or a running broker.

`OfflineImport` writes into the data directory of a stopped broker, with the broker's own store and without its
listeners. It restores all properties, including delivery counts, due times, senders and timestamps, and pages the
messages that exceed the configured memory, as a running broker does.

`OnlineImport` creates queues of a running broker over HTTP, and sends messages over STOMP. STOMP cannot transfer the
time, the sender and the delivery count of a message, nor the fact that several queues share one message.
"""

from __future__ import annotations

import re
import sched
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import click

from stompring.broker.address import (
    Address,
    add_id,
    cache_size,
    is_known,
    is_persisted,
    pages_for,
    resume_paging,
)
from stompring.broker.address import Paging as BrokerPaging
from stompring.broker.broker import Broker
from stompring.broker.clock import ScheduledTimer
from stompring.broker.directory import MAX_NAME
from stompring.broker.last_value import LastValueQueue
from stompring.broker.message import BROKERS_OWN, IMPORTED, Message
from stompring.broker.ports import Pages
from stompring.broker.queue import Queue
from stompring.broker.reference import GONE, SCHEDULED, QueueAttributes, Reference
from stompring.errors import Refused
from stompring.paging.paged_queue import TargetAreas
from stompring.pipeline.stomp.connection import Connection, Endpoint
from stompring.policy.hooks import Policies
from stompring.settings import model
from stompring.settings.machine import DataDirectory, default_global_max_size, machine_memory
from stompring.settings.match import is_internal
from stompring.settings.model import (
    BrokerConfiguration,
    HttpAcceptor,
    QueueConfiguration,
    StompAcceptor,
    camel_case,
    options_of,
)
from stompring.stomp.frames import encode_frame
from stompring.store.artemis_export import ArtemisExportReader
from stompring.store.bindings import attributes_of
from stompring.store.datadir import DataLock
from stompring.store.durable import Durable
from stompring.store.export import (
    DeclaredQueue,
    ExportReader,
    PortableAddress,
    PortableMessage,
    PortableQueue,
    QueueEntry,
    header_pairs,
)
from stompring.store.pages import Paging

from .endpoint import parse_broker
from .output import CommandFailed, JsonObject, Values, bracketed, byte_progress, reachable
from .remote import ApiError, Remote, ServerOptions

ExportFile = ExportReader | ArtemisExportReader


def transfer(file: ExportFile, receiver: OfflineImport | OnlineImport) -> tuple[int, int]:
    """Import a file. Returns the number of messages in it, and how many of these an earlier import had imported.

    Raises `InvalidExport` with file and line.
    """
    identity = file.identify()
    with byte_progress("importing", file.size) as step:
        before = receiver.begin(f"stompring.import.{identity}")
        count = waiting = size = position = 0
        for entry in file.entries():
            if not isinstance(entry, PortableMessage):
                try:
                    match entry:
                        case PortableAddress():
                            receiver.address(entry)
                        case PortableQueue():
                            receiver.queue(entry)
                        case _:
                            receiver.declare(entry)
                except CommandFailed as fault:
                    raise file.wrong(fault.message) from None
                except Refused as reason:
                    kind = "address" if isinstance(entry, PortableAddress) else "queue"
                    raise file.wrong(f"{kind} {entry.name}: {reason}") from None
                continue
            count += 1
            if count <= before:
                continue
            receiver.message(entry)
            waiting, size = waiting + 1, size + len(entry.body)
            if waiting >= receiver.most_messages or size >= receiver.most_bytes:
                receiver.commit(count)
                waiting = size = 0
                step(file.position - position)
                position = file.position
        if waiting:
            receiver.commit(count)
        receiver.settle()
        step(file.size - position)
    return count, min(before, count)


def check_address(queue: PortableQueue | DeclaredQueue, address: str) -> None:
    """Raise `CommandFailed` if a queue of the broker has another address than in the file."""
    if address != queue.address:
        raise CommandFailed(
            f"queue {queue.name} is bound to address {address} in the broker, not to {queue.address}"
        )


def check_declared(queue: DeclaredQueue, address: str, routing_type: str) -> None:
    """Raise `CommandFailed` if a queue of the broker has another address or routing type than in the file."""
    check_address(queue, address)
    if routing_type != queue.routing_type:
        raise CommandFailed(
            f"queue {queue.name}: routing-type is {routing_type} in the broker and {queue.routing_type} in the file"
        )


#: Time limit in seconds for each answer of the broker: a full address must not delay an import without limit.
TIMEOUT = 300.0


#: Maximum `global-max-size` of an import in bytes. Messages beyond it are paged.
MOST_MEMORY = 256 * 1024 * 1024

#: Header of duplicate detection, and a header that only copies made by the broker have.
DUPLICATE_ID, ORIGIN = b"_AMQ_DUPL_ID", b"_AMQ_ORIG_ADDRESS"


class OfflineReactor(sched.scheduler):
    """Timers for a broker without connections. The broker's delayed calls run when `turn` is called."""

    def __init__(self) -> None:
        super().__init__(time.time)

    def seconds(self) -> float:
        return time.time()

    def callLater(
        self, delay: float, call: Callable[..., object], /, *args: Any, **kw: Any
    ) -> ScheduledTimer:
        return ScheduledTimer(self, self.enter(delay, 0, call, args, kw))

    def turn(self) -> None:
        """Run the delayed calls that are due, also those that a call has just scheduled."""
        self.run(blocking=False)


class InlineDisk:
    """A `store.files.Disk` that runs each job in this thread immediately. `OfflineReactor.turn` reports the result."""

    def __init__(self, reactor: OfflineReactor) -> None:
        self._reactor = reactor
        self.finish = reactor.turn

    def run(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = job()
        except Exception as fault:
            result = fault
        self._reactor.callLater(0, done, result)


#: Attributes of an existing queue that cannot be changed.
IMMUTABLE = (
    "routing_type",
    *(row.name for row in options_of(QueueConfiguration) if row.http == model.CREATE_ONLY),
)


class OfflineImport:
    """Imports addresses, queues and messages into a data directory.

    The caller calls `begin`, then a method for each address, queue and message of the file, in the order of the file.
    The constructor raises `StoreError` if a broker runs on the directory.
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
            reactor = self._reactor = OfflineReactor()
            disk = InlineDisk(reactor)
            identity = self._lock.identity(directory.journal)
            storage = Durable(configuration, directory.journal, disk, reactor, identity=identity)
            broker = Broker(configuration, reactor, Policies(), storage)
            # paging is set up as in `server.persistence`, which does this for a running broker
            paging = storage.pages = Paging(
                storage.journal, storage.writer, disk, broker.clock, directory.paging, purge=True
            )
            broker.paging = cast(BrokerPaging, paging)
            paging.reads.account = TargetAreas(broker).budget
            storage.recover(broker)
            for pages in paging.recovered:
                resume_paging(pages.address, cast(Pages, pages))
            paging.recovered = []
            self._storage, self._broker, self._paging = storage, broker, paging
        except BaseException:
            self._lock.release()
            raise
        self._configured = {
            queue.name: queue for address in configuration.addresses for queue in address.queues
        }
        self._again = again
        self._batch: list[PortableMessage] = []
        self._deleted_addresses: dict[str, Address] = {}

    def close(self) -> None:
        """Close the directory as a stopping broker does."""
        try:
            self._paging.stop()
            self._broker.stop()
        finally:
            self._lock.release()

    # ---- the file

    def begin(self, marker: str) -> int:
        """Return the number of messages of this file that an earlier import has imported.

        Raises `CommandFailed` if it has imported all of them, unless the file shall be imported again (--again).
        """
        self._name, self._note = marker, crc32(marker.encode())
        note = self._storage.notes.get(self._note, {})
        if note.get("import") != marker:
            return 0
        if note.get("complete") and not self._again:
            raise CommandFailed("this file was already imported completely; use --again to import it again")
        return int(note.get("done", 0))

    def address(self, address: PortableAddress) -> None:
        """Create an address, or add missing routing types to an existing one. Raises `Refused`."""
        directory = self._broker.directory
        live = directory.addresses.get(address.name)
        if live is None:
            live = directory.create_address(
                address.name,
                address.routing_types,
                auto_created=address.auto_created,
                configured=address.configured,
            )
        live.paused = address.paused
        directory.update_address(live, live.routing_types | address.routing_types)

    def queue(self, queue: PortableQueue) -> None:
        """Create a queue, or set the attributes of an existing one. Raises `Refused`, `CommandFailed`."""
        live = self._queue(queue, attributes_of(queue.attributes))
        configured = queue.as_configured
        live.as_configured = None if configured is None else attributes_of(configured)
        live.no_local = queue.no_local
        live.paused = queue.paused
        live.update_filter()
        live.address.changed()
        self._storage.bind(live)

    def _queue(self, queue: PortableQueue, attributes: QueueAttributes) -> Queue:
        directory = self._broker.directory
        live = directory.queues.get(queue.name)
        if live is not None:
            check_address(queue, live.address.name)
            changes = {
                each.name: here
                for each in fields(attributes)
                if (here := getattr(attributes, each.name)) != getattr(live.attributes, each.name)
            }
            changes.pop("accepts", None)
            for name in IMMUTABLE:
                if name in changes:
                    there = getattr(live.attributes, name)
                    raise CommandFailed(
                        f"queue {queue.name}: {name.replace('_', '-')} is {there} in the broker and {changes[name]} "
                        "in the file, and cannot be changed while the queue exists"
                    )
            directory.update_queue(live, changes)
            return live
        if queue.address not in directory.addresses:
            directory.create_address(queue.address, frozenset({attributes.routing_type}))
        return directory.restore_queue(
            queue.name, queue.address, attributes, self._broker.next_queue_number()
        )

    def declare(self, queue: DeclaredQueue) -> None:
        """Create a queue as in broker.xml, or with defaults, unless it exists. Raises `Refused`, `CommandFailed`."""
        directory = self._broker.directory
        live = directory.queues.get(queue.name)
        if live is not None:
            check_declared(queue, live.address.name, live.attributes.routing_type)
            return
        configured = self._configured.get(queue.name)
        if configured and configured.address == queue.address:
            made = replace(configured, configured=True)
        else:
            made = QueueConfiguration(queue.name, queue.address, queue.routing_type, filter=queue.filter)
        directory.create_queue(made)

    def message(self, message: PortableMessage) -> None:
        """Add a message to the next `commit`."""
        for place in message.places:
            if place.queue not in self._broker.directory.queues:
                raise CommandFailed(
                    f"message {message.number} is in queue {place.queue}, which the file does not define before it"
                )
        self._batch.append(message)

    def _put(self, message: PortableMessage) -> None:
        directory = self._broker.directory
        address = directory.addresses.get(message.address) or self._deleted_address(message.address)
        copy = message.message(self._broker.next_message_number(), address)
        places = [(directory.queues[place.queue], place) for place in message.places]
        # as in a running broker, a message that recurs, or is due at different times in its queues, is not paged
        in_memory = any(queue.in_memory_only or place.recurrence for queue, place in places)
        pages = None if in_memory or len({place.due for place in message.places}) > 1 else pages_for(address)
        if pages:
            self._page(pages, copy, places)
        else:
            self._enqueue_copy(copy, places)
        identifier = copy.header(DUPLICATE_ID)
        if identifier and len(identifier) <= MAX_NAME and copy.header(ORIGIN) is None:
            # so that the broker detects a duplicate if the producer sends this message again after the import
            if not address.deleted and cache_size(address) and not is_known(address, identifier):
                add_id(address, identifier, persisted=is_persisted(address, True))

    def _enqueue_copy(self, message: Message, places: Places) -> None:
        refs = []
        for queue, place in places:
            ref = queue.restore(message)
            ref.deliveries, ref.attempts = place.deliveries, place.attempts
            ref.due, ref.recurrence = place.due, place.recurrence
            refs.append(ref)
            self._storage.append(ref)
        for (queue, _), ref in zip(places, refs, strict=True):
            queue.reinstate(ref)
            for _ in queue.trim():
                pass

    def _page(self, pages: Pages, message: Message, places: Places) -> None:
        due = places[0][1].due
        areas = self._broker.areas
        assert areas is not None
        page, index = pages.append(message, [queue for queue, _ in places], due)
        for queue, place in places:
            cursor = areas.cursor(queue, pages)
            if isinstance(queue, LastValueQueue) and not due:
                queue.become_last(message, queue.encode(pages, (page, index)))
            if place.deliveries or place.attempts:
                cursor.take(page, index)
                ref = Reference(message, queue, SCHEDULED if due else GONE)
                ref.position, ref.due = (page, index), due
                ref.deliveries, ref.attempts = place.deliveries, place.attempts
                cursor.returned(ref)
                cursor.put_back(ref)
            sum(queue.trim())

    def _deleted_address(self, name: str) -> Address:
        """A deleted address. Queues of wildcard addresses still have messages that were sent to it."""
        if name not in self._deleted_addresses:
            directory = self._broker.directory
            address = Address(name, frozenset(), directory.settings.lookup(name), directory.broker)
            address.deleted = True
            self._deleted_addresses[name] = address
        return self._deleted_addresses[name]

    # ---- safety

    def commit(self, done: int) -> None:
        """Store the messages added since the last commit. ``done``: number of messages of the file imported so far.

        This is one transaction: after a crash of this process the store has all changes of the transaction or none.
        """
        self._storage.begin()
        for message in self._batch:
            self._put(message)
        self._storage.store_value(self._note, {"import": self._name, "done": done})
        self._storage.commit()
        self._batch = []
        self.settle()

    def settle(self) -> None:
        """Wait until all changes are synced."""
        safe: list[bool] = []
        self._storage.writer.when_synced(lambda: safe.append(True), None)
        self._reactor.turn()
        while not safe:
            if self._storage.failing:
                raise CommandFailed(f"{self._storage.failing}; earlier messages are safe")
            time.sleep(0.001)
            self._reactor.turn()

    def finish(self) -> None:
        """Record that the import is complete, so that the same file is not imported twice."""
        self._storage.store_value(self._note, {"import": self._name, "complete": True})
        self.settle()


Places = list[tuple[Queue, QueueEntry]]


#: Fields of a queue in the HTTP interface: first those of POST and PATCH, then those of POST only.
CHANGEABLE = (
    *(row.json_name for row in options_of(QueueConfiguration) if row.http == model.CHANGEABLE),
    "paused",
)
IMMUTABLE_VALUES = tuple(map(camel_case, IMMUTABLE))

#: Headers that are not copied into a SEND: `OnlineImport` or the broker sets them, or SEND gives them another meaning.
NOT_SENT = {
    b"_AMQ_DUPL_ID",
    b"content-length",
    b"destination",
    b"expires",
    b"message-id",
    b"persistent",
    b"priority",
    b"receipt",
    b"transaction",
}

#: Seconds to wait for the end of an earlier import of the same file.
EARLIER_IMPORT_TIMEOUT = 10.0

#: Maximum number of committed transactions whose receipts have not arrived.
MAX_UNCONFIRMED = 8


#: Form of the body of the message that `OnlineImport.commit` sends: a number of messages.
_NUMBER = re.compile(r"[0-9]{1,18}")


class OnlineImport:
    """Imports addresses, queues and messages into a running broker.

    The caller calls `begin`, then a method for each address, queue and message of the file, in the order of the file.
    """

    most_messages, most_bytes = 500, 1024 * 1024

    def __init__(self, remote: Remote, endpoint: Endpoint) -> None:
        self._remote = remote
        self._endpoint = endpoint
        self._open = ExitStack()
        self._frames: list[bytes] = []  # frames of the open transaction
        self._types: dict[str, str] = {}  # routing types by queue
        self._transactions = 0
        self._transaction = (b"transaction", b"")  # header of the open transaction

    def close(self) -> None:
        """Close the connections to the broker."""
        self._remote.close()
        self._open.close()

    def _ask(self, method: str, *path: str, body: Values | None = None, **query: object) -> Any:
        """Send a request to the management API, and return its answer. Raises `CommandFailed` with the error."""
        try:
            return self._remote.call(method, path, body, query)
        except ApiError as fault:
            raise CommandFailed(f"broker rejected {method} {'/'.join(path)}: {fault.message}") from None

    def begin(self, marker: str) -> int:
        """Return the number of messages of this file that are imported already.

        Creates the queue ``marker``, which stores this number, if the queue does not exist.
        """
        self._marker = marker
        # while the connection of an earlier import is open, the number of its messages may still grow
        deadline = time.monotonic() + EARLIER_IMPORT_TIMEOUT
        while self._ask("GET", "connections", clientID=marker)["count"]:
            if time.monotonic() > deadline:
                raise CommandFailed("another import of this file is in progress")
            time.sleep(0.1)
        self._stomp = self._open.enter_context(Connection(replace(self._endpoint, client_id=marker)))
        # existing addresses and queues
        self._addresses, self._queues = (
            {each["name"]: each for each in self._remote.pages(kind)["data"]}
            for kind in ("addresses", "queues")
        )
        if marker not in self._queues:
            self._ask(
                "POST",
                "queues",
                body={"name": marker, "routingType": "ANYCAST", "durable": True, "ringSize": 1},
            )
            return 0
        found = self._ask("GET", "queues", marker, "messages")["data"]
        return max((int(each["body"]) for each in found if _NUMBER.fullmatch(each["body"])), default=0)

    def address(self, address: PortableAddress) -> None:
        """Create an address, or add missing routing types to an existing one."""
        if is_internal(address.name):
            return
        there = self._addresses.get(address.name)
        types = {*map(str, address.routing_types), *([] if there is None else there["routingTypes"])}
        self._store(
            "addresses",
            there,
            {"name": address.name},
            {"routingTypes": sorted(types), "paused": address.paused},
        )

    def queue(self, queue: PortableQueue) -> None:
        """Create a queue, or set the attributes of an existing one."""
        if is_internal(queue.name):
            return
        given = queue.fields()
        wanted = {name: given[name] for name in (*IMMUTABLE_VALUES, *CHANGEABLE)}
        self._types[queue.name] = given["routingType"]
        there = self._queues.get(queue.name)
        if there is not None:
            check_address(queue, there["address"])
        self._store("queues", there, {"name": queue.name, "address": queue.address}, wanted)

    def _store(self, kind: str, there: Values | None, place: dict[str, str], wanted: JsonObject) -> None:
        """Create an address or a queue, or change the existing one (``there``) if it differs from ``wanted``."""
        if there is None:
            self._ask("POST", kind, body={**place, **wanted})
        elif any(value != there[name] for name, value in wanted.items()):
            self._ask("PATCH", kind, place["name"], body=wanted)

    def declare(self, queue: DeclaredQueue) -> None:
        """Create a queue with the defaults of its address, unless it exists."""
        self._types[queue.name] = queue.routing_type
        there = self._queues.get(queue.name)
        if there is not None:
            check_declared(queue, there["address"], there["routingType"])
            return
        self._ask(
            "POST",
            "queues",
            body={
                "name": queue.name,
                "address": queue.address,
                "routingType": queue.routing_type,
                "durable": True,
                "filter": queue.filter,
            },
        )

    def message(self, message: PortableMessage) -> None:
        """Send a message to each of its queues, except internal ones, in the open transaction."""
        for place in message.places:
            if not is_internal(place.queue):
                self._send(self._headers(message, place), message.body)

    def commit(self, done: int) -> None:
        """Commit the messages sent since the last commit. ``done``: number of messages of the file imported so far."""
        self._send([(b"destination", b"::" + self._marker.encode()), (b"persistent", b"true")], b"%d" % done)
        receipt = b"receipt", self._stomp.next_receipt().encode()
        self._frames.append(encode_frame(b"COMMIT", [self._transaction, receipt]))
        self._stomp.send(b"".join(self._frames))
        self._frames = []
        self._stomp.await_receipts(MAX_UNCONFIRMED)

    def settle(self) -> None:
        """Wait for all receipts."""
        self._stomp.await_receipts()

    def finish(self) -> None:
        """Delete the queue that stores the progress: the import is complete."""
        try:
            self._remote.delete("queues", self._marker)
        except ApiError as fault:
            if fault.http != 404:
                raise

    def _send(self, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
        if not self._frames:
            self._transactions += 1
            self._transaction = (b"transaction", b"import-%d" % self._transactions)
            self._frames.append(encode_frame(b"BEGIN", [self._transaction]))
        self._frames.append(encode_frame(b"SEND", [*headers, self._transaction], body))

    def _headers(self, message: PortableMessage, place: QueueEntry) -> Iterator[tuple[bytes, bytes]]:
        traits = message.traits
        yield b"destination", b"::" + place.queue.encode()
        yield b"persistent", b"true" if traits.durable else b"false"
        yield b"priority", b"%d" % traits.priority
        if message.expires:
            yield b"expires", b"%d" % message.expires
        if place.due:
            yield b"AMQ_SCHEDULED_TIME", b"%d" % place.due
            recurrence = place.recurrence
            if recurrence and recurrence.repeat:
                yield b"AMQ_SCHEDULED_PERIOD", b"%d" % recurrence.period
                yield b"AMQ_SCHEDULED_REPEAT", b"%d" % recurrence.repeat
            if recurrence and recurrence.cron is not None:
                yield b"AMQ_SCHEDULED_CRON", recurrence.cron.encode()
                yield b"AMQ_SCHEDULED_DELAY", b"%d" % recurrence.delay
        pairs = header_pairs(traits.block)
        if not BROKERS_OWN.isdisjoint(name for name, _ in pairs):
            yield IMPORTED, b"true"
        own = (b"destination-type", self._types.get(place.queue, "").encode())
        yield from (pair for pair in pairs if pair[0] not in NOT_SENT and (pair[0] != own[0] or pair == own))


def online_import(
    configuration: BrokerConfiguration, broker: str | None, options: ServerOptions, password_stdin: bool
) -> OnlineImport:
    """Prepare an import into a running broker. By default it connects to acceptors of ``configuration``.

    Raises `click.UsageError`, `CommandFailed`.
    """
    if options.server is None and options.context is None:
        server = _first(configuration.http_acceptors, "http://", "https://")
        if server is None:
            raise CommandFailed("a broker is running on the data directory: specify --server URL")
        options = replace(options, server=server)
    remote = options.remote()
    if password_stdin:
        if remote.login.user is None:
            raise click.UsageError("--password-stdin needs --user NAME")
        remote.login = replace(remote.login, password=sys.stdin.readline().rstrip("\r\n"))
    stomp = (each for each in configuration.stomp_acceptors if not each.websocket.only)
    broker = broker or remote.login.context.broker or _first(stomp, "", "ssl://")
    if broker is None:
        raise CommandFailed("a broker is running on the data directory: specify --broker URL")
    try:
        host, port, tls, _ = parse_broker(broker)
    except ValueError as reason:
        raise click.UsageError(f"--broker {reason}") from None
    user, password, ca = remote.login.user, remote.login.secret(), remote.ca
    trusted = None if ca is None else Path(ca)
    return OnlineImport(
        remote, Endpoint(host, port, user=user, password=password, timeout=TIMEOUT, tls=tls, ca_file=trusted)
    )


def _first(acceptors: Iterable[StompAcceptor | HttpAcceptor], plain: str, secure: str) -> str | None:
    """The URL of the first acceptor without TLS, else with TLS. Omits acceptors with the PROXY protocol."""
    open_ = [each for each in acceptors if each.port and each.proxy is None]
    for each in sorted(open_, key=lambda each: each.tls is not None):
        return f"{secure if each.tls else plain}{bracketed(reachable(each.host))}:{each.port}"
    return None
