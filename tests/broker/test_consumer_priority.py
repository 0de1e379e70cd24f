"""Priorities of consumers, alone and with all that decides who receives a message."""

from .broker_fixture import BrokerFixture, Taker


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
