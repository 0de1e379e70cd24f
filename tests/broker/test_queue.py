"""A queue: what comes back, what falls due, and its whole life."""

from .broker_fixture import BrokerFixture, assert_nothing_held, join


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
    refs = join(queue).release()  # as a transaction holds them
    world.directory.delete_queue("q", force=True)
    queue.requeue(refs)
    assert (queue.message_count, queue.messages_killed) == (0, 1)
    assert_nothing_held(world, queue)
