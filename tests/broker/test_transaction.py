"""What stands between BEGIN and COMMIT."""

from stompring.broker.publish import Transaction, requeue

from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, join


def test_rollback_kills_what_a_deleted_queue_has_in_delivery():
    world = BrokerFixture()
    queue = world.queue()
    world.send()
    taker = join(queue)
    transaction = Transaction(world.broker)
    taker.ack_in(transaction)
    world.directory.delete_queue("q", force=True)
    transaction.rollback()
    assert (queue.messages_killed, queue.delivering) == (1, 0)
    assert world.broker.memory.bytes == 0


def test_a_queue_that_waited_for_the_commit_is_deleted_after_it():
    world = BrokerFixture()
    queue = world.queue(auto_created=True, auto_delete=True)
    world.send()
    taker = join(queue)
    transaction = Transaction(world.broker)
    taker.ack_in(transaction)
    taker.close()
    assert not queue.deleted, "a message is still in delivery"
    transaction.commit()
    assert queue.deleted
    assert_nothing_held(world, queue)


def test_references_of_several_queues_go_home():
    world = BrokerFixture()
    one, two = world.queue("one"), world.queue("two")
    world.send("one", b"1")
    world.send("two", b"2")
    takers = join(one), join(two)
    refs = [ref for taker in takers for ref in taker.release()]
    for queue, taker in zip((one, two), takers, strict=True):
        queue.dispatcher.pause_consumer(taker)
    requeue(refs, None, failed=False)
    assert (bodies(one), bodies(two)) == ([b"1"], [b"2"])


def test_rollback_after_the_consumer_left_gives_back_without_an_attempt_or_a_delay():
    world = BrokerFixture(
        {"q": {"redelivery_delay": 500, "max_delivery_attempts": 1, "dead_letter_address": "DLQ"}}
    )
    queue = world.queue(ring_size=2)
    for number in range(3):
        world.send(body=b"%d" % number)
        if not queue.consumers:
            taker = join(queue)
    transaction = Transaction(world.broker)
    for ref in list(taker.unsettled):
        taker.ack_in(transaction, [ref])
    taker.close()
    assert (queue.count, queue.delivering) == (0, 3)
    transaction.rollback()
    assert (bodies(queue), queue.messages_replaced) == ([b"1", b"2"], 1), "the ring keeps the newest"
    assert [(ref.deliveries, ref.attempts) for ref in queue.dispatcher.in_order()] == [(1, 0), (1, 0)]
