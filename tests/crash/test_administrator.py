"""What the administrator of the crash tests remembers of queues that it was about to delete or change."""

import asyncio
from random import Random
from unittest.mock import Mock

import pytest

from .administrator import MADE, PLAIN, Administrator, Bindings
from .connection import ConnectionBroken
from .ledger import Ledger


def administrator(bindings, ask=None):
    world = Mock(random=Random(1), chance=lambda probability: False)
    world.management.ask.side_effect = ask
    return Administrator(world, bindings, Bindings("address"), [])


def test_a_queue_that_is_not_durable_is_known_until_it_is_deleted():
    """The client may end before it has deleted the queue: a broker that lives on has it then."""
    bindings, asked, answers = Bindings(), [], True

    def ask(method, path, body=None):
        asked.append(method)
        if not answers and method == "DELETE":
            raise OSError

    actor = administrator(bindings, ask)
    asyncio.run(actor.make(Mock()))
    assert asked == ["POST", "DELETE"] and not bindings.passing

    answers = False
    with pytest.raises(ConnectionBroken):
        asyncio.run(actor.make(Mock()))
    (name,) = bindings.passing
    assert name in MADE and name not in bindings.absent(MADE)
    bindings.audit(Ledger(), {})
    assert name in bindings.absent(MADE)


def test_a_queue_whose_change_got_no_answer_is_not_paused():
    """It looks one way or the other: nothing says what the rest of it is."""
    bindings = Bindings()
    bindings.promised(MADE[0], PLAIN)
    bindings.promised(MADE[1], PLAIN)
    bindings.promised(MADE[2], None)
    bindings.asked(MADE[0], (100, -1, None, True, True))
    assert bindings.present(MADE) == [*MADE[:2]] and bindings.certain(MADE) == {MADE[1]: PLAIN}
    bindings.promised(MADE[1], None)
    actor = administrator(bindings)
    asyncio.run(actor.pause(Mock()))
    assert not actor.management.ask.called
