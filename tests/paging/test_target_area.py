"""Who is served from pages, how much is in memory for that, and what is read (architecture §6; spec PG-15 to PG-17)."""

import logging

import pytest

from stompring.broker.reference import GONE
from stompring.paging.paged_queue import HELD
from stompring.settings.model import RingPolicy

from ..broker.broker_fixture import MULTICAST, assert_nothing_held, header_is, join
from .stored_pages import StoredPages, assert_nothing_paged, drained

RED, BLUE = header_is(b"colour", b"red"), header_is(b"colour", b"blue")


def coloured(world, count, red):
    queue = world.queue()
    for number in range(count):
        world.send(body=b"%d" % number, headers={"colour": "red" if number in red else "blue"})
    return queue


class TestSelectors:
    def test_a_second_consumer_needs_no_second_scan(self):
        world = StoredPages(limit=5)
        queue = coloured(world, 400, {395})
        first = join(queue, matches=RED, key="red")
        world.settle_down()
        assert first.bodies == [b"395"]
        reads = world.areas.blocks_read
        assert reads > 20
        first.close()
        second = join(queue, matches=RED, key="red")
        world.settle_down()
        assert second.bodies == [b"395"]
        assert world.areas.blocks_read <= reads + 2
        assert queue.message_count == 400

    def test_answers_that_selectors_remember_are_part_of_the_budget(self):
        world = StoredPages(limit=5, memory=64_000)
        queue = world.queue()
        for number in range(400):
            world.send(headers={"colour": f"shade {number % 100}"})
        budget = world.areas.budget
        consumers = [join(queue, matches=RED, key=key) for key in range(40)]
        world.settle_down()
        assert 0 < budget.answers <= 64_000 // 16
        messages = sum(area.size for area in world.areas.areas)
        assert budget.used == messages + budget.blocks + budget.answers
        for each in consumers:
            each.close()
        world.broker.directory.delete_queue(queue.name)
        world.settle_down()
        assert budget.answers == 0

    @pytest.mark.parametrize("red", [set(), {150}])
    def test_a_selector_remembers_an_answer_for_each_set_of_headers(self, red):
        world = StoredPages(limit=5, memory=64_000)
        join(coloured(world, 200, red), matches=RED, key="red")
        world.settle_down()
        assert world.areas.budget.answers == 256 * (1 + len(red))

    def test_what_was_scanned_is_found_although_memory_gave_it_up(self):
        world = StoredPages(limit=5, memory=2000)
        queue = coloured(world, 200, {100, 110, 120, 130})
        first = join(queue, 1, matches=RED, key="red")
        world.settle_down()
        assert first.bodies == [b"100"]
        first.close()
        world.settle_down()
        blue = join(queue, 50, matches=BLUE, key="blue")
        world.settle_down()
        second = join(queue, matches=RED, key="red")
        assert drained(world, second) == [b"100", b"110", b"120", b"130"]
        blue.close()
        assert len(drained(world, join(queue))) == 196
        assert_nothing_paged(world)

    def test_what_arrives_behind_it_goes_to_a_selector_at_once(self):
        world = StoredPages(limit=2, settings={"prefetch_page_messages": 3})
        red = join(coloured(world, 60, set()), matches=RED, key="red")
        world.settle_down()
        assert red.got == []
        reads = world.areas.blocks_read
        world.send(body=b"hot", headers={"colour": "red"})
        assert red.bodies == [b"hot"]
        assert world.areas.blocks_read == reads


class TestLimits:
    def test_unsettled_messages_reach_a_limit_and_more_come_when_they_are_settled(self, caplog):
        caplog.set_level(logging.WARNING)
        world = StoredPages(limit=0, settings={"max_read_page_messages": 10})
        queue = world.queue()
        sent = world.fill(50)
        taker = join(queue)
        world.settle_down()
        assert taker.bodies == sent[:10]
        taker.ack(*taker.unsettled[:4])
        world.settle_down()
        assert taker.bodies == sent[:14]
        said = [r.getMessage() for r in caplog.records if "max-read-page-messages" in r.getMessage()]
        assert len(said) == 1
        assert drained(world, taker) == sent

    @pytest.mark.parametrize("limit", [{"prefetch_page_messages": 8}, {"prefetch_page_bytes": 8 * 500}])
    def test_ready_messages_stay_within_prefetch(self, limit):
        world = StoredPages(limit=0, settings=limit)
        queue = world.queue()
        world.fill(100)
        taker = join(queue, 3)
        world.settle_down()
        while taker.unsettled:
            assert world.area(queue).ready_messages <= 8 + 16
            taker.ack()
            world.settle_down()
        assert len(taker.got) == 100

    def test_the_budget_holds_for_all_queues_together(self):
        world = StoredPages(limit=0, memory=20_000)
        queues = [world.queue(f"q{n}", "t", MULTICAST) for n in range(5)]
        for number in range(300):
            world.send("t", b"%d" % number)
            assert world.areas.budget.used <= 20_000
        takers = [join(queue, 1) for queue in queues]
        world.settle_down()
        for _ in range(300):
            for taker in takers:
                taker.ack()
            world.settle_down()
            assert world.areas.budget.used <= 20_000 + 5 * 17 * 500
        assert all(len(taker.got) == 300 for taker in takers)

    def test_nothing_is_kept_of_blocks_where_the_cache_is_off(self):
        world = StoredPages(limit=0, settings={"page_max_cache_size": 0})
        queue = world.queue()
        sent = world.fill(100)
        world.areas.head_cache.shrink(1 << 30)
        taker = join(queue)
        world.settle_down()
        assert world.areas.pending_cache_bytes == 0
        assert drained(world, taker) == sent

    def test_a_block_is_read_once_for_all_queues(self):
        """Ten blocks of 256 KiB in one page."""
        settings = {"prefetch_page_messages": 0, "max_read_page_bytes": 1 << 23}
        world = StoredPages(limit=0, page_size=1 << 23, memory=1 << 23, settings=settings)
        queues = [world.queue(f"q{n}", "t", MULTICAST) for n in range(5)]
        world.fill(100, "t", headers={"filler": "x" * 25_000})
        takers = [join(queue) for queue in queues]
        for taker in takers:
            assert len(drained(world, taker)) == 100
        assert world.areas.blocks_read <= 12


class TestHeadCache:
    def test_the_head_is_there_for_those_who_come(self):
        world = StoredPages(limit=0)
        queue = world.queue()
        sent = world.fill(20)
        assert world.areas.head_cache_bytes > 0
        assert join(queue).bodies == sent
        assert world.areas.blocks_read == 0

    def test_the_newest_are_given_up_first(self):
        world = StoredPages(limit=0)
        queue = world.queue()
        world.fill(20)
        before = world.areas.budget.used
        world.areas.head_cache.shrink(before // 2)
        skipped = [int(ref.message.body) for ref in queue.dispatcher.in_order()]
        assert skipped == list(range(len(skipped)))
        assert 8 <= len(skipped) <= 10
        assert queue.paged_count == 20 - len(skipped)
        assert drained(world, join(queue)) == [b"%d" % n for n in range(20)]

    def test_it_shrinks_to_nothing_where_memory_is_wanted(self):
        world = StoredPages(limit=0, memory=12_000)
        idle, busy = world.queue("idle"), world.queue("busy")
        world.fill(40, "idle")
        had = world.area(idle).ready_messages
        assert had > 0
        taker = join(busy)
        busy.dispatcher.pause_consumer(taker)
        world.fill(40, "busy")
        assert world.area(idle).ready_messages < had
        taker.give_credit(0)
        assert len(drained(world, taker)) == 40
        assert drained(world, join(idle)) == [b"%d" % n for n in range(40)]


class TestGroups:
    def test_a_slow_owner_does_not_fill_the_limits_of_others(self):
        world = StoredPages(limit=1, settings={"prefetch_page_messages": 20}, memory=40_000)
        queue = world.queue()
        world.send(body=b"a0", group=b"a")
        slow = join(queue, 1)
        world.settle_down()
        assert slow.bodies == [b"a0"]
        for number in range(1, 600):
            world.send(body=b"a%d" % number, group=b"a")
        for number in range(50):
            world.send(body=b"b%d" % number)
        assert drained(world, join(queue)) == [b"b%d" % n for n in range(50)]
        assert world.areas.budget.used <= 40_000 + 17 * 500
        assert queue.message_count == 600
        slow.credit = None
        slow.give_credit(0)
        assert drained(world, slow) == [b"a%d" % n for n in range(600)]
        assert_nothing_paged(world)
        assert_nothing_held(world)

    def test_what_comes_back_and_is_parked_comes_before_what_was_set_aside(self):
        world = StoredPages(limit=0)
        queue = world.queue()
        sent = [b"%d" % number for number in range(300)]
        for body in sent:
            world.send(body=body, group=b"a")
        owner, other = join(queue, 1), join(queue)
        world.settle_down()
        assert owner.group_backlog.size == HELD
        (taken,) = refs = owner.release()
        owner.credit = 0
        queue.requeue(refs, owner)
        assert owner in world.area(queue).group_spill and taken.state == GONE  # on disk only
        owner.give_credit(1)
        world.settle_down()
        assert owner.bodies == [b"0", b"0"]
        owner.credit = None
        assert drained(world, owner) == [b"0", *sent]
        assert other.got == []
        assert queue.message_count == 0

    @pytest.mark.parametrize("limit", [0, 3])
    def test_a_group_that_comes_from_two_addresses_stays_in_order(self, limit):
        world = StoredPages(limit=limit)
        every = world.queue("every", address="a.#", routing_type=MULTICAST)
        sent = [b"%d" % number for number in range(500)]
        for number, body in enumerate(sent):
            world.send(f"a.{number % 7 // 4}", body, group=b"a")
        owner, other = join(every, 1), join(every)
        world.settle_down()
        assert owner in world.area(every).group_spill
        assert drained(world, owner) == sent
        assert other.got == []
        assert every.message_count == 0


class TestRings:
    def test_paged_messages_do_not_count(self):
        world = StoredPages(limit=3)
        queue = world.queue(ring_size=5)
        sent = world.fill(40)
        assert (queue.message_count, queue.messages_replaced) == (40, 0)
        taker = join(queue, 2)
        world.settle_down()
        assert queue.count <= 5
        assert drained(world, taker) == sent
        assert queue.messages_replaced == 0
        assert_nothing_paged(world)

    @pytest.mark.parametrize("limit", [0, 3])
    def test_a_ring_that_counts_them_is_exact(self, limit):
        world = StoredPages(limit=limit, memory=3000)
        queue = world.queue(ring_size=5, ring_counts_paged=True)
        for number in range(40):
            world.fill(1, first=number)
            assert queue.message_count == min(5, number + 1)
        assert queue.messages_replaced == 35
        assert drained(world, join(queue)) == [b"%d" % n for n in range(35, 40)]
        assert_nothing_paged(world) if limit else None

    def test_it_gives_up_the_lowest_in_turn_as_delivery_would(self):
        world = StoredPages(limit=0, memory=500)
        queue = world.queue(ring_size=3, ring_counts_paged=True)
        for number, priority in enumerate([4, 9, 1, 4, 1]):
            world.send(body=b"%d" % number, priority=priority)
        # the next to be delivered goes, as in memory: 1 (priority 9), then 0 or 3 (4)
        assert queue.message_count == 3
        left = sorted(map(int, drained(world, join(queue))))
        memory = StoredPages(limit=-1)
        plain = memory.queue(ring_size=3)
        for number, priority in enumerate([4, 9, 1, 4, 1]):
            memory.send(body=b"%d" % number, priority=priority)
        assert left == sorted(int(ref.message.body) for ref in plain.dispatcher.in_order())

    def test_what_is_evicted_unread_goes_to_the_dead_letters_where_these_are_asked_for(self):
        world = StoredPages(
            limit=0,
            memory=500,
            settings={"dead_letter_address": "DLQ"},
            more={"DLQ": {"max_size_messages": -1}},
        )
        queue = world.queue(ring_size=5, ring_counts_paged=True, ring_policy=RingPolicy.DEAD_LETTER)
        dead = world.queue("DLQ")
        world.fill(20)
        assert queue.message_count == 5
        world.settle_down()
        assert sorted(int(ref.message.body) for ref in dead.dispatcher.in_order()) == list(range(15))
        assert drained(world, join(queue)) == [b"%d" % n for n in range(15, 20)]

    def test_trim(self):
        world = StoredPages(limit=3)
        queue = world.queue(ring_size=30, ring_counts_paged=True)
        world.fill(30)
        world.directory.update_queue(queue, {"ring_size": 4})
        assert sum(queue.trim()) == 26
        assert drained(world, join(queue)) == [b"%d" % n for n in range(26, 30)]


class TestDamage:
    def test_what_is_unreadable_is_lost_and_the_rest_is_delivered(self):
        world = StoredPages(limit=0, memory=500)
        queue = world.queue()
        world.fill(50)
        page = world.pages().in_order()[2]
        lost = range(page.first_number - 1, page.first_number - 1 + page.count)
        world.settle_down()
        del world.memory.contents[page.path]
        world.areas.head_cache.shrink(1 << 30)
        assert drained(world, join(queue)) == [b"%d" % n for n in range(50) if n not in lost]
        assert queue.message_count == 0
        assert world.pages().empty

    def test_page_mode_ends_when_the_last_of_it_was_unreadable(self):
        world = StoredPages(limit=2, memory=500)
        queue = world.queue()
        world.fill(9)
        world.settle_down()
        del world.memory.contents[world.pages().in_order()[0].path]
        world.areas.head_cache.shrink(1 << 30)
        assert drained(world, join(queue))[:2] == [b"0", b"1"]
        assert_nothing_paged(world)


def test_gauges():
    world = StoredPages(limit=0, memory=6000)
    queue = coloured(world, 200, set(range(0, 200, 2)))
    red = join(queue, 1, matches=RED, key="red")
    world.settle_down()
    areas = world.areas
    assert areas.direct_entries == world.area(queue).ready_messages > 0
    assert areas.reference_entries >= 0
    assert areas.watermark_lag == queue.paged_count > 0
    assert areas.blocks_read > 0
    assert 0 <= areas.pending_cache_bytes <= areas.budget.limit
    red.close()
    drained(world, join(queue))
    assert world.address("q").pages is not None and world.pages().empty
    assert (areas.direct_entries, areas.reference_entries, areas.watermark_lag) == (0, 0, 0)
