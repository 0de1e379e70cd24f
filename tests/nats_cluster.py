"""A cluster of real NATS servers for tests: start, kill, stop and continue a node, lose its directory.

``STOMPRING_NATS_SERVER`` names the server's program; without it that is ``stompring/nats-server-2.15.2/nats-server`` in
the user's cache directory, or ``nats-server`` in PATH. Tests skip without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .ports import free_ports
from .waiting import until

VERSION = "2.15.2"
MIN_VERSION = (2, 10)
VARIABLE = "STOMPRING_NATS_SERVER"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

#: Servers die with the thread that starts them (PR_SET_PDEATHSIG), which so must not end before the process.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="nats-cluster")


@cache
def nats_server() -> str | None:
    """The server's program; None where there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    cached = CACHE / "stompring" / f"nats-server-{VERSION}" / "nats-server"
    return str(cached) if cached.is_file() else shutil.which("nats-server")


def installed() -> str:
    """The server's program; without one that is new enough the test is skipped."""
    program = nats_server()
    if program is None:
        pytest.skip(f"nats-server is not installed: set {VARIABLE}, or run .ci/run")
    if server_version(program) < MIN_VERSION:
        pytest.skip(
            f"nats-server 2.10 is not installed: {program} is older, and loses confirmed entries; set {VARIABLE}"
        )
    return program


@cache
def server_version(program: str) -> tuple[int, ...]:
    """(2, 15, 2) for example."""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in text.split(":")[-1].strip().lstrip("v").split("-")[0].split("."))


def wait_until(condition: Callable[[], bool], what: str, timeout: float = 60) -> None:
    """Poll a condition; the test fails when it does not hold in time."""
    until(condition, f"not within {timeout} s: {what}", timeout)


class NatsNode:
    """One server of a cluster. ``prefix`` comes before its command: ``("ip", "netns", "exec", "a")``."""

    def __init__(
        self,
        name: str,
        program: str,
        directory: Path,
        address: str,
        ports: Sequence[int],
        prefix: Sequence[str],
    ) -> None:
        self.name = name
        self.address = address
        self.port, self.monitor_port, self.cluster_port = ports
        self.directory = directory
        self.store = directory / "store"
        self.log = directory / "nats.log"
        self.configuration = directory / "nats.conf"
        self.process: subprocess.Popen[bytes] | None = None
        self._prefix = tuple(prefix)
        self._program = program

    @property
    def url(self) -> str:
        return f"nats://{self.address}:{self.port}"

    @property
    def monitor(self) -> str:
        return f"http://{self.address}:{self.monitor_port}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the server; it returns before the server is ready."""
        assert not self.is_running
        command = [*self._prefix, self._program, "-c", str(self.configuration)]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with self.log.open("ab") as log:
            self.process = _STARTER.submit(
                subprocess.Popen, command, stdout=log, stderr=log, start_new_session=True
            ).result()

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.killpg(self.process.pid, number)  # type: ignore[union-attr]

    def _end(self, number: signal.Signals) -> None:
        self._signal(number)
        self._signal(signal.SIGCONT)
        if self.process is not None:
            self.process.wait(30)
            self.process = None

    def kill(self) -> None:
        """kill -9; it returns when the process is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def suspend(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Delete all that the server stored. It must not be running."""
        assert not self.is_running
        shutil.rmtree(self.store, ignore_errors=True)

    def get(self, path: str, timeout: float = 2) -> Any:
        """A page of the server's monitor (``/varz``, ``/jsz?streams=1``); None while it does not answer."""
        try:
            with urllib.request.urlopen(self.monitor + path, timeout=timeout) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return None


class NatsCluster:
    """Three servers with JetStream, ``sync_interval: always``; a context manager that starts and stops them.

    ``configuration`` is added to the file of each node.
    """

    def __init__(self, directory: Path, *, configuration: str = "", program: str | None = None) -> None:
        program = program or installed()
        # unknown before 2.10, and refused
        interval = "sync_interval: always" if server_version(program) >= MIN_VERSION else ""
        free = free_ports(9)
        self.nodes = [
            NatsNode(f"n{at}", program, directory / f"n{at}", "127.0.0.1", (*free[3 * at :][:3],), ())
            for at in range(3)
        ]
        routes = ", ".join(f"nats://{node.address}:{node.cluster_port}" for node in self.nodes)
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            node.configuration.write_text(
                f"server_name: {node.name}\n"
                f"listen: {node.address}:{node.port}\n"
                f"http: {node.address}:{node.monitor_port}\n"
                f'jetstream {{ store_dir: "{node.store}"\n {interval} }}\n'
                f"cluster {{ name: tests\n listen: {node.address}:{node.cluster_port}\n routes: [{routes}] }}\n"
                f"{configuration}\n",
            )

    @property
    def url(self) -> str:
        """What the broker is given: all nodes, and the ports of their monitors."""
        nodes = ",".join(f"{node.address}:{node.port}" for node in self.nodes)
        return f"nats://{nodes}?monitor={self.monitors}"

    @property
    def monitors(self) -> str:
        return ",".join(node.monitor for node in self.nodes)

    def start(self) -> None:
        """Start every node and wait until the cluster has a leader."""
        for node in self.nodes:
            node.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until every running node knows the cluster's leader and all other nodes."""
        running = [node for node in self.nodes if node.is_running]

        def ready() -> bool:
            for node in running:
                meta = (node.get("/jsz") or {}).get("meta_cluster") or {}
                current = [one for one in meta.get("replicas", []) if one.get("current")]
                if not meta.get("leader"):
                    return False
                if meta["leader"] == node.name and len(current) < len(running) - 1:
                    return False
            return True

        wait_until(ready, "the cluster has a leader")

    def api(self, name: str, request: object = None) -> Any:
        """JetStream's answer to an administrator: ``api("STREAM.INFO.orders")``."""
        import nats

        async def ask() -> Any:
            client = await nats.connect(servers=[node.url for node in self.nodes if node.is_running])
            try:
                payload = b"" if request is None else json.dumps(request).encode()
                return json.loads((await client.request(f"$JS.API.{name}", payload, timeout=30)).data)
            finally:
                await client.close()

        return asyncio.run(ask())

    def serving(self, client: str) -> NatsNode:
        """The node that a client of that name is connected to."""

        def serves(node: NatsNode) -> bool:
            connections = (node.get("/connz") or {}).get("connections", ())
            return any(one.get("name") == client for one in connections)

        return self._first(serves, f"a node serves {client}")

    def leader(self, stream: str) -> NatsNode:
        """The node that leads a stream."""
        return self._first(
            lambda node: self._group(stream, node).get("leader") == node.name, f"stream {stream} has a leader"
        )

    def _first(self, fits: Callable[[NatsNode], bool], what: str) -> NatsNode:
        """Wait for a running node that fits."""
        found: list[NatsNode] = []

        def look() -> bool:
            found.extend(node for node in self.nodes if node.is_running and fits(node))
            return bool(found)

        wait_until(look, what)
        return found[0]

    def _group(self, stream: str, node: NatsNode) -> dict[str, Any]:
        """The group of a stream as a node sees it: ``leader``, ``replicas``. Empty while it does not answer."""
        state = node.get("/jsz?accounts=true&streams=true") or {}
        for account in state.get("account_details", []):
            for one in account.get("stream_detail", []):
                if one["name"] == stream:
                    return dict(one.get("cluster") or {})
        return {}

    def wait_current(self, stream: str) -> None:
        """Wait until every running node has all of a stream."""
        running = {node.name for node in self.nodes if node.is_running}

        def current(node: NatsNode) -> bool:
            group = self._group(stream, node)
            have = {one["name"] for one in group.get("replicas", []) if one.get("current")}
            return group.get("leader") == node.name and running <= have | {node.name}

        self._first(current, f"all nodes have stream {stream}")

    def stop(self) -> None:
        """End every node, whatever its state."""
        for node in self.nodes:
            node.kill()

    def __enter__(self) -> NatsCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
