"""A message in a queue, as policies see it."""

from __future__ import annotations

from collections.abc import Mapping

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
        self._ref.queue.give_up(self._ref)
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
