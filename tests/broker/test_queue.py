"""A queue: what comes back, what falls due, and its whole life."""

import pytest

from stompring.errors import Refused

from .broker_fixture import BrokerFixture, assert_nothing_held, bodies, join


def test_purge_on_no_consumers_kills_what_comes_back():
    world = BrokerFixture()
    queue = world.queue(purge_on_no_consumers=True)
    world.send()
    assert queue.messages_added == 0, "it takes nothing without consumers"
    taker = join(queue, 1)
    world.send()
    world.send()
    assert (queue.delivering, queue.count) == (1, 1)
    taker.close()
    assert (queue.message_count, queue.messages_killed) == (0, 2)
    world.send()
    assert queue.messages_added == 2
    assert_nothing_held(world)


def test_schedule_order():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue)
    for body, delay in ((b"m1", 1000), (b"m2", 0), (b"m3", 1125), (b"m4", 0), (b"m5", 1250)):
        world.send(body=body, due=world.now + delay if delay else 0)
    world.pass_time(2000)
    assert taker.bodies == [b"m2", b"m4", b"m1", b"m3", b"m5"]


def test_due_at_the_same_time_keeps_the_order_of_sending_and_goes_to_the_head():
    world = BrokerFixture()
    queue = world.queue()
    world.send(body=b"waiting")
    for number in range(10):
        world.send(body=b"%d" % number, due=world.now + 500)
    world.pass_time(500)
    assert bodies(queue) == [b"%d" % number for number in range(10)] + [b"waiting"]


def test_a_time_in_the_past_still_goes_to_the_head():
    world = BrokerFixture()
    queue = world.queue()
    world.send(body=b"waiting")
    world.send(body=b"late", due=world.now - 60_000)
    assert bodies(queue) == [b"waiting"]
    world.pass_time(0)
    assert bodies(queue) == [b"late", b"waiting"]


def test_requeued_messages_keep_their_order():
    world = BrokerFixture()
    queue = world.queue()
    for number in range(6):
        world.send(body=b"%d" % number, priority=9 if number == 5 else 4)
    one, two = join(queue, 2), join(queue, 2)
    assert (one.bodies, two.bodies) == ([b"5", b"0"], [b"1", b"2"]) or queue.delivering == 4
    one.close()
    two.close()
    assert bodies(queue) == [b"5", b"0", b"1", b"2", b"3", b"4"]
    again = join(queue)
    assert again.deliveries == [2, 2, 2, 2, 1, 1]


def test_nack_waits_for_the_redelivery_delay():
    world = BrokerFixture(
        {"q": {"redelivery_delay": 500, "redelivery_delay_multiplier": 2.0, "max_delivery_attempts": -1}}
    )
    queue = world.queue()
    taker = join(queue, 1)
    world.send(body=b"1")
    for delay in (500, 1000, 2000):
        taker.nack()
        assert (queue.scheduled_count, queue.delivering, len(taker.unsettled)) == (1, 0, 0)
        world.pass_time(delay - 125)
        assert queue.scheduled_count == 1
        world.pass_time(125)
        assert (queue.scheduled_count, queue.delivering, len(taker.unsettled)) == (0, 1, 1)
    assert taker.deliveries == [1, 2, 3, 4]


def test_redelivery_delay_holds_for_a_lost_connection_and_not_for_a_consumer_that_leaves():
    world = BrokerFixture({"q": {"redelivery_delay": 500}})
    queue = world.queue()
    taker = join(queue)
    world.send(body=b"1")
    taker.close()
    assert bodies(queue) == [b"1"]
    join(queue).close(failed=True)
    assert (bodies(queue), queue.scheduled_count) == ([], 1)
    world.pass_time(500)
    assert bodies(queue) == [b"1"]


def test_a_nacked_message_goes_to_another_consumer_first():
    world = BrokerFixture()
    queue = world.queue()
    one = join(queue, 1)
    world.send(body=b"1")
    two = join(queue, 1)
    one.nack()
    assert (one.bodies, two.bodies) == ([b"1"], [b"1"])
    two.nack()
    assert one.bodies == [b"1", b"1"]


def test_a_nacked_message_comes_back_to_the_only_consumer():
    world = BrokerFixture()
    queue = world.queue()
    one = join(queue, 1)
    world.send(body=b"1")
    one.nack()
    assert one.deliveries == [1, 2]


def test_an_expired_message_is_not_delivered_as_it_arrives():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue, auto=True)
    world.send(expires=world.now)
    world.pass_time(0)
    assert (taker.got, queue.messages_expired, queue.messages_acknowledged) == ([], 1, 0)
    assert_nothing_held(world)


def test_an_acknowledged_message_does_not_expire_later():
    world = BrokerFixture()
    queue = world.queue()
    world.send(expires=world.now + 500)
    taker = join(queue)
    taker.ack()
    world.pass_time(1000)
    assert (queue.messages_acknowledged, queue.messages_expired) == (1, 0)
    assert_nothing_held(world)


def test_message_in_delivery_expires_when_it_is_requeued():
    world = BrokerFixture()
    queue = world.queue()
    world.send(expires=world.now + 500)
    taker = join(queue)
    world.pass_time(1000)
    assert (queue.delivering, queue.messages_expired) == (1, 0)
    taker.close()
    assert (queue.message_count, queue.messages_expired) == (0, 1)
    assert_nothing_held(world)


def test_requeued_message_expires_at_its_time():
    world = BrokerFixture()
    queue = world.queue()
    world.send(expires=world.now + 500)
    taker = join(queue)
    world.pass_time(250)
    taker.close()
    assert queue.count == 1
    world.pass_time(250)
    assert queue.messages_expired == 1
    assert_nothing_held(world)


def test_scheduled_messages_expire_too():
    world = BrokerFixture()
    queue = world.queue()
    world.send(due=world.now + 1000, expires=world.now + 500)
    world.pass_time(500)
    assert (queue.scheduled_count, queue.messages_expired) == (0, 1)
    world.pass_time(1000)
    assert_nothing_held(world)


def test_close_cancels_consumers_and_kills_messages():
    world = BrokerFixture()
    queue = world.queue(exclusive=True)
    one, two = join(queue, 1), join(queue, auto=True)
    for _ in range(3):
        world.send()
    world.directory.delete_queue("q", force=True)
    assert one.cancel_reason == two.cancel_reason == "Queue q was deleted"
    assert two.got == [], "what is deleted is not handed to the next in turn"
    assert (queue.message_count, queue.messages_killed) == (0, 3)
    assert_nothing_held(world, queue)


def test_settling_after_the_queue_was_deleted():
    world = BrokerFixture()
    queue = world.queue()
    world.send()
    taker = join(queue)
    refs = taker.release()  # as a transaction holds them
    world.directory.delete_queue("q", force=True)
    queue.requeue(refs)
    assert (queue.message_count, queue.messages_killed) == (0, 1)
    assert_nothing_held(world, queue)


@pytest.mark.parametrize("kill", [False, True])
def test_pending_lists_drop_messages_that_left(kill):
    world = BrokerFixture()
    queue = world.queue()
    selective = join(queue, 0, matches=lambda message: True)
    for _ in range(2000):
        world.send()
    if kill:
        queue.purge()
    else:
        selective.auto = True
        selective.give_credit(10_000)
    assert queue.dispatcher.pending.size < 200
    assert all(target.pending.size < 200 for target in queue.dispatcher.selector_lists.values())


def test_max_consumers():
    queue = BrokerFixture().queue(max_consumers=1)
    join(queue)
    with pytest.raises(Refused, match="max-consumers of 1"):
        join(queue)
    assert len(queue.consumers) == 1


@pytest.mark.parametrize(
    "attributes", [{}, {"exclusive": True}, {"ring_size": 3}, {"consumers_before_dispatch": 1}]
)
def test_all_counters_are_zero_when_all_is_settled(attributes):
    world = BrokerFixture()
    queue = world.queue(**attributes)
    for number in range(20):
        world.send(body=b"x" * number, priority=number % 10, expires=world.now + 10_000)
        world.send(due=world.now + 500)
    takers = [join(queue, 3) for _ in range(3)]
    world.pass_time(1000)
    while any(taker.unsettled for taker in takers):
        for taker in takers:
            if taker.unsettled:
                taker.ack(taker.unsettled[-1])
    assert_nothing_held(world)
    assert len(world.broker.expiry) < 130 and not len(world.broker.schedule)
