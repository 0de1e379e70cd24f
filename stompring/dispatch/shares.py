"""What each consumer has of the messages that were read from pages, and the limit to that."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stompring.broker.reference import Reference

if TYPE_CHECKING:
    from stompring.broker.consumer import Consumer
    from stompring.broker.queue import Queue

log = logging.getLogger(__name__)

#: Milliseconds after which it is said again that a consumer does not settle what it has.
SAID_AGAIN = 60_000


class Share:
    """One consumer's."""

    __slots__ = ("blocked", "messages", "size")

    def __init__(self) -> None:
        self.messages = 0
        self.size = 0
        self.blocked = False  # was refused more, and waits


class Shares:
    """References in delivery that came from pages.

    A consumer with ``max-read-page-messages`` or ``-bytes`` of them unsettled gets no more until it settles some.
    In Artemis all consumers of a queue have that limit together, so that one who settles nothing stops the others.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._of: dict[Consumer, Share] = {}
        self._out: dict[Reference, Share] = {}
        self._said = 0
        self.size = 0  # bytes in delivery
        self.freed = False  # somebody who was refused more may have some now

    def __len__(self) -> int:
        return len(self._out)

    def gave(self, ref: Reference, consumer: Consumer) -> None:
        """A message was handed over."""
        share = self._of.get(consumer)
        if share is None:
            share = self._of[consumer] = Share()
        size = ref.message.size
        share.messages += 1
        share.size += size
        self.size += size
        self._out[ref] = share

    def back(self, ref: Reference) -> None:
        """It was settled or given back, if it was in delivery at all."""
        share = self._out.pop(ref, None)
        if share is not None:
            size = ref.message.size
            share.messages -= 1
            share.size -= size
            self.size -= size
            if share.blocked:
                share.blocked = False
                self.freed = True

    def exhausted(self, consumer: Consumer) -> bool:
        """Whether a consumer must settle something first."""
        share = self._of.get(consumer)
        if share is None or not share.messages:
            return False
        settings = self._queue.address.settings
        if not (
            0 <= settings.max_read_page_messages <= share.messages or 0 <= settings.read_bytes <= share.size
        ):
            return False
        share.blocked = True
        self._say(share)
        return True

    def _say(self, share: Share) -> None:
        now = self._queue.broker.clock.steady.now
        if now - self._said >= SAID_AGAIN:
            self._said = now
            log.warning(
                "queue %s: a consumer has %d paged messages of %d bytes unsettled and gets no more until it settles "
                "some (max-read-page-messages, max-read-page-bytes)",
                self._queue.name,
                share.messages,
                share.size,
                extra={"queue": self._queue.name, "address": self._queue.address.name},
            )

    def left(self, consumer: Consumer) -> None:
        """A consumer has gone; what it has not settled comes back by and by."""
        self._of.pop(consumer, None)
