"""Messages, which all queues share, message numbers, transformers, and copies of messages on other addresses.

The *tail* is the end of a MESSAGE frame in STOMP 1.2 form: message number, headers, blank line, body, NUL. It is
encoded once for all receivers. A subscription writes its own headers before the tail, the last of them
``message-id:QUEUE-`` without a line end: the number in the tail completes the message id.

A `Transformer` changes headers of the copies that a divert makes and that a bridge sends; `copied_traits` applies the
changes. `copy_for` makes the other copies: dead letters, expired messages, messages that management moves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from stompring.settings.model import AddressSettings, RoutingType, TransformerConfiguration
from stompring.stomp.frames import escape, header_line, recode, unescape

from .limits import UNLIMITED, GlobalMemoryLimit, MemoryLimit

#: Bytes of memory of a message in one queue beyond its tail: its Python objects. Measured with 128-byte bodies (see
#: docs/dev/performance.md), so that ``max-size-bytes`` and ``global-max-size`` limit the real memory.
MESSAGE_OVERHEAD: Final = 400

#: Bytes of memory of a message for each queue after the first. A reference in a list takes 130 bytes, a delivery that
#: waits for its ACK 230. Measured: growth of a process with 11,790,000 references.
REFERENCE_OVERHEAD: Final = 256

#: Approximate size in bytes of a tail without the header block and the body.
TAIL_OVERHEAD: Final = 70

#: Values of ``Traits.retained``: the store retains the message in no queue, in durable queues, in all queues. A queue
#: retains messages whose value is at least ``Queue.retains_from``; `NEVER`: the store retains no messages.
NOWHERE, IN_DURABLE, EVERYWHERE, NEVER = range(4)

#: An integer, because Python searches bytes for an integer several times as fast as for a bytes object.
BACKSLASH: Final = 92


#: Headers that the broker sets: the user that sent the message (``populate-validated-user``), and the time of its
#: arrival (``enable-ingress-timestamp``), for which Artemis has two names.
VALIDATED_USER: Final = b"JMSXUserID"
INGRESS_TIMESTAMP, INGRESS_TIMESTAMP_STOMP = b"_AMQ_INGRESS_TIMESTAMP", b"ingress-timestamp"


class Traits:
    """The properties that all messages with the same header block share. One object for each distinct block."""

    __slots__ = (
        "block",
        "destination",
        "durable",
        "escaped",
        "group",
        "group_sequence",
        "requested_expiry",
        "like",
        "origin",
        "priority",
        "record",
        "retained",
        "routing_type",
        "transfer",
        "user",
    )

    def __init__(
        self,
        block: bytes,
        destination: bytes = b"",
        routing_type: RoutingType | None = None,
        priority: int = 4,
        durable: bool = False,
        expires: int = 0,
        group: bytes | None = None,
        group_sequence: int = 0,
        origin: object = None,
        user: str | None = None,
    ) -> None:
        self.block = block  # header lines "name:value\n" with 1.2 escapes, without number and timestamp
        self.destination = destination  # value of ``destination`` in the SEND and in the MESSAGE
        self.routing_type = routing_type
        self.priority = priority
        self.durable = durable
        self.requested_expiry = expires  # epoch ms in the header ``expires`` of the sender; 0: none
        self.group = group
        self.group_sequence = group_sequence
        self.origin = origin  # sender, for no-local: its client-id, or its connection if it has no client-id
        self.user = user
        #: Queues for which a store retains the messages: `NOWHERE`, `IN_DURABLE`, `EVERYWHERE`.
        self.retained = IN_DURABLE if durable else NOWHERE
        self.escaped = BACKSLASH in block
        self.record: bytes | None = None  # encoded part of a message record; None until the store encodes it
        self.like: Traits | None = None  # None, or traits from which these differ only in ``block``
        self.transfer = 0  # the `Transfer` of a copy, 0 for other messages

    def with_block(self, block: bytes) -> Traits:
        """Return a copy with other header lines."""
        traits = self.sent_to(block, self.destination, self.routing_type, self.requested_expiry, self.origin)
        traits.retained = self.retained
        traits.like = self
        return traits

    def sent_to(
        self,
        block: bytes,
        destination: bytes,
        routing_type: RoutingType | None = None,
        expires: int = 0,
        origin: object = None,
    ) -> Traits:
        """Return traits of a copy with these header lines, and with the same priority, durability, group and user."""
        return Traits(
            block,
            destination,
            routing_type,
            self.priority,
            self.durable,
            expires,
            self.group,
            self.group_sequence,
            origin,
            self.user,
        )


#: Bytes of a tail after its body: NUL and a line feed.
TAIL_END: Final = 2

#: The numbers from 0 to 999 with three digits each, as the end of a larger number.
_LAST_DIGITS: Final = [b"%03d" % number for number in range(1000)]


class _TailCache:
    """Parts of the last tail for reuse in the next tail: the first digits of the message number, and the ``lines``
    after the number. ``lines`` has content-length, timestamp and expiry. The timestamp changes at most once per socket
    read.
    """

    def __init__(self) -> None:
        self.thousands = 0
        self.digits = b""
        self.length = self.timestamp = self.expires = -1
        self.lines = b""


_cache: Final = _TailCache()


def decimal(number: int) -> bytes:
    """Return ``b"%d" % number``; faster if successive numbers are close together."""
    thousands = number // 1000
    if not thousands:
        return b"%d" % number
    cache = _cache
    if thousands != cache.thousands:
        cache.thousands = thousands
        cache.digits = b"%d" % thousands
    return b"%b%b" % (cache.digits, _LAST_DIGITS[number - thousands * 1000])


def make_tail(number: int, block: bytes, body: bytes, timestamp: int, expires: int) -> bytes:
    """Return the tail of a message. ``block``: the header lines of its traits."""
    cache = _cache
    length = len(body)
    if length != cache.length or timestamp != cache.timestamp or expires != cache.expires:
        cache.lines = b"\ncontent-length:%d\ntimestamp:%d\nexpires:%d\n" % (length, timestamp, expires)
        cache.length, cache.timestamp, cache.expires = length, timestamp, expires
    thousands = number // 1000
    if not thousands:
        return b"%b%b%b\n%b\0\n" % (b"%d" % number, cache.lines, block, body)
    if thousands != cache.thousands:
        cache.thousands = thousands
        cache.digits = b"%d" % thousands
    last = _LAST_DIGITS[number - thousands * 1000]
    return b"%b%b%b%b\n%b\0\n" % (cache.digits, last, cache.lines, block, body)


def tail_for(version: bytes, traits: Traits, tail: bytes, body_at: int) -> bytes:
    """Return ``tail`` with its header escapes converted to another version of STOMP."""
    if not traits.escaped:
        return tail
    at = body_at - 1
    return recode(tail[:at], version) + tail[at:]


class Account:
    """A memory account for messages: their address, or the budget for messages read from pages."""

    __slots__ = ()

    def occupy(self, size: int, messages: int = 1) -> None:
        """Add ``size`` bytes of a message. ``messages``: 1 for its first queue; 0 for one more queue, or one more
        consumer of a non-destructive queue, that holds it (`REFERENCE_OVERHEAD`).
        """
        raise AssertionError("a derived class has it")

    def release(self, size: int, messages: int = 1) -> None:
        """Subtract what `occupy` has added with the same arguments."""
        raise AssertionError("a derived class has it")


class AddressBase(Account):  # only tests have weak references: # compiled: same
    """Base of `Address`, for messages and queues: the memory that its messages take."""

    __slots__ = (
        "__weakref__",
        "memory",
        "memory_limit",
        "name",
        "number",
        "prefetch",
        "retained",
        "settings",
        "watching",
    )

    memory: GlobalMemoryLimit  # limit of all addresses together
    memory_limit: MemoryLimit
    watching: bool  # whether `on_release` must be called while no limit is full
    name: str
    number: int  # number in the store
    settings: AddressSettings
    prefetch: tuple[int, int]  # ``prefetch-page-messages`` and ``prefetch-page-bytes`` in force
    retained: (
        int | None
    )  # ``Traits.retained`` of messages to this address; None: it differs for durable and other messages

    def occupy(self, size: int, messages: int = 1) -> None:
        limit, memory = self.memory_limit, self.memory
        limit.bytes += size
        limit.messages += messages
        memory.bytes += size
        memory.messages += messages
        if limit.bytes >= limit.threshold_bytes or limit.messages >= limit.threshold_messages:
            limit.review()
            if limit.full:
                self.on_full()
        if memory.bytes >= memory.threshold_bytes or memory.messages >= memory.threshold_messages:
            memory.review()

    def release(self, size: int, messages: int = 1) -> None:
        limit, memory = self.memory_limit, self.memory
        limit.bytes -= size
        limit.messages -= messages
        memory.bytes -= size
        memory.messages -= messages
        if limit.full or memory.full or self.watching:
            self.on_release()

    def on_full(self) -> None:
        """A message was counted, and the memory limit of the address is full."""
        raise AssertionError("a derived class has it")

    def on_release(self) -> None:
        """A message has left, and a limit was full, or ``watching`` is set."""
        raise AssertionError("a derived class has it")

    def mark(self, traits: Traits) -> Traits:
        """Set ``retained`` of traits by the present settings of the address. Return the traits."""
        if self.retained is not None:
            traits.retained = self.retained
        return traits

    def changed(self) -> None:
        """Discard the bindings: the queues of the address, or their filters, have changed."""
        raise AssertionError("a derived class has it")


@mypyc_attr(allow_interpreted_subclasses=True)  # for the subclass `HeaderView`, which reads only the headers
class Message:  # only tests have weak references: # compiled: same
    """One message. Only ``holders`` and ``segment`` change."""

    __slots__ = (
        "__weakref__",
        "account",
        "address",
        "body_at",
        "expires",
        "holders",
        "number",
        "segment",
        "tail",
        "timestamp",
        "traits",
    )

    def __init__(
        self,
        number: int,
        address: AddressBase,
        traits: Traits,
        body: bytes,
        timestamp: int,
        expires: int = 0,
        tail: bytes | None = None,
    ) -> None:
        """``tail``: the encoded tail, None to encode it here."""
        self.number = number
        self.address = address
        self.traits = traits
        self.timestamp = timestamp
        self.expires = expires
        self.holders = 0  # number of queues that hold the message in memory
        self.account: Account = address
        self.segment: object = None  # segment of the journal that has the record of a durable message
        if tail is None:
            tail = make_tail(number, traits.block, body, timestamp, expires)
        self.tail = tail
        self.body_at = len(tail) - len(body) - TAIL_END

    @property
    def size(self) -> int:
        """Bytes of memory, for limits. Computed, because an attribute would take 40 bytes of each message."""
        return len(self.tail) + MESSAGE_OVERHEAD

    @property
    def body(self) -> bytes:
        """The body of the SEND."""
        return self.tail[self.body_at : -TAIL_END]

    def tail_for(self, version: bytes) -> bytes:
        """Return the tail with the header escapes of another version of STOMP."""
        return tail_for(version, self.traits, self.tail, self.body_at)

    def header(self, name: bytes) -> bytes | None:
        """Return the decoded value of a header of the tail, None without such a header."""
        return header_in(self.tail, 0, self.body_at, line_begin(name))

    def headers(self) -> dict[str, str]:
        """Return all headers of the tail, decoded."""
        pairs = [line.partition(b":") for line in self.tail[: self.body_at - 1].split(b"\n")[1:-1]]
        return {_text(unescape(name, b"1.2")): _text(unescape(value, b"1.2")) for name, _, value in pairs}

    # interface for selectors (selector.Properties)

    def get_property(self, name: str) -> str | int | float | bool | None:
        """Return a property by its name: one of `SYSTEM_PROPERTIES`, else a header."""
        system = SYSTEM_PROPERTIES.get(name)
        if system is not None:
            return system(self)
        value = self.header(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    def text_of_line(self, line: bytes) -> str | None:
        """Return the value of the first header line that begins with ``line`` (line feed, name, colon), or None."""
        tail = self.tail
        at = tail.find(line, 0, self.body_at)
        if at < 0:
            return None
        at += len(line)
        value = tail[at : tail.find(b"\n", at)]
        return _text(unescape(value) if BACKSLASH in value else value)

    def get_body(self) -> bytes:
        """Return the body, for XPATH selectors."""
        return self.body


def line_begin(name: bytes) -> bytes:
    """Return the beginning of a header's line in a tail, with the line feed before it."""
    return b"\n%b:" % (escape(name) if _SPECIAL.intersection(name) else name)


def header_in(data: bytes, begin: int, end: int, line: bytes) -> bytes | None:
    """Return the decoded value of the header whose line begins with ``line`` (`line_begin`), None without this header.
    The head of a tail extends from ``begin`` to ``end`` in ``data``.
    """
    at = data.find(line, begin, end)
    if at < 0:
        return None
    at += len(line)
    value = data[at : data.find(b"\n", at, end)]
    return unescape(value, b"1.2") if BACKSLASH in value else value


class RecoveredMessage(Message):
    """A message read from disk."""

    __slots__ = ()

    def __init__(
        self,
        number: int,
        address: AddressBase,
        traits: Traits,
        tail: bytes,
        body_at: int,
        timestamp: int,
        expires: int,
        account: Account,
    ) -> None:
        super().__init__(number, address, traits, b"", timestamp, expires, tail)
        self.account = account
        self.body_at = body_at


#: Decides whether a message may go to a consumer or into a queue.
Matches = Callable[[Message], bool]

_SPECIAL: Final = frozenset(b"\\\n\r:")


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _header(name: bytes) -> Callable[[Message], str | None]:
    def read(message: Message) -> str | None:
        value = message.header(name)
        return None if value is None else _text(value)

    return read


def _ingress_timestamp(message: Message) -> int | None:
    value = message.header(INGRESS_TIMESTAMP)
    return int(value) if value is not None and value.isdigit() else None


#: Properties that are not headers (Artemis filter expressions), and JMS names of properties with other names in STOMP.
SYSTEM_PROPERTIES: dict[str, Callable[[Message], str | int | None]] = {
    "AMQPriority": lambda m: m.traits.priority,
    "AMQTimestamp": lambda m: m.timestamp,
    "AMQDurable": lambda m: "DURABLE" if m.traits.durable else "NON_DURABLE",
    "AMQExpiration": lambda m: m.expires,
    "AMQSize": lambda m: len(m.tail),
    "AMQAddress": lambda m: m.address.name,
    "AMQGroupID": lambda m: None if m.traits.group is None else _text(m.traits.group),
    "AMQUserID": lambda m: m.traits.user,
    "_AMQ_INGRESS_TIMESTAMP": _ingress_timestamp,
    "_AMQ_VALIDATED_USER": _header(VALIDATED_USER),
    "JMSPriority": lambda m: m.traits.priority,
    "JMSTimestamp": lambda m: m.timestamp,
    "JMSExpiration": lambda m: m.expires,
    "JMSDeliveryMode": lambda m: "PERSISTENT" if m.traits.durable else "NON_PERSISTENT",
    "JMSMessageID": lambda m: str(m.number),
    "JMSCorrelationID": _header(b"correlation-id"),
    "JMSType": _header(b"type"),
    "JMSReplyTo": _header(b"reply-to"),
}


log = logging.getLogger(__name__)

#: Number of message numbers between two checks of the lease.
STEP: Final = 10_000

#: Number of message numbers between two checks while there is no lease.
LATE_STEP: Final = 1000

#: Message numbers from here on are computed from the clock. Leased numbers stay far below, unless a run used the clock.
FIRST_OF_CLOCK: Final = 1_000_000_000_000_000


def clock_number(now: int) -> int:
    """Return the first message number at ``now`` (epoch ms) if there is no lease: 1000 numbers per millisecond."""
    return now * 1000


class Numbers:
    """A generator of ascending numbers."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._end = UNLIMITED  # the number at which `next` calls `_extend`

    def next(self) -> int:
        """Return the next number."""
        number = self._next
        if number >= self._end:
            number = self._extend(number)
        self._next = number + 1
        return number

    def _extend(self, number: int) -> int:
        """Raise ``_end``, which ``number`` has reached. Return the next number to use: ``number`` or a greater one."""
        raise OverflowError(f"no number follows {number - 1}")


class MessageNumbers(Numbers):
    """Message numbers, from a lease of numbers that the store reserves, so that no later run uses them again.

    ``first``: a number greater than all numbers of earlier runs. ``lease``: how many numbers a lease has. ``request``
    is called with the end of the next lease; the store calls `granted` when the lease is on disk.
    """

    def __init__(
        self, first: int, lease: int, now: Callable[[], int], request: Callable[[int], None]
    ) -> None:
        if first >= FIRST_OF_CLOCK:  # an earlier run used numbers from the clock
            first = max(first, clock_number(now()))
        super().__init__(first)
        self._end = first
        self._lease = lease
        self._now = now
        self._request = request
        self._requested = first
        self._granted = first
        self._late = False

    def skip_to(self, first: int) -> None:
        """Skip numbers below ``first``, which are in use. Call it before `next`."""
        self._next = max(self._next, first)

    def granted(self, end: int) -> None:
        """Allow numbers below ``end``: their lease is on disk."""
        self._granted = max(self._granted, end)
        self._requested = max(self._requested, end)

    def _extend(self, number: int) -> int:
        if number >= self._granted:
            if not self._late:
                self._late = True
                log.warning("message numbers: lease not written in time; numbers continue from the clock")
            number = max(number, clock_number(self._now()))
            end = number + LATE_STEP
        else:
            if self._late:
                self._late = False
                log.info("message numbers: lease written; numbers up to %d are reserved", self._granted)
            end = min(number + STEP, self._granted)
        self._end = end
        if self._requested - end < self._lease // 2:
            self._requested = end + self._lease
            self._request(self._requested)
        return number


#: Changes of headers: a value to set, or None to remove the header.
HeaderChanges = Mapping[bytes, bytes | None]

NO_CHANGES: HeaderChanges = {}


class Transformer(Protocol):
    """Changes headers of copies of messages."""

    def changes(self, message: Message) -> HeaderChanges | None:
        """Return the changes for the copy of a message, None if no copy must be sent."""

    def stop(self) -> None:
        """Release resources. There is no later call of `changes`."""


class HeaderTransformer:
    """A transformer that sets and removes the same headers on every message."""

    def __init__(self, configuration: TransformerConfiguration) -> None:
        changes: dict[bytes, bytes | None] = {name.encode(): None for name in configuration.remove_headers}
        changes.update((one.key.encode(), one.value.encode()) for one in configuration.add_headers)
        self._changes: HeaderChanges = changes

    def changes(self, message: Message) -> HeaderChanges | None:
        return self._changes

    def stop(self) -> None:
        pass


def sent_headers(message: Message) -> dict[bytes, bytes]:
    """Return the headers in the traits of a message, decoded: those of its sender, ``priority`` and ``persistent``."""
    lines = message.traits.block.split(b"\n")[:-1]
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if BACKSLASH in line:
            name, value = unescape(name, b"1.2"), unescape(value, b"1.2")
        headers.setdefault(name, value)
    return headers


def changed_headers(headers: Mapping[bytes, bytes], changes: HeaderChanges) -> dict[bytes, bytes]:
    """Return ``headers`` with ``changes``."""
    merged: dict[bytes, bytes | None] = {**headers, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def copied_traits(
    traits: Traits, destination: bytes, routing_type: RoutingType | None, changes: HeaderChanges
) -> Traits:
    """Return traits with changed headers, for another destination.

    Changes of ``priority`` (0 to 9), ``persistent``, ``expires`` (epoch ms) and of the group headers also change the
    attributes of the traits. An invalid value is ignored.
    """
    durable, group, sequence = traits.durable, traits.group, traits.group_sequence
    priority = _number(changes, b"priority", traits.priority, 4, 9)
    expires = _number(changes, b"expires", traits.requested_expiry, 0)
    if b"persistent" in changes:
        durable = (changes[b"persistent"] or b"").lower() == b"true"
    for name in (b"JMSXGroupID", b"_AMQ_GROUP_ID"):
        if name in changes:
            group = changes[name] or None
    for name in (b"JMSXGroupSeq", b"_AMQ_GROUP_SEQUENCE"):
        if name in changes:
            sequence = -1 if (changes[name] or b"").strip() == b"-1" else 0
    return Traits(
        _changed_block(traits.block, priority, durable, changes),
        destination,
        routing_type,
        priority,
        durable,
        expires,
        group,
        sequence,
        traits.origin,
        traits.user,
    )


def _changed_block(block: bytes, priority: int, durable: bool, changes: HeaderChanges) -> bytes:
    """Return a header block with changed headers. Its first lines are ``priority`` and ``persistent``."""
    kept = without_headers(block, (*changes, b"priority", b"persistent"))
    changed = [
        (name, value)
        for name, value in changes.items()
        if value is not None and name not in (b"priority", b"persistent", b"expires")
    ]
    standard = b"priority:%d\npersistent:%b\n" % (priority, b"true" if durable else b"false")
    return standard + kept + header_lines(changed)


def _number(changes: HeaderChanges, name: bytes, present: int, removed: int, most: int = 10**15) -> int:
    """Return the number that ``changes`` sets a header to: ``removed`` if they remove the header, ``present`` if they
    do not change it or the number is invalid.
    """
    value = changes.get(name, b"")
    if value is None:
        return removed
    text = value.strip()
    return int(text) if text.isdigit() and len(text) < 20 and int(text) <= most else present


#: The headers of a notification.
NOTIFICATION_PROPERTIES = (
    "_AMQ_Address",
    "_AMQ_Binding_ID",
    "_AMQ_Binding_Type",
    "_AMQ_CertSubjectDN",
    "_AMQ_CheckType",
    "_AMQ_BridgeName",
    "_AMQ_Client_ID",
    "_AMQ_ClusterName",
    "_AMQ_ConnectionName",
    "_AMQ_ConsumerCount",
    "_AMQ_ConsumerName",
    "_AMQ_Distance",
    "_AMQ_FilterString",
    "_AMQ_Message_ID",
    "_AMQ_NotifTimestamp",
    "_AMQ_NotifType",
    "_AMQ_Protocol_Name",
    "_AMQ_RemoteAddress",
    "_AMQ_RoutingName",
    "_AMQ_Routing_Type",
    "_AMQ_SessionName",
    "_AMQ_User",
    "_AMQ_ValidatedUser",
)


#: Header of the reply to a management request: whether the request succeeded.
SUCCEEDED: Final = b"_AMQ_OperationSucceeded"


def reply_traits(
    destination: bytes, routing_type: RoutingType | None, headers: Mapping[bytes, bytes]
) -> Traits:
    """Return the traits of the reply to a management request."""
    return Traits(
        b"priority:4\npersistent:false\n" + header_lines(headers.items()), destination, routing_type
    )


#: Headers with the origin of a copy (Artemis). A copy of a copy replaces them.
ORIGIN_HEADERS = (
    b"_AMQ_ORIG_ADDRESS",
    b"_AMQ_ORIG_QUEUE",
    b"_AMQ_ORIG_MESSAGE_ID",
    b"_AMQ_ORIG_ROUTING_TYPE",
    b"_AMQ_ORIG_REASON",
    b"_AMQ_ACTUAL_EXPIRY",
)

#: Values of ``_AMQ_ORIG_REASON``: why the broker made a copy. A policy may use other values.
MAX_DELIVERY_ATTEMPTS, EXPIRED, NO_ROUTE = "max-delivery-attempts", "expired", "no-route"
EVICTED, POLICY, UNKNOWN = "evicted", "policy", "unknown"
DIVERT, RETROACTIVE = "divert", "retroactive"
MANAGEMENT: Final = "management"  # an operator moved the message to the dead letters

#: Headers that only a broker may set: the origin of a copy, notifications, names of system properties, and those that
#: JMS reserves for the broker (sender, number of deliveries). Receivers rely on them, so that the broker removes them
#: from messages of clients.
BROKERS_OWN: Final = frozenset(
    {
        *ORIGIN_HEADERS,
        *(name.encode() for name in NOTIFICATION_PROPERTIES),
        *(name.encode() for name in SYSTEM_PROPERTIES if name.startswith("AMQ")),
        b"JMSXDeliveryCount",
        b"JMSXRcvTimestamp",
        b"JMSXUserID",
        b"_AMQ_INGRESS_TIMESTAMP",
        b"_AMQ_VALIDATED_USER",
        SUCCEEDED,
        b"ingress-timestamp",
    }
)

#: Header of a message that was exported from a broker: the broker then keeps the headers of `BROKERS_OWN`.
IMPORTED: Final = b"stompring-imported"

#: Routing types in headers.
ROUTING_TYPE_CODES: dict[str, bytes] = {RoutingType.MULTICAST: b"0", RoutingType.ANYCAST: b"1"}


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as lines of a header block."""
    return b"".join(header_line(name, value) for name, value in headers)


class Transfer(IntEnum):
    """The reason for which the broker copied a message."""

    DEAD_LETTER = 1
    EXPIRED = 2
    POLICY = 3


def origin_headers(message: Message, queue: str, reason: str) -> list[tuple[bytes, bytes]]:
    """Return headers for a copy of a message that name its origin."""
    routing_type = message.traits.routing_type
    headers = [
        (b"_AMQ_ORIG_ADDRESS", message.address.name.encode()),
        (b"_AMQ_ORIG_QUEUE", queue.encode()),
        (b"_AMQ_ORIG_REASON", reason.encode()),
    ]
    if routing_type is not None:
        headers.append((b"_AMQ_ORIG_ROUTING_TYPE", ROUTING_TYPE_CODES[routing_type]))
    return headers


def copied(traits: Traits, block: bytes) -> Traits:
    """Return traits with the header lines ``block``, for copies of a divert or of a retroactive address."""
    made = traits.sent_to(
        block, traits.destination, traits.routing_type, traits.requested_expiry, traits.origin
    )
    made.transfer = Transfer.POLICY
    return made


def without_headers(block: bytes, names: tuple[bytes, ...]) -> bytes:
    """Return a header block without the headers ``names``."""
    if not any(name in block for name in names):
        return block
    unwanted = {escape(name) for name in names}
    return b"".join(
        line for line in block.splitlines(keepends=True) if line.partition(b":")[0] not in unwanted
    )


def copy_for(
    message: Message,
    queue: str,
    target: AddressBase,
    number: int,
    now: int,
    expires: int,
    transfer: Transfer,
    reason: str = POLICY,
) -> Message:
    """Return a copy of a message of ``queue`` for another address, without a routing type. Times are in epoch ms."""
    traits = message.traits
    origin = origin_headers(message, queue, reason)
    if message.number:
        origin.insert(2, (b"_AMQ_ORIG_MESSAGE_ID", b"%d" % message.number))
    if transfer is Transfer.EXPIRED:
        origin.append((b"_AMQ_ACTUAL_EXPIRY", b"%d" % message.expires))
    block = without_headers(traits.block, (*ORIGIN_HEADERS, b"destination-type")) + header_lines(origin)
    copied = traits.sent_to(block, target.name.encode())
    copied.transfer = transfer
    return Message(number, target, target.mark(copied), message.body, now, expires)


class MessageOrigin(NamedTuple):
    """The origin of a copy that the broker made, as the headers of the copy name it."""

    address: str
    queue: str
    routing_type: RoutingType | None
    reason: str


def origin_of(message: Message) -> MessageOrigin | None:
    """Return the origin of a dead letter, an expired message or another copy by its headers, None for other messages.

    None also for copies of diverts and of retroactive addresses, which are ordinary messages.
    """
    address = message.header(b"_AMQ_ORIG_ADDRESS")
    if not address:
        return None
    written = message.header(b"_AMQ_ORIG_REASON")
    if written is not None:
        reason = _text(written)
    else:  # a message without _AMQ_ORIG_REASON: an older version of the broker wrote it
        reason = UNKNOWN if message.header(b"_AMQ_ACTUAL_EXPIRY") is None else EXPIRED
    if reason in (DIVERT, RETROACTIVE):
        return None
    queue = _text(message.header(b"_AMQ_ORIG_QUEUE") or b"")
    code = message.header(b"_AMQ_ORIG_ROUTING_TYPE")
    routing_type = next((kind for kind in RoutingType if ROUTING_TYPE_CODES[kind] == code), None)
    return MessageOrigin(_text(address), queue, routing_type, reason)


def repeated(message: Message, number: int, now: int) -> Message:
    """Return the next repetition of a recurring message: a copy with another number and timestamp."""
    return Message(number, message.address, message.traits, message.body, now, message.expires)
