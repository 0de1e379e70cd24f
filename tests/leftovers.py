"""Processes that outlive a run: each process of a run of the tests has a variable of its environment in common."""

from __future__ import annotations

import os
import signal
from collections.abc import MutableMapping
from pathlib import Path
from uuid import uuid4

from .waiting import Deadline

VARIABLE = "STOMPRING_TEST_RUN"

#: Seconds that processes have to end after the run.
GRACE = 10.0


def begin(environment: MutableMapping[str, str]) -> str:
    """Name a run in the environment of its processes. Empty if this run is a part of another one, which will look."""
    if VARIABLE in environment:
        return ""
    environment[VARIABLE] = uuid4().hex
    return environment[VARIABLE]


def processes(run: str) -> dict[int, str]:
    """The processes of a run without this one, and their command lines. Those of other users cannot be seen."""
    mark = f"{VARIABLE}={run}".encode()
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if (
                mark in (directory / "environ").read_bytes().split(b"\0")
                and int(directory.name) != os.getpid()
            ):
                words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(directory.name)] = words.strip() or (directory / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
    return found


def end(run: str, grace: float = GRACE) -> list[str]:
    """Wait for the processes of a run, and kill those that do not end. Returns a line for each of them."""
    deadline = Deadline(grace)
    while (left := processes(run)) and not deadline.passed():
        deadline.pause()
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    return [f"process {pid} has outlived the run: {words[:200]}" for pid, words in left.items()]
