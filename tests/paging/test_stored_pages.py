"""Page mode over a real store: what survives a broker that is killed, and in which order it comes out."""

import pytest

from ..broker.broker_fixture import MULTICAST, header_is, join
from .stored_pages import StoredPages


def drained(world, taker):
    world.settle_down()
    while taker.unsettled:
        taker.ack()
        world.settle_down()
    return taker.bodies


def restarted(world, name="q", pause=0):
    world.settle_down()
    again = world.killed(pause)
    return again, again.directory.queues[name]


def test_what_is_paged_survives_in_order():
    world = StoredPages(limit=5)
    queue = world.queue()
    sent = world.fill(60)
    taker = join(queue, 20)
    world.settle_down()
    taker.ack(*taker.unsettled[3:12])
    again, queue = restarted(world)
    assert queue.message_count == 51
    left = sent[:3] + sent[12:]
    assert drained(again, join(queue)) == left
    assert again.address("q").pages is None
    assert again.areas.budget.used == 0


def test_a_restart_with_three_queues_and_a_selector():
    world = StoredPages(limit=3)
    for number in range(3):
        world.queue(f"q{number}", "t", MULTICAST)
    for number in range(60):
        world.send("t", b"%d" % number, durable=True, headers={"colour": "red" if number == 50 else "blue"})
    again, first = restarted(world, "q0")
    red = join(first, matches=header_is(b"colour", b"red"), key="red")
    again.settle_down()
    assert red.bodies == [b"50"]
    red.ack()
    assert drained(again, join(first)) == [b"%d" % n for n in range(60) if n != 50]
    for name in ("q1", "q2"):
        assert len(drained(again, join(again.directory.queues[name]))) == 60
    assert again.address("t").pages is None


def test_what_fell_due_meanwhile_is_pending_at_once():
    world = StoredPages(limit=0)
    world.queue()
    for number in range(40):
        world.send("q", b"%d" % number, durable=True, due=world.now + 1000 * (1 + number % 3))
    again, queue = restarted(world, pause=2.5)
    assert (queue.message_count, queue.scheduled_count) == (40, 13)
    again.pass_time(1000)
    assert (queue.message_count, queue.scheduled_count) == (40, 0)
    assert sorted(map(int, drained(again, join(queue)))) == list(range(40))


def test_what_expired_meanwhile_is_never_delivered():
    world = StoredPages(limit=0)
    world.queue()
    for number in range(40):
        lifetime = 1000 if number % 2 else 60_000
        world.send("q", b"%d" % number, durable=True, expires=world.now + lifetime)
    again, queue = restarted(world, pause=2)
    assert (queue.message_count, queue.messages_expired) == (20, 20)
    assert drained(again, join(queue)) == [b"%d" % n for n in range(0, 40, 2)]


def test_attempts_and_delays_survive():
    world = StoredPages(limit=0, settings={"redelivery_delay": 5000})
    queue = world.queue()
    world.fill(5)
    taker = join(queue, 2)
    world.settle_down()
    taker.nack(taker.unsettled[1])
    again, queue = restarted(world)
    assert (queue.message_count, queue.scheduled_count) == (5, 1)
    taker = join(queue)
    again.settle_down()
    assert taker.bodies == [b"0", b"2", b"3", b"4"]
    again.pass_time(5125)
    assert taker.bodies[4:] == [b"1"]
    assert (taker.deliveries[4], taker.unsettled[4].attempts) == (2, 1)


def test_a_ring_that_counts_paged_messages_is_one_after_a_restart():
    world = StoredPages(limit=0)
    queue = world.queue(ring_size=7, ring_counts_paged=True)
    taker = join(queue, 5)
    world.fill(30)
    world.settle_down()
    assert (queue.message_count, queue.delivering) == (12, 5)
    del taker
    again, queue = restarted(world)
    assert queue.message_count == 7
    assert drained(again, join(queue)) == [b"%d" % n for n in range(23, 30)]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("memory", [500, 1 << 20])
def test_of_scheduled_messages_in_pages_a_ring_keeps_the_newest(memory, killed):
    world = StoredPages(limit=0, memory=memory)
    queue = world.queue(ring_size=3, ring_counts_paged=True)
    for body in (b"A", b"B", b"C"):
        world.send("q", body, durable=True, due=world.now + 1000)
    for body in (b"X", b"Y"):
        world.send("q", body, durable=True)
    if killed:
        world, queue = restarted(world)
    assert (queue.message_count, queue.scheduled_count) == (5, 3)
    world.pass_time(2000)
    world.settle_down()
    assert (queue.message_count, queue.messages_replaced) == (3, 2)
    assert drained(world, join(queue)) == [b"C", b"X", b"Y"]


def test_memory_that_is_full_again_at_the_start_opens_no_second_directory():
    world = StoredPages(limit=5)
    world.queue()
    sent = world.fill(30)
    again, queue = restarted(world)
    directories = {path.parent for path in again.memory.contents if "paging" in str(path)}
    assert len(directories) == 1
    assert drained(again, join(queue)) == sent
    again.settle_down()
    assert not [path for path in again.memory.contents if "paging" in str(path)]


def test_what_was_acknowledged_by_delivery_is_gone_after_a_restart():
    world = StoredPages(limit=3)
    queue = world.queue()
    sent = world.fill(30)
    for number in range(30, 60):  # every third is not durable, and no restart brings it back
        sent.append(b"%d" % number)
        world.send("q", b"%d" % number, durable=bool(number % 3))
    taker = join(queue, 40, auto=True)
    again, queue = restarted(world)
    assert taker.bodies == sent[:40]
    left = [body for body in sent[40:] if int(body) % 3]
    assert queue.message_count == len(left)
    assert drained(again, join(queue)) == left
    assert again.address("q").pages is None
