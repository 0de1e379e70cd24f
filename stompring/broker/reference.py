"""References to messages in queues, lists of pending references in the order of delivery, and timers for references.

`TimerQueue` calls a function for each reference at its due time. `expiry_time` returns when a message expires (Artemis,
"Message Expiry"), `redelivery_delay` the pause before the next delivery ("Undelivered Messages").
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from itertools import count, groupby, islice
from operator import attrgetter
from typing import Any, Final, Protocol

from mypy_extensions import mypyc_attr

from stompring.errors import Refused
from stompring.selector import InvalidSelector, compile_selector
from stompring.settings.model import AddressSettings, QueueConfiguration, RingPolicy, RoutingType, options_of
from stompring.settings.value_types import VALUE_TYPES, message_header

from .clock import Background, Clock, Due, Recurrence, Timer, cancel
from .message import AddressBase, Matches, Message


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """The attributes of a queue: a `QueueConfiguration` with all defaults filled in and a compiled filter."""

    routing_type: RoutingType
    durable: bool = True
    filter: str | None = None
    accepts: Matches | None = None
    ring_size: int = -1
    ring_policy: RingPolicy = RingPolicy.DISCARD
    ring_counts_paged: bool = False
    max_consumers: int = -1
    purge_on_no_consumers: bool = False
    exclusive: bool = False
    non_destructive: bool = False
    last_value: bool = False
    last_value_key: str | None = None
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    group_buckets: int = -1
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_first_key: str | None = None
    enabled: bool = True
    user: str | None = None
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False

    @classmethod
    def of(cls, configuration: QueueConfiguration, settings: AddressSettings) -> QueueAttributes:
        """Return the attributes in ``configuration``, with ``default-…`` values of ``settings`` for missing ones.

        Raises `Refused` for an invalid value.
        """
        values = {name: getattr(configuration, name) for name in _FROM_CONFIGURATION}
        if configuration.configured and configuration.purge_on_no_consumers is None:
            # as in Artemis, default-purge-on-no-consumers does not apply to queues that broker.xml declares
            values["purge_on_no_consumers"] = False
        for name, setting in _INHERITED:
            if values[name] is None:
                values[name] = getattr(settings, setting)
        if configuration.last_value is False and configuration.last_value_key is None:
            values["last_value_key"] = None  # last-value="false" overrides default-last-value-key
        changes = {name: values.pop(name) for name in ("filter", "group_first_key")}
        return cls(**values).changed(changes)

    def changed(self, changes: Mapping[str, Any]) -> QueueAttributes:
        """Return a copy with changed attributes. Raises `Refused` for an unknown attribute or an invalid value."""
        if unknown := sorted(set(changes) - {field.name for field in fields(self)}):
            raise Refused(f"a queue has no attribute {unknown[0]}", status=400)
        changed = replace(self, **changes)
        for name, lowest in LEAST.items():
            value = getattr(changed, name)
            if isinstance(value, bool) or not isinstance(value, int) or (value < lowest and value != -1):
                raise Refused(
                    f"{name.replace('_', '-')} must be -1 or at least {lowest}, not {value!r}", status=400
                )
        if "filter" in changes:
            text = (changed.filter or "").strip() or None
            changed = replace(changed, filter=text, accepts=compiled_filter(text))
        if changed.last_value_key is not None and not changed.last_value:
            changed = replace(changed, last_value=True)
        if "group_first_key" in changes:
            try:
                name_of_header = message_header((changed.group_first_key or "").strip())
            except ValueError as wrong:
                raise Refused(f"group-first-key {wrong}", status=400) from None
            changed = replace(changed, group_first_key=name_of_header)
        return changed


def compiled_filter(selector: str | None) -> Matches | None:
    """Return the predicate of a selector. None: the selector is empty and matches every message. Raises `Refused`."""
    if selector is None or not selector.strip():
        return None
    try:
        return compile_selector(selector).matches_lines
    except InvalidSelector as fault:
        raise Refused(f"filter: {fault}", status=400) from None


_FROM_CONFIGURATION = [
    each.name for each in fields(QueueAttributes) if each.name in QueueConfiguration.__dataclass_fields__
]
_INHERITED = [(row.name, row.inherits) for row in options_of(QueueConfiguration) if row.inherits]

#: The minimum of each numeric attribute; -1 ("none") is valid too.
LEAST = {
    row.name: VALUE_TYPES[row.type].least
    for row in options_of(QueueConfiguration)
    if VALUE_TYPES[row.type].kind is int
}


PENDING, DELIVERING, SCHEDULED, GONE, DEFERRED = range(5)
STATES = ("pending", "delivering", "scheduled", "gone", "deferred")

LEVELS: Final = 10  # number of JMS priorities, 0 to 9

#: Maximum length of a list that `PendingList.sweep` checks as a whole. Of a longer one it checks `RUN` references.
WHOLE, RUN = 4096, 512

#: Minimum number of references that `PendingList.restore_all` sorts into the list together. Fewer are inserted singly.
FEW: Final = 64

#: Number of stale references that every list may have.
SLACK: Final = 64


class Page(Protocol):
    """One page file of an address. Pages of one address are ordered by ``number``."""

    number: int
    first_number: int  # number of the page's first message; message numbers ascend within an address
    count: int  # number of messages written to the page
    soonest_expiry: int  # soonest expiry (epoch ms); 0: no message expires
    soonest_due: int  # soonest due time (epoch ms); 0: no message is scheduled


Position = tuple[Page, int]


@mypyc_attr(allow_interpreted_subclasses=True)  # for subclasses of `Consumer`
class ConsumerBase:
    """Base of `Consumer`, for references and the store."""

    __slots__ = ()

    consumer_name = ""  # a store that retains messages records this name with each acknowledged message


class QueueBase:  # only tests have weak references: # compiled: same
    """Base of `Queue`, for references and the store."""

    __slots__ = (
        "__weakref__",
        "address",
        "attributes",
        "deleted",
        "durable",
        "name",
        "number",
        "retains_from",
    )

    name: str
    number: int  # number of the queue in message ids and in the store
    address: AddressBase
    attributes: QueueAttributes
    durable: bool
    deleted: bool
    #: `IN_DURABLE`, `EVERYWHERE` or `NEVER`: the store retains messages of the queue whose ``Traits.retained`` is at
    #: least this
    retains_from: int

    def settle(self, ref: Reference) -> None:
        """Settle a message that a consumer acknowledged."""
        raise AssertionError("a derived class has it")


class Reference:
    """One message in one queue: its position, state and delivery counts.

    ``sequence`` is its position in the order of the queue, at first the number of the message; a requeued message keeps
    it. ``state`` is one of PENDING, DELIVERING, SCHEDULED, GONE. A pending list may still have a reference in another
    state, and skips it.
    """

    __slots__ = (
        "attempts",
        "deliveries",
        "due",
        "last_rejected_by",
        "message",
        "position",
        "queue",
        "recurrence",
        "sequence",
        "state",
        "watched",
    )

    def __init__(self, message: Message, queue: QueueBase, state: int) -> None:
        self.message = message
        self.queue = queue
        self.sequence = message.number
        self.state = state
        self.deliveries = 0  # number of deliveries; the header redelivered is true from the second one on
        self.attempts = 0  # number of failed deliveries, for max-delivery-attempts
        #: The consumer that rejected the message: other consumers have precedence. After the ACK of a message that the
        #: store retains: the consumer that acknowledged it.
        self.last_rejected_by: ConsumerBase | None = None
        self.due: Due = 0  # epoch ms, while SCHEDULED
        self.recurrence: Recurrence | None = None
        self.watched = False  # whether `Expiry` has a timer for the message
        # position in the page from which the message was read; None: not read from a page
        self.position: Position | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Sort key for the order of delivery."""
        return (-self.message.traits.priority, self.sequence)


class ReferenceRun(Reference):
    """Stands for consecutive pending references of one priority in a list, which creates them when it needs the first.

    A broker that recovers a million messages creates no reference for each. ``last``: sequence of the last reference.
    ``length``: number of references. ``make`` creates them. The state of the run is DEFERRED; it has no message.
    """

    __slots__ = ("_made", "_make", "last", "length")

    def __init__(
        self, sequence: int, last: int, length: int, make: Callable[[ReferenceRun], list[Reference]]
    ) -> None:
        self.sequence = sequence
        self.state = DEFERRED
        self.last = last
        self.length = length
        self._make: Callable[[ReferenceRun], list[Reference]] | None = make
        self._made: list[Reference] = []

    @property
    def made(self) -> bool:
        """Whether the references exist."""
        return self._make is None

    def references(self) -> list[Reference]:
        """Return all references of the run, in order, in any state. The first call creates them."""
        make, self._make = self._make, None
        if make is not None:
            self._made = make(self)
        return self._made


def _without_stale(refs: Iterable[Reference]) -> tuple[list[Reference], int]:
    """Return the references without stale ones, and the number of stale ones. A run that has created its references is
    replaced by them.
    """
    kept: list[Reference] = []
    stale = 0
    for ref in refs:
        if isinstance(ref, ReferenceRun):
            if ref.made:
                found = [each for each in ref.references() if each.state == PENDING]
                stale += ref.length - len(found)
                kept += found
            else:
                kept.append(ref)
        elif ref.state == PENDING:
            kept.append(ref)
        else:
            stale += 1
    return kept, stale


class PendingList:
    """References in the order of delivery: highest priority first, oldest first within a priority. A *level* is the
    deque of one priority.

    Lists are lazy: a reference that was settled, or delivered through another list, becomes *stale*. It stays until it
    reaches the head, or until more than half of the list is stale. So no reference is searched for in the middle, and a
    requeued message often only changes its state.
    """

    __slots__ = ("_swept", "_sweeping", "levels", "mask", "size")

    def __init__(self) -> None:
        self.levels: list[deque[Reference] | None] = [None] * LEVELS
        self.mask = 0  # bit n: the level of priority n may have references
        self.size = 0  # number of references in all levels, stale ones included
        self._sweeping = 0  # priority of the level that `_sweep_on` checks
        self._swept = 0  # number of references of that level that were checked already

    def append(self, ref: Reference) -> None:
        """Append a reference to the level of its priority."""
        priority = ref.message.traits.priority
        level = self.levels[priority]
        if level is None:
            level = self.levels[priority] = deque()
        level.append(ref)
        self.mask |= 1 << priority
        self.size += 1

    def append_run(self, run: ReferenceRun, priority: int) -> None:
        """Append a run to the level of its priority."""
        level = self.levels[priority] = self.levels[priority] or deque()
        level.append(run)
        self.mask |= 1 << priority
        self.size += run.length

    def head(self) -> Reference | None:
        """Return the first pending reference without removing it. Drops stale references before the head."""
        while self.mask:
            top = self.mask.bit_length() - 1
            level = self.levels[top]
            while level:
                ref = level[0]
                if ref.state == PENDING:
                    return ref
                level.popleft()
                if isinstance(ref, ReferenceRun):
                    level.extendleft(reversed(ref.references()))
                    continue
                self.size -= 1
            self.mask &= ~(1 << top)
        return None

    def lowest(self) -> Reference | None:
        """Return the first pending reference of the lowest priority without removing it."""
        return next(self.heads(), None)

    def heads(self) -> Iterator[Reference]:
        """Yield the first pending reference of each priority, the lowest first. Drops stale references before it."""
        for level in self.levels:
            while level:
                ref = level[0]
                if ref.state == PENDING:
                    yield ref
                    break
                level.popleft()
                if isinstance(ref, ReferenceRun):
                    level.extendleft(reversed(ref.references()))
                    continue
                self.size -= 1

    def latest(self) -> Reference | None:
        """Return the pending reference whose message was sent last, without removing the reference."""
        return max(self._tails(), key=attrgetter("sequence"), default=None)

    def _tails(self) -> Iterator[Reference]:
        """Yield the last pending reference of each priority, the lowest first. Drops stale references behind it."""
        for level in self.levels:
            while level:
                ref = level[-1]
                if ref.state == PENDING:
                    yield ref
                    break
                level.pop()
                if isinstance(ref, ReferenceRun):
                    level.extend(ref.references())
                    continue
                self.size -= 1

    def pop_head(self, ref: Reference) -> None:
        """Remove the reference that `head` has just returned."""
        level = self.levels[ref.message.traits.priority]
        assert level is not None and level[0] is ref
        level.popleft()
        self.size -= 1

    def restore(self, ref: Reference) -> None:
        """Insert a reference by its sequence, unless it is still in the list."""
        priority = ref.message.traits.priority
        level = self.levels[priority] = self.levels[priority] or deque()
        self.mask |= 1 << priority
        if not level or ref.sequence < level[0].sequence:
            level.appendleft(ref)
        else:
            # deque's index and insert walk blocks of 64 in C: cheap near the ends, where requeued messages belong
            at = 0 if level[0] is ref else self._index(level, ref.sequence)
            if at < len(level) and level[at] is ref:
                return
            level.insert(at, ref)
        self.size += 1

    def restore_all(self, refs: list[Reference]) -> None:
        """Insert references, which are in the order of delivery, by their sequences, in time linear in the list."""
        if len(refs) < FEW:
            for ref in refs:
                self.restore(ref)
            return
        for priority, run in groupby(refs, key=attrgetter("message.traits.priority")):
            level = self.levels[priority] or deque()
            returned = list(run)
            self._make_overlapping(level, returned[0].sequence, returned[-1].sequence)
            # the sort of two sorted runs takes linear time; a reference that is still in the list comes twice
            merged = deque(dict.fromkeys(sorted((*level, *returned), key=attrgetter("sequence"))))
            self.size += len(merged) - len(level)
            self.levels[priority] = merged
            self.mask |= 1 << priority

    def _index(self, level: deque[Reference], sequence: int) -> int:
        """Return the index of a sequence in a level. Creates the references of the run that contains it."""
        at = bisect_left(level, sequence, key=attrgetter("sequence"))
        if at and isinstance(level[at - 1], ReferenceRun):
            self._make_overlapping(level, sequence, sequence)
            at = bisect_left(level, sequence, key=attrgetter("sequence"))
        return at

    @staticmethod
    def _make_overlapping(level: deque[Reference], first: int, last: int) -> None:
        """Create the references of the runs that overlap the sequences from ``first`` to ``last``."""
        if not any(
            isinstance(ref, ReferenceRun) and ref.sequence <= last and first <= ref.last for ref in level
        ):
            return
        refs = list(level)
        level.clear()
        for ref in refs:
            if isinstance(ref, ReferenceRun) and ref.sequence <= last and first <= ref.last:
                level.extend(ref.references())
            else:
                level.append(ref)

    def insert(self, ref: Reference) -> None:
        """Insert a reference by its sequence, mostly at the tail: messages are read from pages in their order."""
        level = self.levels[ref.message.traits.priority]
        if not level or (level[-1].sequence < ref.sequence and level[-1].state != DEFERRED):
            self.append(ref)
        else:
            self.restore(ref)

    def newest(self) -> Reference | None:
        """Remove and return the last pending reference in the order of delivery. Drops stale references behind it."""
        ref = next(self._tails(), None)
        if ref is not None:
            level = self.levels[ref.message.traits.priority]
            assert level is not None
            level.pop()
            self.size -= 1
        return ref

    def clear(self) -> None:
        """Drop all references in any state."""
        self.levels = [None] * LEVELS
        self.mask = self.size = 0

    def sweep(self, live: int) -> None:
        """Drop stale references if they are more than half of the list. ``live``: maximum number of pending
        references.
        """
        if self.size <= 2 * live + SLACK:
            return
        if self.size > WHOLE:
            self._sweep_on()
            return
        for priority, level in enumerate(self.levels):
            if level:
                pending, stale = _without_stale(level)
                self.levels[priority] = deque(pending)
                self.size -= stale

    def _sweep_on(self) -> None:
        """Drop the stale references among the next `RUN` references. Successive calls go through all priorities."""
        for _ in range(LEVELS):
            level, at = self.levels[self._sweeping], self._swept
            if level and at < len(level):
                level.rotate(-at)
                run, left = [], RUN
                while left > 0 and len(level) > at:
                    ref = level.popleft()
                    run.append(ref)
                    left -= ref.length if isinstance(ref, ReferenceRun) else 1
                pending, stale = _without_stale(run)
                level.extendleft(reversed(pending))
                level.rotate(at)
                self.size -= stale
                self._swept = at + len(pending)
                return
            self._sweeping, self._swept = (self._sweeping + 1) % LEVELS, 0

    def read(self, priority: int, sequence: int | None, most: int) -> list[Reference]:
        """Return up to ``most`` references of a priority, stale references too, from the sequence number ``sequence``
        on (None: from the first).
        """
        level = self.levels[priority]
        if not level:
            return []
        at = 0
        if sequence is not None and level[0].sequence < sequence:
            last = level[-1]
            if last.sequence < sequence and not (isinstance(last, ReferenceRun) and sequence <= last.last):
                return []
            at = self._index(level, sequence)
        level.rotate(-at)
        count = len(level) - at
        while count and isinstance(run := level[0], ReferenceRun):
            level.popleft()
            refs = run.references()
            level.extendleft(reversed(refs))
            count += len(refs) - 1
        found = list(islice(level, min(most, count)))
        level.rotate(at)
        for index, ref in enumerate(found):
            if ref.state == DEFERRED:
                return found[:index]  # the next call continues with this run
        return found

    def snapshot(self) -> Iterator[Reference]:
        """Iterate over a copy of the pending references, in the order of delivery. The copy has 8 bytes for each."""
        return _drained([level.copy() for level in self.levels if level])

    def detach(self) -> Iterator[Reference]:
        """Remove all references, and iterate over the pending references in the order of delivery."""
        levels = [level for level in self.levels if level]
        self.clear()
        return _drained(levels)

    def __iter__(self) -> Iterator[Reference]:
        for level in reversed(self.levels):
            if level:
                yield from _pending(level)


def _pending(refs: Iterable[Reference]) -> Iterator[Reference]:
    for ref in refs:
        if ref.state == PENDING:
            yield ref
        elif isinstance(ref, ReferenceRun):
            yield from _pending(ref.references())


def _drained(levels: list[deque[Reference]]) -> Iterator[Reference]:
    """Pop the references, the highest priority first, so that Python frees killed messages between steps."""
    for level in reversed(levels):
        while level:
            ref = level.popleft()
            if ref.state == PENDING:
                yield ref
            elif isinstance(ref, ReferenceRun):
                level.extendleft(reversed(ref.references()))


Entry = tuple[int, int, Reference]


class TimerQueue:
    """Timers for references: a heap ordered by due time (epoch ms), and one ``callLater`` for the soonest of them.

    References with equal due times are called in the order of `enter`. ``wanted(ref, due)``: whether a timer is valid
    at its due time. `forget` counts an invalid timer; the heap is rebuilt when more than half of its timers are
    invalid. ``fall_due()`` returns a function, which is called with each due reference, in time slices.
    """

    def __init__(
        self,
        clock: Clock,
        background: Background,
        wanted: Callable[[Reference, int], bool],
        fall_due: Callable[[], Callable[[Reference], None]],
    ) -> None:
        self._busy = False  # whether `_sweep` is running
        self._unwanted = 0
        self._timer: Timer | None = None
        self._timer_due = 0
        self._clock = clock
        self._background = background
        self._wanted = wanted
        self._fall_due = fall_due
        self._heap: list[Entry] = []
        self._former: list[Entry] = []  # during a rebuild: a heap of the timers that are not checked yet
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap) + len(self._former)

    def enter(self, ref: Reference, due: int) -> None:
        """Set a timer for ``ref`` at ``due`` (epoch ms)."""
        heappush(self._heap, (due, next(self._order), ref))
        if self._timer is None or due < self._timer_due:
            self._arm()

    def forget(self) -> None:
        """Count a timer that is no longer valid. If most timers are invalid, rebuild the heap."""
        self._unwanted += 1
        if self._unwanted > 64 and self._unwanted * 2 > len(self._heap) and not self._former:
            self._former, self._heap = self._heap, []
            self._unwanted = 0
            self._background.run(self._rebuild())

    def _rebuild(self) -> Iterator[None]:
        """Move the valid timers to the new heap, the last ones first, so that the others remain a heap."""
        while self._former:
            entry = self._former.pop()
            if self._wanted(entry[2], entry[0]):
                heappush(self._heap, entry)
            yield

    def stop(self) -> None:
        """Cancel the ``callLater``."""
        cancel(self._timer)
        self._timer = None

    def _first(self) -> list[Entry]:
        """Return the heap with the soonest timer: during a rebuild there are two."""
        heap, former = self._heap, self._former
        return former if former and (not heap or former[0] < heap[0]) else heap

    def _arm(self) -> None:
        if self._busy:
            return
        self.stop()
        heap = self._first()
        if heap:
            self._timer_due = heap[0][0]
            self._timer = self._clock.call_at(self._timer_due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._busy = True
        self._background.run(self._sweep())

    def _sweep(self) -> Iterator[None]:
        """Call the function of ``fall_due`` with each reference that is due at the start of this job."""
        now = self._clock.refresh()
        try:
            fall_due = self._fall_due()
            while (heap := self._first()) and heap[0][0] <= now:
                when, _, ref = heappop(heap)
                if self._wanted(ref, when):
                    fall_due(ref)
                elif self._unwanted:
                    self._unwanted -= 1
                yield
        finally:
            self._busy = False
            self._arm()


def expiry_time(settings: AddressSettings, now: int, requested: int) -> int:
    """Return when a message expires (epoch ms, 0: never). ``requested``: its ``expires`` header (epoch ms, 0: none).

    ``no-expiry`` overrides the other settings. ``expiry-delay`` applies to messages without an expiry.
    ``min-expiry-delay`` and ``max-expiry-delay`` limit a requested expiry, and set the expiry (the maximum, else the
    minimum) of a message that has none.
    """
    if settings.no_expiry:
        return 0
    if not requested and settings.expiry_delay >= 0:
        return now + settings.expiry_delay
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if not requested:
        bound = most if most >= 0 else least
        return now + bound if bound >= 0 else 0
    if most >= 0:
        requested = min(requested, now + most)
    if least >= 0:
        requested = max(requested, now + least)
    return requested


def changes_expiry(settings: AddressSettings) -> bool:
    """Return whether `expiry_time` can differ from the expiry that the sender requested."""
    longest = max(settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay)
    return settings.no_expiry or longest >= 0


def is_expired(message: Message, now: int) -> bool:
    """Return whether a message has expired at ``now`` (epoch ms). Hot paths check ``message.expires`` first."""
    return 0 < message.expires <= now


#: Default of max-redelivery-delay, as a multiple of redelivery-delay.
DEFAULT_CEILING: Final = 10


def redelivery_delay(settings: AddressSettings, attempts: int, random: Callable[[], float]) -> int:
    """Return the pause (ms) before the next delivery, after ``attempts`` failed deliveries.

    The pause is redelivery-delay × redelivery-delay-multiplier^(attempts-1), at most max-redelivery-delay. It is then
    changed at random by at most the part redelivery-collision-avoidance-factor, up or down. ``random`` returns numbers
    from 0 to 1.
    """
    base = settings.redelivery_delay
    if base <= 0:
        return 0
    ceiling = settings.max_redelivery_delay if settings.max_redelivery_delay > 0 else base * DEFAULT_CEILING
    # the limit of the exponent avoids a float overflow
    delay = min(ceiling, base * settings.redelivery_delay_multiplier ** min(max(attempts, 1) - 1, 64))
    spread = settings.redelivery_collision_avoidance_factor
    if spread > 0:
        delay *= 1 + spread * (2 * random() - 1)
    return max(0, min(ceiling, int(delay)))
