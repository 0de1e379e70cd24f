"""What the broker needs of others: a store, pages on disk, address policies.

The seam to the store. The broker tells it facts about durable messages; in memory nobody listens.

A store keeps *messages* (once, with the queues that hold them), *facts* about them (settled and why, delivery
attempts, due times) and *bindings* (addresses and queues that must survive). Facts of one transaction stand between
`begin` and `commit`. Nothing here waits: `when_synced` calls back once all that was said before is safe.

Paging as the broker sees it: pages of addresses on disk (`Pages`, `Cursor`) and queues with messages in them
(`PagedQueue`).

A paged message is a *position*: a page and its index there. What one queue has in the pages of one address is its
*cursor*. A queue has a `PagedQueue` while an address that it gets messages from is in page mode.

What the broker asks of address policies: `Hooks` has one call for each decision and notification, made once for
each address, and None where no policy takes part. `Offer` is a message as a policy sees it before it is admitted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

from stompring.errors import Refused
from stompring.settings.model import FullPolicy

from .clock import Call
from .limits import MemoryLimit
from .message import AddressBase, HeaderChanges, Message, Traits, changed_headers
from .reference import Page, Position, QueueBase, Reference


class Reason(IntEnum):
    """Why a queue no longer holds a message. The name of the counter that goes up."""

    ACKNOWLEDGED = 0
    EXPIRED = 1
    KILLED = 2
    REPLACED = 3


#: What else becomes of a message in a queue: it goes out to a consumer, comes back, waits for its due time.
DELIVERED, RETURNED, POSTPONED = range(len(Reason), len(Reason) + 3)


@dataclass(eq=False)
class Entries:
    """Messages that entered ``queue`` and that no restart has to bring back, until a store writes them.

    ``taker`` is the name of the consumer that took and acknowledged each as it came. None: they wait, and what becomes
    of them is told of each.
    """

    queue: QueueBase
    taker: str | None
    messages: list[Message] = field(default_factory=list)


class Storage(Protocol):
    """What the broker needs of a store."""

    keeps_all: bool  # retains messages: wants to hear of those too that are consumed as they come
    write_limit: (
        MemoryLimit  # full while durable messages must wait: too much is unwritten, or the disk fails
    )

    def append(self, ref: Reference) -> None:
        """A durable message entered a durable queue.

        A message that enters several queues comes once for each, one after the other.
        """

    def append_scheduled(self, ref: Reference) -> None:
        """The same of a scheduled one, which carries its due time."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A queue gave up its reference; the message goes when the last one does."""

    def returned(self, ref: Reference) -> None:
        """A delivery came back: its counts, and its due time when it has one, are new."""

    def postponed(self, ref: Reference) -> None:
        """The schedule of a recurring message goes on: its due time is new."""

    def delivered(self, ref: Reference) -> None:
        """A message that had waited went out to a consumer. It need not be safe before anything else is."""

    def log(self, ref: Reference, event: int) -> None:
        """Something has become of a message that is retained and that no restart brings back.

        ``event`` is a `Reason`, or DELIVERED, RETURNED or POSTPONED.
        """

    def record(self, entries: Entries) -> None:
        """``entries`` is about to get its first message; the store takes what is in it when the turn is over."""

    def begin(self, size: int = 0) -> None:
        """What follows, up to `commit`, takes effect as one.

        ``size``, in bytes, is given where it may as well do so together with what was told right before in that way.
        """

    def commit(self) -> None:
        """End of what `begin` opened."""

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """Call once everything told so far would survive a crash; ``transactional`` for the end of a transaction."""

    def drain(self) -> bool:
        """Write everything told so far and wait for it; False where that cannot be done."""

    def close(self) -> None:
        """Everything told so far is safe when this returns."""


class NoStorage:
    """Stores nothing: a broker without persistence."""

    def __init__(self) -> None:
        self.keeps_all = False
        self.write_limit = MemoryLimit()
        self.append = self.append_scheduled = self.settle = self.returned = self.postponed = _ignore
        self.delivered = self.log = self.record = self.remember = self.forgot = self.forgot_all = _ignore
        self.bind = self.unbind = self.bind_address = self.unbind_address = _ignore

    def begin(self, size: int = 0) -> None:
        """A process that dies takes all of it along, so all is atomic."""

    def commit(self) -> None:
        """See `begin`."""

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """At once."""
        call()

    def drain(self) -> bool:
        """Nothing waits."""
        return True

    def close(self) -> None:
        """Nothing to sync."""


def _ignore(thing: object, detail: object = None) -> None:
    """Report nothing."""


LOADED, TIMED = 11, 12  # in `Cursor.states`


class Block(Protocol):
    """Consecutive messages of one page in memory: ``first`` to before ``stop``."""

    page: Page
    first: int
    stop: int
    size: int  # bytes that it holds in memory

    def message(self, index: int) -> Message:
        """The message at a position of this block; the same object for all queues while any of them holds it."""

    def decode(self, index: int) -> Message:
        """As `message`, for a caller that is done with it at once: an object of its own."""

    def due(self, index: int) -> int:
        """When its sender wants it to be delivered (epoch ms), 0 for at once."""

    # what a scan asks of each position without having a message made of it

    def number_of(self, index: int) -> int:
        """Its message's number."""

    def expires(self, index: int) -> int:
        """When it expires (epoch ms), 0 for never."""

    def traits(self, index: int) -> Traits:
        """Its traits; mostly the same object for messages that were sent with the same headers."""


#: Called with a block that was read, with None if it is unreadable.
Done = Callable[[Block | None], None]


class Cursor(Protocol):
    """What one queue has in the pages of one address. Priorities are 0 to 9; none of the methods reads a file."""

    @property
    def pages(self) -> Pages:
        """The pages it is in."""

    remaining: int  # not settled: waiting, timed and loaded
    waiting: int  # on disk only, and not timed
    timed: int  # on disk only, for their due time
    levels: list[int]  # ``waiting`` by priority

    def first(self, level: int) -> Position | None:
        """The first waiting position of a priority."""

    def following(self, level: int, page: Page, index: int) -> Position | None:
        """The first waiting position of a priority at or after ``(page, index)``; ``index`` may be behind its end."""

    def is_waiting(self, page: Page, index: int) -> bool:
        """Whether a position is on disk only, and not timed."""

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        """Deliveries and failed attempts of a position so far."""

    def due(self, block: Block, index: int) -> int:
        """When a timed position falls due (epoch ms): that of its message, or of its redelivery."""

    def take(self, page: Page, index: int) -> tuple[int, int]:
        """A waiting or timed position is loaded from now on; gives its deliveries and failed attempts so far."""

    def put_back(self, ref: Reference) -> None:
        """A loaded reference is given up by memory: its position is waiting again, its counts are kept."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """A loaded position is done with."""

    def acknowledge(self, page: Page, first: int, stop: int, durable: bool) -> None:
        """Waiting positions from ``first`` to before ``stop``, all of one priority, were delivered and acknowledged.

        None of them was delivered before (`untouched`); all of them are durable, or none is.
        """

    def untouched(self, page: Page) -> bool:
        """Whether `acknowledge` may be used: nothing in a page was delivered and came back."""

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """A waiting position is done with unread (rings that count paged messages)."""

    def returned(self, ref: Reference) -> None:
        """A delivery of a loaded position came back: its counts are new."""

    def states(self, page: Page, first: int, stop: int) -> bytes:
        """One byte a position: priority + 1 where it is waiting, `LOADED`, `TIMED`, or 0 (settled, or not its own)."""

    def timed_of(self, page: Page) -> list[int]:
        """The timed positions of a page, ascending."""

    def waiting_of(self, page: Page) -> list[int]:
        """The waiting positions of a page, ascending."""

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle all that is waiting or timed, the last page first; gives how many for each page."""


class Pages(Protocol):
    """The pages of one address."""

    @property
    def address(self) -> AddressBase:
        """The address."""

    bytes: int  # of all its page files

    def in_order(self) -> Sequence[Page]:
        """All pages, ascending."""

    def page(self, number: int) -> Page | None:
        """The page of that number, None when it is gone."""

    @property
    def messages(self) -> int:
        """The most that any one queue has not settled."""

    @property
    def cursors(self) -> Mapping[QueueBase, Cursor]:
        """By queue, of those that have something here."""

    def roll(self) -> None:
        """Begin a new page file now."""

    @property
    def count(self) -> int:
        """Page files."""

    @property
    def empty(self) -> bool:
        """No queue has anything left here."""

    def append(self, message: Message, members: Sequence[QueueBase], due: int = 0) -> Position:
        """Write a message once for all ``members``; it waits for each of them (timed when ``due`` is given)."""

    def gather(self, message: Message, queue: QueueBase) -> bool:
        """As `append`, for a queue with waiting messages before this one; gathered messages are appended together.

        Returns False where `Paging.gathering` is not set or the message needs more than being written.
        """

    def cursor(self, queue: QueueBase) -> Cursor:
        """The cursor of a queue, made when first asked for."""

    def forget(self, queue: QueueBase) -> None:
        """A queue was deleted: drop its cursor."""

    def fetch(self, page: Page, index: int, done: Done) -> None:
        """Read the block with a position. ``done`` is called later, never within; with None for what is unreadable.

        An unreadable block was logged, and its messages were settled as lost for all queues, before ``done`` is called.
        """


def state_at(cursor: Cursor, page: Page, index: int) -> int:
    """The state of one position: see `Cursor.states`."""
    return cursor.states(page, index, index + 1)[0]


def on_disk(state: int) -> bool:
    """Whether a position is on disk only: waiting or timed."""
    return 0 < state <= 10 or state == TIMED


def waiting_from(cursor: Cursor, level: int, place: Position | None) -> Position | None:
    """The first waiting position of a priority at or after ``place``, from the start when that is None.

    The page of ``place`` may be gone: then it is the first one in what comes after it.
    """
    if place is None:
        return cursor.first(level)
    if not cursor.levels[level]:
        return None
    page, index = place
    if cursor.pages.page(page.number) is not page:
        pages = cursor.pages.in_order()
        at = bisect_right(pages, page.number, key=lambda one: one.number)
        if at >= len(pages):
            return None
        page, index = pages[at], 0
    return cursor.following(level, page, index)


#: Headers of the SEND frame itself, which are not headers of the message.
OF_THE_FRAME = frozenset((b"content-length", b"receipt", b"transaction"))


@dataclass(slots=True, eq=False)
class Offer:
    """A message offered to an address.

    Messages of one connection with the same headers share one object, with ``body`` of the present one: policies must
    not store it, only copies of its values.
    """

    address: str  # name of the address
    traits: Traits
    _headers: Mapping[bytes, bytes]
    connection: str = ""  # number of the connection, as in management
    client_id: str | None = None  # client-id of CONNECT, None without one
    peer: str = ""  # host and port of the client
    body: bytes = b""  # the body of the message
    _text: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the SEND, without those of the frame itself (``receipt``, ``transaction``)."""
        if self._text is None:
            self._text = {
                name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
                for name, value in self._headers.items()
                if name not in OF_THE_FRAME
            }
        return self._text

    def changed(self, changes: HeaderChanges) -> Offer:
        """The same offer with other headers, for the next policy."""
        return replace(self, _headers=changed_headers(self._headers, changes), _text=None)

    def header(self, name: str) -> str | None:
        """Value of one header, None without such a header."""
        return self.headers.get(name)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 by default."""
        return self.traits.priority

    @property
    def durable(self) -> bool:
        """Whether it was sent with ``persistent:true``."""
        return self.traits.durable

    @property
    def user(self) -> str | None:
        """Name of the user, None where security is off."""
        return self.traits.user


#: Exceptions of hooks that are caught. `sys.exit()` in a plugin must not end the broker.
HOOK_EXCEPTIONS = (Exception, SystemExit)


#: Seconds. A hook that takes longer is logged and counted: it blocks the broker.
SLOW_HOOK = 0.02


class AdmissionResult(NamedTuple):
    """The result of an admission, None for a message that is accepted unchanged; `Refused` is raised for a refusal."""

    drop: bool = False
    wait: int = 0  # milliseconds until the evaluation continues; the producer is not read meanwhile
    address: str | None = None  # the address to route it to instead
    headers: HeaderChanges | None = None  # headers to set; None removes one


class Admission(Protocol):
    """The admission of one message by the policies of one address. Each policy decides once."""

    def evaluate(self, offer: Offer) -> AdmissionResult | None:
        """The result, None if the message may enter. A call after ``wait`` continues with the policy that waited.

        Raises `Refused`.
        """

    def entered(self, offer: Offer) -> None:
        """Notify the policies that accepted the message that it has entered."""

    def refused(self, offer: Offer, reason: str) -> None:
        """Notify the policies that accepted the message that it does not enter."""


#: No policy has evaluated the message yet.
NOT_EVALUATED = object()


class Subscriber(NamedTuple):
    """A client that subscribes to a queue."""

    queue: str  # name of the queue
    subscription: str  # ``id`` of the SUBSCRIBE
    user: str | None  # name of the user, None where security is off
    client_id: str | None  # client-id of CONNECT, None without one
    connection: str  # number of the connection, as in management
    peer: str  # host and port of the client
    selector: str | None  # the filter, None without one
    headers: Mapping[str, str]  # headers of the SUBSCRIBE


#: Verdict for a message to a full address: a policy to apply, a refusal with its reason, or None to let it enter.
FullAnswer = FullPolicy | Refused | None

#: A notification hook: called with each reference that was enqueued, delivered, evicted ….
Listener = Callable[[Reference], None]


def _no_admission(answer: object) -> Admission:
    """The default of ``Hooks.admission``."""
    raise AssertionError("no policy of this address overrides admit")


def _not_slow(seconds: float) -> None:
    """No effect: several policies are timed one by one."""


@dataclass(slots=True, eq=False)
class Hooks:
    """The composed hooks of one address. ``answer`` is the verdict of a full address where it is always the same."""

    answer: FullPolicy | None
    overflow: Callable[
        [Any, bool], None
    ]  # called with the view of a queue, and whether a message returns to it
    full: Callable[[Offer], FullAnswer] | None = None  # where ``answer`` is None
    # called directly by SEND; a result other than None, or an exception, is passed to `admission`
    admit: Callable[[Offer], object] | None = None
    # called with the result of ``admit``, or `NOT_EVALUATED`
    admission: Callable[[object], Admission] = _no_admission
    slow_admit: Callable[[float], None] = _not_slow  # called with the seconds that ``admit`` took
    reports_entered: bool = False  # a policy overrides `AddressPolicy.entered`
    reports_refused: bool = False  # a policy overrides `AddressPolicy.refused`
    subscribed: Callable[[Subscriber], None] | None = None
    enqueued: Listener | None = None
    evicted: Listener | None = None
    expired: Listener | None = None
    killed: Listener | None = None
    dead_lettered: Listener | None = None
    delivered: Listener | None = None
    settled: Listener | None = None
    deleted: Call | None = None


def hooks_with_settled(hooks: Hooks, settled: Listener) -> Hooks:
    """The same hooks for one queue, which also call ``settled`` after each message that is settled."""
    return replace(hooks, settled=_both(hooks.settled, settled))


def hooks_with_notifications(hooks: Hooks, delivered: Listener | None, expired: Listener | None) -> Hooks:
    """The same hooks for one address, which also call these listeners."""
    return replace(hooks, delivered=_both(hooks.delivered, delivered), expired=_both(hooks.expired, expired))


def _both(first: Listener | None, second: Listener | None) -> Listener | None:
    if first is None or second is None:
        return first or second

    def notify(ref: Reference) -> None:
        first(ref)
        second(ref)

    return notify
