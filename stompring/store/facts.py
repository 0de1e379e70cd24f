"""What is told to the journal besides messages, before it becomes records."""

from __future__ import annotations

from stompring.broker.consumer import Consumer
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference
from stompring.broker.storage import Reason

from .tail import Tail

#: In place of a reason in what is told: the counts of a reference are new; it went out to a consumer.
STATED, WENT_OUT = -1, -2

#: The numbers in use shall be told again.
NUMBERS_ANEW = "numbers"

#: The same, and what is not known of transactions by now never will be.
ALL_COMPLETE = "complete"


class Opened:
    """A transaction that is open. It has a number once a page needs one."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class Closed:
    """The end of a transaction."""

    __slots__ = ("opened",)

    def __init__(self, opened: Opened) -> None:
        self.opened = opened


class Facts:
    """Message numbers by queue and fact, of one turn: one record for each."""

    __slots__ = ("_by_fact", "_fact", "_now", "_numbers", "_queue", "_tail")

    def __init__(self, tail: Tail, now: int) -> None:
        self._tail = tail
        self._now = now
        self._by_fact: dict[tuple[Queue, int], list[int]] = {}
        self._queue: Queue | None = None  # of the last one
        self._fact = 0
        self._numbers: list[int] = []

    def add(self, ref: Reference, fact: int) -> None:
        """One more: a `Reason`, or WENT_OUT."""
        if ref.queue is not self._queue or fact != self._fact:
            self._queue, self._fact = ref.queue, fact
            self._numbers = self._by_fact.setdefault((ref.queue, fact), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """Put them into records."""
        if not self._by_fact:
            return
        for (queue, fact), numbers in self._by_fact.items():
            if fact == WENT_OUT:
                self._tail.delivered(queue, numbers)
            else:
                self._tail.settled(queue, Reason(fact), self._now, numbers)
        self._by_fact = {}
        self._queue = None


class FactsOfTakers(Facts):
    """The same, by the consumer too that has acknowledged: another class, so that others need not ask for it."""

    __slots__ = ("_by_taker", "_taker")

    def __init__(self, tail: Tail, now: int) -> None:
        super().__init__(tail, now)
        self._by_taker: dict[tuple[Queue, int, Consumer | None], list[int]] = {}
        self._taker: Consumer | None = None  # of the last one

    def add(self, ref: Reference, fact: int) -> None:
        """See `Facts.add`."""
        queue, taker = ref.queue, ref.avoid if fact == Reason.ACKNOWLEDGED else None
        if queue is not self._queue or fact != self._fact or taker is not self._taker:
            self._queue, self._fact, self._taker = queue, fact, taker
            self._numbers = self._by_taker.setdefault((queue, fact, taker), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """See `Facts.flush`."""
        for (queue, fact, taker), numbers in self._by_taker.items():
            if fact == WENT_OUT:
                self._tail.delivered(queue, numbers)
            else:
                name = "" if taker is None else taker.taker_name
                self._tail.settled(queue, Reason(fact), self._now, numbers, name)
        self._by_taker = {}
        self._queue = None
