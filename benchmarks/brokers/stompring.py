"""stompring itself, from this tree, with the configuration that it ships."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from lxml import etree

from benchmarks.brokers.process import HOST, Broker, BrokerDied, Launch, free_port
from stompring import __version__

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "config/broker.xml"
CORE = "{urn:activemq:core}"

# enough for every benchmark, and still a limit, so that what it costs to watch it is part of what is measured
GLOBAL_MAX_SIZE = "8GB"


class Stompring(Broker):
    """Run by the Python that runs the benchmark (`STOMPRING_PYTHON` names another), on ports of its own."""

    name: ClassVar[str] = "stompring"

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        self.http_port = free_port()

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("stompring.server.service") is None:
            return "there is no stompring.server.service in this tree"
        return None

    def version(self) -> str:
        told = subprocess.run([_python(), "-V"], capture_output=True, text=True, check=True)
        return f"{__version__} (Python {told.stdout.split()[1]})"

    def prepare(self) -> Launch:
        config = self.directory / "broker.xml"
        self._write_config(config)
        argv = [
            _python(),
            "-m",
            "stompring",
            "run",
            "--config",
            str(config),
            "--data",
            str(self.directory / "data"),
        ]
        return Launch(argv, {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})

    def _write_config(self, path: Path) -> None:
        tree = etree.parse(str(SHIPPED))
        ports = {"tcp": self.port, "http": self.http_port}
        seen = set()
        for acceptor in tree.iterfind(f".//{CORE}acceptor"):
            url = (acceptor.text or "").strip()
            scheme = url.partition(":")[0]
            seen.add(scheme)
            port = ports.get(scheme) or free_port()
            acceptor.text = re.sub(r"^(\w+)://[^/?]*", rf"\1://{HOST}:{port}", url)
        if not seen.issuperset(ports):
            raise BrokerDied(
                f"{SHIPPED}: one acceptor for tcp:// and one for http:// are needed, found {seen}"
            )
        limit = tree.find(f".//{CORE}global-max-size")
        if limit is not None:
            limit.text = GLOBAL_MAX_SIZE
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")


def _python() -> str:
    return os.environ.get("STOMPRING_PYTHON", sys.executable)
