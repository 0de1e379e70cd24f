"""Consumers that take less than the ``slow-consumer-threshold`` of their address (Artemis, slow consumers).

A queue is looked at once in each ``slow-consumer-check-period`` while it has consumers: never more, and never while
nobody has set a threshold. Nothing is counted for it but what each consumer has settled, which is an integer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from stompring.settings.model import AddressSettings, SlowConsumerPolicy

from .address import AddressServices
from .clock import Timer, cancel
from .limits import QUIET
from .queue import Consumer, Queue

log = logging.getLogger(__name__)

#: Milliseconds. Looks are due at whole multiples of it, so that many queues are looked at together.
GRAIN = 1000


class Watched:
    """A queue since it was last looked at."""

    def __init__(self, queue: Queue, now: int, slow: frozenset[Consumer] = frozenset()) -> None:
        self.since = now
        due = now + queue.address.settings.slow_consumer_check_period * 1000
        self.due = -(-due // GRAIN) * GRAIN
        self.added = queue.messages_added
        self.settled = {consumer: consumer.settled for consumer in queue.consumers}
        self.slow = slow  # consumers that were too slow when it was looked at


class SlowConsumers:
    """Looks at queues whose addresses have a threshold, and does what their policy says."""

    def __init__(self, broker: AddressServices) -> None:
        self._timer: Timer | None = None
        self._quiet_until = 0
        self._untold = 0
        self.notified = 0  # since the start
        self.killed = 0
        self._broker = broker
        self._watched: dict[Queue, Watched] = {}

    @property
    def slow(self) -> int:
        """Consumers that were too slow when their queue was last looked at."""
        return sum(len(watched.slow) for watched in self._watched.values())

    def is_slow(self, consumer: Consumer) -> bool:
        """Whether a consumer was too slow when its queue was last looked at."""
        watched = self._watched.get(consumer.queue)
        return watched is not None and consumer in watched.slow

    def watch(self, queue: Queue) -> None:
        """``queue`` has a consumer, or other settings: look at it from now on, if these say so."""
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
            return  # another one of its connection was slow too, and took it along
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
        """One line in ten seconds, with how many were left out since the last."""
        now = self._broker.clock.steady.now
        if now < self._quiet_until:
            self._untold += 1
            return
        more = f" ({self._untold} more were too slow since the last line)" if self._untold else ""
        log.warning("%s%s", text, more, extra=fields)
        self._quiet_until, self._untold = now + QUIET, 0

    def stop(self) -> None:
        """Look at nothing any more."""
        cancel(self._timer)
        self._timer = None
        self._watched.clear()


def too_slow(queue: Queue, watched: Watched, now: int) -> list[tuple[Consumer, float]]:
    """The consumers that took too little since the last look, each with what it took, in messages per second.

    None where the queue had too little for them: fewer messages came than all of them together should have taken, and
    fewer wait. Nor one that stands by for another. A consumer that came after the last look has the next one before
    it. With a threshold of 0 a consumer is slow that took nothing at all, whatever there was to take.
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
