"""Bridges: queues whose messages are forwarded to another STOMP broker (Artemis, "Core Bridges").

This module does no I/O: a `BridgeWorker` consumes the queue and writes to a `RemoteConnection`, which a `Connect`
callback opens and which reports to the worker. The worker acknowledges a message when the remote broker has sent its
RECEIPT, and requeues it if the connection is lost before: each message is forwarded at least once, in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache, partial
from typing import Final, Protocol

from stompring.errors import Refused
from stompring.settings.model import BridgeConfiguration, ComponentRoutingType, Connector
from stompring.stomp.frames import header_line, recode

from .address import as_address, transformer_for
from .clock import Call, Timer, cancel
from .directory import Services, services_of
from .message import NO_CHANGES, HeaderChanges, Message, Transformer, copied_traits
from .queue import Consumer, Queue, as_queue
from .reference import Reference, compiled_filter

log = logging.getLogger(__name__)

#: Maximum number of header blocks whose forwarded form is cached.
MAX_BLOCKS: Final = 256

#: Maximum number of fault texts that a bridge remembers, to log each only once.
MAX_REPORTED: Final = 100

#: Milliseconds after which a connection without messages counts as working.
STABLE: Final = 1000

#: Kind of the stored values that name the paused bridges.
PAUSED: Final = "paused-bridge"

DUPLICATE_ID: Final = b"_AMQ_DUPL_ID"

#: Headers of a stored message that state its routing in this broker. They are not forwarded.
ROUTING_HEADERS: Final = frozenset({b"destination-type", b"_AMQ_ROUTING_TYPE"})


class RemoteConnection(Protocol):
    """A connection that is opening or open. It reports events to its worker until `close` is called, but never while
    one of these methods runs.
    """

    def write(self, data: bytes) -> None:
        """Send frames."""

    def close(self) -> None:
        """Send all written frames, then DISCONNECT if CONNECTED was received, and close the connection."""


#: Starts to open a connection for a worker, to the remote broker that the connector names.
Connect = Callable[["BridgeWorker", Connector], RemoteConnection]


class BridgeState(StrEnum):
    """State of a bridge, or of one of its connections."""

    STOPPED = "STOPPED"  # management has stopped the bridge
    CONNECTING = "CONNECTING"
    CONNECTED = "CONNECTED"
    WAITING = "WAITING"  # waits for the next attempt to connect
    STOPPING = "STOPPING"  # waits for confirmations of messages
    FAILED = "FAILED"  # initial-connect-attempts or reconnect-attempts are used up


class ForwardEncoder:
    """Encodes messages of a queue as SEND frames for one remote broker."""

    def __init__(self, bridge: Bridge, queue: Queue, version: bytes, server: str) -> None:
        """``version``: version of STOMP on the connection. ``server``: header ``server`` of CONNECTED."""
        configuration = bridge.configuration
        self._id_prefix: bytes | None = None
        kind = configuration.routing_type
        self._passes = kind is ComponentRoutingType.PASS
        self._routing_type: str | None = None if kind is ComponentRoutingType.STRIP else kind
        self._version = version
        self._clock = bridge.broker.clock
        if configuration.use_duplicate_detection:
            self._id_prefix = b"%b:%b-%d-" % (DUPLICATE_ID, bridge.identity, queue.number)
        self._forwarding_address = configuration.forwarding_address
        self._transformer_configuration = configuration.transformer
        self._transformers: dict[str, Transformer | None] = {}  # transformers by address
        # RabbitMQ expects a TTL in the header `expiration`
        self._relative_expiry = server.startswith("RabbitMQ")

    def frame(self, message: Message) -> bytes | None:
        """Return a message as a SEND frame with its number as receipt id. None if the transformer drops the message."""
        _, length, _, _, stored = message.tail[: message.body_at - 1].split(b"\n", 4)
        expires = message.expires
        if self._transformer_configuration is not None:
            changes = self._changes(message)
            if changes is None:
                return None
            changed = copied_traits(message.traits, b"", message.traits.routing_type, changes)
            stored = changed.block
            if b"expires" in changes:
                expires = changed.requested_expiry
        routing_type = message.traits.routing_type if self._passes else self._routing_type
        block, identified = _forwarded(stored, routing_type, self._version)
        opening = _opening(self._forwarding_address or message.address.name, self._version)
        parts = [opening, b"receipt:%d\n%b\n" % (message.number, length)]
        if expires:
            left = max(1, expires - self._clock.now)
            parts.append(b"expiration:%d\n" % left if self._relative_expiry else b"expires:%d\n" % expires)
        if self._id_prefix is not None and not identified:
            parts.append(b"%b%d\n" % (self._id_prefix, message.number))
        parts += (block, b"\n", message.tail[message.body_at :])
        return b"".join(parts)

    def _changes(self, message: Message) -> HeaderChanges | None:
        name = message.address.name
        if name not in self._transformers:
            if len(self._transformers) >= MAX_BLOCKS:
                self.stop()
            self._transformers[name] = transformer_for(
                self._transformer_configuration, as_address(message.address)
            )
        transformer = self._transformers[name]
        return NO_CHANGES if transformer is None else transformer.changes(message)

    def stop(self) -> None:
        """Stop the transformers."""
        transformers, self._transformers = self._transformers, {}
        for transformer in transformers.values():
            if transformer is not None:
                transformer.stop()


@lru_cache(MAX_BLOCKS)
def _opening(address: str, version: bytes) -> bytes:
    """Return the first lines of a SEND to an address."""
    return b"SEND\n" + header_line(b"destination", address.encode(), version)


@lru_cache(MAX_BLOCKS)
def _forwarded(stored: bytes, routing_type: str | None, version: bytes) -> tuple[bytes, bool]:
    """Return the forwarded header lines of a message, and whether they have a duplicate id."""
    lines = stored.splitlines(keepends=True)
    names = [line.partition(b":")[0] for line in lines]
    # RabbitMQ creates an exclusive queue for persistent:false, and deletes it with the connection of the bridge
    forwarded = [
        line
        for name, line in zip(names, lines, strict=True)
        if name not in ROUTING_HEADERS and line != b"persistent:false\n"
    ]
    if routing_type is not None:
        forwarded.append(b"destination-type:%b\n" % routing_type.encode())
    return recode(b"".join(forwarded), version), DUPLICATE_ID in names


class BridgeConsumer(Consumer):
    """The consumer of a connected worker."""

    def __init__(self, worker: BridgeWorker) -> None:
        bridge = worker.bridge
        super().__init__(bridge.matches, (bridge.configuration.filter, None))
        self.worker = worker
        self.willing = False

    def deliver_message(self, message: Message) -> None:
        self.worker.forward(self.queue.mark_delivering(message))

    def deliver_reference(self, ref: Reference) -> None:
        self.worker.forward(ref)

    def cancelled(self, reason: str) -> None:
        self.worker.on_closed(reason, rejected=True)

    def unsettled_references(self) -> Iterable[Reference]:
        return self.worker.in_flight.values()

    @property
    def remote(self) -> str:
        return self.worker.remote

    @property
    def consumer_name(self) -> str:  # type: ignore[override]
        return f"bridge {self.worker.bridge.name}"

    @property
    def identifier(self) -> str:
        return self.consumer_name


class BridgeWorker:
    """One connection of a bridge, with a consumer of the queue while it is open."""

    def __init__(self, bridge: Bridge) -> None:
        self.in_flight_bytes = 0
        self.remote = ""  # host and port of the current connector, or else of the last one
        self.server = ""  # header ``server`` of the remote broker
        self._connection: RemoteConnection | None = None
        self._connector = 0  # index of the current connector
        self._consumer: BridgeConsumer | None = None
        self._encoder: ForwardEncoder | None = None
        self._writable = True
        self._probes = 0  # number of messages to send one by one, because one of them was rejected
        self._was_connected = False
        self._failures = 0  # number of failures since a connection worked; the retry delay grows with it
        # number of attempts since the last connection, for initial-connect-attempts and reconnect-attempts
        self._attempts = 0
        self._connected_at = 0  # ms of the steady clock
        self._timer: Timer | None = None
        self._on_stopped: Call | None = None
        self.bridge = bridge
        self.state = BridgeState.STOPPED
        self.in_flight: dict[bytes, Reference] = {}  # unconfirmed messages by receipt, the oldest first
        self._out: list[bytes] = []

    # ---- start and stop

    def start(self) -> None:
        """Connect to the first connector."""
        self._failures = self._attempts = self._connector = 0
        self._was_connected = False
        self._attempt()

    def stop(self, timeout: int, done: Call) -> None:
        """Stop forwarding, wait at most ``timeout`` ms for confirmations, close, and call ``done``."""
        self._cancel_timer()
        self._on_stopped = done
        self.state = BridgeState.STOPPING
        self._pause()
        if self.in_flight and timeout > 0:
            self._call_later(timeout, self._stopped)
        else:
            self._stopped()

    def _stopped(self) -> None:
        done, self._on_stopped = self._on_stopped, None
        if self.in_flight:
            self.bridge.report(
                f"stopped with {len(self.in_flight)} messages that {self.remote} has not confirmed; they are sent again"
            )
        self._disconnect()
        self.state = BridgeState.STOPPED
        if done is not None:
            done()

    # ---- connecting

    def _attempt(self) -> None:
        self._cancel_timer()
        bridge = self.bridge
        if (fault := bridge.queue_fault()) is not None:
            bridge.report(fault)
            self._wait(bridge.configuration.retry_interval)
            return
        connector = bridge.configuration.connectors[self._connector]
        self.remote = connector.remote
        self.state = BridgeState.CONNECTING
        self._connection = bridge.connect(self, connector)

    def _wait(self, delay: int) -> None:
        self.state = BridgeState.WAITING
        self._call_later(delay, self._attempt)

    def _retry(self) -> None:
        """Connect again after `retry_delay`, to the first connector, unless the attempts are used up."""
        self._connector = 0
        self._failures += 1
        if not self._gives_up():
            self._wait(self.retry_delay())

    def _gives_up(self) -> bool:
        configuration = self.bridge.configuration
        if self._was_connected:
            name, limit = "reconnect-attempts", configuration.reconnect_attempts
        else:
            name, limit = "initial-connect-attempts", configuration.initial_connect_attempts
        if not 0 <= limit <= self._attempts:
            return False
        self.state = BridgeState.FAILED
        self.bridge.on_failed(f"{name} {limit} used up; the bridge must be started again")
        return True

    def retry_delay(self) -> int:
        """Return the delay in milliseconds before the next attempt to connect."""
        configuration = self.bridge.configuration
        exponent = min(max(self._failures, 1) - 1, 64)  # prevents an overflow of the float
        delay = configuration.retry_interval * configuration.retry_interval_multiplier**exponent
        return int(min(delay, max(configuration.max_retry_interval, configuration.retry_interval)))

    # ---- reports of the connection

    def on_connected(self, version: bytes, server: str) -> None:
        """Add a consumer to the queue: the remote broker has sent CONNECTED."""
        bridge = self.bridge
        queue = bridge.queue
        if queue is None:  # the queue was deleted during the connect
            self.on_closed(f"queue {bridge.configuration.queue_name} does not exist")
            return
        self.server = server
        self._was_connected = self._writable = True
        self._attempts = 0
        self._connected_at = bridge.broker.clock.steady.now
        self.state = BridgeState.CONNECTED
        self._encoder = ForwardEncoder(bridge, queue, version, server)
        consumer = BridgeConsumer(self)
        try:
            queue.add_consumer(consumer)
        except Refused as fault:
            self.on_closed(str(fault), rejected=True)
            return
        self._consumer = consumer
        if not bridge.reported:
            self._working()
        else:
            self._call_later(STABLE, self._working_without_messages)
        self._resume()

    def _working_without_messages(self) -> None:
        self._timer = None
        if not self.in_flight:
            self._working()

    def _working(self) -> None:
        """Reset the failures: the connection works."""
        self._failures = 0
        self.bridge.on_working(self)

    def on_receipt(self, receipt: bytes) -> None:
        """Acknowledge a message that the remote broker has confirmed."""
        ref = self.in_flight.pop(receipt, None)
        if ref is None:
            return
        size = len(ref.message.tail)
        self.in_flight_bytes -= size
        bridge, consumer = self.bridge, self._consumer
        bridge.messages_forwarded += 1
        bridge.bytes_forwarded += size
        if self._failures or bridge.reported:
            self._working()
        if self._probes:
            self._probes -= 1
        assert consumer is not None
        consumer.settled += 1
        queue = as_queue(ref.queue)
        if queue.broker.storage.keeps_all:
            ref.last_rejected_by = consumer  # the store records this consumer as the acknowledging one
        queue.settle(ref)
        if self.state is BridgeState.CONNECTED:
            self._resume()
        elif self.state is BridgeState.STOPPING and not self.in_flight:
            self._stopped()

    def on_error(self, receipt: bytes | None, text: str) -> None:
        """Handle an ERROR of the remote broker, which then closes the connection. ``receipt``: receipt id of the
        rejected frame, if the ERROR names it.

        If the ERROR names none and several messages are in flight, the worker sends these again one by one, to find
        the rejected message.
        """
        if self._consumer is None:
            self.on_closed(f"ERROR: {text}")
            return
        rejected = None if receipt is None else self.in_flight.get(receipt)
        if rejected is None and len(self.in_flight) == 1:
            rejected = next(iter(self.in_flight.values()))
        self.bridge.errors += 1
        if rejected is None:
            self._probes = len(self.in_flight)
            self.on_closed(f"ERROR: {text}", rejected=True)
        else:
            self._reject(rejected, text)

    def _reject(self, ref: Reference, text: str) -> None:
        """Requeue a rejected message. If the queue has dead letters, the delivery counts for max-delivery-attempts.
        Without dead letters the message is sent again after growing delays, without a limit: a bridge loses no message.
        """
        del self.in_flight[b"%d" % ref.message.number]
        self.in_flight_bytes -= len(ref.message.tail)
        queue = as_queue(ref.queue)
        kept = has_dead_letters(queue)
        what = f"message {ref.message.number} of queue {queue.name} rejected: {text}"
        if not kept:
            what += f"; it is sent again until it is removed, or address {queue.address.name} has a dead-letter-address"
        self._probes = max(0, self._probes - 1)
        self.on_closed(what, rejected=True, ref=ref, failed=kept)

    def on_closed(
        self, reason: str, *, rejected: bool = False, ref: Reference | None = None, failed: bool = False
    ) -> None:
        """Reconnect after a connection was lost or could not be opened.

        ``rejected``: the worker does not try another connector, which would fail too (ERROR, deleted queue,
        slow-consumer-policy). ``ref`` is the rejected message, ``failed`` whether its delivery counts as failed.
        """
        connected = self._consumer is not None
        lasted = self.bridge.broker.clock.steady.now - self._connected_at
        worked = connected and not self._failures and lasted >= self.bridge.configuration.retry_interval
        if connected:
            self.bridge.on_disconnected(self, reason)
        self._disconnect(ref, failed)
        self.bridge.report(f"{self.remote}: {reason}")
        if self.state is BridgeState.STOPPING:
            self._stopped()
        elif rejected:
            self._retry()
        elif worked:
            self._connector = 0
            if not self._gives_up():
                self._wait(0)
        elif self._connector + 1 < len(self.bridge.configuration.connectors):
            self._connector += 1
            self._wait(0)
        else:
            self._attempts += 1
            self._retry()

    def on_unwritable(self) -> None:
        """Pause sending: the send buffer of the socket is full."""
        self._writable = False
        self._pause()

    def on_writable(self) -> None:
        """Resume sending: the send buffer has space."""
        self._writable = True
        self._resume()

    def _disconnect(self, rejected: Reference | None = None, failed: bool = False) -> None:
        """Close the connection, and requeue unconfirmed messages."""
        self._cancel_timer()
        connection, self._connection = self._connection, None
        consumer, self._consumer = self._consumer, None
        self._out.clear()
        if self._encoder is not None:
            self._encoder.stop()
            self._encoder = None
        if connection is not None:
            connection.close()
        unsettled = list(self.in_flight.values())
        self.in_flight = {}
        self.in_flight_bytes = 0
        if consumer is None:
            return
        queue = consumer.queue
        queue.dispatcher.pause_consumer(consumer)
        if failed and rejected is not None:
            queue.requeue([rejected], None, failed=True)
        elif rejected is not None:
            unsettled.append(rejected)
        queue.remove_consumer(consumer, unsettled)

    # ---- forwarding

    def forward(self, ref: Reference) -> None:
        """Send a message that the queue has delivered."""
        message, encoder = ref.message, self._encoder
        assert encoder is not None
        frame = encoder.frame(message)
        if frame is None:
            self.bridge.messages_discarded += 1
            ref.queue.settle(ref)
            return
        if not self._out:
            self.bridge.broker.clock.soon(self._flush)
        self._out.append(frame)
        self.in_flight[b"%d" % message.number] = ref
        self.in_flight_bytes += len(message.tail)
        if self._probes or self.in_flight_bytes >= self.bridge.configuration.confirmation_window_size:
            self._pause()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._connection is not None:
            self._connection.write(b"".join(out))

    def update(self) -> None:
        """Pause or resume consumption, as `Bridge.paused` requires now."""
        self._pause()
        self._resume()

    def _pause(self) -> None:
        if self._consumer is not None:
            self._consumer.queue.dispatcher.pause_consumer(self._consumer)

    def _resume(self) -> None:
        consumer = self._consumer
        if consumer is None or consumer.ready or self.bridge.paused or not self._writable:
            return
        window = 1 if self._probes else self.bridge.configuration.confirmation_window_size
        if self.in_flight_bytes < window and self.state is BridgeState.CONNECTED:
            consumer.queue.dispatcher.resume_consumer(consumer)

    # ---- timers

    def _call_later(self, delay: int, call: Call) -> None:
        clock = self.bridge.broker.clock.steady
        self._timer = clock.call_at(clock.refresh() + delay, call)

    def _cancel_timer(self) -> None:
        cancel(self._timer)
        self._timer = None


def has_dead_letters(queue: Queue) -> bool:
    """Return whether a dead letter of ``queue`` would enter a queue of its dead-letter-address."""
    settings = queue.address.settings
    name = settings.dead_letter_address
    if name is None or name == queue.address.name:
        return False
    if settings.auto_create_dead_letter_resources:
        return True
    address = services_of(queue).directory.addresses.get(name)
    return address is not None and bool(address.queues)


class Bridge:
    """One ``<bridge>``: a queue, and workers that forward its messages. All counters start at 0 with this object."""

    def __init__(
        self, broker: Services, configuration: BridgeConfiguration, identity: bytes, connect: Connect
    ) -> None:
        self.started = False
        self.paused = False
        self.last_error: str | None = None
        self.last_error_time = 0  # epoch ms; 0: no error
        self.messages_forwarded = 0
        self.bytes_forwarded = 0
        self.messages_discarded = 0  # number of messages that the transformer dropped
        self.errors = 0  # ERROR frames of the remote broker
        self.connections = 0  # number of successful connections
        self._stopping = 0  # number of workers that are stopping
        self._start_again = False
        self.broker = broker
        self.configuration = configuration
        self.name = configuration.name
        self.identity = identity  # identity of this broker, for duplicate ids
        self.connect = connect
        self.matches = compiled_filter(configuration.filter)
        self.workers = [BridgeWorker(self) for _ in range(configuration.concurrency)]
        self.reported: set[str] = set()  # texts of faults that were logged since a connection worked

    @property
    def queue(self) -> Queue | None:
        """The queue whose messages are forwarded, None while it does not exist."""
        return self.broker.directory.queues.get(self.configuration.queue_name)

    @property
    def state(self) -> BridgeState:
        """The first of `_STATES` that any worker is in."""
        return self._nearest.state

    @property
    def remote(self) -> str | None:
        """Host and port of the current remote broker, or else of the last one tried."""
        return self._nearest.remote or None

    @property
    def _nearest(self) -> BridgeWorker:
        return min(self.workers, key=lambda worker: _STATES.index(worker.state))

    @property
    def server(self) -> str | None:
        """Header ``server`` of the connected remote broker, None without one."""
        worker = self._nearest
        return worker.server or None if worker.state is BridgeState.CONNECTED else None

    @property
    def in_flight(self) -> int:
        """Number of messages sent and not confirmed."""
        return sum(len(worker.in_flight) for worker in self.workers)

    def queue_fault(self) -> str | None:
        """Return why messages of the queue cannot be forwarded, None if they can."""
        name, queue = self.configuration.queue_name, self.queue
        if queue is None:
            return f"queue {name} does not exist; declare it in <addresses> or create it"
        if queue.attributes.non_destructive:
            return (
                f"queue {name} is non-destructive: all its messages would be sent again with each connection"
            )
        return None

    # ---- management

    def start(self) -> bool:
        """Start forwarding: now, or when a stop in progress has ended. Return False if it was started already."""
        if self._stopping:
            again, self._start_again = not self._start_again, True
            return again
        if self.started and self.state is not BridgeState.FAILED:
            return False
        self.started = True
        self.reported.clear()
        for worker in self.workers:
            if worker.state in (BridgeState.STOPPED, BridgeState.FAILED):
                worker.start()
        self._notify("BRIDGE_STARTED", f"bridge {self.name} started")
        log.info(
            "bridge %s: started, from queue %s", self.name, self.configuration.queue_name, extra=self._fields
        )
        return True

    def stop(self, done: Call | None = None, timeout: int | None = None) -> bool:
        """Stop forwarding. Return False if it was stopped already.

        Calls ``done`` when all messages are confirmed, at the latest after ``timeout`` ms (``pending-ack-timeout``).
        """
        self._start_again = False
        if not self.started:
            if done is not None:
                done()
            return False
        self.started = False
        self._stopping = len(self.workers)

        def stopped() -> None:
            self._stopping -= 1
            if self._stopping:
                return
            self._notify("BRIDGE_STOPPED", f"bridge {self.name} stopped")
            log.info("bridge %s: stopped", self.name, extra=self._fields)
            if done is not None:
                done()
            if self._start_again:
                self._start_again = False
                self.start()

        most = self.configuration.pending_ack_timeout if timeout is None else timeout
        for worker in self.workers:
            worker.stop(most, stopped)
        return True

    def set_paused(self, paused: bool) -> None:
        """Pause or resume consumption of the queue, also after a restart; connections stay open."""
        self.paused = paused
        self.broker.storage.values.put(PAUSED, self.name, {} if paused else None)
        for worker in self.workers:
            worker.update()

    # ---- reports of workers

    def report(self, fault: str) -> None:
        """Log a fault. The same text is logged once until a connection works."""
        self.last_error, self.last_error_time = fault, self.broker.clock.now
        if fault in self.reported:
            return
        if len(self.reported) >= MAX_REPORTED:
            self.reported.clear()
        self.reported.add(fault)
        again = f"; trying again every {self.workers[0].retry_delay()} ms" if self.started else ""
        log.warning("bridge %s: %s%s", self.name, fault, again, extra=self._fields)

    def on_working(self, worker: BridgeWorker) -> None:
        """Count, log and announce a working connection."""
        self.connections += 1
        self.reported.clear()
        self._notify(
            "BRIDGE_CONNECTED",
            f"bridge {self.name} connected to {worker.remote}",
            remoteAddress=worker.remote,
        )
        log.info(
            "bridge %s: connected to %s (%s)",
            self.name,
            worker.remote,
            worker.server or "unknown server",
            extra=self._fields | {"peer": worker.remote},
        )

    def on_disconnected(self, worker: BridgeWorker, reason: str) -> None:
        """Announce the loss of a connection, unless a fault was reported since a connection worked."""
        if not self.reported:
            what = f"bridge {self.name} disconnected from {worker.remote}: {reason}"
            self._notify("BRIDGE_DISCONNECTED", what, remoteAddress=worker.remote)

    def on_failed(self, reason: str) -> None:
        """Log and announce that a worker has used up its attempts."""
        log.error("bridge %s: %s", self.name, reason, extra=self._fields)
        self._notify("BRIDGE_STOPPED", f"bridge {self.name} failed: {self.last_error}; {reason}")

    def _notify(self, kind: str, text: str, **fields: str) -> None:
        self.broker.notifications.notify(
            kind, text, bridge=self.name, queue=self.configuration.queue_name, **fields
        )

    @property
    def _fields(self) -> dict[str, str]:
        return {"bridge": self.name, "queue": self.configuration.queue_name}


#: States of workers, highest precedence first: the bridge has the first of these states that any worker is in.
_STATES = (
    BridgeState.CONNECTED,
    BridgeState.CONNECTING,
    BridgeState.WAITING,
    BridgeState.STOPPING,
    BridgeState.FAILED,
    BridgeState.STOPPED,
)


class Bridges:
    """The bridges of a broker, by name."""

    def __init__(self, broker: Services, identity: bytes, connect: Connect) -> None:
        self._broker = broker
        self._identity = identity
        self._connect = connect
        self.by_name: dict[str, Bridge] = {}
        self._running = False

    def apply(self, configurations: Iterable[BridgeConfiguration]) -> list[str]:
        """Apply a configuration: start new bridges, replace changed ones, and stop removed ones. Return a text for each
        change. A replacement starts when its predecessor has received its confirmations.
        """
        wanted = {each.name: each for each in configurations}
        texts = self.compare(wanted)
        for name, bridge in list(self.by_name.items()):
            configuration = wanted.get(name)
            if configuration == bridge.configuration:
                continue
            del self.by_name[name]
            if configuration is None:
                self._broker.storage.values.put(PAUSED, name, None)
                bridge.stop()
            else:
                self._replace(bridge, self._add(configuration))
        for name, configuration in wanted.items():
            if name not in self.by_name:
                made = self._add(configuration)
                if self._running:
                    made.start()
        return texts

    def compare(self, wanted: Mapping[str, BridgeConfiguration]) -> list[str]:
        """Return the texts that `apply` would return. Changes nothing."""
        known = self.by_name
        added = [f"bridge {name} added" for name in wanted if name not in known]
        changed = [
            f"bridge {name} changed"
            for name, one in wanted.items()
            if name in known and known[name].configuration != one
        ]
        return added + changed + [f"bridge {name} removed" for name in known if name not in wanted]

    def _add(self, configuration: BridgeConfiguration) -> Bridge:
        bridge = Bridge(self._broker, configuration, self._identity, self._connect)
        bridge.paused = configuration.name in self._broker.storage.values.of(PAUSED)
        self.by_name[configuration.name] = bridge
        return bridge

    def _replace(self, old: Bridge, new: Bridge) -> None:
        started = old.started

        def begin() -> None:
            if started and self._running and self.by_name.get(new.name) is new:
                new.start()

        old.stop(begin)

    def start(self) -> None:
        """Start all bridges."""
        self._running = True
        for bridge in self.by_name.values():
            bridge.start()

    def stop(self, timeout: int, done: Call) -> None:
        """Stop all bridges, wait at most ``timeout`` ms for confirmations, and call ``done``."""
        self._running = False
        waiting = set(self.by_name)

        def stopped(name: str) -> None:
            waiting.discard(name)
            if not waiting:
                done()

        if not waiting:
            done()
        for name, bridge in list(self.by_name.items()):
            bridge.stop(partial(stopped, name), min(timeout, bridge.configuration.pending_ack_timeout))
