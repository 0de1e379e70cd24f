"""What the broker was asked, what it promised, and so what it must still have.

A *copy* is one message in one queue. A *unit* is what happens as a whole or not at all: a SEND with all the queues it
reaches, an acknowledgement, a transaction. Units are open until they are asked of the broker (a COMMIT was written),
asked until its RECEIPT comes, and then done. A crash leaves asked units in doubt; what is found afterwards decides
each of them, once for all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

from .connection import Connection
from .topology import LASTING_GROUPS

#: Milliseconds by which a message may be delivered after its expiry: it was on its way.
ON_ITS_WAY = 5_000


class State(Enum):
    """How far a unit has come."""

    OPEN = "open"
    ASKED = "asked"
    DONE = "receipted"
    UNDONE = "undone"


@dataclass(eq=False)
class Unit:
    """Something that happens as a whole or not at all."""

    what: str
    life: int
    wire: Connection | None = None  # where it was asked
    state: State = State.OPEN
    entering: list[Copy] = field(default_factory=list)
    leaving: list[Copy] = field(default_factory=list)

    @property
    def hung_up(self):
        """The connection that asked for it is gone, and may have taken the question along."""
        return self.wire is not None and self.wire.lost

    def move(self, state):
        """It has come so far. What was undone or done stays so."""
        if self.state in (State.OPEN, State.ASKED):
            self.state = state
            for copy in (*self.entering, *self.leaving):
                copy.note(f"{self.what}: {state.value}")
            if state is not State.UNDONE:
                for copy in self.entering:
                    copy.replace_older()

    def __str__(self):
        return f"{self.what} ({self.state.value})"


@dataclass(eq=False)
class Copy:
    """One message in one queue."""

    queue: str
    text: str  # producer/sequence, with which its body begins
    producer: str
    sequence: int
    entry: Unit
    life: int
    priority: int = 4
    durable: bool = True
    due: int = 0
    expires: int = 0
    message_group: str = ""
    key: str = ""  # of a last-value queue
    older: list[Copy] = field(default_factory=list)  # with the same key
    exits: list[Unit] = field(default_factory=list)
    holder: object = None  # who has it in delivery
    doubt: str = ""  # why it may be gone though nobody acknowledged it
    attempts: int = 0  # failed ones that were promised to be remembered
    history: list[str] = field(default_factory=list)

    def note(self, event):
        """Write down what happened to it."""
        self.history.append(f"{time.time() % 1000:07.3f} {event}")

    def replace_older(self):
        """It may have entered its queue: then those before it with its key are replaced, or will be."""
        for other in self.older:
            other.doubt = other.doubt or f"{self.text} has its key"

    @property
    def may_stay(self):
        """Nothing that was promised forbids that it is there."""
        return self.entry.state in (State.ASKED, State.DONE) and not any(
            unit.state is State.DONE for unit in self.exits
        )

    @property
    def may_be_gone(self):
        """Nothing that was promised forbids that it is missing."""
        return (
            self.entry.state is not State.DONE
            or bool(self.doubt)
            or any(unit.state in (State.ASKED, State.DONE) for unit in self.exits)
        )

    def __str__(self):
        kind = "" if self.durable else " not durable"
        kind += f" of group {self.message_group}" if self.message_group else ""
        lines = [f"{self.text} in {self.queue}, priority {self.priority}{kind}, sent in life {self.life}"]
        if self.due or self.expires:
            lines.append(f"due {self.due} expires {self.expires} (now {now()})")
        lines.append(f"entry: {self.entry}; exits: {', '.join(map(str, self.exits)) or 'none'}")
        if self.doubt:
            lines.append(f"doubt: {self.doubt}")
        return "\n      ".join([*lines, *self.history])


@dataclass(frozen=True)
class Fault:
    """A promise that was broken, with the entries concerned."""

    rule: str
    detail: str
    copies: tuple[Copy, ...] = ()

    def __str__(self):
        shown = "".join(f"\n    - {copy}" for copy in self.copies[:12])
        return f"{self.rule}: {self.detail}{shown}"


def now():
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class Ledger:
    """All copies that may be in the broker, and what has become of the others."""

    def __init__(self):
        self.life = 1
        self.stopping = False  # connections end one after the other, and what one held another is given
        self.queues = {}  # what may be in them, by text, in the order it was sent
        self.finished = {}
        self.faults = []
        self.counts = {}
        self.owners = {}  # of message groups that do not end, by queue and group
        self.highest = {}  # the last sequence sent to each queue
        self._sequences = {}

    def count(self, what):
        """One more of something, for the report."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, rule, detail, *copies):
        """A promise is broken."""
        self.faults.append(Fault(rule, f"{detail} (life {self.life})", copies))

    def in_queue(self, queue):
        """The copies that may be in a queue, in the order they were sent."""
        return list(self.queues.get(queue, {}).values())

    def waiting(self, queue):
        """How many of a queue nobody has acknowledged."""
        return sum(
            all(unit.state is State.UNDONE for unit in copy.exits)
            for copy in self.queues.get(queue, {}).values()
        )

    def everything(self):
        """All that may be anywhere."""
        return [copy for copies in self.queues.values() for copy in copies.values()]

    def find(self, queue, text):
        """The copy, where it may still be there."""
        return self.queues.get(queue, {}).get(text)

    # ---- what producers say

    def unit(self, what, wire=None):
        """Something new that is not yet asked."""
        return Unit(what, self.life, wire)

    def next_text(self, producer):
        """The name of a producer's next message."""
        sequence = self._sequences[producer] = self._sequences.get(producer, 0) + 1
        return f"{producer}/{sequence}", sequence

    def enter(
        self, unit, queues, producer, *, priority=4, durable=True, due=0, expires=0, message_group="", key=""
    ):
        """A message that ``unit`` sends to these queues; returns its text."""
        text, sequence = self.next_text(producer)
        for queue in queues:
            copy = Copy(
                queue,
                text,
                producer,
                sequence,
                unit,
                self.life,
                priority,
                durable,
                due,
                expires,
                message_group,
                key,
                [other for other in self.in_queue(queue) if other.key == key] if key else [],
            )
            self.queues.setdefault(queue, {})[text] = copy
            self.highest[queue] = sequence
            unit.entering.append(copy)
        self.count("sent")
        return text

    # ---- what consumers see and say

    def delivered(self, queue, text, holder, *, redelivered=False, moved=False):
        """A consumer was given a message of a queue, or what it became when it died or expired (``moved``).

        None where it must not exist.
        """
        copy = self.find(queue, text)
        if copy is None:
            self.unknown(queue, text, f"delivered to {holder}")
            return None
        copy.note(f"delivered to {holder}{', redelivered' if redelivered else ''}")
        self.count("delivered")
        self._judge_delivery(copy, holder, moved)
        exclusive = copy.queue.endswith(".exclusive")
        if (exclusive or copy.message_group in LASTING_GROUPS) and not moved:
            self._judge_owner(copy, holder, "everything" if exclusive else copy.message_group)
        copy.holder = holder
        return copy

    def unknown(self, queue, text, seen):
        """Something was seen that must not exist."""
        if (queue, text) in self.finished:
            why, copy = self.finished[queue, text]
            self.fault("came back", f"{text} of {queue} {seen}, but {why}", copy)
        else:
            self.fault("never sent", f"{text} of {queue} {seen}")

    def _judge_delivery(self, copy, holder, moved):
        if copy.entry.state in (State.OPEN, State.UNDONE):
            self.fault("not committed", f"delivered to {holder} all the same", copy)
        if copy.holder is not None and not self.stopping:
            self.fault("delivered twice", f"to {copy.holder} and to {holder}", copy)
        for unit in copy.exits:
            if unit.state is State.ASKED and unit.hung_up and len(unit.leaving) == 1 and not unit.entering:
                unit.move(State.UNDONE)  # it is here again: the ACK was lost with its connection
            if unit.state is State.DONE:
                self.fault("came back", f"delivered to {holder}, after the receipt of {unit.what}", copy)
            elif unit.state is State.ASKED and not (unit.life < self.life or unit.hung_up or self.stopping):
                self.fault("came back", f"delivered to {holder}, after {unit.what}", copy)
        if not copy.durable and copy.life < self.life:
            self.fault("not durable", f"delivered to {holder} after a restart", copy)
        if copy.due > now():
            self.fault("too early", f"delivered to {holder} {copy.due - now()} ms before its time", copy)
        if copy.expires and copy.expires + ON_ITS_WAY < now() and not moved:
            self.fault("expired", f"delivered to {holder} {now() - copy.expires} ms after its expiry", copy)

    def _judge_owner(self, copy, holder, group):
        owner = self.owners.setdefault((copy.queue, group), holder)
        if owner is not holder and not self.stopping:
            self.fault("group", f"{group} belongs to {owner}, and {holder} got of it", copy)

    def gone(self, holder):
        """A consumer goes, and its message groups are anybody's."""
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not holder}

    def leave(self, unit, copy):
        """``unit`` acknowledges a copy."""
        copy.exits.append(unit)
        unit.leaving.append(copy)

    def acknowledge(self, copy, wire):
        """An ACK outside of transactions was written."""
        unit = self.unit("ACK", wire)
        self.leave(unit, copy)
        copy.holder = None
        unit.move(State.ASKED)
        return unit

    def give_back(self, copies, why):
        """Whoever held these has them no longer, and did not acknowledge them."""
        for copy in copies:
            copy.holder = None
            copy.note(why)

    # ---- what a crash leaves behind

    def finish(self, copy, why):
        """It is gone for good: seeing it again is a fault."""
        del self.queues[copy.queue][copy.text]
        self.finished[copy.queue, copy.text] = (why, copy)

    def forget_done(self):
        """Copies whose end is promised need no more thought."""
        for copy in self.everything():
            if copy.entry.state is State.UNDONE:
                self.finish(copy, "its transaction was undone")
            elif any(unit.state is State.DONE for unit in copy.exits):
                self.finish(copy, "it was acknowledged")

    def next_life(self, present):
        """What was found decides every doubt: it is as if it had been promised."""
        self.life += 1
        self.stopping = False
        self.owners.clear()
        for copy in self.everything():
            if copy not in present:
                self.finish(copy, f"it was not there at the start of life {self.life}")
                continue
            if copy.entry.state is not State.DONE or copy.exits or copy.doubt:
                copy.note(f"found at the start of life {self.life}")
            copy.entry = Unit(f"found in life {self.life}", self.life, state=State.DONE)
            copy.exits.clear()
            copy.holder = None
            copy.doubt = ""
