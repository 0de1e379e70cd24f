"""A real broker in a process of its own, as a user starts it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from .broker_pool import BROKER_POOL, Child, broker_path, die_with, python
from .management import Management
from .stomp_client import StompClient
from .waiting import PATIENCE as PATIENCE
from .waiting import Deadline

ROOT = Path(__file__).resolve().parent.parent
FORKED = os.environ.get("STOMPRING_BROKER_POOL", "1") != "0"
LISTENS = re.compile(r"listens on \S+:(\d+) \(acceptor (\S+)\)")


def _before_start(runner: int) -> None:
    """A shell that runs the tests in the background has SIGINT ignored, which would be inherited.

    ``runner`` is this process, 0 in a thread of it, with whose end the broker would end.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if runner:
        die_with(runner)


def _started(words: list[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    """As a user starts it."""
    runner = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    return subprocess.Popen(
        [*python(), "-m", "stompring", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": broker_path(), "PYTHONUNBUFFERED": "1", **env},
        preexec_fn=partial(_before_start, runner),
    )


class BrokerProcess:
    """``stompring run`` with its log. Use as a context manager: leaving it stops the broker and looks for faults.

    ``data`` is its data directory; without it each broker.xml has one of its own, beside it. ``forked``: from the
    `broker_pool`, which saves the time of its imports. ``options`` are further ones of ``stompring run``,
    ``env`` is added to the environment.
    """

    def __init__(
        self,
        config: Path,
        data: Path | None = None,
        forked: bool = True,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.ports: dict[str, int] = {}
        self.may_fault = False  # a test provokes faults that are logged with their traceback
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        words = [
            "run",
            "--config",
            str(config),
            "--data",
            str(data or config.with_name(f"{config.stem}-data")),
            *options,
        ]
        self._process: subprocess.Popen[str] | Child
        self._process = (
            BROKER_POOL.fork(words) if forked and FORKED and env is None else _started(words, env or {})
        )
        self._reader = threading.Thread(target=self._read, name="broker log", daemon=True)
        self._reader.start()

    def __enter__(self) -> BrokerProcess:
        try:
            self.wait_for_log("is ready")
        except BaseException:
            self._process.kill()
            raise
        for line in self.log:
            if found := LISTENS.search(line):
                self.ports[found[2]] = int(found[1])
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None or exception[0] is None:
            self.stop()

    @property
    def port(self) -> int:
        """Where it speaks STOMP."""
        return self.ports["stomp"]

    @property
    def http_port(self) -> int:
        """Where it answers HTTP."""
        return self.ports["http"]

    def client(self, version: str = "1.2") -> StompClient:
        """A dialogue with it, which has not said anything yet."""
        return StompClient(self.port, version)

    def management(self, login: tuple[str, str] | None = None) -> Management:
        """Its management API."""
        return Management(self.http_port, login=login)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    # ---- the log

    @property
    def log(self) -> list[str]:
        """Every line so far: also those that the thread which reads them has not come to on a busy machine."""
        self._catch_up()
        with self._changed:
            return list(self._lines)

    def _catch_up(self) -> None:
        """The broker writes a line before it answers whoever caused it: by then the pipe has it."""
        deadline = Deadline()
        before = -1
        while not deadline.passed():
            with self._changed:
                if self._ended:
                    return
                count = len(self._lines)
            assert self._process.stdout is not None
            left = fcntl.ioctl(self._process.stdout.fileno(), termios.FIONREAD, bytes(4))
            if any(left):
                before = -1
            elif count == before:
                return
            else:
                before = count
            deadline.pause(0.002)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_log(self, pattern: str, after: int = 0) -> str:
        """The first line from number ``after`` on in which the regular expression is found."""
        deadline = Deadline()
        at = after
        with self._changed:
            while True:
                for line in self._lines[at:]:
                    if re.search(pattern, line):
                        return line
                at = max(after, len(self._lines))
                left = deadline.left()
                if self._ended or left <= 0:
                    why = "the broker has ended" if self._ended else "time is over"
                    raise AssertionError(
                        f"no log line matches {pattern!r}; {why}:\n" + "\n".join(self._lines)
                    )
                self._changed.wait(left)

    # ---- signals

    def reload(self, document: str | None = None) -> str:
        """Write another broker.xml where one is given, send SIGHUP, and return the log line that tells the outcome."""
        if document is not None:
            self.config.write_text(document)
        seen = len(self.log)
        self._process.send_signal(signal.SIGHUP)
        return self.wait_for_log(r"configuration reloaded|cannot reload the configuration", after=seen)

    def terminate(self, number: int = signal.SIGTERM) -> None:
        """Ask it to stop, without waiting."""
        self._process.send_signal(number)

    def exit_code(self) -> int:
        """Its exit code, when it has ended by itself or after `terminate`; negative: the signal that killed it."""
        code = self._wait()
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        assert self._wait() == -signal.SIGKILL

    def _wait(self) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        deadline = Deadline()
        while True:
            try:
                return self._process.wait(max(0.0, deadline.left()))
            except subprocess.TimeoutExpired:
                if deadline.passed():
                    raise

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop it and fail where the exit code is not 0 or the log tells of a fault of the broker's own."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            code = self._wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError("the broker does not stop:\n" + "\n".join(self.log[-50:])) from None
        self._reader.join(PATIENCE)
        log = "\n".join(self.log)
        assert self.may_fault or "Traceback" not in log, log
        assert "Internal error" not in log, log
        assert code == 0, f"exit code {code}:\n{log}"
