"""What open transactions hold."""

import pytest

from stompring.broker.limits import ByteQuota
from stompring.broker.publish import STEP_OVERHEAD, Transaction
from stompring.errors import LimitReached

from .broker_fixture import BrokerFixture


def add(world, transaction, size):
    transaction.send(size, lambda: world.address("q"), lambda: world.send("q", b"x" * size), durable=False)


def test_the_one_that_reaches_the_limit_is_the_last():
    whole = ByteQuota(-1)
    held = ByteQuota(1000, whole)
    held.reserve(999)
    held.reserve(5000)
    with pytest.raises(LimitReached, match="hold 5999 bytes, and the limit is 1000") as caught:
        held.reserve(1)
    assert caught.value.limit == "maxTransactionBytes"
    assert (held.bytes, whole.bytes) == (5999, 5999)
    held.release(5000)
    held.reserve(1)


def test_all_connections_together():
    whole = ByteQuota(1000)
    first, second = ByteQuota(-1, whole), ByteQuota(-1, whole)
    first.reserve(600)
    second.reserve(600)
    for held in (first, second):
        with pytest.raises(LimitReached, match="All open transactions") as caught:
            held.reserve(1)
        assert caught.value.limit == "global-max-transaction-size"
    assert (first.bytes, second.bytes, whole.bytes) == (600, 600, 1200)
    second.release(600)
    first.reserve(1)


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_transaction_gives_back_what_it_held(end):
    world = BrokerFixture()
    held = ByteQuota(-1, world.broker.transaction_bytes)
    one, other = Transaction(world.broker, held), Transaction(world.broker, held)
    add(world, one, 100)
    add(world, one, 200)
    add(world, other, 50)
    assert held.bytes == world.broker.transaction_bytes.bytes == 350 + 3 * STEP_OVERHEAD
    getattr(one, end)()
    assert held.bytes == world.broker.transaction_bytes.bytes == 50 + STEP_OVERHEAD
    getattr(one, end)()
    assert held.bytes == 50 + STEP_OVERHEAD, "twice is not more"


def test_what_is_held_is_not_in_the_room_of_messages():
    """A COMMIT under BLOCK would wait for its own transaction."""
    world = BrokerFixture()
    transaction = Transaction(world.broker, ByteQuota(-1, world.broker.transaction_bytes))
    add(world, transaction, 1000)
    assert world.broker.memory.bytes == 0
