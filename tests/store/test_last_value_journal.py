"""Last-value queues and rings over a crash: of each key a value is left, whatever part of a write is."""

from random import Random

import pytest

from ..broker.broker_fixture import bodies, join
from .memory_files import MemoryFiles
from .stored_broker import StoredBroker, held

KEYED = {"last_value_key": "code"}


def put(world, body, key="K", **more):
    world.durable("q", body, headers={"code": key}, **more)


@pytest.mark.parametrize("attributes", [KEYED, {"ring_size": 1}], ids=["last value", "ring"])
def test_a_write_that_is_torn_anywhere_leaves_a_value(attributes):
    """One read of a socket may have several values of a key, of which only the last is written, and transactions."""
    world = StoredBroker()
    world.queue(**attributes)
    world.queue("other")
    put(world, b"1")
    world.turn()
    before = world.memory.data
    for number in range(2, 6):
        put(world, b"%d" % number)
        with world.broker.together():
            world.durable("other")
    world.turn()
    after = world.memory.data
    (changed,) = [path for path, data in after.items() if before.get(path) != data]
    seen = set()
    for length in range(len(before[changed]), len(after[changed]) + 1):
        torn = MemoryFiles({**after, changed: after[changed][:length]})
        seen.add(tuple(held(StoredBroker(torn, **world.given))))
    assert seen == {(b"1",), (b"5",)}


def test_the_newest_value_survives_a_crash_of_the_computer():
    random = Random(5)
    for _ in range(40):
        world = StoredBroker()
        world.queue(**KEYED)
        world.turn()
        promised = {}
        sent = {}
        for number in range(random.randrange(1, 30)):
            key = random.choice("abc")
            put(world, b"%d" % number, key)
            sent[key] = number
            if random.random() < 0.3:
                world.turn()
                promised = dict(sent)
        queue = world.crashed(random).directory.queue("q")
        found = {
            (ref.message.header(b"code") or b"").decode(): int(ref.message.body)
            for ref in queue.dispatcher.in_order()
        }
        assert len(found) == queue.message_count, "two of a key"
        assert all(found.get(key, -1) >= number for key, number in promised.items()), (found, promised)


def test_a_restart_keeps_one_value_and_goes_on():
    world = StoredBroker()
    queue = world.queue(**KEYED)
    taker = join(queue, 1)
    put(world, b"1")
    put(world, b"2")
    world.turn()
    assert taker.bodies == [b"1"] and queue.message_count == 2
    again = world.again()
    queue = again.directory.queue("q")
    assert held(again) == [b"2"] and queue.messages_replaced == 1
    put(again, b"3")
    assert bodies(queue) == [b"3"]
    assert (queue.attributes.last_value, queue.attributes.last_value_key) == (True, "code")
    once_more = again.restarted()
    assert held(once_more) == [b"3"] and once_more.directory.queue("q").messages_replaced == 0


def test_a_scheduled_value_that_fell_due_and_one_that_did_not_survive():
    world = StoredBroker()
    world.queue(**KEYED)
    put(world, b"1")
    put(world, b"2", due=world.now + 1000)
    put(world, b"3", due=world.now + 9000)
    world.pass_time(2000)
    again = world.again()
    again.turn()
    queue = again.directory.queue("q")
    assert held(again) == [b"2"] and queue.scheduled_count == 1
    again.pass_time(8000)
    assert held(again) == [b"3"]


def test_a_message_that_waits_for_its_redelivery_survives_as_the_value_of_its_key():
    world = StoredBroker(settings={"q": {"redelivery_delay": 5000}})
    queue = world.queue(**KEYED)
    taker = join(queue, 1)
    put(world, b"1")
    taker.nack()
    again = world.restarted()
    queue = again.directory.queue("q")
    assert queue.scheduled_count == 1
    put(again, b"2")
    assert held(again) == [b"2"] and queue.messages_replaced == 1
    again.pass_time(6000)
    assert held(again) == [b"2"]
