"""What all actors of one life share."""

import asyncio

from ..management import Management
from .connection import Connection, ConnectionBroken


class Context:
    """A running broker, the ledger, and a source of chance. Actors run until the broker dies or `calm` is called."""

    def __init__(
        self,
        port,
        http_port,
        ledger,
        identifiers,
        random,
        *,
        address="127.0.0.1",
        login=None,
        durable_only=False,
        may_refuse=False,
    ):
        self.address = address
        self.login = login
        self.durable_only = durable_only
        self.may_refuse = may_refuse  # an ERROR is as good as a lost connection
        self.port = port
        self.http_port = http_port
        self.ledger = ledger
        self.identifiers = identifiers
        self.random = random
        self.over = False
        self.wires = []
        self._tasks = []

    def chance(self, share):
        """True so often."""
        return self.random.random() < share

    async def open(self, client_id=None):
        """A new connection. Raises `Lost`."""
        if self.over:
            raise ConnectionBroken
        wire = await Connection.open(self.port, client_id, self.address, **login_headers(self.login))
        if self.over:  # meanwhile: `end` has dropped all others
            wire.drop()
            raise ConnectionBroken
        wire.may_refuse = self.may_refuse
        self.wires.append(wire)
        return wire

    @property
    def management(self):
        """The management API of the broker."""
        return Management(self.http_port, self.address, self.login)

    def start(self, actor):
        """Let an actor run."""
        self._tasks.append(asyncio.create_task(_until_lost(actor)))

    async def end(self):
        """The broker is dead: all actors come to an end. Raises what went wrong with one of them."""
        self.over = True
        # what the broker wrote before it died is still to be heard
        await asyncio.sleep(0.02)
        for wire in self.wires:
            wire.drop()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=2.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self.check()

    def check(self):
        """Raise what went wrong with an actor or a connection, if anything did."""
        for wire in self.wires:
            if wire.refused is not None and not self.may_refuse:
                raise wire.refused
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def pause(self, seconds):
        """Do nothing for up to so long."""
        await asyncio.sleep(self.random.random() * seconds)


def login_headers(login):
    """How CONNECT says who it is."""
    return {} if login is None else {"login": login[0], "passcode": login[1]}


async def _until_lost(actor):
    try:
        await actor
    except ConnectionBroken:
        pass
