"""Scans for selectors and browsers, one slice at a time between random use of the queue: nothing is delivered twice,
lost, or before an earlier message that the consumer wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from stompring.broker import queue as queue_module
from stompring.broker.queue_browser import References, iterate_pending
from stompring.broker.reference import Reference

from ..broker.broker_fixture import BrokerFixture, Taker, header_is
from .profile import examples

COLOURS = [b"red", b"blue"]
CHOICE = st.integers(0, 1000)


class Watcher(Taker):
    """A consumer that compares what it is given with what else is pending."""

    machine: object

    def deliver_reference(self, ref):
        self.machine.check(self, ref.message.number, ref.order)
        super().deliver_reference(ref)

    def deliver_message(self, message):
        order = (-message.traits.priority, message.number)
        self.machine.check(self, message.number, order)
        super().deliver_message(message)

    def wants(self, ref):
        return self.matches is None or self.matches(ref.message)


@dataclass(eq=False)
class Browser:
    """A browser, with the messages that were pending at its begin and are pending since."""

    shown: References
    stayed: set[int]
    seen: list[tuple[int, int]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


class ScanMachine(RuleBasedStateMachine):
    """A queue whose scans have one step in a turn of the reactor."""

    attributes: Mapping[str, Any] = {}

    def __init__(self):
        super().__init__()
        self.world = BrokerFixture({"#": {"auto_delete_queues": False, "max_delivery_attempts": -1}})
        self.world.slice_finely()
        self.queue = self.world.queue("q", **self.attributes)
        self.takers = []
        self.held = {}  # by message number, who has it
        self.sent = self.gone = 0
        self.browsers = []

    def _send(self, priority, choice, due=0):
        headers = {"colour": COLOURS[choice % 2].decode()}
        group = (None, None, b"a", b"b")[choice // 2 % 4] if self.grouped else None
        self.sent += 1
        self.world.send(priority=priority, group=group, headers=headers, due=due)

    grouped = False
    priorities = st.sampled_from([4, 4, 4, 4, 0, 9])

    @initialize(
        looks=st.lists(st.tuples(priorities, CHOICE), min_size=20, max_size=60),
        listed=st.sampled_from([1, 3, 256]),
    )
    def fill(self, looks, listed):
        patch.object(queue_module, "LISTED", listed).start()
        for priority, choice in looks:
            self._send(priority, choice)

    @rule(priority=priorities, choice=CHOICE)
    def send(self, priority, choice):
        self._send(priority, choice)

    @rule(priority=priorities, choice=CHOICE)
    def fall_due(self, priority, choice):
        self._send(priority, choice, due=self.world.now + 250)
        self.world.one_turn(0.25)

    @rule(turns=st.integers(1, 4))
    def turn(self, turns):
        for _ in range(turns):
            self.world.one_turn()

    # ---- consumers

    @rule(credit=st.sampled_from([0, 1, 2, 20]), colour=st.sampled_from([None, *COLOURS, b"none"]))
    def join(self, credit, colour):
        if len(self.takers) < 5:
            matches = None if colour is None else header_is(b"colour", colour)
            taker = Watcher(credit, matches=matches, key=colour)
            taker.machine = self
            self.takers.append(taker)
            self.queue.add_consumer(taker)

    def check(self, taker, number, order):
        """A message is about to be delivered."""
        assert number not in self.held, "it is delivered twice"
        self.held[number] = taker
        for browser in self.browsers:
            browser.stayed.discard(number)
        for ref in self.queue.dispatcher.in_order():
            if ref.order >= order:
                break
            groups = self.queue.dispatcher.groups
            owner = taker if groups is None or ref.message.traits.group is None else groups.owner(ref)
            mine = owner is taker and ref.last_rejected_by is not taker
            assert not (mine and taker.wants(ref)), "an earlier one is left"

    def _taker(self, choice):
        return self.takers[choice % len(self.takers)]

    def _release(self, taker, choice):
        refs = taker.release(taker.unsettled[: choice % len(taker.unsettled) + 1])
        for ref in refs:
            self.held.pop(ref.message.number, None)
        return refs

    @precondition(lambda self: any(taker.unsettled for taker in self.takers))
    @rule(choice=CHOICE, nack=st.booleans())
    def answer(self, choice, nack):
        holders = [taker for taker in self.takers if taker.unsettled]
        taker = holders[choice % len(holders)]
        refs = self._release(taker, choice)
        if nack:
            self.queue.requeue(refs, taker)
        else:
            self.gone += len(refs)
            for ref in refs:
                self.queue.settle(ref)
        taker.give_credit(0)

    @precondition(lambda self: self.takers)
    @rule(choice=CHOICE, credit=st.integers(1, 3))
    def give_credit(self, choice, credit):
        self._taker(choice).give_credit(credit)

    @precondition(lambda self: self.takers)
    @rule(choice=CHOICE)
    def leave(self, choice):
        taker = self.takers.pop(choice % len(self.takers))
        for ref in taker.unsettled:
            self.held.pop(ref.message.number, None)
        taker.close()

    # ---- browsers and management

    @rule()
    def browse(self):
        pending = {ref.message.number for ref in self.queue.dispatcher.in_order()}
        self.browsers.append(Browser(iterate_pending(self.queue), pending))

    @precondition(lambda self: self.browsers)
    @rule(choice=CHOICE, most=st.integers(1, 100))
    def look(self, choice, most):
        browser = self.browsers[choice % len(self.browsers)]
        for _ in range(most):
            ref = next(browser.shown, None)
            if ref is None:
                assert browser.stayed <= browser.numbers, "a message is not shown"
                self.browsers.remove(browser)
                return
            assert isinstance(ref, Reference) and ref.message.number not in browser.numbers
            assert not browser.seen or browser.seen[-1] < ref.order
            browser.seen.append(ref.order)
            browser.numbers.add(ref.message.number)

    @precondition(lambda self: self.queue.count)
    @rule(choice=CHOICE)
    def kill_one(self, choice):
        refs = list(self.queue.dispatcher.in_order())
        ref = refs[choice % len(refs)]
        for browser in self.browsers:
            browser.stayed.discard(ref.message.number)
        self.queue.kill(ref)
        self.gone += 1

    # ---- what must hold

    @rule()
    def settle_down(self):
        """Once all scans are over, nothing is left that a consumer might have."""
        self.world.settle_down()
        lists = self.queue.dispatcher.selector_lists.values()
        assert all(each.cursor is None or each.paused for each in lists) and not len(self.world.broker.scans)
        for taker in self.queue.ready:
            for ref in self.queue.dispatcher.in_order():
                free = ref.message.traits.group is None and ref.last_rejected_by is None
                assert not (free and taker.wants(ref)), "it is left"

    def teardown(self):
        try:
            self._take_all()
        finally:
            patch.stopall()

    def _take_all(self):
        while self.takers:
            self.leave(0)
        self.world.settle_down()
        last = Watcher()
        last.machine = self
        self.queue.add_consumer(last)
        self.world.settle_down()
        assert self.queue.count == 0 and len(last.got) == self.sent - self.gone
        last.ack()
        last.close()
        assert not self.queue.dispatcher.selector_lists and not len(self.world.broker.scans)


class GroupedScanMachine(ScanMachine):
    """Some messages belong to groups."""

    grouped = True


TestScans = ScanMachine.TestCase
TestScans.settings = examples(60)
TestGroupedScans = GroupedScanMachine.TestCase
TestGroupedScans.settings = examples(60)
