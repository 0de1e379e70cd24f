"""The relay of `benchmarks.relay` as a broker under test: an upper bound of the rate of a broker on this Python."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.brokers.process import Broker, Launch
from benchmarks.brokers.stompring import python

ROOT = Path(__file__).resolve().parents[2]


class Relay(Broker):
    """The relay on the Python that runs stompring, and on Twisted's own reactor."""

    name: ClassVar[str] = "relay"
    protocol: ClassVar[str] = "relay"

    @classmethod
    def missing(cls) -> str | None:
        return None

    def version(self) -> str:
        return "of this tree"

    def prepare(self) -> Launch:
        argv = [python(), "-m", "benchmarks.relay", str(self.port)]
        return Launch(argv, {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"})
