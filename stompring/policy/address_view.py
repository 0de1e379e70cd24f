"""An address, as its policies see it: counters, queues, time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stompring.broker.address import Address
from stompring.broker.clock import Timer

from .queue_view import QueueView, view_of

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
