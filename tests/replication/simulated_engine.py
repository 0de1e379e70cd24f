"""An engine in memory with faults, on a simulated clock: brokers cut off, lost answers, outages, partial appends."""

from collections import Counter

from stompring.replication.log import (
    CONTROL,
    Fenced,
    LogEntry,
    LogFull,
    LogStatus,
    LogUnavailable,
    Operation,
    Summary,
)


class SimulatedClock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class SimulatedEngine:
    """What all brokers see. ``up_since`` is when it began to answer, ``skew`` what its time of day is off by (s),
    ``stored_at`` when the last entry was stored;
    ``on_claim`` is called with every claim before it is stored.
    """

    def __init__(self, clock, max_bytes=-1):
        self.clock = clock
        self.max_bytes = max_bytes
        self.entries = []
        self.purged = set()
        self.down = False
        self.leader = "n1"
        self.listens = True  # the broker that is asked for something receives it
        self.up_since = clock.now
        self.skew = 0.0
        self.stored_at = clock.now
        self.bytes = 0
        self.requests = {}
        self.on_claim = lambda entry: None

    @property
    def last(self):
        return len(self.entries)

    @property
    def live(self):
        """All that are not purged."""
        return [entry for entry in self.entries if entry.sequence not in self.purged]

    def store(self, writer, number, change):
        if 0 <= self.max_bytes < self.bytes + 100 + len(change.data):
            raise LogFull("full")
        entry = LogEntry(self.last + 1, int((self.clock.now + self.skew) * 1000), writer, number, change)
        if change.operation is Operation.CLAIM:
            self.on_claim(entry)
        self.entries.append(entry)
        self.stored_at = self.clock.now
        self.bytes += 100 + len(change.data)
        return entry.sequence

    def purge(self, entries):
        self.purged |= {entry.sequence for entry in entries}
        self.bytes -= sum(100 + len(entry.change.data) for entry in entries)

    def set_down(self, down):
        if self.down and not down:
            self.up_since = self.clock.now
        self.down = down


class SimulatedLog:
    """One broker's connection. ``cut``: nothing reaches the engine; ``lost_answers``: so many calls that write are
    carried out, the last append as far as ``partial`` says, and not answered.
    """

    def __init__(self, engine):
        self.engine = engine
        self.cut = False
        self.lost_answers = 0
        self.partial = 1.0
        self.waited = 0.0  # seconds that the calls since `take_waited` blocked
        #: Called before and after a call reaches the engine, with its name.
        self.interrupt = lambda call: None
        self._writer = self._number = self._expected = 0
        self._pending = []

    def take_waited(self):
        waited, self.waited = self.waited, 0.0
        return waited

    def _reach(self):
        if self.cut or self.engine.down:
            self.waited += 2.0
            raise LogUnavailable("the engine does not answer")

    def _lose_answer(self):
        if self.lost_answers > 0:
            self.lost_answers -= 1
            self.waited += 2.0
            raise LogUnavailable("the answer was lost")

    def connect(self):
        return self.status()

    def status(self):
        self.interrupt("status")
        self._reach()
        engine = self.engine
        live = engine.last - len(engine.purged)
        limits = engine.bytes, engine.max_bytes
        return LogStatus("simulated", "log", engine.last, live, *limits, 3, engine.leader, True)

    def read(self, after, wait):
        self.interrupt("read")
        self._reach()
        found = self.engine.entries[after : after + 50]
        return [entry for entry in found if entry.sequence not in self.engine.purged]

    def _under(self, key):
        self._reach()
        return [entry for entry in self.engine.live if entry.change.key == key]

    def read_from_leader(self):
        pass

    def first(self, key):
        return next(iter(self._under(key)), None)

    def last(self, key):
        return next(reversed(self._under(key)), None)

    def counts(self):
        self._reach()
        return dict(Counter(entry.change.key for entry in self.engine.live))

    def claim(self, writer, after, change):
        self.interrupt("claim")
        self._reach()
        engine = self.engine
        stored = engine.entries[after] if engine.last > after else None
        if stored is None:
            engine.store(writer, 0, change)
            self._lose_answer()
        elif stored.writer != writer or engine.last > after + 1:
            return None
        self._writer, self._number, self._expected, self._pending = writer, 1, after + 1, []
        self.interrupt("claimed")
        return after + 1

    def append(self, changes):
        self._pending += changes
        self.interrupt("append")
        self._reach()
        engine = self.engine
        while self._pending and engine.last > self._expected:  # what became of the last append
            self._check_own()
            self._settle_first()
        self._check_own()
        stored = round(len(self._pending) * self.partial) if self.lost_answers else len(self._pending)
        if self.lost_answers:
            for place, change in enumerate(self._pending[:stored]):
                engine.store(self._writer, self._number + place, change)
            self._lose_answer()
        while self._pending:
            try:
                engine.store(self._writer, self._number, self._pending[0])
            except LogFull:
                self._pending.clear()
                raise
            self._settle_first()
        self.interrupt("appended")
        return self._expected

    def _check_own(self):
        engine = self.engine
        if engine.last > self._expected and engine.entries[self._expected].writer != self._writer:
            raise Fenced("another broker has written")

    def _settle_first(self):
        self._pending.pop(0)
        self._expected += 1
        self._number += 1

    def purge(self, key, through):
        self.engine.purge([entry for entry in self._under(key) if entry.sequence <= through])

    def request(self, command, broker):
        if self.engine.listens:
            self.engine.requests.setdefault(broker, []).append(command)
        return self.engine.listens

    def requests(self, broker, *, active):
        found = self.engine.requests.pop(broker, [])
        return found + (self.engine.requests.pop("", []) if active else [])

    def close(self):
        pass


class SimulatedCopy:
    """A local copy that survives a restart of its broker; its files are the writes by path."""

    def __init__(self):
        self.sequence = 0
        self.files = {}
        self.fault = None
        self.gap = False  # entries are missing that were purged meanwhile
        self.missing = 0
        self.summary = Summary()

    def restart(self, replicated_log, reason, /):
        self.sequence = 0
        self.files.clear()

    def open(self, replicated_log, /):
        return self.sequence

    def apply(self, entries, /):
        if self.fault is not None:
            raise self.fault
        if self.gap:
            self.gap, self.sequence = False, 0
            self.files.clear()
            return
        for entry in entries:
            change = entry.change
            if change.operation is Operation.WHOLE:
                self.files[change.path] = bytes(change.data)
            elif change.key == CONTROL:
                self.files.pop(change.path, None)
            self.sequence = entry.sequence

    def close(self, *, clean):
        pass
