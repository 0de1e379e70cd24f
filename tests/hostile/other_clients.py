"""The other clients of a broker that is attacked: whether they keep their rate, and what the broker takes in memory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from ..broker_process import PATIENCE, ROOT, BrokerProcess

#: Rounds of the pair in a second where nobody is in its way, and the part of them that it must keep. Attackers take the
#: processor away from it, too, and so do other tests: half would be much.
PACE, KEPT = 50.0, 0.2

#: Seconds for which the pair is watched beside an attack at least; of the next try twice as many.
BESIDE, TRIES = 0.5, 3

#: Seconds that a round may take at most beside an attack.
LONGEST_ROUND = 5.0

MIB = 1024 * 1024


class OtherClients:
    """A well-behaved pair of clients beside whatever a test does to the broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self._rounds: list[tuple[float, float]] = []
        self._pair = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.hostile.connection_pair",
                str(broker.port),
                f"pair.{uuid4().hex[:8]}",
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self._wait_for(3)

    def _listen(self) -> None:
        assert self._pair.stdout is not None
        for line in self._pair.stdout:
            ended, took = map(float, line.split())
            self._rounds.append((ended, took))

    def _wait_for(self, rounds: int) -> None:
        deadline = time.monotonic() + PATIENCE
        wanted = len(self._rounds) + rounds
        while len(self._rounds) < wanted:
            assert time.monotonic() < deadline and self._pair.poll() is None, "the pair does nothing"
            time.sleep(0.02)

    def _between(self, begun: float, ended: float) -> float:
        return sum(begun <= at <= ended for at, _ in self._rounds) / (ended - begun)

    def beside(self, attack: Callable[[], None], memory: int = 64, kept: float = KEPT) -> None:
        """Run an attack; the pair must keep that part of its rate, and the broker grow by no more than ``memory`` MiB.

        A pair that was too slow has another try: the machine is not ours alone.
        """
        before, told = self.resident(), ""
        for attempt in range(TRIES):
            begun, seen = time.monotonic(), len(self._rounds)
            attack()
            time.sleep(max(0.0, BESIDE * 2**attempt - (time.monotonic() - begun)))
            ended = time.monotonic()
            self._wait_for(1)
            rate = self._between(begun, ended)
            longest = max(took for _, took in self._rounds[seen:])
            alone = self._rate_alone() if rate < kept * PACE else PACE
            told = f"{rate:.1f} rounds/s, alone {alone:.1f}; the longest took {longest:.2f} s"
            if rate >= kept * alone and longest < LONGEST_ROUND:
                break
        else:
            raise AssertionError(f"the others are slowed down: {told}")
        grown = self.resident() - before
        assert grown <= memory * MIB, f"the broker has grown by {grown / MIB:.0f} MiB"

    def _rate_alone(self) -> float:
        begun = time.monotonic()
        time.sleep(BESIDE)
        return self._between(begun, time.monotonic())

    def resident(self) -> int:
        """Bytes of memory that the broker takes."""
        with open(f"/proc/{self.broker.pid}/status", encoding="ascii") as status:
            line = next(line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    @property
    def alive(self) -> bool:
        """Whether they are still there."""
        return self._pair.poll() is None

    def close(self) -> None:
        """They go home."""
        self._pair.kill()
        self._pair.wait(PATIENCE)
