"""Reading blocks: from files and from memory, once for all who ask, and what happens where a file cannot be read."""

import gc

import pytest

from stompring.broker.ports import Reason
from stompring.broker.reference import PENDING
from stompring.store import pages as pages_module

from .disk import ManualDisk
from .memory_files import broken
from .paged_broker import PagedBroker

BIG = {"#": {"page_size_bytes": 1 << 20, "auto_delete_queues": False}}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(pages_module, "BLOCK_BYTES", 2048)


@pytest.fixture
def world():
    return PagedBroker(settings=BIG)


def ask(world, page, index):
    found = []
    world.pages.fetch(page, index, found.append)
    return found


def test_each_message_is_in_one_block(world, q):
    positions = world.fill(q, 60)
    world.turn()
    seen = 0
    while seen < 60:
        block = world.read(*positions[seen])
        assert block.first == seen
        assert block.stop > seen + 3
        for index in range(block.first, block.stop):
            assert block.message(index).body.startswith(b"%d " % index)
        seen = block.stop
    assert seen == 60


def test_unwritten_messages_are_read_from_memory(world):
    disk = ManualDisk()
    world = PagedBroker(settings=BIG, disk=disk)
    (q,) = world.queues("q")
    first = world.fill(q, 2)
    block = world.read(*first[0])
    world.turn()  # the write begins
    while disk.jobs:
        disk.step()
    more = world.fill(q, 2)  # one part is in the file, the other not
    world.turn()
    for place, position in enumerate(first + more):
        block = world.read(*position)
        assert block.message(position[1]).body.startswith(b"%d " % (place % 2))
    assert (block.first, block.stop) == (0, 4)


def test_the_end_that_has_grown_is_read_anew(world, q):
    old = world.read(*world.fill(q, 2)[0])
    new = world.read(*world.fill(q, 1)[0])
    assert old is not None and new is not None
    assert (old.stop, new.stop) == (2, 3)


def test_all_readers_share_one_message_object(world, q, r):
    page, index = world.page([q, r], b"x")
    world.turn()
    ref = world.load(q, page, index)
    ref.message.holders = 1
    gc.collect()
    assert len(page.blocks) == 0
    again = world.read(page, index)
    assert again.message(index) is ref.message
    world.cursor(q).settle(ref, Reason.ACKNOWLEDGED)
    ref.message.holders = 0
    assert again.message(index) is not ref.message


def test_messages_that_no_queue_holds_are_not_shared_for_long(world, q, r):
    page, _ = world.page([q, r], b"x")
    held = world.message("a", b"")
    held.holders = 1
    page.share(1000, held)
    for index in range(500):
        page.share(index, world.message("a", b""))
        assert len(page.shared) <= 64
    assert page.shared[1000] is held


def test_a_message_of_one_queue_is_not_shared(world, q):
    page, index = world.page([q], b"x")
    world.load(q, page, index)
    assert page.shared == {}


def test_referenced_block_is_not_read_again(world, q):
    page, index = world.page([q], b"x")
    block = world.read(page, index)
    reads = world.paging.reads.blocks_read
    again = world.read(page, index)
    assert block is not None and again is not None
    assert again.message(index).body == block.message(index).body
    assert world.paging.reads.blocks_read == reads


def test_concurrent_requests_share_one_read(world, q):
    positions = world.fill(q, 3)
    world.turn()
    found = [ask(world, *position) for position in positions]
    world.turn()
    assert len({id(each[0]) for each in found}) == 1
    assert world.paging.reads.blocks_read == 1


def test_headers_without_a_message(world, q):
    due = world.now + 5000
    expires = world.now + 9000
    page, index = world.page([q], b"x", due=due, expires=expires, headers={"color": "red"}, priority=7)
    world.page([q], b"y", headers={"color": "red"}, priority=7)
    block = world.read(page, index)
    assert (block.due(0), block.expires(0), block.due(1), block.expires(1)) == (due, expires, 0, 0)
    assert block.traits(0).block == b"color:red\n"
    assert block.traits(0) is block.traits(1)
    assert block.number_of(1) == block.number_of(0) + 1
    assert page.shared == {}
    assert block.message(0).traits is block.traits(0)
    assert (page.soonest_due, page.soonest_expiry) == (due, expires)
    for number in (0, 1):
        message = block.message(number)
        assert block.tail(number) == (message.traits, message.tail, message.body_at, message.expires)


def test_read_messages_are_charged_to_the_configured_account(world, q):
    class Budget:
        def occupy(self, size): ...
        def release(self, size): ...

    world.paging.reads.account = budget = Budget()
    page, index = world.page([q], b"x")
    assert world.read(page, index).message(index).account is budget


def test_evicted_page_starts_are_read_again(world, q, monkeypatch):
    for _ in range(5):
        world.fill(q, 20)
        world.pages.roll()
    world.turn()
    pages = list(world.pages.in_order())
    monkeypatch.setattr(pages_module, "CACHED_PAGE_STARTS", 1)
    for page in pages:
        page.starts = None
    for page in pages:
        assert world.read(page, 19) is not None
    assert [page.starts is None for page in pages] == [True] * 4 + [False]
    for page in pages:
        assert world.read(page, 7).message(7).body.startswith(b"7 ")


def test_page_deleted_during_a_read_returns_none():
    world = PagedBroker(settings=BIG, reader=(reader := ManualDisk()))
    (q,) = world.queues("q")
    page, index = world.fill(q, 1)[0]
    world.roll()
    found = ask(world, page, index)
    world.turn()
    world.cursor(q).settle_waiting(page, index, Reason.KILLED)
    world.turn()
    reader.finish()
    world.turn()
    assert found == [None]
    assert world.paging.damaged_pages == 0


def damage(world, path, at):
    world.turn()
    world.memory.contents[path].data[at] ^= 0xFF


def test_readable_messages_are_delivered_and_damaged_ones_counted_as_lost(world, q, r, caplog):
    for at in range(40):
        world.page([q, r] if at % 2 else [q], b"%d " % at + bytes(98))
    (page,) = world.pages.in_order()
    held = world.load(r, page, 33)
    starts = list(page.starts)
    for index, byte in ((7, 0), (20, 4), (33, 30), (39, 100)):
        damage(world, page.path, starts[index] + byte)
    left = [b"%d" % at for at in range(40) if at not in (7, 20, 33, 39)]
    assert world.drain(q) == left
    (logged,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "4 of queue q" in logged and "2 of queue r" in logged
    assert world.paging.lost_messages == 6
    assert world.paging.damaged_pages == 1
    assert world.drain(r) == [body for body in left if int(body) % 2]
    assert world.cursor(r).remaining == 1  # what is in memory is not lost
    held.state = PENDING
    world.cursor(r).put_back(held)
    assert world.read(page, 33) is None
    assert world.cursor(r).remaining == 0
    assert world.paging.lost_messages == 7
    world.roll()
    assert world.page_files() == [page.path.name + ".invalidPage", "address.txt"]
    assert world.memory.open_files == 1


def test_a_file_that_was_cut_off(world, q):
    world.fill(q, 40)
    (page,) = world.pages.in_order()
    world.turn()
    del world.memory.contents[page.path].data[page.starts[25] + 50 :]
    assert world.drain(q) == [b"%d" % at for at in range(25)]
    assert world.paging.lost_messages == 15
    world.fill(q, 3)
    assert len(world.drain(q)) == 3


def test_lost_message_is_counted_once_across_restarts(world, q):
    world.fill(q, 20)
    (page,) = world.pages.in_order()
    damage(world, page.path, page.starts[10] + 30)
    assert world.read(page, 10) is None
    world.pages.roll()
    again = world.restarted(settings=BIG)
    (q,) = again.queues("q")
    assert again.cursor(q).remaining == 19
    assert again.drain(q) == [b"%d" % at for at in range(20) if at != 10]
    assert again.paging.lost_messages == 0


def test_missing_page_file_counts_as_lost(world, q):
    positions = world.fill(q, 20)
    page = positions[0][0]
    world.roll()
    del world.memory.contents[page.path]
    assert world.read(*positions[7]) is None
    assert world.cursor(q).remaining == 0
    assert world.paging.lost_messages == 20
    world.turn()
    assert page.gone


def test_a_passing_weakness_of_the_disk_loses_nothing(world, q):
    positions = world.fill(q, 20)
    world.turn()
    tries = 0

    def fault(operation, path):
        nonlocal tries
        if operation == "read" and path.suffix == ".page":
            tries += 1
            if tries < 3:
                raise broken(path)

    world.memory.fault = fault
    found = ask(world, *positions[0])
    for _ in range(5):
        world.turn()
        world.clock.advance(1)
    assert tries == 3
    assert found[0] is not None
    assert world.paging.lost_messages == 0


def test_persistent_read_errors_count_the_blocks_as_lost(world, q):
    positions = world.fill(q, 20)
    world.roll()

    world.memory.fail("read", ".page")
    found = [ask(world, *positions[place]) for place in (3, 9)]
    for _ in range(5):
        world.turn()
        world.clock.advance(1)
    assert found == [[None], [None]]
    assert world.paging.lost_messages == 16  # of the two blocks
    world.memory.heal()
    assert len(world.drain(q)) == 4


def test_a_damaged_footer_does_no_harm(world, q):
    positions = world.fill(q, 20)
    page = positions[0][0]
    world.roll()
    damage(world, page.path, len(world.memory.contents[page.path].data) - 40)
    page.starts = None
    assert world.read(*positions[7]) is not None
    assert world.paging.lost_messages == 0


def test_reads_complete_with_an_immediate_reader(world, q):
    positions = world.fill(q, 60)
    world.turn()
    found = [ask(world, *position) for position in positions]
    world.turn()
    for position, each in zip(positions, found, strict=True):
        assert each[0].first <= position[1] < each[0].stop
