"""What is in a queue, for management: look at it, and remove or release single messages.

Artemis counts a message that management removes by its id as acknowledged, and those it removes by a filter as
killed; so does this. What is in delivery belongs to its consumer and is never touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import attrgetter

from stompring.errors import NotFound, Refused
from stompring.selector import InvalidSelector, compile_selector

from .consumer import Matches
from .pending import Pending
from .queue import Queue
from .reference import DELIVERING, GONE, PENDING, SCHEDULED, Reference
from .storage import Reason
from .transfer import repeated


def matching(selector: str | None) -> Matches | None:
    """The predicate of a selector's text, ``None`` for every message. Raises `Refused`."""
    if selector is None or not selector.strip():
        return None
    try:
        return compile_selector(selector).matches
    except InvalidSelector as fault:
        raise Refused(f"filter: {fault}", status=400) from None


def browse(
    queue: Queue, selector: str | None = None, elsewhere: Iterable[Reference] = ()
) -> Iterator[Reference]:
    """The messages of a queue that a selector matches, each once. Raises `Refused` at once.

    First what is pending, in the order of delivery; then what is scheduled, in the order it was sent; then what is
    in delivery, to which ``elsewhere`` adds references that no consumer holds any more: those acknowledged in an
    open transaction. The iterator works on a copy, so the queue may change while it is read: what has left the
    queue is skipped.
    """
    matches = matching(selector)
    unsettled = [ref for consumer in queue.consumers for ref in consumer.unsettled_references()]
    in_delivery = [ref for ref in (*unsettled, *elsewhere) if ref.queue is queue and ref.state == DELIVERING]
    return _living((pending_snapshot(queue), list(queue.scheduled.values()), in_delivery), matches)


def _living(parts: Iterable[Iterable[Reference]], matches: Matches | None) -> Iterator[Reference]:
    for part in parts:
        for ref in part:
            if ref.state != GONE and (matches is None or matches(ref.message)):
                yield ref


def pending_snapshot(queue: Queue) -> Iterator[Reference]:
    """What is pending now, in the order of delivery, from lists copied at once (in C: 8 bytes a message)."""
    held = [_copied(consumer.held) for consumer in queue.consumers if consumer.held is not None]
    if not held:
        return _copied(queue.pending)
    return _distinct(merge(_copied(queue.pending), *held, key=attrgetter("order")))


def _copied(pending: Pending) -> Iterator[Reference]:
    levels = [level.copy() for level in reversed(pending.levels) if level]
    return (ref for level in levels for ref in _used_up(level) if ref.state == PENDING)


def _used_up(level: deque[Reference]) -> Iterator[Reference]:
    """Lets go of each as it is given: what is purged is freed by and by, and not in one long stop at the end."""
    while level:
        yield level.popleft()


def _distinct(refs: Iterable[Reference]) -> Iterator[Reference]:
    last = None
    for ref in refs:
        if ref is not last:  # what was set aside for a group may be listed twice
            yield ref
        last = ref


def remove_message(queue: Queue, number: int) -> None:
    """Remove one message that is pending or scheduled; it counts as acknowledged.

    Raises `NotFound`, and `Refused` for one that is in delivery.
    """
    _remove(queue, _find(queue, number))


def cancel_scheduled(queue: Queue, number: int) -> None:
    """Take back a scheduled message, with all its repetitions; it counts as acknowledged. Raises `NotFound`."""
    _remove(queue, _scheduled(queue, number))


def deliver_now(queue: Queue, number: int) -> None:
    """Let a scheduled message fall due at once; of a recurring one a copy goes out, and its schedule stays.

    It goes to the head of the queue, and is lost itself to a full ring, as at its time. Raises `NotFound`.
    """
    ref, broker = _scheduled(queue, number), queue.broker
    if ref.recurrence is not None:
        copy = repeated(ref, broker.next_message_number(), broker.clock.now)
        ref = queue.schedule(copy, broker.clock.now)
    broker.schedule.forget()  # of the entry that will come due later, or was made just now
    queue.fell_due([ref])


def purge(queue: Queue, selector: str | None = None) -> Iterator[int]:
    """Kill what is pending or scheduled now and matches. Raises `Refused` at once.

    Gives 1 for each message killed and 0 for each spared, so that the caller may pause between any two.
    """
    matches = matching(selector)
    return (_kill(queue, ref, matches) for ref in browse(queue))


def trim(queue: Queue) -> Iterator[int]:
    """Enforce a lowered ring-size; gives 1 for each message replaced, so that the caller may pause between."""
    while 0 <= queue.ring_size < queue.count:
        queue.evict_head()
        yield 1


def _kill(queue: Queue, ref: Reference, matches: Matches | None) -> int:
    if ref.state not in (PENDING, SCHEDULED) or not (matches is None or matches(ref.message)):
        return 0
    queue.kill(ref)
    queue.pending.head()  # drops what was killed at the head at once; a sweep of all of it would be a long stop
    return 1


def _remove(queue: Queue, ref: Reference) -> None:
    queue.take_out(ref)
    queue.messages_acknowledged += 1
    queue.drop(ref, Reason.ACKNOWLEDGED)
    if not queue.consumers:
        queue.broker.consider_deleting(queue)


def _find(queue: Queue, number: int) -> Reference:
    ref = queue.scheduled.get(number)
    if ref is None:
        ref = _find_pending(queue, number)
    if ref is not None:
        return ref
    if any(ref.message.number == number for c in queue.consumers for ref in c.unsettled_references()):
        raise Refused(
            f"Message {number} of queue {queue.name} is in delivery: it is its consumer's to settle"
        )
    raise NotFound(f"Queue {queue.name} holds no message {number}")


def _find_pending(queue: Queue, number: int) -> Reference | None:
    """A walk over everything, since nobody else asks for numbers: some 50 nanoseconds a message."""
    held = [consumer.held for consumer in queue.consumers if consumer.held is not None]
    for pending in (queue.pending, *held):
        for level in pending.levels:
            for ref in level or ():
                if ref.message.number == number and ref.state == PENDING:
                    return ref
    return None


def _scheduled(queue: Queue, number: int) -> Reference:
    ref = queue.scheduled.get(number)
    if ref is None:
        raise NotFound(f"Queue {queue.name} has no scheduled message {number}")
    return ref
