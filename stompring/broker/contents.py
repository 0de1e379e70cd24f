"""What is in a queue, for management: look at it, and remove or release single messages.

Artemis counts a message that management removes by its id as acknowledged, and those it removes by a filter as
killed; so does this. What is in delivery belongs to its consumer and is never touched.

What is on disk has to be read: iterators give a `Wait` among what they give, where their caller has to wait.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain

from stompring.errors import NotFound, Refused
from stompring.selector import InvalidSelector, compile_selector

from .consumer import Matches
from .queue import Queue
from .reference import DELIVERING, GONE, PENDING, SCHEDULED, Reference
from .storage import Reason
from .transfer import repeated
from .walk import OnDisk, Wait, Walk, seek, walk_pending, walk_timed


def matching(selector: str | None) -> Matches | None:
    """The predicate of a selector's text, ``None`` for every message. Raises `Refused`."""
    if selector is None or not selector.strip():
        return None
    try:
        return compile_selector(selector).matches
    except InvalidSelector as fault:
        raise Refused(f"filter: {fault}", status=400) from None


def browse(queue: Queue, selector: str | None = None, elsewhere: Iterable[Reference] = ()) -> Walk:
    """The messages of a queue that a selector matches, each once. Raises `Refused` at once.

    First what is pending, in the order of delivery; then what is scheduled, in the order it was sent; then what is
    in delivery, to which ``elsewhere`` adds references that no consumer holds any more: those acknowledged in an
    open transaction. The iterator works on a copy, so the queue may change while it is read: what has left the
    queue is skipped. What is on disk only comes as `OnDisk`, among what is pending or after what is scheduled.
    """
    matches = matching(selector)
    unsettled = [ref for consumer in queue.consumers for ref in consumer.unsettled_references()]
    in_delivery = [ref for ref in (*unsettled, *elsewhere) if ref.queue is queue and ref.state == DELIVERING]
    scheduled = list(queue.scheduled.values())
    return _living(chain(pending(queue), scheduled, walk_timed(queue), in_delivery), matches)


def _living(found: Walk, matches: Matches | None) -> Walk:
    for one in found:
        if isinstance(one, Wait) or (one.state != GONE and (matches is None or matches(one.message))):
            yield one


def pending(queue: Queue) -> Walk:
    """What is pending now, in the order of delivery."""
    return queue.snapshot() if queue.area is None else walk_pending(queue)


Steps = Generator[Wait, None, None]


def remove_message(queue: Queue, number: int) -> Steps:
    """Remove one message that is pending or scheduled; it counts as acknowledged.

    Raises `NotFound`, and `Refused` for one that is in delivery.
    """
    ref = _find(queue, number)
    if ref is None:
        on_disk = yield from seek(queue, number)
        ref = (
            _find(queue, number) if on_disk is None else on_disk.load()
        )  # it may have come to memory meanwhile
    if ref is None:
        raise _missing(queue, number)
    _remove(queue, ref)


def cancel_scheduled(queue: Queue, number: int) -> Steps:
    """Take back a scheduled message, with all its repetitions; it counts as acknowledged. Raises `NotFound`."""
    found = yield from _scheduled(queue, number)
    ref = found.load() if isinstance(found, OnDisk) else found
    if ref is None:
        raise _not_scheduled(queue, number)
    _remove(queue, ref)


def deliver_now(queue: Queue, number: int) -> Steps:
    """Let a scheduled message fall due at once; of a recurring one a copy goes out, and its schedule stays.

    It goes to the head of the queue, and is lost itself to a full ring, as at its time. Raises `NotFound`.
    """
    ref, broker = (yield from _scheduled(queue, number)), queue.broker
    if isinstance(ref, OnDisk):
        assert queue.area is not None and ref.place is not None
        queue.area.deliver_now(ref.cursor, *ref.place, ref.message)
        return
    if ref.recurrence is not None:
        copy = repeated(ref, broker.next_message_number(), broker.clock.now)
        ref = queue.schedule(copy, broker.clock.now)
    broker.forget_schedule(ref)  # of the entry that will come due later, or was made just now
    queue.fell_due([ref], queue.due_batch())


def purge(queue: Queue, selector: str | None = None) -> Iterator[int | Wait]:
    """Kill what is pending or scheduled now and matches. Raises `Refused` at once.

    Gives 1 for each message killed and 0 for each spared, so that the caller may pause between any two; without a
    selector all that is on disk only goes at once, unread, and its number is given.
    """
    matches = matching(selector)
    if matches is None and queue.area is not None:
        return _purge_all(queue)
    return (one if isinstance(one, Wait) else _kill(queue, one, matches) for one in browse(queue))


def _purge_all(queue: Queue) -> Iterator[int]:
    for paged in () if queue.area is None else queue.area.purge(Reason.KILLED):
        queue.messages_killed += paged
        yield paged
    for ref in chain(queue.snapshot(), list(queue.scheduled.values())):
        yield _kill(queue, ref, None)


def trim(queue: Queue) -> Iterator[int]:
    """Enforce a lowered ring-size; gives 1 for each message replaced, so that the caller may pause between."""
    while 0 <= queue.ring_size < queue.ring_count:
        queue.make_way()
        yield 1


def _kill(queue: Queue, ref: Reference, matches: Matches | None) -> int:
    if ref.state not in (PENDING, SCHEDULED) or not (matches is None or matches(ref.message)):
        return 0
    if isinstance(ref, OnDisk):
        loaded = ref.load()
        if loaded is None:
            return 0
        ref = loaded
    queue.kill(ref)
    queue.pending.head()  # drops what was killed at the head at once; a sweep of all of it would be a long stop
    return 1


def _remove(queue: Queue, ref: Reference) -> None:
    queue.take_out(ref)
    queue.messages_acknowledged += 1
    ref.avoid = None  # no consumer has taken it
    queue.drop(ref, Reason.ACKNOWLEDGED)
    if not queue.consumers:
        queue.broker.consider_deleting(queue)


def _find(queue: Queue, number: int) -> Reference | None:
    ref = queue.scheduled.get(number)
    return _find_pending(queue, number) if ref is None else ref


def _missing(queue: Queue, number: int) -> Refused:
    if any(ref.message.number == number for c in queue.consumers for ref in c.unsettled_references()):
        return Refused(
            f"Message {number} of queue {queue.name} is in delivery: it is its consumer's to settle"
        )
    return NotFound(f"Queue {queue.name} holds no message {number}")


def _find_pending(queue: Queue, number: int) -> Reference | None:
    """A walk over everything, since nobody else asks for numbers: some 50 nanoseconds a message."""
    held = [consumer.held for consumer in queue.consumers if consumer.held is not None]
    for pending in (queue.pending, *held):
        for level in pending.levels:
            for ref in level or ():
                if ref.message.number == number and ref.state == PENDING:
                    return ref
    return None


def _scheduled(queue: Queue, number: int) -> Generator[Wait, None, Reference]:
    ref = queue.scheduled.get(number)
    if ref is None:
        ref = yield from seek(queue, number)
    if ref is None or ref.state != SCHEDULED:
        raise _not_scheduled(queue, number)
    return ref


def _not_scheduled(queue: Queue, number: int) -> NotFound:
    return NotFound(f"Queue {queue.name} has no scheduled message {number}")
