"""A message as every queue shares it, and its copies on other addresses.

A message as every queue shares it: its wire bytes, made once, and what the broker must know of it.

The *tail* is the end of a MESSAGE frame in STOMP 1.2 form: message number, headers, blank line, body, NUL. A
subscription puts its own few headers before it, the last of which is ``message-id:QUEUE-`` without a line end, so
that the tail's number completes it. One tail serves all receivers.

Transformers: changes of headers for the copies that a divert makes, and for what a bridge sends on.

`Transformer.changes` says what is different in the copy of one message; `copied_traits` makes traits with these
changes.

Copies of messages on other addresses: dead letters, expired messages, moves by management.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from stompring.settings.model import AddressSettings, RoutingType, TransformerConfiguration
from stompring.stomp.frames import escape, header_line, recode, unescape

from .limits import UNLIMITED, MemoryLimit

#: What a message costs beyond its frame: the Python objects that hold it in one queue. Measured with 128-byte
#: bodies (see docs/performance.md), so that ``max-size-bytes`` and ``global-max-size`` speak of real memory.
MESSAGE_OVERHEAD = 400

#: Bytes for each further queue that holds the message. A reference and its place in a list take 130 bytes. A delivery
#: that waits for its ACK takes 230, measured as the growth of a process with 11,790,000 of them.
REFERENCE_OVERHEAD = 256

#: Bytes of a tail besides the header block and the body: numbers, names and ends of lines, to within a few digits.
TAIL_OVERHEAD = 70

#: ``Traits.retained``: in no queue, in durable queues, in all queues. A queue retains messages from one of these on
#: (``Queue.retains_from``); `NEVER` is where no store retains anything.
NOWHERE, IN_DURABLE, EVERYWHERE, NEVER = range(4)

#: As a number: looking for one byte by its value is several times as fast as by a bytes object.
BACKSLASH = 92


#: Headers that the broker sets: who sent the message (``populate-validated-user``), and when it came
#: (``enable-ingress-timestamp``), for which Artemis has two names.
VALIDATED_USER = b"JMSXUserID"
INGRESS_TIMESTAMP, INGRESS_TIMESTAMP_STOMP = b"_AMQ_INGRESS_TIMESTAMP", b"ingress-timestamp"


class Traits:
    """What all messages sent with the same header block have in common. Made once per distinct block."""

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
        self.block = block  # header lines "name:value\n", 1.2 escapes, without number and timestamp
        self.destination = destination  # as the sender wrote it
        self.routing_type = routing_type
        self.priority = priority
        self.durable = durable
        self.requested_expiry = expires  # epoch ms asked for by the sender; 0 = none
        self.group = group
        self.group_sequence = group_sequence
        self.origin = origin  # who sent it, for no-local: the client-id, or the connection
        self.user = user
        #: Of which queues a store that retains messages keeps these: `NOWHERE`, `IN_DURABLE`, `EVERYWHERE`.
        self.retained = IN_DURABLE if durable else NOWHERE
        self.escaped = BACKSLASH in block
        self.record: bytes | None = None  # its part of a message record, once a store has encoded it
        self.like: Traits | None = None  # others that differ in nothing but the block
        self.transfer = 0  # of a copy that the broker has made: a `Transfer`

    def with_block(self, block: bytes) -> Traits:
        """The same with other header lines."""
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
        """Traits of a copy with these header lines: of the same priority, durability, group and user."""
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
TAIL_END = 2

#: The last three digits of numbers from 1000 on.
_LAST_DIGITS: Final = [b"%03d" % number for number in range(1000)]


class _TailCache:
    """What tails made one after the other have in common: the first digits of the number, and the lines after it.

    ``lines`` are of the last content-length, timestamp and expiry: they change with each read of a socket, at most.
    """

    def __init__(self) -> None:
        self.thousands = 0
        self.digits = b""
        self.length = self.timestamp = self.expires = -1
        self.lines = b""


_cache: Final = _TailCache()


def decimal(number: int) -> bytes:
    """``b"%d" % number``, faster for numbers that are near each other."""
    thousands = number // 1000
    if not thousands:
        return b"%d" % number
    cache = _cache
    if thousands != cache.thousands:
        cache.thousands = thousands
        cache.digits = b"%d" % thousands
    return b"%b%b" % (cache.digits, _LAST_DIGITS[number - thousands * 1000])


def make_tail(number: int, block: bytes, body: bytes, timestamp: int, expires: int) -> bytes:
    """The tail of a message; ``block`` has the header lines of its traits."""
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
    """``tail`` in the header form of another version of STOMP."""
    if not traits.escaped:
        return tail
    at = body_at - 1
    return recode(tail[:at], version) + tail[at:]


class Account:
    """Where the memory of a message counts: its address, or the budget of what was read back from pages."""

    __slots__ = ()

    def occupy(self, size: int, messages: int = 1) -> None:
        """A message of ``size`` bytes is held by a first queue.

        With 0 ``messages``: by a further queue, or by a further reader of a non-destructive one (`REFERENCE_OVERHEAD`).
        """
        raise AssertionError("a derived class has it")

    def release(self, size: int, messages: int = 1) -> None:
        """The last queue has released a message of ``size`` bytes; with 0 ``messages``: another queue or reader has."""
        raise AssertionError("a derived class has it")


class AddressBase(Account):  # only tests have weak references: # compiled: same
    """Base of `Address`: what messages and queues know of it."""

    __slots__ = ("__weakref__", "memory_limit", "name", "number", "retained", "settings")

    memory_limit: MemoryLimit
    name: str
    number: int  # given by a store
    settings: AddressSettings
    retained: (
        int | None
    )  # ``Traits.retained`` of messages sent here, None where it depends on their being durable

    def mark(self, traits: Traits) -> Traits:
        """Note which queues the messages sent here are retained of, by the settings as they are now."""
        if self.retained is not None:
            traits.retained = self.retained
        return traits

    def changed(self) -> None:
        """Its queues, or what they accept, are no longer what the bindings were made from."""
        raise AssertionError("a derived class has it")


@mypyc_attr(allow_interpreted_subclasses=True)  # of paging, where only the headers are known
class Message:  # only tests have weak references: # compiled: same
    """One message. Immutable but for ``holders``, the number of queues that hold it in memory, and ``segment``."""

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
        """``tail`` is given where it was made already."""
        self.number = number
        self.address = address
        self.traits = traits
        self.timestamp = timestamp
        self.expires = expires
        self.holders = 0
        self.account: Account = address
        self.segment: object = None  # of the journal, where a durable message is kept
        if tail is None:
            tail = make_tail(number, traits.block, body, timestamp, expires)
        self.tail = tail
        self.body_at = len(tail) - len(body) - TAIL_END

    @property
    def size(self) -> int:
        """Bytes of memory that it counts for. Not kept: the number would take 40 bytes of each message."""
        return len(self.tail) + MESSAGE_OVERHEAD

    @property
    def body(self) -> bytes:
        """The body as it was sent."""
        return self.tail[self.body_at : -TAIL_END]

    def tail_for(self, version: bytes) -> bytes:
        """The tail in the header form of another version of STOMP."""
        return tail_for(version, self.traits, self.tail, self.body_at)

    def header(self, name: bytes) -> bytes | None:
        """The decoded value of a header of the tail, ``None`` when it is not there."""
        tail, stop = self.tail, self.body_at
        line = b"\n%b:" % (escape(name) if _SPECIAL.intersection(name) else name)
        at = tail.find(line, 0, stop)
        if at < 0:
            return None
        at += len(line)
        value = tail[at : tail.find(b"\n", at, stop)]
        return unescape(value, b"1.2") if BACKSLASH in value else value

    def headers(self) -> dict[str, str]:
        """All headers of the tail, decoded, for management."""
        pairs = [line.partition(b":") for line in self.tail[: self.body_at - 1].split(b"\n")[1:-1]]
        return {_text(unescape(name, b"1.2")): _text(unescape(value, b"1.2")) for name, _, value in pairs}

    # What selectors see (selector.Properties).

    def get_property(self, name: str) -> str | int | float | bool | None:
        """A property by name: system ones (``AMQ…``, ``JMS…``) first, then the headers as sent."""
        system = SYSTEM_PROPERTIES.get(name)
        if system is not None:
            return system(self)
        value = self.header(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    def text_of_line(self, line: bytes) -> str | None:
        """The value of the header whose line begins with ``line``, a line feed in front; None without one."""
        tail = self.tail
        at = tail.find(line, 0, self.body_at)
        if at < 0:
            return None
        at += len(line)
        value = tail[at : tail.find(b"\n", at)]
        return _text(unescape(value) if BACKSLASH in value else value)

    def get_body(self) -> bytes:
        """The body, for XPATH selectors."""
        return self.body


class RecoveredMessage(Message):
    """A message read back from disk, its tail as it was written."""

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

_SPECIAL = frozenset(b"\\\n\r:")


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


#: Names that are not headers (Artemis filter expressions), and JMS's names for what STOMP calls otherwise.
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

#: Numbers that are in use before the lease is looked at again.
STEP = 10_000

#: The same while there is none.
LATE_STEP = 1000

#: No lease comes near it before the clock was used once.
FIRST_OF_CLOCK = 1_000_000_000_000_000


def clock_number(now: int) -> int:
    """The first number of a broker that starts at ``now`` (epoch ms) and has no lease: no broker gives 1000 in a ms."""
    return now * 1000


class Numbers:
    """Gives numbers that ascend."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._end = UNLIMITED  # `_extend` is called before it is given; no number reaches it

    def next(self) -> int:
        """The next number."""
        number = self._next
        if number >= self._end:
            number = self._extend(number)
        self._next = number + 1
        return number

    def _extend(self, number: int) -> int:
        """Set a new end; returns ``number``, or a greater one to go on with."""
        raise OverflowError(f"no number follows {number - 1}")


class MessageNumbers(Numbers):
    """The numbers of messages. ``first`` is greater than all that were given in earlier runs.

    ``request`` is called with the end of the lease that is wanted, and `granted` once it is on disk.
    """

    def __init__(
        self, first: int, lease: int, now: Callable[[], int], request: Callable[[int], None]
    ) -> None:
        if first >= FIRST_OF_CLOCK:  # some run had no lease: what it gave ended before now
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
        """Lower numbers are found to be in use, before any was given."""
        self._next = max(self._next, first)

    def granted(self, end: int) -> None:
        """Numbers before ``end`` may be used."""
        self._granted = max(self._granted, end)
        self._requested = max(self._requested, end)

    def _extend(self, number: int) -> int:
        """See `Numbers`."""
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


#: Changed headers: a value to set, or None for a header that is removed.
HeaderChanges = Mapping[bytes, bytes | None]

NO_CHANGES: HeaderChanges = {}


class Transformer(Protocol):
    """Decides for each message what is different in its copy."""

    def changes(self, message: Message) -> HeaderChanges | None:
        """The headers to change; None where no copy of this message is to be sent."""

    def stop(self) -> None:
        """It is not needed any more."""


class HeaderTransformer:
    """Sets and removes the same headers on every message."""

    def __init__(self, configuration: TransformerConfiguration) -> None:
        changes: dict[bytes, bytes | None] = {name.encode(): None for name in configuration.remove_headers}
        changes.update((one.key.encode(), one.value.encode()) for one in configuration.add_headers)
        self._changes: HeaderChanges = changes

    def changes(self, message: Message) -> HeaderChanges | None:
        """Implements `Transformer.changes`."""
        return self._changes

    def stop(self) -> None:
        """Implements `Transformer.stop`."""


def sent_headers(message: Message) -> dict[bytes, bytes]:
    """The headers of a message in its traits, decoded: those of its sender, ``priority`` and ``persistent``."""
    lines = message.traits.block.split(b"\n")[:-1]
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if BACKSLASH in line:
            name, value = unescape(name, b"1.2"), unescape(value, b"1.2")
        headers.setdefault(name, value)
    return headers


def changed_headers(headers: Mapping[bytes, bytes], changes: HeaderChanges) -> dict[bytes, bytes]:
    """Headers with these changes."""
    merged: dict[bytes, bytes | None] = {**headers, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def copied_traits(
    traits: Traits, destination: bytes, routing_type: RoutingType | None, changes: HeaderChanges
) -> Traits:
    """Traits with changed headers, for another destination. ``expires`` is in ``requested_expiry`` (epoch ms).

    A changed header keeps its meaning: ``priority`` 0 to 9, ``persistent``, ``expires``, and the group. A value that
    is none is ignored.
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
    """A header block that begins with priority and persistent, with other headers."""
    kept = without_headers(block, (*changes, b"priority", b"persistent"))
    changed = [
        (name, value)
        for name, value in changes.items()
        if value is not None and name not in (b"priority", b"persistent", b"expires")
    ]
    standard = b"priority:%d\npersistent:%b\n" % (priority, b"true" if durable else b"false")
    return standard + kept + header_lines(changed)


def _number(changes: HeaderChanges, name: bytes, present: int, removed: int, most: int = 10**15) -> int:
    """The number in a changed header; ``removed`` where it is removed, ``present`` where it is none."""
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


#: Whether a management request succeeded: on its reply.
SUCCEEDED = b"_AMQ_OperationSucceeded"


def reply_traits(
    destination: bytes, routing_type: RoutingType | None, headers: Mapping[bytes, bytes]
) -> Traits:
    """What the reply to a management request carries."""
    return Traits(
        b"priority:4\npersistent:false\n" + header_lines(headers.items()), destination, routing_type
    )


#: Headers that tell where a copy came from (Artemis); an earlier copy's are replaced.
ORIGIN_HEADERS = (
    b"_AMQ_ORIG_ADDRESS",
    b"_AMQ_ORIG_QUEUE",
    b"_AMQ_ORIG_MESSAGE_ID",
    b"_AMQ_ORIG_ROUTING_TYPE",
    b"_AMQ_ORIG_REASON",
    b"_AMQ_ACTUAL_EXPIRY",
)

#: Values of ``_AMQ_ORIG_REASON``: why the broker made a copy. A policy may give a reason of its own.
MAX_DELIVERY_ATTEMPTS, EXPIRED, NO_ROUTE = "max-delivery-attempts", "expired", "no-route"
EVICTED, POLICY, UNKNOWN = "evicted", "policy", "unknown"
DIVERT, RETROACTIVE = "divert", "retroactive"
MANAGEMENT = "management"  # an operator has sent it to the dead letters

#: Headers by which brokers tell something about a message: where a copy came from, what has happened, what selectors
#: know it by, and (JMS leaves these to the broker) who sent it and how often it was delivered. A receiver may rely on
#: them, so that a sender's own are not passed on.
BROKERS_OWN = frozenset(
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

#: On a message that was exported from a broker: what only a broker sets is passed on all the same.
IMPORTED = b"stompring-imported"

#: How headers name the routing types.
ROUTING_TYPE_CODES: dict[str, bytes] = {RoutingType.MULTICAST: b"0", RoutingType.ANYCAST: b"1"}


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as lines of a block."""
    return b"".join(header_line(name, value) for name, value in headers)


class Transfer(IntEnum):
    """Why the broker has made a copy of a message."""

    DEAD_LETTER = 1
    EXPIRED = 2
    POLICY = 3


def origin_headers(message: Message, queue: str, reason: str) -> list[tuple[bytes, bytes]]:
    """What tells where a copy of a message came from."""
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
    """The same traits for a copy that the broker makes, with another block."""
    made = traits.sent_to(
        block, traits.destination, traits.routing_type, traits.requested_expiry, traits.origin
    )
    made.transfer = Transfer.POLICY
    return made


def without_headers(block: bytes, names: tuple[bytes, ...]) -> bytes:
    """A header block without the lines of some headers."""
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
    """The copy of a message of ``queue`` for another address. It has no routing type, and the expiry given here."""
    traits = message.traits
    origin = origin_headers(message, queue, reason)
    origin.insert(2, (b"_AMQ_ORIG_MESSAGE_ID", b"%d" % message.number))
    if transfer is Transfer.EXPIRED:
        origin.append((b"_AMQ_ACTUAL_EXPIRY", b"%d" % message.expires))
    block = without_headers(traits.block, (*ORIGIN_HEADERS, b"destination-type")) + header_lines(origin)
    copied = traits.sent_to(block, target.name.encode())
    copied.transfer = transfer
    return Message(number, target, target.mark(copied), message.body, now, expires)


class MessageOrigin(NamedTuple):
    """Where a copy that the broker made came from, and why it was made."""

    address: str
    queue: str
    routing_type: RoutingType | None
    reason: str


def origin_of(message: Message) -> MessageOrigin | None:
    """The origin of a dead letter, an expired message or another copy by its headers; None of any other message.

    The copies of diverts and of retroactive addresses are messages like any other here: nothing has failed.
    """
    address = message.header(b"_AMQ_ORIG_ADDRESS")
    if not address:
        return None
    written = message.header(b"_AMQ_ORIG_REASON")
    if written is not None:
        reason = _text(written)
    else:  # of a version that did not write it
        reason = UNKNOWN if message.header(b"_AMQ_ACTUAL_EXPIRY") is None else EXPIRED
    if reason in (DIVERT, RETROACTIVE):
        return None
    queue = _text(message.header(b"_AMQ_ORIG_QUEUE") or b"")
    code = message.header(b"_AMQ_ORIG_ROUTING_TYPE")
    routing_type = next((kind for kind in RoutingType if ROUTING_TYPE_CODES[kind] == code), None)
    return MessageOrigin(_text(address), queue, routing_type, reason)


def repeated(message: Message, number: int, now: int) -> Message:
    """The next message of a recurring one: the same but for its number and time."""
    return Message(number, message.address, message.traits, message.body, now, message.expires)
