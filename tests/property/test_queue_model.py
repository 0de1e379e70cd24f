"""A queue under random use, beside the plain model of its rules (`queue_model`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stompring.broker import publish
from stompring.broker.publish import Transaction

from ..broker.broker_fixture import BrokerFixture, Taker, header_is
from .profile import examples
from .queue_model import MAX_ATTEMPTS, MULTIPLIER, REDELIVERY_DELAY, Item, Model, Reader

SETTINGS = {
    "#": {"auto_delete_queues": False},
    "q": {
        "max_delivery_attempts": MAX_ATTEMPTS,
        "redelivery_delay": REDELIVERY_DELAY,
        "redelivery_delay_multiplier": float(MULTIPLIER),
        "dead_letter_address": "DLQ",
        "expiry_address": "EXP",
    },
}

#: Things fall due at multiples of 250 ms and expire 125 ms later, so that the two never coincide.
UNIT, SHIFT = 250, 125
LIFETIMES = st.sampled_from([0, 0, 0, SHIFT, UNIT + SHIFT, 6 * UNIT + SHIFT, -UNIT + SHIFT])
COLOURS = st.sampled_from([b"red", b"blue"])
CHOICE = st.integers(min_value=0, max_value=1000)


@dataclass(eq=False)
class Open:
    """A transaction here and in the model: the same steps in both."""

    real: Transaction
    steps: list[tuple[str, Any, list[Item]]] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Every kind of use that a queue without groups and selectors has."""

    grouped = False
    attributes: Mapping[str, Any] = {}

    def __init__(self):
        super().__init__()
        self.world = BrokerFixture(SETTINGS)
        self.queue = self.world.queue("q", **self.attributes)
        self.dead, self.expired = self.world.queue("DLQ"), self.world.queue("EXP")
        self.model = Model(now=self.world.now)
        self.items = {}
        self.takers = {}
        self.open = []
        self.log = []
        self.model.took = self.log

    # ---- sending

    def _new(self, priority, lifetime, look):
        colour, group_choice = look
        group, ends = None, False
        if self.grouped:
            group = (None, b"a", b"b", b"c")[group_choice % 4]
            ends = group is not None and group_choice % 16 >= 12
        key = {"code": f"k{group_choice % 3}"} if self.attributes and group_choice % 7 else {}
        now = self.world.now
        expires = now + lifetime if lifetime else 0
        message = self.world.message(
            "q",
            b"x" * (priority + 1),
            priority=priority,
            expires=expires,
            group=group,
            group_sequence=-1 if ends else 0,
            headers={"colour": colour.decode(), **key},
        )
        item = Item(message.number, priority, message.size, colour, group, ends, expires, 0)
        item.key = key["code"].encode() if key else None
        self.items[message.number] = item
        return message, item

    looks = st.tuples(COLOURS, CHOICE)
    priorities = st.sampled_from([4, 4, 4, 4, 0, 9])

    @rule(priority=priorities, lifetime=LIFETIMES, look=looks)
    def send(self, priority, lifetime, look):
        message, item = self._new(priority, lifetime, look)
        publish.send(message)
        self.model.send(item)
        self._let(0)

    @rule(priority=priorities, lifetime=LIFETIMES.map(abs), look=looks, delay=st.integers(0, 8))
    def schedule(self, priority, lifetime, look, delay):
        message, item = self._new(priority, lifetime, look)
        due = self.world.now + delay * UNIT
        publish.send(message, due)
        self.model.schedule(item, due)
        self._let(0)

    # ---- time

    @rule(units=st.integers(1, 12))
    def pass_time(self, units):
        self._let(units * UNIT)

    def _let(self, milliseconds):
        """Time goes by: first in the broker, then the model follows it event by event."""
        self.world.pass_time(milliseconds)
        until = self.world.now
        while (at := self.model.next_event()) is not None and at <= until:
            self.model.happen(at)
        self.model.now = until

    # ---- consumers

    @rule(credit=st.sampled_from([0, 1, 1, 2, 5]), auto=st.booleans(), colour=st.one_of(st.none(), COLOURS))
    def join(self, credit, auto, colour):
        if len(self.model.readers) >= 4:
            return
        colour = colour if self.grouped else None
        matches = None if colour is None else header_is(b"colour", colour)
        taker = Taker(credit, auto=auto, matches=matches, key=colour, log=self.log)
        reader = Reader(taker, credit, auto, colour, willing=credit > 0)
        self.takers[reader] = taker
        self.queue.add_consumer(taker)
        self.model.join(reader)

    def _reader(self, choice):
        return self.model.readers[choice % len(self.model.readers)]

    def _some(self, reader, choice):
        """One of what a reader holds, or all up to it (an ACK in client mode)."""
        at = choice % len(reader.unsettled)
        return reader.unsettled[: at + 1] if choice % 2 else [reader.unsettled[at]]

    def _release(self, reader, items):
        taker = self.takers[reader]
        numbers = [item.number for item in items]
        refs = taker.release([ref for ref in taker.unsettled if ref.message.number in numbers])
        self.model.release(reader, items)
        return refs

    def _go_on(self, reader):
        self.takers[reader].give_credit(0)
        if reader.credit > 0:
            self.model.wake(reader, 0)

    @precondition(lambda self: self.model.readers)
    @rule(choice=CHOICE, credit=st.integers(1, 3))
    def give_credit(self, choice, credit):
        reader = self._reader(choice)
        self.takers[reader].give_credit(credit)
        self.model.wake(reader, credit)

    @precondition(lambda self: self.model.readers)
    @rule(choice=CHOICE)
    def rest(self, choice):
        reader = self._reader(choice)
        self.queue.dispatcher.pause_consumer(self.takers[reader])
        reader.willing = False

    @precondition(lambda self: any(reader.unsettled for reader in self.model.readers))
    @rule(choice=CHOICE, which=CHOICE, nack=st.booleans())
    def answer(self, choice, which, nack):
        holders = [reader for reader in self.model.readers if reader.unsettled]
        reader = holders[choice % len(holders)]
        items = self._some(reader, which)
        refs = self._release(reader, items)
        if nack:
            self.queue.requeue(refs, self.takers[reader], failed=True)
            self.model.give_back(items, reader, failed=True)
        else:
            for ref in refs:
                self.queue.settle(ref)
            self.model.settle(items)
        self._go_on(reader)

    @precondition(lambda self: self.model.readers)
    @rule(choice=CHOICE, failed=st.booleans())
    def leave(self, choice, failed):
        reader = self._reader(choice)
        self.takers.pop(reader).close(failed=failed)
        self.model.leave(reader, failed=failed)
        self._let(0)

    # ---- transactions

    @rule()
    def begin(self):
        if len(self.open) < 2:
            self.open.append(Open(Transaction(self.world.broker)))

    @precondition(lambda self: self.open and any(reader.unsettled for reader in self.model.readers))
    @rule(choice=CHOICE, which=CHOICE, nack=st.booleans())
    def answer_in_transaction(self, choice, which, nack):
        transaction = self.open[choice % len(self.open)]
        reader = next(reader for reader in self.model.readers if reader.unsettled)
        items = self._some(reader, which)
        refs, taker = self._release(reader, items), self.takers[reader]
        if nack:
            transaction.real.refuse(refs, taker, lambda: taker.reclaim(refs))
        else:
            transaction.real.acknowledge(refs, lambda: taker.reclaim(refs))
        transaction.steps.append(("nack" if nack else "ack", reader, items))
        self._go_on(reader)

    @precondition(lambda self: self.open)
    @rule(choice=CHOICE, priority=priorities, look=looks)
    def send_in_transaction(self, choice, priority, look):
        transaction = self.open[choice % len(self.open)]
        items = []  # it is a message, with a number, from the commit on

        def send():
            message, item = self._new(priority, 0, look)
            items.append(item)
            publish.send(message)

        transaction.real.send(0, lambda: self.queue.address, send, durable=False)
        transaction.steps.append(("send", None, items))

    @precondition(lambda self: self.open)
    @rule(choice=CHOICE)
    def commit(self, choice):
        transaction = self.open.pop(choice % len(self.open))
        transaction.real.commit()
        for kind, reader, items in transaction.steps:
            if kind == "send":
                self.model.send(items[0])
            elif kind == "ack":
                self.model.settle(items)
            else:
                self.model.give_back(items, reader, failed=True)
        self._let(0)

    @precondition(lambda self: self.open)
    @rule(choice=CHOICE)
    def rollback(self, choice):
        transaction = self.open.pop(choice % len(self.open))
        transaction.real.rollback()
        self.model.rollback([(reader, items) for kind, reader, items in transaction.steps if kind != "send"])
        self._let(0)

    # ---- management

    @rule(size=st.sampled_from([-1, -1, 1, 2, 3, 5]))
    def resize_ring(self, size):
        self.world.directory.update_queue(self.queue, {"ring_size": size})
        self.model.ring = size

    @rule()
    def trim(self):
        trimmed = sum(self.queue.trim())
        excess = max(0, len(self.model.pending) - self.model.ring) if self.model.ring >= 0 else 0
        assert trimmed == excess
        del self.model.pending[:excess]
        self.model.replaced += excess

    @rule()
    def pause(self):
        self.queue.pause()
        self.model.paused = True

    @rule()
    def resume(self):
        self.queue.resume()
        self.model.paused = False
        self.model.deliver()

    @precondition(lambda self: self.model.pending or self.model.scheduled)
    @rule(choice=CHOICE)
    def kill_one(self, choice):
        items = [*self.model.pending, *self.model.scheduled]
        item = items[choice % len(items)]
        refs = [*self.queue.dispatcher.in_order(), *self.queue.scheduled.values()]
        self.queue.kill(next(ref for ref in refs if ref.message.number == item.number))
        self.model.kill(item)

    @precondition(lambda self: len(self.items) > 10)
    @rule()
    def purge(self):
        self.queue.purge()
        self.model.purge()

    # ---- what must hold after every step

    @invariant()
    def agree(self):
        self._contents_agree()
        self._counters_agree()
        self._sizes_agree()
        self._moved_messages_are_where_they_belong()
        self._nothing_is_kept_for_nothing()

    def _contents_agree(self):
        queue, model = self.queue, self.model
        assert not self.log, f"taken without need: {self.log}"
        pending = list(queue.dispatcher.in_order())
        assert [ref.message.number for ref in pending] == [item.number for item in model.pending]
        assert {n: ref.due for n, ref in queue.scheduled.items()} == {
            i.number: i.due for i in model.scheduled
        }
        for ref in [*pending, *queue.scheduled.values()]:
            item = self.items[ref.message.number]
            assert (ref.deliveries, ref.attempts) == (item.deliveries, item.attempts)
        for reader, taker in self.takers.items():
            assert [r.message.number for r in taker.unsettled] == [i.number for i in reader.unsettled]
            assert taker.willing == reader.willing
        assert queue.dispatcher.first() is (pending[0] if pending else None)

    def _counters_agree(self):
        queue, model = self.queue, self.model
        assert (queue.count, queue.scheduled_count, queue.delivering, queue.message_count) == (
            len(model.pending),
            len(model.scheduled),
            len(model.delivering),
            len(model.held),
        )
        assert queue.messages_added == model.added
        assert queue.messages_acknowledged == model.acknowledged
        assert queue.messages_expired == len(model.expired)
        assert queue.messages_killed == model.killed
        assert queue.messages_replaced == model.replaced
        left = model.acknowledged + len(model.expired) + model.killed + model.replaced
        assert model.added == left + len(model.held)

    def _sizes_agree(self):
        room, held = self.queue.address.memory_limit, self.model.held
        size = sum(item.size for item in held)
        assert (self.queue.persistent_size, room.bytes, room.messages) == (size, size, len(held))
        others = (self.dead.address.memory_limit, self.expired.address.memory_limit)
        memory = self.world.broker.memory
        assert memory.bytes == size + sum(other.bytes for other in others)
        assert memory.messages == len(held) + sum(other.messages for other in others)

    def _moved_messages_are_where_they_belong(self):
        for queue, numbers in ((self.dead, self.model.dead), (self.expired, self.model.expired)):
            moved = [ref.message.header(b"_AMQ_ORIG_MESSAGE_ID") for ref in queue.dispatcher.in_order()]
            assert sorted(map(int, filter(None, moved))) == sorted(numbers)

    def _nothing_is_kept_for_nothing(self):
        held = len(self.model.held)
        assert len(self.world.broker.schedule) <= 2 * held + 130
        assert len(self.world.broker.expiry) <= 2 * held + 130
        lists = [
            self.queue.dispatcher.pending,
            *(target.pending for target in self.queue.dispatcher.selector_lists.values()),
        ]
        for pending in lists:
            assert pending.size <= 2 * held + 130

    def teardown(self):
        for transaction in self.open:
            transaction.real.rollback()
        for taker in self.takers.values():
            taker.close()
        for queue in (self.queue, self.dead, self.expired):
            if queue.paused:
                queue.resume()
            queue.purge()
            assert (queue.message_count, queue.persistent_size, queue.count) == (0, 0, 0)
        assert (self.world.broker.memory.bytes, self.world.broker.memory.messages) == (0, 0)
        assert not self.queue.dispatcher.selector_lists and not self.queue.ready
        expired = self.queue.messages_expired
        self.world.pass_time(3600_000)
        assert self.queue.messages_expired == expired
        assert not self.world.clock.calls, "a timer is left"
        assert not len(self.world.broker.schedule) and not len(self.world.broker.expiry)


class GroupMachine(QueueMachine):
    """The same with message groups and selectors."""

    grouped = True


class LastValueMachine(QueueMachine):
    """The same of a queue in which most messages have one of three keys."""

    attributes = {"last_value_key": "code"}

    def _nothing_is_kept_for_nothing(self):
        super()._nothing_is_kept_for_nothing()
        assert self.queue.attributes.last_value
        alive = {item.key for item in self.model.held if item.entrance and not self.model.obsolete(item)}
        assert self.queue.keys == len(alive - {None})


class GroupedLastValueMachine(LastValueMachine):
    """… with message groups and selectors."""

    grouped = True


TestLastValues = LastValueMachine.TestCase
TestLastValues.settings = examples(60)
TestGroupedLastValues = GroupedLastValueMachine.TestCase
TestGroupedLastValues.settings = examples(30)
TestQueue = QueueMachine.TestCase
TestQueue.settings = examples(60)
TestGroups = GroupMachine.TestCase
TestGroups.settings = examples(60)
