"""The relay of `benchmarks.relay` as a row of its own: a rate that no broker on this Python can exceed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.brokers.process import Broker, Launch
from benchmarks.brokers.stompring import python

ROOT = Path(__file__).resolve().parents[2]


class Relay(Broker):
    """Bytes are passed on unread, by the Python that runs stompring and Twisted's own reactor."""

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
