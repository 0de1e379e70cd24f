"""The other clients of a broker that is attacked: whether they keep their rate, and what the broker takes in memory."""

import subprocess
import sys
import threading
import time
from uuid import uuid4

import pytest

from ..broker_process import PATIENCE, ROOT
from ..waiting import Deadline

#: The part of the rate of a pair at a broker that nobody attacks, in the same seconds, that a pair must keep.
KEPT = 0.1

#: Rounds of a pair in a second on a machine that has time for it, and the part of them below which nothing is judged.
PACE, JUDGED = 50.0, 0.1

#: Seconds for which the pair is watched beside an attack at least; of the next try twice as many.
BESIDE, TRIES = 0.5, 3

#: Seconds that a round may take at most beside an attack.
LONGEST_ROUND = 5.0

MIB = 1024 * 1024


class Pair:
    """A well-behaved producer and its consumer, in a process of their own."""

    def __init__(self, broker):
        self._rounds = []
        program = [sys.executable, "-m", "tests.hostile.connection_pair"]
        words = [*program, str(broker.port), f"pair.{uuid4().hex[:8]}"]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        threading.Thread(target=self._listen, daemon=True).start()
        self.wait_for(3)

    def _listen(self):
        assert self._process.stdout is not None
        for line in self._process.stdout:
            ended, took = map(float, line.split())
            self._rounds.append((ended, took))

    def wait_for(self, rounds):
        """Wait for so many more of them."""
        deadline = Deadline()
        wanted = len(self._rounds) + rounds
        while len(self._rounds) < wanted:
            assert not deadline.passed() and self.alive, "the pair does nothing"
            time.sleep(0.02)

    def between(self, begun, ended):
        """The rounds in a second, and how long the longest took that ended after ``begun``."""
        rate = sum(begun <= at <= ended for at, _ in self._rounds) / (ended - begun)
        return rate, max((took for at, took in self._rounds if at >= begun), default=0.0)

    @property
    def alive(self):
        """Whether they are still there."""
        return self._process.poll() is None

    def close(self):
        """End them."""
        self._process.kill()
        self._process.wait(PATIENCE)


class OtherClients(Pair):
    """A pair beside whatever a test does to its broker; ``control`` is one at a broker that nobody attacks."""

    def __init__(self, broker, control):
        super().__init__(broker)
        self.broker = broker
        self._control = control

    def beside(self, attack, memory=64, kept=KEPT):
        """Run an attack; the pair must keep a part of its rate, and the broker grow by no more than ``memory`` MiB.

        A pair that was too slow has another try. Where the other pair has no time either, the test is skipped.
        """
        before, told, judged = self.resident(), "", False
        for attempt in range(TRIES):
            begun = time.monotonic()
            attack()
            time.sleep(max(0.0, BESIDE * 2**attempt - (time.monotonic() - begun)))
            ended = time.monotonic()
            for pair in (self, self._control):
                pair.wait_for(1)
            (rate, longest), (usual, other) = (each.between(begun, ended) for each in (self, self._control))
            told = f"{rate:.1f} rounds/s, {longest:.2f} s; not attacked {usual:.1f} rounds/s, {other:.2f} s"
            if rate >= kept * usual and longest < LONGEST_ROUND:
                break
            judged |= usual >= JUDGED * PACE and other < LONGEST_ROUND / 2
        else:
            if not judged:
                pytest.skip(f"not judged: busy machine ({told})")
            raise AssertionError(f"the others are slowed down: {told}")
        grown = self.resident() - before
        assert grown <= memory * MIB, f"the broker has grown by {grown / MIB:.0f} MiB"

    def resident(self):
        """Bytes of memory that the broker takes."""
        with open(f"/proc/{self.broker.pid}/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024
