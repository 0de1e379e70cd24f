"""Consumers that are slower than the ``slow-consumer-threshold`` of their address (Artemis, slow consumers).

A queue with consumers and a threshold is checked once in each ``slow-consumer-check-period``. The check needs only one
counter for each consumer: its settled messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from stompring.settings.model import AddressSettings, SlowConsumerPolicy

from .address import AddressServices
from .clock import Timer, cancel
from .limits import QUIET
from .queue import Consumer, Queue

log = logging.getLogger(__name__)

#: Milliseconds. All checks are due at multiples of this interval, so that one timer serves many queues.
GRAIN: Final = 1000


class Watched:
    """State of a queue at its last check. ``since``: time of this check, ``due``: of the next (ms, steady clock)."""

    def __init__(self, queue: Queue, now: int, slow: frozenset[Consumer] = frozenset()) -> None:
        self.since = now
        due = now + queue.address.settings.slow_consumer_check_period * 1000
        self.due = -(-due // GRAIN) * GRAIN
        self.added = queue.messages_added
        self.settled = {consumer: consumer.settled for consumer in queue.consumers}
        self.slow = slow  # consumers that were too slow at the previous check


class SlowConsumers:
    """Checks queues whose addresses have a threshold, and applies their ``slow-consumer-policy``."""

    def __init__(self, broker: AddressServices) -> None:
        self._timer: Timer | None = None
        self._quiet_until = 0
        self._untold = 0
        self.notified = 0  # number of slow consumers announced since the start
        self.killed = 0  # slow consumers closed since the start
        self._broker = broker
        self._watched: dict[Queue, Watched] = {}

    @property
    def slow(self) -> int:
        """Number of consumers that were too slow at the last check of their queue."""
        return sum(len(watched.slow) for watched in self._watched.values())

    def is_slow(self, consumer: Consumer) -> bool:
        """Return whether a consumer was too slow at the last check of its queue."""
        watched = self._watched.get(consumer.queue)
        return watched is not None and consumer in watched.slow

    def watch(self, queue: Queue) -> None:
        """Check a queue with a new consumer or new settings from now on, if it has consumers and a threshold."""
        if queue.address.settings.slow_consumer_threshold < 0 or not queue.consumers:
            return
        if queue not in self._watched:
            self._watched[queue] = Watched(queue, self._broker.clock.steady.refresh())
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is None and self._watched:
            due = min(watched.due for watched in self._watched.values())
            self._timer = self._broker.clock.steady.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._broker.clock.steady.refresh()
        for queue, watched in list(self._watched.items()):
            settings = queue.address.settings
            if queue.deleted or not queue.consumers or settings.slow_consumer_threshold < 0:
                del self._watched[queue]
            elif watched.due <= now:
                slow = too_slow(queue, watched, now)
                for consumer, rate in slow:
                    self._act(queue, consumer, rate, settings)
                self._watched[queue] = Watched(queue, now, frozenset(consumer for consumer, _ in slow))
        self._set_timer()

    def _act(self, queue: Queue, consumer: Consumer, rate: float, settings: AddressSettings) -> None:
        if consumer not in queue.consumers:
            return  # the consumer was closed meanwhile: its connection had another slow consumer
        unit = settings.slow_consumer_threshold_measurement_unit
        words = unit.replace("_", " ").lower()
        text = (
            f"slow consumer of queue {queue.name}: it takes {rate * unit.seconds:.2f} {words}, "
            f"and slow-consumer-threshold is {settings.slow_consumer_threshold} {words}"
        )
        kill = settings.slow_consumer_policy is SlowConsumerPolicy.KILL
        self._log_slow(
            f"{consumer.remote or 'a consumer'}: {text}{', it is closed' if kill else ''}",
            {"queue": queue.name, "address": queue.address.name, "peer": consumer.remote},
        )
        self._broker.notifications.notify(
            "CONSUMER_SLOW",
            text,
            queue=queue.name,
            address=queue.address.name,
            consumer=consumer.identifier,
            consumerCount=len(queue.consumers),
            remoteAddress=consumer.remote or None,
            connectionID=consumer.connection_id or None,
        )
        if kill:
            self.killed += 1
            consumer.cancelled(text)
        else:
            self.notified += 1

    def _log_slow(self, text: str, fields: Mapping[str, object]) -> None:
        """Log at most one line in `QUIET` ms, with the number of consumers omitted since the last line."""
        now = self._broker.clock.steady.now
        if now < self._quiet_until:
            self._untold += 1
            return
        more = f" ({self._untold} more were too slow since the last line)" if self._untold else ""
        log.warning("%s%s", text, more, extra=fields)
        self._quiet_until, self._untold = now + QUIET, 0

    def stop(self) -> None:
        """Stop all checks."""
        cancel(self._timer)
        self._timer = None
        self._watched.clear()


def too_slow(queue: Queue, watched: Watched, now: int) -> list[tuple[Consumer, float]]:
    """Return the slow consumers of a queue since the last check, each with its messages per second.

    If fewer messages arrived, and fewer wait, than all consumers together should settle, none is slow. Consumers that
    stand by for another consumer, and consumers added since the last check, are not slow either. With a threshold of 0
    a consumer is slow if it settled nothing, even if the queue had no messages.
    """
    settings = queue.address.settings
    seconds = (now - watched.since) / 1000
    threshold = settings.slow_consumer_threshold / settings.slow_consumer_threshold_measurement_unit.seconds
    wanted = threshold * len(queue.consumers)
    came = (queue.messages_added - watched.added) / seconds
    if came < wanted and queue.message_count < wanted:
        return []
    rates = [
        (consumer, (consumer.settled - watched.settled[consumer]) / seconds)
        for consumer in queue.consumers
        if consumer in watched.settled
    ]
    return [
        (consumer, rate)
        for consumer, rate in rates
        if (rate < threshold or rate == threshold == 0) and not queue.dispatcher.stands_by(consumer)
    ]
