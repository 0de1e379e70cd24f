"""Views: messages, queues and addresses as policies see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stompring.broker.address import Address
from stompring.broker.clock import Timer
from stompring.broker.queue import Queue
from stompring.broker.reference import PENDING, Reference


class MessageView:
    """One message in one queue. May be kept; but what is kept cannot be freed, so that `waiting` should be asked."""

    __slots__ = ("_ref",)

    def __init__(self, ref: Reference) -> None:
        self._ref = ref

    @property
    def number(self) -> int:
        """Goes up with each message that the broker takes. The same message has the same number in every queue."""
        return self._ref.message.number

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._ref.queue.name

    @property
    def address(self) -> str:
        """The name of the address it was sent to: another one than the queue's for a wildcard's queue."""
        return self._ref.message.address.name

    @property
    def waiting(self) -> bool:
        """Whether it waits in the queue for a consumer now, in memory."""
        return self._ref.state == PENDING

    def header(self, name: str) -> str | None:
        """One header, None where there is none of that name. Cheaper than `headers`."""
        value = self._ref.message.header(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers that its consumers see."""
        return self._ref.message.headers()

    @property
    def body(self) -> bytes:
        """Its body."""
        return self._ref.message.body

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, as `max-size-bytes` counts them."""
        return self._ref.message.size

    @property
    def priority(self) -> int:
        """0 to 9."""
        return self._ref.message.traits.priority

    @property
    def durable(self) -> bool:
        """Whether it survives a restart, in a durable queue."""
        return self._ref.message.traits.durable

    @property
    def timestamp(self) -> int:
        """When the broker took it, epoch milliseconds."""
        return self._ref.message.timestamp

    @property
    def expires(self) -> int:
        """When its time is over, epoch milliseconds; 0 for never."""
        return self._ref.message.expires

    @property
    def age(self) -> int:
        """Milliseconds since the broker took it."""
        return max(0, self._ref.queue.broker.clock.now - self._ref.message.timestamp)

    @property
    def deliveries(self) -> int:
        """How often it was given to a consumer so far."""
        return self._ref.deliveries

    @property
    def user(self) -> str | None:
        """Who sent it, None where security is off."""
        return self._ref.message.traits.user

    def give_up(self) -> bool:
        """Let the queue give it up, as a ring does (messagesReplaced); False where it does not wait there any more."""
        if self._ref.state != PENDING:
            return False
        self._ref.queue.evict_message(self._ref)
        return True

    def copy_to(self, address: str, *, keep_expiry: bool = False) -> bool:
        """Send a copy to another address, with headers that tell where it came from (``_AMQ_ORIG_…``).

        In a hook that tells that the message leaves its queue, copy and leaving are one: after a crash it is never in
        both places, nor in none. False where no queue took it. That address's `admit` is not asked. The copy expires
        as its address-settings say, with ``keep_expiry`` also when the message would have.
        """
        return self._ref.queue.broker.copy(self._ref, address, keep_expiry=keep_expiry)

    def dead_letter(self) -> bool:
        """Send a copy to the dead-letter-address of its queue's address; as `copy_to`."""
        return self._ref.queue.broker.dead_letter(self._ref)

    def __repr__(self) -> str:
        return f"<message {self.number} of queue {self.queue}>"


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
        ref = self._queue.dispatcher.first()
        return None if ref is None else MessageView(ref)

    @property
    def lowest(self) -> MessageView | None:
        """The oldest of the messages with the lowest priority that wait in memory; None where none does."""
        ref = self._queue.dispatcher.pending.lowest()
        return None if ref is None else MessageView(ref)

    @property
    def newest(self) -> MessageView | None:
        """The message in memory that was sent last; None where none waits."""
        ref = self._queue.dispatcher.pending.latest()
        return None if ref is None else MessageView(ref)

    def messages(self) -> Iterator[MessageView]:
        """What waits in memory, in the order of delivery. The queue must not change while this is read."""
        return map(MessageView, self._queue.dispatcher.in_order())

    def __repr__(self) -> str:
        return f"<queue {self.name}>"


def view_of(queue: Queue) -> QueueView:
    """What stands for a queue before its policies; always the same object."""
    view = queue.view
    if not isinstance(view, QueueView):
        view = queue.view = QueueView(queue)
    return view


Guard = Callable[[Callable[..., object], tuple[Any, ...]], None]


class PolicyTimer:
    """What `AddressView.call_later` returns."""

    __slots__ = ("_all", "_timer")

    def __init__(self, timers: set[PolicyTimer]) -> None:
        self._all = timers
        self._timer: Timer | None = None
        timers.add(self)

    def begin(self, timer: Timer) -> None:
        """The reactor's timer behind it."""
        self._timer = timer

    def active(self) -> bool:
        """Whether it will still ring."""
        return self._timer is not None and self._timer.active()

    def cancel(self) -> None:
        """It rings no more. Nothing happens where it has rung."""
        timer, self._timer = self._timer, None
        self._all.discard(self)
        if timer is not None and timer.active():
            timer.cancel()


class AddressView:
    """The address that a policy is for. Every policy has one of its own (``self.address``)."""

    def __init__(self, address: Address, guard: Guard) -> None:
        self._address = address
        self._guard = guard
        self._timers: set[PolicyTimer] = set()

    @property
    def name(self) -> str:
        """Its name."""
        return self._address.name

    @property
    def now(self) -> int:
        """The time, epoch milliseconds: one reading for all that came with one read of a socket."""
        return self._address.directory.broker.clock.now

    @property
    def size(self) -> int:
        """Bytes that its messages take in memory (addressSize)."""
        return self._address.room.bytes

    @property
    def messages(self) -> int:
        """Messages in memory that were sent to it."""
        return self._address.room.messages

    @property
    def message_count(self) -> int:
        """Messages in all of its queues, on disk too."""
        return self._address.message_count

    @property
    def full(self) -> bool:
        """Whether it, or the broker, has reached its limit."""
        return self._address.full is not None

    @property
    def limit_percent(self) -> int:
        """How far its max-size-bytes or max-size-messages is used; 0 without a limit."""
        return self._address.room.percent

    @property
    def broker_percent(self) -> int:
        """How far global-max-size or global-max-messages is used; 0 without a limit."""
        return self._address.memory.percent

    @property
    def paging(self) -> bool:
        """Whether new messages go to disk."""
        return self._address.pages is not None

    @property
    def queues(self) -> list[QueueView]:
        """Its queues. Those of wildcard addresses that also get its messages are not among them."""
        return [view_of(queue) for queue in self._address.queues.values()]

    def queue(self, name: str) -> QueueView | None:
        """Its queue of that name."""
        queue = self._address.queues.get(name)
        return None if queue is None else view_of(queue)

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> PolicyTimer:
        """Call ``call`` after ``seconds``, on the reactor's ``callLater``. ``cancel()`` of what is returned stops that.

        Timers are cancelled when the policy is done with (`AddressPolicy.closed`). What is raised in one is logged
        and counted as the hook ``timer``.
        """
        clock, timer = self._address.directory.broker.clock, PolicyTimer(self._timers)

        def over() -> None:
            timer.cancel()
            clock.refresh()
            self._guard(call, args)

        timer.begin(clock.reactor.callLater(seconds, over))
        return timer

    def stop(self) -> None:
        """Cancel all timers; the broker calls it."""
        for timer in list(self._timers):
            timer.cancel()
