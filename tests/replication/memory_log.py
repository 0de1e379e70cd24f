"""A replicated log in memory: one engine, and a client of it for each broker.

Faults are injected by client: a list of what happens to its next entries, or an engine that does not answer.
"""

from collections import Counter, deque
from threading import Condition
from time import time

from stompring.replication.log import (
    CONTROL,
    Fenced,
    LogFull,
    LogStatus,
    LogUnavailable,
    UnsafeLog,
    decode_entry,
    encode_entry,
)

#: What may happen to an entry: nothing of it arrives; it is stored and the answer is lost; it arrives later, perhaps
#: too late; there is no space.
LOST, UNANSWERED, DELAYED, FULL = "lost", "unanswered", "delayed", "full"


class Conflict(Exception):
    """The log does not end where the writer expects it to."""


class MemoryEngine:
    """The entries. ``stored`` has all there ever were, as payloads; ``purged`` the sequences that are gone."""

    def __init__(self, *, max_bytes=-1, now=time):
        self.identity = "1"
        self.max_bytes = max_bytes
        self.available = True  # False: it has no majority
        self.stored = []  # key, payload, time
        self.purged = set()
        self.bytes = 0
        self.changed = Condition()
        self.delayed = []
        self.requested = {}
        self.listening = {}  # brokers that look for requests, and whether they are active
        self._now = now

    @property
    def last(self):
        return len(self.stored)

    def store(self, payload, key, expected):
        with self.changed:
            if self.last != expected:
                raise Conflict
            if 0 <= self.max_bytes < self.bytes + len(payload):
                raise LogFull("maximum bytes exceeded")
            self.stored.append((key, payload, int(self._now() * 1000)))
            self.bytes += len(payload)
            self.changed.notify_all()
            return self.last

    def deliver_delayed(self):
        """What was on its way for long arrives now."""
        delayed, self.delayed = self.delayed, []
        for store in delayed:
            try:
                store()
            except (Conflict, LogFull):
                pass

    def entry(self, sequence):
        if sequence in self.purged or not 0 < sequence <= self.last:
            return None
        _, payload, at = self.stored[sequence - 1]
        return decode_entry(payload, sequence, at)

    def entries(self, after=0):
        """All that are not purged."""
        found = [self.entry(sequence) for sequence in range(after + 1, self.last + 1)]
        return [entry for entry in found if entry is not None]

    def under(self, key):
        """Sequences of what is stored under a key."""
        places = [place for place, (each, _, _) in enumerate(self.stored, 1) if each == key]
        return [place for place in places if place not in self.purged]

    def purge(self, key, through):
        for sequence in self.under(key):
            if sequence <= through:
                self.purged.add(sequence)
                self.bytes -= len(self.stored[sequence - 1][1])

    def lose(self, sequences):
        """Entries that were confirmed are gone, in all copies."""
        for sequence in sequences:
            if sequence not in self.purged:
                self.purged.add(sequence)
                self.bytes -= len(self.stored[sequence - 1][1])

    def cut_off(self, length):
        """Another engine that has the first entries of this one, with nothing purged."""
        other = MemoryEngine(now=self._now)
        other.stored = self.stored[:length]
        other.bytes = sum(len(payload) for _, payload, _ in other.stored)
        return other

    def recreate(self):
        """Somebody has deleted the log and made a new one."""
        self.identity = str(int(self.identity) + 1)
        self.stored.clear()
        self.purged.clear()
        self.bytes = 0


class MemoryLog:
    """See `ReplicatedLog`. ``faults`` has one of the above for each of the next entries, None for no fault."""

    def __init__(self, engine, broker=""):
        self.engine = engine
        self.broker = broker
        self.connected = True  # False: this client does not reach the engine
        self.faults = deque()
        self.writer = 0
        self.expected = 0
        self._number = 0
        self._waiting = deque()  # to be stored, in order
        self._unknown = False  # the first of them may be stored
        self._identity = ""

    def _reach(self):
        if not self.connected:
            raise LogUnavailable("not connected")
        if not self.engine.available:
            raise LogUnavailable("no majority")
        if self._identity and self._identity != self.engine.identity:
            raise UnsafeLog("the log was made anew")

    def connect(self):
        status = self.status()
        self._identity = status.identity
        return status

    def status(self):
        self._reach()
        engine = self.engine
        entries = engine.last - len(engine.purged)
        return LogStatus(
            "memory",
            engine.identity,
            engine.last,
            entries,
            engine.bytes,
            engine.max_bytes,
            3,
            "memory",
            engine.available,
        )

    def read(self, after, wait):
        self._reach()
        with self.engine.changed:
            found = self.engine.entries(after)
            if not found and wait > 0:
                self.engine.changed.wait(wait)
                self._reach()
                found = self.engine.entries(after)
            return found[:1000]

    def read_from_leader(self):
        pass

    def first(self, key):
        self._reach()
        found = self.engine.under(key)
        return self.engine.entry(found[0]) if found else None

    def last(self, key):
        self._reach()
        found = self.engine.under(key)
        return self.engine.entry(found[-1]) if found else None

    def counts(self):
        self._reach()
        live = [
            key for place, (key, _, _) in enumerate(self.engine.stored, 1) if place not in self.engine.purged
        ]
        return dict(Counter(live))

    def claim(self, writer, after, change):
        self._waiting.clear()
        self.writer, self.expected, self._number, self._unknown = writer, after, 0, False
        self._reach()
        fault = self.faults.popleft() if self.faults else None
        payload = encode_entry(writer, 0, change)
        try:
            if fault == LOST:
                raise LogUnavailable("nothing arrived")
            if fault == DELAYED:
                self.engine.delayed.append(lambda: self.engine.store(payload, change.key, after))
                raise LogUnavailable("no answer")
            if fault == FULL:
                raise LogFull("maximum bytes exceeded")
            self.expected = self.engine.store(payload, change.key, after)
            if fault == UNANSWERED:
                raise LogUnavailable("no answer")
        except Conflict:
            entry = self.engine.entry(after + 1)
            if entry is None or (entry.writer, entry.number) != (writer, 0):
                self.writer = 0
                return None
            self.expected = after + 1
        return self.expected

    def append(self, changes):
        if not self.writer:
            raise Fenced("this broker has not claimed the log")
        for change in changes:
            self._number += 1
            self._waiting.append((self._number, change))
        if not self._waiting:
            self._reach()
        while self._waiting:
            self._reach()
            if self._unknown and self._found():
                continue
            self._store()
        return self.expected

    def _found(self):
        """Read back the place of an entry of which nobody knows whether it is stored."""
        engine, place = self.engine, self.expected + 1
        if engine.last < place:
            return False
        entry = engine.entry(place)
        if entry is None or (entry.writer, entry.number) != (self.writer, self._waiting[0][0]):
            raise Fenced(f"entry {place} is of another broker")
        self._confirm(place)
        return True

    def _confirm(self, sequence):
        self.expected = sequence
        self._waiting.popleft()
        self._unknown = False

    def _store(self):
        number, change = self._waiting[0]
        expected = self.expected
        payload = encode_entry(self.writer, number, change)
        fault = self.faults.popleft() if self.faults else None
        if fault == FULL:
            raise LogFull("maximum bytes exceeded")
        if fault in (LOST, DELAYED):
            self._unknown = True
            if fault == DELAYED:
                self.engine.delayed.append(lambda: self.engine.store(payload, change.key, expected))
            raise LogUnavailable("no answer")
        try:
            sequence = self.engine.store(payload, change.key, expected)
        except Conflict:
            self._unknown = True
            return  # what is there tells
        if fault == UNANSWERED:
            self._unknown = True
            raise LogUnavailable("no answer")
        self._confirm(sequence)

    def purge(self, key, through):
        self._reach()
        self.engine.purge(key, through)

    def request(self, command, broker):
        self._reach()
        listening = self.engine.listening
        names = [broker] if broker else [name for name, active in listening.items() if active]
        for name in names:
            if name in listening:
                self.engine.requested.setdefault(name, []).append(command)
                return True
        return False

    def requests(self, broker, *, active):
        self.engine.listening[broker] = active
        return self.engine.requested.pop(broker, [])

    def close(self):
        self.engine.listening.pop(self.broker, None)


def control_numbers(engine):
    """Numbers of the control entries that are there."""
    found = [engine.entry(sequence) for sequence in engine.under(CONTROL)]
    return [entry.change.at for entry in found if entry is not None]
