"""The pages of one address: what is written, when a new file begins, and when files go."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import TestCase

from stompring.broker.storage import Reason
from stompring.store.cursor import EXPANDED_STATES, QueuePageState
from stompring.store.page_file import PageScan, page_path
from stompring.store.page_reader import CACHED_PAGE_STARTS
from stompring.store.segment import HEADER, PAGE, Header, find_footer

from .disk import ManualDisk
from .memory_files import out_of_space
from .paged_broker import PAGING, PagedBroker


class WritingTest(TestCase):
    def setUp(self):
        self.world = PagedBroker()
        self.q, self.r = self.world.queues("q", "r")

    def data(self, number):
        self.world.turn()
        return self.world.memory.data[page_path(self.world.pages.directory, number)]

    def test_a_page_can_be_read_alone(self):
        page, _ = self.world.page([self.q], b"x")
        self.world.page([self.q, self.r], b"y")
        data = self.data(page.number)
        header = Header.read(data)
        self.assertEqual((header.kind, header.next_number, header.fault), (PAGE, page.first_number, None))
        scan = PageScan(data)
        self.assertEqual((scan.name, scan.address), ("a", self.world.address("a").number))
        for queue in (self.q, self.r):
            self.assertEqual(data.count(queue.number.to_bytes(4, "little") + queue.name.encode()), 1)
        self.assertGreater(scan.contents.starts[0], HEADER.size)

    def test_the_name_of_the_address_stands_in_its_directory(self):
        self.world.page([self.q])
        self.world.turn()
        self.assertEqual(self.world.memory.data[self.world.pages.directory / "address.txt"], b"a")
        self.assertEqual(self.world.pages.directory.parent, PAGING)

    def test_a_new_file_begins_before_one_is_too_long(self):
        self.world.fill(self.q, 50)
        pages = self.world.pages
        self.assertGreater(pages.count, 5)
        numbers = [page.number for page in pages.in_order()]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        for page in pages.in_order():
            self.assertLessEqual(page.end, 1024)
        for page in list(pages.in_order())[:-1]:
            self.assertGreater(page.end, 1024 - 400)

    def test_a_message_longer_than_a_page_has_one_of_its_own(self):
        positions = [self.world.page([self.q], bytes(size)) for size in (1, 5000, 1)]
        self.assertEqual([page.count for page, _ in positions], [1, 1, 1])

    def test_a_new_page_size_is_in_force_at_once(self):
        self.world.fill(self.q, 10)
        before = self.world.pages.count
        address = self.world.address("a")
        address.apply(replace(address.settings, page_size_bytes=1 << 20))
        self.world.fill(self.q, 100)
        self.assertLessEqual(self.world.pages.count, before + 1)

    def test_a_complete_page_is_sealed(self):
        self.world.fill(self.q, 3)
        page = self.world.pages.in_order()[-1]
        self.world.pages.roll()
        data = self.data(page.number)
        footer = find_footer(data)
        assert footer is not None
        self.assertEqual(len(footer.starts), page.count)
        self.assertTrue(page.sealed)
        self.assertIsNone(page.contents)
        self.world.fill(self.q, 1)
        self.assertIsNot(self.world.pages.in_order()[-1], page)

    def test_a_clean_stop_seals_the_last_page(self):
        page, _ = self.world.fill(self.q, 3)[0]
        self.world.stop()
        self.assertIsNotNone(find_footer(self.world.memory.data[page.path]))
        self.assertEqual(self.world.memory.open_files, 1)  # the journal's

    def test_durable_messages_are_synced_before_the_receipt(self):
        self.world.page([self.q], durable=False)  # the journal is told that the page is there
        for durable, expected in ((False, 0), (True, 1)):
            self.world.turn()
            self.world.memory.operations.clear()
            self.world.page([self.q], durable=durable)
            heard: list[bool] = []
            self.world.store.when_synced(lambda heard=heard: heard.append(True))
            self.assertEqual(len(heard), 1 - expected)
            self.world.turn()
            self.assertEqual(heard, [True])
            name = self.world.pages.in_order()[-1].path.name
            self.assertEqual(self.world.memory.operations.count(("sync", name)), expected)

    def test_a_store_that_does_not_sync_leaves_it_to_the_system(self):
        self.world.paging.sync = False
        self.world.page([self.q])
        self.world.turn()
        name = self.world.pages.in_order()[-1].path.name
        self.assertNotIn(("sync", name), self.world.memory.operations)

    def test_a_queue_that_is_not_durable_needs_no_sync(self):
        (passing,) = self.world.queues("passing", durable=False)
        self.world.page([passing])
        self.world.turn()
        name = self.world.pages.in_order()[-1].path.name
        self.assertNotIn(("sync", name), self.world.memory.operations)


class MemoryTest(TestCase):
    def test_unused_pages_use_little_memory(self):
        world = PagedBroker(settings={"#": {"page_size_bytes": 100_000, "auto_delete_queues": False}})
        queues = world.queues("q", "r", "s")
        message = world.message("a", b"x" * 50, durable=True)
        while world.pages.count < 40:
            for _ in range(400):
                world.pages.append(message, queues)
            world.turn()
        pages = list(world.pages.in_order())[:-1]
        messages = sum(page.count for page in pages)
        self.assertGreater(messages, 10_000)
        self.assertEqual([page for page in pages if page.contents is not None], [])
        self.assertEqual([page for page in pages if page.stream is None or page.stream.seal is not None], [])
        self.assertLessEqual(sum(page.starts is not None for page in pages), CACHED_PAGE_STARTS)
        page_states = [holding for page in pages for holding in page.page_states]
        self.assertLessEqual(
            sum(bool(holding.states) for holding in page_states), EXPANDED_STATES * len(queues)
        )
        packed = sum(len(holding._packed) for holding in page_states)
        self.assertLess(packed, messages * len(queues) / 5)
        self.assertEqual(
            [world.cursor(queue).waiting_of(pages[7]) for queue in queues], [[*range(pages[7].count)]] * 3
        )


class DeletingTest(TestCase):
    def setUp(self):
        self.world = PagedBroker()
        self.q, self.r = self.world.queues("q", "r")

    def files(self):
        self.world.turn()
        return [int(name[:9]) for name in self.world.page_files() if name.endswith(".page")]

    def test_page_is_deleted_after_its_settlements_are_synced(self):
        disk = ManualDisk()
        world = PagedBroker(disk=disk)
        (q,) = world.queues("q")
        page, _ = world.fill(q, 3)[0]
        world.pages.roll()
        for _ in range(2):  # it is complete, and the journal is told so
            world.turn()
            disk.finish()
        world.turn()
        list(world.cursor(q).purge(Reason.KILLED))
        self.assertTrue(page.gone)
        world.turn()
        self.assertIn(page.path, world.memory.contents)
        disk.step()
        self.assertIn(page.path, world.memory.contents)  # the facts are safe now
        world.turn()
        disk.finish()
        self.assertNotIn(page.path, world.memory.contents)

    def test_without_purge_the_directory_stays(self):
        self.world.paging.purge = False
        self.world.fill(self.q, 20)
        self.world.drain(self.q)
        self.world.paging.close(self.world.pages)
        self.world.address("a").pages = None
        self.world.turn()
        self.assertEqual(self.world.page_files(), ["address.txt"])

    def test_an_address_that_pages_again_at_once_keeps_its_name(self):
        self.world.fill(self.q, 3)
        self.world.drain(self.q)
        self.world.paging.close(self.world.pages)
        self.world.address("a").pages = None
        self.world.fill(self.q, 3)
        self.world.turn()
        self.assertIn("address.txt", self.world.page_files())
        self.assertEqual(len(self.files()), 1)

    def test_records_of_deleted_pages_retain_no_segment(self):
        world = PagedBroker(journal_file_size=2048)
        (q,) = world.queues("q")
        for _ in range(80):
            world.fill(q, 5)
            for ref in [world.first(q) for _ in range(5)]:
                assert ref is not None
                world.cursor(q).settle(ref, Reason.ACKNOWLEDGED)
                world.turn()
        self.assertGreater(world.journal.segments[-1].number, 5)
        kept = {kept for segment in world.journal.segments for kept in segment.live}
        there = {holding for page in world.pages.in_order() for holding in page.page_states}
        self.assertLessEqual({each for each in kept if isinstance(each, QueuePageState)}, there)

    def test_a_deleted_queues_facts_hold_no_segment(self):
        positions = self.world.fill(self.q, 3)
        self.world.page([self.r])
        self.world.turn()
        self.world.cursor(self.q).settle_waiting(*positions[0], Reason.KILLED)
        self.world.pages.forget(self.q)  # what it has told is not written yet
        self.world.turn()
        kept = [kept for segment in self.world.journal.segments for kept in segment.live]
        self.assertFalse([each for each in kept if isinstance(each, QueuePageState)])


class FailingTest(TestCase):
    def test_a_full_disk_loses_nothing(self):
        world = PagedBroker()
        (q,) = world.queues("q")
        world.turn()
        failing = True

        def fault(operation, path):
            if failing and operation == "write" and str(path).endswith(".page"):
                raise out_of_space(path)

        world.memory.fault = fault
        world.fill(q, 10)
        world.turn()
        self.assertIn("No space", world.writer.failing or "")
        self.assertEqual(world.drain(q), [b"%d" % at for at in range(10)])  # from memory
        world.fill(q, 10)
        failing = False
        world.clock.advance(2)
        world.turn()
        self.assertIsNone(world.writer.failing)
        again = world.again()
        (q,) = again.queues("q")
        self.assertEqual(again.drain(q), [b"%d" % at for at in range(10)])

    def test_short_writes_are_finished(self):
        world = PagedBroker()
        (q,) = world.queues("q")
        world.memory.most_per_write = 7
        world.fill(q, 20)
        world.turn()
        world.memory.most_per_write = None
        again = world.again()
        (q,) = again.queues("q")
        self.assertEqual(again.drain(q), [b"%d" % at for at in range(20)])
