"""Messages in pages that expire or are scheduled (spec PG-12, §2)."""

import pytest

from ..paging.stored_pages import StoredPages, assert_nothing_paged, drained
from .broker_fixture import MULTICAST, assert_nothing_held, header_is, join


def test_what_is_on_disk_expires_at_its_time():
    world = StoredPages(limit=3, settings={"expiry_address": "EXP"})
    queue, dead = world.queue(), world.queue("EXP")
    world.fill(10)
    for number in range(10, 40):
        world.send(body=b"%d" % number, expires=world.now + 5000)
    world.fill(10, first=40)
    world.pass_time(4875)
    assert (queue.message_count, queue.messages_expired) == (50, 0)
    world.pass_time(125 + 1000)
    assert (queue.message_count, queue.messages_expired, dead.message_count) == (20, 30, 30)
    assert drained(world, join(queue)) == [b"%d" % n for n in range(50) if not 10 <= n < 40]
    assert sorted(map(int, drained(world, join(dead)))) == list(range(10, 40))
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_each_at_its_own_time():
    world = StoredPages(limit=0, memory=2000)
    queue = world.queue()
    for number in range(60):
        world.send(body=b"%d" % number, expires=world.now + 125 * (1 + number * 7 % 60))
    for _ in range(60):
        world.pass_time(125)
        assert queue.message_count == 60 - (world.now - BEGIN_MS) // 125
    assert queue.messages_expired == 60


BEGIN_MS = 1_700_000_000_000


def test_times_beyond_the_horizon_are_found_later():
    world = StoredPages(limit=0, memory=2000)
    queue = world.queue()
    hour = 3_600_000
    for number in range(40):
        world.send(expires=world.now + 1000 if number % 10 == 0 else world.now + hour)
    world.pass_time(1125)
    assert queue.message_count == 36
    world.pass_time(hour - 2000)
    assert queue.message_count == 36
    world.pass_time(2000)
    assert queue.message_count == 0


def test_consumers_go_on_among_thousands_that_expire():
    world = StoredPages(limit=5, page_size=1 << 20)
    queue = world.queue()
    expected = []
    for number in range(3000):
        if number % 10:
            world.send(body=b"%d" % number, expires=world.now + 1000)
        else:
            expected.append(b"%d" % number)
            world.send(body=expected[-1])
    world.clock.advance(2)  # all of it at once
    world.broker.clock.refresh()
    assert drained(world, join(queue)) == expected
    assert queue.messages_expired == 2700
    assert_nothing_paged(world)


def test_what_is_in_memory_expires_too_and_not_twice():
    world = StoredPages(limit=5)
    queue = world.queue()
    for number in range(20):
        world.send(body=b"%d" % number, expires=world.now + 1000)
    taker = join(queue, 10)
    world.settle_down()
    assert len(taker.got) == 10
    world.pass_time(2000)
    assert (queue.messages_expired, queue.message_count) == (10, 10)
    taker.close()
    world.settle_down()
    assert (queue.messages_expired, queue.message_count) == (20, 0)
    assert_nothing_paged(world)


@pytest.mark.parametrize("queues", [1, 3])
def test_scheduled_messages_fall_due_in_order_and_at_the_head(queues):
    world = StoredPages(limit=2)
    all_queues = [world.queue(f"q{n}", "t", MULTICAST) for n in range(queues)]
    world.fill(20, "t")
    for number in range(100, 130):
        world.send("t", b"%d" % number, due=world.now + 1000 * (1 + (number * 7) % 3))
    for queue in all_queues:
        assert (queue.message_count, queue.scheduled_count) == (50, 30)
    order = sorted(range(100, 130), key=lambda n: ((n * 7) % 3, n))
    world.pass_time(1125)
    for queue in all_queues:
        assert (queue.message_count, queue.scheduled_count) == (50, 20)
        taker = join(queue, 10)
        world.settle_down()
        assert taker.bodies == [b"%d" % n for n in order[:10]]
        taker.ack()
        taker.close()
    world.pass_time(4000)
    for queue in all_queues:
        taker = join(queue)
        assert sorted(map(int, drained(world, taker))) == sorted([*range(20), *order[10:]])
        assert queue.message_count == 0
    assert_nothing_paged(world)


@pytest.mark.parametrize("counts_paged", [False, True])
def test_the_newest_of_those_on_disk_that_fall_due_together_stay_in_a_ring(counts_paged):
    world = StoredPages(limit=0, page_size=400)
    queue = world.queue(ring_size=3, ring_counts_paged=counts_paged)
    for number in range(20):
        world.send(body=b"%d" % number, due=world.now + 1000)
    assert queue.scheduled_count == 20
    world.pass_time(2000)
    assert (queue.message_count, queue.scheduled_count, queue.messages_replaced) == (3, 0, 17)
    assert drained(world, join(queue)) == [b"17", b"18", b"19"]
    assert_nothing_held(world)


def test_those_on_disk_that_fall_due_push_out_nothing_that_waited():
    world = StoredPages(limit=2, page_size=400)
    queue = world.queue(ring_size=3)
    world.send(body=b"X")
    world.send(body=b"Y")
    for number in range(6):
        world.send(body=b"%d" % number, due=world.now + 1000)
    world.pass_time(2000)
    assert queue.messages_replaced == 5
    assert drained(world, join(queue)) == [b"5", b"X", b"Y"]


def test_a_full_ring_that_counts_pages_gives_something_up_before_it_delivers_what_has_come():
    world = StoredPages(limit=0)
    queue = world.queue(ring_size=2, ring_counts_paged=True)
    taker = join(queue, matches=header_is(b"colour", b"red"))
    for body, colour in ((b"A", "blue"), (b"B", "red"), (b"C", "blue"), (b"D", "blue"), (b"E", "red")):
        world.send(body=body, headers={"colour": colour})
        world.settle_down()
    assert taker.bodies == [b"B", b"E"]
    assert (queue.message_count, queue.delivering, queue.messages_replaced) == (3, 2, 2)


def test_what_falls_due_waits_on_disk_while_there_is_no_room():
    world = StoredPages(limit=0, settings={"prefetch_page_messages": 5})
    queue = world.queue()
    for number in range(40):
        world.send(body=b"%d" % number, due=world.now + 1000)
    world.pass_time(2000)
    assert (queue.message_count, queue.scheduled_count) == (40, 0)
    assert world.area(queue).messages <= 6
    got = drained(world, join(queue, 2))
    assert got == [b"%d" % n for n in range(40)]
    assert queue.message_count == 0


def test_scheduled_ones_expire_while_they_wait():
    world = StoredPages(limit=0)
    queue = world.queue()
    for _ in range(10):
        world.send(due=world.now + 5000, expires=world.now + 1000)
    world.pass_time(2000)
    assert (queue.message_count, queue.messages_expired) == (0, 10)


def test_recurring_messages_stay_in_memory():
    from stompring.broker.clock import Recurrence

    world = StoredPages(limit=0)
    queue = world.queue()
    world.send(due=world.now + 1000, recurrence=Recurrence(period=1000, repeat=2))
    assert len(queue.scheduled) == 1
    taker = join(queue)
    world.pass_time(5000)
    assert len(taker.got) == 3
