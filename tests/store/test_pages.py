"""The pages of one address: what is written, when a new file begins, and when files go."""

from dataclasses import replace

from stompring.broker.ports import Reason
from stompring.store.page_file import PageScan, page_path
from stompring.store.pages import CACHED_PAGE_STARTS, EXPANDED_STATES, QueuePageState
from stompring.store.segment import HEADER, PAGE, Header, find_footer

from .disk import ManualDisk
from .memory_files import out_of_space
from .paged_broker import PAGING, PagedBroker


def content(world, number):
    world.turn()
    return world.memory.data[page_path(world.pages.directory, number)]


def test_a_page_can_be_read_alone(world, q, r):
    page, _ = world.page([q], b"x")
    world.page([q, r], b"y")
    data = content(world, page.number)
    header = Header.read(data)
    assert (header.kind, header.next_number, header.fault) == (PAGE, page.first_number, None)
    scan = PageScan(data)
    assert (scan.name, scan.address) == ("a", world.address("a").number)
    for queue in (q, r):
        assert data.count(queue.number.to_bytes(4, "little") + queue.name.encode()) == 1
    assert scan.contents.starts[0] > HEADER.size


def test_the_name_of_the_address_stands_in_its_directory(world, q):
    world.page([q])
    world.turn()
    assert world.memory.data[world.pages.directory / "address.txt"] == b"a"
    assert world.pages.directory.parent == PAGING


def test_a_new_file_begins_before_one_is_too_long(world, q):
    world.fill(q, 50)
    pages = world.pages
    assert pages.count > 5
    numbers = [page.number for page in pages.in_order()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    for page in pages.in_order():
        assert page.end <= 1024
    for page in list(pages.in_order())[:-1]:
        assert page.end > 1024 - 400


def test_a_message_longer_than_a_page_has_one_of_its_own(world, q):
    positions = [world.page([q], bytes(size)) for size in (1, 5000, 1)]
    assert [page.count for page, _ in positions] == [1, 1, 1]


def test_a_new_page_size_is_in_force_at_once(world, q):
    world.fill(q, 10)
    before = world.pages.count
    address = world.address("a")
    address.apply(replace(address.settings, page_size_bytes=1 << 20))
    world.fill(q, 100)
    assert world.pages.count <= before + 1


def test_a_complete_page_is_sealed(world, q):
    world.fill(q, 3)
    page = world.pages.in_order()[-1]
    world.pages.roll()
    footer = find_footer(content(world, page.number))
    assert len(footer.starts) == page.count
    assert page.sealed
    assert page.contents is None
    world.fill(q, 1)
    assert world.pages.in_order()[-1] is not page


def test_a_clean_stop_seals_the_last_page(world, q):
    page, _ = world.fill(q, 3)[0]
    world.stop()
    assert find_footer(world.memory.data[page.path]) is not None
    assert world.memory.open_files == 1  # the journal's


def test_what_is_durable_is_synced_before_the_receipt(world, q):
    (passing,) = world.queues("passing", durable=False)
    world.page([q], durable=False)  # the journal is told that the page is there
    for queue, durable, sync in ((q, False, 0), (passing, True, 0), (q, True, 1)):
        world.turn()
        world.memory.operations.clear()
        world.page([queue], durable=durable)
        heard = world.synced()
        assert len(heard) == 1 - sync
        world.turn()
        assert heard == [True]
        name = world.pages.in_order()[-1].path.name
        assert world.memory.operations.count(("sync", name)) == sync


def test_a_store_that_does_not_sync_leaves_it_to_the_system(world, q):
    world.paging.sync = False
    world.page([q])
    world.turn()
    name = world.pages.in_order()[-1].path.name
    assert ("sync", name) not in world.memory.operations


def test_unused_pages_use_little_memory():
    world = PagedBroker(settings={"#": {"page_size_bytes": 100_000, "auto_delete_queues": False}})
    queues = world.queues("q", "r", "s")
    message = world.message("a", b"x" * 50, durable=True)
    while world.pages.count < 40:
        for _ in range(400):
            world.pages.append(message, queues)
        world.turn()
    pages = list(world.pages.in_order())[:-1]
    messages = sum(page.count for page in pages)
    assert messages > 10_000
    assert [page for page in pages if page.contents is not None] == []
    assert [page for page in pages if page.stream is None or page.stream.seal is not None] == []
    assert sum(page.starts is not None for page in pages) <= CACHED_PAGE_STARTS
    page_states = [holding for page in pages for holding in page.page_states]
    assert sum(bool(holding.states) for holding in page_states) <= EXPANDED_STATES * len(queues)
    packed = sum(len(holding._packed) for holding in page_states)
    assert packed < messages * len(queues) / 5
    assert [world.cursor(queue).waiting_of(pages[7]) for queue in queues] == [[*range(pages[7].count)]] * 3


def files(world):
    world.turn()
    return [int(name[:9]) for name in world.page_files() if name.endswith(".page")]


def test_page_is_deleted_after_its_settlements_are_synced():
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
    assert page.gone
    world.turn()
    assert page.path in world.memory.contents
    disk.step()
    assert page.path in world.memory.contents  # the facts are safe now
    world.turn()
    disk.finish()
    assert page.path not in world.memory.contents


def test_without_purge_the_directory_stays_until_a_start(world, q):
    world.paging.purge = False
    world.fill(q, 20)
    world.drain(q)
    world.close_pages()
    assert world.page_files() == ["address.txt"]
    assert world.again().page_files() == []


def test_an_address_that_pages_again_at_once_keeps_its_name(world, q):
    world.fill(q, 3)
    world.drain(q)
    world.paging.close(world.pages)
    world.address("a").pages = None
    world.fill(q, 3)
    world.turn()
    assert "address.txt" in world.page_files()
    assert len(files(world)) == 1


def test_records_of_deleted_pages_retain_no_segment():
    world = PagedBroker(journal_file_size=2048)
    (q,) = world.queues("q")
    for _ in range(80):
        world.fill(q, 5)
        for ref in [world.first(q) for _ in range(5)]:
            world.cursor(q).settle(ref, Reason.ACKNOWLEDGED)
            world.turn()
    assert world.journal.segments[-1].number > 5
    kept = {kept for segment in world.journal.segments for kept in segment.live}
    there = {holding for page in world.pages.in_order() for holding in page.page_states}
    assert {each for each in kept if isinstance(each, QueuePageState)} <= there


def test_a_deleted_queues_facts_hold_no_segment(world, q, r):
    positions = world.fill(q, 3)
    world.page([r])
    world.turn()
    world.cursor(q).settle_waiting(*positions[0], Reason.KILLED)
    world.pages.forget(q)  # what it has told is not written yet
    world.turn()
    kept = [kept for segment in world.journal.segments for kept in segment.live]
    assert not [each for each in kept if isinstance(each, QueuePageState)]


def test_a_full_disk_loses_nothing():
    world = PagedBroker()
    (q,) = world.queues("q")
    world.turn()
    world.memory.fail("write", ".page", out_of_space)
    world.fill(q, 10)
    world.turn()
    assert "No space" in (world.writer.failing or "")
    assert world.drain(q) == [b"%d" % at for at in range(10)]  # from memory
    world.fill(q, 10)
    world.memory.heal()
    world.clock.advance(2)
    world.turn()
    assert world.writer.failing is None
    again = world.again()
    (q,) = again.queues("q")
    assert again.drain(q) == [b"%d" % at for at in range(10)]
