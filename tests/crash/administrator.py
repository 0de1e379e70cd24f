"""An actor that purges queues, makes, changes and deletes them over HTTP, and makes durable subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from ..management import Management
from .ledger import Ledger, State
from .plan import CLIENT_ID
from .wire import Lost, Wire, within
from .world import World

#: The attributes of a queue that are compared; a queue that is not there has none.
ATTRIBUTES = ("ringSize", "maxConsumers", "filter", "durable")
Attributes = tuple[object, ...] | None

#: Those of a durable subscription.
PLAIN: Attributes = (-1, -1, None, True)

#: Where messages go whose receipt tells that everything before them is safe.
BARRIER = "barrier"
MADE = tuple(f"made.{number}" for number in range(4))
TOPIC = "made.topic"


class Bindings:
    """What queues may look like after a restart: one way where that was promised, several where it was not."""

    def __init__(self) -> None:
        self.allowed: dict[str, set[Attributes]] = {}

    def asked(self, queue: str, attributes: Attributes) -> None:
        """A change was asked for."""
        self.allowed.setdefault(queue, {None}).add(attributes)

    def promised(self, queue: str, attributes: Attributes) -> None:
        """A change is safe."""
        self.allowed[queue] = {attributes}

    def audit(self, ledger: Ledger, queues: Mapping[str, Mapping[str, Any]]) -> None:
        """Compare with what is there; that is from now on what must be there."""
        for queue, allowed in self.allowed.items():
            there = attributes_of(queues[queue]) if queue in queues else None
            if there not in allowed:
                ledger.fault("binding", f"queue {queue} is {there}, not {' or '.join(map(str, allowed))}")
            self.allowed[queue] = {there}


def attributes_of(queue: Mapping[str, Any]) -> Attributes:
    """What is compared."""
    return tuple(queue[name] for name in ATTRIBUTES)


class Administrator:
    """Does one thing after the other."""

    def __init__(self, world: World, bindings: Bindings, purged: list[str]) -> None:
        self.world = world
        self.bindings = bindings
        self.purged = purged
        self.management = Management(world.http_port)

    async def run(self) -> None:
        """Go on until the broker is gone."""
        wire = await self.world.open()
        while True:
            await self.world.pause(0.05)
            job = self.world.random.choice(
                [self._purge, self._make, self._change, self._delete, self._subscribe]
            )
            await job(wire)

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask over HTTP. Raises `Lost` where the broker dies over it."""
        try:
            return await asyncio.to_thread(self.management.ask, method, path, body)
        except (OSError, HTTPException) as fault:
            raise Lost(str(fault)) from None

    async def _barrier(self, wire: Wire) -> None:
        unit = self.world.ledger.unit("SEND", wire)
        text = self.world.ledger.enter(unit, [BARRIER], "administrator")
        promise = wire.ask("SEND", {"destination": BARRIER, "persistent": "true"}, f"{text}|".encode())
        unit.move(State.ASKED)
        await within(promise)
        unit.move(State.DONE)

    async def _purge(self, wire: Wire) -> None:
        """What was surely there, and in nobody's hands, is gone once a later message is safe."""
        ledger = self.world.ledger
        queue = self.world.random.choice(self.purged)
        before = [
            copy for copy in ledger.in_queue(queue) if copy.entry.state is State.DONE and copy.holder is None
        ]
        self._doubt(queue)
        try:
            await self._ask("POST", f"/queues/{queue}/purge")
        finally:
            self._doubt(queue)
        await self._barrier(wire)
        purge = ledger.unit(f"purge of {queue}", wire)
        for copy in before:
            ledger.leave(purge, copy)
        purge.move(State.DONE)
        ledger.count("purges")

    def _doubt(self, queue: str) -> None:
        for copy in self.world.ledger.in_queue(queue):
            copy.doubt = "a purge was asked for"

    def _random_attributes(self, durable: bool) -> dict[str, object]:
        random = self.world.random
        return {
            "ringSize": random.choice([-1, 3, 100]),
            "maxConsumers": random.choice([-1, 5]),
            "filter": random.choice([None, "colour = 'red'"]),
            "durable": durable,
        }

    async def _make(self, wire: Wire) -> None:
        free = [name for name in MADE if self.bindings.allowed.get(name, {None}) == {None}]
        if not free:
            return
        name = self.world.random.choice(free)
        wanted = self._random_attributes(durable=self.world.chance(0.8))
        kept = tuple(wanted.values()) if wanted["durable"] else None
        self.bindings.asked(name, kept)
        await self._ask("POST", "/queues", {"name": name, "routingType": "ANYCAST", **wanted})
        if kept is None:
            await self._ask("DELETE", f"/queues/{name}")
            return
        await self._barrier(wire)
        self.bindings.promised(name, kept)

    def _made(self) -> list[str]:
        return [name for name in MADE if None not in self.bindings.allowed.get(name, {None})]

    async def _change(self, wire: Wire) -> None:
        if not self._made():
            return
        name = self.world.random.choice(self._made())
        wanted = self._random_attributes(durable=True)
        self.bindings.asked(name, tuple(wanted.values()))
        await self._ask("PATCH", f"/queues/{name}", wanted)
        await self._barrier(wire)
        self.bindings.promised(name, tuple(wanted.values()))

    async def _delete(self, wire: Wire) -> None:
        if not self._made():
            return
        name = self.world.random.choice(self._made())
        self.bindings.asked(name, None)
        await self._ask("DELETE", f"/queues/{name}")
        await self._barrier(wire)
        self.bindings.promised(name, None)

    async def _subscribe(self, wire: Wire) -> None:
        """A durable subscription is safe with the receipt of its SUBSCRIBE."""
        name = f"s{self.world.random.randint(0, 3)}"
        queue, kept = f"{CLIENT_ID}.{name}", PLAIN
        client = await self.world.open(CLIENT_ID)
        headers: dict[str, object] = {"destination": f"/topic/{TOPIC}", "id": "s"}
        headers["durable-subscription-name"] = name
        self.bindings.asked(queue, kept)
        await within(client.ask("SUBSCRIBE", headers))
        self.bindings.promised(queue, kept)
        await within(client.ask("UNSUBSCRIBE", {"id": "s"}))
        if self.world.chance(0.4):
            self.bindings.asked(queue, None)
            await within(client.ask("UNSUBSCRIBE", {"durable-subscription-name": name}))
            await self._barrier(wire)
            self.bindings.promised(queue, None)
        await client.leave()
