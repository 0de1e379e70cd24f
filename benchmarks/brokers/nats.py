"""nats-server with core publish and subscribe: a very fast broker, without queues, acknowledgements and headers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import ClassVar

from benchmarks.brokers.process import HOST, Broker, Launch


class Nats(Broker):
    """The installed nats-server, or the program that `NATS_SERVER` names, without a configuration.

    The client is stompload with `-F nats`, with the same flow control and clock as for STOMP.
    """

    name: ClassVar[str] = "nats-server"
    protocol: ClassVar[str] = "nats"

    @classmethod
    def missing(cls) -> str | None:
        wanted = os.environ.get("NATS_SERVER", "nats-server")
        return None if shutil.which(wanted) else f"no {wanted} in the PATH (Debian package nats-server)"

    @staticmethod
    def _program() -> str:
        return os.environ.get("NATS_SERVER", "nats-server")

    def version(self) -> str:
        printed = subprocess.run([self._program(), "--version"], capture_output=True, text=True, check=True)
        return printed.stdout.split()[-1].removeprefix("v")

    def prepare(self) -> Launch:
        return Launch([self._program(), "-a", HOST, "-p", str(self.port)])

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as probe:
                return probe.recv(4) == b"INFO"
        except OSError:
            return False
