"""The power fails before each operation on a file: what was not synced is lost, torn or whole, by chance."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from ..store.memory_files import MemoryFiles
from .history import History, broken
from .in_process import Life
from .ledger import Ledger

ROOT = Path("/data")

#: The tests try each operation of so many; STOMPRING_EXAMPLES=2 or more tries all.
STEP = 2 if int(os.environ.get("STOMPRING_EXAMPLES", "1")) < 2 else 1


class PowerLoss(BaseException):
    """Nothing in the broker can do anything about it."""


def fails_at(count: int) -> MemoryFiles:
    """Files that end with operation number ``count``."""
    files = MemoryFiles()

    def fault(operation: str, path: Path) -> None:
        if len(files.operations) > count:
            raise PowerLoss(f"{operation} {path}")

    files.fault = fault
    return files


def played(files: MemoryFiles) -> tuple[Life | None, Ledger]:
    """As much of the history as the power allowed."""
    ledger, life = Ledger(), None
    try:
        life = Life(files, ROOT)
        History(life, ledger).play()
        life.wait(3)
    except PowerLoss:
        pass
    return life, ledger


def test_what_was_promised_survives() -> None:
    whole = fails_at(1 << 30)
    played(whole)
    count = len(whole.operations)
    assert count > 100
    for at in range(0, count, STEP):
        files = fails_at(at)
        life, ledger = played(files)
        after = files.crash(Random(at))
        again = life.again(after) if life is not None else Life(after, ROOT)
        faults = broken(ledger, again)
        assert not faults, f"before {files.operations[-1]}, number {at}:\n" + "\n".join(map(str, faults))


def test_files_that_do_not_sync_are_found_out() -> None:
    """The test fails where it must: here nothing that was synced is safe."""
    files = MemoryFiles()
    files.sync = lambda descriptor: None  # type: ignore[method-assign]
    life, ledger = played(files)
    assert life is not None
    assert {fault.rule for fault in broken(ledger, life.again(files.crash(Random(1))))} >= {"lost"}
