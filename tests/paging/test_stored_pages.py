"""Page mode over a real store: what survives a broker that is killed, and in which order it comes out."""

import pytest

from ..broker.broker_fixture import join
from .stored_pages import StoredPages, drained


def restarted(world, name="q", pause=0):
    world.settle_down()
    again = world.killed(pause)
    return again, again.directory.queues[name]


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
