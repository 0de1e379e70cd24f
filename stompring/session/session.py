"""The state of one connection, its answers to the client, and its end. Without I/O.

The handlers of the commands share this state: `send`, `subscribe` and `transact`. `commands` calls them for each frame.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from mypy_extensions import mypyc_attr

from stompring.broker.address import Address
from stompring.broker.broker import Broker
from stompring.broker.clock import Schedule, Timer, cancel
from stompring.broker.directory import check_not_internal
from stompring.broker.history import History
from stompring.broker.limits import ByteQuota
from stompring.broker.message import Traits
from stompring.broker.ports import AdmissionResult
from stompring.broker.publish import Publication, Transaction
from stompring.broker.queue import Consumer, Queue, as_queue
from stompring.broker.reference import Reference
from stompring.errors import NotFound, ProtocolError, Refused
from stompring.settings.match import TEMPORARY_QUEUE, TEMPORARY_TOPIC
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType, StompAcceptor
from stompring.stomp.frames import BACKSLASH, COLON, CR, LF, Head, encode_frame, escape

from .connect import Login, RequestHandler, UnsupportedVersion
from .destination import Destination, Destinations, PermissionRejected
from .outbox import Heartbeat, InProgress, Outbox, Outgoing, Wire, printable, text_of
from .subscription import AcknowledgedSubscription, Subscription

log = logging.getLogger(__name__)

#: Maximum milliseconds between two checks whether the login of a connection has expired.
EXPIRY_CHECK: Final = 60_000

#: Maximum number of queues that the log names with their unacknowledged messages when a connection closes.
QUEUES_LOGGED: Final = 5


class Route:
    """The address or queue of a destination. Outdated if ``stamp`` differs from the stamp of the address."""

    __slots__ = ("address", "queue", "routing_type", "stamp")

    def __init__(self, address: Address, queue: Queue | None, routing_type: RoutingType | None) -> None:
        self.address = address
        self.queue = queue
        self.routing_type = routing_type
        self.stamp = address.stamp


#: Which outcomes of a SEND the session reports to the policies of the address: only refusals, or all outcomes.
REFUSED, ENTERED = 1, 2

#: Handles a SEND that the session does not publish itself: a SEND in a transaction, or a management request.
CarryOut = Callable[["Session", Head, bytes, "SendPlan"], None]


class SendPlan(Publication):
    """The publication for SENDs with one header block, and how the session processes them.

    ``admit`` evaluates the policies of the address. If policies change a message, `derive` makes another plan: ``head``
    has the changed headers, ``target`` is the new address. ``plain`` messages are routed immediately and request no
    receipt. ``carry_out`` replaces publishing for a SEND in a transaction and for a management request.
    """

    def __init__(
        self,
        route: Route,
        traits: Traits,
        schedule: Schedule | None,
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(route.address, route.queue, traits, schedule)
        self.stamp = route.stamp
        hooks = route.address.hooks
        self.admit = hooks.admit
        self.reports = ENTERED if hooks.reports_entered else REFUSED if hooks.reports_refused else 0
        self.receipt = b"receipt" in headers
        self.carry_out: CarryOut | None = None
        self.plain = self.direct and not (self.receipt or b"transaction" in headers)
        self.head: Head | None = None
        self.target: str | None = None
        # latest admission result, and the plan derived with it
        self.derived: tuple[AdmissionResult, SendPlan] | None = None


@mypyc_attr(allow_interpreted_subclasses=True)  # HTTP requests use an interpreted subclass to send messages
class Session:
    """A connection from its first byte to its last."""

    def __init__(
        self,
        broker: Broker,
        acceptor: StompAcceptor,
        destinations: Destinations,
        wire: Wire,
        outgoing: Outgoing,
        number: str,
    ) -> None:
        self.broker = broker
        self.acceptor = acceptor
        self.number = number
        self.connected_at = broker.clock.now
        self.version = b"1.0"
        self.connected = False
        self.closed = False
        self.leaving = False  # whether DISCONNECT waits for the disk; further input is then ignored
        self.login = Login()
        self.client_id: str | None = None
        self._login_timer: Timer | None = None  # timer of the next `check_expiry`
        self.subscriptions: dict[bytes, Subscription] = {}
        # subscriptions by the part of their message ids before the "-", which names the queue
        self.by_queue: dict[bytes, list[AcknowledgedSubscription]] = {}
        #: the only subscription in ``by_queue``; None in 1.1, where an ACK names its subscription
        self.only_acknowledged: AcknowledgedSubscription | None = None
        # the subscription to resume after the ACKs of this read
        self.credit_freed: AcknowledgedSubscription | None = None
        self.transactions: dict[bytes, Transaction] = {}
        self.transaction_bytes = ByteQuota(
            acceptor.max_transaction_bytes, broker.transaction_bytes
        )  # quota for the bytes of the open transactions
        self.messages_in = 0
        self.history: History | None = None  # samples of the counters, None while the session is not sampled
        # numbers of messages that ended subscriptions have received and acknowledged
        self.delivered_before = self.acknowledged_before = 0
        self.blocked = False
        self.blocked_by: Address | None = None  # the address whose limit or policy a SEND waits for
        self._destinations = destinations
        self.requests: RequestHandler | None = None  # handler of management requests
        self.wire = wire
        self.temporary_queues: list[str] = []
        self.temporary_topics: list[str] = []
        self.routes: dict[tuple[bytes | None, ...], Route] = {}  # routes by the destination headers of SEND
        #: plans of SENDs whose header blocks do not repeat, by the values of the headers that the broker reads. Each
        #: plan comes with the traits of its first SEND, and with the header lines that the broker adds.
        self.shared_plans: dict[object, tuple[SendPlan, Traits, bytes]] = {}
        self.outbox = Outbox(wire, outgoing, self._socket_full, self._socket_free, acceptor.outbox_size)
        self.steady = broker.clock.steady
        self.heartbeat = Heartbeat(self.steady, self.outbox, self._beat, self._silent)

    # ---- waiting

    def go_on(self) -> None:
        """Process the deferred input, then resume reading: the session no longer waits."""
        raise AssertionError("a session that waits resumes")

    def discard_input(self) -> None:
        """The connection is closed: drop deferred and further input."""
        raise AssertionError("a session that reads discards what it has read")

    def wait_for_work(
        self, when_done: Callable[[Callable[[], object]], object], then: Callable[[], object]
    ) -> None:
        """Call ``then`` when the work is complete whose end ``when_done`` reports. If it is not complete yet, pauses
        reading and raises `InProgress`.
        """
        done = False

        def is_done() -> None:
            nonlocal done
            done = True
            then()
            if self.blocked:
                self.broker.clock.soon(self.go_on)

        when_done(is_done)
        if not done:
            self.block()
            raise InProgress

    def block(self) -> None:
        """Pause reading until `go_on`."""
        self.blocked = self.heartbeat.suspended = True
        self.outbox.reading.pause()

    # ---- bytes out

    def send(self, command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a frame."""
        self.outbox.send(encode_frame(command, headers, body, self.version))

    def receipt(self, head: Head, durable: bool = False, transactional: bool = False) -> None:
        """Answer a ``receipt`` header, if there is one. If ``durable``, wait until the changes so far are on disk.

        ``transactional``: whether the frame is a COMMIT, so that ``journal-sync-transactional`` applies.
        """
        receipt = head.receipt
        if receipt is None:
            return
        if COLON in receipt or BACKSLASH in receipt or LF in receipt or CR in receipt:
            receipt = escape(receipt, self.version)
        frame = b"RECEIPT\nreceipt-id:%b\n\n\0\n" % receipt  # faster than `encode_frame`
        if durable:
            self.broker.storage.when_synced(partial(self.outbox.send, frame), transactional)
        else:
            self.outbox.send(frame)

    def refuse(self, error: Exception) -> None:
        """Send an ERROR that answers no frame, and close the connection."""
        if not self.closed:
            self.fail(error, None)

    def fail(self, error: Exception, head: Head | None) -> None:
        text = " ".join(str(error).split())
        headers = [(b"message", text.encode()), (b"content-type", b"text/plain")]
        receipt = head.headers.get(b"receipt") if head is not None else getattr(error, "receipt", None)
        if receipt is not None:
            headers.append((b"receipt-id", receipt))
        if isinstance(error, UnsupportedVersion):
            headers.append((b"version", b"1.0,1.1,1.2"))
        if isinstance(error, PermissionRejected):
            self.notify(
                "SECURITY_PERMISSION_VIOLATION",
                text,
                {"_AMQ_CheckType": error.permission},
                address=error.address,
            )
        elif isinstance(error, Refused) and error.status == 403:
            self.notify("SECURITY_PERMISSION_VIOLATION", text)
        self.broker.rejections.add_error(
            error, f"connection {self.number} ({self.peer})", text, self.log_fields()
        )
        self.send(b"ERROR", headers, text.encode() + b"\n")
        self.close(f"ERROR sent: {text}")

    def _beat(self) -> None:
        self.outbox.send(b"\n")

    def _silent(self, ttl: int) -> None:
        self.fail(
            Refused(
                f"Did not receive data from {self.peer} within the {ttl}ms connection TTL. "
                "The connection will now be closed."
            ),
            None,
        )

    def _socket_full(self) -> None:
        by_queue: defaultdict[Queue, list[Consumer]] = defaultdict(list)
        for subscription in self.subscriptions.values():
            if not subscription.terms.browser:
                by_queue[subscription.queue].append(subscription)
        for queue, consumers in by_queue.items():
            queue.dispatcher.pause_consumers(consumers)

    def _socket_free(self) -> None:
        for subscription in list(self.subscriptions.values()):
            subscription.on_writable()

    # ---- the end

    def check_expiry(self) -> None:
        """Close the connection with an ERROR if its login has expired; else schedule the next check."""
        expires = self.login.expires
        if expires is None or self.closed:
            return
        remaining = expires - self.broker.clock.refresh()
        if remaining <= 0:
            self.refuse(Refused(f"The login of user {self.login.user} has expired", status=401))
            return
        # a timer of the steady clock is exact, even if an operator sets the wall clock meanwhile
        steady = self.steady
        self._login_timer = steady.call_at(steady.now + min(remaining, EXPIRY_CHECK), self.check_expiry)

    def close(self, reason: str) -> None:
        """Send the written bytes, close the connection and call `lost`. ``reason`` is for the log."""
        if not self.closed:
            self.outbox.flush()
            self.wire.close()
            self.lost(reason)

    def lost(self, reason: str = "closed by the client") -> None:
        """The connection has ended: requeue its unsettled messages, each as a failed delivery, and abort transactions.

        ``reason`` is for the log.
        """
        if self.closed:
            return
        self._log_closed("DISCONNECT" if self.leaving else reason)
        self.closed = True
        cancel(self._login_timer)
        self.discard_input()
        for transaction in self.transactions.values():
            transaction.cancel("the connection was closed before COMMIT")
        self._requeue_all()
        self.transaction_bytes.release(self.transaction_bytes.bytes)
        directory = self.broker.directory
        directory.resource_limits.leave(self.login.user)
        for name in self.temporary_queues:
            if name in directory.queues:
                directory.delete_queue(name, force=True)
        for name in self.temporary_topics:
            if name in directory.addresses:
                directory.delete_address(name, force=True)
        self._untie()

    def peer_gone(self) -> None:
        """The client has closed its side of the connection while reading was paused. End its subscriptions, but process
        its frames.
        """
        if not self.closed and self.subscriptions:
            log.info(
                "connection %s (%s): closed by the client while blocked",
                self.number,
                self.peer,
                extra=self.log_fields(),
            )
            open_transactions, self.transactions = self.transactions, {}
            self._requeue_all()
            self.transactions = open_transactions

    def log_fields(self) -> dict[str, object]:
        """Return the fields of this connection for the JSON format of the log."""
        fields: dict[str, object] = {
            "connection": self.number,
            "peer": self.peer,
            "acceptor": self.acceptor.name,
        }
        if self.login.user is not None:
            fields["user"] = self.login.user
        return fields

    def notify(
        self, kind: str, text: str, headers: Mapping[str, str] | None = None, /, **fields: str | int | None
    ) -> None:
        """Send a notification of an event of this connection, with additional ``headers``."""
        subject = self.wire.certificate
        if subject is not None:
            headers = {"_AMQ_CertSubjectDN": subject, **(headers or {})}
        self.broker.notifications.notify(
            kind,
            text,
            headers,
            connectionID=self.number,
            user=self.login.user,
            remoteAddress=self.peer,
            **fields,
        )

    def notify_session(self, kind: str, text: str) -> None:
        """Send a notification about the session. Artemis distinguishes connections and sessions; here they are one."""
        self.broker.notifications.notify_session(
            kind, text, connectionID=self.number, user=self.login.user, clientID=self.client_id
        )

    def notify_consumer(self, kind: str, subscription: Subscription, verb: str) -> None:
        """Send a notification that a subscription has begun, or is about to leave its queue; none for a browser."""
        if subscription.terms.browser:
            return
        queue, identifier = subscription.queue, subscription.identifier
        self.notify(
            kind,
            f"subscription {printable(identifier)} of queue {queue.name} {verb}",
            queue=queue.name,
            address=queue.address.name,
            consumer=identifier,
            consumerCount=len(queue.consumers) - (kind == "CONSUMER_CLOSED"),
            filter=subscription.terms.selector,
        )

    def _log_closed(self, reason: str) -> None:
        """Log why the connection has ended, and how many messages are unsettled. Call this before they are requeued."""
        left: Counter[str] = Counter()
        for subscription in self.subscriptions.values():
            left[subscription.queue.name] += subscription.unsettled_count
        for transaction in self.transactions.values():  # acknowledgements have no effect without a COMMIT
            left.update(ref.queue.name for ref in transaction.returns)
        unacknowledged, transactions = left.total(), len(self.transactions)
        queues = {name: number for name, number in left.most_common(QUEUES_LOGGED) if number}
        text = f"unacknowledged messages: {unacknowledged}"
        if queues:
            named = ", ".join(f"queue {name}: {number}" for name, number in queues.items())
            text += f" ({named}, …)" if sum(queues.values()) < unacknowledged else f" ({named})"
        if transactions:
            text += f", open transactions aborted: {transactions}"
        reason = printable(reason, 300)
        user = "" if self.login.user is None else f"user {printable(self.login.user)}, "
        if self.connected:
            self.notify(
                "CONNECTION_DESTROYED", f"connection {self.number} closed: {reason}", clientID=self.client_id
            )
            self.notify_session("SESSION_CLOSED", f"session of connection {self.number} closed")
        self.broker.log_limit.info(
            log,
            "connection closed" if reason == "DISCONNECT" else "connection failed",
            "connection %s (%s) closed: %s; %s%s",
            self.number,
            self.peer,
            reason,
            user,
            text,
            fields={
                **self.log_fields(),
                "reason": reason,
                "unacknowledged": unacknowledged,
                "unacknowledged_by_queue": queues,
                "open_transactions": transactions,
            },
        )

    def _requeue_all(self) -> None:
        self._socket_full()  # pauses the subscriptions: else one would receive the messages that another one requeues
        subscriptions = list(self.subscriptions.values())
        by_queue: defaultdict[Queue, list[Subscription]] = defaultdict(list)
        for subscription in subscriptions:
            subscription.ended = True
            by_queue[subscription.queue].append(subscription)
        returned: defaultdict[Queue, list[Reference]] = defaultdict(list)
        for transaction in self.transactions.values():
            for ref in transaction.returns:
                returned[as_queue(ref.queue)].append(ref)
        self.broker.subscription_memory.bytes -= sum([each.size for each in subscriptions])
        self.subscriptions.clear()
        self.by_queue.clear()
        self.only_acknowledged = None
        for transaction in self.transactions.values():
            transaction.forget()
        self.transactions.clear()
        self.broker.background.run(self._detach_all(by_queue, returned))

    def _detach_all(
        self,
        by_queue: dict[Queue, list[Subscription]],
        returned: dict[Queue, list[Reference]],
    ) -> Iterator[None]:
        """End the subscriptions, which are paused, in steps: a connection may have ten thousand of them."""
        for queue, subscriptions in by_queue.items():
            refs: list[Reference] = []
            for subscription in subscriptions:
                if self.broker.stopping:
                    subscription.forget_unrecorded()
                refs += subscription.take_unsettled()
                yield
            refs += returned.pop(queue, [])
            for subscription in subscriptions:
                # the first `detach` requeues the messages of all these subscriptions: no other consumer gets a pending
                # message before them, which keeps the order
                if not subscription.detached:  # True: the queue was deleted meanwhile
                    if not self.broker.stopping:
                        self.notify_consumer("CONSUMER_CLOSED", subscription, "ended with its connection")
                    subscription.detach(refs, failed=True)
                    refs = []
                    yield
            if refs:
                queue.requeue(refs, None, failed=True)
        for queue, refs in returned.items():
            queue.requeue(refs, None, failed=True)
            yield

    def _untie(self) -> None:
        """Break the reference cycles of this object, so that reference counting frees it."""
        self.outbox.break_cycles()
        self.heartbeat.break_cycles()
        self.routes.clear()

    # ---- subscriptions

    def register(self, subscription: Subscription) -> None:
        """Add a subscription that has joined its queue."""
        self.broker.subscription_memory.bytes += subscription.size
        self.subscriptions[subscription.terms.id] = subscription
        if isinstance(subscription, AcknowledgedSubscription):
            self.by_queue.setdefault(subscription.queue.id_prefix[:-1], []).append(subscription)
            self._find_only_acknowledged()

    def _find_only_acknowledged(self) -> None:
        self.only_acknowledged = None
        if len(self.by_queue) == 1 and self.version != b"1.1":
            (subscriptions,) = self.by_queue.values()
            if len(subscriptions) == 1:
                self.only_acknowledged = subscriptions[0]

    @property
    def messages_delivered(self) -> int:
        """Number of deliveries since the connection began, redeliveries included."""
        return self.delivered_before + sum([each.messages_delivered for each in self.subscriptions.values()])

    def end_subscription(
        self, subscription: Subscription, verb: str = "ended", *, failed: bool = False
    ) -> None:
        """Remove a subscription from its queue, and requeue its unsettled messages."""
        self.delivered_before += subscription.messages_delivered
        self.acknowledged_before += subscription.messages_acknowledged
        if self.subscriptions.pop(subscription.terms.id, None) is not None:
            self.broker.subscription_memory.bytes -= subscription.size
        if isinstance(subscription, AcknowledgedSubscription):
            prefix = subscription.queue.id_prefix[:-1]
            rest = [other for other in self.by_queue.get(prefix, ()) if other is not subscription]
            if rest:
                self.by_queue[prefix] = rest
            else:
                self.by_queue.pop(prefix, None)
            self._find_only_acknowledged()
        self.notify_consumer("CONSUMER_CLOSED", subscription, verb)
        subscription.detach(subscription.take_unsettled(), failed=failed)

    def cancelled(self, subscription: Subscription, reason: str) -> None:
        """End a subscription with an ERROR: its queue was deleted, or its client was too slow."""
        self.end_subscription(subscription, f"ended: {reason}", failed=True)
        if not self.closed:
            self.refuse(Refused(f"Subscription {text_of(subscription.terms.id)} ended: {reason}"))

    def close_if_revoked(self) -> None:
        """Close the session if a change of permissions forbids one of its subscriptions."""
        authorizer = self.login.authorizer
        if authorizer.allows_all or self.closed:
            return
        for subscription in self.subscriptions.values():
            queue = subscription.queue
            try:
                authorizer.check_consume(queue.name, queue.address.name, browse=subscription.terms.browser)
            except Refused as refused:
                self.refuse(refused)
                return

    # ---- destinations

    @property
    def peer(self) -> str:
        """Host and port of the client."""
        return self.wire.peer

    @property
    def origin(self) -> str:
        """The producer identity for no-local: the client-id, which is the same after a reconnect, or the connection."""
        return self.number if self.client_id is None else self.client_id

    def parse_destination(self, destination: bytes, requested: str | None) -> Destination:
        """Parse a destination header with the prefixes of the acceptor. Raises `ProtocolError`, `Refused`."""
        try:
            text = destination.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"destination {destination[:100]!r} is not UTF-8") from None
        parsed = self._destinations.parse(text, requested, self.number)
        self.broker.directory.check_words(parsed.address)
        if parsed.queue is not None:
            check_not_internal(parsed.queue)
        return parsed

    def temporary_topic(self, target: Destination) -> Address:
        """Return a temporary topic; its own connection creates it. Raises `NotFound` if it does not exist."""
        name, directory = target.address, self.broker.directory
        address = directory.addresses.get(name)
        if address is not None:
            return address
        if not name.startswith(f"{TEMPORARY_TOPIC}{self.number}."):
            raise NotFound(f"Temporary topic {name} does not exist: its connection is closed")
        self.login.authorizer.check(PermissionType.CREATE_ADDRESS, name)
        directory.resource_limits.check_address(name)
        address = directory.create_address(name, frozenset({RoutingType.MULTICAST}), auto_created=True)
        address.temporary = True
        self.temporary_topics.append(name)
        return address

    def temporary_queue(self, target: Destination) -> Queue:
        """Return a temporary queue; its own connection creates it. Raises `NotFound` if it does not exist."""
        name, directory = target.address, self.broker.directory
        queue = directory.queues.get(name)
        if queue is not None:
            return queue
        if not name.startswith(f"{TEMPORARY_QUEUE}{self.number}."):
            raise NotFound(f"Temporary queue {name} does not exist: its connection is closed")
        self.login.authorizer.check(PermissionType.CREATE_ADDRESS, name)
        self.login.authorizer.check(PermissionType.CREATE_NON_DURABLE_QUEUE, name)
        directory.resource_limits.check_address(name)
        directory.resource_limits.check_queue(self.login.user)
        queue = directory.create_queue(
            QueueConfiguration(
                name=name,
                address=name,
                routing_type=RoutingType.ANYCAST,
                durable=False,
                user=self.login.user,
                auto_created=True,
                temporary=True,
            )
        )
        self.temporary_queues.append(name)
        return queue
