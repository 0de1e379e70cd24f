"""The ledger notices what it is there for: each kind of broken promise, and none where nothing was promised."""

from random import Random

import pytest

from .audit import Audit, Observation, Seen
from .connection import Frame
from .consumers import Consumer, ConsumerProfile
from .context import Context
from .duplicates import Identifiers
from .ledger import Ledger, State, now
from .topology import DEAD, ENDING_GROUPS, EXPIRED, LASTING_GROUPS, RING, Group

QUEUE, OTHER, RINGED, KEYED = "memory.work", "memory.results", "memory.ring", "memory.lastvalue"
GROUPS = [
    Group(KEYED, consumers=False, keyed=True),
    Group(QUEUE),
    Group(OTHER),
    Group(RINGED, RING, consumers=False),
    Group(DEAD),
    Group(EXPIRED),
]


class Story:
    """A ledger, and what a broker shows after a restart."""

    def __init__(self):
        self.ledger = Ledger()
        self.contents = {QUEUE: [], OTHER: []}
        self.counted = {}

    def send(self, state=State.DONE, queues=(QUEUE,), unit=None, message_group="", key="", **more):
        unit = unit or self.ledger.unit("SEND")
        durable = bool(more.pop("durable", True))
        text = self.ledger.enter(
            unit, queues, "p", durable=durable, message_group=message_group, key=key, **more
        )
        if state is not State.OPEN:
            unit.move(state)
        copy = self.ledger.find(queues[0], text)
        assert copy is not None
        return copy

    def acknowledge(self, copy, state):
        unit = self.ledger.unit("ACK")
        self.ledger.leave(unit, copy)
        unit.move(state)
        return unit

    def show(self, *copies, place="", state="pending", attempts=0):
        for copy in copies:
            there = place or copy.queue
            seen = Seen(there, copy.queue, copy.text, state, copy.priority, attempts)
            self.contents.setdefault(there, []).append(seen)

    def rules(self, again=False):
        """The rules that are broken."""
        self.ledger.forget_done()
        queues = {}
        for name, contents in self.contents.items():
            states = [seen.state for seen in contents]
            counts = (len(contents), states.count("scheduled"), states.count("delivering"))
            total, scheduled, delivering = self.counted.get(name, counts)
            queues[name] = {
                "messageCount": total,
                "scheduledCount": scheduled,
                "deliveringCount": delivering,
            }
        audit = Audit(self.ledger, GROUPS, Observation(queues, self.contents))
        if again:
            self.ledger.next_life(set(audit.present))
        return sorted(fault.rule for fault in audit.faults)


@pytest.fixture
def story():
    return Story()


def test_all_is_well(story):
    story.show(story.send(), story.send())
    story.acknowledge(story.send(), State.DONE)
    story.send(State.OPEN)
    story.send(State.UNDONE)
    story.send(durable=False)
    assert story.rules() == []


@pytest.mark.parametrize("there", [True, False])
def test_what_was_not_receipted_may_be_there_or_not(story, there):
    copy, taken = story.send(State.ASKED), story.send()
    story.acknowledge(taken, State.ASKED)
    if there:
        story.show(copy, taken)
    assert story.rules() == []


def test_what_was_found_once_must_stay(story):
    story.show(story.send(State.ASKED))
    assert story.rules(again=True) == []
    story.contents[QUEUE].clear()
    assert story.rules() == ["lost"]


def test_what_was_missing_once_must_not_come_back(story):
    copy = story.send(State.ASKED)
    assert story.rules(again=True) == []
    story.show(copy)
    assert story.rules() == ["came back"]


def test_an_acknowledged_message_comes_back(story):
    copy = story.send()
    story.acknowledge(copy, State.DONE)
    story.show(copy)
    assert story.rules() == ["came back"]


@pytest.mark.parametrize("state", [State.OPEN, State.UNDONE])
def test_a_message_of_an_unfinished_transaction_is_there(story, state):
    story.show(story.send(state))
    assert story.rules() == ["came back"]


def test_a_message_that_nobody_sent(story):
    story.contents[QUEUE].append(Seen(QUEUE, QUEUE, "nobody/1", "pending", 4, 0))
    assert story.rules() == ["never sent"]


@pytest.mark.parametrize(
    "more, places, rules",
    [
        ({}, [], ["lost"]),
        ({}, [QUEUE, QUEUE], ["twice"]),
        ({}, [QUEUE, DEAD], ["twice"]),
        ({}, [DEAD], []),
        ({"durable": False}, [QUEUE], ["not durable"]),
        ({"queues": (QUEUE, OTHER), "state": State.ASKED}, [QUEUE], ["half"]),
    ],
)
def test_places_of_one_message(story, more, places, rules):
    copy = story.send(**more)
    for place in places:
        story.show(copy, place=place)
    assert story.rules() == rules


@pytest.mark.parametrize("missing", ["entry", "exit"])
def test_half_a_transaction(story, missing):
    taken = story.send()
    unit = story.ledger.unit("COMMIT")
    made = story.send(State.ASKED, (OTHER,), unit)
    story.ledger.leave(unit, taken)
    if missing == "exit":
        story.show(made, taken)
    assert story.rules() == ["half"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_whole_transaction(story, happened):
    taken = story.send()
    unit = story.ledger.unit("COMMIT")
    made = [story.send(State.ASKED, (OTHER,), unit) for _ in range(3)]
    story.ledger.leave(unit, taken)
    story.show(*(made if happened else [taken]))
    assert story.rules() == []


def test_out_of_order(story):
    first, second = story.send(), story.send()
    story.show(second, first)
    assert story.rules() == ["order"]


def test_priorities_have_orders_of_their_own(story):
    low, high = story.send(priority=1), story.send(priority=9)
    story.show(high, low)
    assert story.rules() == []
    story.contents[QUEUE].reverse()
    assert story.rules() == ["order"]


def test_counters_that_lie(story):
    story.show(story.send())
    story.counted[QUEUE] = (2, 0, 0)
    assert story.rules() == ["counters"]


@pytest.mark.parametrize(
    "shown, rules",
    [
        (slice(-RING, None), []),
        (slice(-RING, -1), ["lost"]),
        (slice(-RING - 1, None), ["ring", "ring"]),
        (slice(0, RING), ["lost"] * 5 + ["ring"] * 5),
    ],
    ids=["the newest", "a new one is missing", "too many", "old ones came back"],
)
def test_a_ring_holds_the_newest(story, shown, rules):
    copies = [story.send(queues=(RINGED,)) for _ in range(RING + 5)]
    story.show(*copies[shown])
    assert story.rules() == rules


def test_dead_letters_of_a_ring_are_not_in_it(story):
    copies = [story.send(queues=(RINGED,)) for _ in range(RING + 1)]
    story.show(copies[0], place=DEAD)
    story.show(*copies[1:])
    assert story.rules() == []


def test_a_ring_may_hold_what_the_unreceipted_sends_left(story):
    copies = [story.send(queues=(RINGED,)) for _ in range(RING)]
    story.send(State.ASKED, (RINGED,))
    story.show(*copies)
    assert story.rules() == []


def test_schedules(story):
    early, late = story.send(due=now() + 60_000), story.send(due=now() - 60_000)
    story.show(early, state="pending")
    story.show(late, state="scheduled")
    assert story.rules() == ["too early", "too late"]


def test_expiry(story):
    overdue, alive = story.send(expires=now() - 60_000), story.send(expires=now() + 60_000)
    story.show(overdue)
    story.show(alive, place=EXPIRED)
    assert story.rules() == ["expired", "overdue"]


def test_forgotten_attempts(story):
    copy = story.send()
    copy.attempts = 2
    story.show(copy, attempts=1)
    assert story.rules() == ["attempts"]


def test_deliveries(story):
    ledger = story.ledger
    ledger.delivered(QUEUE, story.send().text, "a")
    ledger.delivered(QUEUE, story.send(State.OPEN).text, "a")
    held = story.send()
    ledger.delivered(QUEUE, held.text, "a")
    ledger.delivered(QUEUE, held.text, "b")
    ended = story.send()
    story.acknowledge(ended, State.ASKED)
    ledger.delivered(QUEUE, ended.text, "a")
    gone = story.send()
    story.acknowledge(gone, State.DONE)
    ledger.forget_done()
    ledger.delivered(QUEUE, gone.text, "a")
    ledger.delivered(QUEUE, story.send(due=now() + 60_000).text, "a")
    ledger.delivered(QUEUE, story.send(expires=now() - 60_000).text, "a")
    assert [fault.rule for fault in ledger.faults] == [
        "not committed",
        "delivered twice",
        "came back",
        "came back",
        "too early",
        "expired",
    ]


def test_a_message_is_in_delivery_when_all_clients_have_gone(story):
    story.show(story.send(), state="delivering")
    assert story.rules() == ["held"]


def test_a_group_belongs_to_one_consumer_until_that_goes(story):
    ledger, (lasting, another), (ending,) = story.ledger, LASTING_GROUPS, ENDING_GROUPS

    def delivered(group, holder, queue=QUEUE, moved=False):
        copy = story.send(queues=(queue,), message_group=group)
        ledger.delivered(queue, copy.text, holder, moved=moved)
        rules, ledger.faults = [fault.rule for fault in ledger.faults], []
        return rules

    assert delivered(lasting, "a") == delivered(another, "b") == delivered(lasting, "b", OTHER) == []
    assert delivered(lasting, "b") == ["group"]
    assert delivered(lasting, "reader of dead letters", moved=True) == []
    assert delivered(ending, "a") == delivered(ending, "b") == []
    ledger.gone("a")
    assert delivered(lasting, "b") == []
    assert delivered(lasting, "a") == ["group"]
    ledger.next_life(set())
    assert delivered(lasting, "a") == []


def test_a_consumer_is_given_a_group_in_order(story):
    world = Context(0, 0, story.ledger, Identifiers(), Random(1))
    consumer = Consumer(world, ConsumerProfile(QUEUE, QUEUE), "c")
    consumer.wire = wire = object()

    def take(copy, redelivered="false"):
        consumer.take(
            wire, Frame("MESSAGE", {"redelivered": redelivered, "ack": "1"}, copy.text.encode() + b"|")
        )
        rules, story.ledger.faults = [fault.rule for fault in story.ledger.faults], []
        return rules

    group, another = LASTING_GROUPS
    first, of_another, second, third = (
        story.send(message_group=name) for name in (group, another, group, group)
    )
    assert take(third) == take(of_another) == take(first, "true") == []
    assert take(second) == ["order"]


def test_a_fault_tells_the_whole_history(story):
    copy = story.send()
    story.ledger.delivered(QUEUE, copy.text, "somebody")
    story.ledger.delivered(QUEUE, copy.text, "somebody else")
    (fault,) = story.ledger.faults
    for told in ("p/1", QUEUE, "receipted", "somebody else", "life 1"):
        assert told in str(fault)


def value(story, state=State.DONE, key="k"):
    return story.send(state, (KEYED,), key=key)


def test_the_newest_value_of_each_key_stays(story):
    value(story)
    story.show(value(story), value(story, key="l"))
    assert story.rules() == []


@pytest.mark.parametrize("newer", [True, False])
def test_a_value_that_was_not_receipted_may_have_replaced_the_older_one(story, newer):
    older, unsure = value(story), value(story, State.ASKED)
    story.show(unsure if newer else older)
    assert story.rules(again=True) == []


def test_two_values_of_one_key(story):
    story.show(value(story), value(story))
    assert story.rules() == ["last value"]


@pytest.mark.parametrize(
    "first_is_there, second, rules",
    [
        (True, State.DONE, ["last value", "lost"]),  # an older one in place of a promised one
        (False, State.ASKED, ["last value"]),  # gone before the next was there
        (False, State.UNDONE, ["last value", "lost"]),  # what is undone replaces nothing
    ],
)
def test_a_key_without_its_value(story, first_is_there, second, rules):
    first = value(story)
    value(story, second)
    story.show(*[first] * first_is_there)
    assert story.rules() == rules
