"""What all actors of one life share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from .connection import Connection, ConnectionBroken
from .duplicates import Identifiers
from .ledger import Ledger


class Context:
    """A running broker, the ledger, and a source of chance. Actors run until the broker dies or `calm` is called."""

    def __init__(
        self, port: int, http_port: int, ledger: Ledger, identifiers: Identifiers, random: Random
    ) -> None:
        self.port = port
        self.http_port = http_port
        self.ledger = ledger
        self.identifiers = identifiers
        self.random = random
        self.over = False
        self.wires: list[Connection] = []
        self._tasks: list[asyncio.Task[None]] = []

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    async def open(self, client_id: str | None = None) -> Connection:
        """A new connection. Raises `Lost`."""
        if self.over:
            raise ConnectionBroken
        wire = await Connection.open(self.port, client_id)
        self.wires.append(wire)
        return wire

    def start(self, actor: Coroutine[Any, Any, None]) -> None:
        """Let an actor run."""
        self._tasks.append(asyncio.create_task(_until_lost(actor)))

    async def end(self) -> None:
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

    def check(self) -> None:
        """Raise what went wrong with an actor or a connection, if anything did."""
        for wire in self.wires:
            if wire.refused is not None:
                raise wire.refused
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def pause(self, seconds: float) -> None:
        """Do nothing for up to so long."""
        await asyncio.sleep(self.random.random() * seconds)


async def _until_lost(actor: Coroutine[Any, Any, None]) -> None:
    try:
        await actor
    except ConnectionBroken:
        pass
