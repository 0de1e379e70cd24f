"""Priorities of consumers, alone and with all that decides who receives a message."""

from .broker_fixture import BrokerFixture, Taker, header_is

RED = header_is(b"colour", b"red")


def consumer(queue, priority, credit=None, **more):
    taker = Taker(credit, **more)
    taker.priority = priority
    queue.add_consumer(taker)
    return taker


def send(world, *bodies, **traits):
    for body in bodies:
        world.send(body=body.encode(), **traits)


def texts(taker):
    return b" ".join(taker.bodies).decode()


def test_lower_selector_does_not_take_what_the_highest_wants():
    world = BrokerFixture()
    queue = world.queue()
    low, high = consumer(queue, 1, matches=RED), consumer(queue, 9)
    send(world, "1", headers={"colour": "red"})
    assert (texts(low), texts(high)) == ("", "1")


def test_group_stays_with_its_owner_of_lower_priority():
    world = BrokerFixture()
    queue = world.queue()
    low = consumer(queue, 1)
    send(world, "a1", group=b"a")
    high = consumer(queue, 9)
    send(world, "a2", group=b"a")
    send(world, "b1", group=b"b")
    send(world, "plain")
    assert (texts(low), texts(high)) == ("a1 a2", "b1 plain")


def test_rejected_message_goes_to_lower_priority_first():
    world = BrokerFixture()
    queue = world.queue()
    low, high = consumer(queue, 1, 1), consumer(queue, 9, 1)
    send(world, "1")
    high.nack()
    assert (texts(high), texts(low)) == ("1", "1")
    low.nack()
    assert texts(high) == "1 1"


def test_exclusive_queue_serves_the_highest_before_the_first_delivery():
    world = BrokerFixture()
    queue = world.queue(exclusive=True)
    low, high = consumer(queue, 1), consumer(queue, 9)
    send(world, "1")
    higher = consumer(queue, 20)
    send(world, "2")
    assert (texts(low), texts(high), texts(higher)) == ("", "1 2", ""), "it stays until it leaves"
    high.close()
    assert (texts(low), texts(higher)) == ("", "1 2")


def test_exclusive_queue_prefers_the_oldest_of_one_priority():
    world = BrokerFixture()
    queue = world.queue(exclusive=True)
    first, second, third = consumer(queue, 1), consumer(queue, 5), consumer(queue, 5)
    second.close()
    send(world, "1")
    assert (texts(first), texts(third)) == ("", "1")


def test_non_destructive_queue_delivers_to_all_priorities():
    world = BrokerFixture()
    queue = world.queue(non_destructive=True)
    low, high = consumer(queue, 1), consumer(queue, 9)
    send(world, "1", "2")
    assert (texts(low), texts(high)) == ("1 2", "1 2")


def test_ring_evicts_only_what_nobody_can_take():
    world = BrokerFixture()
    queue = world.queue(ring_size=1)
    low, high = consumer(queue, 1, 1), consumer(queue, 9, 1)
    send(world, "1", "2", "3", "4")
    assert (texts(high), texts(low), queue.messages_replaced) == ("1", "2", 1)


def test_consumer_that_resumes_finds_its_place_among_the_ready_ones():
    world = BrokerFixture()
    queue = world.queue()
    takers = [consumer(queue, priority, 1) for priority in (3, 1, 2)]
    queue.dispatcher.pause_consumer(takers[2])
    takers[2].give_credit(0)
    assert [taker.priority for taker in queue.ready] == [3, 2, 1]
    send(world, "1", "2", "3")
    assert [texts(taker) for taker in takers] == ["1", "3", "2"]
