"""Actors that send: one message at a time or many, with receipts and without, in transactions that may be given up."""

import asyncio
from dataclasses import dataclass

from .connection import within
from .ledger import State, now
from .topology import ENDING_GROUPS, KEYS, LASTING_GROUPS

COLOURS = ("red", "blue", "blue", "blue")


@dataclass(frozen=True)
class ProducerProfile:
    """What a producer sends. Shares are between 0 and 1, times milliseconds."""

    destination: str
    queues: tuple[str, ...]
    durable: float = 0.9
    receipted: float = 0.8
    transactions: float = 0.08
    priorities: tuple[int, ...] = (4,)
    delay: tuple[int, int] | None = None
    lifetime: tuple[int, int] | None = None
    coloured: bool = False
    grouped: bool = False
    keyed: bool = False
    identified: float = 0.0  # of the durable ones: sent with an id by which duplicates are known
    largest: int = 400
    most: int = 120  # waiting in its first queue; above that it rests


class Producer:
    """One producer on a connection of its own."""

    def __init__(self, world, load, name, window=None):
        self.world = world
        self.load = load
        self.name = name
        self._window = window or world.random.choice([1, 5, 40])
        self._slots = asyncio.Semaphore(self._window)
        self._in_transaction = 0

    async def run(self):
        """Send until the broker is gone."""
        wire = await self.world.open()
        while True:
            await self._rest()
            for _ in range(self.world.random.randint(1, 8)):  # several in one write
                await self._step(wire)
            await wire.flowing()
            await asyncio.sleep(0)

    async def send_some(self, count):
        """Send so many, each with a receipt, and leave when the last of those has come."""
        wire = await self.world.open()
        for _ in range(count):
            await within(self._slots.acquire())
            self._receipted(wire)
        await wire.leave()

    async def _step(self, wire):
        if self.world.chance(self.load.transactions):
            await self._transaction(wire)
        elif self.world.chance(self.load.receipted):
            await within(self._slots.acquire())
            self._receipted(wire)
        else:
            unit = self.world.ledger.unit("SEND", wire)
            self._send(wire, unit)
            unit.move(State.ASKED)

    async def _rest(self):
        while self.world.ledger.waiting(self.load.queues[0]) > self.load.most:
            await asyncio.sleep(0.02)
            if self.world.over:
                return

    def _receipted(self, wire):
        unit = self.world.ledger.unit("SEND", wire)
        promise = self._send(wire, unit, receipt=True)
        unit.move(State.ASKED)
        assert promise is not None
        promise.add_done_callback(lambda done: self._answered(unit, done))

    def _answered(self, unit, done):
        self._slots.release()
        if not done.cancelled() and done.exception() is None:
            unit.move(State.DONE)
            self.world.ledger.count("receipts of SEND")

    def _send(self, wire, unit, receipt=False, **more):
        load, random = self.load, self.world.random
        durable = random.random() < load.durable or self.world.durable_only
        priority = random.choice(load.priorities)
        due = now() + random.randint(*load.delay) if load.delay else 0
        expires = now() + random.randint(*load.lifetime) if load.lifetime else 0
        group = random.choice(LASTING_GROUPS * 4 + ENDING_GROUPS) if load.grouped else ""
        key = random.choice(KEYS) if load.keyed else ""
        text = self.world.ledger.enter(
            unit,
            load.queues,
            self.name,
            priority=priority,
            durable=durable,
            due=due,
            expires=expires,
            message_group=group,
            key=key,
        )
        headers = {"destination": load.destination, **more}
        headers |= {"persistent": "true"} if durable else {}
        headers |= {"priority": priority} if priority != 4 else {}
        headers |= {"AMQ_SCHEDULED_TIME": due} if due else {}
        headers |= {"expires": expires} if expires else {}
        headers |= {"colour": random.choice(COLOURS)} if load.coloured else {}
        headers |= {"JMSXGroupID": group} if group else {}
        headers |= {"code": key} if key else {}
        headers |= {"JMSXGroupSeq": -1} if group in ENDING_GROUPS and random.random() < 0.2 else {}
        if durable and load.identified and random.random() < load.identified:
            headers["_AMQ_DUPL_ID"] = text
            self.world.identifiers.note(load.destination, text, unit, unit.entering[-len(load.queues) :])
        body = text.encode() + b"|" + b"x" * random.randint(0, load.largest)
        if receipt:
            return wire.ask("SEND", headers, body)
        wire.send("SEND", headers, body)
        return None

    async def _transaction(self, wire):
        world = self.world
        self._in_transaction += 1
        name = f"t{self._in_transaction}"
        wire.send("BEGIN", {"transaction": name})
        unit = world.ledger.unit(f"{name} of {self.name}", wire)
        for _ in range(world.random.randint(1, 8)):
            self._send(wire, unit, transaction=name)
        await world.pause(0.01)
        if world.chance(0.2):
            wire.send("ABORT", {"transaction": name})
            unit.move(State.UNDONE)
            return
        promise = wire.ask("COMMIT", {"transaction": name})
        unit.move(State.ASKED)
        await within(promise)
        unit.move(State.DONE)
        world.ledger.count("receipts of COMMIT")


def produce(world, load, name, count=1):
    """Start producers. Names must not repeat on one ledger, or sequences go on."""
    for number in range(count):
        world.start(Producer(world, load, f"{name}{number}").run())
