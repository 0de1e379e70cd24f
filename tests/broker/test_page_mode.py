"""Page mode of an address: when it begins and ends, and where each message goes (spec PG-1 to PG-19)."""

from __future__ import annotations

import logging

import pytest

from stompring.broker import publish
from stompring.broker.message import Traits

from .broker_fixture import MULTICAST, assert_nothing_held, header_is, join
from .paged_broker import PagedWorld, assert_nothing_paged, drained


def test_the_message_that_reaches_the_limit_is_the_last_in_memory():
    world = PagedWorld(limit=5)
    queue = world.queue()
    world.fill(4)
    assert world.address("q").pages is None
    world.fill(1)
    assert world.address("q").pages is not None  # PG-1: true from the 5th message on
    assert world.pages().count == 0
    world.fill(10)
    assert (queue.count, queue.message_count) == (5 + world.area(queue).messages, 15)
    assert world.paging.appended == 10


def test_entering_and_leaving_are_said_once(caplog):
    caplog.set_level(logging.INFO)
    world = PagedWorld(limit=5)
    queue = world.queue()
    world.fill(30)
    taker = join(queue)
    drained(world, taker)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Address q is full: max-size-messages 5: new messages go to pages",
        "address q: stopped paging",
    ]
    assert world.address("q").times_paged == 1


@pytest.mark.parametrize("auto", [True, False], ids=["auto", "acknowledged"])
@pytest.mark.parametrize("credit", [1, 3, None])
def test_a_queue_is_drained_in_order(auto, credit):
    world = PagedWorld(limit=5)
    queue = world.queue()
    sent = world.fill(57)
    taker = join(queue, credit, auto=auto)
    world.settle_down()
    while len(taker.got) < 57:
        had = len(taker.got)
        if auto:
            taker.give_credit(0 if credit is None else credit)
        else:
            taker.ack()
        world.settle_down()
        assert len(taker.got) > had, "it stands still"
    if not auto:
        taker.ack()
    assert taker.bodies == sent
    assert_nothing_paged(world)
    assert_nothing_held(world)
    assert queue.messages_added == queue.messages_acknowledged == 57


def test_every_message_goes_to_pages_while_any_is_left():
    world = PagedWorld(limit=5)
    queue = world.queue()
    world.fill(20)
    taker = join(queue, 12)
    world.settle_down()
    taker.ack(*taker.unsettled[:8])  # memory has room, the pages are not empty
    assert not world.address("q").memory_limit.full
    world.fill(1, first=20)
    assert world.paging.appended == 16
    assert drained(world, taker) == [b"%d" % n for n in range(21)]
    world.fill(1)
    assert world.address("q").pages is None
    assert world.paging.appended == 16


def test_a_second_overflow_pages_again():
    world = PagedWorld(limit=5)
    queue = world.queue()
    for _ in range(3):
        taker = join(queue)
        taker.rested = True
        queue.dispatcher.pause_consumer(taker)
        sent = world.fill(20)
        taker.give_credit(0)
        assert drained(world, taker) == sent
        assert_nothing_paged(world)
        taker.close()
    assert world.address("q").times_paged == 3


def test_an_address_that_always_pages_never_holds_anything_itself():
    world = PagedWorld(limit=0)
    queue = world.queue()
    sent = world.fill(10)
    assert world.address("q").memory_limit.messages == 0
    taker = join(queue)
    assert drained(world, taker) == sent
    assert world.address("q").pages is not None  # its limit says so
    assert world.pages().empty


def test_a_lazy_subscriber_slows_nobody():
    world = PagedWorld(limit=5)
    active, lazy = world.queue("active", "t", MULTICAST), world.queue("lazy", "t", MULTICAST)
    taker = join(active, auto=True)
    sent = []
    for number in range(100):
        sent.append(b"%d" % number)
        world.send("t", sent[-1])
        assert taker.bodies == sent, "it is served as messages arrive"
    assert world.pages("t").reads == 0
    assert (active.message_count, lazy.message_count) == (0, 100)
    assert (active.messages_added, lazy.messages_added) == (100, 100)
    late = join(lazy)
    assert drained(world, late) == sent
    assert_nothing_paged(world)


def test_what_is_durable_is_served_from_memory_too():
    world = PagedWorld(limit=5)
    active, lazy = world.queue("active", "t", MULTICAST), world.queue("lazy", "t", MULTICAST)
    taker = join(active)
    for number in range(100):
        world.send("t", b"%d" % number, durable=True)
        assert taker.bodies[-1] == b"%d" % number
        taker.ack()
    assert world.pages("t").reads == 0
    assert world.pages("t").cursors[active].remaining == 0
    assert lazy.message_count == 100


def test_a_message_is_written_once_for_all_queues():
    world = PagedWorld(limit=5)
    queues = [world.queue(f"q{number}", "t", MULTICAST) for number in range(4)]
    sent = world.fill(50, "t")
    assert world.paging.appended == 45
    takers = [join(queue) for queue in queues]
    for taker in takers:
        assert drained(world, taker) == sent
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_filters_decide_who_is_a_member():
    world = PagedWorld(limit=2)
    red = world.queue("red", "t", MULTICAST, filter="colour = 'red'")
    blue = world.queue("blue", "t", MULTICAST, filter="colour = 'blue'")
    for number in range(40):
        world.send("t", b"%d" % number, headers={"colour": "red" if number % 4 == 0 else "blue"})
    assert (red.message_count, blue.message_count) == (10, 30)
    assert drained(world, join(red)) == [b"%d" % n for n in range(0, 40, 4)]
    assert drained(world, join(blue)) == [b"%d" % n for n in range(40) if n % 4]
    assert_nothing_paged(world)


def test_what_nobody_wants_is_not_written():
    world = PagedWorld(limit=1)
    world.queue("red", "t", MULTICAST, filter="colour = 'red'")
    world.send("t", headers={"colour": "red"})
    world.send("t", headers={"colour": "blue"})
    address = world.address("t")
    assert address.pages is not None
    assert (address.routed_messages, address.unrouted_messages) == (1, 1)
    assert world.paging.appended == 0


def test_anycast_queues_take_turns_while_paging():
    world = PagedWorld(limit=2)
    queues = [world.queue(name, "a") for name in ("one", "two", "three")]
    world.fill(32, "a")
    assert sorted(queue.message_count for queue in queues) == [10, 11, 11]
    got = [int(body) for queue in queues for body in drained(world, join(queue))]
    assert sorted(got) == list(range(32))
    assert_nothing_paged(world)


def test_a_fully_qualified_send_pages_for_its_queue_alone():
    world = PagedWorld(limit=2)
    one, two = world.queue("one", "t", MULTICAST), world.queue("two", "t", MULTICAST)
    for _ in range(10):
        publish.send_to_queue(one, world.message("t"))
    assert (one.message_count, two.message_count) == (10, 0)
    assert world.paging.appended == 8
    assert len(drained(world, join(one))) == 10
    assert_nothing_paged(world)


def test_a_wildcard_queue_has_a_cursor_for_each_address():
    world = PagedWorld(limit=5)
    every = world.queue("every", "#", MULTICAST)
    own = world.queue("own", "a.b", MULTICAST)
    for number in range(30):
        world.send("a.b" if number % 3 else "a.c", b"%d" % number)
    assert len(world.area(every).cursors) == 2
    taker = join(every)
    got = [int(body) for body in drained(world, taker)]
    assert sorted(got) == list(range(30))
    for chosen in (0, 1):  # the order within each address is kept
        part = [n for n in got if (n % 3 == 0) == bool(chosen)]
        assert part == sorted(part)
    assert world.address("a.c").pages is None
    assert world.address("a.b").pages is not None  # its own queue has everything yet
    drained(world, join(own))
    assert_nothing_paged(world)
    assert_nothing_held(world)


def test_a_wildcard_queue_merges_what_both_addresses_paged():
    world = PagedWorld(limit=0)
    every = world.queue("every", "#", MULTICAST)
    world.fill(1, "x")  # neither address is made by the loop
    world.fill(1, "y", first=1)
    for number in range(2, 40):
        world.send("xy"[number * 7 % 5 % 2], b"%d" % number)
    every_taker = join(every)
    assert drained(world, every_taker) == [b"%d" % n for n in range(40)]


def test_messages_that_may_not_be_written_stay_in_memory():
    world = PagedWorld(limit=3)
    kept = world.queue("kept", "t", MULTICAST, non_destructive=True)
    other = world.queue("other", "t", MULTICAST)
    sent = world.fill(20, "t")
    assert kept.paged is None
    assert (kept.count, other.message_count) == (20, 20)
    assert drained(world, join(kept)) == sent
    assert drained(world, join(other)) == sent
    assert world.address("t").pages is None or world.pages("t").empty


def test_dead_letters_page_too():
    world = PagedWorld(limit=3, settings={"dead_letter_address": "DLQ", "max_delivery_attempts": 1})
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
    got = drained(world, join(dead))
    assert sorted(map(int, got)) == list(range(20))
    assert_nothing_paged(world)


def test_without_a_store_nothing_pages():
    world = PagedWorld(limit=3)
    world.broker.paging = None
    queue = world.queue()
    world.fill(10)
    assert (queue.count, world.address("q").pages) == (10, None)


class TestOrder:
    """PG-8 and PG-11: order from memory to pages, after give-back and acknowledgement out of order."""

    def test_what_comes_back_finds_its_old_place(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        sent = world.fill(40)
        first = join(queue, 17)
        world.settle_down()
        assert first.bodies == sent[:17]
        first.close()
        second = join(queue)
        assert drained(world, second) == sent
        assert [count for count in second.deliveries[:17]] == [2] * 17
        assert second.deliveries[17:] == [1] * 23

    def test_one_that_was_acknowledged_in_the_middle_is_gone(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        sent = world.fill(100)
        first = join(queue)
        world.settle_down()
        first.ack(first.unsettled[77])
        first.close()
        second = join(queue)
        assert drained(world, second) == sent[:77] + sent[78:]
        assert_nothing_paged(world)

    def test_a_page_goes_when_all_of_it_is_settled_wherever_it_is(self):
        world = PagedWorld(limit=5, page_size=10)
        queue = world.queue()
        world.fill(45)
        taker = join(queue)
        world.settle_down()
        assert world.pages().count == 4
        taker.ack(*taker.unsettled[25:35])  # the third page, from 25 to 34
        assert world.pages().count == 3
        drained(world, taker)
        assert_nothing_paged(world)

    def test_priorities(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        expected: list[tuple[int, int]] = []
        for number in range(60):
            priority = number * 7 % 10
            world.send("q", b"%d" % number, priority=priority)
            expected.append((-priority, number))
        got = [int(body) for body in drained(world, join(queue))]
        assert got == [number for _, number in sorted(expected)]

    def test_no_lower_priority_goes_out_while_a_higher_one_waits(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        taker = join(queue, 1)
        for number in range(50):
            world.send("q", b"%d" % number, priority=1)
        world.settle_down()
        world.send("q", b"urgent", priority=8)
        taker.ack()
        world.settle_down()
        assert taker.bodies[:2] == [b"0", b"urgent"]

    def test_one_that_was_refused_is_dead_after_its_attempts(self):
        world = PagedWorld(
            limit=2,
            settings={"dead_letter_address": "DLQ", "max_delivery_attempts": 3},
            more={"DLQ": {"max_size_messages": -1}},
        )
        queue, dead = world.queue(), world.queue("DLQ")
        world.fill(6)
        taker = join(queue, 1)
        for _ in range(3):
            world.settle_down()
            while taker.unsettled and taker.unsettled[0].message.body != b"4":
                taker.ack()
                world.settle_down()
            taker.nack()
        world.settle_down()
        assert [ref.message.body for ref in dead.dispatcher.in_order()] == [b"4"]
        assert taker.bodies == [b"0", b"1", b"2", b"3", b"4", b"4", b"4", b"5"]

    def test_redelivery_delay(self):
        world = PagedWorld(limit=2, settings={"redelivery_delay": 1000})
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

    def test_purge(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        world.fill(40)
        assert queue.purge() == 40
        assert (queue.message_count, queue.messages_killed) == (0, 40)
        world.settle_down()
        assert_nothing_paged(world)
        assert_nothing_held(world)

    def test_purge_leaves_what_is_in_delivery(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        sent = world.fill(40)
        taker = join(queue, 12)
        world.settle_down()
        assert queue.purge() == 28
        assert queue.message_count == 12
        world.settle_down()
        taker.ack()
        assert taker.bodies == sent[:12]
        assert_nothing_paged(world)

    def test_purge_on_no_consumers(self):
        world = PagedWorld(limit=5)
        queue = world.queue(purge_on_no_consumers=True)
        taker = join(queue, 3)
        world.fill(40)
        world.settle_down()
        taker.close()
        assert queue.message_count == 0
        assert_nothing_paged(world)

    def test_a_queue_is_deleted(self):
        world = PagedWorld(limit=5)
        queue = world.queue()
        world.fill(40)
        taker = join(queue, 12)
        world.settle_down()
        world.directory.delete_queue("q", force=True)
        assert taker.cancel_reason is not None
        assert_nothing_held(world)
        world.settle_down()
        assert_nothing_paged(world)

    def test_a_temporary_subscription_takes_its_pages_along(self):
        world = PagedWorld(limit=5)
        lazy = world.queue("lazy", "t", MULTICAST, temporary=True, auto_delete=True)
        taker = join(lazy, 3)
        world.fill(40, "t")
        world.settle_down()
        taker.close()
        world.settle_down()
        assert "lazy" not in world.directory.queues
        assert_nothing_paged(world)
        assert_nothing_held(world)

    def test_an_address_is_deleted(self):
        world = PagedWorld(limit=5)
        world.queue("one", "t", MULTICAST)
        world.queue("two", "t", MULTICAST)
        world.fill(40, "t")
        world.directory.delete_address("t", force=True)
        world.settle_down()
        assert all(pages.closed for pages in world.paging.opened)
        assert not world.areas.areas
        assert world.areas.budget.used == 0

    def test_auto_delete_waits_for_what_is_paged(self):
        world = PagedWorld(limit=2)
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
    def test_paused(self):
        world = PagedWorld(limit=3)
        queue = world.queue()
        queue.pause()
        taker = join(queue)
        sent = world.fill(20)
        world.settle_down()
        assert taker.got == []
        queue.resume()
        assert drained(world, taker) == sent

    def test_exclusive(self):
        world = PagedWorld(limit=3)
        queue = world.queue(exclusive=True)
        sent = world.fill(30)
        first, second = join(queue, 0), join(queue)
        first.give_credit(10)
        world.settle_down()
        assert (first.bodies, second.bodies) == (sent[:10], [])
        first.close()
        assert drained(world, second) == sent

    def test_consumers_before_dispatch(self):
        world = PagedWorld(limit=3)
        queue = world.queue(consumers_before_dispatch=2)
        sent = world.fill(30)
        first = join(queue)
        world.settle_down()
        assert first.got == []
        second = join(queue, 4)
        world.settle_down()
        assert sorted(map(int, first.bodies + second.bodies)) == list(range(30))
        assert set(sent) == set(first.bodies + second.bodies)

    def test_two_consumers_take_turns(self):
        world = PagedWorld(limit=3)
        queue = world.queue()
        world.fill(40)
        first, second = join(queue, auto=True), join(queue, auto=True)
        world.settle_down()
        assert sorted(map(int, first.bodies + second.bodies)) == list(range(40))
        for taker in (first, second):
            assert list(map(int, taker.bodies)) == sorted(map(int, taker.bodies))
        assert_nothing_paged(world)

    def test_no_selector_starves(self):
        """PG-17, mended: the only match is far behind what nobody takes."""
        world = PagedWorld(limit=5, settings={"max_read_page_messages": 10, "prefetch_page_messages": 5})
        queue = world.queue()
        for number in range(300):
            world.send("q", b"%d" % number, headers={"colour": "red" if number == 250 else "blue"})
        red = join(queue, matches=header_is(b"colour", b"red"), key="red")
        world.settle_down()
        assert red.bodies == [b"250"]
        assert queue.message_count == 300
        red.ack()
        assert queue.message_count == 299
        blue = join(queue)
        assert drained(world, blue) == [b"%d" % n for n in range(300) if n != 250]
        assert_nothing_paged(world)


def published(world, body=b"x", **traits):
    """As a producer's SEND to the address q."""
    made = Traits(b"", b"q", **traits)
    publication = publish.Publication(world.address("q"), None, made, None, world.broker.memory)
    return publish.publish(world.broker, publication, body)


def paging_world():
    world = PagedWorld(limit=5)
    world.queue()
    world.fill(8)
    assert world.address("q").pages is not None
    return world


@pytest.mark.parametrize("durable", [False, True])
def test_what_producers_send_while_an_address_pages_is_paged_and_counted(durable):
    world = paging_world()
    queue, address = world.directory.queues["q"], world.address("q")
    appended, routed = world.paging.appended, address.routed_messages
    assert published(world, b"last", durable=durable) is None
    assert (world.paging.appended, address.routed_messages) == (appended + 1, routed + 1)
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
    rejection = published(world)
    assert rejection is not None and rejection.limit is limit
    limit.set_fault(None)
    assert published(world) is None
    assert world.directory.queues["q"].message_count == 9


def test_an_address_whose_pages_are_empty_stops_paging_with_the_next_message_of_a_producer():
    world = PagedWorld(limit=5)
    queue, address = world.queue(), world.address("q")
    world.fill(5)
    assert address.pages is not None and address.pages.empty
    address.memory_limit.set_limits(-1)
    assert published(world) is None
    assert address.pages is None and world.paging.appended == 0
    assert queue.count == 6
