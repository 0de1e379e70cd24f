"""Actors that receive: they acknowledge, refuse, hold back, hang up and come again."""

import asyncio
from dataclasses import dataclass

from .connection import ConnectionBroken, within
from .ledger import State


@dataclass(frozen=True)
class ConsumerProfile:
    """How a consumer treats what it gets. Shares are between 0 and 1."""

    destination: str
    queue: str
    ack: str = "client-individual"
    selector: str | None = None
    subscription: str | None = None  # the name of a durable one
    client_id: str | None = None
    refused: float = 0.08
    aborted: float = 0.0
    receipted: float = 0.8
    leaves: float = 0.01
    slowness: float = 0.003
    ordered: bool = True
    moved: bool = False  # it reads what died or expired, whatever queue that was in
    priorities: tuple[int, ...] = (0,)  # consumer-priority: one of these each time


class Consumer:
    """One subscription on a connection of its own, again and again."""

    def __init__(self, world, diet, name):
        self.world = world
        self.ledger = world.ledger
        self.diet = diet
        self.name = name
        self.held = {}  # by the order of delivery, with what an ACK must say
        self._arrived = asyncio.Event()
        self._last = {}
        self.wire = None

    def __str__(self):
        return self.name

    async def run(self):
        """Consume until the broker is gone."""
        while True:
            wire = await self.subscribe()
            while not self.world.chance(self.diet.leaves):
                await self._step(wire)
                if wire.lost:
                    raise ConnectionBroken
            await self._go(wire)

    async def subscribe(self):
        """Connect and subscribe anew. Raises `Lost`."""
        diet = self.diet
        wire = await self.world.open(diet.client_id)
        self.wire = wire
        self._last.clear()
        wire.on_lost.append(lambda: self._forget(wire, "its connection is lost"))
        wire.receivers["s"] = lambda frame: self.take(wire, frame)
        headers = {"destination": diet.destination, "id": "s", "ack": diet.ack}
        headers["prefetch-count"] = self.world.random.choice([1, 3, 20, 100])
        if len(diet.priorities) > 1:
            headers["consumer-priority"] = self.world.random.choice(diet.priorities)
        if diet.selector:
            headers["selector"] = diet.selector
        if diet.subscription:
            headers["durable-subscription-name"] = diet.subscription
        await within(wire.ask("SUBSCRIBE", headers))
        return wire

    # ---- receiving

    def take(self, wire, frame):
        if wire is not self.wire:
            return
        text = frame.body.partition(b"|")[0].decode()
        queue = frame.headers["_AMQ_ORIG_QUEUE"] if self.diet.moved else self.diet.queue
        redelivered = frame.headers["redelivered"] == "true"
        copy = self.ledger.delivered(queue, text, self, redelivered=redelivered, moved=self.diet.moved)
        if copy is None:
            return
        if self.diet.ordered and not redelivered:
            self._judge_order(copy)
        self.held[copy] = frame.headers["ack"]
        self._arrived.set()

    def _judge_order(self, copy):
        # what another owner of a group has left behind comes late, but in the order of its group
        key = (copy.producer, copy.priority, copy.message_group)
        if copy.sequence < self._last.get(key, 0):
            self.ledger.fault("order", f"{self} got {copy.text} after number {self._last[key]}", copy)
        self._last[key] = copy.sequence

    # ---- settling

    async def _step(self, wire):
        await self.some()
        if self.diet.slowness:
            await self.world.pause(self.diet.slowness)
        if not self.held or wire.lost:
            return
        random = self.world.random
        if self.diet.ack == "client":
            upto = random.randrange(len(self.held))
            self.acknowledge(wire, list(self.held)[: upto + 1])
        else:
            copy = random.choice(list(self.held)[:5])
            if random.random() < self.diet.aborted:
                self._abort(wire, copy)
            elif random.random() < self.diet.refused:
                self._refuse(wire, copy)
            else:
                self.acknowledge(wire, [copy])

    async def some(self):
        """Wait a little for messages, where there are none."""
        if not self.held:
            self._arrived.clear()
            try:
                await within(self._arrived.wait(), 0.1)
            except TimeoutError:
                pass

    def acknowledge(self, wire, copies):
        """ACK the last of them, which settles all of them where the subscription is of that kind."""
        name = {"id": self.held[copies[-1]]}
        receipted = self.world.chance(self.diet.receipted)
        promise = wire.ask("ACK", dict(name)) if receipted else None
        if promise is None:
            wire.send("ACK", dict(name))
        units = [self.ledger.acknowledge(copy, wire) for copy in copies]
        for copy in copies:
            del self.held[copy]
        if promise is not None:
            promise.add_done_callback(lambda done: self._acknowledged(units, done))

    def _acknowledged(self, units, done):
        if not done.cancelled() and done.exception() is None:
            for unit in units:
                unit.move(State.DONE)
            self.ledger.count("receipts of ACK")

    def _abort(self, wire, copy):
        """Acknowledge in a transaction that is given up: it has the message as before."""
        wire.send("BEGIN", {"transaction": "given up"})
        wire.send("ACK", {"id": self.held[copy], "transaction": "given up"})
        wire.send("ABORT", {"transaction": "given up"})
        copy.note(f"acknowledged by {self} in a transaction, and ABORT")
        self.ledger.count("ABORTs of an ACK")

    def _refuse(self, wire, copy):
        promise = wire.ask("NACK", {"id": self.held.pop(copy)})
        self.ledger.give_back([copy], f"refused by {self}")
        before = copy.attempts

        def answered(done):
            if not done.cancelled() and done.exception() is None:
                copy.attempts = max(copy.attempts, before + 1)
                copy.note(f"refusal receipted, {copy.attempts} attempts")
                self.ledger.count("receipts of NACK")

        promise.add_done_callback(answered)

    # ---- leaving

    async def _go(self, wire):
        how = self.world.random.choice(["UNSUBSCRIBE", "DISCONNECT", "hang up"])
        # what is on its way to here may reach somebody else before it is read here
        self._forget(wire, f"given back by {how} of {self}")
        if how == "UNSUBSCRIBE":
            await within(wire.ask("UNSUBSCRIBE", {"id": "s"}))
        if how == "DISCONNECT":
            await wire.leave()
        wire.drop()
        await self.world.pause(0.05)

    def _forget(self, wire, why):
        if wire is self.wire:
            self.wire = None
            self.ledger.gone(self)
            self.ledger.give_back(self.held, why)
            self.held.clear()


class Reader(Consumer):
    """A consumer of a non-destructive queue: each message comes to it once, in order, and stays whatever it answers."""

    def __init__(self, world, diet, name):
        super().__init__(world, diet, name)
        self._read = set()

    async def subscribe(self):
        """Connect and subscribe anew: everything comes again. Raises `Lost`."""
        self._read.clear()
        return await super().subscribe()

    def take(self, wire, frame):
        if wire is not self.wire:
            return
        text = frame.body.partition(b"|")[0].decode()
        copy = self.ledger.find(self.diet.queue, text)
        if copy is None:
            self.ledger.unknown(self.diet.queue, text, f"delivered to {self}")
            return
        if copy.entry.state in (State.OPEN, State.UNDONE):
            self.ledger.fault("not committed", f"delivered to {self} all the same", copy)
        if text in self._read:
            self.ledger.fault("delivered twice", f"to one subscription of {self}", copy)
        self._read.add(text)
        copy.note(f"read by {self}")
        self.ledger.count("messages read that stay")
        self.held[copy] = frame.headers["ack"]
        self._arrived.set()

    def acknowledge(self, wire, copies):
        """ACK the last of them, which has no effect."""
        wire.send("ACK", {"id": self.held[copies[-1]]})
        for copy in copies:
            del self.held[copy]

    def _forget(self, wire, why):
        if wire is self.wire:
            self.wire = None
            self.held.clear()


def read(world, diet, name, count=1):
    """Start consumers of a non-destructive queue."""
    for number in range(count):
        world.start(Reader(world, diet, f"{name}{number} of life {world.ledger.life}").run())


def consume(world, diet, name, count=1):
    """Start consumers."""
    for number in range(count):
        world.start(Consumer(world, diet, f"{name}{number} of life {world.ledger.life}").run())
