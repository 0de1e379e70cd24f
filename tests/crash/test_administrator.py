"""What the administrator of the crash tests remembers of queues that it was about to delete or change."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from .administrator import MADE, PLAIN, Administrator, Bindings
from .connection import Connection, ConnectionBroken
from .context import Context
from .ledger import Ledger


def test_a_queue_that_is_not_durable_is_known_until_it_is_deleted(monkeypatch):
    """The client may end before it has deleted the queue: a broker that lives on has it then."""
    bindings = Bindings()
    world = SimpleNamespace(random=Random(1), chance=lambda probability: False, port=0, management=None)
    administrator = Administrator.__new__(Administrator)
    administrator.world, administrator.bindings = cast(Context, world), bindings
    asked: list[str] = []
    answers = True

    async def ask(method, path, body=None):
        asked.append(method)
        if not answers and method == "DELETE":
            raise ConnectionBroken

    monkeypatch.setattr(administrator, "_ask", ask)
    wire = cast(Connection, None)
    asyncio.run(administrator._make(wire))
    assert asked == ["POST", "DELETE"] and not bindings.passing

    answers = False
    with pytest.raises(ConnectionBroken):
        asyncio.run(administrator._make(wire))
    (name,) = bindings.passing
    assert name in MADE and name not in bindings.absent(MADE)
    bindings.audit(Ledger(), {})
    assert name in bindings.absent(MADE)


def test_a_queue_whose_change_got_no_answer_is_not_paused():
    """It looks one way or the other: nothing says what the rest of it is."""
    administrator = Administrator.__new__(Administrator)
    administrator.world = cast(Context, SimpleNamespace(random=Random(1)))
    administrator.bindings = bindings = Bindings()
    bindings.promised(MADE[0], PLAIN)
    bindings.promised(MADE[1], PLAIN)
    bindings.promised(MADE[2], None)
    bindings.asked(MADE[0], (100, -1, None, True, True))
    assert bindings.present(MADE) == [*MADE[:2]] and bindings.certain(MADE) == {MADE[1]: PLAIN}
    bindings.promised(MADE[1], None)
    asyncio.run(administrator._pause(cast(Connection, None)))
