"""One operation on a file fails, each in its turn: what was promised holds, and the store says what is wrong."""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from stompring.errors import StoreError

from .faulty_files import FaultyFiles
from .history import History, broken
from .in_process import Life
from .ledger import Ledger


@dataclass(frozen=True)
class Kind:
    """A way to fail. ``heals``: after a while the disk is well again; else the process dies before."""

    name: str
    number: int
    lasting: bool = False
    short: bool = False
    heals: bool = True

    def files(self, at):
        return FaultyFiles(at, self.number, lasting=self.lasting, short=self.short)


KINDS = [
    Kind("an error", errno.EIO),
    Kind("half a write", errno.EIO, short=True),
    Kind("full for a while", errno.ENOSPC, lasting=True, short=True),
    Kind("full until it dies", errno.ENOSPC, lasting=True, short=True, heals=False),
]

#: Each operation fails in this many ways; STOMPRING_EXAMPLES=4 or more tries all.
WAYS = min(len(KINDS), int(os.environ.get("STOMPRING_EXAMPLES", "1")))


@pytest.fixture
def root(tmp_path):
    """A directory in memory where there is one: nothing is synced here, and there are thousands of files."""
    shared = Path("/dev/shm")
    directory = shared / f"stompring-{os.getpid()}" if os.access(shared, os.W_OK) else tmp_path / "root"
    directory.mkdir()
    yield directory
    shutil.rmtree(directory)


def play(files, root):
    life = Life(files, root)
    history = History(life, Ledger())
    history.play()
    return life, history


def finish(history):
    """Time in which the store may try again."""
    history.life.wait(5)
    history.listen()


def operations(root):
    files = FaultyFiles()
    _, history = play(files, root)
    finish(history)
    return len(files.operations)


def empty(root):
    for path in root.iterdir():
        shutil.rmtree(path)


def one_fault(kind, at, root):
    """What is wrong after operation ``at`` failed."""
    files = kind.files(at)
    try:
        life, history = play(files, root)
    except StoreError as fault:  # before it began: it says so, and starts when the disk is well
        assert files.failed and os.strerror(kind.number) in str(fault), fault
        life, history = play(FaultyFiles(), root)
    wrong = []
    if kind.lasting and files.failed and not any("remove" in failed for failed in files.failed[:1]):
        finish(history)
        if life.world.store.failing is None and len(files.failed) > 1 and history.unanswered:
            wrong.append("the store fails and does not say so")
    if kind.heals:
        files.heal()
        finish(history)
        wrong += [f"never answered: {unit}" for unit in history.unanswered]
        if life.world.store.failing is not None:
            wrong.append(f"still failing: {life.world.store.failing}")
    files.heal()
    again = life.again()
    wrong += [str(fault) for fault in broken(history.ledger, again, life)]
    after = History(again, history.ledger)
    after.send("last")
    wrong += [f"cannot go on: {unit}" for unit in after.unanswered]
    return [f"{kind.name} at {at}, {files.failed[:1]}: {each}" for each in wrong]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)])
def test_every_operation_fails_once(root, step):
    count = operations(root)
    assert count > 100
    for turn, at in enumerate(range(0, count, step)):
        for way in range(WAYS):
            empty(root)
            wrong = one_fault(KINDS[(turn + way) % len(KINDS)], at, root)
            assert not wrong, "\n".join(wrong)


class LyingFiles(FaultyFiles):
    """Says that it wrote, once, and did not."""

    def write(self, descriptor, data, at):
        if self.due("write", descriptor):
            return len(data)
        return super(FaultyFiles, self).write(descriptor, data, at)


def test_a_disk_that_lies_is_found_out(root):
    """The tests above fail where they must."""
    missed = []
    for at in range(60, 120):
        empty(root)
        files = LyingFiles(at)
        life, history = play(files, root)
        if files.failed:
            missed += broken(history.ledger, life.again())
    assert "lost" in {fault.rule for fault in missed}
