"""stompring from this tree or another one, with its shipped configuration."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from lxml import etree

from benchmarks.brokers.process import HOST, Broker, BrokerDied, Launch, certificate, free_port, tls_port

ROOT = Path(__file__).resolve().parents[2]
CORE = "{urn:activemq:core}"
PREFIXES = "anycastPrefix=/queue/;multicastPrefix=/topic/"

# a window in bytes: the default of 100 messages is too small for a client as fast as stompload
WINDOW = "stompConsumerWindowSize=102400"

# enough for every benchmark; a limit makes the cost of memory accounting part of the measurement
GLOBAL_MAX_SIZE = "8GB"


class Stompring(Broker):
    """stompring on the Python of the benchmark, or on the one that `STOMPRING_PYTHON` names.

    If `STOMPRING_PROFILE` names a file, `benchmarks.sampled` writes its samples there.
    """

    name: ClassVar[str] = "stompring"
    # many messages in memory take long to write at a stop
    stop_seconds: ClassVar[float] = 120.0

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        addresses: Mapping[str, str] | None = None,
        root: Path = ROOT,
        arguments: Sequence[str] = (),
        tls: bool = False,
        code: Path | None = None,
    ) -> None:
        """``settings`` replace elements of <core>, ``addresses`` those of the address-setting for ``#``.

        ``root``: tree to run; ``arguments``: additional arguments of `stompring run`; ``code``: compiled copy of the
        tree, whose modules run in place of the tree's. ``tls``: add an acceptor with a new certificate, if the program
        openssl is installed.
        """
        super().__init__(env)
        self.http_port, self._websocket_port = free_port(), free_port()
        self._tls_port = tls_port() if tls else None
        self._arguments = list(arguments)
        self._code = code
        self._settings = {"global-max-size": GLOBAL_MAX_SIZE} | dict(settings or {})
        self._addresses = dict(addresses or {})
        self._root = root

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("stompring.server.service") is None:
            return "there is no stompring.server.service in this tree"
        return None

    def version(self) -> str:
        told = subprocess.run([python(), "-V"], capture_output=True, text=True, check=True)
        code = (self._root / "stompring/__init__.py").read_text()
        found = re.search(r'__version__ = "(.+?)"', code)
        parts = [f"Python {told.stdout.split()[1]}", *self._running()]
        return f"{found[1] if found else 'unknown'} ({', '.join(parts)})"

    def _running(self) -> list[str]:
        """Return the build and the reactor as the broker reports them; earlier versions do not."""
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{self.http_port}/api/v1/broker", timeout=10
            ) as answer:
                document = json.load(answer)
        except (OSError, ValueError):
            return []
        build, reactor = document.get("build"), document.get("reactor")
        return [word for word in (build, reactor and f"reactor {reactor}") if word]

    def transport_port(self, transport: str) -> int | None:
        """Return the port of the acceptor for WebSocket (ws) or TLS (tls). None: no such acceptor."""
        return {"ws": self._websocket_port, "tls": self._tls_port}.get(transport, self.port)

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.directory / "data"

    def prepare(self) -> Launch:
        config = self.directory / "broker.xml"
        self._write_config(config)
        sampled = os.environ.get("STOMPRING_PROFILE") if self._root == ROOT else None
        module = ["stompring"] if sampled is None else ["benchmarks.sampled", sampled]
        argv = [python(), "-m", *module, "run", "--config", str(config), "--data", str(self.data)]
        argv += self._arguments
        path = [str(self._root)] if self._code is None else [str(self._code), str(self._root)]
        # bytecode, as pip makes it; an empty value lets Python write it
        bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bytecode")}
        return Launch(argv, {"PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1", **bytecode})

    def _write_config(self, path: Path) -> None:
        shipped = self._root / "config/broker.xml"
        tree = etree.parse(str(shipped))
        ports = {"tcp": self.port, "http": self.http_port, "ws": self._websocket_port}
        seen = set()
        for acceptor in tree.iterfind(f".//{CORE}acceptor"):
            url = (acceptor.text or "").strip()
            scheme = url.partition(":")[0]
            seen.add(scheme)
            port = ports.get(scheme) or free_port()
            acceptor.text = re.sub(r"^(\w+)://[^/?]*", rf"\1://{HOST}:{port}", url)
            if scheme != "http":
                acceptor.text += f"{';' if '?' in url else '?'}{WINDOW}"
        if not seen.issuperset({"tcp", "http"}):
            raise BrokerDied(
                f"{shipped}: one acceptor for tcp:// and one for http:// are needed, found {seen}"
            )
        acceptors = tree.find(f".//{CORE}acceptors")
        if self._tls_port is not None and acceptors is not None:
            made = etree.SubElement(acceptors, f"{CORE}acceptor", name="tls")
            made.text = f"ssl://{HOST}:{self._tls_port}?{PREFIXES};{WINDOW};keyStorePath={certificate(self.directory)[0]}"
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


def python() -> str:
    """Return the Python that runs the broker."""
    return os.environ.get("STOMPRING_PYTHON", sys.executable)
