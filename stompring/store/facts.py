"""What is told to the journal besides messages, before it becomes records."""

from __future__ import annotations

from stompring.broker.consumer import Consumer
from stompring.broker.message import NOWHERE
from stompring.broker.queue import Queue
from stompring.broker.reference import Reference
from stompring.broker.storage import Reason

from .record import FOR_RESTARTS
from .tail import Tail

#: In place of a reason in what is told: a reference went out to a consumer.
WENT_OUT = -1

#: The numbers in use shall be told again.
NUMBERS_ANEW = "numbers"

#: The same, and what is not known of transactions by now never will be.
ALL_COMPLETE = "complete"


class Opened:
    """A transaction that is open. It has a number once a page needs one.

    ``spare`` is how many bytes of others may still become one with it, after it was closed.
    """

    __slots__ = ("number", "spare")

    def __init__(self, spare: int = 0) -> None:
        self.number = 0
        self.spare = spare


class Closed:
    """The end of a transaction."""

    __slots__ = ("opened",)

    def __init__(self, opened: Opened) -> None:
        self.opened = opened


class Facts:
    """Message numbers by queue and fact, of one turn: one record for each. Deliveries are told first.

    ``scope`` is who is told, where not everybody is (`record.SCOPED`).
    """

    __slots__ = (
        "_by_fact",
        "_fact",
        "_now",
        "_numbers",
        "_out",
        "_out_numbers",
        "_out_queue",
        "_queue",
        "_scope",
        "_tail",
    )

    def __init__(self, tail: Tail, now: int, scope: int = 0) -> None:
        self._tail = tail
        self._now = now
        self._scope = scope
        self._by_fact: dict[tuple[Queue, int], list[int]] = {}
        self._queue: Queue | None = None  # of the last one
        self._fact = 0
        self._numbers: list[int] = []
        self._out: dict[Queue, list[int]] = {}
        self._out_queue: Queue | None = None  # of the last one that went out
        self._out_numbers: list[int] = []

    def went_out(self, ref: Reference) -> None:
        """A message went out to a consumer."""
        if ref.queue is not self._out_queue:
            self._out_queue = ref.queue
            self._out_numbers = self._out.setdefault(ref.queue, [])
        self._out_numbers.append(ref.message.number)

    def add(self, ref: Reference, fact: int) -> None:
        """One more: ``fact`` is a `Reason`."""
        if ref.queue is not self._queue or fact != self._fact:
            self._queue, self._fact = ref.queue, fact
            self._numbers = self._by_fact.setdefault((ref.queue, fact), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """Put them into records."""
        if self._out:
            self._flush_out()
        if not self._by_fact:
            return
        for (queue, fact), numbers in self._by_fact.items():
            self._tail.settled(queue, Reason(fact), self._now, numbers, scope=self._scope)
        self._by_fact = {}
        self._queue = None

    def _flush_out(self) -> None:
        for queue, numbers in self._out.items():
            self._tail.delivered(queue, self._now, numbers, self._scope)
        self._out = {}
        self._out_queue = None


class FactsOfTakers(Facts):
    """The same where messages are retained: by the consumer that has acknowledged too, and apart of the others.

    Another class, so that others need not ask for it.
    """

    __slots__ = ("_by_taker", "_hidden", "_taker")

    def __init__(self, tail: Tail, now: int, scope: int = 0) -> None:
        super().__init__(tail, now, scope)
        self._hidden: Facts | None = None  # of messages that are not retained
        self._by_taker: dict[tuple[Queue, int, Consumer | None], list[int]] = {}
        self._taker: Consumer | None = None  # of the last one

    def _of_hidden(self) -> Facts:
        if self._hidden is None:
            self._hidden = Facts(self._tail, self._now, FOR_RESTARTS)
        return self._hidden

    def went_out(self, ref: Reference) -> None:
        """See `Facts.went_out`."""
        if ref.message.traits.retained == NOWHERE:
            self._of_hidden().went_out(ref)
        else:
            super().went_out(ref)

    def add(self, ref: Reference, fact: int) -> None:
        """See `Facts.add`."""
        if ref.message.traits.retained == NOWHERE:
            self._of_hidden().add(ref, fact)
            return
        queue, taker = ref.queue, ref.avoid if fact == Reason.ACKNOWLEDGED else None
        if queue is not self._queue or fact != self._fact or taker is not self._taker:
            self._queue, self._fact, self._taker = queue, fact, taker
            self._numbers = self._by_taker.setdefault((queue, fact, taker), [])
        self._numbers.append(ref.message.number)

    def flush(self) -> None:
        """See `Facts.flush`."""
        if self._out:
            self._flush_out()
        for (queue, fact, taker), numbers in self._by_taker.items():
            name = "" if taker is None else taker.taker_name
            self._tail.settled(queue, Reason(fact), self._now, numbers, name, scope=self._scope)
        if self._hidden is not None:
            self._hidden.flush()
        self._by_taker = {}
        self._queue = None
