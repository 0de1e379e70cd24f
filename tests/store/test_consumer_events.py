"""What has happened to each message is told once, whatever was written when."""

from collections import Counter
from random import Random

import pytest

from stompring.broker.clock import Recurrence
from stompring.broker.ports import Reason
from stompring.broker.reference import SCHEDULED

from ..broker.broker_fixture import MULTICAST, join
from ..pipeline.reference_decoder import events
from .stored_broker import StoredBroker
from .test_retention import files, world


def told(one):
    """What all of its files say."""
    one.turn()
    return Counter(
        (row["queue"], row["message_id"], row["event"])
        for data in files(one, ".journal").values()
        for row in events(data)
    )


class History:
    """Two queues of an address, and others who see what happens to messages there."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.world = world()
        self.queues = [self.world.queue(name, "t", MULTICAST) for name in ("a", "b")]
        self.expected = Counter()
        self.takers = []
        self.log = []  # every delivery
        self.queues[0].hooks.killed = self._killed  # of the address, and so of both
        self.queues[1].hooks.killed = self._killed
        self.world.turn()

    def _killed(self, ref):
        self.note(ref.queue, ref, "killed")

    def note(self, queue, ref, event):
        self.expected[queue.name, ref.message.number, event] += 1

    def everything(self):
        """All that was seen."""
        out = Counter((taker.queue.name, number, "delivered") for taker, number in self.log)
        return self.expected + out

    def returned(self, queue, refs):
        for ref in refs:
            self.note(queue, ref, "redelivered")

    # ---- what may happen

    def send(self):
        message = self.world.durable("t")
        for queue in self.queues:
            self.expected[queue.name, message.number, "added"] += 1

    def come(self):
        queue = self.chance.choice(self.queues)
        self.takers.append((queue, join(queue, self.chance.randint(1, 4), log=self.log)))

    def acknowledge(self):
        for queue, taker in self.chance.sample(self.takers, len(self.takers)):
            if taker.unsettled:
                ref = self.chance.choice(taker.unsettled)
                self.note(queue, ref, "acknowledged")
                taker.ack(ref)
                return

    def refuse(self):
        for queue, taker in self.chance.sample(self.takers, len(self.takers)):
            if taker.unsettled:
                ref = self.chance.choice(taker.unsettled)
                self.returned(queue, [ref])
                taker.nack(ref)
                return

    def go(self):
        if self.takers:
            queue, taker = self.takers.pop(self.chance.randrange(len(self.takers)))
            self.returned(queue, taker.unsettled)
            taker.close()

    def purge(self):
        self.chance.choice(self.queues).purge()

    def turn(self):
        self.world.turn()

    def compact(self):
        self.world.turn()
        self.world.clock.advance(0.01)


@pytest.fixture
def one():
    return world()


@pytest.mark.parametrize("seed", range(12))
def test_records_contain_every_event(seed):
    history = History(seed)
    every = [history.send] * 6 + [history.acknowledge] * 4 + [history.refuse] * 3 + [history.turn] * 2
    every += [history.come, history.come, history.go, history.compact]
    for step in range(250):
        history.chance.choice(every)()
        if step % 60 == 50:
            history.purge()
    assert told(history.world) == history.everything()
    assert {event for *_, event in history.everything()} >= {
        "redelivered",
        "acknowledged",
        "delivered",
        "killed",
    }


def test_requeue_before_the_write_is_recorded(one):
    taker = join(one.queue(), 1)
    number = one.durable().number
    for _ in range(3):
        taker.nack(taker.unsettled[0])
    taker.close()
    expected = Counter(
        {("q", number, "added"): 1, ("q", number, "delivered"): 4, ("q", number, "redelivered"): 4}
    )
    assert told(one) == expected
    again = one.again()
    (ref,) = again.q.dispatcher.in_order()
    assert (ref.deliveries, ref.attempts) == (4, 3)
    assert told(again) == expected


def test_a_message_that_enters_one_more_queue_after_it_was_written(one):
    queues = [one.queue(name, "t", MULTICAST) for name in "ab"]
    taker = join(queues[0], 1)
    message = one.message("t", durable=True)
    queues[0].enqueue(message)
    one.turn()
    taker.nack(taker.unsettled[0])
    queues[1].enqueue(message)
    taker.nack(taker.unsettled[0])
    taker.ack(taker.unsettled[0])
    one.turn()
    number = message.number
    expected = {
        ("a", number, "added"): 1,
        ("a", number, "delivered"): 3,
        ("a", number, "redelivered"): 2,
        ("a", number, "acknowledged"): 1,
        ("b", number, "added"): 1,
    }
    assert told(one) == expected
    again = one.again()
    assert [len(list(again.directory.queues[name].dispatcher.in_order())) for name in "ab"] == [0, 1]


@pytest.mark.parametrize("kept", ["a", "b"])
def test_without_retention_such_a_message_stays_where_it_is(kept):
    """Whichever queue is done with it before it is written once more, and why."""
    one = StoredBroker()
    queues = {name: one.queue(name, "t", MULTICAST) for name in "ab"}
    message = one.message("t", durable=True)
    queues["a"].enqueue(message)
    one.turn()
    queues["b"].enqueue(message)
    queues["b" if kept == "a" else "a"].purge()
    again = one.restarted()
    counts = {name: again.directory.queues[name].message_count for name in "ab"}
    assert counts == {"a": int(kept == "a"), "b": int(kept == "b")}


def test_a_recurring_message_of_two_queues_waits_once_for_each_time(one):
    queues = [one.queue(name, "t", MULTICAST) for name in "ab"]
    takers = [join(queue, auto=True) for queue in queues]
    message = one.message("t", durable=True)
    for queue in queues:
        queue.schedule(message, one.now + 1000, Recurrence(1000, 2))
    for _ in range(4):
        one.turn()
        one.clock.advance(1)
    assert [len(taker.got) for taker in takers] == [3, 3]
    found = told(one)
    for name in "ab":
        assert found[name, message.number, "scheduled"] == 3
        by_event = Counter[str]()
        for (queue, _, event), count in found.items():
            by_event[event] += count if queue == name else 0
        assert by_event == {"added": 3, "scheduled": 3, "delivered": 3, "acknowledged": 3}


def test_a_due_time_that_is_over_before_it_is_written(one):
    queue = one.queue()
    taker = join(queue, auto=True)
    one.store.begin()
    message = one.message(durable=True)
    ref = queue.schedule(message, one.now + 5)
    one.clock.advance(1)
    one.store.commit()
    assert ref.state != SCHEDULED and len(taker.got) == 1
    number = message.number
    events = ("added", "scheduled", "delivered", "acknowledged")
    assert told(one) == {("q", number, event): 1 for event in events}


def test_reason_is_recorded_for_each_queue_of_a_message(one):
    queues = [one.queue(name, "t", MULTICAST) for name in "ab"]
    number = one.durable("t").number
    queues[0].purge()
    (ref,) = queues[1].dispatcher.in_order()
    queues[1].detach(ref)
    queues[1].drop(ref, Reason.EXPIRED)
    assert told(one) == {
        ("a", number, "added"): 1,
        ("b", number, "added"): 1,
        ("a", number, "killed"): 1,
        ("b", number, "expired"): 1,
    }
