"""A queue that is partly on disk under random use: everything is delivered once, in order, to one who may have it."""

from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stompring.broker import publish
from stompring.broker.reference import PENDING
from stompring.paging import paged_queue

from ..broker.broker_fixture import Taker, header_is, join
from ..paging.stored_pages import StoredPages
from .profile import examples

COLOURS = ["red", "blue", "green"]
GROUPS = [b"a", b"a", b"b", b"c", None]
CHOICE = st.integers(min_value=0, max_value=1000)
#: Bytes of memory for dispatch: hardly anything, a few messages, plenty.
MEMORY = st.sampled_from([500, 3_000, 1 << 20])
LIMITS = [
    {},
    {"prefetch_page_messages": 2},
    {"max_read_page_messages": 3},
    {"max_read_page_messages": 4, "prefetch_page_messages": 2, "page_max_cache_size": 0},
]


def wants(taker, message):
    """Whether its selector takes a message."""
    return taker.matches is None or taker.matches(message)


class Watched(Taker):
    """Says what it is given before it counts as delivered."""

    def __init__(self, machine, *args, **more):
        super().__init__(*args, **more)
        self.machine = machine

    def _note(self, message, deliveries):
        self.machine.group_goes(self, message)
        super()._note(message, deliveries)


class PagedQueueMachine(RuleBasedStateMachine):
    """Consumers with and without selectors come and go, acknowledge, refuse and close."""

    grouped = False
    keys = 0  # of a last-value queue
    priorities = (0,)  # of consumers
    rebalanced = False

    @initialize(
        memory=MEMORY,
        limits=st.sampled_from(LIMITS),
        page=st.sampled_from([600, 2000]),
        held=st.sampled_from([3, 100]),
        waiting=st.integers(0, 3),
        takers=st.integers(0, 3),
    )
    def begin(self, memory, limits, page, held, waiting=0, takers=0):
        self.world = StoredPages(
            limit=3, settings={**limits, "max_delivery_attempts": -1}, page_size=page, memory=memory
        )
        self.memory = memory
        self.held = mock.patch.object(paged_queue, "HELD", held)
        self.held.start()
        keyed = {"last_value_key": "code"} if self.keys else {}
        self.queue = self.world.queue(group_rebalance=self.rebalanced, **keyed)
        self.takers = []
        self.settled = {}
        self.sent = {}
        self.refused = set()  # came back at some time: they may come after younger ones
        self.purged = set()
        self.replaced = set()
        self.obsolete = set()  # in delivery, and a newer one of their key has come
        self.owners = {}  # of groups
        self.log = []
        self.checked = 0
        for _ in range(waiting):
            self.send(12, "red", 4, b"a", False, True, False)
        for _ in range(takers):
            self.come(None, 1, False)

    # ---- what happens

    @rule(
        count=st.integers(1, 12),
        colour=st.sampled_from(COLOURS),
        priority=st.sampled_from([4, 4, 4, 1, 9]),
        group=st.sampled_from(GROUPS),
        ends=st.sampled_from([False, False, False, True]),
        durable=st.booleans(),
        together=st.booleans(),
    )
    def send(self, count, colour, priority, group, ends, durable, together):
        """Some messages; ``together`` as a session does with what came in one read, of one producer."""
        paging = self.world.paging
        paging.gathering = together and not self.grouped
        traits = None
        for n in range(count):
            kind = (
                {"group": group, "group_sequence": -1 if ends and n == count - 1 else 0}
                if self.grouped
                else {}
            )
            headers = {"colour": colour}
            if self.keys and len(self.sent) % 7:
                headers["code"] = f"k{len(self.sent) * 5 % self.keys}"
            message = self.world.message(headers=headers, priority=priority, durable=durable, **kind)
            if self.keys:
                self.replace(message)
            elif paging.gathering:
                traits = message.traits = traits or message.traits
            self.sent[message.number] = message
            publish.send(message)
        paging.gathering = False
        paging.write_gathered()

    @rule(
        colour=st.sampled_from([None, None, None, *COLOURS]),
        credit=st.sampled_from([1, 3, 0, None]),
        auto=st.sampled_from([False, False, False, True]),
    )
    def come(self, colour, credit, auto):
        if len(self.takers) < 5:
            matches = None if colour is None else header_is(b"colour", colour.encode())
            taker = Watched(self, credit, auto=auto, matches=matches, key=colour, log=self.log)
            taker.priority = self.priorities[len(self.sent) % len(self.priorities)]
            self.takers.append(taker)
            if self.rebalanced:
                self.owners.clear()
            self.queue.add_consumer(taker)

    @precondition(lambda self: self.takers)
    @rule(which=CHOICE, credit=st.integers(1, 9))
    def give_credit(self, which, credit):
        self.takers[which % len(self.takers)].give_credit(credit)

    @precondition(lambda self: self.takers)
    @rule(which=CHOICE)
    def take_credit(self, which):
        """Its client reads no more."""
        taker = self.takers[which % len(self.takers)]
        taker.credit = 0
        self.queue.dispatcher.pause_consumer(taker)

    @precondition(lambda self: any(taker.unsettled for taker in self.takers))
    @rule(which=CHOICE, some=CHOICE, how=st.sampled_from(["ack", "ack", "ack", "nack", "abort"]))
    def answer(self, which, some, how):
        holders = [taker for taker in self.takers if taker.unsettled]
        taker = holders[which % len(holders)]
        refs = taker.unsettled[some % len(taker.unsettled) :][: 1 + some % 5]
        if how == "ack":
            for ref in refs:
                self.settle(ref.message.number, taker)
            taker.ack(*refs)
        else:
            self.come_back({ref.message.number for ref in refs})
            self.understand()
            if how == "nack":
                taker.nack(*refs)
            else:
                self.queue.requeue(taker.release(refs))
                taker.give_credit(0)

    @precondition(lambda self: self.takers)
    @rule(which=CHOICE, failed=st.booleans())
    def leave(self, which, failed):
        taker = self.takers.pop(which % len(self.takers))
        self.come_back({ref.message.number for ref in taker.unsettled})
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not taker}
        self.understand()
        taker.close(failed=failed)

    @rule(steps=st.integers(1, 20))
    def go_on(self, steps):
        for _ in range(steps):
            self.world.clock.advance(0)

    @rule()
    def come_to_rest(self):
        self.world.settle_down()
        self.understand()
        self.nobody_starves()

    @rule(which=CHOICE)
    def pause(self, which):
        if which % 3:
            self.queue.resume()
        else:
            self.queue.pause()

    @precondition(lambda self: self.queue.message_count > 20)
    @rule(sure=st.sampled_from([False, False, True]))
    def purge(self, sure):
        if sure:
            self.understand()
            delivering = {ref.message.number for taker in self.takers for ref in taker.unsettled}
            self.purged |= self.sent.keys() - self.settled.keys() - delivering
            self.queue.purge()

    # ---- what must hold

    def replace(self, message):
        """A message is about to enter: those with its key are replaced, or will be when they come back."""
        self.understand()
        key = message.header(b"code")
        if key is None:
            return
        same = {number for number, other in self.sent.items() if other.header(b"code") == key}
        self.replaced |= same & self.left()
        self.obsolete |= same & {ref.message.number for taker in self.takers for ref in taker.unsettled}

    def come_back(self, numbers):
        """These were delivered, and are requeued."""
        self.refused |= numbers
        self.replaced |= numbers & self.obsolete

    def settle(self, number, taker):
        assert number not in self.settled, "it was settled before"
        assert number not in self.purged, "it was purged"
        assert number not in self.replaced, "it was replaced"
        self.settled[number] = taker

    def group_goes(self, taker, message):
        """A message is given out now: if it has a group, to the owner of that, and none of it may stay behind."""
        traits = message.traits
        if traits.group is None:
            return
        owner = self.owners.setdefault(traits.group, taker)
        assert owner is taker or not wants(owner, message), "it is another consumer's group"
        if traits.group_sequence < 0:
            del self.owners[traits.group]
        taken = {number for other, number in self.log if other.auto}
        for number in self.left() - taken:
            other = self.sent[number]
            same = (other.traits.group, other.traits.priority) == (traits.group, traits.priority)
            if same and number < message.number and wants(owner, other) == (owner is taker):
                assert not wants(taker, other), f"{number} of the group waits, {message.number} goes"

    def understand(self):
        """Everything that was given out since the last time: to one who may have it, in order."""
        while self.checked < len(self.log):
            taker, number = self.log[self.checked]
            self.checked += 1
            assert number not in self.settled, "it was delivered after it was settled"
            assert number not in self.purged and number not in self.replaced
            assert wants(taker, self.sent[number])
            if taker.auto:
                self.settle(number, taker)
        for taker in self.takers:
            self.in_order(taker)

    def in_order(self, taker):
        last = {}
        for message in taker.got:
            if message.number in self.refused:
                continue
            traits = message.traits
            # what was set aside for the owner of a group comes to others later: what its selector took
            kind = traits.group and message.header(b"colour")
            stream = (traits.priority, traits.group, kind)
            assert last.get(stream, 0) < message.number, "a consumer was given an older message later"
            last[stream] = message.number

    def nobody_starves(self):
        """At rest no consumer that could have a message, pending or on disk, is without one."""
        if self.queue.paused:
            return
        left = self.left()
        for taker in self.queue.ready:
            area = self.queue.paged
            if area is not None and area.page_credit.exhausted(taker):
                continue
            waiting = [number for number in left if self.could_have(taker, self.sent[number])]
            assert not waiting, f"{waiting} wait for {taker}"

    def could_have(self, taker, message):
        group = message.traits.group
        owner = None if group is None else self.owners.get(group)
        return wants(taker, message) and (owner is None or owner is taker or not wants(owner, message))

    def finish(self):
        """Those who are still there take and acknowledge everything that they may have."""
        while True:
            for taker in self.takers:
                taker.give_credit(5)
            self.come_to_rest()
            holders = [taker for taker in self.takers if taker.unsettled]
            if not holders and all(taker in self.queue.ready for taker in self.takers):
                return
            for taker in holders:
                self.understand()
                for ref in taker.unsettled:
                    self.settle(ref.message.number, taker)
                taker.ack()

    def left(self):
        delivering = {ref.message.number for taker in self.takers for ref in taker.unsettled}
        return self.sent.keys() - self.settled.keys() - self.purged - self.replaced - delivering

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "queue"):
            return
        self.understand()
        queue = self.queue
        delivering = sum(len(taker.unsettled) for taker in self.takers)
        assert queue.delivering == delivering
        assert queue.message_count == len(self.left()) + delivering
        held = {ref for ref in queue.dispatcher.in_order()}
        assert queue.count == len(held) and all(ref.state == PENDING for ref in held)
        assert queue.count + queue.paged_count == len(self.left())
        assert queue.messages_replaced == len(self.replaced)

    @invariant()
    def memory_is_bounded(self):
        if not hasattr(self, "queue"):
            return
        budget = self.world.areas.budget
        largest = max((message.size for message in self.sent.values()), default=0)
        held = [ref for taker in self.takers for ref in taker.unsettled]
        # and what came back that was handed over without being written, of which no more than that was out
        held += [ref for ref in self.queue.dispatcher.in_order() if ref.position is None]
        out = sum(ref.message.size for ref in held if ref.message.account is budget)
        # what nobody may be refused: a few messages for each list, and what is in delivery
        spared = (self.spared() + 16 * (1 + len(self.queue.dispatcher.selector_lists))) * largest
        assert budget.used <= self.memory + out + spared, (budget.used, self.memory, out, spared)

    def spared(self):
        return 0

    def teardown(self):
        if not hasattr(self, "queue"):
            return
        try:
            self.everything_comes()
        finally:
            self.held.stop()

    def everything_comes(self):
        self.understand()
        self.queue.resume()
        self.finish()
        for taker in list(self.takers):
            self.takers.remove(taker)
            self.come_back({ref.message.number for ref in taker.unsettled})
            taker.close()
            self.understand()
        left = self.left()
        last = join(self.queue, None, auto=True)
        self.world.settle_down()
        numbers = [message.number for message in last.got]
        assert sorted(numbers) == sorted(left), (
            f"{left ^ set(numbers)}: everything comes out in the end, once"
        )
        order = [(-message.traits.priority, message.number) for message in last.got]
        assert order == sorted(order), order
        assert self.queue.message_count == 0
        assert self.world.address("q").pages is None
        assert self.queue.paged is None
        assert self.world.areas.budget.used == 0
        assert (self.world.broker.memory.bytes, self.queue.persistent_size) == (0, 0)


class GroupedPagedQueueMachine(PagedQueueMachine):
    """The same with message groups."""

    grouped = True

    def spared(self):
        return 2 * len(self.takers)  # set aside for their owners


class KeyedPagedQueueMachine(PagedQueueMachine):
    """A last-value queue."""

    keys = 11


class KeyedGroupedPagedQueueMachine(GroupedPagedQueueMachine, KeyedPagedQueueMachine):
    """With message groups."""


TestKeyedPagedQueue = KeyedPagedQueueMachine.TestCase
TestKeyedPagedQueue.settings = examples(40, steps=40)
TestKeyedGroupedPagedQueue = KeyedGroupedPagedQueueMachine.TestCase
TestKeyedGroupedPagedQueue.settings = examples(20, steps=40)


class RebalancedPagedQueueMachine(GroupedPagedQueueMachine):
    """With groups that each new consumer unpins, and consumers of several priorities."""

    priorities = (0, 5, 5, -3)
    rebalanced = True


TestPagedQueue = PagedQueueMachine.TestCase
TestPagedQueue.settings = examples(60, steps=40)
TestGroupedPagedQueue = GroupedPagedQueueMachine.TestCase
TestGroupedPagedQueue.settings = examples(60, steps=40)
TestRebalancedPagedQueue = RebalancedPagedQueueMachine.TestCase
TestRebalancedPagedQueue.settings = examples(25, steps=40)
