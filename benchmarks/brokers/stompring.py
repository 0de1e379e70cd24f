"""stompring itself, from this tree or another, with the configuration that it ships."""

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

ROOT = Path(__file__).resolve().parents[2]
CORE = "{urn:activemq:core}"

# enough for every benchmark, and still a limit, so that what it costs to watch it is part of what is measured
GLOBAL_MAX_SIZE = "8GB"


class Stompring(Broker):
    """Run by the Python that runs the benchmark (`STOMPRING_PYTHON` names another), on ports of its own.

    `STOMPRING_PROFILE` names a file for `benchmarks.sampled` to write where the time went.
    """

    name: ClassVar[str] = "stompring"
    # what is deep in memory takes its time to be written down
    stop_seconds: ClassVar[float] = 120.0

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        addresses: Mapping[str, str] | None = None,
        root: Path = ROOT,
    ) -> None:
        """``settings`` are elements of <core> in place of the shipped ones, ``addresses`` those of the
        address-setting for ``#``; ``root`` is the tree to run."""
        super().__init__(env)
        self.http_port = free_port()
        self._settings = {"global-max-size": GLOBAL_MAX_SIZE} | dict(settings or {})
        self._addresses = dict(addresses or {})
        self._root = root

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("stompring.server.service") is None:
            return "there is no stompring.server.service in this tree"
        return None

    def version(self) -> str:
        told = subprocess.run([_python(), "-V"], capture_output=True, text=True, check=True)
        code = (self._root / "stompring/__init__.py").read_text()
        found = re.search(r'__version__ = "(.+?)"', code)
        return f"{found[1] if found else 'unknown'} (Python {told.stdout.split()[1]})"

    @property
    def data(self) -> Path:
        """Where it stores."""
        return self.directory / "data"

    def prepare(self) -> Launch:
        config = self.directory / "broker.xml"
        self._write_config(config)
        sampled = os.environ.get("STOMPRING_PROFILE") if self._root == ROOT else None
        module = ["stompring"] if sampled is None else ["benchmarks.sampled", sampled]
        argv = [_python(), "-m", *module, "run", "--config", str(config), "--data", str(self.data)]
        return Launch(argv, {"PYTHONPATH": str(self._root), "PYTHONUNBUFFERED": "1"})

    def _write_config(self, path: Path) -> None:
        shipped = self._root / "config/broker.xml"
        tree = etree.parse(str(shipped))
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
                f"{shipped}: one acceptor for tcp:// and one for http:// are needed, found {seen}"
            )
        core = tree.find(f"{CORE}core")
        everywhere = tree.find(f".//{CORE}address-setting[@match='#']")
        if core is None or everywhere is None:
            raise BrokerDied(f"{shipped}: a <core> and an <address-setting match='#'> are needed")
        for parent, elements in ((core, self._settings), (everywhere, self._addresses)):
            for name, text in elements.items():
                _put(parent, name, text)
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")


def _put(parent: etree._Element, name: str, text: str) -> None:
    element = parent.find(CORE + name)
    if element is None:
        element = etree.SubElement(parent, CORE + name)
    element.text = text


def _python() -> str:
    return os.environ.get("STOMPRING_PYTHON", sys.executable)
