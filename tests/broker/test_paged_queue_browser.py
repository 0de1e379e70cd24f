"""Management and browsing of a queue that is partly on disk (spec PG-9, PG-13, PG-18, PG-20)."""

import pytest

from stompring.broker import queue_browser
from stompring.broker.queue_browser import PageRead
from stompring.broker.reference import STATES, Reference
from stompring.errors import NotFound, Refused

from ..paging.stored_pages import StoredPages, assert_nothing_paged, drained
from .broker_fixture import Taker, assert_nothing_held, join


class OpenTaker(Taker):
    """A consumer that shows what it has not settled."""

    def unsettled_references(self):
        return self.unsettled


def walked(world, walk):
    """What a walk gives, its pauses waited for."""
    refs = []
    for one in walk:
        if isinstance(one, PageRead):
            world.settle_down()
            assert one.over
        else:
            assert isinstance(one, Reference)
            refs.append(one)
    return refs


def total(world, walk):
    removed = 0
    for one in walk:
        if isinstance(one, PageRead):
            world.settle_down()
        else:
            removed += one
    return removed


def finish(world, steps):
    for _ in steps:
        world.settle_down()


def bodies(world, queue, selector=None):
    return [ref.message.body for ref in walked(world, queue_browser.browse(queue, selector))]


def paged(count=60, **more):
    world = StoredPages(limit=5, **more)
    queue = world.queue()
    for number in range(count):
        world.send(body=b"%d" % number, headers={"colour": "red" if number % 7 == 0 else "blue"})
    return world, queue


def test_browsing_follows_priorities():
    world = StoredPages(limit=3, memory=3_000)
    queue = world.queue()
    order = []
    for number in range(50):
        world.send(body=b"%d" % number, priority=number * 3 % 10)
        order.append((-(number * 3 % 10), number))
    assert bodies(world, queue) == [b"%d" % number for _, number in sorted(order)]


def test_browsing_goes_on_while_the_queue_is_drained():
    world, queue = paged(memory=5_000)
    walk = queue_browser.browse(queue)
    seen = []
    taker = join(queue, 20)
    for one in walk:
        if isinstance(one, PageRead):
            world.settle_down()
            continue
        seen.append(int(one.message.body))
        if len(seen) % 5 == 0 and taker.unsettled:
            taker.ack(*taker.unsettled[:3])
            world.settle_down()
        if len(seen) % 10 == 0:
            world.send(body=b"1000")
    assert seen == sorted(set(seen))
    assert 1000 not in seen, "what was sent after the beginning is not shown"
    assert 59 in seen


def test_browsing_shows_what_is_scheduled_and_in_delivery():
    world = StoredPages(limit=2)
    queue = world.queue()
    queue.add_consumer(OpenTaker(3))
    world.fill(6)
    for number in range(4):
        world.send(body=b"later%d" % number, due=world.now + 1000 * (4 - number))
    world.settle_down()
    shown = [(ref.message.body, STATES[ref.state]) for ref in walked(world, queue_browser.browse(queue))]
    assert shown == [
        *((b"%d" % n, "pending") for n in (3, 4, 5)),
        *((b"later%d" % n, "scheduled") for n in range(4)),
        *((b"%d" % n, "delivering") for n in (0, 1, 2)),
    ]
    assert len(shown) == queue.message_count
    assert queue.scheduled_count == 4


def test_removing_what_is_in_delivery_or_unknown():
    world, queue = paged()
    taker = OpenTaker(12)
    queue.add_consumer(taker)
    world.settle_down()
    with pytest.raises(Refused, match="in delivery"):
        finish(world, queue_browser.remove_message(queue, taker.unsettled[10].message.number))
    for number in (0, 10_000):
        with pytest.raises(NotFound):
            finish(world, queue_browser.remove_message(queue, number))
    assert queue.message_count == 60


def test_purging_with_a_selector():
    world, queue = paged(memory=8_000)
    assert total(world, queue_browser.purge(queue, "colour = 'blue'")) == 51
    assert (queue.message_count, queue.messages_killed) == (9, 51)
    assert drained(world, join(queue)) == [b"%d" % n for n in range(0, 60, 7)]
    assert_nothing_paged(world)


def test_purging_everything_reads_nothing():
    world, queue = paged(memory=4_000)
    reads = world.areas.blocks_read
    assert total(world, queue_browser.purge(queue)) == 60
    world.settle_down()
    assert (queue.message_count, queue.messages_killed, world.areas.blocks_read) == (0, 60, reads)
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_purging_kills_what_is_read_from_pages_meanwhile():
    world, queue = paged(memory=4_000)
    steps = queue_browser.purge(queue)
    killed = next(steps)
    for ref in list(queue.dispatcher.snapshot()):  # then the next message is read
        queue.kill(ref)
    world.settle_down()
    assert queue.count == 1
    total(world, steps)
    assert killed == 1 and (queue.message_count, queue.messages_killed) == (0, 60)


def test_cancelling_and_delivering_what_is_scheduled_in_pages():
    world = StoredPages(limit=0)
    queue = world.queue()
    sent = [world.send(body=b"%d" % n, due=world.now + 60_000) for n in range(30)]
    assert (queue.scheduled_count, queue.message_count) == (30, 30)
    finish(world, queue_browser.cancel_scheduled(queue, sent[11].number))
    finish(world, queue_browser.deliver_now(queue, sent[23].number))
    assert (queue.scheduled_count, queue.count, queue.messages_acknowledged) == (28, 1, 1)
    with pytest.raises(NotFound):
        finish(world, queue_browser.cancel_scheduled(queue, sent[23].number))
    with pytest.raises(NotFound):
        finish(world, queue_browser.deliver_now(queue, sent[11].number))
    taker = join(queue)
    world.settle_down()
    assert taker.bodies == [b"23"]
    world.pass_time(60_000)
    assert drained(world, taker) == [b"23", *(b"%d" % n for n in range(30) if n not in (11, 23))]
