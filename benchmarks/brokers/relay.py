"""The relay of `benchmarks.relay` as a broker under test: an upper bound of the rate of a broker on this Python."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.brokers.process import HOST, Broker, Launch, certificate, tls_port
from benchmarks.brokers.stompring import python

ROOT = Path(__file__).resolve().parents[2]
LISTENS = f"interface={HOST}:backlog=1000"


class Relay(Broker):
    """The relay on the Python that runs stompring, and on Twisted's own reactor."""

    name: ClassVar[str] = "relay"
    protocol: ClassVar[str] = "relay"

    def __init__(self) -> None:
        super().__init__()
        self._tls_port = tls_port()

    @classmethod
    def missing(cls) -> str | None:
        return None

    def version(self) -> str:
        return "of this tree"

    def transport_port(self, transport: str) -> int | None:
        return self._tls_port if transport == "tls" else super().transport_port(transport)

    def prepare(self) -> Launch:
        argv = [python(), "-m", "benchmarks.relay", f"tcp:{self.port}:{LISTENS}"]
        if self._tls_port is not None:
            shown, key = certificate(self.directory)
            argv.append(f"ssl:{self._tls_port}:{LISTENS}:certKey={shown}:privateKey={key}")
        return Launch(argv, {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"})
