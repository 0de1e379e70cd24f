"""A non-destructive queue under random use, beside a plain model: a list of messages, and of those that each consumer
has yet to receive."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stompring.broker import publish
from stompring.broker.queue_browser import browse
from stompring.broker.reference import Reference

from ..broker.broker_fixture import BrokerFixture, Taker, header_is
from .profile import examples

MAX_ATTEMPTS = 3
UNIT, SHIFT = 250, 125
CHOICE = st.integers(0, 1000)
COLOURS = st.sampled_from(["red", "blue"])
SETTINGS = {
    "#": {"auto_delete_queues": False},
    "q": {"max_delivery_attempts": MAX_ATTEMPTS, "dead_letter_address": "DLQ", "expiry_address": "EXP"},
}


@dataclass(eq=False)
class Kept:
    """A message of the queue."""

    number: int
    priority: int
    colour: str
    expires: int
    attempts: int = 0


@dataclass(eq=False)
class Reading:
    """A consumer: what it has yet to receive, what it has not settled, and all it ever received."""

    taker: Taker
    credit: int
    auto: bool
    colour: str | None
    unread: list[Kept] = field(default_factory=list)
    unsettled: list[Kept] = field(default_factory=list)
    received: list[int] = field(default_factory=list)


def order(kept):
    return -kept.priority, kept.number


class NonDestructiveMachine(RuleBasedStateMachine):
    """Consumers with and without selectors come, read, settle and leave; a ring evicts; messages expire."""

    def __init__(self):
        super().__init__()
        self.world = BrokerFixture(SETTINGS)
        self.queue = self.world.queue(non_destructive=True)
        self.dead, self.expired = self.world.queue("DLQ"), self.world.queue("EXP")
        self.kept = []
        self.readers = []
        self.ring = -1
        self.acknowledged = self.replaced = self.killed = self.expiries = self.added = 0

    # ---- the model

    def _remove(self, kept):
        self.kept.remove(kept)
        for reader in self.readers:
            if kept in reader.unread:
                reader.unread.remove(kept)

    def _read(self, reader):
        while reader.unread and reader.credit > 0:
            kept = reader.unread.pop(0)
            reader.credit -= 1
            reader.received.append(kept.number)
            if reader.auto:
                self.acknowledged += 1
            else:
                reader.unsettled.append(kept)

    def _offer(self, reader, kept):
        if reader.colour in (None, kept.colour):
            reader.unread.append(kept)
            reader.unread.sort(key=order)

    # ---- what happens

    @rule(
        priority=st.sampled_from([4, 4, 4, 0, 9]),
        colour=COLOURS,
        lifetime=st.sampled_from([0, 0, 0, UNIT + SHIFT, 4 * UNIT + SHIFT]),
        group=st.sampled_from([None, b"g"]),
    )
    def send(self, priority, colour, lifetime, group):
        expires = self.world.now + lifetime if lifetime else 0
        message = self.world.message(
            priority=priority, expires=expires, group=group, headers={"colour": colour}
        )
        kept = Kept(message.number, priority, colour, expires)
        publish.send(message)
        self.added += 1
        self.kept.append(kept)
        self.kept.sort(key=order)
        for reader in self.readers:
            self._offer(reader, kept)
        if 0 <= self.ring < len(self.kept):
            self.replaced += 1
            self._remove(self.kept[0])
        for reader in self.readers:
            self._read(reader)

    @rule(units=st.integers(1, 6))
    def pass_time(self, units):
        self.world.pass_time(units * UNIT)
        for kept in [kept for kept in self.kept if kept.expires and kept.expires <= self.world.now]:
            self.expiries += 1
            self._remove(kept)

    @rule(credit=st.sampled_from([0, 1, 3, 50]), auto=st.booleans(), colour=st.one_of(st.none(), COLOURS))
    def join(self, credit, auto, colour):
        if len(self.readers) >= 4:
            return
        matches = None if colour is None else header_is(b"colour", colour.encode())
        taker = Taker(credit, auto=auto, matches=matches, key=colour)
        reader = Reading(taker, credit, auto, colour)
        for kept in self.kept:
            self._offer(reader, kept)
        self.readers.append(reader)
        self.queue.add_consumer(taker)
        self._read(reader)

    @precondition(lambda self: self.readers)
    @rule(choice=CHOICE, credit=st.integers(1, 3))
    def give_credit(self, choice, credit):
        reader = self.readers[choice % len(self.readers)]
        reader.credit += credit
        reader.taker.give_credit(credit)
        self._read(reader)

    def _settling(self, choice):
        readers = [reader for reader in self.readers if reader.unsettled]
        reader = readers[choice % len(readers)]
        kept = reader.unsettled.pop(choice % len(reader.unsettled))
        ref = next(ref for ref in reader.taker.unsettled if ref.message.number == kept.number)
        reader.credit += 1
        return reader, kept, ref

    @precondition(lambda self: any(reader.unsettled for reader in self.readers))
    @rule(choice=CHOICE)
    def acknowledge(self, choice):
        reader, _, ref = self._settling(choice)
        reader.taker.ack(ref)
        self.acknowledged += 1
        self._read(reader)

    def _failed(self, kept):
        """Whether a message is a dead letter after one more failure."""
        kept.attempts += 1
        if kept.attempts < MAX_ATTEMPTS:
            return False
        self.killed += 1
        self._remove(kept)
        return True

    @precondition(lambda self: any(reader.unsettled for reader in self.readers))
    @rule(choice=CHOICE)
    def reject(self, choice):
        reader, kept, ref = self._settling(choice)
        reader.taker.nack(ref)
        if kept in self.kept and not self._failed(kept):
            reader.unread.append(kept)
            reader.unread.sort(key=order)
        self._read(reader)

    @precondition(lambda self: self.readers)
    @rule(choice=CHOICE, failed=st.booleans())
    def leave(self, choice, failed):
        self.readers.pop(choice % len(self.readers)).taker.close(failed=failed)

    @rule(size=st.sampled_from([-1, 1, 2, 5]))
    def resize_ring(self, size):
        self.world.directory.update_queue(self.queue, {"ring_size": size})
        self.ring = size

    @rule()
    def trim(self):
        excess = max(0, len(self.kept) - self.ring) if self.ring >= 0 else 0
        assert sum(self.queue.trim()) == excess
        for _ in range(excess):
            self._remove(self.kept[0])
        self.replaced += excess

    @precondition(lambda self: len(self.kept) > 3)
    @rule()
    def purge(self):
        self.queue.purge()
        self.killed += len(self.kept)
        for kept in list(self.kept):
            self._remove(kept)

    # ---- what must hold

    @invariant()
    def each_reader_has_received_its_messages_in_order(self):
        for reader in self.readers:
            assert [message.number for message in reader.taker.got] == reader.received
            assert {ref.message.number for ref in reader.taker.unsettled} == {
                kept.number for kept in reader.unsettled
            }

    @invariant()
    def a_browser_sees_all_messages(self):
        for colour in (None, "red"):
            selector = None if colour is None else f"colour = '{colour}'"
            shown = [ref.message.number for ref in browse(self.queue, selector) if isinstance(ref, Reference)]
            assert shown == [kept.number for kept in self.kept if colour in (None, kept.colour)]

    @invariant()
    def counters_agree(self):
        queue = self.queue
        assert queue.message_count == queue.count == len(self.kept)
        assert queue.delivering == sum(len(reader.unsettled) for reader in self.readers)
        assert (queue.messages_added, queue.messages_acknowledged) == (self.added, self.acknowledged)
        assert (queue.messages_replaced, queue.messages_killed) == (self.replaced, self.killed)
        assert queue.messages_expired == self.expiries == self.expired.count
        assert self.dead.count <= self.killed

    def teardown(self):
        for reader in self.readers:
            reader.taker.close()
        for queue in (self.queue, self.dead, self.expired):
            queue.purge()
        assert (self.world.broker.memory.bytes, self.world.broker.memory.messages) == (0, 0)
        assert not self.queue.dispatcher.selector_lists


TestNonDestructive = NonDestructiveMachine.TestCase
TestNonDestructive.settings = examples(60)
