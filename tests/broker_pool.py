"""Brokers for the tests without the time that imports take: forked from a process that has imported everything.

To import Twisted and what comes with it takes most of the start of a broker, and the tests start a thousand. What is
forked runs ``stompring run`` from its first line to its exit as any other; the reactor, which a fork must not inherit,
is made in there. All of them end with the process that runs the tests, also if that is killed. Tests that care for the
start itself ask for a process of their own (``BrokerProcess(…, forked=False)``), and ``STOMPRING_BROKER_POOL=0``
has all of them so.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

#: The compiled copy of this checkout.
COMPILED = ROOT / "build" / "compiled"

#: What imports the rest of it. `stompring.server.service` imports the reactor.
PREPARED = (
    "twisted.application.service",
    "twisted.internet.epollreactor",
    "stompring.admin.http",
    "stompring.cli.main",
    "stompring.policy.load",
    "stompring.server.authentication",
    "stompring.server.listeners",
    "stompring.server.protocol",
    "stompring.server.persistence",
    "stompring.server.reload",
    "stompring.server.authentication",
)

#: prctl(2): the signal for this process when its parent ends; its name; and that processes whose parent has ended
#: become children of this one, so that it can wait for them.
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36

_LIBC = ctypes.CDLL(None, use_errno=True)


class Child:
    """A process that was forked, with what tests use of a `subprocess.Popen`."""

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self.stdout = open(output, encoding="utf-8", errors="replace")  # noqa: SIM115 - as long as the process
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.001
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("stompring", timeout or 0)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class BrokerPool:
    """The process to fork from, as this one sees it. Started when it is first needed, ends with this one."""

    def __init__(self) -> None:
        self._talk: socket.socket | None = None

    def fork(self, words: list[str]) -> Child:
        """``python -m stompring`` with these words, its output in one pipe."""
        talk = self._talk = self._talk or self._begin()
        output, given = os.pipe()
        request = {
            "words": words,
            "directory": os.getcwd(),
            "environment": dict(os.environ),
            "runner": os.getpid(),
        }
        _adopt(True)  # for this moment only: what else loses its parent is none of ours
        socket.send_fds(talk, [json.dumps(request).encode()], [given])
        os.close(given)
        pid = int(talk.recv(64))
        _adopt(False)
        return Child(pid, output)

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [*python(), "-m", "tests.broker_pool", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": broker_path(), "PYTHONUNBUFFERED": "1"},
        )
        theirs.close()
        assert ours.recv(64) == b"ready", process.wait()
        atexit.register(process.wait)
        atexit.register(ours.close)
        return ours


def _adopt(orphans: bool) -> None:
    _prctl(PR_SET_CHILD_SUBREAPER, int(orphans))


def _prctl(option: int, value: int | bytes) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def die_with(parent: int) -> None:
    """SIGKILL for this process when ``parent`` ends, which is or becomes its parent. Not if only a thread ends."""
    before = os.getppid()
    while (now := os.getppid()) == before != parent:
        time.sleep(0.0005)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if now != parent or os.getppid() != parent:
        os._exit(1)  # it has ended already


def python_path(root: Path) -> str:
    """What ``PYTHONPATH`` is for a process that imports from there first."""
    return os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))


def build() -> str:
    """The build that brokers in processes of their own run: ``STOMPRING_BUILD``, pure Python without it."""
    return os.environ.get("STOMPRING_BUILD", "pure Python")


def python() -> list[str]:
    """Python for brokers. That of a compiled build does not import from the working directory."""
    return [sys.executable, *(["-P"] if build() == "compiled" else [])]


def broker_path() -> str:
    """``PYTHONPATH`` for brokers: the build comes first."""
    return os.pathsep.join([*([str(COMPILED)] if build() == "compiled" else []), python_path(ROOT)])


BROKER_POOL = BrokerPool()


# ---- in the process of the pool


def prepare() -> None:
    """Import all that a broker does, but for the reactor and what has one."""
    for name in PREPARED:
        import_module(name)
    import_module("stompring.selector").compile_selector("TRUE = TRUE")
    assert "twisted.internet.reactor" not in sys.modules, "it would be shared by all that are forked"


def forked(talk: socket.socket, request: dict[str, Any], output: int) -> bool:
    """Fork; the process between ends at once, and so the new one is a child of the tests. True in the new one."""
    told, tell = os.pipe()
    between = os.fork()
    if between:
        os.close(tell)
        os.close(output)
        os.waitpid(between, 0)
        talk.send(os.read(told, 64))
        os.close(told)
        return False
    if pid := os.fork():
        os.write(tell, str(pid).encode())
        os._exit(0)
    for descriptor in (told, tell):
        os.close(descriptor)
    talk.close()
    die_with(request["runner"])
    _prctl(PR_SET_NAME, b"tested broker")
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["stompring", *request["words"]]
    return True


def serve(talk: socket.socket) -> bool:
    """Fork as often as it is asked for. True in what was forked, False when the tests have ended."""
    talk.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(talk, 1 << 20, 1)
        if not message:
            return False
        if forked(talk, json.loads(message), descriptors[0]):
            return True


if __name__ == "__main__":
    _prctl(PR_SET_NAME, b"broker pool")
    prepare()
    if serve(socket.socket(fileno=int(sys.argv[1]))):
        runpy.run_module("stompring", run_name="__main__", alter_sys=True)
