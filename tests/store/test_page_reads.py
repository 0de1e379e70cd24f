"""Reading blocks: from files and from memory, once for all who ask, and what happens where a file cannot be read."""

from __future__ import annotations

import gc
from unittest.mock import patch

from twisted.trial.unittest import TestCase

from stompring.broker.reference import PENDING
from stompring.broker.storage import Reason
from stompring.store import page_reader
from stompring.store.page_reader import Block

from .disk import ImmediateDisk, ManualDisk
from .memory_files import broken
from .paged_broker import PagedBroker

BIG = {"#": {"page_size_bytes": 1 << 20, "auto_delete_queues": False}}


class ReadsTest(TestCase):
    def setUp(self):
        self.world = PagedBroker(settings=BIG)
        self.q, self.r = self.world.queues("q", "r")
        for module in ("page_reader",):
            patcher = patch(f"stompring.store.{module}.BLOCK_BYTES", 2048)
            patcher.start()
            self.addCleanup(patcher.stop)

    def ask(self, page, index):
        found: list[Block | None] = []
        self.world.pages.fetch(page, index, found.append)
        return found


class BlockTest(ReadsTest):
    def test_each_message_is_in_one_block(self):
        positions = self.world.fill(self.q, 60)
        self.world.turn()
        seen = 0
        while seen < 60:
            block = self.world.read(*positions[seen])
            assert block is not None
            self.assertEqual(block.first, seen)
            self.assertGreater(block.stop, seen + 3)
            for index in range(block.first, block.stop):
                self.assertTrue(block.message(index).body.startswith(b"%d " % index))
            seen = block.stop
        self.assertEqual(seen, 60)

    def test_unwritten_messages_are_read_from_memory(self):
        disk = ManualDisk()
        world = self.world = PagedBroker(settings=BIG, disk=disk)
        (q,) = world.queues("q")
        first = world.fill(q, 2)
        block = world.read(*first[0])
        assert block is not None
        world.turn()  # the write begins
        while disk.jobs:
            disk.step()
        more = world.fill(q, 2)  # one part is in the file, the other not
        world.turn()
        for place, position in enumerate(first + more):
            block = world.read(*position)
            assert block is not None
            self.assertTrue(block.message(position[1]).body.startswith(b"%d " % (place % 2)))
        self.assertEqual((block.first, block.stop), (0, 4))

    def test_the_end_that_has_grown_is_read_anew(self):
        positions = self.world.fill(self.q, 2)
        old = self.world.read(*positions[0])
        new_position = self.world.fill(self.q, 1)[0]
        new = self.world.read(*new_position)
        assert old is not None and new is not None
        self.assertEqual((old.stop, new.stop), (2, 3))

    def test_all_readers_share_one_message_object(self):
        page, index = self.world.page([self.q, self.r], b"x")
        self.world.turn()
        ref = self.world.load(self.q, page, index)
        ref.message.holders = 1
        gc.collect()
        self.assertEqual(len(page.blocks), 0)
        again = self.world.read(page, index)
        assert again is not None
        self.assertIs(again.message(index), ref.message)
        self.world.cursor(self.q).settle(ref, Reason.ACKNOWLEDGED)
        ref.message.holders = 0
        self.assertIsNot(again.message(index), ref.message)

    def test_messages_that_no_queue_holds_are_not_shared_for_long(self):
        page, _ = self.world.page([self.q, self.r], b"x")
        held = self.world.message("a", b"")
        held.holders = 1
        page.share(1000, held)
        for index in range(500):
            page.share(index, self.world.message("a", b""))
            self.assertLessEqual(len(page.shared), 64)
        self.assertIs(page.shared[1000], held)

    def test_a_message_of_one_queue_is_not_shared(self):
        page, index = self.world.page([self.q], b"x")
        self.world.load(self.q, page, index)
        self.assertEqual(page.shared, {})

    def test_referenced_block_is_not_read_again(self):
        page, index = self.world.page([self.q], b"x")
        block = self.world.read(page, index)
        reads = self.world.paging.reads.blocks_read
        again = self.world.read(page, index)
        assert block is not None and again is not None
        self.assertEqual(again.message(index).body, block.message(index).body)
        self.assertEqual(self.world.paging.reads.blocks_read, reads)

    def test_concurrent_requests_share_one_read(self):
        positions = self.world.fill(self.q, 3)
        self.world.turn()
        found = [self.ask(*position) for position in positions]
        self.world.turn()
        self.assertEqual(len({id(each[0]) for each in found}), 1)
        self.assertEqual(self.world.paging.reads.blocks_read, 1)

    def test_headers_without_a_message(self):
        due = self.world.now + 5000
        expires = self.world.now + 9000
        page, index = self.world.page(
            [self.q], b"x", due=due, expires=expires, headers={"color": "red"}, priority=7
        )
        self.world.page([self.q], b"y", headers={"color": "red"}, priority=7)
        block = self.world.read(page, index)
        assert block is not None
        self.assertEqual(
            (block.due(0), block.expires(0), block.due(1), block.expires(1)), (due, expires, 0, 0)
        )
        self.assertEqual(block.traits(0).block, b"color:red\n")
        self.assertIs(block.traits(0), block.traits(1))
        self.assertEqual(block.number_of(1), block.number_of(0) + 1)
        self.assertEqual(page.shared, {})
        self.assertIs(block.message(0).traits, block.traits(0))
        self.assertEqual((page.soonest_due, page.soonest_expiry), (due, expires))

    def test_read_messages_are_charged_to_the_configured_account(self):
        class Budget:
            def occupy(self, size): ...
            def release(self, size): ...

        self.world.paging.reads.account = budget = Budget()
        page, index = self.world.page([self.q], b"x")
        block = self.world.read(page, index)
        assert block is not None
        self.assertIs(block.message(index).account, budget)

    def test_evicted_page_starts_are_read_again(self):
        for _ in range(5):
            self.world.fill(self.q, 20)
            self.world.pages.roll()
        self.world.turn()
        pages = list(self.world.pages.in_order())
        with patch.object(page_reader, "CACHED_PAGE_STARTS", 1):
            for page in pages:
                page.starts = None
            for page in pages:
                self.assertIsNotNone(self.world.read(page, 19))
            self.assertEqual([page.starts is None for page in pages], [True] * 4 + [False])
            for page in pages:
                block = self.world.read(page, 7)
                assert block is not None
                self.assertTrue(block.message(7).body.startswith(b"7 "))

    def test_page_deleted_during_a_read_returns_none(self):
        reader = ManualDisk()
        self.world.paging.reads._reader = reader
        page, index = self.world.fill(self.q, 1)[0]
        self.world.pages.roll()
        self.world.turn()
        found = self.ask(page, index)
        self.world.turn()
        self.world.cursor(self.q).settle_waiting(page, index, Reason.KILLED)
        self.world.turn()
        reader.finish()
        self.world.turn()
        self.assertEqual(found, [None])
        self.assertEqual(self.world.paging.damaged_pages, 0)


class DamageTest(ReadsTest):
    """A page is found to be damaged while the broker runs."""

    def damage(self, path, at):
        self.world.turn()
        self.world.memory.contents[path].data[at] ^= 0xFF

    def test_readable_messages_are_delivered_and_damaged_ones_counted_as_lost(self):
        for at in range(40):
            self.world.page([self.q, self.r] if at % 2 else [self.q], b"%d " % at + bytes(98))
        (page,) = self.world.pages.in_order()
        held = self.world.load(self.r, page, 33)
        assert page.starts is not None
        starts = list(page.starts)
        for index, byte in ((7, 0), (20, 4), (33, 30), (39, 100)):
            self.damage(page.path, starts[index] + byte)
        with self.assertLogs("stompring.store.pages", "ERROR") as logs:
            left = [b"%d" % at for at in range(40) if at not in (7, 20, 33, 39)]
            self.assertEqual(self.world.drain(self.q), left)
        self.assertEqual(len(logs.output), 1)
        self.assertIn("4 of queue q", logs.output[0])
        self.assertIn("2 of queue r", logs.output[0])
        self.assertEqual(self.world.paging.lost_messages, 6)
        self.assertEqual(self.world.paging.damaged_pages, 1)
        self.assertEqual(self.world.drain(self.r), [body for body in left if int(body) % 2])
        self.assertEqual(self.world.cursor(self.r).remaining, 1)  # what is in memory is not lost
        held.state = PENDING
        self.world.cursor(self.r).put_back(held)
        self.assertIsNone(self.world.read(page, 33))
        self.assertEqual(self.world.cursor(self.r).remaining, 0)
        self.assertEqual(self.world.paging.lost_messages, 7)
        self.world.pages.roll()
        self.world.turn()
        self.assertEqual(self.world.page_files(), [page.path.name + ".invalidPage", "address.txt"])
        self.assertEqual(self.world.memory.open_files, 1)

    def test_a_file_that_was_cut_off(self):
        self.world.fill(self.q, 40)
        (page,) = self.world.pages.in_order()
        assert page.starts is not None
        self.world.turn()
        del self.world.memory.contents[page.path].data[page.starts[25] + 50 :]
        self.assertEqual(self.world.drain(self.q), [b"%d" % at for at in range(25)])
        self.assertEqual(self.world.paging.lost_messages, 15)
        self.world.fill(self.q, 3)
        self.assertEqual(len(self.world.drain(self.q)), 3)

    def test_lost_message_is_counted_once_across_restarts(self):
        self.world.fill(self.q, 20)
        (page,) = self.world.pages.in_order()
        assert page.starts is not None
        self.damage(page.path, page.starts[10] + 30)
        self.assertIsNone(self.world.read(page, 10))
        self.world.pages.roll()
        self.world.turn()
        again = self.world.again(settings=BIG)
        (q,) = again.queues("q")
        self.assertEqual(again.cursor(q).remaining, 19)
        self.assertEqual(again.drain(q), [b"%d" % at for at in range(20) if at != 10])
        self.assertEqual(again.paging.lost_messages, 0)

    def test_missing_page_file_counts_as_lost(self):
        positions = self.world.fill(self.q, 20)
        page = positions[0][0]
        self.world.pages.roll()
        self.world.turn()
        del self.world.memory.contents[page.path]
        self.assertIsNone(self.world.read(*positions[7]))
        self.assertEqual(self.world.cursor(self.q).remaining, 0)
        self.assertEqual(self.world.paging.lost_messages, 20)
        self.world.turn()
        self.assertTrue(page.gone)

    def test_a_passing_weakness_of_the_disk_loses_nothing(self):
        positions = self.world.fill(self.q, 20)
        self.world.turn()
        tries = 0

        def fault(operation, path):
            nonlocal tries
            if operation == "read" and path.suffix == ".page":
                tries += 1
                if tries < 3:
                    raise broken(path)

        self.world.memory.fault = fault
        found = self.ask(*positions[0])
        for _ in range(5):
            self.world.turn()
            self.world.clock.advance(1)
        self.assertEqual(tries, 3)
        self.assertIsNotNone(found[0])
        self.assertEqual(self.world.paging.lost_messages, 0)

    def test_persistent_read_errors_count_the_blocks_as_lost(self):
        positions = self.world.fill(self.q, 20)
        self.world.pages.roll()
        self.world.turn()

        def fault(operation, path):
            if operation == "read" and path.suffix == ".page":
                raise broken(path)

        self.world.memory.fault = fault
        found = [self.ask(*positions[place]) for place in (3, 9)]
        for _ in range(5):
            self.world.turn()
            self.world.clock.advance(1)
        self.assertEqual(found, [[None], [None]])
        self.assertEqual(self.world.paging.lost_messages, 16)  # of the two blocks
        self.world.memory.fault = lambda operation, path: None
        self.assertEqual(len(self.world.drain(self.q)), 4)

    def test_a_damaged_footer_does_no_harm(self):
        positions = self.world.fill(self.q, 20)
        page = positions[0][0]
        self.world.pages.roll()
        self.world.turn()
        self.damage(page.path, len(self.world.memory.contents[page.path].data) - 40)
        page.starts = None
        self.assertIsNotNone(self.world.read(*positions[7]))
        self.assertEqual(self.world.paging.lost_messages, 0)

    def test_reads_complete_with_an_immediate_reader(self):
        self.world.paging.reads._reader = ImmediateDisk(self.world.clock)
        positions = self.world.fill(self.q, 60)
        self.world.turn()
        found = [self.ask(*position) for position in positions]
        self.world.turn()
        for position, each in zip(positions, found, strict=True):
            assert each[0] is not None
            self.assertTrue(each[0].first <= position[1] < each[0].stop)
