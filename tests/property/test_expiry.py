"""No message outlives its expiry but in delivery: in memory, on pages, recovered, redelivered, on queues that stand.

A whole broker in process, whose clients, clock and kills are random. The model is when each message expires.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from ..crash.in_process import SETTINGS, Life
from ..session.session_fixture import frame
from ..store.memory_files import MemoryFiles
from .profile import EXAMPLES, QUICK

QUEUES = ("memory", "paged", "always")
EXPIRED = "EXP"
#: Milliseconds that the broker may take: it looks at the times of an address that pages every 10 ms.
SLACK = 20
#: Milliseconds; messages of different lifetimes share pages. The last are beyond what a page lists at a time.
LIFETIMES = (0, 5, 100, 1000, 1500, 3000, 8000, 400_000)
WAITS = (1, 30, 30, 30, 250, 250, 1000, 2500, 6000, 400_000)
MORE = (
    {},
    {},
    {"colour": "red"},
    {"JMSXGroupID": "g"},
    {"AMQ_SCHEDULED_DELAY": "600"},
    {"priority": "7"},
)
STEPS = 150


@dataclass
class Sent:
    """A message that may be in its queue."""

    queue: str
    expires: int  # 0: never
    durable: bool
    holder: object = None


class Consumer:
    """A client with one subscription, and what it has in delivery."""

    def __init__(self, talker):
        self.talker = talker
        self.held = {}  # what an ACK says, by text


class Story:
    """One broker after the other on the same files, and what clients do with them."""

    def __init__(self, seed):
        self.random = random = Random(seed)
        #: what the address has before it pages, and what its pages are read into
        memory, self.dispatch = random.choice([1500, 4000, 20_000]), random.choice([500, 3000, 1 << 20])
        self.told = [f"seed {seed}, {memory} and {self.dispatch} bytes"]
        self.sent = {}
        self.number = 0
        settings = {
            "#": SETTINGS["#"] | {"max_delivery_attempts": -1, "expiry_address": EXPIRED},
            "paged": {"max_size_bytes": memory, "page_size_bytes": 1024},
            "always": {"max_size_messages": 0, "page_size_bytes": 1024, "redelivery_delay": 700},
        }
        self.attach(Life(MemoryFiles(), Path("/data"), settings=settings))

    def attach(self, life):
        """This broker runs now."""
        self.life = life
        life.dispatch.budget.limit = self.dispatch
        self.producer = life.talker()
        self.consumers = []
        self.suspended = False
        self.listen()

    def play(self):
        """Random steps; then all consumers go, and all times come."""
        steps = (
            [self.send] * 3 + [self.subscribe] * 3 + [self.settle] * 4 + [self.leave] * 2 + [self.wait] * 4
        )
        steps += [self.restart, self.pause_or_resume, self.suspend_or_resume]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check()
        while self.consumers:
            self.leave()
        self.wait(400_000 + SLACK)
        self.check()

    @property
    def now(self):
        """Epoch milliseconds, as the broker sees it."""
        return self.life.world.broker.clock.refresh()

    def listen(self):
        """All that happens at once happens, and clients hear of it."""
        self.life.turn()
        for consumer in self.consumers:
            for got in consumer.talker.read():
                assert got.command == "MESSAGE", got
                text = got.body.partition(b"|")[0].decode()
                self.sent[text].holder = consumer
                consumer.held[text] = got["ack"]

    # ---- steps

    def send(self):
        """Some messages of one kind."""
        random, queue = self.random, self.random.choice(QUEUES)
        count, lifetimes = random.choice([1, 3, 12, 80]), random.sample(LIFETIMES, random.randint(1, 3))
        durable, more, size = random.random() < 0.8, random.choice(MORE), random.choice([10, 400])
        self.told.append(f"send {count} to {queue}, {lifetimes}, {durable=}, {more}, {size=}")
        for _ in range(count):
            self.number += 1
            lifetime = random.choice(lifetimes)
            expires = self.now + lifetime if lifetime else 0
            headers = {"destination": queue, "persistent": str(durable).lower(), **more}
            headers |= {"expires": expires} if expires else {}
            self.sent[str(self.number)] = Sent(queue, expires, durable)
            self.producer.write(frame("SEND", b"%d|" % self.number + b"x" * size, **headers))
        self.listen()

    def subscribe(self):
        """One more consumer."""
        random, consumer = self.random, Consumer(self.life.talker())
        headers = {"destination": random.choice(QUEUES), "prefetch_count": random.choice(["1", "4", "100"])}
        headers |= {"selector": "colour = 'red'"} if random.random() < 0.3 else {}
        self.told.append(f"subscribe, {headers}")
        consumer.talker.say("SUBSCRIBE", id="s", ack="client-individual", **headers)
        self.consumers.append(consumer)
        self.listen()

    def settle(self):
        """ACK or NACK some."""
        holding = [consumer for consumer in self.consumers if consumer.held]
        if not holding:
            return
        consumer, count = self.random.choice(holding), self.random.choice([1, 5, 70])
        command = self.random.choice(["ACK", "NACK"])
        self.told.append(f"{command} {count} of {len(consumer.held)}")
        for text in list(consumer.held)[:count]:
            ack = consumer.held.pop(text)
            self.sent[text].holder = None
            if command == "ACK":
                del self.sent[text]
            consumer.talker.say(command, id=ack)
        self.listen()

    def leave(self):
        """A connection breaks."""
        if self.consumers:
            consumer = self.consumers.pop(self.random.randrange(len(self.consumers)))
            self.told.append(f"a consumer leaves, with {len(consumer.held)}")
            for text in consumer.held:
                self.sent[text].holder = None
            consumer.talker.lose()
            self.listen()

    def pause_or_resume(self):
        """By management."""
        name = self.random.choice(QUEUES)
        queue = self.life.world.directory.queues.get(name)
        if queue is not None:
            self.told.append(f"{name}: {'resume' if queue.paused else 'pause'}")
            if queue.paused:
                queue.resume()
            else:
                queue.pause()
            self.listen()

    def suspend_or_resume(self):
        """As a broker does that cannot reach its replicated log."""
        broker = self.life.world.broker
        self.suspended = not self.suspended
        self.told.append("suspend" if self.suspended else "resume")
        if self.suspended:
            broker.suspend_delivery()
        else:
            broker.resume_delivery()
        self.listen()

    def wait(self, milliseconds=0):
        """Time passes."""
        milliseconds = milliseconds or self.random.choice(WAITS)
        self.told.append(f"wait {milliseconds}")
        self.life.world.clock.advance(milliseconds / 1000)
        self.listen()

    def restart(self):
        """The broker is killed, all that was said is safe, and another one has its files."""
        later = self.random.choice([0.0, 0.3, 2.0])
        self.told.append(f"kill, start {later} s later")
        files = self.life.files
        self.sent = {text: sent for text, sent in self.sent.items() if sent.durable}
        for sent in self.sent.values():
            sent.holder = None
        self.attach(self.life.again(files.kill(), later))

    # ---- what holds

    def check(self):
        """Each queue has what has not expired, and what somebody has in delivery."""
        now, queues = self.now, self.life.world.directory.queues
        for name in QUEUES:
            there = [sent for sent in self.sent.values() if sent.queue == name]
            sure = sum(sent.holder is not None or not 0 < sent.expires <= now + 2 for sent in there)
            late = sum(sent.holder is None and now - SLACK < sent.expires <= now + 2 for sent in there)
            count = queues[name].message_count if name in queues else 0
            told = "\n".join(self.told)
            assert sure <= count <= sure + late, f"{name} has {count}, not {sure} to {sure + late}\n{told}"


@pytest.mark.parametrize("seed", range(4 if QUICK else 12 * max(EXAMPLES, 1)))
def test_no_message_outlives_its_expiry_but_in_delivery(seed):
    Story(seed).play()
