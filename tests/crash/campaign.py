"""Loads, kills, audits: one data directory that has many lives."""

import asyncio
import itertools
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from ..campaigns import BrokenPromise
from ..management import Management
from ..stomp_client import StompClient
from . import topology
from .administrator import Administrator
from .consumers import ConsumerProfile, consume
from .context import Context
from .killable_broker import KillableBroker
from .producers import Producer
from .promises import Promises
from .stuck_queues import find_stuck
from .workloads import FIRST_PLOTS, PLOTS, establish, grouped_load, settle

#: Seconds that a first life may take in which each kind of action must happen.
BEGINNING = 60.0

#: The sizes of its files: there are several soon.
SMALL_FILES = {"journal-file-size": "4K", "journal-compact-min-files": 10}

#: Messages of groups that are sent to each area before that: more than is kept in memory for one owner.
GROUPED = 400


@dataclass
class Report:
    """What a campaign has done."""

    kills: int = 0
    early: int = 0  # before it was ready again
    stops: int = 0
    verified: int = 0  # looks at all files
    found: int = 0  # messages found at restarts
    paged: int = 0  # page files seen after kills
    segments: int = 0  # the most journal files seen
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self):
        counted = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        return (
            f"{self.kills} kills ({self.early} while starting), {self.stops} stops, {self.found} messages found again, "
            f"{self.paged} page files, up to {self.segments} journal files; {counted}"
        )


class Campaign(Promises):
    """Many lives of one broker.

    ``directory`` must be empty; all choices come from ``seed``. ``hurry`` are the seconds that a life takes at most.
    However slow the machine is, the first life goes on until all in ``begin_with`` was counted, by the names of
    `Report.counts`, and there are journal files, pages, and ids that can be sent again. ``forked`` brokers start
    sooner (`tests.broker_pool`); those that are killed while they start never are forked. ``draining`` are the seconds
    that the end may take.
    """

    def __init__(
        self,
        directory,
        seed,
        kills,
        *,
        persistence=True,
        core=None,
        areas=tuple(topology.AREAS),
        hurry=1.0,
        begin_with=(),
        forked=False,
        draining=30.0,
        tell=lambda line: None,
    ):
        super().__init__()
        self.directory = directory
        self.data = directory / "data"
        self.seed = seed
        self.kills = kills
        self.persistence = persistence
        self.core = core
        self.areas = areas
        self.hurry = hurry
        self.begin_with = begin_with
        self.forked = forked
        self.draining = draining
        self.tell = tell
        self.random = Random(seed)
        self.report = Report(counts=self.ledger.counts)

    def run(self):
        """Kill it so often, then drain everything. Raises `BrokenPromise`."""
        try:
            while self.report.kills < self.kills:
                self._life()
            self._last_life()
            return self.report
        except BaseException:
            self.tell(f"seed {self.seed}, kill {self.report.kills}: failed; files are in {self.directory}")
            raise

    # ---- one life

    @property
    def _beginning(self):
        return bool(self.begin_with) and not self.report.kills and not self.report.stops

    def _start(self, forked=False):
        config = self.directory / "broker.xml"
        core = {**(SMALL_FILES if self._beginning else {}), **(self.core or {})}
        config.write_text(topology.document(self.random, persistence=self.persistence, more=core))
        return KillableBroker(config, self.data, forked=forked)

    def _life(self):
        while 0 < self.report.kills < self.kills - 1 and self.random.random() < 0.15:
            early = self._start().kill_while_starting(self.random)
            self.report.kills += 1
            self.report.early += early
        with self._start(self.forked) as victim:
            self._audit(victim)
            asyncio.run(self._load(victim))
        self._keep_copy()
        self.raise_faults(self.ledger.faults)

    async def _load(self, victim):
        world = Context(victim.port, victim.http_port, self.ledger, self.identifiers, self.random)
        try:
            await establish(world, self.bindings)
            self._begin(world)
            began = time.monotonic()
            end = began + 0.1 + self.random.random() * self.hurry
            while time.monotonic() < end:
                await asyncio.sleep(0.01)
                world.check()
            while self._beginning and not self._has_begun() and time.monotonic() < began + BEGINNING:
                await asyncio.sleep(0.05)
                world.check()
            if self.random.random() < 0.3:
                await find_stuck(world)
            await self._kill(world, victim)
        finally:
            await world.end()

    def _begin(self, world):
        plots = [(plot, area) for plot in PLOTS for area in self.areas]
        some = self.random.sample(plots, self.random.randint(3, 9))
        if self._beginning:
            some = list(zip(FIRST_PLOTS, itertools.cycle(self.areas[::-1]), strict=False))
        for plot, area in some:
            plot(world, area)
        if self._beginning or self.random.random() < 0.5:
            purged = [topology.address(area, kind) for area in self.areas for kind in ("purged", "kept")]
            administrator = Administrator(world, self.bindings, self.addresses, purged)
            world.start(administrator.run(first_each=self._beginning))
        settle(world)

    def _has_begun(self):
        files = Counter(path.suffix for path in self.data.rglob("*.*"))
        return (
            all(self.ledger.counts.get(what) for what in self.begin_with)
            and self.identifiers.receipted()
            and files[".journal"] > 2
            and files[".page"] > 0
        )

    async def _kill(self, world, victim):
        if self.random.random() < 0.9:
            await asyncio.to_thread(victim.kill)
            self.report.kills += 1
        else:
            world.over = self.ledger.stopping = True
            await asyncio.to_thread(victim.stop)
            self.report.stops += 1
            if self.persistence:
                self.verify(self.data)
                self.report.verified += 1

    def _keep_copy(self):
        """What the kill left, before the next start mends it: what is needed to look into a failure."""
        if not self.data.exists():
            return
        copy = self.directory / "as-killed"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data, copy)
        self.report.paged += len(list(copy.rglob("*.page")))
        self.report.segments = max(self.report.segments, len(list(copy.rglob("*.journal"))))

    # ---- what is left

    def _audit(self, victim):
        client = StompClient(victim.port)
        client.connect()
        data = self.data if self.persistence else None
        self.report.found += self.compare(Management(victim.http_port), client, data)
        self.report.verified += data is not None

    def raise_faults(self, faults):
        """Raise `BrokenPromise` if there are any."""
        if faults:
            told = "\n".join(f"  {fault}" for fault in faults[:20])
            raise BrokenPromise(
                f"seed {self.seed}, kill {self.report.kills}: {len(faults)} broken promises\n{told}\n"
                f"what the kill left is in {self.directory / 'as-killed'}"
            )

    # ---- the end

    def _last_life(self):
        with self._start(self.forked) as victim:
            self._audit(victim)
            asyncio.run(self.drain(victim))
            self.raise_faults(self.ledger.faults)
        left = list((self.data / "paging").rglob("*.page"))
        if left:
            raise BrokenPromise(f"seed {self.seed}: everything is consumed, and page files are left: {left}")
        with self._start(self.forked) as victim:
            self._audit(victim)
            rest = self.ledger.everything()
            if rest:
                self.ledger.fault("undrained", f"{len(rest)} are left", *rest)
                self.raise_faults(self.ledger.faults)

    async def drain(self, victim):
        """Send more of groups than memory keeps, consume everything, and stop the broker."""
        world = Context(victim.port, victim.http_port, self.ledger, self.identifiers, self.random)
        try:
            for area in self.areas:
                await Producer(world, grouped_load(area), f"{area}-last-grouped", GROUPED).send_some(GROUPED)
            await asyncio.to_thread(self._purge_kept, victim)
            for queue in {copy.queue for copy in self.ledger.everything()} | topology.GRAVES:
                grouped = queue.endswith(".grouped")
                consume(world, _drainer(queue), f"the last reader of {queue}", 4 if grouped else 1)
            await self.until_drained(world)
            await asyncio.sleep(0.3)  # page files go a moment after the last receipt
            world.over = self.ledger.stopping = True
            await asyncio.to_thread(victim.stop)
        finally:
            await world.end()

    def _purge_kept(self, victim):
        """No consumer empties a non-destructive queue."""
        management = Management(victim.http_port)
        for area in self.areas:
            queue = topology.address(area, "kept")
            if there := list(self.ledger.in_queue(queue)):
                management.ask("POST", f"/queues/{queue}/purge")
            for copy in there:
                self.ledger.finish(copy, "it was purged")

    async def until_drained(self, world):
        """Wait until the ledger expects nothing more."""
        end = time.monotonic() + self.draining
        while rest := self.ledger.everything():
            await asyncio.sleep(0.1)
            world.check()
            self.ledger.forget_done()
            if time.monotonic() > end:
                management = world.management
                queues = await asyncio.to_thread(management.ask, "GET", "/queues", size=1000)
                counts = {queue["name"]: queue["messageCount"] for queue in queues["data"]}
                told = {name: count for name, count in counts.items() if count}
                self.ledger.fault("undrained", f"{len(rest)} never came; the broker counts {told}", *rest)
                return


def _drainer(queue):
    """Takes everything, at once, and for good."""
    return ConsumerProfile(
        f"::{queue}",
        queue,
        refused=0.2 if queue.endswith(".grouped") else 0.0,  # so that messages of groups come back
        receipted=1.0,
        leaves=0.0,
        slowness=0.0,
        ordered="later" not in queue and queue not in topology.GRAVES,
        moved=queue in topology.GRAVES,
    )
