"""One client's conversation: frames come in, the broker is called, frames go out. No I/O of its own.

What each command does stands in a file of its own (`connect`, `send`, `subscribe`, `acknowledge`, `transact`); the
session holds what they share. Errors end here: a `ProtocolError` or `Refused` becomes an ERROR frame that says why,
and the connection closes, as STOMP 1.2 asks for ("ERROR"). Anything else is a bug of ours: logged with its traceback,
the client told so.

Which function deals with which command.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from mypy_extensions import mypyc_attr

from stompring.broker.address import Address
from stompring.broker.broker import Broker
from stompring.broker.clock import Timer
from stompring.broker.directory import check_not_internal
from stompring.broker.history import History
from stompring.broker.limits import UNCOUNTED, ByteQuota, MemoryLimit
from stompring.broker.message import Traits
from stompring.broker.publish import Transaction
from stompring.broker.queue import Consumer, Queue, as_queue
from stompring.broker.reference import Reference
from stompring.errors import ProtocolError, Refused
from stompring.settings.model import StompAcceptor
from stompring.stomp.frames import Head, encode_frame, receipt_frame
from stompring.stomp.headers import Template
from stompring.stomp.parser import Parser

from .connect import Authenticator, Login, UnsupportedVersion, on_CONNECT, on_DISCONNECT
from .destination import Destination, Destinations, PermissionRejected
from .outbox import Blocked, Heartbeat, InProgress, Outbox, Outgoing, Wire, printable, shortened, text_of
from .send import HEADER_USE, RequestHandler, Route, SendEvaluation, SendPlan, on_SEND, resume_SEND
from .subscription import AcknowledgedSubscription, Subscription, on_SUBSCRIBE, on_UNSUBSCRIBE
from .transact import SETTLING, on_ABORT, on_ACK, on_BEGIN, on_COMMIT, on_NACK

Verb = Callable[["Session", Head, bytes], None]

VERBS: dict[bytes, Verb] = {
    b"SEND": on_SEND,
    b"ACK": on_ACK,
    b"NACK": on_NACK,
    b"SUBSCRIBE": on_SUBSCRIBE,
    b"UNSUBSCRIBE": on_UNSUBSCRIBE,
    b"BEGIN": on_BEGIN,
    b"COMMIT": on_COMMIT,
    b"ABORT": on_ABORT,
    b"DISCONNECT": on_DISCONNECT,
}


def opening_command(head: Head, connected: bool) -> Verb:
    """For frames that `VERBS` is not for: the first one of a connection, and unknown commands."""
    command = shortened(head.command)
    if head.command in (b"CONNECT", b"STOMP"):
        if connected:
            raise ProtocolError(f"{command} on a connection that is already connected")
        return on_CONNECT
    if not connected:
        raise ProtocolError(f"Connection has not been established: the first frame is {command}, not CONNECT")
    raise ProtocolError(f"Unknown command {command!r}")


log = logging.getLogger(__name__)

#: Steps (`Effort`) that one client's frames may cost before it is the turn of others: some milliseconds. A SEND costs
#: that much only if many wildcard addresses are alike, or made to be slow, or if many consumers have selectors. Twenty
#: new addresses do.
STEPS = 2_000

#: Frames of one read other than SEND and ACK, which may take long each: so many are handled without reading the clock,
#: and so many in any case, as in a transaction.
OTHERS_AT_ONCE, OTHERS_ALWAYS = 4, 2

#: Frames of one read that are done without a look at the time. A read of ordinary SENDs has a few more.
FRAMES_AT_ONCE = 256

#: Seconds of work on the frames of one read, after which others have their turn.
READ_SLICE = 0.002


Frame = tuple[Head, bytes]

#: Queues that the log names with their unacknowledged messages when a connection closes.
QUEUES_LOGGED = 5


@mypyc_attr(allow_interpreted_subclasses=True)  # of requests of HTTP that send
class Session:
    """A connection from its first byte to its last."""

    def __init__(
        self,
        broker: Broker,
        acceptor: StompAcceptor,
        destinations: Destinations,
        authenticator: Authenticator,
        wire: Wire,
        outgoing: Outgoing,
        number: str,
    ) -> None:
        limits = acceptor.limits
        self.broker = broker
        self.acceptor = acceptor
        self.number = number
        self.connected_at = broker.clock.now
        self.version = b"1.0"
        self.connected = False
        self.closed = False
        self.leaving = (
            False  # has said good-bye, and waits for the disk: what it sends does not count any more
        )
        self.login = Login()
        self.client_id: str | None = None
        self.subscriptions: dict[bytes, Subscription] = {}
        # by the part of a message id before "-"
        self.by_queue: dict[bytes, list[AcknowledgedSubscription]] = {}
        #: the only one in ``by_queue``, where an ACK need not name it (not in 1.1)
        self.only_acknowledged: AcknowledgedSubscription | None = None
        self.credit_freed: AcknowledgedSubscription | None = None  # by an ACK that is being carried out
        self.transactions: dict[bytes, Transaction] = {}
        self.transaction_bytes = ByteQuota(
            acceptor.max_transaction_bytes, broker.transaction_bytes
        )  # by them
        self.messages_in = 0
        self.history: History | None = None  # while it is sampled
        self.delivered_before = self.acknowledged_before = 0  # by subscriptions that have ended
        self.blocked = False
        self._destinations = destinations
        self.authenticator = authenticator
        self.requests: RequestHandler | None = None  # carries out what is sent to the management-address
        self.wire = wire
        self._parser = Parser(
            limits.max_body_length, limits.max_headers, limits.max_header_length, HEADER_USE
        )
        self.carried = 0  # bytes of an unfinished frame of WebSocket
        self._holds = False  # so much of an unfinished frame that it counts
        self._deferred_frames: list[Frame] = []  # came in while something must be waited for
        self.awaiting_login = False
        self._blocked_by: Address | None = None
        self._offered: SendEvaluation | None = (
            None  # the SEND that waits, with the answers of policies so far
        )
        self._resumed_by: MemoryLimit | None = None  # the limit that lets a blocked producer try again
        self._pause: Timer | None = None  # until a policy lets its producer go on
        self.temporary_queues: list[str] = []
        self.temporary_topics: list[str] = []
        self.routes: dict[tuple[bytes | None, ...], Route] = {}  # what destinations of SEND lead to
        #: of SENDs whose headers are seen once, by what is read of them; with the traits of one and the lines that
        #: the broker sets
        self.shared_plans: dict[object, tuple[SendPlan, Traits, bytes]] = {}
        self.outbox = Outbox(wire, outgoing, self._socket_full, self._socket_free, acceptor.outbox_size)
        self._steady = broker.clock.steady
        self.heartbeat = Heartbeat(self._steady, self.outbox, self._beat, self._silent)

    # ---- bytes in

    def receive(self, data: bytes) -> None:
        """Bytes from the client. Everything they ask for has happened, or is held back, when this returns."""
        self.heartbeat.last_read = self._steady.now
        if self.closed or self.leaving:
            return
        frames = self._parser.feed(data)
        if len(self._parser.buffer) + self.carried > UNCOUNTED or self._holds:
            self._holds = self.broker.unfinished.hold(self, len(self._parser.buffer) + self.carried)
        if self.blocked:
            self._deferred_frames += frames
            return
        was_connected = self.connected
        if len(frames) > FRAMES_AT_ONCE:
            self._take_in_slices(frames)
        else:
            self._take(frames)
        if self.connected and not was_connected and not self.closed:
            # the parser keeps what follows CONNECT until the version is known
            self.receive(b"")
            return
        error = self._parser.error
        if error is not None and not (self._deferred_frames or self.closed or self.leaving):
            self.fail(error, None)

    def _take_in_slices(self, frames: list[Frame], offered: SendEvaluation | None = None) -> None:
        """As `_take`, of many frames, all ACKs perhaps: when it takes long the rest has to wait for a later turn."""
        now = self.broker.background.now
        end = now() + READ_SLICE
        for at in range(0, len(frames), FRAMES_AT_ONCE):
            self._take(frames[at : at + FRAMES_AT_ONCE], offered)
            offered = None
            rest = frames[at + FRAMES_AT_ONCE :]
            if not rest or self.closed or self.leaving:
                return
            if self.blocked or self.awaiting_login:
                self._deferred_frames += rest
                if self._blocked_by is not None:
                    self._let_settlements_pass()
                return
            if now() >= end:
                self._deferred_frames = rest
                self._wait_for_turn()
                return

    def _take(self, frames: list[Frame], offered: SendEvaluation | None = None) -> None:
        """Do what frames say. ``offered`` is the first one, where that is a SEND which had to wait."""
        head = None
        taken = 0
        may_pass = True  # ACKs may pass a SEND that waits, but not what is done about the same messages
        paging = self.broker.paging
        effort, slices = self.broker.effort, self.broker.frame_slices
        enough = effort.steps + STEPS
        others = 0
        try:
            try:
                if paging is not None:
                    paging.gathering = True  # what SENDs that came together have for the same queue
                if offered is not None:
                    head = offered.head
                    resume_SEND(self, offered)
                    taken = 1
                for head, body in frames[taken:] if taken else frames:
                    command = head.command
                    if command == b"SEND" and self.connected:
                        on_SEND(self, head, body)
                    else:
                        if paging is not None and paging.gathered:
                            paging.write_gathered()
                        if command == b"ACK" and self.connected:
                            on_ACK(self, head, body)
                        else:
                            verb = VERBS.get(command)
                            if verb is None or not self.connected:
                                verb = opening_command(head, self.connected)
                            verb(self, head, body)
                            others += 1
                            if others >= OTHERS_ALWAYS and (
                                slices.exhausted or (others > OTHERS_AT_ONCE and slices.is_over())
                            ):
                                enough = -1
                    taken += 1
                    if self.closed or self.awaiting_login or self.leaving:
                        break
                    if effort.steps > enough:
                        break
            finally:  # before anything is done about a failure
                if paging is not None:
                    paging.gathering = False
                    if paging.gathered:
                        paging.write_gathered()
        except Blocked as wait:
            self._wait_for(wait)
        except InProgress:
            taken += 1
            may_pass = False
        except (ProtocolError, Refused) as error:
            self.fail(error, head)
        except Exception:
            log.exception(
                "session %s: %s failed", self.number, head.command if head else b"", extra=self.log_fields()
            )
            self.fail(Refused("Internal error; see the broker's log"), head)
        if self.credit_freed is not None:
            subscription, self.credit_freed = self.credit_freed, None
            if not subscription.ended:
                subscription.go_on()
        if taken < len(frames) and not (self.closed or self.leaving):
            self._deferred_frames = frames[taken:] + self._deferred_frames
            if self.blocked:
                if may_pass:
                    self._let_settlements_pass()
            elif not self.awaiting_login:
                self._wait_for_turn()

    def refuse_template(self, template: Template) -> None:
        """Frames are read without it: nothing is won by it."""
        self._parser.refuse(template)

    # ---- waiting

    def _wait_for(self, wait: Blocked) -> None:
        """BLOCK: read no more until there is room, or a policy's time is over."""
        self.blocked = self.heartbeat.suspended = True
        self._offered = wait.offered
        self._blocked_by = wait.address
        wait.address.block(wait.limit)
        self.outbox.reading.pause()
        if wait.limit is not None:
            wait.limit.waiting.append(partial(self._on_limit_freed, wait.limit))
        else:
            clock = self._steady
            self._pause = clock.call_at(clock.refresh() + wait.milliseconds, self._pause_over)

    def _wait_for_turn(self) -> None:
        """These frames take long: others come first, then the rest of them."""
        self.blocked = self.heartbeat.suspended = True
        self.outbox.reading.pause()
        self.broker.frame_slices.defer(self._go_on_in_turn)

    def _go_on_in_turn(self) -> None:
        self.go_on()
        self.broker.frame_slices.is_over()

    def wait_for_work(
        self, when_done: Callable[[Callable[[], object]], object], then: Callable[[], object]
    ) -> None:
        """Call ``then`` when some work is done. Raises `UnderWay` where that is not now; nothing is read meanwhile."""
        done = False

        def is_done() -> None:
            nonlocal done
            done = True
            then()
            if self.blocked:
                self.broker.clock.soon(self.go_on)

        when_done(is_done)
        if not done:
            self.blocked = self.heartbeat.suspended = True
            self.outbox.reading.pause()
            raise InProgress

    def _pause_over(self) -> None:
        self._pause = None
        self.go_on()

    def _on_limit_freed(self, limit: MemoryLimit) -> None:
        self._resumed_by = limit
        self.broker.clock.soon(self.go_on)

    def _unblock(self) -> None:
        if self._blocked_by is not None:
            self._blocked_by.unblock()
            self._blocked_by = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self.blocked = self.heartbeat.suspended = False

    def _let_settlements_pass(self) -> None:
        """ACKs that came with a blocked SEND still count: they may be what makes room."""
        passing = [
            f
            for f in self._deferred_frames
            if f[0].command in SETTLING and b"transaction" not in f[0].headers
        ]
        self._deferred_frames = [
            f for f in self._deferred_frames if f[0].command not in SETTLING or b"transaction" in f[0].headers
        ]
        if passing:
            self._take(passing)

    def go_on(self) -> None:
        """There may be room again, or the login was checked: take up what is held, then read on."""
        limit, self._resumed_by = self._resumed_by, None
        try:
            if not self.closed:
                self._unblock()
                held, self._deferred_frames = self._deferred_frames, []
                self.broker.clock.refresh()
                offered, self._offered = self._offered, None
                if len(held) > FRAMES_AT_ONCE:
                    self._take_in_slices(held, offered)
                else:
                    self._take(held, offered)
                if not self.blocked and not self.closed:
                    self.receive(b"")
                if not self.blocked and not self.closed:
                    self.outbox.reading.resume()
        finally:
            if limit is not None:
                limit.resumed()

    def await_login(self) -> None:
        """The login is being checked: nothing is read until `go_on`, as the version is not yet spoken."""
        self.awaiting_login = True
        self.outbox.reading.pause()

    def speak(self, version: bytes) -> None:
        """CONNECT has settled the version."""
        self.version = version
        self.connected = True
        self._parser.negotiated(version)

    # ---- bytes out

    def send(self, command: bytes, headers: Iterable[tuple[bytes, bytes]], body: bytes = b"") -> None:
        """Send a frame."""
        self.outbox.send(encode_frame(command, headers, body, self.version))

    def receipt(self, head: Head, durable: bool = False, transactional: bool = False) -> None:
        """Answer a ``receipt`` header, after the change is on disk if it is durable, in a transaction or not."""
        receipt = head.requested_receipt()
        if receipt is None:
            return
        frame = receipt_frame(receipt, self.version)
        if durable:
            self.broker.storage.when_synced(lambda: self.outbox.send(frame), transactional)
        else:
            self.outbox.send(frame)

    def refuse(self, error: Exception) -> None:
        """End the conversation with an ERROR that answers no frame."""
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
        fields = self.log_fields()
        if isinstance(error, PermissionRejected):
            check = {"_AMQ_CheckType": error.permission}
            self.notify("SECURITY_PERMISSION_VIOLATION", text, check, address=error.address)
        elif isinstance(error, Refused) and error.status == 403:
            self.notify("SECURITY_PERMISSION_VIOLATION", text)
        self.broker.rejections.add_error(error, f"connection {self.number} ({self.wire.peer})", text, fields)
        self.send(b"ERROR", headers, text.encode() + b"\n")
        self.close(f"ERROR sent: {text}")

    def _beat(self) -> None:
        self.outbox.send(b"\n")

    def _silent(self, ttl: int) -> None:
        self.fail(
            Refused(
                f"Did not receive data from {self.wire.peer} within the {ttl}ms connection TTL. "
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

    def close(self, reason: str) -> None:
        """Close the connection after what was written, and give everything back. ``reason`` is for the log."""
        if not self.closed:
            self.outbox.flush()
            self.wire.close()
            self.lost(reason)

    def leave(self, say_goodbye: Callable[[], None]) -> None:
        """The client has sent DISCONNECT. Calls ``say_goodbye`` and closes once all its changes are on disk."""

        def end() -> None:
            if not self.closed:
                say_goodbye()
                self.close("DISCONNECT")

        self.leaving = self.heartbeat.suspended = True
        self.broker.storage.when_synced(end)

    def lost(self, reason: str = "closed by the client") -> None:
        """The connection is gone. What it had not settled or committed comes back, and has failed once more.

        ``reason`` is for the log.
        """
        if self.closed:
            return
        self._log_closed("DISCONNECT" if self.leaving else reason)
        self.closed = True
        self._parser.discard()
        self.broker.unfinished.forget(self)
        self._deferred_frames.clear()
        self._unblock()
        if self._offered is not None:
            self._offered.refused("the connection was closed")
            self._offered = None
        for transaction in self.transactions.values():
            transaction.cancel("the connection was closed before COMMIT")
        self.heartbeat.stop()
        self._requeue_all()
        self.transaction_bytes.release(self.transaction_bytes.bytes)
        self.broker.directory.resource_limits.leave(self.login.user)
        for name in self.temporary_queues:
            if name in self.broker.directory.queues:
                self.broker.directory.delete_queue(name, force=True)
        for name in self.temporary_topics:
            if name in self.broker.directory.addresses:
                self.broker.directory.delete_address(name, force=True)
        self._untie()

    def peer_gone(self) -> None:
        """The client has closed its side while it was not read: what it sent still counts, it receives no more."""
        if not self.closed and self.subscriptions:
            log.info(
                "connection %s (%s): closed by the client while blocked",
                self.number,
                self.wire.peer,
                extra=self.log_fields(),
            )
            open_transactions, self.transactions = self.transactions, {}
            self._requeue_all()
            self.transactions = open_transactions

    def log_fields(self) -> dict[str, object]:
        """What describes this connection in the JSON format of the log."""
        fields: dict[str, object] = {
            "connection": self.number,
            "peer": self.wire.peer,
            "acceptor": self.acceptor.name,
        }
        if self.login.user is not None:
            fields["user"] = self.login.user
        return fields

    def notify(
        self, kind: str, text: str, headers: Mapping[str, str] | None = None, /, **fields: str | int | None
    ) -> None:
        """Notify of an event of this connection; ``headers`` are of its message."""
        subject = self.wire.certificate
        if subject is not None:
            headers = {"_AMQ_CertSubjectDN": subject, **(headers or {})}
        self.broker.notifications.notify(
            kind,
            text,
            headers,
            connectionID=self.number,
            user=self.login.user,
            remoteAddress=self.wire.peer,
            **fields,
        )

    def notify_session(self, kind: str, text: str) -> None:
        """Send a message about the session, which is the connection: Artemis has both."""
        self.broker.notifications.notify_session(
            kind, text, connectionID=self.number, user=self.login.user, clientID=self.client_id
        )

    def notify_consumer(self, kind: str, subscription: Subscription, verb: str) -> None:
        """Notify that a subscription has begun, or is about to leave its queue. Browsers are no consumers."""
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
        """Log why the connection has ended and what it left. Before anything is given back."""
        left: Counter[str] = Counter()
        for subscription in self.subscriptions.values():
            left[subscription.queue.name] += subscription.unsettled_count
        for transaction in self.transactions.values():  # what it acknowledged is not, without a COMMIT
            left.update(ref.queue.name for ref in transaction.returns)
        unacknowledged, transactions = left.total(), len(self.transactions)
        queues = {name: number for name, number in left.most_common(QUEUES_LOGGED) if number}
        text = f"unacknowledged messages: {unacknowledged}"
        if queues:
            more = ", …" if sum(queues.values()) < unacknowledged else ""
            named = ", ".join(f"queue {name}: {number}" for name, number in queues.items())
            text += f" ({named}{more})"
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
            self.wire.peer,
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
        self._socket_full()  # no subscription of this session receives messages that another one returns
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
        """End paused subscriptions, one in each step: a connection may have ten thousand."""
        for queue, subscriptions in by_queue.items():
            refs: list[Reference] = []
            for subscription in subscriptions:
                if self.broker.stopping:
                    subscription.forget_unrecorded()
                refs += subscription.take_unsettled()
                yield
            refs += returned.pop(queue, [])
            for subscription in subscriptions:
                # the first one returns all messages, before the next consumer gets pending ones: this keeps the order
                if not subscription.detached:  # its queue was not deleted meanwhile
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
        """Break the cycles of this object, so that it is freed by its count and not by the garbage collector."""
        self.outbox.break_cycles()
        self.heartbeat.break_cycles()
        self.routes.clear()

    # ---- subscriptions

    def register(self, subscription: Subscription) -> None:
        """A subscription has begun."""
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
        """Messages delivered since the connection began, each delivery counted."""
        current = sum(subscription.messages_delivered for subscription in self.subscriptions.values())
        return self.delivered_before + current

    def forget(self, subscription: Subscription) -> None:
        """A subscription has ended. Called before its unsettled messages are taken from it."""
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

    def cancelled(self, subscription: Subscription, reason: str) -> None:
        """A queue was deleted under its subscriber, or that was too slow: it is told by an ERROR."""
        self.forget(subscription)
        self.notify_consumer("CONSUMER_CLOSED", subscription, f"ended: {reason}")
        subscription.detach(subscription.take_unsettled(), failed=True)
        if not self.closed:
            self.refuse(Refused(f"Subscription {text_of(subscription.terms.id)} ended: {reason}"))

    # ---- destinations

    @property
    def peer(self) -> str:
        """Host and port of the client."""
        return self.wire.peer

    @property
    def origin(self) -> str:
        """Whose messages these are, for no-local: a durable subscriber's after a reconnect too."""
        return self.number if self.client_id is None else self.client_id

    def parse_destination(self, destination: bytes, requested: str | None) -> Destination:
        """Read a destination header with the prefixes of the acceptor."""
        try:
            text = destination.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"destination {destination[:100]!r} is not UTF-8") from None
        parsed = self._destinations.parse(text, requested, self.number)
        self.broker.directory.check_words(parsed.address)
        if parsed.queue is not None:
            check_not_internal(parsed.queue)
        return parsed
