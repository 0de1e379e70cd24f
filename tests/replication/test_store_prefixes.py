"""A store with journal and pages over a replicated log: what a broker has that takes over after any entry."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from stompring.broker.ports import Reason
from stompring.replication.copy import LocalCopy
from stompring.settings.model import Retention

from ..broker.broker_fixture import join
from ..store.disk import ImmediateDisk, outcome_of
from ..store.memory_files import MemoryFiles
from ..store.paged_broker import PagedBroker
from ..store.stored_broker import held, reported
from .directories import ActiveBroker, contents, data_directory, follow, rebuilt
from .memory_log import DELAYED, FULL, LOST, UNANSWERED, MemoryEngine, MemoryLog

SMALL = {
    "journal_file_size": 2000,
    "journal_compact_min_files": 3,
    "journal_compact_percentage": 50,
}


class Ledger:
    """What was promised when the log had how many entries.

    ``sent`` and ``acknowledged``: when the broker confirmed it; ``maybe_acknowledged``: when it was asked to.
    """

    def __init__(self, engine):
        self.engine = engine
        self.sent = {}
        self.maybe_acknowledged = {}
        self.acknowledged = {}

    def check(self, there, entries):
        assert there == sorted(there) and len(there) == len(set(there))
        for body, since in self.sent.items():
            if since <= entries <= self.maybe_acknowledged.get(body, entries):
                assert body in there, f"{body!r} is lost after {entries} entries"
        for body, since in self.acknowledged.items():
            if since <= entries:
                assert body not in there, f"{body!r} has come back after {entries} entries"


class ReadingThread(ImmediateDisk):
    """Does each job in a thread of its own, as pages are read."""

    def run(self, job, done):
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(outcome_of, job).result()
        super().run(lambda: result, done)


class Workload:
    """Random use of one queue in memory and one on pages, with faults of the log."""

    def __init__(self, active, random, *, retention, before=None):
        """``before``: what another broker has done with the same log."""
        self.active = active
        self.random = random
        more = dict(SMALL)
        if retention:
            more["journal_retention_directory"] = Retention(
                str(active.root / "retention"), storage_limit=9000
            )
        self.world = PagedBroker(active.files, root=active.root, **more)
        self.world.reader.__class__ = ReadingThread
        self.ledger = Ledger(active.engine) if before is None else before.ledger
        self.number = 0 if before is None else before.number
        queues = self.world.directory.queues
        self.queue = queues.get("q") or self.world.queue("q")
        (self.paged,) = self.world.queues("s")
        self.taker = join(self.queue, 3)

    def run(self, steps):
        for _ in range(steps):
            self.step()
        self.active.log.faults.clear()
        self.world.pass_time(2000)
        assert self.world.writer.failing is None

    def step(self):
        random, ledger, engine = self.random, self.ledger, self.active.engine
        kind = random.choice(
            ("send", "send", "page", "page", "page", "acknowledge", "settle", "fault", "turn")
        )
        if kind in ("send", "page"):
            self.number += 1
            body = b"%05d" % self.number
            if kind == "send":
                self.world.durable("q", body)
            else:
                self.world.page([self.paged], body + b" " + bytes(random.randrange(300)))
            self.world.store.when_synced(lambda: ledger.sent.setdefault(body, engine.last))
        elif kind == "acknowledge" and self.taker.unsettled:
            ref = self.taker.unsettled[0]
            self._acknowledged(ref.message.body)
            self.taker.ack(ref)
            self.taker.give_credit()
        elif kind == "settle":
            ref = self.world.first(self.paged)
            if ref is not None:
                self._acknowledged(ref.message.body.partition(b" ")[0])
                self.world.cursor(self.paged).settle(ref, Reason.ACKNOWLEDGED)
        elif kind == "fault":
            fault = random.choice((LOST, UNANSWERED, DELAYED, FULL))
            self.active.log.faults.extend([None] * random.randrange(3) + [fault] * random.randrange(1, 4))
        if random.random() < 0.5:
            self.world.turn()
        if random.random() < 0.2:
            self.world.pass_time(random.randrange(500))
            engine.deliver_delayed()

    def _acknowledged(self, body):
        ledger, engine = self.ledger, self.active.engine
        ledger.maybe_acknowledged[body] = engine.last
        # behind what is appended for it now
        self.world.clock.callLater(
            0, lambda: self.world.store.when_synced(lambda: ledger.acknowledged.setdefault(body, engine.last))
        )


def recovered(root):
    """What a broker has in its two queues that starts with these files, without any damage."""
    data = {Path("/data") / name: data for name, data in contents(root).items()}
    world = PagedBroker(MemoryFiles(data), **SMALL)
    assert reported(world) == []
    assert world.paging.lost_messages == 0
    queue = world.directory.queues.get("s")
    return held(world), [] if queue is None else world.drain(queue)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_prefix_of_the_log_recovers_what_was_confirmed(tmp_path, seed):
    active = ActiveBroker(MemoryEngine(), tmp_path / "active", retention=seed == 2)
    workload = Workload(active, Random(seed), retention=seed == 2)
    workload.run(300)
    engine, ledger = active.engine, workload.ledger
    assert len(ledger.acknowledged) > 20 and len(ledger.sent) > 80
    copy = LocalCopy(data_directory(tmp_path / "standby"), boot_id="boot")
    log = MemoryLog(engine.cut_off(engine.last))
    log.connect()
    copy.open(log)
    for entry in engine.cut_off(engine.last).entries():
        copy.apply([entry])
        kept, paged = recovered(copy.directory.root)
        ledger.check(sorted(kept + paged), entry.sequence)
    assert contents(copy.directory.root) == contents(active.root)


@pytest.mark.parametrize("seed", range(4))
def test_standby_and_rebuild_are_equal_to_the_active_directory(tmp_path, seed):
    random = Random(seed)
    active = ActiveBroker(MemoryEngine(), tmp_path / "active")
    workload = Workload(active, random, retention=seed % 2 == 0)
    log, copy = MemoryLog(active.engine), LocalCopy(data_directory(tmp_path / "standby"), boot_id="boot")
    log.connect()
    copy.open(log)
    for _ in range(8):
        workload.run(40)
        follow(copy, log, most=random.choice((None, 5, 20)))
        if random.random() < 0.5:
            active.files.trim(1000)
    assert active.engine.purged
    follow(copy, log)
    expected = contents(active.root)
    assert contents(copy.directory.root) == expected
    assert rebuilt(active.engine, tmp_path / "rebuilt") == expected
    kept, paged = recovered(tmp_path / "rebuilt")
    workload.ledger.check(sorted(kept + paged), active.engine.last)


@pytest.mark.parametrize("seed", range(3))
def test_brokers_that_take_over_from_each_other_lose_nothing(tmp_path, seed):
    random = Random(seed)
    engine = MemoryEngine()
    roots = [tmp_path / name for name in ("one", "two", "three")]
    workload = None
    for _ in range(12):
        root = random.choice(roots)  # the same one: a restart
        if workload is not None:
            workload.active.copy.close(clean=False)
        if random.random() < 0.2:
            rmtree(root, ignore_errors=True)
        active = ActiveBroker(engine, root)
        if workload is not None:
            check_fenced(workload)
            kept, paged = recovered(root)
            workload.ledger.check(sorted(kept + paged), engine.last)
        workload = Workload(active, random, retention=seed == 1, before=workload)
        for _ in range(random.randrange(60)):
            workload.step()
        if random.random() < 0.3:
            active.files.trim(random.randrange(20))
    workload.run(1)
    expected = contents(workload.active.root)
    assert rebuilt(engine, tmp_path / "rebuilt") == expected
    kept, paged = recovered(tmp_path / "rebuilt")
    workload.ledger.check(sorted(kept + paged), engine.last)
    assert len(workload.ledger.sent) > 50 and len(workload.ledger.acknowledged) > 10


def check_fenced(workload):
    """A broker that was stopped and goes on after another one has taken over confirms nothing."""
    ledger, last = workload.ledger, workload.ledger.engine.last
    before = dict(ledger.sent), dict(ledger.acknowledged)
    workload.active.log.faults.clear()
    workload.world.pass_time(3000)
    assert (ledger.sent, ledger.acknowledged) == before
    assert ledger.engine.last == last
    assert len(workload.active.lost) <= 1
