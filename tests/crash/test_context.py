"""The actors of one life: when it ends, the broker has no connection of theirs any more."""

import asyncio
import contextlib
from random import Random

import pytest

from .connection import within
from .consumers import ConsumerProfile, consume
from .context import Context
from .duplicates import Identifiers
from .ledger import Ledger


class SlowLogin:
    """A broker that lets its one client wait for CONNECTED."""

    def __init__(self):
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.left = asyncio.Event()  # the client has hung up

    async def serve(self, reader, writer):
        """One connection."""
        await reader.readuntil(b"\0")
        self.asked.set()
        answering = asyncio.create_task(self._answer(writer))
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        self.left.set()
        answering.cancel()
        writer.close()

    async def _answer(self, writer):
        await self.answer.wait()
        writer.write(b"CONNECTED\nversion:1.2\n\n\0")


@pytest.mark.parametrize("answers", [True, False])
def test_a_connection_that_is_opened_while_a_life_ends_is_closed(answers):
    async def live():
        broker = SlowLogin()
        async with await asyncio.start_server(broker.serve, "127.0.0.1", 0) as server:
            world = Context(server.sockets[0].getsockname()[1], 0, Ledger(), Identifiers(), Random(1))
            consume(world, ConsumerProfile("q", "q"), "c")
            await within(broker.asked.wait())
            ending = asyncio.create_task(world.end())
            while not world.over:
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)  # those that are open are dropped by now
            if answers:
                broker.answer.set()
            await ending
            await within(broker.left.wait(), 5)

    asyncio.run(live())
