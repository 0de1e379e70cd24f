"""Three machines: each has a node of NATS, two have a broker. Processes that end by themselves are started again."""

import contextlib
import ctypes
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from ..broker_document import EVERYBODY
from ..broker_pool import python_path
from ..broker_process import ROOT
from ..crash import topology
from ..management import basic
from ..nats_cluster import nats_server
from ..ports import free_port
from . import clock
from .network import Loopback, Namespaces

NODES = ("n1", "n2", "n3")
BROKERS = ("b1", "b2")
#: The node on the machine of each broker.
MACHINE = {"b1": "n1", "b2": "n2"}
STREAM = "campaign"
LOGIN = ("campaign", "campaign")

#: Seconds after which a supervisor starts an ended process again, as systemd's RestartSec.
RESTART = 1.0

#: Mebibytes of the file system that each broker has for its data directory.
DISK = 192

#: What no log of a broker may contain.
BUGS = ("Traceback", "Internal error", "Unhandled", "recreated with default attributes")

#: Exit codes of a broker that are in order: stopped, or not active any more.
ORDERLY = (0, 75)

_libc = ctypes.CDLL(None)


def _die_with_parent():
    _libc.prctl(1, signal.SIGKILL)


@dataclass
class Supervised:
    """A process that is started again when it ends, unless it is held down."""

    name: str
    host: str
    words: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    down: bool = True
    killed: bool = False  # by the test
    stopped: bool = False  # by SIGSTOP
    ended: float = 0.0
    starts: int = 0


@dataclass(frozen=True)
class Exit:
    """The end of a process."""

    time: float
    name: str
    code: int
    wanted: bool


class World:
    """The processes, the network between them and the disks below them. Use as a context manager.

    ``engine`` is ``nats``, or ``shared``: both brokers on one data directory, with ``--wait``. That needs no NATS.
    """

    def __init__(self, directory, seed, engine="nats", namespaces=True, clocks=True, disk=DISK):
        self.directory = directory
        self.engine = engine
        self.disk = disk
        self.random = Random(seed)
        self.network = Namespaces([*NODES, *BROKERS]) if namespaces else Loopback([*NODES, *BROKERS])
        self.clocks = {}
        self.exits = []
        self.on_resume = lambda seconds: None
        self.ready = dict.fromkeys(BROKERS, False)
        self.answers = dict.fromkeys(BROKERS, "")
        self.ready_since = dict.fromkeys(BROKERS, 0.0)
        self._mounts = []
        self._processes = {}
        self._ports = {}
        self._over = threading.Event()
        self._lock = threading.RLock()
        self._threads = []
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "logs").mkdir(exist_ok=True)
        if clocks:
            library = clock.build(directory)
            self.clocks = {name: clock.Clock(library, directory / f"{name}.clock") for name in BROKERS}

    # ---- beginning and end

    def __enter__(self):
        try:
            for name in BROKERS:
                self._make_disk(name)
            if self.engine == "nats":
                for name in NODES:
                    self._add_node(name)
            for name in BROKERS:
                self._add_broker(name)
            if self.engine == "shared":
                self.data("b1").mkdir(parents=True)
            self._threads = [threading.Thread(target=self._supervise, name="supervisor", daemon=True)]
            self._threads += [
                threading.Thread(target=self._poll, args=[name], name=f"ready {name}", daemon=True)
                for name in BROKERS
            ]
            for thread in self._threads:
                thread.start()
            if self.engine == "nats":
                self.release(*NODES)
                self._until(self.nodes_healthy, 30.0, "the nodes of NATS are not ready")
                self._create_log()
            self.release("b1")
            self._until(lambda: self.ready["b1"], 30.0, "the first broker is not ready")
            self.release("b2")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """End every process, remove hosts and disks."""
        for name in self._processes:
            self._processes[name].down = True
        self._over.set()
        for thread in self._threads:
            thread.join(5.0)
        for supervised in self._processes.values():
            if supervised.process is not None and supervised.process.poll() is None:
                supervised.process.kill()
                supervised.process.wait()
        self.network.close()
        for mount in self._mounts:
            subprocess.run(["umount", "--lazy", mount], capture_output=True)
        self._mounts.clear()

    def keep_data(self):
        """Copy what is on disks that go away with the world."""
        for name in BROKERS:
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(self.data(name), self.directory / "kept" / name, dirs_exist_ok=True)

    def _until(self, done, seconds, what):
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}; logs are in {self.directory / 'logs'}")
            time.sleep(0.05)

    # ---- where things are

    def address(self, name):
        """The IP address of a process."""
        return self.network.address(name)

    def port(self, name, use):
        """The port on which a process is reached for ``stomp``, ``http``, ``client``, ``cluster``, ``monitor``."""
        if self.network.can_cut:
            return {"stomp": 61613, "http": 8161, "client": 4222, "cluster": 6222, "monitor": 8222}[use]
        if (name, use) not in self._ports:
            self._ports[name, use] = free_port()
        return self._ports[name, use]

    def data(self, name):
        """The data directory of a broker."""
        return self.directory / "disks" / ("b1" if self.engine == "shared" else name) / "data"

    def store(self, node):
        """The directory in which a node of NATS stores streams."""
        return self.directory / "nats" / node

    @property
    def urls(self):
        """How brokers reach NATS."""
        return ",".join(f"nats://{self.address(node)}:{self.port(node, 'client')}" for node in NODES)

    def _make_disk(self, name):
        mount = self.directory / "disks" / name
        mount.mkdir(parents=True)
        if os.geteuid() == 0 and shutil.which("mount"):
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={self.disk}m", "tmpfs", mount], capture_output=True
            )
            if done.returncode == 0:
                self._mounts.append(mount)

    @property
    def can_fill(self):
        """Whether each broker has a file system for itself."""
        return len(self._mounts) == len(BROKERS)

    def fill_disk(self, name, free):
        """Leave that many bytes on the file system of a broker."""
        filler = self.data(name).parent / "filler"
        with filler.open("wb") as file:
            for _ in range(1000):  # the broker takes of it at the same time
                status = os.statvfs(filler.parent)
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize - free))
                    return

    def empty_disk(self, name):
        """Remove what `fill_disk` wrote."""
        (self.data(name).parent / "filler").unlink(missing_ok=True)

    # ---- configuration

    def _add_node(self, name):
        address = self.address(name)
        routes = ", ".join(
            f'"nats://{self.address(node)}:{self.port(node, "cluster")}"' for node in NODES if node != name
        )
        config = self.directory / f"{name}.conf"
        config.write_text(
            f"server_name: {name}\n"
            f"listen: {address}:{self.port(name, 'client')}\n"
            f"http: {address}:{self.port(name, 'monitor')}\n"
            f'jetstream {{ store_dir: "{self.store(name)}", sync_interval: always }}\n'
            f"cluster {{ name: campaign, listen: {address}:{self.port(name, 'cluster')}, routes: [{routes}] }}\n"
        )
        program = nats_server()
        assert program is not None
        log = self.directory / "logs" / f"{name}.log"
        self._processes[name] = Supervised(name, name, [program, "-c", str(config)], log)

    def _add_broker(self, name):
        (self.directory / "artemis-users.properties").write_text(f"{LOGIN[0]} = {LOGIN[1]}\n")
        (self.directory / "artemis-roles.properties").write_text(f"{EVERYBODY} = {LOGIN[0]}\n")
        config = self.directory / f"{name}.xml"
        document = topology.document(Random(self.random.random()), more=self._core(name), secure=True)
        address = self.address(name)
        document = document.replace("tcp://127.0.0.1:0", f"tcp://{address}:{self.port(name, 'stomp')}")
        document = document.replace("http://127.0.0.1:0", f"http://{address}:{self.port(name, 'http')}")
        document = document.replace("<address-settings>", f"<address-settings>{PROBED}")
        config.write_text(document)
        words = [sys.executable, "-m", "stompring", "run", "--config", str(config)]
        words += ["--data", str(self.data(name)), *(["--wait"] if self.engine == "shared" else [])]
        environment = {"PYTHONPATH": python_path(ROOT), "PYTHONUNBUFFERED": "1"}
        if name in self.clocks:
            environment |= self.clocks[name].environment
        log = self.directory / "logs" / f"{name}.log"
        self._processes[name] = Supervised(name, name, words, log, environment)

    def _core(self, name):
        if self.engine != "nats":
            return {}
        attributes = f'url="{self.urls}" stream="{STREAM}" broker="{name}"'
        monitors = ",".join(f"http://{self.address(node)}:{self.port(node, 'monitor')}" for node in NODES)
        attributes += f' monitor="{monitors}"'
        return {"ha-policy": f"<replicated-log {attributes}/>"}

    def _create_log(self):
        done = self.run_cli(
            "ha", "init", "--config", str(self.directory / "b1.xml"), "--max-bytes", f"{4 * self.disk}MB"
        )
        assert done.returncode == 0, f"stompring ha init: {done.stdout}{done.stderr}"

    def run_cli(self, *words):
        """A command of ``stompring``, on the clients' host."""
        return subprocess.run(
            [sys.executable, "-m", "stompring", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": python_path(ROOT)},
            timeout=60,
        )

    # ---- processes

    def pid(self, name):
        """The process id, None where it does not run."""
        process = self._processes[name].process
        return process.pid if process is not None and process.poll() is None else None

    def starts(self, name):
        """How often it was started."""
        return self._processes[name].starts

    def release(self, *names):
        """Start processes, and start them again when they end."""
        for name in names:
            self._processes[name].ended = 0.0
            self._processes[name].down = False

    def kill(self, *names, down=False):
        """SIGKILL. ``down``: not to be started before `release`."""
        for name in names:
            supervised = self._processes[name]
            supervised.down = supervised.down or down
            supervised.killed = True
            supervised.stopped = False
            with self._lock:
                if supervised.process is not None and supervised.process.poll() is None:
                    supervised.process.kill()
        for name in names:
            process = self._processes[name].process
            if process is not None:
                process.wait()

    def hold(self, name):
        """When it ends it is not to be started again."""
        self._processes[name].down = True

    def terminate(self, name):
        """SIGTERM: it stops in order, and is started again."""
        self._signal(name, signal.SIGTERM)

    def stop(self, name):
        """SIGSTOP."""
        self._processes[name].stopped = True
        self._signal(name, signal.SIGSTOP)

    def resume(self, name):
        """SIGCONT."""
        self._processes[name].stopped = False
        self.on_resume(0.0)
        self._signal(name, signal.SIGCONT)

    def _signal(self, name, number):
        with self._lock:
            process = self._processes[name].process
            if process is not None and process.poll() is None:
                process.send_signal(number)

    def reconnect(self, late=0.0):
        """End all partitions. What was sent before may arrive for ``late`` seconds: TCP repeats it ever less often."""
        self.on_resume(late)
        self.network.heal()

    def wait_ended(self, name, seconds):
        """Whether a process ends in time."""
        deadline = time.monotonic() + seconds
        while self.pid(name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def wipe(self, name):
        """Delete the data directory of a broker that does not run."""
        assert self.pid(name) is None
        shutil.rmtree(self.data(name), ignore_errors=True)

    def heal(self):
        """End whatever is broken: all processes run, all packets arrive, disks have room."""
        self.reconnect()
        for name, supervised in self._processes.items():
            if supervised.stopped:
                self.resume(name)
            if supervised.down:
                self.release(name)
        for name in BROKERS:
            self.empty_disk(name)

    def _supervise(self):
        # one thread starts all of them: children that are to die with it die when it ends
        while not self._over.wait(0.02):
            for supervised in self._processes.values():
                with self._lock:
                    self._look_after(supervised)

    def _look_after(self, supervised):
        process = supervised.process
        if process is not None:
            code = process.poll()
            if code is None:
                return
            supervised.process = None
            supervised.ended = time.monotonic()
            self.exits.append(Exit(time.time(), supervised.name, code, supervised.killed))
            supervised.killed = False
        if supervised.down or time.monotonic() < supervised.ended + RESTART or self._over.is_set():
            return
        with supervised.log.open("ab") as log:
            supervised.process = subprocess.Popen(
                self.network.command(supervised.host, supervised.words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **supervised.environment},
                preexec_fn=_die_with_parent,
            )
        supervised.starts += 1

    # ---- what they say

    def _poll(self, name):
        while not self._over.wait(0.05):
            status, text = _get(self.address(name), self.port(name, "http"), "/health/ready", 0.5)
            ready = status == 200
            if ready and not self.ready[name]:
                self.ready_since[name] = time.monotonic()
            self.ready[name], self.answers[name] = ready, text

    def active(self):
        """The broker that is ready, the latest one where two say so."""
        ready = [name for name in BROKERS if self.ready[name]]
        return max(ready, key=self.ready_since.__getitem__) if ready else None

    def other(self, broker):
        """The other broker."""
        return BROKERS[1 - BROKERS.index(broker)]

    def http(self, name, path):
        """A JSON document of a broker or the monitor of a node; None where there is none."""
        use = "monitor" if name in NODES else "http"
        status, text = _get(self.address(name), self.port(name, use), path, 2.0)
        return json.loads(text) if status == 200 else None

    def nodes_healthy(self):
        """Every node of NATS has all that the others have."""
        return all(
            _get(self.address(node), self.port(node, "monitor"), "/healthz", 1.0)[0] == 200 for node in NODES
        )

    def leader(self):
        """The node that orders the entries of the stream; the first one where nobody knows."""
        for node in NODES:
            try:
                found = self.http(node, "/jsz?accounts=true&streams=true")
                for account in (found or {}).get("account_details", ()):
                    for stream in account.get("stream_detail", ()):
                        leader = stream.get("cluster", {}).get("leader")
                        if stream["name"] == STREAM and leader:
                            return str(leader)
            except (OSError, ValueError):
                continue
        return NODES[0]

    def is_following(self, broker):
        """A standby has all entries, as far as it says how many it lacks."""
        if self.engine != "nats":
            return self.answers[broker] != "" and not self.ready[broker]
        found = self.http(broker, "/api/v1/ha") or {}
        return (
            found.get("role") == "standby" and not found.get("rebuilding") and not found.get("missingEntries")
        )

    def settle(self, seconds=60.0):
        """Wait until one broker is active, the other a standby and NATS is whole. Returns the active one."""
        if self.engine == "nats":
            self._until(self.nodes_healthy, seconds, "NATS does not recover")
        found = []  # one that is suspended just now is not ready any more at the next look

        def is_settled():
            active = self.active()
            found[:] = [active] if active is not None else []
            return active is not None and self.is_following(self.other(active))

        self._until(is_settled, seconds, "no broker is ready, or there is no standby")
        return found[0]

    def bugs(self):
        """What the logs of the brokers tell of bugs, and ends that should not have been."""
        for name in BROKERS:
            log = self._processes[name].log
            text = log.read_text(errors="replace") if log.exists() else ""
            for bug in BUGS:
                if bug in text:
                    yield f"the log of {name} has {bug!r}"
        for end in self.exits:
            if end.name in BROKERS and not end.wanted and not self._may_end(end):
                yield f"{end.name} ended with exit code {end.code} at {time.ctime(end.time)}"

    def _may_end(self, end):
        return end.code in ORDERLY


#: What the queues of the probes need: no message of theirs dies.
PROBED = (
    '<address-setting match="probe.#"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>'
    '<address-setting match="probe.paged.#"><max-delivery-attempts>-1</max-delivery-attempts>'
    "<max-size-messages>0</max-size-messages><page-size-bytes>16K</page-size-bytes></address-setting>"
    '<address-setting match="laden.#"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>'
    '<address-setting match="laden.paged.#"><max-size-bytes>1M</max-size-bytes><page-size-bytes>1M</page-size-bytes>'
    "</address-setting>"
)


def _get(address, port, path, seconds):
    connection = http.client.HTTPConnection(address, port, timeout=seconds)
    try:
        connection.request("GET", path, headers={"Authorization": basic(*LOGIN)})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()
