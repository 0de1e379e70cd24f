"""What is read back while nobody is choosy is handed over at once: in turns, in order, as much as each may have."""

from stompring.paging.paged_queue import LEAST

from ..broker.broker_fixture import join
from .stored_pages import StoredPages, assert_nothing_paged


def filled(count=60, memory=0, **settings):
    """All messages but the first are in pages, and nobody is there."""
    world = StoredPages(limit=1, settings={"max_read_page_bytes": 1 << 20, **settings}, memory=memory)
    world.queue()
    world.fill(count)
    world.settle_down()
    return world


def numbers(*takers):
    return [[int(body) for body in taker.bodies] for taker in takers]


def test_who_settles_nothing_has_a_few_while_memory_is_used_up():
    world = filled()
    taker = join(world.directory.queues["q"], 1000)
    world.settle_down()
    assert len(taker.got) == LEAST + 1, "the first message was in memory"
    while len(taker.got) < 60:
        before = len(taker.got)
        taker.ack()
        world.settle_down()
        assert before < len(taker.got) <= before + LEAST + 1


def test_max_read_page_messages_holds_for_each():
    world = filled(max_read_page_messages=7)
    queue = world.directory.queues["q"]
    first, second = join(queue), join(queue)
    world.settle_down()
    assert (len(first.unsettled), len(second.unsettled)) == (8, 7), "one of them was in memory"
    first.ack(*first.unsettled[1:4])
    world.settle_down()
    assert (len(first.got), len(second.got)) == (11, 7)


def test_what_is_acknowledged_by_delivery_is_counted_as_such():
    world = filled()
    queue = world.directory.queues["q"]
    taker = join(queue, auto=True)
    world.settle_down()
    assert taker.bodies == [b"%d" % number for number in range(60)]
    assert (queue.messages_acknowledged, queue.messages_delivered, queue.delivering) == (60, 60, 0)
    assert (queue.persistent_size, queue.message_count, world.areas.budget.used) == (0, 0, 0)


def test_a_redelivery_says_so_to_who_acknowledges_by_delivery():
    world = filled(memory=1 << 20)
    queue = world.directory.queues["q"]
    first = join(queue, 20)
    world.settle_down()
    first.cancelled("left")
    taker = join(queue, auto=True)
    world.settle_down()
    assert numbers(taker) == [list(range(60))]
    assert taker.deliveries == [2] * 20 + [1] * 40
    assert_nothing_paged(world)
