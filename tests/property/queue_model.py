"""What a queue must do, said as plainly as possible: lists that are sorted and searched through, nothing kept twice.

The model does not know whose turn it is. It is told who took which message, in which order, and checks that each
might take it, and that nobody is left who could have been given something.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MAX_ATTEMPTS = 3
REDELIVERY_DELAY = 1000
MULTIPLIER = 2


@dataclass(eq=False)
class Item:
    """A message."""

    number: int
    priority: int
    size: int
    colour: bytes
    group: bytes | None
    ends_group: bool
    expires: int
    place: int
    due: int = 0
    entered: int = 0  # when it was scheduled: the order of those that fall due together
    deliveries: int = 0
    attempts: int = 0
    avoid: Reader | None = None
    key: bytes | None = None  # of a last-value queue
    entrance: int = 0  # the how manieth message with a key to enter; 0 while it waits for its time

    @property
    def order(self):
        return (-self.priority, self.place)


@dataclass(eq=False)
class Reader:
    """A consumer."""

    name: object
    credit: int
    auto: bool
    colour: bytes | None
    willing: bool = True
    unsettled: list[Item] = field(default_factory=list)

    def matches(self, item):
        return self.colour is None or self.colour == item.colour


@dataclass(eq=False)
class Model:
    """The queue. ``now`` is kept by the test."""

    ring: int = -1
    paused: bool = False
    now: int = 0
    pending: list[Item] = field(default_factory=list)
    scheduled: list[Item] = field(default_factory=list)
    delivering: list[Item] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    owners: dict[bytes, Reader] = field(default_factory=dict)
    added: int = 0
    acknowledged: int = 0
    expired: list[int] = field(default_factory=list)
    killed: int = 0
    dead: list[int] = field(default_factory=list)
    replaced: int = 0
    highest: int = 0
    lowest: int = 0
    entries: int = 0
    entrances: int = 0
    newest: dict[bytes, int] = field(default_factory=dict)  # by key, the last entrance
    took: list[tuple[object, int]] = field(
        default_factory=list
    )  # what the real queue did, not yet understood

    # ---- arriving

    def send(self, item):
        self.added += 1
        self.highest += 1
        item.place = self.highest
        late = bool(item.expires) and item.expires <= self.now
        self.enter(item)
        self.insert(item)
        if 0 <= self.ring < len(self.pending):  # before anybody may have what has just come
            self.replaced += 1
            late = self.pending.pop(0) is not item and late
        if late and not self.paused and any(r.willing and r.matches(item) for r in self.readers):
            self.expire(item)  # whoever looks at it finds it expired
        self.deliver()

    def enter(self, item):
        """A value replaces those with its key that nobody has in hand; the others are obsolete from now on."""
        if item.key is None:
            return
        self.entrances += 1
        item.entrance = self.newest[item.key] = self.entrances
        for held in (self.pending, self.scheduled):
            for other in [i for i in held if i.key == item.key and 0 < i.entrance < item.entrance]:
                held.remove(other)
                self.replaced += 1

    def obsolete(self, item):
        """Whether a newer value of its key has entered since, whatever became of that."""
        return item.key is not None and 0 < item.entrance < self.newest[item.key]

    def schedule(self, item, due):
        self.added += 1
        self.postpone(item, due)

    def postpone(self, item, due):
        self.entries += 1
        item.due, item.entered = due, self.entries
        self.scheduled.append(item)

    def insert(self, item):
        self.pending.append(item)
        self.pending.sort(key=lambda other: other.order)

    def insert_at_head(self, item):
        """As what comes back or falls due: lost itself where the ring is full."""
        if 0 <= self.ring <= len(self.pending):
            self.replaced += 1
            return False
        self.insert(item)
        return True

    # ---- time

    def next_event(self):
        times = [item.due for item in self.scheduled]
        times += [item.expires for item in self.pending + self.scheduled if item.expires]
        return min(times, default=None)

    def happen(self, at):
        """Everything that is due at one time; due times and expiry times never coincide."""
        self.now = max(self.now, at)
        due = sorted((item for item in self.scheduled if item.due <= at), key=lambda i: (i.due, i.entered))
        self.lowest -= len(due)
        for place, item in enumerate(due):
            self.scheduled.remove(item)
            if not item.deliveries:
                item.place = self.lowest + place
        for at_most, item in enumerate(due):
            if self.obsolete(item):
                self.replaced += 1
                continue
            if not item.deliveries:
                self.enter(item)
            older = [i for i in due[:at_most] if i in self.pending and i.number < item.number]
            if older and 0 <= self.ring <= len(self.pending):
                self.replaced += 1
                self.pending.remove(min(older, key=lambda i: i.number))
            self.insert_at_head(item)
            self.deliver()
        for item in self.pending + self.scheduled:
            if item.expires and item.expires <= at:
                self.expire(item)

    def expire(self, item):
        for held in (self.pending, self.scheduled, self.delivering):
            if item in held:
                held.remove(item)
        self.expired.append(item.number)

    # ---- delivery

    def owner(self, item):
        owner = None if item.group is None else self.owners.get(item.group)
        return owner if owner is not None and owner.matches(item) else None

    def may_take(self, reader, item):
        if not reader.willing or not reader.matches(item):
            return False
        return self.owner(item) in (None, reader)

    def next_for(self, reader):
        for item in self.pending:
            if self.may_take(reader, item):
                others = (other for other in self.readers if other is not reader)
                if item.avoid is reader and any(self.may_take(other, item) for other in others):
                    return None
                return item
        return None

    def deliver(self):
        """Follow what the real queue handed out until nobody can be given anything."""
        while not self.paused and any(self.next_for(reader) is not None for reader in self.readers):
            assert self.took, f"somebody could take a message: {[item.number for item in self.pending]}"
            name, number = self.took.pop(0)
            reader = next(reader for reader in self.readers if reader.name is name)
            item = self.next_for(reader)
            assert item is not None, f"{name} took {number} and may take nothing"
            assert item.number == number, f"{name} took {number}, {item.number} was its turn"
            self.hand_over(item, reader)

    def hand_over(self, item, reader):
        self.pending.remove(item)
        item.deliveries += 1
        item.avoid = None
        reader.credit -= 1
        reader.willing = reader.credit > 0
        if item.group is not None:
            self.owners.setdefault(item.group, reader)
            if item.ends_group:
                del self.owners[item.group]
        if reader.auto:
            self.acknowledged += 1
        else:
            self.delivering.append(item)
            reader.unsettled.append(item)

    # ---- what consumers do

    def join(self, reader):
        self.readers.append(reader)
        self.deliver()

    def wake(self, reader, credit):
        reader.credit += credit
        reader.willing = reader.credit > 0
        self.deliver()

    def release(self, reader, items):
        for item in items:
            reader.unsettled.remove(item)
            reader.credit += 1  # it is willing again only after what it said was done

    def settle(self, items):
        for item in items:
            self.delivering.remove(item)
            self.acknowledged += 1

    def give_back(self, items, reader, *, failed):
        for item in sorted(items, key=lambda i: i.order, reverse=True):
            self.delivering.remove(item)
            item.avoid = reader
            item.attempts += failed
            if failed and item.attempts >= MAX_ATTEMPTS:
                self.killed += 1
                self.dead.append(item.number)
            elif self.obsolete(item):
                self.replaced += 1
            elif item.expires and item.expires <= self.now:
                self.expire(item)
            elif failed and not 0 <= self.ring <= len(self.pending):
                self.postpone(item, self.now + REDELIVERY_DELAY * MULTIPLIER ** (item.attempts - 1))
            else:
                self.insert_at_head(item)
        self.deliver()

    def rollback(self, steps):
        """What a transaction had stays with who had it before, or comes back where that one has left."""
        left = []
        for reader, items in steps:
            if reader not in self.readers:
                left += items
                continue
            reader.unsettled += items
            reader.credit -= len(items)
            reader.willing = reader.willing and reader.credit > 0
        self.give_back(left, None, failed=False)

    def leave(self, reader, *, failed):
        self.readers.remove(reader)
        self.owners = {group: owner for group, owner in self.owners.items() if owner is not reader}
        unsettled, reader.unsettled = reader.unsettled, []
        self.give_back(unsettled, None, failed=failed)

    # ---- management

    def purge(self):
        self.killed += len(self.pending) + len(self.scheduled)
        self.pending.clear()
        self.scheduled.clear()

    def kill(self, item):
        held = lambda: [self.pending, self.scheduled, self.delivering]  # noqa: E731
        next(items for items in held() if item in items).remove(item)
        self.killed += 1

    @property
    def held(self):
        return [*self.pending, *self.scheduled, *self.delivering]
