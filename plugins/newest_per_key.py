"""Keeps the newest message of each key and gives up the older ones."""

from __future__ import annotations

from typing import Literal

from stompring.policy import AddressPolicy, MessageView, QueueView, parameter

#: Messages of a queue that may be remembered, beyond twice those that wait, before those that have gone are forgotten.
SLACK = 32

#: Seconds between two looks at what has gone. There is no look while nothing is remembered.
EVERY = 1.0


class _Waiting:
    """What waits in one queue, by key, the oldest first. Some of it may have gone meanwhile."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[MessageView]] = {}
        self.count = 0

    def of(self, key: str) -> list[MessageView]:
        """What waits with a key. What has gone is forgotten."""
        remembered = self.by_key.get(key, [])
        waiting = [message for message in remembered if message.waiting]
        self.count += len(waiting) - len(remembered)
        self.by_key[key] = waiting
        return waiting

    def add(self, key: str, new: MessageView) -> list[MessageView]:
        """The same with one more, which may be there already: it has come back before it was forgotten."""
        waiting = self.of(key)
        if not any(message.number == new.number for message in waiting):
            waiting.append(new)
            self.count += 1
        return waiting

    def tidy(self, waiting: int) -> None:
        """Forget what has gone, if that may be much; ``waiting`` messages are in the queue."""
        if not waiting:
            self.by_key.clear()
            self.count = 0
        elif self.count > 2 * waiting + SLACK:
            for key in list(self.by_key):
                if not self.of(key):
                    del self.by_key[key]


class NewestPerKey(AddressPolicy):
    """Keeps the newest message of each key, and gives up an older one as soon as a newer one waits.

    For states that replace each other: prices, positions, the progress of a job. Who comes late, or was away for a
    while, gets one message for each key in place of all that happened, and a queue that nobody reads is never larger
    than the number of keys. What is given up counts in messagesReplaced and goes where the ring of its queue sends it.
    A message that comes back (NACK, a lost connection) is given up itself where a newer one of its key waits. A ring
    that is full gives up the older message of the key that comes, and only for a new key the one that is first.

    A message that waits costs two look-ups in dictionaries, one that goes straight to a consumer costs nothing.
    Remembered is what waits; of what has gone, for a second at most, as much as waits and a little more.
    """

    key: str = parameter("The header with the key, as symbol or job-id.")
    keep: int = parameter("How many messages of each key are kept.", 1, least=1, most=1000)
    without_key: Literal["keep", "one-key"] = parameter(
        "What happens to messages without the header: all stay, or all are of one key.", "keep"
    )

    def created(self) -> None:
        """See AddressPolicy. After a reload messages wait already; at a start they come later, by `enqueued`."""
        self._queues: dict[str, _Waiting] = {}
        self._timed = False
        for queue in self.address.queues:
            for message in sorted(queue.messages(), key=lambda message: message.number):
                self.enqueued(message)

    def _key_of(self, message: MessageView) -> str | None:
        key = message.header(self.key)
        # no header can hold a NUL, so that this is nobody's key
        return "\0" if key is None and self.without_key == "one-key" else key

    def enqueued(self, message: MessageView) -> None:
        """See AddressPolicy."""
        key = self._key_of(message)
        if key is None:
            return
        kept = self._queues.get(message.queue)
        if kept is None:
            kept = self._begin(message.queue)
        waiting = kept.add(key, message)
        if len(waiting) > 1 and waiting[-2].number > message.number:  # it came back, and newer ones wait
            waiting.sort(key=lambda one: one.number)
        while len(waiting) > self.keep:
            kept.count -= 1
            waiting.pop(0).give_up()
        if kept.count > SLACK:
            queue = self.address.queue(message.queue)
            kept.tidy(0 if queue is None else queue.waiting)
        if not self._timed:
            self._timed = True
            self.address.call_later(EVERY, self._tidy)

    def _begin(self, name: str) -> _Waiting:
        """A queue that nothing is known of. Those of subscribers come and go, so that others may be no more."""
        for former in [one for one in self._queues if self.address.queue(one) is None]:
            del self._queues[former]
        kept = self._queues[name] = _Waiting()
        return kept

    def _tidy(self) -> None:
        """Consumers may have taken all there was, and nothing came since: nothing else would tell."""
        for name, kept in list(self._queues.items()):
            queue = self.address.queue(name)
            kept.tidy(0 if queue is None else queue.waiting)
            if not kept.count:
                del self._queues[name]
        self._timed = bool(self._queues)
        if self._timed:
            self.address.call_later(EVERY, self._tidy)

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """See AddressPolicy. One that comes back to a full ring is lost itself, as in any ring."""
        if returning:
            return
        new = queue.newest
        key = None if new is None else self._key_of(new)
        kept = self._queues.get(queue.name)
        if new is None or key is None or kept is None or key not in kept.by_key:
            return
        waiting = kept.of(key)
        # where nothing has come, a ring was made smaller: its head goes
        if len(waiting) >= self.keep and all(message.number != new.number for message in waiting):
            kept.count -= 1
            waiting.pop(0).give_up()
