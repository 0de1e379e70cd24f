"""Compilation of `stompload`, and its runs against a broker."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.brokers import Broker

SOURCE = Path(__file__).with_name("stompload.c")
BUILD = SOURCE.parents[1] / "build"
# left out if OpenSSL's headers are missing
WITH_TLS = ("-DWITH_TLS", "-lssl", "-lcrypto")


class LoadFailed(Exception):
    """stompload could not be built, lost its connection, got an ERROR frame or stalled."""


def build() -> Path:
    """Return the program. Compile it if its source is newer."""
    program = BUILD / "stompload"
    if program.exists() and program.stat().st_mtime >= SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadFailed("no C compiler (cc, gcc or clang) in the PATH to build stompload")
    BUILD.mkdir(exist_ok=True)
    # build in another folder: several test processes may build at once, and none may start an incomplete program
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        fresh = Path(folder) / program.name
        plain = [compiler, "-O2", "-o", str(fresh), str(SOURCE)]
        made = subprocess.run([*plain, *WITH_TLS], capture_output=True, text=True)
        if made.returncode:
            made = subprocess.run(plain, capture_output=True, text=True)
        if made.returncode:
            raise LoadFailed(f"{SOURCE} does not compile:\n{made.stderr}")
        fresh.replace(program)
    return program


def command(broker: Broker, *options: str) -> list[str]:
    """Return the command line of stompload for a broker."""
    transport = options[options.index("-E") + 1] if "-E" in options else "tcp"
    port = broker.latency_port if "-L" in options else broker.transport_port(transport)
    if port is None:
        raise LoadFailed(f"{broker.name} has no listener for {transport} here")
    argv = [str(build()), "-P", str(port), *options]
    if broker.protocol != "stomp":
        argv += ["-F", broker.protocol]
    if broker.login is not None:
        argv += ["-u", broker.login, "-w", str(broker.passcode)]
    return argv


def run(broker: Broker, *options: str) -> dict[str, float]:
    """Run stompload. Returns its numbers, and processor time and memory of the broker."""
    with Running(broker, *options) as running:
        return running.finish()


def alone(*options: str) -> dict[str, float]:
    """Run stompload without a broker, and return its numbers: the producer's connection ends at the consumer."""
    argv = [str(build()), "-F", "alone", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return result_of(done.returncode, done.stdout.partition("\n")[2], done.stderr)


def result_of(status: int, out: str, err: str) -> dict[str, float]:
    """Return the numbers of a finished run. Raises `LoadFailed` if it is not a valid measurement."""
    if status or not out:
        raise LoadFailed(f"stompload ended with {status}: {(err or out).strip()[-2000:]}")
    measured: dict[str, float] = json.loads(out)
    if measured["errors"]:
        raise LoadFailed(f"the broker answered with {measured['errors']} ERROR frames: {err.strip()[-2000:]}")
    return measured


class Running:
    """A running stompload. As a context manager it ends the process at an early exit of the body."""

    def __init__(self, broker: Broker, *options: str) -> None:
        self._broker = broker
        self._cpu = broker.cpu_seconds()
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            command(broker, *options), stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def lines(self) -> Iterator[dict[str, float]]:
        """Yield the lines of stompload during the run (options -i, -I and -k), except the one at the clock's start."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "ready" in told:
                self._cpu = self._broker.cpu_seconds()
                continue
            if "sent" in told:
                self._last = line
                return
            yield told

    def release(self) -> None:
        """Have stuck consumers read (option -k)."""
        self._process.send_signal(signal.SIGUSR1)

    def interrupt(self) -> None:
        """End the run early. Its numbers cover the time so far."""
        self._process.send_signal(signal.SIGINT)

    def finish(self) -> dict[str, float]:
        """Wait for the end of stompload. Returns its numbers, and processor time and memory of the broker.

        Processor time counts from the moment when all clients are connected and subscribed.
        """
        for _ in self.lines():
            pass
        status = self._process.wait()
        self._errors.seek(0)
        measured = result_of(status, self._last, self._errors.read())
        measured["broker_cpu_s"] = round(self._broker.cpu_seconds() - self._cpu, 3)
        measured["broker_rss"] = self._broker.rss()
        return measured
