"""Rings. RQ-… are rows of Artemis's RingQueueTest, D… the examples of its manual."""

from stompring.settings.model import RingPolicy

from .broker_fixture import BrokerFixture, bodies, header_is, join


def test_due_batch_keeps_the_newest_sent_in_a_full_ring():
    world = BrokerFixture()
    queue = world.queue(ring_size=3)
    for body in (b"A", b"B", b"C", b"D", b"E"):
        world.send(body=body, due=world.now + 1000)
    world.pass_time(1000)
    assert (bodies(queue), queue.messages_replaced, queue.scheduled_count) == ([b"C", b"D", b"E"], 2, 0)


def test_due_batch_evicts_no_message_that_was_pending_before():
    world = BrokerFixture()
    queue = world.queue(ring_size=3)
    for body in (b"A", b"B", b"C"):
        world.send(body=body, due=world.now + 1000)
    world.send(body=b"X")
    world.send(body=b"Y")
    world.pass_time(1000)
    assert (bodies(queue), queue.messages_replaced) == ([b"C", b"X", b"Y"], 2)


def test_later_due_batch_evicts_nothing_of_an_earlier_one():
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    world.send(body=b"A", due=world.now + 1000)
    world.send(body=b"B", due=world.now + 1125)
    world.pass_time(2000)
    assert (bodies(queue), queue.messages_replaced) == ([b"A"], 1)


def test_delayed_redeliveries_keep_the_newest_in_a_full_ring():
    world = BrokerFixture({"q": {"redelivery_delay": 1000, "max_delivery_attempts": -1}})
    queue = world.queue(ring_size=2)
    taker = join(queue)
    for body in (b"A", b"B", b"C"):
        world.send(body=body)
    taker.nack()
    queue.pause()
    world.pass_time(1000)
    assert (bodies(queue), queue.messages_replaced) == ([b"B", b"C"], 1)


def test_message_delivered_as_it_falls_due_is_not_evicted():
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    for body in (b"A", b"B", b"C"):
        world.send(body=body, due=world.now + 1000)
    taker = join(queue, 1)
    world.pass_time(1000)
    assert (taker.bodies, bodies(queue), queue.messages_replaced) == ([b"A"], [b"C"], 1)


def test_full_ring_evicts_before_it_delivers_an_arrival():
    world = BrokerFixture()
    queue = world.queue(ring_size=2)
    taker = join(queue, matches=header_is(b"colour", b"red"))
    for body, colour in ((b"A", "blue"), (b"B", "red"), (b"C", "blue"), (b"D", "blue"), (b"E", "red")):
        world.send(body=body, headers={"colour": colour})
    assert taker.bodies == [b"B", b"E"]
    assert (queue.message_count, queue.delivering, queue.messages_replaced) == (3, 2, 2)
    taker.close()
    assert bodies(queue) == [b"D", b"E"]


def test_full_ring_does_not_deliver_an_arrival_it_evicts():
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    taker = join(queue, matches=header_is(b"colour", b"red"))
    world.send(body=b"low", headers={"colour": "blue"})
    world.send(body=b"high", headers={"colour": "red"}, priority=9)
    assert (taker.bodies, bodies(queue), queue.messages_replaced) == ([], [b"low"], 1)


def test_an_expired_message_that_is_evicted_counts_as_replaced():
    world = BrokerFixture({"#": {"expiry_address": "EXP"}})
    expired = world.queue("EXP")
    queue = world.queue(ring_size=1)
    world.send(expires=world.now + 125)
    world.clock.advance(1)  # one jump: the timers have not been served when the next message comes
    queue_before = queue.messages_expired
    world.send(body=b"2")
    assert (queue_before, queue.messages_expired, queue.messages_replaced) == (1, 1, 0)
    assert expired.count == 1


def test_ring_policy_dead_letter_copies_the_evicted_message():
    world = BrokerFixture({"q": {"dead_letter_address": "DLQ"}})
    dead = world.queue("DLQ")
    queue = world.queue(ring_size=1, ring_policy=RingPolicy.DEAD_LETTER)
    world.send(body=b"1")
    world.send(body=b"2")
    assert (bodies(queue), bodies(dead)) == ([b"2"], [b"1"])
    assert (queue.messages_replaced, queue.messages_killed) == (1, 0)
