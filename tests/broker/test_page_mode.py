"""Page mode of an address: when it begins and ends, and where each message goes (spec PG-1 to PG-19)."""

import logging

import pytest

from stompring.broker import publish
from stompring.broker.message import Traits

from ..paging.stored_pages import StoredPages, assert_nothing_paged, drained
from .broker_fixture import MULTICAST, assert_nothing_held, header_is, join


def test_the_message_that_reaches_the_limit_is_the_last_in_memory():
    world = StoredPages(limit=5)
    queue = world.queue()
    world.fill(4)
    assert world.address("q").pages is None
    world.fill(1)
    assert world.address("q").pages is not None  # PG-1: true from the 5th message on
    assert world.paged() == 0
    world.fill(10)
    assert (queue.count, queue.message_count) == (5 + world.area(queue).messages, 15)
    assert world.paged() == 10


def test_entering_and_leaving_are_said_once(caplog):
    caplog.set_level(logging.INFO)
    world = StoredPages(limit=5)
    queue = world.queue()
    world.fill(30)
    drained(world, join(queue))
    told = [record.getMessage() for record in caplog.records]
    said = [text for text in told if text.lower().startswith("address q")]
    assert said == [
        "Address q is full: max-size-messages 5: new messages go to pages",
        "address q: stopped paging",
    ]
    assert world.address("q").times_paged == 1


def test_an_address_that_always_pages_never_holds_anything_itself():
    world = StoredPages(limit=0)
    queue = world.queue()
    sent = world.fill(10)
    assert world.address("q").memory_limit.messages == 0
    assert drained(world, join(queue)) == sent
    assert world.address("q").pages is not None  # its limit says so
    assert world.pages().empty


def test_what_is_durable_is_served_from_memory_too():
    world = StoredPages(limit=5)
    active, lazy = world.queue("active", "t", MULTICAST), world.queue("lazy", "t", MULTICAST)
    taker = join(active)
    for number in range(100):
        world.send("t", b"%d" % number, durable=True)
        assert taker.bodies[-1] == b"%d" % number
        taker.ack()
    assert world.areas.blocks_read == 0
    assert world.pages("t").cursors[active].remaining == 0
    assert lazy.message_count == 100


def test_a_message_is_written_once_for_all_queues():
    world = StoredPages(limit=5)
    queues = [world.queue(f"q{number}", "t", MULTICAST) for number in range(4)]
    sent = world.fill(50, "t")
    assert world.paged("t") == 45
    takers = [join(queue) for queue in queues]
    for taker in takers:
        assert drained(world, taker) == sent
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_what_nobody_wants_is_not_written():
    world = StoredPages(limit=1)
    world.queue("red", "t", MULTICAST, filter="colour = 'red'")
    world.send("t", headers={"colour": "red"})
    world.send("t", headers={"colour": "blue"})
    address = world.address("t")
    assert address.pages is not None
    assert (address.routed_messages, address.unrouted_messages) == (1, 1)
    assert world.paged("t") == 0


def test_a_fully_qualified_send_pages_for_its_queue_alone():
    world = StoredPages(limit=2)
    one, two = world.queue("one", "t", MULTICAST), world.queue("two", "t", MULTICAST)
    for _ in range(10):
        publish.send(world.message("t"), queue=one)
    assert (one.message_count, two.message_count) == (10, 0)
    assert world.paged("t") == 8
    assert len(drained(world, join(one))) == 10
    assert_nothing_paged(world)


def test_messages_that_may_not_be_written_stay_in_memory():
    world = StoredPages(limit=3)
    kept = world.queue("kept", "t", MULTICAST, non_destructive=True)
    other = world.queue("other", "t", MULTICAST)
    sent = world.fill(20, "t")
    assert kept.paged is None
    assert (kept.count, other.message_count) == (20, 20)
    assert drained(world, join(kept)) == sent
    assert drained(world, join(other)) == sent
    assert world.address("t").pages is None or world.pages("t").empty


def test_dead_letters_page_too():
    world = StoredPages(limit=3, settings={"dead_letter_address": "DLQ", "max_delivery_attempts": 1})
    queue, dead = world.queue(), world.queue("DLQ")
    world.fill(20)
    taker = join(queue)
    for _ in range(20):
        world.settle_down()
        if taker.unsettled:
            taker.nack()
    world.settle_down()
    assert dead.message_count == 20
    assert dead.paged_count > 0 or world.area(dead).messages
    assert sorted(map(int, drained(world, join(dead)))) == list(range(20))
    assert_nothing_paged(world)


def test_without_a_store_nothing_pages():
    world = StoredPages(limit=3)
    world.broker.paging = None
    queue = world.queue()
    world.fill(10)
    assert (queue.count, world.address("q").pages) == (10, None)


class TestOrder:
    """PG-8 and PG-11: order from memory to pages, after give-back and acknowledgement out of order."""

    def test_redelivery_delay(self):
        world = StoredPages(limit=2, settings={"redelivery_delay": 1000})
        queue = world.queue()
        sent = world.fill(20)
        taker = join(queue, 10)
        world.settle_down()
        taker.nack(taker.unsettled[6])
        world.settle_down()
        assert queue.scheduled_count == 1
        assert queue.message_count == 20
        world.pass_time(1000)
        got = drained(world, taker)
        assert sorted(map(int, got)) == sorted([*range(20), 6])
        assert set(got) == set(sent)
        assert_nothing_paged(world)


class TestLeaving:
    """PG-13, PG-14: what else empties pages."""

    def test_an_address_is_deleted(self):
        world = StoredPages(limit=5)
        world.queue("one", "t", MULTICAST)
        world.queue("two", "t", MULTICAST)
        world.fill(40, "t")
        world.directory.delete_address("t", force=True)
        world.settle_down()
        assert not world.page_files()
        assert not world.areas.areas
        assert world.areas.budget.used == 0

    def test_auto_delete_waits_for_what_is_paged(self):
        world = StoredPages(limit=2)
        queue = world.queue(auto_delete=True)
        world.fill(20)
        taker = join(queue, 10)
        world.settle_down()
        taker.ack(*taker.unsettled[:5])
        taker.close()
        assert "q" in world.directory.queues
        drained(world, second := join(queue))
        second.close()
        assert "q" not in world.directory.queues


class TestConsumers:
    def test_consumers_before_dispatch(self):
        world = StoredPages(limit=3)
        queue = world.queue(consumers_before_dispatch=2)
        sent = world.fill(30)
        first = join(queue)
        world.settle_down()
        assert first.got == []
        second = join(queue, 4)
        world.settle_down()
        assert sorted(map(int, first.bodies + second.bodies)) == list(range(30))
        assert set(sent) == set(first.bodies + second.bodies)


def published(world, body=b"x", **traits):
    """As a producer's SEND to the address q."""
    made = Traits(b"", b"q", **traits)
    publication = publish.Publication(world.address("q"), None, made, None)
    return publish.publish(world.broker, publication, body)


def paging_world():
    world = StoredPages(limit=5)
    world.queue()
    world.fill(8)
    assert world.address("q").pages is not None
    return world


@pytest.mark.parametrize("durable", [False, True])
def test_what_producers_send_while_an_address_pages_is_paged_and_counted(durable):
    world = paging_world()
    queue, address = world.directory.queues["q"], world.address("q")
    paged, routed = world.paged(), address.routed_messages
    assert published(world, b"last", durable=durable) is None
    assert (world.paged(), address.routed_messages) == (paged + 1, routed + 1)
    assert (queue.message_count, address.unrouted_messages) == (9, 0)
    assert drained(world, join(queue))[-1] == b"last"


def test_what_producers_send_to_an_address_that_pages_and_has_no_queue_for_it_is_unrouted():
    world = paging_world()
    world.directory.queues["q"].accepts = header_is(b"colour", b"red")
    world.address("q").changed()
    assert published(world) is None
    assert world.address("q").unrouted_messages == 1
    assert world.directory.queues["q"].message_count == 8


@pytest.mark.parametrize("which", ["disk", "write_limit"])
def test_producers_wait_for_the_disk_while_an_address_pages(which):
    world = paging_world()
    broker = world.broker
    limit = broker.disk if which == "disk" else broker.storage.write_limit
    limit.set_fault("it is full")
    assert published(world).limit is limit
    limit.set_fault(None)
    assert published(world) is None
    assert world.directory.queues["q"].message_count == 9


def test_an_address_whose_pages_are_empty_stops_paging_with_the_next_message_of_a_producer():
    world = StoredPages(limit=5)
    queue, address = world.queue(), world.address("q")
    world.fill(5)
    assert address.pages.empty
    address.memory_limit.set_limits(-1)
    assert published(world) is None
    assert address.pages is None and not world.page_files()
    assert queue.count == 6
