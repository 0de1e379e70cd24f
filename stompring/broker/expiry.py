"""Expiry: when a message expires, whether it has, and what happens to it then (Artemis, "Message Expiry")."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompring.settings.model import AddressSettings

from .reference import DELIVERING, Reference
from .storage import Reason
from .timers import TimerQueue

if TYPE_CHECKING:
    from .broker import Broker
    from .message import Message


def expiry_time(settings: AddressSettings, now: int, requested: int) -> int:
    """When a message expires (epoch ms, 0: never), from the ``expires`` header of its sender (0: none).

    ``no-expiry`` beats all. ``expiry-delay`` applies to messages without an expiry; ``min-expiry-delay`` and
    ``max-expiry-delay`` then bound what there is, and set one (the maximum, else the minimum) where there is none.
    """
    if settings.no_expiry:
        return 0
    if not requested and settings.expiry_delay >= 0:
        return now + settings.expiry_delay
    least, most = settings.min_expiry_delay, settings.max_expiry_delay
    if not requested:
        bound = most if most >= 0 else least
        return now + bound if bound >= 0 else 0
    if most >= 0:
        requested = min(requested, now + most)
    if least >= 0:
        requested = max(requested, now + least)
    return requested


def changes_expiry(settings: AddressSettings) -> bool:
    """Whether `expiry_time` can differ from what the sender requested."""
    delays = (settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay)
    return settings.no_expiry or max(delays) >= 0


def is_expired(message: Message, now: int) -> bool:
    """Whether a message has expired at ``now`` (epoch ms). Hot paths test ``message.expires`` before they call."""
    return 0 < message.expires <= now


class Expiry:
    """Watches messages in memory that expire, and expires them at their time. See `stompring.paging.due` for pages."""

    __slots__ = ("_broker", "_send_copy", "_timers")

    def __init__(self, broker: Broker, send_copy: Callable[[Reference], object]) -> None:
        """``send_copy`` sends a copy of an expired message to the expiry-address."""
        self._broker = broker
        self._send_copy = send_copy
        self._timers = TimerQueue(broker.clock, broker.background, _still_watched, lambda: self._on_time)

    def __len__(self) -> int:
        """Entries of the timer queue, those included that are no longer wanted."""
        return len(self._timers)

    def watch(self, ref: Reference) -> None:
        """Expire a message that is kept in memory when its time comes. One that never expires is not watched."""
        if ref.message.expires and not ref.watched:
            ref.watched = True
            self._timers.enter(ref, ref.message.expires)

    def unwatch(self, ref: Reference) -> None:
        """A message has left its queue, or memory."""
        if ref.watched:
            ref.watched = False
            self._timers.forget()

    def _on_time(self, ref: Reference) -> None:
        ref.watched = False
        self.expire(ref)

    def expire(self, ref: Reference) -> None:
        """Remove an expired message from its queue; a copy goes to the expiry-address, if one is set."""
        queue = ref.queue
        queue.detach(ref)
        queue.messages_expired += 1
        broker = self._broker
        with broker.together():
            self._send_copy(ref)
            if queue.hooks.expired is not None:
                queue.hooks.expired(ref)
            queue.drop(ref, Reason.EXPIRED)
        broker.consider_deleting(queue)

    def stop(self) -> None:
        """Cancel the timer."""
        self._timers.stop()


def _still_watched(ref: Reference, due: int) -> bool:
    """A message in delivery belongs to its consumer; it is watched again when it comes back."""
    if ref.state == DELIVERING:
        ref.watched = False
        return False
    return ref.watched
