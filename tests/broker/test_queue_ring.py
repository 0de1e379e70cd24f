"""Rings. RQ-… are rows of Artemis's RingQueueTest, D… the examples of its manual."""

from stompring.settings.model import RingPolicy

from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, header_is, join


def counts(queue):
    return {
        "count": queue.message_count,
        "delivering": queue.delivering,
        "scheduled": queue.scheduled_count,
        "replaced": queue.messages_replaced,
        "acknowledged": queue.messages_acknowledged,
    }


def test_ring_evicts_oldest_when_full():  # RQ-1
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    for round_ in range(1, 51):
        world.send(body=b"A")
        assert counts(queue)["count"] == 1
        world.send(body=b"B")
        assert (queue.message_count, queue.messages_replaced) == (1, round_)
        taker = join(queue, 1)
        assert taker.bodies == [b"B"]
        taker.ack()
        taker.close()
    assert_nothing_held(world)


def test_requeued_messages_are_dropped_by_a_full_ring():  # RQ-2
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    taker = join(queue, 1)
    world.send(body=b"m0")
    transaction_refs = taker.unsettled.copy()
    world.clock.advance(0)
    taker.unsettled.clear()
    taker.credit = 1
    queue.dispatcher.resume_consumer(taker)
    world.send(body=b"m1")
    assert counts(queue) == {"count": 2, "delivering": 2, "scheduled": 0, "replaced": 0, "acknowledged": 0}
    taker.unsettled[:0] = transaction_refs
    taker.close()
    assert counts(queue) == {"count": 1, "delivering": 0, "scheduled": 0, "replaced": 1, "acknowledged": 0}
    again = join(queue)
    assert again.bodies == [b"m1"]
    again.ack()
    assert counts(queue) == {"count": 0, "delivering": 0, "scheduled": 0, "replaced": 1, "acknowledged": 1}


def test_ring_of_scheduled_messages():  # RQ-4
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    for body in (b"first", b"second"):
        world.send(body=body, due=world.now + 500)
    assert (queue.scheduled_count, queue.count) == (2, 0)
    world.pass_time(500)
    assert (queue.scheduled_count, bodies(queue), queue.messages_replaced) == (0, [b"second"], 1)


def test_ring_is_resized_and_trims_nothing_by_itself():  # RQ-6
    world = BrokerFixture()
    queue = world.queue()

    def send(number):
        for _ in range(number):
            world.send()

    def consume(number):
        taker = join(queue, number, auto=True)
        taker.close()

    def resize(size):
        world.directory.update_queue(queue, {"ring_size": size})

    def expect(count, replaced):
        assert (queue.message_count, queue.messages_replaced) == (count, replaced)

    send(100)
    resize(10)
    expect(100, 0)
    consume(95)
    expect(5, 0)
    send(5)
    expect(10, 0)
    send(5)
    expect(10, 5)
    consume(1)
    resize(5)
    expect(9, 5)
    consume(4)
    send(1)
    expect(5, 6)
    resize(10)
    send(5)
    expect(10, 6)
    send(1)
    expect(10, 7)


def test_ring_above_its_size_evicts_one_for_each_arrival():
    world = BrokerFixture()
    queue = world.queue()
    for number in range(5):
        world.send(body=b"%d" % number)
    world.directory.update_queue(queue, {"ring_size": 2})
    world.send(body=b"5")
    assert bodies(queue) == [b"1", b"2", b"3", b"4", b"5"]
    assert sum(queue.trim()) == 3
    assert bodies(queue) == [b"4", b"5"]
    assert queue.messages_replaced == 4


def test_ring_with_a_prefetching_consumer():  # RQ-D2
    world = BrokerFixture()
    queue = world.queue(ring_size=3)
    taker = join(queue)
    for body in (b"A", b"B", b"C", b"D"):
        world.send(body=body)
    assert (queue.message_count, queue.delivering, queue.messages_replaced) == (4, 4, 0)
    taker.close()
    assert (bodies(queue), queue.messages_replaced) == ([b"B", b"C", b"D"], 1)


def test_scheduled_for_the_head_of_a_full_ring():  # RQ-D3
    world = BrokerFixture()
    queue = world.queue(ring_size=3)
    world.send(body=b"A", due=world.now + 1000)
    for body in (b"B", b"C", b"D"):
        world.send(body=body)
    assert (queue.message_count, queue.scheduled_count) == (4, 1)
    world.pass_time(1000)
    assert (bodies(queue), queue.messages_replaced) == ([b"B", b"C", b"D"], 1)


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


def test_ring_evicts_the_message_that_would_be_delivered_next():
    world = BrokerFixture()
    queue = world.queue(ring_size=2)
    for body, priority in ((b"low", 0), (b"high", 9), (b"normal", 4)):
        world.send(body=body, priority=priority)
    assert bodies(queue) == [b"normal", b"low"]


def test_a_paused_ring_still_evicts():
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    taker = join(queue)
    queue.pause()
    world.send(body=b"1")
    world.send(body=b"2")
    assert (bodies(queue), taker.got, queue.messages_replaced) == ([b"2"], [], 1)
    queue.resume()
    assert taker.bodies == [b"2"]


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
