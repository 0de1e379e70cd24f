"""Interfaces between the broker and the store, the pages on disk, and the address policies.

`Storage`: the broker reports each change of a durable or retained message to the store, and does not wait for it.
`Storage.when_synced` calls back once the store has written all earlier changes. `NoStorage` ignores the reports.

`Pages`, `Cursor` and `Block`: the messages of addresses in page mode, in files. A *position* is a page and the index
of a message in it. The *cursor* of a queue records which positions of one address the queue has not settled.

`Hooks`: the calls of the policies of one address, a call for each decision and notification. `Offer` is a message as a
policy sees it before it is admitted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

from stompring.errors import Refused
from stompring.settings.model import FullPolicy

from .clock import Call
from .limits import MemoryLimit
from .message import AddressBase, HeaderChanges, Message, Traits, changed_headers
from .reference import Page, Position, QueueBase, Reference


class Reason(IntEnum):
    """The reason why a message left a queue. A queue counts each reason, such as ``messages_acknowledged``."""

    ACKNOWLEDGED = 0
    EXPIRED = 1
    KILLED = 2
    REPLACED = 3


#: Other events of a message in a queue: delivered to a consumer, requeued, scheduled for a due time.
DELIVERED, RETURNED, POSTPONED = range(len(Reason), len(Reason) + 3)


@dataclass(eq=False)
class Entries:
    """Retained messages that entered ``queue``, not yet written by the store. A restart does not recover them.

    ``taker``: name of the consumer that acknowledged each message on arrival. None: the messages stay in the queue, and
    `Storage.log` reports each later event.
    """

    queue: QueueBase
    taker: str | None
    messages: list[Message] = field(default_factory=list)


#: Kind of the `NamedValues` with the states of policies. Name: an address. Value: by policy, its state.
POLICY_STATE: Final = "policy-state"


class NamedValues:
    """JSON objects by kind and name. A store recovers them, and copies them to a standby, like its bindings.

    A change is on disk when `Storage.when_synced` reports so. ``durable``: False without a store; then a restart loses
    all values.
    """

    def __init__(self, write: Callable[[int, Mapping[str, Any] | None], None] | None = None) -> None:
        """``write`` stores a value record under a number, or deletes it (None)."""
        self.durable = write is not None
        self._write = write
        self._values: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next = 1
        self._taken: set[int] = set()  # numbers of value records that have no kind and name

    def of(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the values of a kind by name, in the order in which the names were first stored."""
        return self._values.get(kind, {})

    def put(self, kind: str, name: str, value: Mapping[str, Any] | None) -> None:
        """Store a value, and replace an earlier one. None deletes it."""
        key = (kind, name)
        number = self._numbers.get(key)
        if value is None:
            if number is None:
                return
            del self._numbers[key], self._values[kind][name]
        else:
            if number is None:
                while self._next in self._taken:
                    self._next += 1
                number, self._next = self._next, self._next + 1
                self._numbers[key] = number
            self._values.setdefault(kind, {})[name] = value
        if self._write is not None:
            self._write(number, None if value is None else {"kind": kind, "name": name, "value": value})

    def restore(self, records: Mapping[int, Mapping[str, Any]]) -> None:
        """Add the value records of the store by number. Records without kind and name belong to tools."""
        for number, record in sorted(records.items()):
            kind, name, value = record.get("kind"), record.get("name"), record.get("value")
            if isinstance(kind, str) and isinstance(name, str) and isinstance(value, dict):
                self._values.setdefault(kind, {})[name] = value
                self._numbers[kind, name] = number
            self._taken.add(number)


class Storage(Protocol):
    """The interface of a store. None of its methods waits for the disk, except `drain` and `close`.

    `append`, `settle`, `returned`, `postponed` and `delivered` report changes of durable messages in durable queues, if
    the messages are not paged; a `Cursor` records the changes of paged messages. `log` and `record` are for other
    messages that the store retains: it writes them, but a restart does not recover them. The store must write the
    changes in the order of the calls, and read ``ref`` at the end of the reactor turn: the broker sets ``deliveries``
    of a message that is delivered on arrival only after `append`, and reports no `delivered`.
    """

    keeps_all: bool  # whether the store retains messages, including those that are acknowledged on arrival
    write_limit: (
        MemoryLimit  # full while producers of durable messages must wait: unwritten bytes, or a disk fault
    )
    values: NamedValues

    def append(self, ref: Reference) -> None:
        """Store that a message entered a queue. A message that enters several queues is reported once for each."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """Store that a message left a queue. The store can delete the message when no queue holds it."""

    def returned(self, ref: Reference) -> None:
        """Store ``deliveries`` and ``attempts`` of a message that was requeued, and ``due`` if it is SCHEDULED."""

    def postponed(self, ref: Reference) -> None:
        """Store ``ref.due`` of a message that entered a queue with a due time, or recurs. Called after `append`."""

    def delivered(self, ref: Reference) -> None:
        """Store that a pending message was delivered. No caller waits for this record."""

    def log(self, ref: Reference, event: int) -> None:
        """Store an event of a retained message: a `Reason`, or DELIVERED, RETURNED or POSTPONED."""

    def record(self, entries: Entries) -> None:
        """Store the messages of ``entries`` at the end of the reactor turn, and empty the list. The broker calls this
        at most once in a turn, before it adds the first message to the empty list.
        """

    def begin(self, size: int = 0) -> None:
        """Begin a transaction: a crash loses all changes up to `commit`, or none. Transactions nest.

        ``size``: bytes of the messages if the store may merge this transaction with one that ended right before and
        also had a size; else 0.
        """

    def commit(self) -> None:
        """End the transaction that the last `begin` opened."""

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        """Call ``call`` once all changes so far survive a crash; immediately if no sync is required.

        If ``transactional``, the setting journal-sync-transactional decides whether a sync is required, as at the end
        of a transaction; else journal-sync-non-transactional decides.
        """

    def drain(self) -> bool:
        """Write all changes so far, and wait for the disk. Return False if the disk fails."""

    def close(self) -> None:
        """Write all changes so far, wait for the disk, and stop."""


class NoStorage:
    """The store of a broker without persistence: it stores nothing."""

    def __init__(self) -> None:
        self.keeps_all = False
        self.write_limit = MemoryLimit()
        self.values = NamedValues()
        self.append = self.settle = self.returned = self.postponed = _ignore
        self.delivered = self.log = self.record = self.remember = self.forgot = self.forgot_all = _ignore
        self.bind = self.unbind = self.bind_address = self.unbind_address = _ignore

    def begin(self, size: int = 0) -> None:
        pass

    def commit(self) -> None:
        pass

    def when_synced(self, call: Callable[[], None], transactional: bool = False) -> None:
        call()

    def drain(self) -> bool:
        return True

    def close(self) -> None:
        pass


def _ignore(thing: object, detail: object = None) -> None:
    pass


#: States in `Cursor.states`: loaded (the message is in memory), and timed (it is scheduled, and on disk only).
LOADED, TIMED = 11, 12


class Block(Protocol):
    """Consecutive messages of one page in memory. ``index``: index of a message in the page."""

    page: Page
    first: int  # index of the first message
    stop: int  # index after the last message
    size: int  # bytes of memory of the block

    def message(self, index: int) -> Message:
        """Return a message. All queues get the same object, while one of them holds it."""

    def tail(self, index: int) -> tuple[Traits, bytes, int, int]:
        """Return traits, encoded tail, offset of the body, and expiry (epoch ms, 0: never) of a message."""

    def due(self, index: int) -> int:
        """Return the due time that the sender of a message requested (epoch ms, 0: none)."""

    # values that a scan reads without decoding a message

    def number_of(self, index: int) -> int:
        """Return the number of a message."""

    def expires(self, index: int) -> int:
        """Return when a message expires (epoch ms, 0: never)."""

    def traits(self, index: int) -> Traits:
        """Return the traits of a message; mostly one object for all messages with the same headers."""


#: Called with the block that was read, None if the block is unreadable.
Done = Callable[[Block | None], None]


class Cursor(Protocol):
    """The positions of one queue in the pages of one address. None of the methods reads a file.

    A position is *waiting* (on disk only, ready for delivery), *timed* (on disk only, scheduled), *loaded* (a reference
    in memory has it) or settled. ``level``: a priority, 0 to 9. ``index``: index of a message in a page.
    """

    @property
    def pages(self) -> Pages:
        """The pages of the address."""

    remaining: int  # number of unsettled positions: waiting, timed and loaded
    waiting: int  # number of waiting positions
    timed: int  # number of timed positions
    levels: list[int]  # ``waiting`` by priority

    def first(self, level: int) -> Position | None:
        """Return the first waiting position of a priority, None without one."""

    def following(self, level: int, page: Page, index: int) -> Position | None:
        """Return the first waiting position from ``index`` of ``page`` on (maybe beyond its end), None without one."""

    def is_waiting(self, page: Page, index: int) -> bool:
        """Return whether a position is waiting."""

    def counts(self, page: Page, index: int) -> tuple[int, int]:
        """Return the numbers of deliveries and of failed attempts of a position."""

    def due(self, block: Block, index: int) -> int:
        """Return the due time of a timed position (epoch ms): that of its message, or of its redelivery."""

    def take(self, page: Page, index: int) -> tuple[int, int]:
        """Mark a waiting or timed position as loaded, and return its `counts`."""

    def put_back(self, ref: Reference) -> None:
        """Mark a loaded position as waiting, or as timed if ``ref`` is SCHEDULED. Stores its counts and due time."""

    def settle(self, ref: Reference, reason: Reason) -> None:
        """Settle a loaded position."""

    def acknowledge(self, page: Page, first: int, stop: int, durable: bool) -> None:
        """Settle the waiting positions from ``first`` up to, not including, ``stop``. Their messages have one priority,
        and were delivered and acknowledged. ``durable``: whether they are durable. Call this only if `untouched`.
        """

    def untouched(self, page: Page) -> bool:
        """Return whether no unsettled position of a page was ever delivered, and the store does not retain messages."""

    def settle_waiting(self, page: Page, index: int, reason: Reason) -> None:
        """Settle a waiting or timed position without reading its message."""

    def returned(self, ref: Reference) -> None:
        """Store the counts and the due time of a loaded position after a delivery of its message was requeued."""

    def states(self, page: Page, first: int, stop: int) -> bytes:
        """Return a byte for each position from ``first`` to before ``stop``.

        Priority + 1: waiting. `LOADED`. `TIMED`. 0: settled, or the message is not in this queue.
        """

    def timed_of(self, page: Page) -> list[int]:
        """Return the indexes of the timed positions of a page, ascending."""

    def waiting_of(self, page: Page) -> list[int]:
        """Return the indexes of the waiting positions of a page, ascending."""

    def purge(self, reason: Reason) -> Iterator[int]:
        """Settle all positions that are waiting or timed now, the last page first. Yields their number in each page."""


class Pages(Protocol):
    """The pages of one address."""

    @property
    def address(self) -> AddressBase:
        """The address."""

    bytes: int  # total bytes of the page files

    def in_order(self) -> Sequence[Page]:
        """Return all pages, ascending by number."""

    def page(self, number: int) -> Page | None:
        """Return a page by its number, None if it was deleted."""

    @property
    def messages(self) -> int:
        """Number of unsettled messages in these pages, of the queue that has the most."""

    @property
    def cursors(self) -> Mapping[QueueBase, Cursor]:
        """The cursors by queue."""

    def roll(self) -> None:
        """End the current page file: the next message begins a new one."""

    @property
    def count(self) -> int:
        """Number of page files."""

    @property
    def empty(self) -> bool:
        """Whether every queue has settled all its messages in these pages."""

    def append(self, message: Message, members: Sequence[QueueBase], due: int = 0) -> Position:
        """Write a message once for all queues in ``members``. If ``due`` (epoch ms) is 0, its position is waiting, else
        timed.
        """

    def gather(self, message: Message, queue: QueueBase) -> bool:
        """Collect a message of one queue that `Paging.write_gathered` appends together with others.

        The message is not durable and has no due time. Return False if the caller must `append` it: if
        `Paging.gathering` is not set, if the queue has no waiting message of its priority, or if the queue must process
        it immediately (ring, last-value queue, expiry, transaction, consumers with selectors).
        """

    def cursor(self, queue: QueueBase) -> Cursor:
        """Return the cursor of a queue; the first call creates it."""

    def forget(self, queue: QueueBase) -> None:
        """Drop the cursor of a deleted queue."""

    def fetch(self, page: Page, index: int, done: Done) -> None:
        """Read the block that contains a position, and then call ``done``, never before this call has returned.

        ``done`` gets None if the page was deleted, or if the block is unreadable: the store has then logged it, and
        settled its messages as lost for all queues.
        """


def state_at(cursor: Cursor, page: Page, index: int) -> int:
    """Return the state of one position: see `Cursor.states`."""
    return cursor.states(page, index, index + 1)[0]


def on_disk(state: int) -> bool:
    """Return whether ``state`` means that a position is on disk only: waiting or timed."""
    return 0 < state <= 10 or state == TIMED


def waiting_from(cursor: Cursor, level: int, place: Position | None) -> Position | None:
    """Return the first waiting position from ``place`` on, even if its page was deleted. None: from the start."""
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


#: Headers of the SEND frame that are not headers of the message.
OF_THE_FRAME: Final = frozenset((b"content-length", b"receipt", b"transaction"))


@dataclass(slots=True, eq=False)
class Offer:
    """A message offered to an address. Messages of one connection with the same headers share one object, whose
    ``body`` is that of the present message: policies must not store the object, only copies of its values.
    """

    address: str  # name of the address
    traits: Traits
    _headers: Mapping[bytes, bytes]
    connection: str = ""  # number of the connection, as in management
    client_id: str | None = None  # client-id of CONNECT, None without one
    peer: str = ""  # host and port of the client
    body: bytes = b""  # the body of the message
    # sends a copy to an address; True: with the expiry of the message. None before the message has entered
    copier: Callable[[str, bool], bool] | None = None
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
        """Return a copy of the offer with changed headers, for the next policy."""
        return replace(self, _headers=changed_headers(self._headers, changes), _text=None)

    def header(self, name: str) -> str | None:
        """Value of one header, None without such a header."""
        return self.headers.get(name)

    def copy_to(self, address: str, *, keep_expiry: bool = False) -> bool:
        """In `entered`: send a copy to another address, as `MessageView.copy_to` does. False if no queue took it.

        The copy is written atomically with the message, and has its headers as changed by the policies. The copy is
        sent immediately, also if the message is scheduled. Raises `RuntimeError` in other hooks.
        """
        if self.copier is None:
            raise RuntimeError("copy_to of an offer is for the hook entered: the message may be refused")
        return self.copier(address, keep_expiry)

    @property
    def size(self) -> int:
        """Size of the body in bytes."""
        return len(self.body)

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 by default."""
        return self.traits.priority

    @property
    def durable(self) -> bool:
        """Whether the message was sent with ``persistent:true``."""
        return self.traits.durable

    @property
    def user(self) -> str | None:
        """Name of the user, None if security is off."""
        return self.traits.user


#: Exceptions of hooks that are caught. `sys.exit()` in a plugin must not end the broker.
HOOK_EXCEPTIONS = (Exception, SystemExit)


#: Seconds. A hook that takes longer is logged and counted: it blocks the broker.
SLOW_HOOK: Final = 0.02


class AdmissionResult(NamedTuple):
    """The result of `Admission.evaluate` for a message that is not accepted unchanged."""

    drop: bool = False  # whether to discard the message
    wait: int = (
        0  # milliseconds until the next evaluation; the broker does not read from the producer meanwhile
    )
    address: str | None = None  # address that gets the message instead
    headers: HeaderChanges | None = None  # headers to set, or to remove (value None)


class Admission(Protocol):
    """The admission of one message by the policies of one address. Each policy decides once."""

    def evaluate(self, offer: Offer) -> AdmissionResult | None:
        """Evaluate the policies in turn. Return None if all of them accept the message unchanged.

        A call after the result ``wait`` continues with the policy that waited. Raises `Refused` for a refusal.
        """

    def entered(self, offer: Offer) -> None:
        """Notify the policies that accepted the message: it entered the address."""

    def refused(self, offer: Offer, reason: str) -> None:
        """Notify the policies that accepted the message: it did not enter the address. ``reason``: a text."""


#: No policy has evaluated the message yet.
NOT_EVALUATED = object()


class Subscriber(NamedTuple):
    """A client that subscribes to a queue."""

    queue: str  # name of the queue
    subscription: str  # ``id`` of the SUBSCRIBE
    user: str | None  # name of the user, None if security is off
    client_id: str | None  # client-id of CONNECT, None without one
    connection: str  # number of the connection, as in management
    peer: str  # host and port of the client
    selector: str | None  # the filter, None without one
    headers: Mapping[str, str]  # headers of the SUBSCRIBE


#: The answer for a message to a full address: a policy to apply, a refusal with its reason, or None (the message may
#: enter).
FullAnswer = FullPolicy | Refused | None

#: A notification hook. The broker calls it with the reference of a message that was enqueued, delivered, evicted etc.
Listener = Callable[[Reference], None]


def _no_admission(answer: object) -> Admission:
    raise AssertionError("no policy of this address overrides admit")


def _not_slow(seconds: float) -> None:
    """Do nothing. If an address has several policies, their admission measures the time of each one."""


@dataclass(slots=True, eq=False)
class Hooks:
    """The hooks of one address. None: no policy of the address has this hook."""

    answer: (
        FullPolicy | None
    )  # answer if the address is full; None: ``full`` returns the answer for each message
    overflow: Callable[
        [Any, bool], None
    ]  # evicts messages of a ring; called with the view of its queue, and whether a message is requeued to it
    full: Callable[[Offer], FullAnswer] | None = None
    # called first for a SEND; a result that is not None, or an exception, is then passed to ``admission``
    admit: Callable[[Offer], object] | None = None
    # returns the admission of a message; called with the result of ``admit``, or `NOT_EVALUATED`
    admission: Callable[[object], Admission] = _no_admission
    slow_admit: Callable[[float], None] = _not_slow  # called with the seconds that ``admit`` took
    reports_entered: bool = False  # whether a policy overrides `AddressPolicy.entered`
    reports_refused: bool = False  # whether a policy overrides `AddressPolicy.refused`
    subscribed: Callable[[Subscriber], None] | None = None
    enqueued: Listener | None = None
    evicted: Listener | None = None
    expired: Listener | None = None
    killed: Listener | None = None
    dead_lettered: Listener | None = None
    delivered: Listener | None = None
    settled: Listener | None = None
    deleted: Call | None = None  # called when the address was deleted


def hooks_with_settled(hooks: Hooks, settled: Listener) -> Hooks:
    """Return the hooks of one queue: those of its address, with ``settled`` called after their own ``settled`` hook."""
    return replace(hooks, settled=both(hooks.settled, settled))


def hooks_with_notifications(hooks: Hooks, delivered: Listener | None, expired: Listener | None) -> Hooks:
    """Return hooks of an address that also call these listeners."""
    return replace(hooks, delivered=both(hooks.delivered, delivered), expired=both(hooks.expired, expired))


def both(first: Listener | None, second: Listener | None) -> Listener | None:
    """Return a listener that calls both listeners, None if both are None."""
    if first is None or second is None:
        return first or second

    def notify(ref: Reference) -> None:
        first(ref)
        second(ref)

    return notify
