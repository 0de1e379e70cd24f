"""An application that is killed with all of its processes while it takes messages from one queue to another."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from stompring.pipeline.stomp.connection import Connection
from stompring.pipeline.stomp.endpoint import Endpoint
from stompring.pipeline.stomp.spool import Spool, payload_spans, read_range
from stompring.stomp.client import frame

from ...end_to_end.lasting import DURABLE
from .bridge_application import PREFETCH
from .queue_contents import drained_bodies, url

# It starts Spark three times more.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.long,
]

ROOT = Path(__file__).resolve().parents[3]

KILLS = 3

#: Messages that are on their way, more than two batches.
AHEAD = 1600


class Application:
    """One run of it, in a session of its own."""

    def __init__(self, lasting, directory, *how):
        self._log = directory / "application.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.pipeline.stomp.bridge_application",
                    url(lasting),
                    str(directory),
                    *how,
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self):
        """Until it ends well."""
        try:
            assert self._process.wait() == 0, self.told()
        finally:
            self.kill()

    def check(self):
        """It runs."""
        assert self._process.poll() is None, self.told()

    def told(self):
        """What it said last."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-8000:]

    def kill(self):
        """SIGKILL to every process of its session: Spark's workers are in groups of their own."""
        while found := self._members():
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.01)

    def _members(self):
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid and fields[0] != "Z":
                    found.append(int(path.parent.name))
        return found


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
    chance = random.Random(4)
    try:
        for _ in range(KILLS):
            before = moved(lasting)
            application = Application(lasting, tmp_path)
            try:
                while producer.arrived < before + 800:
                    producer.arrived = moved(lasting)
                    application.check()
                    time.sleep(0.05)
                time.sleep(chance.random())  # to be anywhere within a batch
            finally:
                application.kill()
    finally:
        producer.ended.set()
        producer.join()
    Application(lasting, tmp_path, "now").wait()
    lasting.management.expect("in", messageCount=0)
    counts = Counter(map(int, drained_bodies(lasting, "out")))
    assert set(counts) == set(range(producer.sent + 1))
    twice = sum(counts.values()) - len(counts)
    assert twice <= KILLS * PREFETCH
    with Spool(tmp_path / "spool") as spool:
        (piece,) = spool.pieces(spool.head, spool.tail)  # so few that none was deleted
        kept = len(payload_spans(read_range(spool.directory, piece), piece, spool.directory))
    assert sum(counts.values()) == kept + 1
    log = (tmp_path / "application.log").read_text(encoding="utf-8", errors="replace")
    assert "the first attempt fails on purpose" in log
