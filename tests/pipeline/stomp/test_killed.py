"""An application that is killed with all of its processes while it takes messages from one queue to another."""

import random
import threading
import time
from collections import Counter

import pytest

from stompring.pipeline.stomp.connection import Connection, Endpoint
from stompring.pipeline.stomp.source import Spool, payload_spans, read_range
from stompring.stomp.client import frame

from ...end_to_end.lasting import DURABLE
from ..lake.kill_campaign import Processes
from .bridge_application import PREFETCH
from .queue_contents import drained_bodies, url

# It starts Spark three times more.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
]


KILLS = 3

#: Messages that are on their way, more than two batches.
AHEAD = 1600


class Producer(threading.Thread):
    """Sends numbers from 1 on, in groups, until it is told to end, and never far ahead of what has ``arrived``: so that
    a slow machine has as much to do as a fast one. ``sent`` is the last that has a receipt."""

    def __init__(self, lasting):
        super().__init__(name="producer")
        self.sent = self.arrived = 0
        self.ended = threading.Event()
        self._endpoint = Endpoint("127.0.0.1", lasting.process.port)

    def run(self):
        headers = [("destination", "in"), *DURABLE.items()]
        with Connection(self._endpoint) as connection:
            while not self.ended.wait(0.05):
                if self.sent > self.arrived + AHEAD:
                    continue
                numbers = range(self.sent + 1, self.sent + 51)
                connection.send(b"".join(frame("SEND", headers, b"%d" % number) for number in numbers))
                connection.say(
                    "SEND", [*headers, ("receipt", connection.next_receipt())], b"%d" % (self.sent + 51)
                )
                connection.await_receipts()
                self.sent += 51


def moved(lasting):
    """How much is in the other queue."""
    return int(lasting.management.queue("out")["messageCount"])


def test_nothing_is_lost(spark, lasting, tmp_path):
    """Each number comes out; those that were in the spool and not acknowledged when it was killed may come out twice,
    one window of them for each kill. The sink adds nothing to that, and neither do attempts that fail."""
    lasting.start()
    lasting.connect().ask("SEND", {"destination": "out"}, b"0")
    producer = Producer(lasting)
    producer.start()
    chance, told = random.Random(4), ""
    words = ("tests.pipeline.stomp.bridge_application", url(lasting), str(tmp_path))
    try:
        for _ in range(KILLS):
            before = moved(lasting)
            application = Processes(*words)
            try:
                while producer.arrived < before + 800:
                    producer.arrived = moved(lasting)
                    assert application.process.poll() is None, application.output()
                    time.sleep(0.05)
                time.sleep(chance.random())  # to be anywhere within a batch
                told += application.output()
            finally:
                application.kill()
    finally:
        producer.ended.set()
        producer.join()
    told += Processes(*words, "now").finish()
    lasting.management.expect("in", messageCount=0)
    counts = Counter(map(int, drained_bodies(lasting, "out")))
    assert set(counts) == set(range(producer.sent + 1))
    twice = sum(counts.values()) - len(counts)
    assert twice <= KILLS * PREFETCH
    with Spool(tmp_path / "spool") as spool:
        (piece,) = spool.pieces(spool.head, spool.tail)  # so few that none was deleted
        kept = len(payload_spans(read_range(spool.directory, piece), piece, spool.directory))
    assert sum(counts.values()) == kept + 1
    assert "the first attempt fails on purpose" in told
