"""The power fails before each operation on a file: what was not synced is lost, torn or whole, by chance."""

from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from ..store.memory_files import MemoryFiles
from .history import History, broken
from .in_process import Life
from .ledger import Ledger

ROOT = Path("/data")

#: The tests try each operation of so many.
every = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])

NEVER = 1 << 30


class PowerLoss(BaseException):
    """Nothing in the broker can do anything about it."""


def fails_at(count, data=None):
    """Files that end with operation number ``count``."""
    files = MemoryFiles(data)

    def fault(operation, path):
        if len(files.operations) > count:
            raise PowerLoss(f"{operation} {path}")

    files.fault = fault
    return files


def played(files, ledger):
    """As much of the history as the power allowed. None where it was gone before the broker was there."""
    life = None
    try:
        life = Life(files, ROOT)
        History(life, ledger).play()
        life.wait(3)
    except PowerLoss:
        pass
    return life


def check(files, ledger, at):
    """Play until operation ``at``, and see what a crash at that moment leaves, and the kill of the next broker."""
    life = played(files, ledger)
    after = files.crash(Random(at))
    again = life.again(after) if life is not None else Life(after, ROOT)
    faults = broken(ledger, again, life) or broken(ledger, again.again(after.kill()), again)
    assert not faults, f"before {files.operations[-1]}, number {at}:\n" + "\n".join(map(str, faults))


@every
@pytest.mark.timeout(3600)
def test_what_was_promised_survives(step):
    whole = fails_at(NEVER)
    played(whole, Ledger())
    count = len(whole.operations)
    assert count > 100
    for at in range(0, count, step):
        check(fails_at(at), Ledger(), at)


@every
@pytest.mark.timeout(3600)
def test_what_was_promised_survives_in_a_second_life(step):
    """As above, on what a first life has left: recovery, facts about old pages, compaction of old segments."""
    first, ledger = fails_at(NEVER), Ledger()
    life = played(first, ledger)
    assert life is not None
    left = first.kill().data
    assert not broken(ledger, life.again(MemoryFiles(left)))
    whole = fails_at(NEVER, left)
    played(whole, deepcopy(ledger))
    count = len(whole.operations)
    assert count > 100
    for at in range(0, count, step):
        check(fails_at(at, left), deepcopy(ledger), at)


def test_files_that_do_not_sync_are_found_out():
    """The test fails where it must: here nothing that was synced is safe."""
    files, ledger = MemoryFiles(), Ledger()
    files.sync = lambda descriptor: None
    life = played(files, ledger)
    assert life is not None
    assert {fault.rule for fault in broken(ledger, life.again(files.crash(Random(1))))} >= {"lost"}
