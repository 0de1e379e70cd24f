"""An actor that purges queues, changes queues and addresses over HTTP or by messages, and makes durable subscriptions.

What it was answered holds from that moment on, whatever else is or is not under way.
"""

import asyncio
import json
from http.client import HTTPException

from ..management import Answered
from .connection import ConnectionBroken, within
from .ledger import State
from .topology import CLIENT_ID

#: The attributes of a queue that are compared; a queue that is not there has none.
ATTRIBUTES = ("ringSize", "maxConsumers", "filter", "paused", "durable")

#: Those of a durable subscription.
PLAIN = (-1, -1, None, False, True)

#: The same of an address.
ADDRESS_ATTRIBUTES = ("routingTypes", "paused")

MADE = tuple(f"made.{number}" for number in range(4))
MADE_ADDRESSES = tuple(f"address.{number}" for number in range(3))
TOPIC = "made.topic"


class Bindings:
    """What queues (or addresses, by ``kind``) may look like after a restart: one way where that was promised, several
    where it was not. ``compared`` are the attributes that count.
    """

    def __init__(self, kind="queue", compared=ATTRIBUTES):
        self.kind = kind
        self.compared = compared
        self.allowed = {}
        #: Not durable, and to be deleted at once. Where the client ended in between, they last as long as the broker.
        self.passing = set()

    def asked(self, name, attributes):
        """A change was asked for."""
        self.allowed.setdefault(name, {None}).add(attributes)

    def promised(self, name, attributes):
        """A change is safe."""
        self.allowed[name] = {attributes}

    def absent(self, names):
        """Those of ``names`` that are surely not there."""
        return [
            name for name in names if name not in self.passing and self.allowed.get(name, {None}) == {None}
        ]

    def present(self, names):
        """Those that surely are."""
        return [name for name in names if None not in self.allowed.get(name, {None})]

    def certain(self, names):
        """Those of them that look one way only, and how: no answer to a change was lost."""
        looks = {name: tuple(self.allowed[name]) for name in self.present(names)}
        return {name: found[0] for name, found in looks.items() if len(found) == 1 and found[0] is not None}

    def audit(self, ledger, found):
        """Compare with what is there; that is from now on what must be there."""
        for name, allowed in self.allowed.items():
            there = self._attributes_of(found[name]) if name in found else None
            if there not in allowed:
                ledger.fault(
                    "binding", f"{self.kind} {name} is {there}, not {' or '.join(map(str, allowed))}"
                )
            self.allowed[name] = {there}
        self.passing.clear()

    def _attributes_of(self, found):
        values = (found[name] for name in self.compared)
        return tuple(tuple(value) if isinstance(value, list) else value for value in values)


class Administrator:
    """Does one thing after the other."""

    def __init__(self, world, bindings, addresses, purged):
        self.world = world
        self.bindings = bindings
        self.addresses = addresses
        self.purged = purged
        self.management = world.management

    async def run(self, first_each=False):
        """Go on until the broker is gone. All jobs come by chance, or each of them once before."""
        wire = await self.world.open()
        jobs = [
            self._purge,
            self.make,
            self._change,
            self.pause,
            self._delete,
            self._make_address,
            self._change_address,
            self._delete_address,
            self._subscribe,
        ]
        first = iter(jobs if first_each else ())
        while True:
            await self.world.pause(0.05)
            job = next(first, None) or self.world.random.choice(jobs)
            await job(wire)

    async def _ask(self, method, path, body=None):
        """Ask over HTTP. Raises `Lost` where the broker dies over it."""
        try:
            return await asyncio.to_thread(self.management.ask, method, path, body)
        except (OSError, HTTPException) as fault:
            raise ConnectionBroken(str(fault)) from None
        except Answered as answer:
            if answer.status == 503 and self.world.may_refuse:
                raise ConnectionBroken(str(answer)) from None
            raise

    async def _request(self, wire, resource, operation, *parameters):
        """Ask by a message, whose receipt is as good as an answer over HTTP."""
        headers = {
            "destination": "activemq.management",
            "_AMQ_ResourceName": resource,
            "_AMQ_OperationName": operation,
        }
        await within(wire.ask("SEND", headers, json.dumps(parameters).encode()))
        self.world.ledger.count("management requests")

    async def _purge(self, wire):
        """What was surely there, and in nobody's hands, is gone with the answer."""
        ledger = self.world.ledger
        there = [
            queue
            for queue in self.purged
            if queue.endswith(".purged")
            or any(copy.entry.state is State.DONE for copy in ledger.in_queue(queue))
        ]
        queue = self.world.random.choice(there)
        before = [
            copy for copy in ledger.in_queue(queue) if copy.entry.state is State.DONE and copy.holder is None
        ]
        self._doubt(queue)
        try:
            await self._ask("POST", f"/queues/{queue}/purge")
        finally:
            self._doubt(queue)
        purge = ledger.unit(f"purge of {queue}", wire)
        for copy in before:
            ledger.leave(purge, copy)
        purge.move(State.DONE)
        ledger.count("purges")

    def _doubt(self, queue):
        for copy in self.world.ledger.in_queue(queue):
            copy.doubt = "a purge was asked for"

    def _random_attributes(self, durable):
        random = self.world.random
        return {
            "ringSize": random.choice([-1, 3, 100]),
            "maxConsumers": random.choice([-1, 5]),
            "filter": random.choice([None, "colour = 'red'"]),
            "paused": random.random() < 0.3,
            "durable": durable,
        }

    async def _alter(self, bindings, name, wanted, asking, counted):
        """What is asked for holds when that has been answered."""
        bindings.asked(name, wanted)
        await asking
        bindings.promised(name, wanted)
        self.world.ledger.count(counted)

    def _one_of(self, names):
        """One of them by chance, empty where there is none."""
        return self.world.random.choice(names) if names else ""

    async def make(self, wire):
        """Make a queue; one that is not durable is deleted at once."""
        if not (name := self._one_of(self.bindings.absent(MADE))):
            return
        wanted = self._random_attributes(durable=self.world.chance(0.8))
        making = self._ask("POST", "/queues", {"name": name, "routingType": "ANYCAST", **wanted})
        if wanted["durable"]:
            await self._alter(self.bindings, name, tuple(wanted.values()), making, "queues made")
            return
        self.bindings.asked(name, None)
        self.bindings.passing.add(name)
        await making
        await self._ask("DELETE", f"/queues/{name}")
        self.bindings.passing.discard(name)

    async def _change(self, wire):
        if name := self._one_of(self.bindings.present(MADE)):
            wanted = self._random_attributes(durable=True)
            changing = self._ask("PATCH", f"/queues/{name}", wanted)
            await self._alter(self.bindings, name, tuple(wanted.values()), changing, "queues changed")

    async def pause(self, wire):
        """Pause or resume: the rest of it stays."""
        made = self.bindings.certain(MADE)
        if not (name := self._one_of(list(made))):
            return
        wanted = dict(zip(ATTRIBUTES, made[name], strict=True))
        wanted["paused"] = not wanted["paused"]
        if self.world.chance(0.5):
            asking = self._request(wire, f"queue.{name}", "pause" if wanted["paused"] else "resume")
        else:
            asking = self._ask("PATCH", f"/queues/{name}", {"paused": wanted["paused"]})
        await self._alter(self.bindings, name, tuple(wanted.values()), asking, "queues paused or resumed")

    async def _delete(self, wire):
        if name := self._one_of(self.bindings.present(MADE)):
            if self.world.chance(0.5):
                asking = self._request(wire, "broker", "destroyQueue", name)
            else:
                asking = self._ask("DELETE", f"/queues/{name}")
            await self._alter(self.bindings, name, None, asking, "queues deleted")

    def _random_address(self):
        types = self.world.random.choice([("ANYCAST",), ("MULTICAST",), ("ANYCAST", "MULTICAST")])
        return {"routingTypes": types, "paused": self.world.chance(0.3)}

    async def _make_address(self, wire):
        if name := self._one_of(self.addresses.absent(MADE_ADDRESSES)):
            wanted = self._random_address()
            making = self._ask("POST", "/addresses", {"name": name, **wanted})
            await self._alter(self.addresses, name, tuple(wanted.values()), making, "addresses made")

    async def _change_address(self, wire):
        """All of it; the two attributes are told of one after the other."""
        if name := self._one_of(self.addresses.present(MADE_ADDRESSES)):
            wanted = self._random_address()
            changing = self._ask("PATCH", f"/addresses/{name}", wanted)
            await self._alter(self.addresses, name, tuple(wanted.values()), changing, "addresses changed")

    async def _delete_address(self, wire):
        if name := self._one_of(self.addresses.present(MADE_ADDRESSES)):
            await self._alter(
                self.addresses, name, None, self._ask("DELETE", f"/addresses/{name}"), "addresses deleted"
            )

    async def _subscribe(self, wire):
        """A durable subscription is safe with the receipt of its SUBSCRIBE."""
        name = f"s{self.world.random.randint(0, 3)}"
        queue = f"{CLIENT_ID}.{name}"
        client = await self.world.open(CLIENT_ID)
        headers = {"destination": f"/topic/{TOPIC}", "id": "s"}
        headers["durable-subscription-name"] = name
        self.bindings.asked(queue, PLAIN)
        await within(client.ask("SUBSCRIBE", headers))
        self.bindings.promised(queue, PLAIN)
        await within(client.ask("UNSUBSCRIBE", {"id": "s"}))
        if self.world.chance(0.4):
            self.bindings.asked(queue, None)
            await within(client.ask("UNSUBSCRIBE", {"durable-subscription-name": name}))
            self.bindings.promised(queue, None)
        await client.leave()
