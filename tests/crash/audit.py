"""A restarted broker beside the ledger: what is missing, what came back, what is half there, what is out of order."""

import time
from dataclasses import dataclass, field
from typing import Any

from ..waiting import Deadline
from .ledger import Fault, State, now
from .topology import EXPIRED, GRAVES

#: Milliseconds that a broker may take to notice that a message has expired or fallen due, or that a client has gone.
NOTICE = 3_000

#: Counters of a queue that tell whether anything has moved.
MOVING = ("messageCount", "scheduledCount", "deliveringCount", "messagesAdded", "messagesExpired")


@dataclass(frozen=True)
class Seen:
    """A message as the management API lists it."""

    place: str  # the queue that it was found in
    queue: str  # the queue that it was sent to: another one where it died or expired
    text: str
    state: str
    priority: int
    attempts: int


@dataclass
class Observation:
    """Everything that the management API tells about the queues."""

    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, list[Seen]] = field(default_factory=dict)


def observe(management, but=()):
    """Look at everything, without queues whose names begin with one of ``but``. No client is there any more.

    What moves meanwhile, because it expires or falls due, is looked at again. What is in delivery has `NOTICE` to come
    back: the broker may have yet to hear that its client has hung up.
    """
    returned = time.monotonic() + NOTICE / 1000
    found = Observation(_counted(management, but))
    while any(queue["deliveringCount"] for queue in found.queues.values()) and time.monotonic() < returned:
        time.sleep(0.02)
        found.queues = _counted(management, but)
    changed = set(found.queues)
    deadline = Deadline()
    while changed:
        assert not deadline.passed(), f"these queues do not come to rest: {changed}"
        for name in changed & set(found.queues):
            found.contents[name] = [
                _seen(name, message)
                for message in everything(management, f"/queues/{name}/messages", bodyLimit=64)
            ]
        before, found.queues = found.queues, _counted(management, but)
        changed = {
            name for name in {*before, *found.queues} if _moved(before.get(name), found.queues.get(name))
        }
    found.contents = {name: found.contents[name] for name in found.queues}
    return found


def _moved(before, after):
    if before is None or after is None:
        return before is not after
    return any(before[counter] != after[counter] for counter in MOVING)


def _counted(management, but):
    queues = everything(management, "/queues", size=1000)
    return {queue["name"]: queue for queue in queues if not queue["name"].startswith(but)}


def everything(management, path, **query):
    """All items of a list that comes in pages."""
    page = 1
    while True:
        answer = management.ask("GET", path, page=page, **query)
        yield from answer["data"]
        if page * answer["size"] >= answer["count"]:
            return
        page += 1


def _seen(place, message):
    origin = message["headers"].get("_AMQ_ORIG_QUEUE", place) if place in GRAVES else place
    text = message["body"].partition("|")[0]
    return Seen(place, origin, text, message["state"], message["priority"], message["failedAttempts"])


class Audit:
    """One comparison. ``faults`` is what is wrong, ``present`` the copies that are there."""

    def __init__(self, ledger, groups, found):
        self.ledger = ledger
        self.groups = {group.queue: group for group in groups}
        self.found = found
        self.now = now()
        self.faults = []
        self.present = {}
        self._look()
        for copy in ledger.everything():
            self._judge(copy)
        self._units()
        for queue in found.queues:
            self._counters(queue)
            self._order(queue)
        for group in self.groups.values():
            if group.ring:
                self._ring(group)
            if group.keyed:
                self._last_values(group)

    def _fault(self, rule, detail, *copies):
        self.faults.append(Fault(rule, f"{detail} (before life {self.ledger.life + 1})", copies))

    def _look(self):
        for queue, contents in self.found.contents.items():
            for seen in contents:
                copy = self.ledger.find(seen.queue, seen.text)
                if copy is None:
                    self._unknown(queue, seen)
                elif copy in self.present:
                    self._fault("twice", f"in {self.present[copy].place} and in {queue}", copy)
                else:
                    self.present[copy] = seen

    def _unknown(self, queue, seen):
        if (seen.queue, seen.text) in self.ledger.finished:
            why, copy = self.ledger.finished[seen.queue, seen.text]
            self._fault("came back", f"{seen.text} is in {queue}, but {why}", copy)
        else:
            self._fault("never sent", f"{seen.text} is in {queue}")

    # ---- one copy

    def _judge(self, copy):
        seen = self.present.get(copy)
        if seen is None:
            if copy.durable and not copy.may_be_gone and not self._ring_may_lose(copy):
                self._fault("lost", f"{copy.text} of {copy.queue} is nowhere", copy)
            return
        if not copy.durable:
            self._fault("not durable", f"{copy.text} is in {seen.place} after the restart", copy)
        elif not copy.may_stay:
            self._fault("came back", f"{copy.text} is in {seen.place}", copy)
        elif seen.place == copy.queue:
            self._judge_in_place(copy, seen)
        elif seen.place == EXPIRED and not 0 < copy.expires <= self.now:
            self._fault("expired", f"{copy.text} is in {EXPIRED} before its time", copy)
        if seen.state == "delivering":  # where no message expires
            self._fault("held", f"{copy.text} in {seen.place} is in delivery, and no client is there", copy)
        if seen.priority != copy.priority:
            self._fault("changed", f"{copy.text} has priority {seen.priority}", copy)

    def _judge_in_place(self, copy, seen):
        if copy.expires and copy.expires + NOTICE < self.now:
            self._fault("overdue", f"{copy.text} has expired and is still in {copy.queue}", copy)
        if copy.due > self.now + NOTICE and seen.state != "scheduled":
            self._fault("too early", f"{copy.text} is {seen.state} in {copy.queue}", copy)
        if 0 < copy.due < self.now - NOTICE and seen.state == "scheduled" and not seen.attempts:
            self._fault("too late", f"{copy.text} is still scheduled in {copy.queue}", copy)
        if seen.attempts < copy.attempts:
            detail = (
                f"{copy.text} has {seen.attempts} failed attempts, and {copy.attempts} are known for sure"
            )
            self._fault("attempts", detail, copy)

    def _ring_may_lose(self, copy):
        group = self.groups.get(copy.queue)
        if group is None or not group.ring:
            return False
        # one producer sends to a ring, and nothing else
        return self.ledger.highest[copy.queue] - copy.sequence >= group.ring

    # ---- what belongs together

    def _units(self):
        units = {copy.entry for copy in self.ledger.everything()}
        units |= {unit for copy in self.ledger.everything() for unit in copy.exits}
        for unit in units:
            if unit.state is State.ASKED and len(unit.entering) + len(unit.leaving) > 1:
                self._whole(unit)

    def _whole(self, unit):
        happened = [copy for copy in unit.entering if self._shows_entry(copy)]
        happened += [copy for copy in unit.leaving if self._shows_exit(copy, unit)]
        failed = [copy for copy in unit.entering if self._shows_no_entry(copy)]
        failed += [copy for copy in unit.leaving if copy in self.present]
        if happened and failed:
            detail = f"{unit.what}: {len(happened)} parts of it happened, {len(failed)} did not"
            self._fault("half", detail, *happened[:6], *failed[:6])

    def _shows_entry(self, copy):
        return copy in self.present or any(unit.state is State.DONE for unit in copy.exits)

    def _shows_no_entry(self, copy):
        return copy.durable and copy not in self.present and not copy.exits and not self._may_vanish(copy)

    def _shows_exit(self, copy, unit):
        others = [other for other in copy.exits if other is not unit and other.state is not State.UNDONE]
        sure = copy.durable and copy.entry.state is State.DONE and not others
        return sure and copy not in self.present and not self._may_vanish(copy)

    def _may_vanish(self, copy):
        group = self.groups.get(copy.queue)
        return bool(copy.doubt) or (group is not None and group.ring > 0)

    # ---- one queue

    def _counters(self, name):
        queue, contents = self.found.queues[name], self.found.contents[name]
        states = [seen.state for seen in contents]
        counted = (queue["messageCount"], queue["scheduledCount"], queue["deliveringCount"])
        listed = (len(contents), states.count("scheduled"), states.count("delivering"))
        if counted != listed:
            detail = f"{name} counts messages, scheduled, delivering {counted}, and lists {listed}"
            self._fault("counters", detail)

    def _order(self, name):
        last = {}
        lowest = 9
        for seen in self.found.contents[name]:
            copy = self.ledger.find(seen.queue, seen.text)
            if copy is None or seen.state != "pending" or name in GRAVES:
                continue
            if copy.priority > lowest:
                self._fault("order", f"{copy.text} in {name} stands behind priority {lowest}", copy)
            lowest = copy.priority
            if copy.due:
                continue
            before = last.get((copy.producer, copy.priority))
            if before is not None and before.sequence > copy.sequence:
                self._fault("order", f"{copy.text} in {name} stands behind {before.text}", before, copy)
            last[copy.producer, copy.priority] = copy

    def _ring(self, group):
        """What is there is no more than fits. Without consumers it is what the sends that are promised leave."""
        there = []
        for copy in self.ledger.in_queue(group.queue):
            seen = self.present.get(copy)
            if (
                seen is not None and seen.place == group.queue and seen.state == "pending"
            ):  # and no dead letter
                there.append(copy)
        if len(there) > group.ring:
            self._fault("ring", f"{group.queue} holds {len(there)}, not {group.ring}", *there)
        if group.consumers:
            return
        sure = [copy for copy in self.ledger.in_queue(group.queue) if copy.entry.state is State.DONE]
        for copy in there:
            newer = sum(other.sequence > copy.sequence for other in sure)
            if newer >= group.ring:
                self._fault(
                    "ring", f"{group.queue} holds {copy.text}, and {newer} newer ones are promised", copy
                )

    def _last_values(self, group):
        """One waits of each key. Without consumers that is the newest, or a newer one than is promised."""
        there = {}
        promised = {}
        for copy in self.ledger.in_queue(group.queue):
            seen = self.present.get(copy)
            if copy.entry.state is State.DONE:
                promised[copy.key] = copy
            if seen is None or seen.place != group.queue or seen.state != "pending":
                continue
            if copy.key in there:
                self._fault("last value", f"{group.queue} holds two of {copy.key}", there[copy.key], copy)
            there[copy.key] = copy
        if group.consumers:
            return
        for key, copy in promised.items():
            found = there.get(key)
            if found is None or found.sequence < copy.sequence:
                held = "nothing" if found is None else found.text
                detail = f"{group.queue} holds {held} of {key}, and {copy.text} is promised"
                self._fault("last value", detail, copy)
