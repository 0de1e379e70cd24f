"""Cursors: what is found first, what each step does to the counts, and what the journal hears of it."""

from twisted.trial.unittest import TestCase

from stompring.broker.paging import LOADED, TIMED
from stompring.broker.reference import PENDING, SCHEDULED
from stompring.broker.storage import Reason
from stompring.store.record import PAGE_SETTLED, WENT_OUT, Kind, unpack_runs
from stompring.store.replay import Replay
from stompring.store.segment import SegmentScan

from .paged_broker import PagedBroker


class CursorTest(TestCase):
    """One durable queue and its pages."""

    def setUp(self):
        self.world = PagedBroker()
        self.q, self.r = self.world.queues("q", "r")

    def body_of_first(self, level):
        cursor = self.world.cursor(self.q)
        position = cursor.first(level)
        if position is None:
            return None
        block = self.world.read(*position)
        assert block is not None
        return block.message(position[1]).body.partition(b" ")[0]

    def page_records(self):
        self.world.turn()
        replay = Replay(self.world.memory.kill(), self.world.journal.directory)
        replay.read()
        return [payload for _, payload in replay.page_records]


class FindingTest(CursorTest):
    def test_each_priority_has_its_first(self):
        for level in (4, 9, 4, 0, 9):
            self.world.page([self.q], b"%d" % level, priority=level)
        cursor = self.world.cursor(self.q)
        self.assertEqual(cursor.levels, [1, 0, 0, 0, 2, 0, 0, 0, 0, 2])
        self.assertEqual([self.body_of_first(level) for level in (9, 4, 0, 5)], [b"9", b"4", b"0", None])

    def test_pages_without_a_priority_are_passed_over(self):
        self.world.fill(self.q, 30)
        page, index = self.world.page([self.q], b"x", priority=7)
        self.world.fill(self.q, 30)
        cursor = self.world.cursor(self.q)
        self.assertEqual(cursor.first(7), (page, index))
        first = self.world.pages.in_order()[0]
        self.assertEqual(cursor.following(7, first, 0), (page, index))
        self.assertIsNone(cursor.following(7, page, index + 1))

    def test_following_may_begin_behind_the_end_of_a_page(self):
        positions = self.world.fill(self.q, 20)
        pages = self.world.pages.in_order()
        cursor = self.world.cursor(self.q)
        self.assertEqual(cursor.following(4, pages[0], pages[0].count), (pages[1], 0))
        last_page, last = positions[-1]
        self.assertIsNone(cursor.following(4, last_page, last + 1))

    def test_following_skips_a_deleted_page(self):
        self.world.fill(self.q, 20)
        pages = list(self.world.pages.in_order())
        gone = pages[1]
        cursor = self.world.cursor(self.q)
        for index in range(gone.count):
            cursor.settle_waiting(gone, index, Reason.KILLED)
        self.assertEqual(cursor.following(4, gone, 0), (pages[2], 0))

    def test_requeued_message_is_first_again(self):
        positions = self.world.fill(self.q, 20)
        refs = [self.world.load(self.q, *position) for position in positions]
        cursor = self.world.cursor(self.q)
        self.assertIsNone(cursor.first(4))
        for ref in (refs[15], refs[3]):
            ref.state = PENDING
            cursor.put_back(ref)
            self.assertEqual(cursor.first(4), ref.position)

    def test_compressed_page_states_expand_on_access(self):
        positions = self.world.fill(self.q, 60)
        cursor = self.world.cursor(self.q)
        pages = self.world.pages.in_order()
        cold = [holding for holding in (next(iter(page.page_states)) for page in pages) if not holding.states]
        self.assertGreater(len(cold), 10)
        for place in (0, 30, 59, 1, 31):
            self.assertTrue(cursor.is_waiting(*positions[place]))
        cold = [holding for holding in (next(iter(page.page_states)) for page in pages) if not holding.states]
        self.assertGreater(len(cold), 10)

    def test_states_of_messages_in_other_queues_are_zero(self):
        page, _ = self.world.page([self.q, self.r])
        self.world.page([self.r])
        self.world.page([self.q], due=self.world.now + 1000)
        self.world.page([self.r])
        self.assertEqual(self.world.cursor(self.q).states(page, 0, 4), bytes([5, 0, TIMED, 0]))
        self.assertEqual(self.world.cursor(self.r).states(page, 0, 4), bytes([5, 5, 0, 5]))
        self.world.load(self.q, page, 0)
        self.assertEqual(self.world.cursor(self.q).states(page, 0, 2), bytes([LOADED, 0]))


class CountingTest(CursorTest):
    def counts(self):
        cursor = self.world.cursor(self.q)
        return cursor.remaining, cursor.waiting, cursor.timed

    def test_every_step_counts(self):
        self.world.page([self.q])
        later, at = self.world.page([self.q], due=self.world.now + 1000)
        cursor = self.world.cursor(self.q)
        self.assertEqual(self.counts(), (2, 1, 1))
        timed = self.world.load(self.q, later, at)
        self.assertEqual(self.counts(), (2, 1, 0))
        timed.state = PENDING
        cursor.put_back(timed)
        self.assertEqual(self.counts(), (2, 2, 0))
        ref = self.world.first(self.q)
        assert ref is not None
        self.assertEqual(self.counts(), (2, 1, 0))
        cursor.settle(ref, Reason.ACKNOWLEDGED)
        self.assertEqual(self.counts(), (1, 1, 0))
        cursor.settle(ref, Reason.ACKNOWLEDGED)
        self.assertEqual(self.counts(), (1, 1, 0))
        cursor.settle_waiting(later, at, Reason.REPLACED)
        self.assertEqual(self.counts(), (0, 0, 0))
        self.assertTrue(self.world.pages.empty)

    def test_deliveries_stay_with_a_position(self):
        page, index = self.world.page([self.q])
        cursor = self.world.cursor(self.q)
        ref = self.world.load(self.q, page, index)
        ref.deliveries, ref.attempts, ref.state = 3, 2, PENDING
        cursor.put_back(ref)
        self.assertEqual(cursor.counts(page, index), (3, 2))
        again = self.world.load(self.q, page, index)
        self.assertEqual((again.deliveries, again.attempts), (3, 2))

    def test_a_delivery_that_is_put_back_for_later_is_timed(self):
        page, index = self.world.page([self.q])
        cursor = self.world.cursor(self.q)
        ref = self.world.load(self.q, page, index)
        ref.state, ref.due = SCHEDULED, self.world.now + 5000
        cursor.put_back(ref)
        self.assertEqual(cursor.timed_of(page), [index])
        self.assertEqual(page.soonest_due, ref.due)
        block = self.world.read(page, index)
        assert block is not None
        self.assertEqual((block.due(index), cursor.due(block, index)), (0, ref.due))

    def test_purge_skips_loaded_messages(self):
        positions = self.world.fill(self.q, 20)
        self.world.page([self.q], due=self.world.now + 1000)
        ref = self.world.load(self.q, *positions[7])
        cursor = self.world.cursor(self.q)
        self.assertEqual(sum(cursor.purge(Reason.KILLED)), 20)
        self.assertEqual(self.counts(), (1, 0, 0))
        self.assertEqual([page.number for page in self.world.pages.in_order()][0], positions[7][0].number)
        cursor.settle(ref, Reason.ACKNOWLEDGED)
        self.assertTrue(self.world.pages.empty)

    def test_cursor_of_a_deleted_queue_ignores_updates(self):
        positions = self.world.fill(self.q, 20)
        ref = self.world.load(self.q, *positions[0])
        cursor = self.world.cursor(self.q)
        self.world.pages.forget(self.q)
        self.assertTrue(self.world.pages.empty)
        cursor.settle(ref, Reason.ACKNOWLEDGED)
        cursor.put_back(ref)
        cursor.returned(ref)
        self.assertEqual((cursor.remaining, cursor.waiting, cursor.first(4)), (0, 0, None))


class FactsTest(CursorTest):
    """What the journal is told."""

    def test_settlements_of_one_turn_share_one_record(self):
        positions = self.world.fill(self.q, 3)
        refs = [self.world.load(self.q, *position) for position in positions]
        self.world.turn()
        for ref in refs:
            self.world.cursor(self.q).settle(ref, Reason.ACKNOWLEDGED)
        records = self.page_records()
        self.assertEqual(len(records), 1)
        _, reason, _, address, queue, page, now = PAGE_SETTLED.unpack_from(records[0])
        self.assertEqual(
            (reason, address, queue, page, now),
            (
                Reason.ACKNOWLEDGED,
                self.world.address("a").number,
                self.q.number,
                refs[0].position[0].number,
                self.world.now,
            ),
        )
        self.assertEqual(records[0][PAGE_SETTLED.size :], bytes([0, 0, 0, 0, 3, 0, 0, 0]))

    def test_each_reason_has_its_own_page_settled_record(self):
        page, _ = self.world.fill(self.q, 4)[0]
        cursor = self.world.cursor(self.q)
        cursor.settle_waiting(page, 0, Reason.REPLACED)
        cursor.settle_waiting(page, 2, Reason.EXPIRED)
        cursor.settle_waiting(page, 1, Reason.REPLACED)
        found = {record[1]: record[PAGE_SETTLED.size :] for record in self.page_records()}
        self.assertEqual(
            found,
            {
                Reason.REPLACED: bytes([0, 0, 0, 0, 2, 0, 0, 0]),
                Reason.EXPIRED: bytes([2, 0, 0, 0, 1, 0, 0, 0]),
            },
        )

    def test_non_durable_messages_and_queues_leave_no_page_records(self):
        (passing,) = self.world.queues("passing", durable=False)
        first = self.world.page([self.q], durable=False)
        second = self.world.page([passing])
        self.world.page([self.q])
        for queue, position in ((self.q, first), (passing, second)):
            ref = self.world.load(queue, *position)
            self.world.cursor(queue).returned(ref)
            self.world.cursor(queue).settle(ref, Reason.ACKNOWLEDGED)
        self.assertEqual(self.page_records(), [])

    def test_settlements_of_a_transaction_are_inside_its_record(self):
        """Even where the same turn has settled something in the same page before."""
        page, _ = self.world.fill(self.q, 3)[0]
        self.world.turn()
        cursor = self.world.cursor(self.q)
        cursor.settle_waiting(page, 0, Reason.ACKNOWLEDGED)
        self.world.store.begin()
        cursor.settle_waiting(page, 1, Reason.ACKNOWLEDGED)
        self.world.page([self.q])
        self.world.store.commit()
        self.world.turn()
        stream = self.world.journal.segments[-1]
        data = self.world.memory.data[stream.path]
        kinds = [Kind(data[begin]) for begin, _ in SegmentScan(data)]
        first, last = kinds.index(Kind.PAGE_SETTLED), kinds.index(Kind.TRANSACTION)
        self.assertLess(first, last)
        self.assertEqual(kinds.count(Kind.PAGE_SETTLED), 1)
        records = self.page_records()
        self.assertEqual(
            [record[PAGE_SETTLED.size :] for record in records],
            [bytes([0, 0, 0, 0, 1, 0, 0, 0]), bytes([1, 0, 0, 0, 1, 0, 0, 0])],
        )


class AcknowledgeTest(CursorTest):
    def test_a_run_is_settled_as_each_of_its_messages_would_be(self):
        positions = self.world.fill(self.q, 4, size=10)
        cursor = self.world.cursor(self.q)
        page = positions[0][0]
        self.assertEqual({where for where, _ in positions}, {page})
        cursor.acknowledge(page, 1, 3, durable=True)
        self.assertEqual((cursor.remaining, cursor.waiting, cursor.levels[4]), (2, 2, 2))
        self.assertEqual(cursor.states(page, 0, 4), bytes([5, 0, 0, 5]))
        (payload,) = self.page_records()
        self.assertEqual(payload[0], Kind.PAGE_SETTLED)
        self.assertEqual(payload[1], WENT_OUT | Reason.ACKNOWLEDGED)
        self.assertEqual(list(unpack_runs(payload[PAGE_SETTLED.size :])), [(1, 2)])

    def test_of_what_is_not_durable_nothing_is_recorded(self):
        positions = self.world.fill(self.q, 4, size=10, durable=False)
        self.world.cursor(self.q).acknowledge(positions[0][0], 0, 4, durable=False)
        self.assertEqual(self.page_records(), [])
        self.assertEqual(self.world.cursor(self.q).remaining, 0)

    def test_a_page_is_touched_once_a_delivery_has_come_back(self):
        (position,) = self.world.fill(self.q, 1)
        cursor = self.world.cursor(self.q)
        self.assertTrue(cursor.untouched(position[0]))
        ref = self.world.load(self.q, *position)
        ref.deliveries, ref.state = 1, PENDING
        cursor.put_back(ref)
        self.assertFalse(cursor.untouched(position[0]))
