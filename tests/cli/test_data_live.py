"""The commands on a directory in which a busy broker makes, compacts and deletes files all the time."""

import json
import threading
from contextlib import contextmanager

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from ..stomp_client import StompClient
from .conftest import invoke

#: Files roll with every few messages.
DOCUMENT = broker_xml(
    core="<journal-file-size>10K</journal-file-size><journal-compact-min-files>3</journal-compact-min-files>",
    settings={"paged": {"max-size-messages": 10, "page-size-bytes": "5K"}},
)
QUEUES = ("memory", "paged")
KEPT = 30

#: Segments and pages that must have come and gone before a test is over.
FILES = 40


class Load(threading.Thread):
    """Sends to a queue and consumes it, so that about `KEPT` messages stay."""

    def __init__(self, port, queue):
        super().__init__(daemon=True)
        self._port = port
        self._queue = queue
        self.begun = threading.Event()  # the broker has confirmed the first messages
        self.stopping = threading.Event()
        self.sent = 0
        self.failure = None

    def run(self):
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure

    def _work(self):
        dialogue = StompClient(self._port)
        dialogue.connect()
        self._send(dialogue, KEPT)
        self.begun.set()
        dialogue.subscribe(f"/queue/{self._queue}", id="load", ack="client", prefetch_count=5)
        while not self.stopping.is_set():
            self._send(dialogue, 5)
            messages = [dialogue.message() for _ in range(5)]
            dialogue.answer("ACK", messages[-1])
        dialogue.ask("DISCONNECT")

    def _send(self, dialogue, count):
        bodies = [f"{self.sent + place} " + "x" * 200 for place in range(count)]
        dialogue.put(f"/queue/{self._queue}", *bodies, persistent="true")
        self.sent += count


@contextmanager
def busy(tmp_path):
    config, data = tmp_path / "broker.xml", tmp_path / "data"
    config.write_text(DOCUMENT)
    with BrokerProcess(config, data) as broker:
        loads = [Load(broker.port, queue) for queue in QUEUES]
        for load in loads:
            load.start()
        try:
            # A batch writes pages before the journal: until the broker has confirmed the first messages, those in pages
            # may be found without the earlier ones that the journal gets.
            assert all(load.begun.wait(30) for load in loads)
            yield data
        finally:
            for load in loads:
                load.stopping.set()
            for load in loads:
                load.join(30)
            assert [load.failure for load in loads] == [None, None]
        assert all(load.sent > KEPT for load in loads)


def test_nothing_is_found_at_any_moment(tmp_path):
    with busy(tmp_path) as data:
        names = set()
        while len(names) < FILES:
            names.update(path.name for path in data.rglob("0*.*"))
            done = invoke(f"verify --data {data}")
            assert done.stdout == "" and "broker runs" in done.stderr


def test_an_export_is_one_moment(tmp_path):
    """Of each queue it has messages that follow one another, about as many as there ever are."""
    file = tmp_path / "all.json"
    with busy(tmp_path) as data:
        names = set()
        while len(names) < FILES:
            names.update(path.name for path in data.rglob("0*.*"))
            invoke(f"export {file} --replace --data {data}")
            messages = [json.loads(line).get("message") for line in file.read_text().splitlines()]
            for queue in QUEUES:
                bodies = [each["body"] for each in messages if each and each["queues"][0]["queue"] == queue]
                numbers = [int(body.partition(" ")[0]) for body in bodies]
                assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, (
                    numbers
                )
                assert len(numbers) <= KEPT + 10
