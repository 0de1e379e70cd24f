"""What stands between BEGIN and COMMIT."""

from __future__ import annotations

from stompring.broker.transaction import Transaction, give_back

from .world import World, assert_nothing_held, bodies, join


def sending(world: World, transaction: Transaction, body: bytes, address: str = "q") -> None:
    message = world.message(address, body)
    transaction.send(message.size, lambda: message.address, lambda: world.broker.send(message), durable=False)


def test_nothing_is_seen_before_the_commit() -> None:
    world = World()
    queue = world.queue()
    transaction = Transaction(world.broker)
    for number in range(3):
        sending(world, transaction, b"%d" % number)
    assert queue.message_count == 0 and transaction.bytes > 0
    assert transaction.prepare() == {queue.address}
    transaction.commit()
    assert bodies(queue) == [b"0", b"1", b"2"]


def test_five_sends_into_a_ring_of_three() -> None:
    world = World()
    queue = world.queue(ring_size=3)
    transaction = Transaction(world.broker)
    for number in range(5):
        sending(world, transaction, b"%d" % number)
    transaction.commit()
    assert (bodies(queue), queue.messages_replaced) == ([b"2", b"3", b"4"], 2)


def test_rollback_forgets_sends_and_gives_back_acknowledged() -> None:
    world = World({"q": {"max_delivery_attempts": -1}})
    queue = world.queue()
    for number in range(3):
        world.send(body=b"%d" % number)
    taker = join(queue)
    transaction = Transaction(world.broker)
    sending(world, transaction, b"new")
    transaction.acknowledge(taker.release(taker.unsettled[:2]))
    queue.rest(taker)
    transaction.rollback()
    assert bodies(queue) == [b"0", b"1"]
    assert (queue.delivering, queue.messages_acknowledged) == (1, 0)
    taker.give_credit()
    assert taker.deliveries == [1, 1, 1, 2, 2]


def test_acknowledged_messages_stay_in_delivery_until_the_commit() -> None:
    world = World()
    queue = world.queue()
    world.send()
    taker = join(queue)
    transaction = Transaction(world.broker)
    transaction.acknowledge(taker.release())
    assert (queue.delivering, queue.message_count) == (1, 1)
    transaction.commit()
    assert queue.messages_acknowledged == 1
    assert transaction.returns == []
    assert_nothing_held(world)


def test_rollback_counts_as_an_attempt_and_respects_the_delay() -> None:
    world = World({"q": {"redelivery_delay": 500, "max_delivery_attempts": 2, "dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    queue = world.queue()
    world.send(body=b"1")
    taker = join(queue, 1)
    for scheduled in (1, 0):
        transaction = Transaction(world.broker)
        transaction.acknowledge(taker.release())
        transaction.rollback()
        taker.give_credit(0)
        assert queue.scheduled_count == scheduled
        world.pass_time(500)
    assert (bodies(dead), queue.messages_killed) == ([b"1"], 1)


def test_refused_in_a_transaction() -> None:
    world = World()
    queue = world.queue()
    world.send(body=b"1")
    one, two = join(queue), join(queue)
    transaction = Transaction(world.broker)
    transaction.refuse(one.release(), one)
    assert two.got == []
    transaction.commit()
    assert two.deliveries == [2]


def test_a_queue_that_waited_for_the_commit_is_deleted_after_it() -> None:
    world = World()
    queue = world.queue(auto_created=True, auto_delete=True)
    world.send()
    taker = join(queue)
    transaction = Transaction(world.broker)
    transaction.acknowledge(taker.release())
    taker.close()
    assert not queue.deleted, "a message is still in delivery"
    transaction.commit()
    assert queue.deleted
    assert_nothing_held(world, queue)


def test_references_of_several_queues_go_home() -> None:
    world = World()
    one, two = world.queue("one"), world.queue("two")
    world.send("one", b"1")
    world.send("two", b"2")
    takers = join(one), join(two)
    refs = [ref for taker in takers for ref in taker.release()]
    for queue, taker in zip((one, two), takers, strict=True):
        queue.rest(taker)
    give_back(refs, None, failed=False, delayed=False)
    assert (bodies(one), bodies(two)) == ([b"1"], [b"2"])
