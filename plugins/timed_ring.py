"""timed-ring: a ring that is limited by age as well as by number."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from stompring.policy import AddressPolicy, MessageView, Milliseconds, QueueView, parameter

#: Seconds between two removals of consumed messages from the heaps, and the shortest interval of the timer.
TIDY_INTERVAL, MIN_INTERVAL = 1.0, 0.005

#: Number of entries of a heap, in excess of twice the waiting messages, at which consumed ones are removed.
SLACK = 32

#: Time at which the message is too old, its number, a unique sequence number, the message.
Entry = tuple[int, int, int, MessageView]


class TimedRing(AddressPolicy):
    """Evicts messages above an age, as well as those above a number.

    For queues of the last five minutes at any traffic: an instrument, a log, a replay for late subscribers. In contrast
    to an expiry it needs nothing from the sender, applies to messages that wait already, and evicts like a ring:
    evictions count in messagesReplaced and follow the ring-policy, not the expiry-address. The age is the time since
    the broker accepted the message, also after a restart and for a returning message. Above the number the oldest
    message is evicted whatever its priority; the built-in ring evicts the one that would be delivered next.

    Each address has one timer, for its oldest message, or once a second to remove consumed messages from the heaps;
    none while no message waits. It is exact to 5 ms. A waiting message costs an entry in a heap, some 100 bytes;
    direct delivery costs nothing.
    """

    max_age: Milliseconds = parameter("Maximum age of a message.", least=1)
    size: int | None = parameter(
        "Maximum number of waiting messages in each queue; without it the queue's ring-size applies.",
        None,
        least=1,
    )

    def created(self) -> None:
        """Record the waiting messages after a reload. After a start `enqueued` records them."""
        self._order = count()
        self._heaps: dict[str, list[Entry]] = {}
        self._timer_at = 0  # no timer
        for queue in self.address.queues:
            heap = self._rebuild(queue)
            self._shrink(queue, heap)
        self._evict_old()

    def _rebuild(self, queue: QueueView) -> list[Entry]:
        """Rebuild the heap of a queue from its waiting messages."""
        heap = self._heaps[queue.name] = list(map(self._entry, queue.messages()))
        heapify(heap)
        return heap

    def _entry(self, message: MessageView) -> Entry:
        return message.timestamp + self.max_age, message.number, next(self._order), message

    def enqueued(self, message: MessageView) -> None:
        """Record a message, and evict messages above the limits."""
        entry = self._entry(message)
        due = entry[0]
        if due <= self.address.now:
            message.give_up()
            return
        heap = self._heaps.get(message.queue)
        if heap is None:
            heap = self._heaps[message.queue] = []
        heappush(heap, entry)
        if self.size is not None or len(heap) > SLACK:
            queue = self.address.queue(message.queue)
            if queue is not None:
                if len(heap) > 2 * queue.waiting + SLACK:
                    heap = self._rebuild(queue)
                self._shrink(queue, heap)
        if not self._timer_at or due < self._timer_at:
            self._arm(due)

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """Evict the oldest message. A message that returns to a full ring is lost itself, as in any ring."""
        if not returning:
            _evict_oldest(self._heaps.get(queue.name, []))

    def _shrink(self, queue: QueueView, heap: list[Entry]) -> None:
        if self.size is not None:
            while queue.waiting > self.size and _evict_oldest(heap):
                pass

    # ---- time

    def _arm(self, due: int, shortest: float = 0.0) -> None:
        """Set the timer to ``due``, or sooner to remove consumed messages, unless it is set to an earlier time."""
        now = self.address.now
        seconds = min(
            TIDY_INTERVAL, max(shortest, (due - now + 0.5) / 1000)
        )  # rounded up, so that the message is due
        at = now + int(seconds * 1000)
        if not self._timer_at or at < self._timer_at:
            self._cancel()
            self._timer_at = at
            self._timer = self.address.call_later(seconds, self._on_timer)

    def _cancel(self) -> None:
        if self._timer_at:
            self._timer.cancel()
            self._timer_at = 0

    def _on_timer(self) -> None:
        self._timer_at = 0
        self._evict_old()

    def _evict_old(self) -> None:
        """Evict old messages, remove consumed ones from the heaps, and set the timer for the others."""
        now = self.address.now
        for name, heap in list(self._heaps.items()):
            queue = self.address.queue(name)
            if queue is None or not queue.waiting:
                del self._heaps[name]
                continue
            while heap and (heap[0][0] <= now or not heap[0][3].waiting):
                heappop(heap)[3].give_up()
            if len(heap) > 2 * queue.waiting + SLACK:
                heap = self._rebuild(queue)
            if not heap:
                del self._heaps[name]
        if self._heaps:
            self._arm(min(heap[0][0] for heap in self._heaps.values()), MIN_INTERVAL)


def _evict_oldest(heap: list[Entry]) -> bool:
    """Evict the oldest waiting message. False if there is none."""
    while heap:
        if heappop(heap)[3].give_up():
            return True
    return False
