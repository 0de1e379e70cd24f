"""A queue: what comes back, what falls due, and its whole life."""

import pytest

from .broker_fixture import BrokerFixture, assert_nothing_held, join


def test_an_acknowledged_message_does_not_expire_later():
    world = BrokerFixture()
    queue = world.queue()
    world.send(expires=world.now + 500)
    taker = join(queue)
    taker.ack()
    world.pass_time(1000)
    assert (queue.messages_acknowledged, queue.messages_expired) == (1, 0)
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
