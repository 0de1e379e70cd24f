"""newest-per-key: evicts all but the newest messages of each key."""

from __future__ import annotations

from typing import Literal

from stompring.policy import AddressPolicy, MessageView, QueueView, parameter

#: Number of recorded messages of a queue, in excess of twice the waiting ones, at which consumed ones are removed.
SLACK = 32

#: Seconds between two removals of consumed messages from the record.
TIDY_INTERVAL = 1.0


class _Waiting:
    """The recorded messages of one queue by key, oldest first. Some may have been consumed meanwhile."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[MessageView]] = {}
        self.count = 0

    def of(self, key: str) -> list[MessageView]:
        """Return the waiting messages of a key. Removes consumed ones from the record."""
        recorded = self.by_key.get(key, [])
        waiting = [message for message in recorded if message.waiting]
        self.count += len(waiting) - len(recorded)
        self.by_key[key] = waiting
        return waiting

    def add(self, key: str, new: MessageView) -> list[MessageView]:
        """Add a message, which may be recorded already if it was returned. Returns the waiting messages of its key."""
        waiting = self.of(key)
        if not any(message.number == new.number for message in waiting):
            waiting.append(new)
            self.count += 1
        return waiting

    def tidy(self, waiting: int) -> None:
        """Remove consumed messages from the record if there may be many; ``waiting`` messages are in the queue."""
        if not waiting:
            self.by_key.clear()
            self.count = 0
        elif self.count > 2 * waiting + SLACK:
            for key in list(self.by_key):
                if not self.of(key):
                    del self.by_key[key]


class NewestPerKey(AddressPolicy):
    """Keeps the newest messages of each key, and evicts older ones as soon as a newer one waits.

    For states that replace each other: prices, positions, the progress of a job. A late consumer gets one message for
    each key instead of all changes, and a queue without consumers is no larger than the number of keys. Evictions
    count in messagesReplaced and follow the ring-policy of the queue. A returning message (NACK, a lost connection) is
    evicted itself if a newer one of its key waits. A full ring evicts the older message of the same key, and for a new
    key the message that would be delivered next.

    A waiting message costs two look-ups in dictionaries, direct delivery costs nothing. Memory: the waiting messages,
    and for at most a second about as many consumed ones.
    """

    key: str = parameter("The header with the key, for example symbol or job-id.")
    keep: int = parameter("Number of messages retained for each key.", 1, least=1, most=1000)
    without_key: Literal["keep", "one-key"] = parameter(
        "Messages without the header: keep all of them, or treat them as one key.", "keep"
    )

    def created(self) -> None:
        """Record the waiting messages after a reload. After a start `enqueued` records them."""
        self._queues: dict[str, _Waiting] = {}
        self._timed = False
        for queue in self.address.queues:
            for message in sorted(queue.messages(), key=lambda message: message.number):
                self.enqueued(message)

    def _key_of(self, message: MessageView) -> str | None:
        key = message.header(self.key)
        # no header can contain NUL, so this is not the key of a message
        return "\0" if key is None and self.without_key == "one-key" else key

    def enqueued(self, message: MessageView) -> None:
        """Record a message, and evict messages above the limit."""
        key = self._key_of(message)
        if key is None:
            return
        record = self._queues.get(message.queue)
        if record is None:
            record = self._record(message.queue)
        waiting = record.add(key, message)
        if len(waiting) > 1 and waiting[-2].number > message.number:  # returned, while newer ones wait
            waiting.sort(key=lambda one: one.number)
        while len(waiting) > self.keep:
            record.count -= 1
            waiting.pop(0).give_up()
        if record.count > SLACK:
            queue = self.address.queue(message.queue)
            record.tidy(0 if queue is None else queue.waiting)
        if not self._timed:
            self._timed = True
            self.address.call_later(TIDY_INTERVAL, self._tidy)

    def _record(self, name: str) -> _Waiting:
        """Create the record of a queue. Removes records of deleted queues, for example of subscribers."""
        for former in [one for one in self._queues if self.address.queue(one) is None]:
            del self._queues[former]
        record = self._queues[name] = _Waiting()
        return record

    def _tidy(self) -> None:
        """Remove consumed messages from the record while no message arrives."""
        for name, record in list(self._queues.items()):
            queue = self.address.queue(name)
            record.tidy(0 if queue is None else queue.waiting)
            if not record.count:
                del self._queues[name]
        self._timed = bool(self._queues)
        if self._timed:
            self.address.call_later(TIDY_INTERVAL, self._tidy)

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """Evict the older message of the key. A message that returns to a full ring is lost itself, as in any ring."""
        if returning:
            return
        new = queue.newest
        key = None if new is None else self._key_of(new)
        record = self._queues.get(queue.name)
        if new is None or key is None or record is None or key not in record.by_key:
            return
        waiting = record.of(key)
        # without a new message a ring was made smaller, and evicts its head
        if len(waiting) >= self.keep and all(message.number != new.number for message in waiting):
            record.count -= 1
            waiting.pop(0).give_up()
