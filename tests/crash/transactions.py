"""An actor that takes from one queue and sends to others, all in transactions."""

from .connection import within
from .consumers import Consumer
from .ledger import State


class Transfer:
    """Acknowledges some messages and sends what it made of them, in one transaction that ends well or not."""

    def __init__(self, world, diet, results, name):
        self.world = world
        self.results = results
        self.consumer = Consumer(world, diet, name)
        self.name = name
        self._count = 0

    async def run(self):
        """Go on until the broker is gone."""
        wire = await self.consumer.subscribe()
        while True:
            await self.consumer.some()
            await self.world.pause(0.005)
            if not self.consumer.held or wire.lost:
                if wire.lost:
                    wire = await self.consumer.subscribe()
                continue
            await self._once(wire)

    async def _once(self, wire):
        random = self.world.random
        self._count += 1
        name = f"x{self._count}"
        unit = self.world.ledger.unit(f"{name} of {self.consumer}", wire)
        wire.send("BEGIN", {"transaction": name})
        some = list(self.consumer.held)
        copies = random.sample(some, random.randint(1, min(5, len(some))))
        for copy in copies:
            wire.send("ACK", {"id": self.consumer.held[copy], "transaction": name})
            self.world.ledger.leave(unit, copy)
            self._make(wire, unit, name)
        await self.world.pause(0.01)
        await self._finish(wire, unit, name, copies)

    def _make(self, wire, unit, transaction):
        queue = self.world.random.choice(self.results)
        text = self.world.ledger.enter(unit, [queue], self.name)
        headers = {"destination": queue, "persistent": "true", "transaction": transaction}
        wire.send("SEND", headers, text.encode() + b"|" + b"y" * self.world.random.randint(0, 300))

    async def _finish(self, wire, unit, name, copies):
        ledger, draw = self.world.ledger, self.world.random.random()
        if draw < 0.1:
            unit.move(State.UNDONE)
            wire.drop()
        elif draw < 0.25:
            wire.send("ABORT", {"transaction": name})
            unit.move(State.UNDONE)  # the consumer has them still, and may acknowledge them again
        else:
            promise = wire.ask("COMMIT", {"transaction": name})
            for copy in copies:
                self.consumer.held.pop(copy, None)
                copy.holder = None
            unit.move(State.ASKED)
            await within(promise)
            unit.move(State.DONE)
            ledger.count("receipts of COMMIT")
