"""Builds `stompload` and runs it against a broker."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from benchmarks.brokers import Broker

SOURCE = Path(__file__).with_name("stompload.c")
BUILD = SOURCE.parents[1] / "build"


class LoadFailed(Exception):
    """stompload could not be built, lost its connection, got an ERROR frame or stalled."""


def build() -> Path:
    """The program, compiled again only when its source is newer."""
    program = BUILD / "stompload"
    if program.exists() and program.stat().st_mtime >= SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise LoadFailed("no C compiler (cc, gcc or clang) in the PATH to build stompload")
    BUILD.mkdir(exist_ok=True)
    made = subprocess.run([compiler, "-O2", "-o", str(program), str(SOURCE)], capture_output=True, text=True)
    if made.returncode:
        raise LoadFailed(f"{SOURCE} does not compile:\n{made.stderr}")
    return program


def command(broker: Broker, *options: str) -> list[str]:
    """The command line that points stompload at this broker."""
    port = broker.latency_port if "-L" in options else broker.port
    argv = [str(build()), "-P", str(port), *options]
    if broker.login is not None:
        argv += ["-u", broker.login, "-w", str(broker.passcode)]
    return argv


def run(broker: Broker, *options: str) -> dict[str, float]:
    """One run: what stompload printed, and what processor time and memory the broker took meanwhile."""
    cpu = broker.cpu_seconds()
    done = subprocess.run(command(broker, *options), capture_output=True, text=True)
    measured = result_of(done.returncode, done.stdout, done.stderr)
    measured["broker_cpu_s"] = round(broker.cpu_seconds() - cpu, 3)
    measured["broker_rss"] = broker.rss()
    return measured


def result_of(status: int, out: str, err: str) -> dict[str, float]:
    """The numbers of a finished run; raises `LoadFailed` when it is not a valid measurement."""
    if status or not out:
        raise LoadFailed(f"stompload ended with {status}: {(err or out).strip()[-2000:]}")
    measured: dict[str, float] = json.loads(out)
    if measured["errors"]:
        raise LoadFailed(f"the broker answered with {measured['errors']} ERROR frames: {err.strip()[-2000:]}")
    return measured
