"""How many queues keep up with what they get: whoever catches up leaves them their part of the reactor's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompring.broker.broker import Broker
    from stompring.broker.queue import Queue

#: Milliseconds after which is looked again. A look goes over all queues, so it is not taken more often.
LOOK_AGAIN = 1000


class Audience:
    """Queues with consumers that got something between two looks, and have nothing on disk."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._added: dict[Queue, int] = {}  # `messages_added` of queues with consumers, at the last look
        self._looked = 0
        self._count = 0

    def count(self) -> int:
        """As of the last look; nobody until there were two, one soon after the other."""
        now = self._broker.clock.steady.now
        passed = now - self._looked
        if passed >= LOOK_AGAIN:
            self._look(fresh=passed < 3 * LOOK_AGAIN)
            self._looked = now
        return self._count

    def _look(self, fresh: bool) -> None:
        before = self._added if fresh else {}
        queues = self._broker.directory.queues.values()
        self._added = {queue: queue.messages_added for queue in queues if queue.consumers}
        self._count = sum(
            added != before.get(queue, added) and not (queue.area is not None and queue.area.waiting)
            for queue, added in self._added.items()
        )
