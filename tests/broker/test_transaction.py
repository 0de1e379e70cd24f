"""What stands between BEGIN and COMMIT."""

from stompring.broker import publish
from stompring.broker.transaction import Transaction, requeue

from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, join


def sending(world, transaction, body, address="q"):
    message = world.message(address, body)
    transaction.send(message.size, lambda: message.address, lambda: publish.send(message), durable=False)


def test_nothing_is_seen_before_the_commit():
    world = BrokerFixture()
    queue = world.queue()
    transaction = Transaction(world.broker)
    for number in range(3):
        sending(world, transaction, b"%d" % number)
    assert queue.message_count == 0 and transaction.bytes > 0
    assert set(transaction.loads()) == {queue.address}
    transaction.commit()
    assert bodies(queue) == [b"0", b"1", b"2"]


def test_five_sends_into_a_ring_of_three():
    world = BrokerFixture()
    queue = world.queue(ring_size=3)
    transaction = Transaction(world.broker)
    for number in range(5):
        sending(world, transaction, b"%d" % number)
    transaction.commit()
    assert (bodies(queue), queue.messages_replaced) == ([b"2", b"3", b"4"], 2)


def test_rollback_forgets_sends_and_leaves_acknowledged_with_their_consumer():
    world = BrokerFixture({"q": {"redelivery_delay": 500}})
    queue = world.queue()
    for number in range(3):
        world.send(body=b"%d" % number)
    taker = join(queue)
    transaction = Transaction(world.broker)
    sending(world, transaction, b"new")
    taker.ack_in(transaction, taker.unsettled[:1])
    taker.nack_in(transaction, taker.unsettled[:1])
    transaction.rollback()
    world.pass_time(1000)
    assert (queue.count, queue.scheduled_count, queue.delivering) == (0, 0, 3)
    assert (queue.messages_added, queue.messages_acknowledged) == (3, 0)
    assert taker.deliveries == [1, 1, 1]
    assert [ref.attempts for ref in taker.unsettled] == [0, 0, 0]
    taker.ack()
    assert_nothing_held(world)


def test_acknowledged_messages_stay_in_delivery_until_the_commit():
    world = BrokerFixture()
    queue = world.queue()
    world.send()
    taker = join(queue)
    transaction = Transaction(world.broker)
    taker.ack_in(transaction)
    assert (queue.delivering, queue.message_count) == (1, 1)
    transaction.commit()
    assert queue.messages_acknowledged == 1
    assert transaction.returns == []
    assert_nothing_held(world)


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


def test_refused_in_a_transaction():
    world = BrokerFixture()
    queue = world.queue()
    world.send(body=b"1")
    one, two = join(queue), join(queue)
    transaction = Transaction(world.broker)
    one.nack_in(transaction)
    assert two.got == []
    transaction.commit()
    assert two.deliveries == [2]


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
