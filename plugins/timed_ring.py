"""A ring that is bounded by time as well as by number."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from stompring.policy import AddressPolicy, MessageView, Milliseconds, QueueView, parameter

#: Seconds between two looks at what has gone, and the shortest time between two rings of the timer.
EVERY, SHORTEST = 1.0, 0.005

#: Messages of a queue that may be remembered, beyond twice those that wait, before those that have gone are forgotten.
SLACK = 32

#: When it is too old, its number, the order of coming, and itself. No two of the third are equal.
Entry = tuple[int, int, int, MessageView]


class TimedRing(AddressPolicy):
    """Gives up what has waited in the broker for too long, as well as what is beyond a number.

    For queues of the last five minutes, whatever the traffic: an instrument, a log, a replay for who comes late. Other
    than an expiry it needs nothing from the sender, holds for what is in the queue when it is set, and is a ring's:
    what is given up counts in messagesReplaced and goes where the ring sends it, not to the expiry-address. The age
    counts from when the broker took a message, also over a restart and for one that comes back. What is beyond the
    number goes by age too, the oldest first, whatever its priority; the built-in ring gives up the next in turn.

    There is one timer for an address, which rings for the oldest message, or once a second to forget what consumers
    have taken; none while nothing waits. It is exact to 5 ms. A message that waits costs a place in a heap, some
    100 bytes, and one that goes straight to a consumer nothing.
    """

    max_age: Milliseconds = parameter("How old a message may become.", least=1)
    size: int | None = parameter(
        "How many messages may wait in each queue; without it the queue's ring-size counts.", None, least=1
    )

    def created(self) -> None:
        """See AddressPolicy. After a reload messages wait already; at a start they come later, by `enqueued`."""
        self._order = count()
        self._heaps: dict[str, list[Entry]] = {}
        self._rings_at = 0  # no timer
        for queue in self.address.queues:
            heap = self._look(queue)
            self._shrink(queue, heap)
        self._act()

    def _look(self, queue: QueueView) -> list[Entry]:
        """Gather what waits in a queue; what has gone since it was gathered last is forgotten."""
        heap = self._heaps[queue.name] = list(map(self._entry, queue.messages()))
        heapify(heap)
        return heap

    def _entry(self, message: MessageView) -> Entry:
        return message.timestamp + self.max_age, message.number, next(self._order), message

    def enqueued(self, message: MessageView) -> None:
        """See AddressPolicy."""
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
                    heap = self._look(queue)
                self._shrink(queue, heap)
        if not self._rings_at or due < self._rings_at:
            self._arm(due)

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """See AddressPolicy. One that comes back to a full ring is lost itself, as in any ring."""
        if not returning:
            _give_up_oldest(self._heaps.get(queue.name, []))

    def _shrink(self, queue: QueueView, heap: list[Entry]) -> None:
        if self.size is not None:
            while queue.waiting > self.size and _give_up_oldest(heap):
                pass

    # ---- time

    def _arm(self, due: int, shortest: float = 0.0) -> None:
        """Let the timer ring at ``due``, or sooner for a look at what has gone; one that was set for later does not."""
        now = self.address.now
        seconds = min(EVERY, max(shortest, (due - now + 0.5) / 1000))  # a moment too early would be in vain
        at = now + int(seconds * 1000)
        if not self._rings_at or at < self._rings_at:
            self._cancel()
            self._rings_at = at
            self._timer = self.address.call_later(seconds, self._ring)

    def _cancel(self) -> None:
        if self._rings_at:
            self._timer.cancel()
            self._rings_at = 0

    def _ring(self) -> None:
        self._rings_at = 0
        self._act()

    def _act(self) -> None:
        """Give up what is too old, forget what has gone, and set the timer for what is left."""
        now = self.address.now
        for name, heap in list(self._heaps.items()):
            queue = self.address.queue(name)
            if queue is None or not queue.waiting:
                del self._heaps[name]
                continue
            while heap and (heap[0][0] <= now or not heap[0][3].waiting):
                heappop(heap)[3].give_up()
            if len(heap) > 2 * queue.waiting + SLACK:
                heap = self._look(queue)
            if not heap:
                del self._heaps[name]
        if self._heaps:
            self._arm(min(heap[0][0] for heap in self._heaps.values()), SHORTEST)


def _give_up_oldest(heap: list[Entry]) -> bool:
    """Give up what has been here for longest; False where nothing is known that waits."""
    while heap:
        if heappop(heap)[3].give_up():
            return True
    return False
