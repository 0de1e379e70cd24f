"""A campaign: the processes of Spark, and the broker, are killed while messages come; the lake has each once.

So it has each event: beside what clients have sent, got, acknowledged and refused, with receipts. Where a kill leaves
open what has happened there are bounds.

``python -m tests.pipeline.lake.kill_campaign`` kills each of them 20 times, and replays 20 times more (FAULTS is 60).
That takes a quarter of an hour. The tests do it with fewer.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from ...broker_document import anycast, multicast
from ...campaigns import campaigns
from ...end_to_end.lasting import LastingBroker
from ...waiting import Deadline
from ..conftest import QUICK

CORE = (
    "<journal-file-size>100KB</journal-file-size><journal-compact-min-files>4</journal-compact-min-files>"
    '<journal-retention-directory sample-period="500">data/retention</journal-retention-directory>'
)
SETTINGS = {"p": {"max-size-messages": 50, "page-size-bytes": 50_000}}
#: By destination: the queues that a message enters.
DESTINATIONS = {"q": ("q",), "r": ("r",), "p": ("p",), "/topic/t": ("t.one", "t.two")}
QUEUES = tuple(queue for queues in DESTINATIONS.values() for queue in queues)
#: Those that have a consumer. Of the others one is a ring, and in one all messages wait.
CONSUMED = ("q", "p", "t.one")
PATIENCE = 180.0

#: Messages that are there at least.
LEAST = 400

#: Queue and body.
Key = tuple[str, str]


@dataclass
class Consumed:
    """What consumers have seen and said, each with one message out at most."""

    seen: Counter[Key] = field(default_factory=Counter)
    acknowledged: Counter[Key] = field(default_factory=Counter)  # with a receipt
    refused: Counter[Key] = field(default_factory=Counter)  # with a receipt
    perhaps_refused: Counter[Key] = field(default_factory=Counter)  # without one
    lost: Counter[str] = field(default_factory=Counter)  # connections, each with one that was out perhaps


@dataclass
class Traffic:
    """Durable messages to all queues, and a consumer of some, over deaths of the broker."""

    broker: LastingBroker
    sent: set[str] = field(default_factory=set)
    receipted: set[str] = field(default_factory=set)
    stopping: Event = field(default_factory=Event)
    consumed: Consumed = field(default_factory=Consumed)

    def begin(self):
        self._threads = [Thread(target=self._produce, daemon=True)]
        self._threads += [Thread(target=self._consume, args=(queue,), daemon=True) for queue in CONSUMED]
        for thread in self._threads:
            thread.start()

    def end(self):
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _produce(self):
        client, number = None, 0
        while not self.stopping.is_set():
            bodies = [f"{number} {each}".ljust(300, "x") for each in range(10)]
            number += 1
            destination = (*DESTINATIONS,)[number % len(DESTINATIONS)]
            bodies = [f"{destination} {body}" for body in bodies]
            self.sent |= {*bodies}
            try:
                client = client or self.broker.connect()
                client.put(destination, *bodies, persistent="true", n=number)
            except Exception:  # it was killed: what was not receipted may be there or not
                client = None
                time.sleep(0.1)
            else:
                self.receipted |= {*bodies}
                time.sleep(0.02)

    def _consume(self, queue):
        """Until the end; what is out then stays so until the broker is killed."""
        client, taken, consumed = None, 0, self.consumed
        while not self.stopping.is_set():
            try:
                if client is None:
                    client = self.broker.connect()
                    consumed.lost[queue] += 1  # in the end
                    self._subscribe(client, queue)
                message = client.inbox.pop(0) if client.inbox else client.frame(patience=0.2)
                taken += 1
                self._answer(client, queue, message, "ACK" if taken % 7 else "NACK")
            except TimeoutError:
                continue
            except Exception:
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.1)

    @staticmethod
    def _subscribe(client, queue):
        client.subscribe(f"::{queue}", id="c", prefetch_count=1)

    def _answer(self, client, queue, message, word):
        consumed, key = self.consumed, (queue, message.body.decode())
        consumed.seen[key] += 1
        if word == "NACK":
            consumed.perhaps_refused[key] += 1
        client.answer(word, message)
        if word == "NACK":
            consumed.perhaps_refused[key] -= 1
        (consumed.acknowledged if word == "ACK" else consumed.refused)[key] += 1

    def go_on(self, messages):
        """Until so many were receipted, and some acknowledged and refused, however slow the machine is."""
        deadline = Deadline()
        while not (
            len(self.receipted) >= messages
            and self.consumed.acknowledged.total()
            and self.consumed.refused.total()
        ):
            assert not deadline.passed(), f"{len(self.receipted)} messages"
            time.sleep(0.05)

    def drain(self):
        """Acknowledge all that is left for the consumers."""
        for queue in CONSUMED:
            client = self.broker.connect()
            self._subscribe(client, queue)
            for _ in range(self.broker.management.queue(queue)["messageCount"]):
                self._answer(client, queue, client.message(), "ACK")
            client.disconnect()


class Processes:
    """A module that runs in a session of its own, all processes of which can be killed at once."""

    def __init__(self, *words):
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        environment = {**os.environ, **QUICK, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def wait_for(self, pattern):
        """Until it has said something, or ended."""
        deadline = Deadline(PATIENCE)
        while re.search(pattern, self.output()) is None and self.process.poll() is None:
            assert not deadline.passed(), self.output()
            time.sleep(0.05)

    def kill(self):
        """SIGKILL to all processes of its session: Python's, Java's, and the workers', those just being made too."""
        while found := self._members():
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.process.poll()
            time.sleep(0.01)
        self.log.close()

    def _members(self):
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.append(int(path.parent.name))
        return found

    def finish(self):
        """Wait for its end, which must be a good one."""
        code = self.process.wait(PATIENCE)
        output = self.output()
        self.log.close()
        assert code == 0, output
        return output


class Command(Processes):
    """A command of the lake."""

    def __init__(self, *words):
        super().__init__(
            "stompring", "lake", *words, "--master", "local[1]", "--conf", "spark.driver.memory=600m"
        )


@dataclass
class Outcome:
    """What came of it, for people."""

    messages: int
    events: int
    spark_kills: int
    broker_kills: int
    replay_kills: int


def campaign(root, opened, spark, broker, replays, seed):
    """All of it. Raises AssertionError for what is lost or twice."""
    chance = random.Random(seed)
    lasting = LastingBroker(root, opened)
    opened.callback(lasting.stop)
    ring = anycast("r", 'ring-size="40"')
    topic = multicast("t", queue="t.one", inside="<durable>true</durable>")
    addresses = ring + topic + "".join(map(anycast, ("q", "p", "again")))
    lasting.start(core=CORE, addresses=addresses, settings=SETTINGS)
    made = {"name": "t.two", "address": "t", "routingType": "MULTICAST", "durable": True}
    lasting.management.ask("POST", "/queues", made)
    traffic = Traffic(lasting)
    traffic.begin()
    lake = str(root / "lake")
    follow = ("--data", str(lasting.data), "--lake", lake, "--follow", "--interval", "0.1")
    words = ("ingest", *follow, "--max-bytes", "300000")
    broker_left = broker
    for turn in range(spark):
        ingest = Command(*words)
        while (
            broker_left * spark > (spark - turn - 1) * broker
        ):  # evenly spread, while Spark starts and works
            time.sleep(chance.uniform(0.2, 1.5))
            lasting.again()
            broker_left -= 1
        ingest.wait_for(r"batch \d+")
        time.sleep(chance.uniform(0, 2.5))
        assert ingest.process.poll() is None, ingest.output()
        ingest.kill()
    traffic.go_on(LEAST)
    traffic.end()
    lasting.again()
    traffic.drain()
    Command("ingest", "--data", str(lasting.data), "--lake", lake).finish()
    counts = {name: lasting.management.queue(name)["messageCount"] for name in QUEUES}
    found, events = check(Path(lake), traffic, lasting.data, counts)
    replayed(lasting, lake, found, replays, chance)
    return Outcome(len(found), events, spark, broker, replays)


def check(lake, traffic, data, counts):
    """The lake beside what was sent, and what is in the files."""
    from deltalake import DeltaTable

    from .traffic import retained_messages

    def rows(table, *columns):
        found = DeltaTable(str(lake / table)).to_pyarrow_table(columns=list(columns)).to_pylist()
        return [tuple(row[name] for name in columns) for row in found]

    messages = sorted((*key, body.decode()) for *key, body in rows("messages", "message_id", "queue", "body"))
    twice = [key for key, count in Counter((row[0], row[1]) for row in messages).items() if count > 1]
    assert not twice, f"{len(twice)} messages are there twice: {twice[:5]}"
    bodies = {row[2] for row in messages}
    lost = traffic.receipted - bodies
    assert not lost, f"{len(lost)} receipted messages are missing: {sorted(lost)[:3]}"
    assert bodies <= traffic.sent
    on_disk = [(row["message_id"], row["queue"], row["body"].decode()) for row in retained_messages(data)]
    assert messages == sorted(on_disk)
    events = rows("events", "queue", "message_id", "event")
    per = Counter(events)
    check_events(per, {(row[1], row[0]): row[2] for row in messages}, traffic)
    added = {(queue, number) for queue, number, event in per if event == "added"}
    assert added == {(row[1], row[0]) for row in messages}
    ends = ("acknowledged", "expired", "killed", "replaced")
    ended = Counter((queue, number) for (queue, number, event) in per.elements() if event in ends)
    assert all(per[(queue, number, "added")] == 1 for queue, number in added)
    again = [key for key, count in ended.items() if count > 1]
    assert not again, f"{len(again)} messages ended twice: {again[:5]}"
    assert set(ended) <= added
    for queue, count in counts.items():
        left = sum(1 for each in added if each[0] == queue) - sum(1 for each in ended if each[0] == queue)
        assert left == count, (queue, left, count)
    return messages, len(events)


def check_events(per, bodies, traffic):
    """Events beside what clients did: exact where they have receipts for it, within bounds where a kill took them."""
    consumed, found = traffic.consumed, dict[Key, Counter[str]]()
    for (queue, number, event), count in per.items():
        found.setdefault((queue, bodies[queue, number]), Counter())[event] += count
    out = Counter()
    for key, events in found.items():
        queue = key[0]
        kinds = {*events}
        if queue == "r":
            assert kinds <= {"added", "replaced"}, (key, events)
        elif queue not in CONSUMED:
            assert kinds == {"added"}, (key, events)
        else:
            assert kinds <= {"added", "delivered", "redelivered", "acknowledged"}, (key, events)
            assert events["acknowledged"] == 1 >= consumed.acknowledged[key], (key, events)
            refused = consumed.refused[key]
            assert refused <= events["redelivered"] <= refused + consumed.perhaps_refused[key], (key, events)
            certain = consumed.acknowledged[key] + refused
            most = consumed.seen[key] + consumed.lost[queue]
            assert certain <= events["delivered"] <= most, (key, events)
            ended = events["delivered"] - events["acknowledged"] - events["redelivered"]
            assert ended >= 0, (key, events)
            out[queue] += ended
    for queue, count in out.items():  # those that were out when the broker was killed
        assert count <= consumed.lost[queue], (queue, count)


def replayed(lasting, lake, messages, kills, chance):
    """All of it goes to one queue, in spite of kills."""
    to = f"127.0.0.1:{lasting.process.port}"
    words = ("replay", "--lake", lake, "--to", to, "--destination", "again", "--rate", "300")
    for _ in range(kills):
        replay = Command(*words)
        replay.wait_for(r"messages sent|resuming after")
        time.sleep(chance.uniform(0, 3))
        replay.kill()
    words = words[:-2]  # as fast as it goes
    Command(*words).finish()
    numbers = sorted({row[0] for row in messages})
    client = lasting.connect()
    client.subscribe("again", ack="auto")
    got = [int(client.message()["original-message-id"]) for _ in numbers]
    assert got == numbers
    assert lasting.management.queue("again")["messageCount"] == 0


def _one(directory, seed, faults):
    spark, broker, replays = (faults // 3 + (faults % 3 > more) for more in range(3))
    with ExitStack() as opened:
        return campaign(directory, opened, spark, broker, replays, seed)


if __name__ == "__main__":
    sys.exit(campaigns("kills", 60, 60, _one))
