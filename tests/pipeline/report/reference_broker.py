"""A small broker in plain Python, that writes down what a lake has of it, and what a report must say."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

T0 = datetime(2026, 7, 1, tzinfo=UTC)
SECONDS = 7200
RESTART = 4000  # between two samples
EVERY = 10

HOSTILE = "ring <script>alert('&amp;')</script>"


def simulated(pairs, size, depth, emptied=None, left=None):
    """What a ring evicts, message by message; ``pairs`` are how many came and went in each bucket.

    ``emptied``: at the end of which buckets all goes. ``left`` takes what is left after each.
    """
    ring = deque(object() for _ in range(min(depth, size)))
    lost = 0
    for place, (came, went) in enumerate(pairs):
        gone = 0
        for number in range(1, came + 1):
            if len(ring) == size:
                ring.popleft()
                lost += 1
            ring.append(object())
            due = number * went // came
            for _ in range(due - gone):
                if ring:
                    ring.popleft()
            gone = due
        for _ in range(went - gone):
            if ring:
                ring.popleft()
        if emptied is not None and emptied[place]:
            ring.clear()
        if left is not None:
            left.append(len(ring))
    return lost


def emptied(pairs, size):
    """In which buckets consumers left nothing in a ring of that size."""
    left = []
    simulated(pairs, size, 0, left=left)
    return [not here and went > 0 for here, (_, went) in zip(left, pairs, strict=True)]


@dataclass
class PlainQueue:
    """One queue. ``room``: what fits into memory, the rest is in pages."""

    address: str
    queue: str
    ring: int = 0
    durable: bool = True
    room: int = 10**9
    reader: str | None = ""  # who acknowledges: "" is somebody of whom nothing is told, None is nobody
    user: str | None = None  # who sends
    plain: int = 0  # each so many messages one is not durable
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # number, second in which it was sent
    counters: Counter[str] = field(default_factory=Counter)
    seen: dict[str, int] = field(default_factory=dict)

    def row(self, consumers):
        """Its numbers in a sample."""
        inside = [number for number, _ in list(self.waiting)[: self.room]]
        return {
            "ring_size": self.ring,
            "messages": len(self.waiting),
            "paged": len(self.waiting) - len(inside),
            "consumers": consumers,
            **{
                name: self.counters[name]
                for name in ("added", "acknowledged", "expired", "killed", "replaced")
            },
            "size": sum(100 + number % 7 for number in inside),
        }


class PlainBroker:
    """``happened`` has what became of messages: second, queue, event, number, second in which it was sent."""

    def __init__(self):
        self.chance = random.Random(7)
        self.queues = [
            PlainQueue("orders", "orders", reader="shop", user="alice"),
            PlainQueue("rings", HOSTILE, ring=3),
            PlainQueue("metrics", "metrics", ring=5, durable=False),
            PlainQueue("bulk.in", "bulk", room=20),
            PlainQueue("late", "late", user="bob"),
            PlainQueue("alone", "alone", ring=4, reader=None),
            PlainQueue("unread", "unread", reader=None, user="bob", plain=3),
        ]
        self.messages = []
        self.events = []
        self.samples = []
        self.happened = []
        self.plain = set()  # messages that are not durable
        self.numbers = 0
        for second in range(SECONDS):
            if second == RESTART:
                self.sample(second, full=False)  # it stopped in good order
                for queue in self.queues:
                    retained = [one for one in queue.waiting if queue.durable and one[0] not in self.plain]
                    queue.waiting = deque(retained)
                    # What is brought back is counted, as if it had just come.
                    queue.counters = Counter(added=len(retained))
            if second % EVERY == 0 or second == RESTART:
                self.sample(second, full=second in (0, 3600, RESTART))
            for queue in self.queues:
                self.work(queue, second)
        self.sample(SECONDS, full=False)

    def work(self, queue, second):
        chance = self.chance
        if queue.queue == "late" and second < 5005:
            return
        if queue.reader is None:
            if second % 7 == 0:
                self.add(queue, second)
            return
        busy = second % 600 < 300
        for _ in range(chance.choice([0, 0, 0, 1, 1, 2]) if busy else chance.choice([0, 0, 0, 0, 1])):
            self.add(queue, second)
        takes = 0 if queue.queue == "bulk" and busy else chance.choice([0, 0, 1, 1, 2])
        for _ in range(min(takes, len(queue.waiting))):
            number, sent = queue.waiting.popleft()
            if queue.queue == "orders" and chance.random() < 0.1:
                for attempt in range(chance.choice([1, 1, 4])):
                    self.tell(queue, second, "redelivered", number, sent, deliveries=attempt + 1)
                if chance.random() < 0.3:
                    self.tell(queue, second, "dead-lettered", number, sent)
                    self.tell(queue, second, "killed", number, sent)
                    continue
            self.tell(queue, second, "acknowledged", number, sent)

    def add(self, queue, second):
        if queue.ring and len(queue.waiting) == queue.ring:
            self.tell(queue, second, "replaced", *queue.waiting.popleft())
        self.numbers += 1
        if queue.plain and self.numbers % queue.plain == 0:
            self.plain.add(self.numbers)
        scheduled = queue.queue == "orders" and self.numbers % 50 == 0
        if queue.durable and self.numbers not in self.plain:
            at = T0 + timedelta(seconds=second + 0.5)
            due = at + timedelta(seconds=3) if scheduled else None
            self.messages.append(
                {"address": queue.address, "queue": queue.queue, "message_id": self.numbers, "timestamp": at}
                | {"due": due, "durable": True, "body": b"never read", "user": queue.user}
            )
        queue.waiting.append((self.numbers, second + 3 if scheduled else second))
        self.tell(queue, second, "added", self.numbers, second)

    def tell(self, queue, second, event, number, sent, deliveries=0):
        queue.counters[event] += 1
        self.happened.append((second, queue.queue, event, number, sent))
        if queue.durable and number not in self.plain:
            at = T0 + timedelta(seconds=second + 0.5)
            reader = f"{queue.reader}-{number % 3}/s" if event == "acknowledged" and queue.reader else None
            # Events of messages in the journal do not know their address.
            self.events.append(
                {"time": at, "event": event, "address": None, "queue": queue.queue, "message_id": number}
                | {"page": None, "deliveries": deliveries, "consumer": reader}
            )

    def sample(self, second, full):
        for queue in self.queues:
            row = queue.row(self.consumers(queue, second, full))
            if queue.queue == "late" and second < 5000:
                continue  # it is not there yet
            if full or row != queue.seen:
                queue.seen = row
                # A millisecond later than what the stop saw.
                at = T0 + timedelta(seconds=second, milliseconds=second == RESTART and full)
                self.samples.append({"time": at, "address": queue.address, "queue": queue.queue} | row)

    def consumers(self, queue, second, full):
        """Those of a queue in a sample: the first one after a start is taken before anybody comes."""
        if queue.reader is None or (second == RESTART and full):
            return 0
        return 1 + second // 600 % 3 if queue.queue == "orders" else 1

    def of(self, event, queue):
        """Second and age of what happened to messages of a queue."""
        wanted = (queue, event)
        return [
            (at, max(0, at - sent)) for at, name, what, _, sent in self.happened if (name, what) == wanted
        ]

    def flow(self, queue):
        """How many came and went in each second."""
        came = Counter(
            second for second, name, event, *_ in self.happened if (name, event) == (queue, "added")
        )
        gone = ("acknowledged", "expired", "killed")
        went = Counter(second for second, name, event, *_ in self.happened if name == queue and event in gone)
        return [(came[second], went[second]) for second in range(SECONDS)]

    def depths(self, queue):
        """The samples of a queue: seconds since the beginning, and messages."""
        for row in self.samples:
            if row["queue"] == queue:
                yield (row["time"] - T0).total_seconds(), row["messages"]
