"""Fault after fault in one world, under load, with two independent accounts of what was promised."""

import asyncio
import subprocess
import time
import traceback
from collections import Counter
from random import Random

from benchmarks import load

from ..campaigns import BrokenPromise
from ..crash import topology
from ..crash.administrator import Administrator
from ..crash.audit import NOTICE
from ..crash.context import Context, login_headers
from ..crash.ledger import now
from ..crash.promises import Promises
from ..crash.workloads import PLOTS, establish, expiring, later, settle
from ..management import Answered, Management
from ..stomp_client import StompClient
from . import stream
from .faults import KINDS, Scene
from .probes import PROFILES, Probes
from .report import Outcome, Report
from .world import BROKERS, LOGIN, STREAM

#: Seconds in which service must be back, however slow the machine is.
BACK = 60.0
#: Seconds in which the standby must have everything that the active has, once nothing happens any more.
FOLLOWED = 30.0
#: Seconds more in which the log, and a standby that says that it lacks entries, must have again what is lost.
REPAIRED = 60.0
#: The first receipt after a silence of this length ends an outage; a shorter one is a slow machine.
OUTAGE = 0.3

#: Names of queues that the ledger knows nothing of.
PROBED, LADEN = "probe.", "laden."


def schedule(random, count, kinds):
    """So many faults: each kind as often as the others, in random order."""
    found = []
    while len(found) < count:
        some = [KINDS[name] for name in kinds]
        random.shuffle(some)
        found += some
    return found[:count]


def possible(world):
    """The kinds that can be had in this world."""
    can = {"": True, "cut": world.network.can_cut, "fill": world.can_fill, "clock": bool(world.clocks)}
    nats = world.engine == "nats"
    return [kind.name for kind in KINDS.values() if can[kind.needs] and (nats or not kind.nats)]


class FailoverCampaign(Promises):
    """A world, a seed, and so many faults. ``kinds`` are all that are possible, where none are given."""

    def __init__(
        self,
        world,
        seed,
        faults,
        kinds=(),
        *,
        areas=tuple(topology.AREAS),
        laden=(0, 0),
        profiles=PROFILES,
        draining=60.0,
        tell=lambda line: None,
    ):
        super().__init__()
        self.world = world
        self.seed = seed
        self.areas = areas
        self.laden = dict(zip(("laden.memory", "laden.paged"), laden, strict=True))
        self.draining = draining  # seconds in which everything is consumed at the end
        self.tell = tell
        self.random = Random(seed)
        chosen = [name for name in possible(world) if not kinds or name in kinds]
        self.schedule = schedule(self.random, faults, chosen)
        self.writers = stream.Writers()
        self.report = Report(seed)
        self.errors = Counter()  # ERROR frames, which clients may get while service is away
        self.number = 0
        self._doing = ""
        self._told = []
        addresses = {name: (world.address(name), world.port(name, "stomp")) for name in BROKERS}
        self.probes = Probes(addresses, profiles)

    def run(self):
        """All faults, and the end. Raises `BrokenPromise`."""
        began = time.monotonic()
        try:
            self._do("start")
            self.world.on_resume = self._resumed
            self._lade()
            self.probes.start()
            for kind in self.schedule:
                self.number += 1
                self._fault(kind)
            self._end()
        except BaseException as fault:
            self.world.keep_data()
            self.tell(
                f"seed {self.seed}, fault {self.number} ({self._doing}): failed; files are in {self.world.directory}"
            )
            if isinstance(fault, Exception) and not isinstance(fault, BrokenPromise):
                raise BrokenPromise(self._where("".join(traceback.format_exception(fault)))) from fault
            raise
        finally:
            self.probes.end()
            self.report.elapsed = time.monotonic() - began
            self.report.counts = dict(Counter(self.ledger.counts) + self.probes.counts + self.errors)
            self.report.writers = len(self.writers.writers)
        return self.report

    def _lade(self):
        """Messages that wait through all faults, so that there is something to recover."""
        active = self.world.settle()
        for queue, count in self.laden.items():
            if count:
                where = ["-H", self.world.address(active), "-P", str(self.world.port(active, "stomp"))]
                who = ["-u", LOGIN[0], "-w", LOGIN[1]]
                what = ["-m", "produce", "-p", "8", "-r", "1", "-R", "50", "-D", "1", "-s", "100"]
                words = [str(load.build()), *where, *who, *what, "-n", str(count), "-d", queue]
                subprocess.run(words, check=True, capture_output=True, timeout=1800)
                self.laden[queue] = 0
                self._check_laden(active, {queue: count})
                self.laden[queue] = count
        self.world.settle(600)

    def _check_laden(self, active, laden):
        management = Management(self.world.port(active, "http"), self.world.address(active), LOGIN)
        for queue, count in laden.items():
            there = management.queue(f"{queue}.0")["messageCount"] if count else 0
            if there != count:
                raise BrokenPromise(self._where(f"{queue} has {there} messages, not {count}"))

    def _resumed(self, late):
        self.probes.disturbed = max(self.probes.disturbed, time.monotonic() + late)

    def _do(self, what):
        self._doing = what

    def _where(self, text):
        told = "".join(f"\n  {line}" for line in self._told)
        where = f"seed {self.seed}, fault {self.number} ({self._doing})"
        return f"{where}: {text}{told}\nfiles are in {self.world.directory}"

    def raise_faults(self, faults):
        """Raise `BrokenPromise` if there are any."""
        if faults:
            told = "\n".join(f"  {fault}" for fault in faults[:20])
            raise BrokenPromise(self._where(f"{len(faults)} broken promises\n{told}"))

    # ---- one fault

    def _fault(self, kind):
        self._do(f"{kind.name}: before")
        self._told = []
        active = self.world.settle()
        self.probes.resume()
        scene = Scene(self.world, self.random, active)
        scene.told = self._told
        asyncio.run(self._load(scene, kind))
        self._do(f"{kind.name}: audit")
        self.world.heal()
        for clock in self.world.clocks.values():
            assert clock.offset == 0
        ready = self._service_back(scene)
        takeover = self._after(scene, kind)
        self.report.outcomes.append(Outcome(self.number, kind.name, round(ready, 3), takeover, scene.told))
        more = "; ".join(scene.told)
        self.tell(
            f"{self.number}/{len(self.schedule)} {kind.name}: {ready:.2f} s"
            f"{f', takeover by {self.world.active()}' if takeover else ''}{f' ({more})' if more else ''}"
        )

    async def _load(self, scene, kind):
        context = self._context(scene.active)
        try:
            await establish(context, self.bindings)
            self._begin(context, kind)
            await asyncio.sleep(0.2 + self.random.random())
            context.check()
            if kind.timeless:
                await self._timeless()
            self._do(f"{kind.name}: fault")
            await asyncio.to_thread(kind.act, scene)
            scene.acted = time.monotonic()
            self._do(f"{kind.name}: load after it")
            await asyncio.to_thread(self._service_back, scene)
            await asyncio.sleep(self.random.random() * 0.5)
        finally:
            self.ledger.stopping = True
            await context.end()
            self.ledger.stopping = False
            self._collect_errors(context)
        active = self.world.active()
        if active is not None and self.random.random() < 0.5:
            # clients of the old one go on at the new one, before anybody looks
            for copy in self.ledger.everything():
                copy.holder = None
            context = self._context(active)
            try:
                self._begin(context, kind)
                await asyncio.sleep(0.2 + self.random.random())
            finally:
                self.ledger.stopping = True
                await context.end()
                self.ledger.stopping = False
                self._collect_errors(context)

    def _context(self, broker):
        return Context(
            self.world.port(broker, "stomp"),
            self.world.port(broker, "http"),
            self.ledger,
            self.identifiers,
            self.random,
            address=self.world.address(broker),
            login=LOGIN,
            durable_only=True,
            may_refuse=True,
        )

    def _collect_errors(self, context):
        for wire in context.wires:
            if wire.refused is not None:
                self.errors[f"ERROR frames: {str(wire.refused)[:80]}"] += 1

    def _begin(self, context, kind):
        excluded = {later, expiring} if kind.timeless else set()
        plots = [(plot, area) for plot in PLOTS for area in self.areas if plot not in excluded]
        for plot, area in self.random.sample(plots, self.random.randint(3, 6)):
            plot(context, area)
        if self.random.random() < 0.5:
            purged = [topology.address(area, kind) for area in self.areas for kind in ("purged", "kept")]
            context.start(Administrator(context, self.bindings, self.addresses, purged).run())
        settle(context)

    async def _timeless(self):
        """Until nothing has a time that another clock would see otherwise."""
        latest = max([max(copy.due, copy.expires) for copy in self.ledger.everything()], default=0)
        while now() < latest + NOTICE:
            await asyncio.sleep(0.1)

    # ---- what is left

    def _service_back(self, scene):
        """Wait for a receipt of a probe; returns the seconds of the outage."""
        started = time.monotonic()
        while True:
            self.probes.check()
            self.raise_faults(self.probes.faults)
            seconds = self._outage(scene)
            if seconds is not None:
                return seconds
            if time.monotonic() > started + BACK:
                ready = {name: self.world.answers[name] for name in BROKERS}
                raise BrokenPromise(self._where(f"no receipt for {BACK:.0f} s; /health/ready: {ready}"))
            time.sleep(0.05)

    def _outage(self, scene):
        """The longest time without a receipt since the fault, or since service was possible again; None: it lasts."""
        began = max(scene.began, scene.healed)
        times = [moment for moment in list(self.probes.receipts) if moment > began]
        if not times or time.monotonic() - times[-1] > OUTAGE or times[-1] < scene.acted + OUTAGE:
            return None
        gaps = [after - before for before, after in zip([began, *times], times, strict=False)]
        longest = max(range(len(gaps)), key=gaps.__getitem__)
        return gaps[longest] if gaps[longest] > OUTAGE else 0.0

    def _after(self, scene, kind):
        self.world.settle()
        active = self.world.active()
        assert active is not None
        takeover = active != scene.active
        if kind.keeps and takeover:
            raise BrokenPromise(self._where(f"{active} took over from {scene.active}, which was well"))
        self.probes.pause()
        self.raise_faults(self.probes.faults)
        self.probes.drop_abandoned()
        active = self.world.settle()
        self._audit(active)
        self._check_laden(active, self.laden)
        self._copies(active)
        self.raise_faults(list(self.world.bugs()))
        return takeover

    def _audit(self, active):
        management = Management(self.world.port(active, "http"), self.world.address(active), LOGIN)
        for name in sorted(self.bindings.passing):  # a broker that lived on has them
            try:
                management.ask("DELETE", f"/queues/{name}")
            except Answered as answer:
                if answer.status != 404:
                    raise
        client = StompClient(self.world.port(active, "stomp"), address=self.world.address(active))
        client.connect(login_headers(LOGIN))
        found = self.compare(management, client, self.world.data(active), (PROBED, LADEN))
        self.ledger.count("audits")
        self.ledger.counts["messages found again"] = self.ledger.counts.get("messages found again", 0) + found

    def _copies(self, active):
        """The stream has one writer at a time, and the standby's directory is that of the active, byte for byte."""
        if self.world.engine != "nats":
            return
        entries = stream.read(self.world.urls, STREAM, self.writers.last)
        self.report.entries += len(entries)
        self.writers.check(entries)
        self.raise_faults(self.writers.faults)
        self._equal(active, self.world.other(active))
        self.verify(self.world.data(self.world.other(active)))

    def _equal(self, active, standby):
        deadline = time.monotonic() + FOLLOWED
        while True:
            try:
                one, other = (stream.files_in(self.world.data(broker)) for broker in (active, standby))
                found = stream.differences(one, other, (active, standby))
            except FileNotFoundError as fault:  # one that is deleted just now
                found = [str(fault)]
            if not found:
                return
            late = time.monotonic() - deadline
            if late > REPAIRED or (late > 0 and self.world.is_following(standby)):
                self.raise_faults(found)
            time.sleep(0.2)

    # ---- the end

    def _end(self):
        self._do("end")
        self._told = []
        active = self.world.settle()
        self.probes.resume()
        self.probes.drain(self.draining)
        self.raise_faults(self.probes.faults)
        self.probes.end()
        self._audit(active)
        self._copies(active)
        if self.world.engine == "nats":
            self._rebuild(active)

    def _rebuild(self, active):
        """What a broker that begins from nothing would have, by a reader of our own and by the product."""
        self._do("rebuild from the log")
        standby = self.world.other(active)
        deadline = time.monotonic() + REPAIRED
        while True:
            rebuilt = stream.files_of(stream.read(self.world.urls, STREAM))
            found = stream.differences(rebuilt, stream.files_in(self.world.data(active)), ("the log", active))
            if not found:
                break
            if time.monotonic() > deadline:
                self.raise_faults(found)
            time.sleep(1)
        self.world.kill(standby, down=True)
        self.world.wipe(standby)
        self.world.release(standby)
        self._equal(active, standby)
        self.verify(self.world.data(standby))
        self._do("stop in order")
        for broker in (standby, active):
            self.world.hold(broker)
            self.world.terminate(broker)
            if not self.world.wait_ended(broker, 30):
                self.raise_faults([f"{broker} does not end on SIGTERM"])
        self.raise_faults(list(self.world.bugs()))
