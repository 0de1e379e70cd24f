"""Who receives a message, under random use: groups in buckets, rebalancing, exclusive queues, priorities of consumers,
and the header on first messages, beside a plain model of these rules."""

from contextlib import contextmanager
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from ..broker.broker_fixture import Taker, header_is
from .profile import examples
from .queue_model import Model, Reader
from .test_queue_model import CHOICE, COLOURS, QueueMachine

KEY = "FIRST"


@dataclass(eq=False)
class DispatchModel(Model):
    """The rules of the settings of one queue. Groups of a bucket are one group: there is at most one bucket here."""

    buckets: int = -1
    rebalance: bool = False
    pause_dispatch: bool = False
    exclusive: bool = False
    marks: bool = False
    waiting: bool = False  # until everything in delivery is settled
    grouped_came: bool = False  # a message of a group was pending at some time
    priorities: dict[Reader, int] = field(default_factory=dict)
    active: Reader | None = None  # of an exclusive queue
    active_took: int = 0
    first: list[tuple[object, int]] = field(default_factory=list)  # who got which message with the header

    def group_of(self, item):
        if item.group is None or not self.buckets:
            return None
        return b"bucket" if self.buckets == 1 else item.group

    def insert(self, item):
        self.grouped_came = self.grouped_came or self.group_of(item) is not None
        super().insert(item)

    def owner(self, item):
        group = self.group_of(item)
        owner = None if group is None else self.owners.get(group)
        return owner if owner is not None and owner.matches(item) else None

    def may_take(self, reader, item):
        if self.exclusive and reader is not self.active:
            return False
        return super().may_take(reader, item)

    def next_for(self, reader):
        return None if self.waiting else super().next_for(reader)

    def hand_over(self, item, reader):
        higher = [other for other in self.readers if self.priorities[other] > self.priorities[reader]]
        assert not any(self.next_for(other) for other in higher), "one of higher priority comes first"
        group = self.group_of(item)
        if self.exclusive:
            is_first = self.active_took == 0
            self.active_took += 1
        else:
            is_first = group is not None and group not in self.owners
        if is_first and self.marks:
            self.first.append((reader.name, item.number))
        number, item.group = item.group, None  # the base knows no buckets
        super().hand_over(item, reader)
        item.group = number
        if group is not None:
            self.owners.setdefault(group, reader)
            if item.ends_group:
                del self.owners[group]

    def _choose(self):
        best = max(self.readers, key=lambda reader: self.priorities[reader], default=None)
        keeps = self.active in self.readers and (
            self.active_took or best is None or self.priorities[best] <= self.priorities[self.active]
        )
        if not keeps:
            self.active, self.active_took = best, 0

    def join(self, reader):
        self.readers.append(reader)
        self._choose()
        if self.rebalance and self.grouped_came:
            self.owners.clear()
            self.waiting = self.waiting or (self.pause_dispatch and bool(self.delivering))
        self.deliver()

    def settle(self, items):
        super().settle(items)
        self.settled()

    def settled(self):
        if self.waiting and not self.delivering:
            self.waiting = False
            self.deliver()

    def give_back(self, items, reader, *, failed):
        was, self.waiting = self.waiting, True  # nothing is delivered until all are back
        super().give_back(items, reader, failed=failed)
        self.waiting = was and bool(self.delivering)
        self.deliver()

    def leave(self, reader, *, failed):
        if self.active is reader:
            self.active = None
        self.readers.remove(reader)
        self._choose()
        self.readers.append(reader)
        super().leave(reader, failed=failed)


class MarkedTaker(Taker):
    """A consumer that notes which messages have the header."""

    def __init__(self, *arguments, first, **more):
        super().__init__(*arguments, **more)
        self._first = first
        self._marked = False

    @contextmanager
    def additional_header(self, name, value):
        assert (name, value) == (KEY.encode(), b"true")
        self._marked = True
        yield
        self._marked = False

    def deliver_reference(self, ref):
        if self._marked:
            self._first.append((self, ref.message.number))
        super().deliver_reference(ref)


class DispatchMachine(QueueMachine):
    """As `QueueMachine`, with groups and selectors, and all settings that decide who receives a message."""

    grouped = True
    model: DispatchModel
    # what `QueueMachine` is about: without it there are more deliveries
    pause = resume = resize_ring = trim = purge = kill_one = schedule = send_in_transaction = rest = None

    def __init__(self):
        super().__init__()
        self.model = DispatchModel(now=self.world.now)
        self.model.took = self.log
        self.first = []
        self.prioritized = False

    @initialize(
        buckets=st.sampled_from([-1, -1, 1, 0]),
        rebalance=st.booleans(),
        pause=st.booleans(),
        exclusive=st.sampled_from([False, False, False, True]),
        marks=st.booleans(),
        prioritized=st.sampled_from([True, True, False]),
        credits=st.lists(st.sampled_from([1, 2, 5]), min_size=2, max_size=3),
    )
    def configure(self, buckets, rebalance, pause, exclusive, marks, prioritized, credits):
        changes = {
            "group_buckets": buckets,
            "group_rebalance": rebalance,
            "group_rebalance_pause_dispatch": pause,
            "exclusive": exclusive,
            "group_first_key": KEY if marks else None,
        }
        self.world.directory.update_queue(self.queue, changes)
        model = self.model
        model.buckets, model.rebalance, model.pause_dispatch = buckets, rebalance, pause
        model.exclusive, model.marks, self.prioritized = exclusive, marks, prioritized
        for number, credit in enumerate(credits):
            self.join(credit, False, None, number)

    @rule(
        looks=st.lists(st.tuples(COLOURS, CHOICE), min_size=1, max_size=8), priority=QueueMachine.priorities
    )
    def send_several(self, looks, priority):
        for look in looks:
            self.send(priority, 0, look)

    @precondition(lambda self: self.model.readers)
    @rule()
    def acknowledge_everything(self):
        for reader in self.model.readers:
            if reader.unsettled:
                items = list(reader.unsettled)
                for ref in self._release(reader, items):
                    self.queue.settle(ref)
                self.model.settle(items)
                self._go_on(reader)

    @rule(
        credit=st.sampled_from([0, 1, 2, 5, 20]),
        auto=st.sampled_from([False, False, True]),
        colour=st.one_of(st.none(), COLOURS),
        choice=CHOICE,
    )
    def join(self, credit, auto, colour, choice):
        if len(self.model.readers) >= 4:
            return
        matches = None if colour is None else header_is(b"colour", colour)
        taker = MarkedTaker(credit, auto=auto, matches=matches, key=colour, log=self.log, first=self.first)
        taker.priority = choice % 3 - 1 if self.prioritized else 0
        reader = Reader(taker, credit, auto, colour, willing=credit > 0)
        self.takers[reader] = taker
        self.model.priorities[reader] = taker.priority
        self.queue.add_consumer(taker)
        self.model.join(reader)

    @rule(choice=CHOICE)
    def reset_groups(self, choice):
        group = (None, b"a", b"b", b"c")[choice % 4]
        model = self.model
        if group is None:
            expected = len(model.owners)
            model.owners.clear()
        else:
            key = b"bucket" if model.buckets == 1 else group
            expected = int(model.owners.pop(key, None) is not None)
        assert self.queue.dispatcher.reset_groups(group) == expected
        model.deliver()

    @invariant()
    def first_messages_agree(self):
        assert self.first == self.model.first

    @invariant()
    def groups_agree(self):
        dispatcher, model = self.queue.dispatcher, self.model
        assert dispatcher.group_count == len(model.owners)
        for reader, taker in self.takers.items():
            assert taker.group_count == sum(owner is reader for owner in model.owners.values())
        assert dispatcher.rebalancing == model.waiting
        if model.exclusive:
            assert dispatcher.exclusive is (None if model.active is None else self.takers[model.active])


TestDispatch = DispatchMachine.TestCase
TestDispatch.settings = examples(80, steps=30)
