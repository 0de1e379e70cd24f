"""Every file of a small store, cut off at any length and with any byte changed.

The broker starts, has all that can be read, says what it has not, and goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, permutations, product
from pathlib import Path
from struct import unpack_from

import pytest

from ..store.memory_files import MemoryFiles
from .history import History, Step
from .in_process import Life
from .ledger import Ledger, State

ROOT = Path("/data")
HEADER = 72

STEPS: list[Step] = [
    History.durable_subscriptions,
    *[lambda h: h.send("work")] * 3,
    lambda h: h.subscribe("work", 1),
    lambda h: h.acknowledge("work"),
    *[lambda h: h.send("always.work", size=200)] * 6,
    lambda h: h.subscribe("always.work", 2),
    lambda h: h.acknowledge("always.work", 1),
    lambda h: h.transact("work", "out", "always.work"),
    lambda h: h.send("/topic/t", "c.a", "c.b"),
    lambda h: h.send("last", size=800),
    lambda h: h.send("last"),
]

Contents = dict[str, list[str]]


@dataclass
class Store:
    """A store that was killed, and what a broker finds in it while it is whole."""

    files: dict[Path, bytes]
    contents: Contents
    known: set[str]  # every message ever sent
    records: dict[Path, list[tuple[int, int, set[str]]]] = field(default_factory=dict)  # begin, end, messages

    def messages(self, path, start, stop):
        """Those with a record in a file that has bytes in a range."""
        return {
            text for begin, end, texts in self.records[path] if begin < stop and start < end for text in texts
        }


@cache
def store():
    files, ledger = MemoryFiles(), Ledger()
    life = Life(files, ROOT)
    history = History(life, ledger)
    for step in STEPS:
        step(history)
        history.listen()
    life.wait(3)
    known = {copy.text for copy in ledger.everything()} | {text for _, text in ledger.finished}
    assert all(copy.entry.state is State.DONE for copy in ledger.everything())
    data = files.kill().data
    found = Store(data, contents_of(life.again(MemoryFiles(data))), known)
    for path, bytes_ in data.items():
        found.records[path] = list(records(bytes_, known)) if path.suffix != ".txt" else []
    assert sum(len(queue) for queue in found.contents.values()) > 8
    assert {path.suffix for path in data} >= {".journal", ".page"}
    return found


def records(data, known):
    """Each record with its messages, by the document of the format alone."""
    at = HEADER
    while at + 8 <= len(data):
        length, _ = unpack_from("<II", data, at)
        end = at + 8 + length
        if end > len(data) or not length:
            return
        yield at, end, {text for text in known if f"\n{text}|".encode() in data[at:end]}
        at = end


def contents_of(life):
    found = life.observe()
    return {queue: [seen.text for seen in seen_there] for queue, seen_there in found.contents.items()}


def started(files, log):
    """A broker on damaged files, what it has, and what it said of them at the start."""
    log.clear()
    life = Life(MemoryFiles(files), ROOT)
    contents = contents_of(life)
    told = "\n".join(record.getMessage() for record in log.records if record.levelno >= logging.WARNING)
    return life, contents, told


def wrong(
    case,
    damaged,
    allowed,
    log,
    silently=False,
):
    """What is not as it must be with these files, where ``allowed`` may be missing, even ``silently``."""
    whole = store()
    try:
        life, contents, told = started(damaged, log)
    except Exception as fault:
        return [f"{case}: does not start: {type(fault).__name__}: {fault}"]
    found = []
    missing = {
        (queue, text)
        for queue, texts in whole.contents.items()
        for text in texts
        if text not in contents.get(queue, [])
    }
    if unexpected := {pair for pair in missing if pair[1] not in allowed}:
        found.append(f"{case}: lost though they can be read: {sorted(unexpected)}")
    if missing and not told and not silently:
        found.append(f"{case}: {sorted(missing)} are missing and nobody was told")
    if strange := {text for texts in contents.values() for text in texts} - whole.known:
        found.append(f"{case}: {strange} were never sent")
    for queue, texts in contents.items():
        if len(set(texts)) != len(texts):
            found.append(f"{case}: {queue} has a message twice: {texts}")
    ledger = Ledger()
    after = History(life, ledger)
    after.send("last")
    if after.unanswered:
        found.append(f"{case}: it cannot go on")
    contents.setdefault("last", []).append("to-last/1")
    if contents_of(life.again(life.files.kill())) != contents:
        found.append(f"{case}: after another restart it has something else")
    return found


@pytest.fixture(params=[41, pytest.param(1, marks=pytest.mark.long)])
def offsets(request):
    """One offset of so many, another one in each file."""
    step = request.param
    return [
        (path, at)
        for number, path in enumerate(sorted(store().files))
        for at in range(number % step, len(store().files[path]), step)
    ]


def loses(path, at):
    """What a changed byte may cost.

    A page is read up to what is damaged (as in Artemis). In a segment of the journal the footer tells where the next
    record begins; where there is none, a wrong length takes all that follows along. No header costs anything.
    """
    data = store().files[path]
    if at < HEADER:
        return set()
    whole = path.suffix == ".journal" and data[-4:] == b"SEAL"
    return store().messages(path, at, at + 1 if whole else len(data))


@pytest.mark.timeout(3600)
def test_changed_bytes(caplog, offsets):
    faults = []
    for path, at in offsets:
        data = bytearray(store().files[path])
        data[at] ^= 0x41
        case = f"{path.name} byte {at} of {len(data)}"
        faults += wrong(case, {**store().files, path: bytes(data)}, loses(path, at), caplog)
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


@pytest.mark.timeout(3600)
def test_files_that_were_cut_off(caplog, offsets):
    faults = []
    for path, at in offsets:
        data = store().files[path]
        case = f"{path.name} cut to {at} of {len(data)}"
        allowed = store().messages(path, at, len(data))
        if at in {HEADER, *(end for _, end, _ in store().records[path])}:
            allowed = store().known  # it ends between two records, as what a kill leaves: nobody can know
        silently = allowed is store().known
        faults += wrong(case, {**store().files, path: data[:at]}, allowed, caplog, silently)
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


def test_files_that_are_missing(caplog):
    faults = []
    journal = sorted(path for path in store().files if path.suffix == ".journal")
    for path, data in store().files.items():
        others = {other: bytes_ for other, bytes_ in store().files.items() if other != path}
        allowed = store().messages(path, 0, len(data))
        if path == journal[-1]:
            allowed = store().known  # it has all that happened at the end
        faults += wrong(f"without {path.name}", others, allowed, caplog)
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


def alike(suffix):
    return sorted(path for path in store().files if path.suffix == suffix)


def costs(path):
    """The messages that go with a file, and where it is of the journal all about which it may have facts."""
    return store().known if path.suffix == ".journal" else store().messages(path, 0, 1 << 62)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suffix", [".journal", ".page"])
def test_files_over_others(suffix, caplog):
    faults = []
    for source, target in permutations(alike(suffix), 2):
        damaged = {**store().files, target: store().files[source]}
        faults += wrong(f"{source.name} over {target.name}", damaged, costs(target), caplog)
        if f"{target} is not" not in caplog.text:
            faults.append(f"{source.name} over {target.name}: it was not told")
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suffix", [".journal", ".page"])
def test_files_that_were_swapped(suffix, caplog):
    faults = []
    for one, other in combinations(alike(suffix), 2):
        files = store().files
        damaged = {**files, one: files[other], other: files[one]}
        faults += wrong(f"{one.name} and {other.name}", damaged, costs(one) | costs(other), caplog)
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suffix", [".journal", ".page"])
def test_files_copied_to_a_new_number(suffix, caplog):
    """Nothing is lost, and nothing comes twice."""
    faults = []
    last = max(int(path.stem) for path in alike(suffix))
    for path, number in product(alike(suffix), (last + 1, last + 5)):
        copy = path.with_name(f"{number:09d}{suffix}")
        case = f"{path.name} as {copy.name}"
        faults += wrong(case, {**store().files, copy: store().files[path]}, set(), caplog)
        if f"{copy} is not" not in caplog.text:
            faults.append(f"{case}: it was not told")
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])
