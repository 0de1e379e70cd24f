"""A data directory that a real broker made of what real clients sent, and what must be in it."""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..broker_document import broker_xml, multicast
from ..broker_process import BrokerProcess
from ..management import Management
from ..stomp_client import StompClient
from ..waiting import Deadline

#: A day from now: after the end of a run of all tests.
LATER = int(time.time() * 1000) + 86_400_000

DOCUMENT = broker_xml(
    core="<journal-file-size>20K</journal-file-size><journal-compact-min-files>3</journal-compact-min-files>",
    settings={"pages.#": {"max-size-messages": 50, "page-size-bytes": "10K", "address-full-policy": "PAGE"}},
    addresses=multicast("news", queue="news.one", inside="<durable>true</durable>"),
)


@dataclass(frozen=True)
class Expected:
    """A message in a queue. ``headers`` are those that the sender gave, with priority and persistent."""

    queue: str
    body: bytes
    headers: dict[str, str]
    priority: int = 4
    due: int = 0
    deliveries: int = 0
    repeat: int = 0


@dataclass
class PopulatedDirectory:
    """Where it is, and what it holds."""

    config: Path
    data: Path
    messages: list[Expected] = field(default_factory=list)

    def of(self, queue):
        """What a queue holds, in the order of delivery within a priority."""
        return [each for each in self.messages if each.queue == queue]


class Populator:
    """Sends, and notes what must be there afterwards."""

    def __init__(self, dialogue, filled):
        self.dialogue = dialogue
        self.filled = filled

    def send(self, address, body, queues=(), **headers):
        """A durable message."""
        own = {name: str(value) for name, value in headers.items() if not name.startswith("AMQ_")}
        own.setdefault("priority", "4")
        own["persistent"] = "true"
        self.dialogue.send(
            "SEND",
            {
                "destination": f"/queue/{address}",
                "persistent": "true",
                **headers,
                "content-length": len(body),
            },
            body,
        )
        for queue in queues or (address,):
            expected = Expected(
                queue,
                body,
                own,
                int(own["priority"]),
                int(str(headers.get("AMQ_SCHEDULED_TIME", 0))),
                0,
                int(str(headers.get("AMQ_SCHEDULED_REPEAT", 0))),
            )
            self.filled.messages.append(expected)

    def settle(self):
        """All of it has arrived."""
        self.dialogue.ask("BEGIN", {"transaction": "settle"})
        self.dialogue.ask("COMMIT", {"transaction": "settle"})

    def gone(self, queue, body):
        """A message is not there any more."""
        found = next(each for each in self.filled.messages if each.queue == queue and each.body == body)
        self.filled.messages.remove(found)
        return found


@contextmanager
def populate(tmp_path):
    """A running broker that has been given all kinds of things to keep."""
    config, data = tmp_path / "broker.xml", tmp_path / "data"
    config.write_text(DOCUMENT)
    filled = PopulatedDirectory(config, data)
    with BrokerProcess(config, data) as broker:
        management = Management(broker.http_port)
        make = {
            "durable": True,
            "ringSize": 5,
            "filter": "colour <> 'grey' OR colour IS NULL",
            "user": "anna",
        }
        management.ask("POST", "/queues", {"name": "ring", "address": "ring", **make})
        dialogue = StompClient(broker.port)
        dialogue.connect({"client-id": "filler"})
        filler = Populator(dialogue, filled)
        plain(filler)
        scheduled(filler)
        rings(filler)
        transactions(filler)
        shared(filler, management)
        paged(filler)
        churn(filler)
        delivered(filler, broker)
        management.ask("POST", "/queues", {"name": "deleted", "address": "deleted"})
        management.ask("DELETE", "/queues/deleted")
        management.update("ring", paused=True, maxConsumers=3)
        yield filled, broker


def plain(filler):
    """Headers and bodies that are hard to get right; what is not durable is not kept."""
    filler.send("plain", b"", priority=9)
    filler.send("plain", bytes(range(256)) * 3, colour="r\\e:d\n\u00e4", JMSXGroupID="g:1")
    for number in range(60):
        filler.send(
            "plain", b"x" * (number * 37 % 1500) + b"%d" % number, priority=number % 10, number=number
        )
    for number in range(3):
        filler.send("plain", b"known by its id", _AMQ_DUPL_ID=f"id-{number}")
    filler.dialogue.send("SEND", {"destination": "/queue/plain"}, b"not kept")
    filler.settle()


def scheduled(filler):
    """Once, and again and again."""
    filler.send("later", b"once", AMQ_SCHEDULED_TIME=LATER)
    filler.send(
        "later",
        b"often",
        AMQ_SCHEDULED_TIME=LATER + 1,
        AMQ_SCHEDULED_PERIOD=60_000,
        AMQ_SCHEDULED_REPEAT=7,
    )
    filler.settle()


def rings(filler):
    """Five stay."""
    for number in range(20):
        filler.send("ring", b"%d" % number, number=number)
    filler.settle()
    for number in range(15):
        filler.gone("ring", b"%d" % number)


def transactions(filler):
    """One counts and one does not."""
    dialogue = filler.dialogue
    for name in ("kept", "lost"):
        dialogue.send("BEGIN", {"transaction": name})
        for number in range(3):
            headers = {"destination": "/queue/together", "transaction": name, "persistent": "true"}
            dialogue.send("SEND", headers, f"{name} {number}".encode())
            if name == "kept":
                kept = {"persistent": "true", "priority": "4"}
                filler.filled.messages.append(Expected("together", f"kept {number}".encode(), kept))
    dialogue.ask("ABORT", {"transaction": "lost"})
    dialogue.ask("COMMIT", {"transaction": "kept"})


def shared(filler, management):
    """Messages of two queues, one of which has taken some of them."""
    made = {"name": "news.two", "address": "news", "routingType": "MULTICAST", "durable": True}
    management.ask("POST", "/queues", made)
    dialogue = filler.dialogue
    for number in range(6):
        headers = {"destination": "/topic/news", "persistent": "true"}
        dialogue.send("SEND", headers, b"news %d" % number)
        for queue in ("news.one", "news.two"):
            kept = {"persistent": "true", "priority": "4"}
            filler.filled.messages.append(Expected(queue, b"news %d" % number, kept))
    filler.settle()
    dialogue.subscribe("::news.two", id="shared")
    for number in (0, 1):
        dialogue.answer("ACK", dialogue.message(b"news %d" % number))
        filler.gone("news.two", b"news %d" % number)
    dialogue.ask("UNSUBSCRIBE", {"id": "shared"})
    dialogue.inbox.clear()
    for number in range(2, 6):
        went_out(filler, "news.two", b"news %d" % number)


def paged(filler):
    """More than the address may hold, of which some from the middle is gone; among it what is not durable."""
    dialogue = filler.dialogue
    for number in range(400):
        filler.send("pages.a", b"%d " % number + b"y" * 100, number=number, priority=number % 3 + 3)
        if number % 50 == 0:
            dialogue.send("SEND", {"destination": "/queue/pages.a"}, b"not kept")
    filler.send("pages.a", b"timed", AMQ_SCHEDULED_TIME=LATER)
    dialogue.send("BEGIN", {"transaction": "paged"})
    headers = {"destination": "/queue/pages.a", "transaction": "paged", "persistent": "true"}
    dialogue.send("SEND", headers, b"in a transaction")
    dialogue.ask("COMMIT", {"transaction": "paged"})
    kept = {"persistent": "true", "priority": "4"}
    filler.filled.messages.append(Expected("pages.a", b"in a transaction", kept))
    dialogue.subscribe(
        "/queue/pages.a", id="selective", selector="number BETWEEN 150 AND 169", prefetch_count=1
    )
    numbers = sorted(range(150, 170), key=lambda number: -(number % 3))
    for number in numbers:
        body = b"%d " % number + b"y" * 100
        dialogue.answer("ACK", dialogue.message(body))
        filler.gone("pages.a", body)
    dialogue.ask("UNSUBSCRIBE", {"id": "selective"})
    dialogue.inbox.clear()
    dialogue.subscribe("/queue/pages.a", id="refuses", selector="number = 200", prefetch_count=1)
    refused = b"200 " + b"y" * 100
    dialogue.answer("NACK", dialogue.message(refused))
    dialogue.message(refused)
    dialogue.ask("UNSUBSCRIBE", {"id": "refuses"})
    went_out(filler, "pages.a", refused, times=2)


def churn(filler):
    """So much comes and goes that the journal is compacted."""
    dialogue = filler.dialogue
    newest = max((filler.filled.data / "journal").glob("*.journal"))
    dialogue.subscribe("/queue/churn", id="churn", ack="client", prefetch_count=200)
    deadline = Deadline()
    while newest.exists():
        assert not deadline.passed(), "nothing is compacted"
        dialogue.put("/queue/churn", *[b"z" * 200] * 200, persistent="true")
        messages = [dialogue.message() for _ in range(200)]
        dialogue.answer("ACK", messages[-1])
    dialogue.ask("UNSUBSCRIBE", {"id": "churn"})


def delivered(filler, broker):
    """Went out, and came back because the connection was lost."""
    filler.send("again", b"came back")
    filler.send("again", b"and this")
    filler.settle()
    for _ in range(2):
        consumer = StompClient(broker.port)
        consumer.connect()
        consumer.subscribe("/queue/again", id="again")
        consumer.message(b"came back")
        consumer.message(b"and this")
        consumer.ask("DISCONNECT")
        consumer.socket.close()
    for body in (b"came back", b"and this"):
        went_out(filler, "again", body, times=2)
    dialogue = filler.dialogue
    dialogue.subscribe("/queue/pages.a", id="one", selector="number = 201", prefetch_count=1)
    dialogue.answer("ACK", dialogue.message(b"201 " + b"y" * 100))
    filler.gone("pages.a", b"201 " + b"y" * 100)
    dialogue.ask("UNSUBSCRIBE", {"id": "one"})


def went_out(filler, queue, body, times=1):
    """A message was delivered, and came back."""
    messages = filler.filled.messages
    place = next(place for place, each in enumerate(messages) if (each.queue, each.body) == (queue, body))
    messages[place] = Expected(
        queue, body, messages[place].headers, messages[place].priority, deliveries=times
    )
