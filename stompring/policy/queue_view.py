"""A queue, as policies see it."""

from __future__ import annotations

from collections.abc import Iterator

from stompring.broker.queue import Queue

from .message_view import MessageView


class QueueView:
    """One queue. What is on disk counts in `message_count` and `paged`; everything else here is about memory."""

    __slots__ = ("_queue", "give_up_oldest")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        #: Give up the message that would be delivered next; False where none waits.
        self.give_up_oldest = queue.evict_head

    @property
    def name(self) -> str:
        """Its name, of which there is one in a broker."""
        return self._queue.name

    @property
    def multicast(self) -> bool:
        """Whether it is of routing type MULTICAST; else ANYCAST."""
        return self._queue.attributes.routing_type == "MULTICAST"

    @property
    def durable(self) -> bool:
        """Whether it survives a restart."""
        return self._queue.durable

    @property
    def ring_size(self) -> int:
        """Messages that may wait in it, -1 without a limit."""
        return self._queue.ring_size

    @property
    def over_size(self) -> int:
        """Messages that wait in it beyond its ring-size."""
        size = self._queue.ring_size
        return max(0, self._queue.ring_count - size) if size >= 0 else 0

    def has_room(self, returning: bool = False) -> bool:
        """Whether it keeps its ring-size; for a message that comes back, whether that one finds room too."""
        size = self._queue.ring_size
        return size < 0 or self._queue.ring_count + returning <= size

    @property
    def message_count(self) -> int:
        """Waiting, scheduled, in delivery and paged (messageCount)."""
        return self._queue.message_count

    @property
    def waiting(self) -> int:
        """Messages in memory that wait for a consumer."""
        return self._queue.count

    @property
    def delivering(self) -> int:
        """Messages given to a consumer and not settled yet."""
        return self._queue.delivering

    @property
    def scheduled(self) -> int:
        """Messages that wait for their time."""
        return self._queue.scheduled_count

    @property
    def paged(self) -> int:
        """Messages on disk only."""
        return self._queue.paged_count

    @property
    def consumers(self) -> int:
        """How many consumers it has."""
        return len(self._queue.consumers)

    @property
    def oldest(self) -> MessageView | None:
        """The message in memory that would be delivered next; None where none waits."""
        ref = self._queue.first()
        return None if ref is None else MessageView(ref)

    @property
    def lowest(self) -> MessageView | None:
        """The oldest of the messages with the lowest priority that wait in memory; None where none does."""
        ref = self._queue.pending.lowest()
        return None if ref is None else MessageView(ref)

    @property
    def newest(self) -> MessageView | None:
        """The message in memory that was sent last; None where none waits."""
        ref = self._queue.pending.latest()
        return None if ref is None else MessageView(ref)

    def messages(self) -> Iterator[MessageView]:
        """What waits in memory, in the order of delivery. The queue must not change while this is read."""
        return map(MessageView, self._queue.everything_pending())

    def __repr__(self) -> str:
        return f"<queue {self.name}>"


def view_of(queue: Queue) -> QueueView:
    """What stands for a queue before its policies; always the same object."""
    view = queue.view
    if not isinstance(view, QueueView):
        view = queue.view = QueueView(queue)
    return view
