"""Every file of a small store, cut off at any length and with any byte changed.

The broker starts, has all that can be read, says what it has not, and goes on.
"""

import logging
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations, permutations, product
from pathlib import Path
from struct import unpack_from

import pytest

from ..store.memory_files import MemoryFiles
from .history import History
from .in_process import Life
from .ledger import Ledger, State

ROOT = Path("/data")
HEADER = 72

STEPS = [
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


@pytest.fixture
def check(caplog):
    """Starts a broker on a store with some files ``changed``, and looks for what is not as it must be.

    ``allowed`` may be missing, even ``silently``; ``told`` must be in the log.
    """
    faults = []

    def check(case, changed, allowed, silently=False, told=""):
        caplog.clear()
        there = {path: data for path, data in {**store().files, **changed}.items() if data is not None}
        faults.extend(f"{case}: {fault}" for fault in wrong(there, allowed, caplog, silently))
        if told not in caplog.text:
            faults.append(f"{case}: it was not told")

    yield check
    assert not faults, f"{len(faults)} faults\n" + "\n".join(faults[:40])


def wrong(damaged, allowed, log, silently):
    whole = store()
    try:
        life = Life(MemoryFiles(damaged), ROOT)
        contents = contents_of(life)
    except Exception as fault:
        yield f"does not start: {type(fault).__name__}: {fault}"
        return
    told = any(record.levelno >= logging.WARNING for record in log.records)
    missing = {
        (queue, text)
        for queue, texts in whole.contents.items()
        for text in texts
        if text not in contents.get(queue, [])
    }
    if unexpected := {pair for pair in missing if pair[1] not in allowed}:
        yield f"lost though they can be read: {sorted(unexpected)}"
    if missing and not told and not silently:
        yield f"{sorted(missing)} are missing and nobody was told"
    if strange := {text for texts in contents.values() for text in texts} - whole.known:
        yield f"{strange} were never sent"
    for queue, texts in contents.items():
        if len(set(texts)) != len(texts):
            yield f"{queue} has a message twice: {texts}"
    after = History(life, Ledger())
    after.send("last")
    if after.unanswered:
        yield "it cannot go on"
    contents.setdefault("last", []).append("to-last/1")
    if contents_of(life.again(life.files.kill())) != contents:
        yield "after another restart it has something else"


@pytest.fixture(params=[197, pytest.param(1, marks=pytest.mark.long)])
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
def test_changed_bytes(check, offsets):
    for path, at in offsets:
        data = bytearray(store().files[path])
        data[at] ^= 0x41
        check(f"{path.name} byte {at} of {len(data)}", {path: bytes(data)}, loses(path, at))


@pytest.mark.timeout(3600)
def test_files_that_were_cut_off(check, offsets):
    for path, at in offsets:
        data = store().files[path]
        # where it ends between two records, as what a kill leaves, nobody can know
        silently = at in {HEADER, *(end for _, end, _ in store().records[path])}
        allowed = store().known if silently else store().messages(path, at, len(data))
        check(f"{path.name} cut to {at} of {len(data)}", {path: data[:at]}, allowed, silently)


def test_files_that_are_missing(check):
    for path in store().files:
        newest = path.suffix == ".journal" and path == alike(".journal")[-1]
        # that one has all that happened at the end
        check(f"without {path.name}", {path: None}, store().known if newest else messages_of(path))


def alike(suffix):
    return sorted(path for path in store().files if path.suffix == suffix)


def messages_of(path):
    return store().messages(path, 0, len(store().files[path]))


def costs(path):
    """The messages that go with a file, and where it is of the journal all about which it may have facts."""
    return store().known if path.suffix == ".journal" else messages_of(path)


each_kind = pytest.mark.parametrize("suffix", [".journal", ".page"])


@pytest.mark.timeout(3600)
@each_kind
def test_files_over_others(suffix, check):
    for source, target in permutations(alike(suffix), 2):
        changed = {target: store().files[source]}
        check(f"{source.name} over {target.name}", changed, costs(target), told=f"{target} is not")


@pytest.mark.timeout(3600)
@each_kind
def test_files_that_were_swapped(suffix, check):
    for one, other in combinations(alike(suffix), 2):
        changed = {one: store().files[other], other: store().files[one]}
        check(f"{one.name} and {other.name}", changed, costs(one) | costs(other))


@pytest.mark.timeout(3600)
@each_kind
def test_files_copied_to_a_new_number(suffix, check):
    """Nothing is lost, and nothing comes twice."""
    last = max(int(path.stem) for path in alike(suffix))
    for path, number in product(alike(suffix), (last + 1, last + 5)):
        copy = path.with_name(f"{number:09d}{suffix}")
        changed = {copy: store().files[path]}
        check(f"{path.name} as {copy.name}", changed, set(), told=f"{copy} is not")
