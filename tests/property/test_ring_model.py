"""Rings beside the plainest model of one: a list that loses its head, or turns away who comes to its head.

Of several who come to its head together it turns away the oldest.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ..broker.broker_fixture import MULTICAST, BrokerFixture, assert_nothing_held, bodies, join
from .profile import examples

SIZES = st.sampled_from([-1, 1, 1, 2, 3, 7])


@dataclass
class Ring:
    """Bodies in the order of delivery; one priority, so places need no numbers beyond the bodies themselves."""

    size: int
    pending: list[int] = field(default_factory=list)
    scheduled: list[int] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)  # of those that fell due: before all others
    out: list[int] = field(default_factory=list)
    replaced: int = 0
    acknowledged: int = 0

    def add_at_tail(self, body):
        self.pending.append(body)
        if 0 <= self.size < len(self.pending):
            del self.pending[0]
            self.replaced += 1

    def fall_due(self):
        """All that is scheduled, at one moment: the newest find the places that are free."""
        free = len(self.scheduled) if self.size < 0 else max(0, self.size - len(self.pending))
        stay = self.scheduled[max(0, len(self.scheduled) - free) :]
        self.replaced += len(self.scheduled) - len(stay)
        first = min(self.places.values(), default=0) - len(stay)
        self.places.update(zip(stay, range(first, 0), strict=False))
        self.pending[:0] = stay
        self.scheduled.clear()

    def place(self, body):
        return self.places.get(body, body)

    def take(self):
        self.out.append(self.pending.pop(0))

    def come_back(self):
        """The consumer goes: in reverse order, each is lost itself to a full ring."""
        for body in reversed(sorted(self.out, key=self.place)):
            if 0 <= self.size <= len(self.pending):
                self.replaced += 1
            else:
                self.pending.append(body)
                self.pending.sort(key=self.place)
        self.out.clear()

    def acknowledge(self):
        self.acknowledged += len(self.out)
        self.out.clear()


class Reading:
    """A queue with at most one consumer, and its model."""

    def __init__(self, queue, size):
        self.queue = queue
        self.ring = Ring(size)
        self.taker = None

    def take(self):
        if self.taker is None:
            self.taker = join(self.queue, 0)
        if self.ring.pending:
            self.taker.give_credit()
            self.ring.take()

    def acknowledge(self):
        if self.taker is not None:
            for ref in list(self.taker.unsettled):
                self.taker.unsettled.remove(ref)
                self.queue.settle(ref)
        self.ring.acknowledge()

    def close(self):
        if self.taker is not None:
            self.taker.close()
            self.taker = None
        self.ring.come_back()

    def compare(self):
        queue, ring = self.queue, self.ring
        assert bodies(queue) == [b"%d" % body for body in ring.pending]
        assert (queue.count, queue.delivering) == (len(ring.pending), len(ring.out))
        assert queue.scheduled_count == len(ring.scheduled)
        assert (queue.messages_replaced, queue.messages_acknowledged) == (ring.replaced, ring.acknowledged)
        left = ring.replaced + ring.acknowledged
        assert queue.messages_added == left + queue.message_count


STEPS = st.lists(
    st.sampled_from(["send", "send", "send", "later", "later", "due", "take", "ack", "close"]), max_size=60
)


@given(size=SIZES, steps=STEPS)
@examples(300)
def test_one_ring(size, steps):
    world = BrokerFixture()
    reading = Reading(world.queue("q", ring_size=size), size)
    due = world.now + 1000
    for number, step in enumerate(steps):
        if step == "send":
            world.send("q", b"%d" % number)
            reading.ring.add_at_tail(number)
        elif step == "later":
            world.send("q", b"%d" % number, due=due)
            reading.ring.scheduled.append(number)
        elif step == "due":
            world.pass_time(due - world.now)
            due += 1000
            reading.ring.fall_due()
        elif step == "take":
            reading.take()
        elif step == "ack":
            reading.acknowledge()
        else:
            reading.close()
        reading.compare()
    reading.close()
    reading.queue.purge()
    assert_nothing_held(world)


ADDRESSES = ("a.x", "a.y", "b")
#: Each queue's address, and where messages for it may be sent to.
QUEUES = {
    "x": ("a.x", {"a.x"}),
    "x2": ("a.x", {"a.x"}),
    "y": ("a.y", {"a.y"}),
    "star": ("a.*", {"a.x", "a.y"}),
    "all": ("#", {"a.x", "a.y", "b"}),
}
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "take", "ack", "close", "resize", "delete", "make"]),
        st.integers(0, 100),
        SIZES,
    ),
    max_size=60,
)


@given(sizes=st.lists(SIZES, min_size=len(QUEUES), max_size=len(QUEUES)), acts=ACTS)
@examples(200)
def test_rings_of_a_multicast_address_and_of_wildcards(sizes, acts):
    world = BrokerFixture({"#": {"auto_delete_addresses": False}})

    def make(name, size):
        return Reading(world.queue(name, QUEUES[name][0], MULTICAST, ring_size=size), size)

    readings = {name: make(name, size) for name, size in zip(QUEUES, sizes, strict=True)}
    for number, (act, choice, size) in enumerate(acts):
        name = list(QUEUES)[choice % len(QUEUES)]
        reading = readings.get(name)
        if act == "send":
            address = ADDRESSES[choice % len(ADDRESSES)]
            world.send(address, b"%d" % number)
            for other, (_, sources) in QUEUES.items():
                if other in readings and address in sources:
                    readings[other].ring.add_at_tail(number)
        elif act == "make" and reading is None:
            readings[name] = make(name, size)
        elif reading is None:
            continue
        elif act == "take":
            reading.take()
        elif act == "ack":
            reading.acknowledge()
        elif act == "close":
            reading.close()
        elif act == "resize":
            world.directory.update_queue(reading.queue, {"ring_size": size})
            reading.ring.size = size
        elif act == "delete":
            world.directory.delete_queue(name, force=True)
            del readings[name]
            assert reading.queue.message_count == 0 and reading.queue.persistent_size == 0
        for reading in readings.values():
            reading.compare()
        held = {ref.message.number for r in readings.values() for ref in r.queue.dispatcher.in_order()}
        held |= {ref.message.number for r in readings.values() if r.taker for ref in r.taker.unsettled}
        assert world.broker.memory.messages == len(held), "a message of several queues counts once"
    for reading in readings.values():
        reading.close()
        reading.queue.purge()
    assert_nothing_held(world)
