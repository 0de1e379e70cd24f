"""A script of actions against a real broker, and the events that it must leave: counted from what clients did and got.

Nothing here reads a file of the broker. A message is known by its *mark*, the first word of its body.
"""

import re
from collections import Counter
from contextlib import contextmanager

from ..broker_document import anycast, multicast
from ..end_to_end.lasting import DURABLE

#: Small segments, in which little counts before they are compacted, and all of it is kept.
CORE = (
    "<journal-file-size>6KB</journal-file-size><journal-compact-min-files>2</journal-compact-min-files>"
    "<journal-compact-percentage>80</journal-compact-percentage>"
    '<journal-retention-directory sample-period="500">data/retention</journal-retention-directory>'
)

#: Milliseconds of a redelivery-delay.
DELAY = 60

SETTINGS = {
    "paged.#": {"max-size-messages": 3, "page-size-bytes": 4096},
    "paged.slow": {"max-size-messages": 3, "page-size-bytes": 4096, "redelivery-delay": DELAY},
    "paged.dying": {
        "max-size-messages": 3,
        "page-size-bytes": 4096,
        "max-delivery-attempts": 1,
        "dead-letter-address": "dead",
    },
    "slow": {"redelivery-delay": DELAY},
    "dying": {"max-delivery-attempts": 2, "dead-letter-address": "dead"},
    "expiring": {"expiry-address": "expired"},
}

ADDRESSES = (
    "".join(map(anycast, ("plain", "waiting", "churn", "returned", "slow", "dying", "dead", "expiring")))
    + "".join(map(anycast, ("expired", "purged", "committed", "lasting", "later", "orders")))
    + anycast("ring", 'ring-size="3"')
    + anycast("kept", 'non-destructive="true"')
    + "".join(map(anycast, ("paged.plain", "paged.slow", "paged.dying", "paged.lasting", "paged.later")))
    + multicast("recurring", queue="recurring.one", inside="<durable>true</durable>")
)

#: The same with some queues that no restart brings back.
PASSING_ADDRESSES = re.sub(
    r'(<queue name="(?:plain|returned|dying|dead|ring|paged[.]plain|paged[.]slow)" [^>]*>)',
    r"\1<durable>false</durable>",
    ADDRESSES.replace("<durable>true</durable>", "<durable>false</durable>"),
)


def mark_of(frame):
    """What a message is known by."""
    return frame.body.decode().partition(" ")[0]


class Actions:
    """Clients of one broker, and what must be told of what they do."""

    def __init__(self, broker, *, durable=True):
        self.broker = broker
        self.sent = DURABLE if durable else {}  # headers of every SEND
        self.expected = Counter()
        self.sender = broker.connect()
        self._last = 0

    def expect(self, queue, marks, *events, times=1):
        """Each of these events for each of these messages."""
        for each in [marks] if isinstance(marks, str) else marks:
            for event in events:
                self.expected[queue, each, event] += times

    def send(self, destination, count=1, queues=(), **headers):
        """Messages, which enter ``queues`` (or the one of the same name); returns their marks."""
        marks = [f"m{number}" for number in range(self._last, self._last + count)]
        self._last += count
        self.sender.put(destination, *[f"{each} ".ljust(90, "x") for each in marks], **self.sent, **headers)
        for queue in queues or (destination,):
            self.expect(queue, marks, "added")
        return marks

    def reader(self, queue, window=0, ack="client-individual"):
        """A client that takes messages of a queue; no more than ``window`` at once where that is given."""
        return Reader(self, queue, window, ack)

    def again(self, how):
        """The broker ends, by ``stop`` or ``kill``, and begins anew; all connections are lost."""
        self.broker.again(how)
        self.sender = self.broker.connect()


class Reader:
    """One subscription, every delivery of which is counted."""

    def __init__(self, actions, queue, window, ack):
        self.actions = actions
        self.queue = queue
        self.client = actions.broker.connect()
        self.out = []
        credit = {"prefetch_count": window} if window else {}
        self.client.subscribe(f"::{queue}", id="r", ack=ack, **credit)

    def take(self, count=1):
        """Messages as they come: each is a delivery."""
        frames = [self.client.message() for _ in range(count)]
        self.actions.expect(self.queue, [mark_of(each) for each in frames], "delivered")
        self.out += frames
        return frames

    def ack(self, count=1, **headers):
        """Take so many and acknowledge each."""
        return [self.answer("ACK", self.take()[0], "acknowledged", **headers) for _ in range(count)]

    def nack(self, count=1, *events, **headers):
        """Take so many and refuse each, which is told by these events."""
        events = events or ("redelivered",)
        return [self.answer("NACK", self.take()[0], *events, **headers) for _ in range(count)]

    def drain(self, count):
        """Take so many, which the subscription acknowledges by itself, and go."""
        marks = [mark_of(each) for each in self.take(count)]
        self.actions.expect(self.queue, marks, "acknowledged")
        self.out.clear()
        self.leave()
        return marks

    def answer(self, command, frame, *events, **headers):
        """ACK or NACK what was taken, and what comes of that."""
        self.client.answer(command, frame, **headers)
        self.out.remove(frame)
        self.actions.expect(self.queue, mark_of(frame), *events)
        return mark_of(frame)

    def leave(self, how="UNSUBSCRIBE"):
        """Go; what is out comes back, what was not looked at too."""
        self.take(self.client.waiting())
        self.actions.expect(self.queue, [mark_of(each) for each in self.out], "redelivered")
        if how == "UNSUBSCRIBE":
            self.client.ask("UNSUBSCRIBE", {"id": "r"})
        elif how == "DISCONNECT":
            self.client.disconnect()
        else:
            self.client.kill()
        self.actions.broker.management.expect(self.queue, consumerCount=0, deliveringCount=0)


def subscribers(actions):
    """Two durable subscriptions of a topic, no NACK, no disconnect."""
    first = actions.broker.connect(client_id="first")
    second = actions.broker.connect(client_id="second")
    for client in (first, second):
        client.ask(
            "SUBSCRIBE",
            {"destination": "/topic/news", "id": "s", "ack": "client", "durable-subscription-name": "sub"},
        )
    names = ("first.sub", "second.sub")
    for _ in range(4):
        marks = actions.send("/topic/news", 60, names)
        for name, client in zip(names, (first, second), strict=True):
            frames = [client.message() for _ in marks]
            assert [mark_of(each) for each in frames] == marks
            client.answer("ACK", frames[-1])
            actions.expect(name, marks, "delivered", "acknowledged")
    for client in (first, second):
        client.disconnect()


def acknowledged_at_once(actions):
    """Consumers that are there when messages come: ``auto``, and in a transaction."""
    reader = actions.reader("plain", ack="auto")
    marks = actions.send("plain", 40)
    assert reader.drain(40) == marks


def waiting(actions):
    """A hundred messages wait while compaction writes them once more, time and again; then they are taken at once."""
    marks = actions.send("waiting", 100)
    for _ in range(6):
        actions.send("churn", 100)
        actions.reader("churn", ack="auto").drain(100)
    assert actions.reader("waiting", ack="auto").drain(100) == marks


def redelivered(actions):
    """NACK, UNSUBSCRIBE, DISCONNECT and lost connections; and a consumer who is there when the message comes."""
    reader = actions.reader("returned", 1)
    actions.send("returned")
    reader.nack(3)
    reader.ack()
    actions.send("returned", 20)
    reader.take()
    reader.leave()
    for how in ("UNSUBSCRIBE", "DISCONNECT", "LOST"):
        reader = actions.reader("returned", 4)
        reader.take(4)
        reader.leave(how)
    actions.reader("returned", ack="auto").drain(20)


def documented(actions):
    """The example of docs/pipeline.md."""
    actions.send("orders", 3)
    reader = actions.reader("orders", 1)
    reader.nack()
    reader.ack(2)
    reader.take()
    reader.leave("LOST")
    reader = actions.reader("orders", 1)
    reader.ack()
    reader.leave()


def slow(actions):
    """What came back waits for its redelivery-delay."""
    reader = actions.reader("slow", 1)
    actions.send("slow")
    reader.nack(2, "redelivered", "scheduled")
    reader.ack()
    reader.leave()


def dead_letters(actions):
    """The second failed delivery is the last one."""
    reader = actions.reader("dying", 1)
    marks = actions.send("dying", 3)
    for _ in marks:
        reader.nack()
        reader.nack(1, "killed", "dead-lettered")
    actions.expect("dead", marks, "added")
    reader.leave()
    reader = actions.reader("dead", 1)
    reader.ack(2)
    reader.take()
    reader.leave()


def expiry(actions):
    """Time is over while messages wait."""
    marks = actions.send("expiring", 4, expires=1)
    actions.broker.management.expect("expiring", messageCount=0)
    actions.expect("expiring", marks, "expired", "moved")
    actions.expect("expired", marks, "added")


def rings(actions):
    """Three stay, of which one goes out, comes back and is pushed out."""
    marks = actions.send("ring", 10)
    actions.expect("ring", marks[:7], "replaced")
    reader = actions.reader("ring", 1)
    reader.nack()
    reader.take()
    reader.leave()
    newer = actions.send("ring", 3)
    actions.expect("ring", marks[7:], "replaced")
    assert actions.reader("ring", ack="auto").drain(3) == newer


def purged(actions):
    """Management empties a queue, while a message is out."""
    actions.send("purged", 5)
    reader = actions.reader("purged", 1)
    (out,) = reader.take()
    actions.broker.management.ask("POST", "/queues/purged/purge")
    kept = mark_of(out)
    everything = {each for queue, each, event in actions.expected if queue == "purged" and event == "added"}
    actions.expect("purged", sorted(everything - {kept}), "killed")
    reader.answer("ACK", out, "acknowledged")
    reader.leave()


def non_destructive(actions):
    """Messages stay: who reads them is not told, who refuses one is."""
    marks = actions.send("kept", 4)
    for _ in range(2):
        client = actions.broker.connect()
        client.subscribe("::kept", id="r", prefetch_count=1)
        client.answer("NACK", client.message())
        for _ in marks:
            client.answer("ACK", client.message())
        client.nothing()
        client.disconnect()
    actions.expect("kept", marks[0], "redelivered", times=2)


def transactions(actions):
    """What is committed has happened, what is aborted has not."""
    client = actions.sender
    for name in ("kept", "lost"):
        client.send("BEGIN", {"transaction": name})
        for number in range(3):
            headers = {"destination": "committed", "transaction": name, **actions.sent}
            client.send("SEND", headers, f"{name}{number} x".encode())
    client.ask("ABORT", {"transaction": "lost"})
    client.ask("COMMIT", {"transaction": "kept"})
    actions.expect("committed", ["kept0", "kept1", "kept2"], "added")
    reader = actions.reader("committed", 1)
    reader.client.send("BEGIN", {"transaction": "t"})
    reader.nack(1, transaction="t")
    reader.client.ask("COMMIT", {"transaction": "t"})
    reader.client.send("BEGIN", {"transaction": "u"})
    reader.ack(1, transaction="u")
    reader.client.ask("COMMIT", {"transaction": "u"})
    (frame,) = reader.take()
    reader.client.send("BEGIN", {"transaction": "v"})
    reader.client.answer("ACK", frame, transaction="v")
    reader.client.ask("ABORT", {"transaction": "v"})
    reader.client.answer("ACK", frame)
    actions.expect("committed", mark_of(frame), "acknowledged")
    reader.out.clear()
    reader.leave()


def scheduled(actions):
    """Once, and a message of two queues that comes three times in each."""
    actions.send("later", 2, AMQ_SCHEDULED_DELAY=DELAY)
    marks = [each for queue, each, event in actions.expected if queue == "later" and event == "added"]
    actions.expect("later", marks, "scheduled")
    reader = actions.reader("later", 1)
    reader.ack(2)
    reader.leave()
    actions.send("later", 1, AMQ_SCHEDULED_TIME=1)  # that time is over: nothing waits
    reader = actions.reader("later", 1)
    reader.ack()
    reader.leave()
    made = {"name": "recurring.two", "address": "recurring", "routingType": "MULTICAST", "durable": True}
    actions.broker.management.ask("POST", "/queues", made)
    queues = ("recurring.one", "recurring.two")
    readers = [actions.reader(queue, 1) for queue in queues]
    recurs = {"AMQ_SCHEDULED_DELAY": DELAY, "AMQ_SCHEDULED_PERIOD": 100, "AMQ_SCHEDULED_REPEAT": 2}
    marks = actions.send("/topic/recurring", 1, queues, **recurs)
    for reader in readers:
        reader.ack(3)
        actions.expect(reader.queue, marks, "scheduled", times=3)
        actions.expect(reader.queue, marks, "added", times=2)  # the first two were copies of it
        reader.leave()


def paged(actions):
    """More than has a place in memory: taken, refused, given back, delayed, given up, scheduled, purged."""
    queue = "paged.plain"
    actions.send(queue, 120)
    reader = actions.reader(queue, 1)
    reader.nack(3)
    reader.ack(30)
    reader.take()
    reader.leave()
    reader = actions.reader(queue, 8)
    reader.take(8)
    reader.leave("LOST")
    actions.reader(queue, ack="auto").drain(90)
    marks = actions.send(queue, 20)
    actions.broker.management.ask("POST", f"/queues/{queue}/purge")
    actions.expect(queue, marks, "killed")
    actions.send("paged.slow", 6)
    reader = actions.reader("paged.slow", 1)
    reader.nack(6, "redelivered", "scheduled")
    reader.ack(6)
    reader.leave()
    actions.send("paged.dying", 6)
    reader = actions.reader("paged.dying", 1)
    marks = reader.nack(6, "killed", "dead-lettered")
    actions.expect("dead", marks, "added")
    reader.leave()
    marks = actions.send("paged.later", 6, AMQ_SCHEDULED_DELAY=DELAY)
    actions.expect("paged.later", marks, "scheduled")
    reader = actions.reader("paged.later", 1)
    reader.ack(6)
    reader.leave()


def restarts(actions):
    """A stop gives back what is out, a kill does not; nothing is told twice."""
    actions.send("lasting", 10)
    in_memory = actions.send("paged.lasting", 10)[:3]
    for how in ("stop", "kill"):
        readers = [actions.reader(queue, 2) for queue in ("lasting", "paged.lasting")]
        for reader in readers:
            reader.nack()
            reader.ack()
            reader.take(2)
            assert not reader.client.waiting()
        actions.send("plain")  # what was told before is on disk
        if how == "stop":
            for reader in readers:
                actions.expect(reader.queue, [mark_of(each) for each in reader.out], "redelivered")
        else:  # of pages a delivery is told with what comes of it
            for each in {mark_of(frame) for frame in readers[1].out}.difference(in_memory):
                actions.expected["paged.lasting", each, "delivered"] -= 1
        actions.again(how)
    for queue in ("lasting", "paged.lasting", "plain"):
        reader = actions.reader(queue, 1)
        reader.ack(actions.broker.management.queue(queue)["messageCount"])
        reader.leave()


#: In this order: the last ones end the broker.
SCENES = (
    *(subscribers, acknowledged_at_once, waiting, redelivered, documented, slow, dead_letters, expiry, rings),
    *(purged, non_destructive, transactions, scheduled, paged, restarts),
)


#: With messages that are not durable, of which no restart brings back any.
PASSING = SCENES[:-1]


@contextmanager
def run_actions(broker, retain="DURABLE"):
    """All of it has happened, and the broker has written it: with durable messages, or others that are all retained."""
    durable = retain == "DURABLE"
    settings = {match: {**values, "retain": retain} for match, values in ({"#": {}} | SETTINGS).items()}
    broker.start(core=CORE, addresses=ADDRESSES if durable else PASSING_ADDRESSES, settings=settings)
    actions = Actions(broker, durable=durable)
    for scene in SCENES if durable else PASSING:
        scene(actions)
    yield actions


def expected_of(actions):
    """By queue, message and event."""
    found = {}
    for (queue, each, event), count in actions.expected.items():
        if count:
            found.setdefault(queue, {})[each, event] = count
    return found
