"""Views: messages, queues and addresses as policies see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from stompring.broker import publish
from stompring.broker.address import Address
from stompring.broker.clock import Timer, cancel
from stompring.broker.message import POLICY
from stompring.broker.ports import POLICY_STATE
from stompring.broker.queue import Queue, as_queue
from stompring.broker.reference import PENDING, Reference


class MessageView:
    """One message in one queue. An object that a policy stores keeps its message in memory: drop the object
    when `waiting` becomes False.
    """

    __slots__ = ("_ref",)

    def __init__(self, ref: Reference) -> None:
        self._ref = ref

    @property
    def number(self) -> int:
        """Sequence number: greater for each new message of the broker, and the same in every queue of the message."""
        return self._ref.message.number

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self._ref.queue.name

    @property
    def address(self) -> str:
        """Name of the address that the message was sent to. The address of the queue may be a wildcard address."""
        return self._ref.message.address.name

    @property
    def waiting(self) -> bool:
        """Whether the message now waits for a consumer in the queue, in memory."""
        return self._ref.state == PENDING

    def header(self, name: str) -> str | None:
        """Value of one header, None without such a header. Cheaper than `headers`."""
        value = self._ref.message.header(name.encode())
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers of the MESSAGE frame."""
        return self._ref.message.headers()

    @property
    def body(self) -> bytes:
        """The body."""
        return self._ref.message.body

    @property
    def size(self) -> int:
        """Bytes in memory, as counted by `max-size-bytes`."""
        return self._ref.message.size

    @property
    def priority(self) -> int:
        """Priority, 0 to 9."""
        return self._ref.message.traits.priority

    @property
    def durable(self) -> bool:
        """Whether the message survives a restart if its queue is durable."""
        return self._ref.message.traits.durable

    @property
    def timestamp(self) -> int:
        """Time at which the broker accepted the message, epoch milliseconds."""
        return self._ref.message.timestamp

    @property
    def expires(self) -> int:
        """Time of expiry, epoch milliseconds; 0 for never."""
        return self._ref.message.expires

    @property
    def age(self) -> int:
        """Milliseconds since the broker accepted the message."""
        return max(0, as_queue(self._ref.queue).broker.clock.now - self._ref.message.timestamp)

    @property
    def deliveries(self) -> int:
        """Number of deliveries so far."""
        return self._ref.deliveries

    @property
    def user(self) -> str | None:
        """Name of the user that sent the message, None without security."""
        return self._ref.message.traits.user

    def give_up(self) -> bool:
        """Evict the message from the queue, as a ring does; it counts in messagesReplaced. Returns False if the message
        no longer waits.
        """
        if self._ref.state != PENDING:
            return False
        as_queue(self._ref.queue).evict_message(self._ref)
        return True

    def copy_to(self, address: str, *, keep_expiry: bool = False) -> bool:
        """Send a copy to another address, with headers of its origin (``_AMQ_ORIG_…``). False if no queue took it.

        In `evicted`, `expired`, `killed` and `dead_lettered` the copy is written atomically with the removal of the
        message: after a crash the message is in exactly one of the two queues. `admit` of the other address is not
        called. The copy expires by the settings of its address, with ``keep_expiry`` also at the message's own time.
        """
        return publish.send_copy(self._ref.message, self._ref.queue.name, address, keep_expiry)

    def dead_letter(self, *, reason: str = POLICY) -> bool:
        """Send a copy to the dead-letter-address of the address of the message's queue, as `copy_to` does.

        The copy has the ``reason`` in its header ``_AMQ_ORIG_REASON``.
        """
        return publish.send_dead_letter(self._ref, reason)

    def __repr__(self) -> str:
        return f"<message {self.number} of queue {self.queue}>"


class QueueView:
    """One queue. Messages on disk count in `message_count` and `paged`; everything else is about messages in memory."""

    __slots__ = ("_queue", "give_up_oldest")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        #: Evict the message that would be delivered next. False if the queue is empty.
        self.give_up_oldest = queue.evict_head

    @property
    def name(self) -> str:
        """Name of the queue, unique in the broker."""
        return self._queue.name

    @property
    def multicast(self) -> bool:
        """Whether the routing type of the queue is MULTICAST; else it is ANYCAST."""
        return self._queue.attributes.routing_type == "MULTICAST"

    @property
    def durable(self) -> bool:
        """Whether the queue survives a restart."""
        return self._queue.durable

    @property
    def ring_size(self) -> int:
        """Maximum number of waiting messages, -1 for no limit."""
        return self._queue.ring_size

    @property
    def over_size(self) -> int:
        """Number of waiting messages above the ring-size of the queue."""
        size = self._queue.ring_size
        return max(0, self._queue.ring_count - size) if size >= 0 else 0

    def has_room(self, returning: bool = False) -> bool:
        """Whether the queue is within its ring-size. ``returning``: count one more message, which is being requeued."""
        size = self._queue.ring_size
        return size < 0 or self._queue.ring_count + returning <= size

    @property
    def message_count(self) -> int:
        """Number of waiting, scheduled, delivering and paged messages (messageCount)."""
        return self._queue.message_count

    @property
    def waiting(self) -> int:
        """Number of messages in memory that wait for a consumer."""
        return self._queue.count

    @property
    def delivering(self) -> int:
        """Number of messages delivered to consumers and not settled yet."""
        return self._queue.delivering

    @property
    def scheduled(self) -> int:
        """Number of scheduled messages."""
        return self._queue.scheduled_count

    @property
    def paged(self) -> int:
        """Number of messages on disk only."""
        return self._queue.paged_count

    @property
    def consumers(self) -> int:
        """Number of consumers."""
        return len(self._queue.consumers)

    @property
    def oldest(self) -> MessageView | None:
        """The message in memory that would be delivered next, None without one."""
        ref = self._queue.dispatcher.first()
        return None if ref is None else MessageView(ref)

    @property
    def lowest(self) -> MessageView | None:
        """The oldest message of the lowest priority among those in memory, None without one."""
        ref = self._queue.dispatcher.pending.lowest()
        return None if ref is None else MessageView(ref)

    @property
    def newest(self) -> MessageView | None:
        """The message in memory that was sent last, None without one."""
        ref = self._queue.dispatcher.pending.latest()
        return None if ref is None else MessageView(ref)

    def messages(self) -> Iterator[MessageView]:
        """The waiting messages in memory, in order of delivery. The queue must not change during the iteration."""
        return map(MessageView, self._queue.dispatcher.in_order())

    def __repr__(self) -> str:
        return f"<queue {self.name}>"


def view_of(queue: Queue) -> QueueView:
    """The view of a queue: always the same object for one queue."""
    view = queue.view
    if not isinstance(view, QueueView):
        view = queue.view = QueueView(queue)
    return view


class PolicyTimer:
    """A timer of `AddressView.call_later`."""

    __slots__ = ("_all", "_timer")

    def __init__(self, timers: set[PolicyTimer], timer: Timer) -> None:
        self._all = timers
        self._timer: Timer | None = timer
        timers.add(self)

    def active(self) -> bool:
        """Whether the call is still pending."""
        return self._timer is not None and self._timer.active()

    def cancel(self) -> None:
        """Cancel the call. No effect after the call."""
        timer, self._timer = self._timer, None
        self._all.discard(self)
        cancel(timer)


#: Maximum bytes of the state of a policy at one address, as JSON. The limit is small because a change of one value
#: writes the whole state.
MAX_STATE = 16 * 1024


class PolicyState(MutableMapping[str, Any]):
    """The state of a policy at one address (``AddressView.state``)."""

    def __init__(self, address: Address, policy: str) -> None:
        self._address = address
        self._policy = policy

    def _of_all(self) -> Mapping[str, Any]:
        """Return the states of all policies of the address by name."""
        return self._address.broker.storage.values.of(POLICY_STATE).get(self._address.name, {})

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self._of_all().get(self._policy, {})
        return values

    def __getitem__(self, key: str) -> Any:
        value = self._values()[key]
        return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise ValueError(f"a name in the state of policy {self._policy} must be a str, not {key!r}")
        self._store({**self._values(), key: value})

    def __delitem__(self, key: str) -> None:
        values = self._values().copy()
        del values[key]
        self._store(values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _store(self, values: Mapping[str, Any]) -> None:
        """Replace all values. Raises `ValueError`."""
        of = f"state of policy {self._policy} of address {self._address.name}"
        try:
            text = json.dumps(values, allow_nan=False, separators=(",", ":"))
            stored = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{of}: not a value of JSON: {error}") from error
        if len(text) > MAX_STATE:
            raise ValueError(f"{of} would have {len(text)} bytes of JSON, the maximum is {MAX_STATE}")
        if not self._address.deleted:
            changed = {**self._of_all(), self._policy: stored}
            self._address.broker.storage.values.put(POLICY_STATE, self._address.name, changed)


class AddressView:
    """The address of a policy (``self.address``). Every policy has a view of its own."""

    def __init__(self, address: Address, policy: str, guard: Callable[..., None]) -> None:
        self._address = address
        self._state = PolicyState(address, policy)
        # calls the function of a timer, its first argument, with the other arguments, and counts its exceptions
        self._guard = guard
        self._timers: set[PolicyTimer] = set()

    @property
    def name(self) -> str:
        """Name of the address."""
        return self._address.name

    @property
    def state(self) -> MutableMapping[str, Any]:
        """Values of JSON by name that survive a restart, of this policy at this address; at most 16 KiB.

        A value that is read is a copy. A change that JSON or the limit does not allow raises `ValueError`.
        """
        return self._state

    @property
    def now(self) -> int:
        """Current time, epoch milliseconds. The same for all frames of one read of a socket."""
        return self._address.broker.clock.now

    @property
    def size(self) -> int:
        """Bytes of the address's messages in memory (addressSize)."""
        return self._address.memory_limit.bytes

    @property
    def messages(self) -> int:
        """Number of messages in memory that were sent to the address."""
        return self._address.memory_limit.messages

    @property
    def message_count(self) -> int:
        """Number of messages in all queues of the address, including messages on disk."""
        return self._address.message_count

    @property
    def full(self) -> bool:
        """Whether the address or the broker has reached its limit."""
        return self._address.full is not None

    @property
    def limit_percent(self) -> int:
        """Usage of the address's max-size-bytes or max-size-messages in percent; 0 without a limit."""
        return self._address.memory_limit.percent

    @property
    def broker_percent(self) -> int:
        """Usage of global-max-size or global-max-messages in percent; 0 without a limit."""
        return self._address.memory.percent

    @property
    def paging(self) -> bool:
        """Whether new messages are paged to disk."""
        return self._address.pages is not None

    @property
    def queues(self) -> list[QueueView]:
        """Queues of the address, without queues of wildcard addresses that also receive its messages."""
        return [view_of(queue) for queue in self._address.queues.values()]

    def queue(self, name: str) -> QueueView | None:
        """Queue of the address with this name, None without one."""
        queue = self._address.queues.get(name)
        return None if queue is None else view_of(queue)

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> PolicyTimer:
        """Call ``call`` after ``seconds``. The method ``cancel()`` of the result cancels the call.

        Timers are cancelled when the policy ends (`AddressPolicy.closed`). An exception in a timer is logged and
        counted as one of the hook ``timer``.
        """
        clock = self._address.broker.clock

        def expire() -> None:
            timer.cancel()
            clock.refresh()
            self._guard(call, *args)

        timer = PolicyTimer(self._timers, clock.reactor.callLater(seconds, expire))
        return timer

    def stop(self) -> None:
        """Cancel all timers. Called by the broker."""
        for timer in list(self._timers):
            timer.cancel()
