"""The process of a broker: start in a new directory, pause, measurement and stop.

Each kind of broker implements only the check for its programs, the configuration and command, and the version.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

HOST = "127.0.0.1"


class BrokerDied(Exception):
    """The broker ended or did not answer in time. The text contains the end of its output."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command of a broker, and its additional environment."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def tls_port() -> int | None:
    """Return a free port for TLS, None if the program openssl, which `certificate` needs, is not installed."""
    return free_port() if shutil.which("openssl") else None


def certificate(directory: Path) -> tuple[Path, Path]:
    """Create a certificate for localhost and its key, like the example in docs/settings.md. Returns their files."""
    files = directory / "tls.pem", directory / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(files[1]), "-out", str(files[0])],
        capture_output=True,
        check=True,
    )
    return files


class Broker(ABC):
    """One broker process, as a context manager: it listens during the body. Afterwards its directory is deleted."""

    name: ClassVar[str]
    # login and passcode for CONNECT, None if the broker requires none
    login: ClassVar[str | None] = None
    passcode: ClassVar[str | None] = None
    # seconds of warm-up of each case before the first measured run (just-in-time compilers)
    warm_seconds: ClassVar[float] = 0.5
    # whether SUBSCRIBE supports selectors
    selectors: ClassVar[bool] = True
    # value of stompload's option -F
    protocol: ClassVar[str] = "stomp"
    start_seconds: ClassVar[float] = 90.0
    stop_seconds: ClassVar[float] = 20.0

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        """``env``: additional environment of the broker, to compare its settings."""
        self.port = free_port()
        self._added_env = dict(env or {})
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._launch = Launch([])

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """Return why this broker cannot be started on this machine, None if it can."""

    @abstractmethod
    def version(self) -> str:
        """Return the version as text for a table. Call it only while the broker runs."""

    @abstractmethod
    def prepare(self) -> Launch:
        """Write the configuration into ``self.directory``. Returns the command."""

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-"))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker, and wait until it answers a CONNECT."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the broker without waiting. A later start uses the stored data of the former one."""
        launch = self.prepare() if self._process is None else self._launch
        self._launch = launch
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                launch.argv,
                env=os.environ | launch.env | self._added_env,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until the broker answers a CONNECT. Raises `BrokerDied`."""
        deadline = time.monotonic() + self.start_seconds
        while not self._answers():
            self.alive()
            if time.monotonic() > deadline:
                raise BrokerDied(f"{self.name} does not answer on port {self.port}:\n{self.tail()}")
            time.sleep(0.1)

    def alive(self) -> None:
        """Check the process. Raises `BrokerDied` if it has ended."""
        if self._process is None or self._process.poll() is not None:
            status = None if self._process is None else self._process.returncode
            raise BrokerDied(f"{self.name} ended with {status}:\n{self.tail()}")

    def stop(self) -> None:
        """End the broker, and delete its directory."""
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def end(self) -> None:
        """Terminate the broker, and kill it if it runs for another `stop_seconds`. Its data stays."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
            self._end_left_over()

    def kill(self) -> None:
        """Kill the broker. Its data stays."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._end_left_over()

    def pause(self) -> None:
        """Stop the process with SIGSTOP, so that it uses no processor time while another broker is measured."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process after `pause`."""
        self._signal(signal.SIGCONT)

    @property
    def latency_port(self) -> int:
        """The port for latency: `port`, unless the broker has a special listener."""
        return self.port

    def transport_port(self, transport: str) -> int | None:
        """Return the port for a transport of stompload (option -E). None: the broker has no such listener."""
        return self.port if transport == "tcp" else None

    @property
    def pid(self) -> int:
        """The id of the started process, whose children share its session."""
        if self._process is None:
            raise BrokerDied(f"{self.name} was not started")
        return self._process.pid

    @property
    def output(self) -> Path:
        """The file of the broker's standard output and error."""
        return self.directory / "output.log"

    def tail(self, lines: int = 20) -> str:
        """Return the last lines of the broker's output."""
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def rss(self) -> int:
        """Return the resident memory of the process and all its children in bytes."""
        return sum(_rss(pid) for pid in self._session())

    def peak_rss(self) -> int:
        """Return the maximum resident memory since the start (or `reset_peak`) in bytes, summed over the processes."""
        return sum(_peak_rss(pid) for pid in self._session())

    def reset_peak(self) -> None:
        """Reset the maximum of `peak_rss`."""
        for pid in self._session():
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except OSError:
                continue

    def cpu_seconds(self) -> float:
        """Return the processor time of the process and all its children so far, in seconds."""
        return sum(_cpu_seconds(pid) for pid in self._session())

    def _answers(self) -> bool:
        login = f"login:{self.login}\npasscode:{self.passcode}\n" if self.login else ""
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as probe:
                probe.sendall(f"CONNECT\naccept-version:1.2\nhost:/\n{login}\n\0".encode())
                answered = probe.recv(9) == b"CONNECTED"
                probe.sendall(b"DISCONNECT\n\n\0")
                return answered
        except OSError:
            return False

    def _session(self) -> list[int]:
        if self._process is None:
            return []
        everyone = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [pid for pid in everyone if _session_of(pid) == self.pid]

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._session():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _end_left_over(self) -> None:
        deadline = time.monotonic() + 5
        while self._session() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _peak_rss(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def _cpu_seconds(pid: int) -> float:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")
