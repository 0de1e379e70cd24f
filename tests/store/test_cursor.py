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

    def page_records(self):
        self.world.turn()
        replay = Replay(self.world.memory.kill(), self.world.journal.directory)
        replay.read()
        return [payload for _, payload in replay.page_records]


class FindingTest(CursorTest):
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
