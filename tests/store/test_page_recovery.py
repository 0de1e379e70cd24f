"""Pages after a restart: what is left in them, numbers, transactions, and files that are damaged or missing."""

import logging
from random import Random

import pytest

from stompring.broker.ports import Reason
from stompring.broker.reference import PENDING
from stompring.errors import StoreError
from stompring.settings.model import RoutingType
from stompring.store.bindings import describe_address, describe_queue
from stompring.store.pages import QueueRemoved
from stompring.store.record import ADDRESS, QUEUE, Kind
from stompring.store.replay import Replay
from stompring.store.segment import SegmentScan, find_footer

from ..broker.broker_fixture import numbered
from .memory_files import MemoryFiles
from .paged_broker import PAGING, SETTINGS, PagedBroker
from .stored_broker import JOURNAL

WIDE = {"#": {"page_size_bytes": 1 << 20, "auto_delete_queues": False, "auto_delete_addresses": False}}


def filled(count=20, settings=SETTINGS, names=("q",)):
    world = PagedBroker(settings=settings)
    queues = world.queues(*names)
    for at in range(count):
        world.page(queues, b"%d " % at + bytes(98))
    world.turn()
    return world, queues


def page_paths(files):
    return sorted(path for path in files.contents if path.suffix == ".page")


# ---- whole pages


@pytest.mark.parametrize("stop", [True, False])
def test_restart_seals_the_last_page_and_begins_a_new_one(stop):
    """PD-4."""
    world, (q,) = filled(5, WIDE)
    (page,) = world.pages.in_order()
    if stop:
        world.stop()
    again = world.again()
    (q,) = again.queues("q")
    assert find_footer(again.memory.data[page.path]) is not None
    new, index = again.page([q], b"5 ")
    assert (new.number, index) == (page.number + 1, 0)
    assert again.drain(q) == numbered(6)


def test_requeued_message_that_was_due_is_not_scheduled_again():
    world, (q,) = filled(1, WIDE)
    page, index = world.page([q], due=world.now + 1000)
    ref = world.load(q, page, index)
    ref.deliveries, ref.state = 1, PENDING
    world.cursor(q).returned(ref)
    again = world.restarted()
    (q,) = again.queues("q")
    assert again.cursor(q).waiting_of(again.pages.in_order()[0]) == [0, 1]


# ---- transactions


@pytest.mark.parametrize("sealed", [True, False])
def test_a_transaction_that_did_not_get_to_the_journal_never_was(sealed):
    world, (q,) = filled(2, WIDE)
    files = world.memory

    files.fail("write", ".journal")
    world.store.begin()
    world.page([q], b"2 ")
    world.page([q], b"3 ")
    world.store.commit()
    if sealed:
        world.pages.roll()
    world.turn()
    assert b"3 \0\n" in b"".join(files.data.values())
    for _ in range(3):
        world = world.again(files.kill())
        (q,) = world.queues("q")
        assert world.cursor(q).remaining == 2
        world.store.begin()
        page, index = world.page([q])  # later transactions make no difference
        world.store.commit()
        world.turn()
        world.cursor(q).settle_waiting(page, index, Reason.KILLED)
        world.turn()
        files = world.memory
    assert world.drain(q) == numbered(2)


# ---- damage


def damaged(change, count=20):
    """A broker that was started after a change to the files; what it has said."""
    world, _ = filled(count)
    files = world.memory.kill()
    change(files, page_paths(files))
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    log = logging.getLogger("stompring.store")
    log.addHandler(handler)
    try:
        again = world.again(files)
    finally:
        log.removeHandler(handler)
    return again, again.queues("q")[0], heard


def with_content(place, data):
    def change(files, paths):
        files.contents[paths[place]].data[:] = data

    return change


@pytest.mark.parametrize("place", [0, 2, -1])
@pytest.mark.parametrize("data", [b"", b"0123456789", bytes(5000), Random(1).randbytes(5000)], ids=len)
def test_a_page_of_garbage_is_set_aside(place, data):
    """PD-2."""
    world, q, heard = damaged(with_content(place, data))
    numbers = [int(body) for body in world.drain(q)]
    assert numbers == sorted(numbers)
    assert 20 - 4 <= len(numbers) < 20
    if place == -1 and not data:  # it was only begun, as far as one can tell
        assert [text for text in heard if "removed incomplete page file" in text]
        return
    path = next(path for path in world.memory.contents if path.name.startswith(page_name(place)))
    assert path.name.endswith(".page.invalidPage")
    assert sum(path.name in text or path.name[:14] in text for text in heard) == 1
    assert world.paging.damaged_pages == 1
    world.turn()
    assert world.pages.empty
    assert [name for name in world.page_files() if name.endswith(".page")] == []


def page_name(place):
    world, _ = filled()
    return page_paths(world.memory)[place].name


def test_a_page_of_garbage_is_set_aside_even_if_something_of_that_name_is_there():
    def change(files, paths):
        files.contents[paths[1].with_name(paths[1].name + ".invalidPage")] = files.contents[paths[0]]
        files.contents[paths[1]].data[:] = b"0123456789"

    world, _, _ = damaged(change)
    assert [name for name in world.page_files() if "invalid" in name] == [
        "000000002.page.invalidPage",
        "000000002.page.invalidPage.2",
    ]


@pytest.mark.parametrize("sealed", [True, False])
def test_damage_to_one_message_loses_that_one(sealed):
    """PD-3: more than asked for there, as messages behind it are not lost."""
    world, (q,) = filled(10, WIDE)
    (page,) = world.pages.in_order()
    at = page.starts[4] + 100
    world.cursor(q).settle_waiting(page, 7, Reason.ACKNOWLEDGED)
    world.turn()
    if sealed:
        world.roll()
    files = world.memory.kill()
    files.contents[page.path].data[at] ^= 1
    for _ in range(2):
        world = world.again(files)
        (q,) = world.queues("q")
        files = world.memory.kill()
    assert world.drain(q) == [b"%d" % each for each in (0, 1, 2, 3, 5, 6, 8, 9)]
    world.roll()
    assert world.page_files() == [page.path.name + ".invalidPage", "address.txt"]


@pytest.mark.parametrize("settled", [False, True])
def test_behind_a_gap_of_unknown_length_nothing_is_mistaken(settled):
    world, (q,) = filled(10, WIDE)
    (page,) = world.pages.in_order()
    if settled:
        world.cursor(q).settle_waiting(page, 7, Reason.ACKNOWLEDGED)
    world.turn()
    files = world.memory.kill()
    files.contents[page.path].data[page.starts[3] : page.starts[5] + 90] = bytes(
        page.starts[5] + 90 - page.starts[3]
    )
    again = world.again(files)
    (q,) = again.queues("q")
    expected = (0, 1, 2) if settled else (0, 1, 2, 6, 7, 8, 9)
    assert again.drain(q) == [b"%d" % each for each in expected]
    assert again.paging.damaged_pages == 1


def test_the_journal_knows_more_than_is_there():
    world, (q,) = filled(10, WIDE)
    (page,) = world.pages.in_order()
    world.cursor(q).settle_waiting(page, 9, Reason.ACKNOWLEDGED)
    world.turn()
    files = world.memory.kill()
    del files.contents[page.path].data[page.starts[6] :]
    again = world.again(files)
    assert again.paging.damaged_pages == 1
    assert again.drain(again.queues("q")[0]) == numbered(6)


def test_a_queue_that_the_journal_has_lost_is_made_anew():
    """Only its pages know it; what is not durable stays gone."""
    world, (q,) = filled(5, WIDE)
    (passing,) = world.queues("passing", durable=False)
    world.page([q, passing], b"5 ")
    world.cursor(q).settle_waiting(world.pages.in_order()[0], 0, Reason.ACKNOWLEDGED)
    world.turn()
    files = world.memory.kill()
    content = next(files.contents[path] for path in files.contents if path.suffix == ".journal")
    for begin, _ in list(SegmentScan(bytes(content.data))):
        if content.data[begin] == Kind.BINDING and content.data[begin + 1] == QUEUE:
            content.data[begin + 3] ^= 1
    again = world.again(files)
    assert list(again.directory.queues) == ["q"]
    queue = again.directory.queues["q"]
    assert (queue.number, queue.durable, queue.address.name) == (q.number, True, "a")
    assert again.drain(queue) in (numbered(6), numbered(6)[1:])  # what it had settled may be lost too


def killed_before_the_journal(world):
    """What a kill leaves after a page was written and before the journal is, with the next turn."""
    files, left = world.memory, []

    def watch(operation, path):
        if operation == "write" and path.suffix == ".journal" and page_paths(files) and not left:
            left.append(files.kill())

    files.fault = watch
    return left


def bindings_in(data):
    """What the BINDING records of a file are about."""
    return [data[begin + 1] for begin, _ in SegmentScan(data) if data[begin] == Kind.BINDING]


def test_queue_is_recovered_from_the_binding_in_its_first_page():
    """The journal, which is written after pages, has never heard of it or its address."""
    world = PagedBroker(settings=WIDE)
    left = killed_before_the_journal(world)
    q = world.queue(
        "q",
        "a",
        RoutingType.MULTICAST,
        max_consumers=3,
        filter="colour = 'red'",
        auto_created=True,
        user="anna",
    )
    wild = world.queue("w", "*", RoutingType.MULTICAST, max_consumers=4)
    q.pause()
    q.no_local = "somebody"
    for at in range(5):
        world.page([q, wild], b"%d " % at)
    world.turn()
    again = world.again(left[0])
    for _ in range(2):  # and the journal knows it from then on
        assert again.store.damaged == []
        for queue in (q, wild):
            found = again.directory.queues[queue.name]
            assert (found.number, describe_queue(found)) == (queue.number, describe_queue(queue))
            assert describe_address(found.address) == describe_address(queue.address)
            assert again.cursor(found).remaining == 5
        again = again.again()
    assert again.drain(again.directory.queues["q"]) == numbered(5)


def test_page_repeats_only_unsynced_bindings():
    world = PagedBroker(settings={"#": {"page_size_bytes": 4096}})
    (q,) = world.new_queues("q")
    world.fill(q, 12, 1000)
    new = world.pages.count
    world.turn()
    q.pause()  # it is described anew, but on disk already
    world.fill(q, 12, 1000)
    world.pages.roll()
    (r,) = world.new_queues("r")
    both = world.page([q, r])[0]
    world.turn()
    world.pages.roll()
    after = world.page([q, r])[0]
    world.turn()
    found = {page: bindings_in(world.memory.data[page.path]) for page in world.pages.in_order()}
    assert len(found) > new + 4 > 6
    for page in world.pages.in_order()[:new]:
        assert found.pop(page) == [ADDRESS, QUEUE]
    assert found.pop(both) == [QUEUE] and found[after] == []
    assert not any(found.values())


def test_a_transaction_that_was_not_committed_makes_no_queue():
    world = PagedBroker(settings=WIDE)
    left = killed_before_the_journal(world)
    world.store.begin()
    (q,) = world.new_queues("q")
    world.page([q])
    world.store.commit()
    world.turn()
    assert "q" not in world.again(left[0]).directory.queues


def test_an_uncommitted_message_does_not_come_back_with_a_queue_that_only_its_page_knows():
    """The first start settles it in the journal: for the second one all earlier transactions are complete."""
    world = PagedBroker(settings=WIDE)
    left = killed_before_the_journal(world)
    (q,) = world.new_queues("q")
    world.page([q], b"0 ")
    world.store.begin()
    world.page([q], b"1 ")
    world.store.commit()
    world.page([q], b"2 ")
    world.turn()
    again = world.again(left[0])
    for _ in range(2):
        assert again.cursor(again.directory.queues["q"]).remaining == 2
        again = again.again()
    assert again.drain(again.directory.queues["q"]) == [b"0", b"2"]


def test_a_damaged_binding_in_a_page_costs_no_message():
    """Its record takes no place among the messages."""
    world = PagedBroker(settings=WIDE)
    (q,) = world.new_queues("q")
    world.fill(q, 5)
    world.turn()
    world.cursor(q).settle_waiting(world.pages.in_order()[0], 1, Reason.ACKNOWLEDGED)
    world.turn()
    files = world.memory.kill()
    content = files.contents[page_paths(files)[0]]
    ((at, _),) = [
        each
        for each in SegmentScan(bytes(content.data))
        if content.data[each[0] : each[0] + 2] == b"\x09\x02"
    ]
    content.data[at + 20] ^= 1
    again = world.again(files)
    assert again.paging.damaged_pages == 1
    assert again.drain(again.directory.queues["q"]) == [b"0", b"2", b"3", b"4"]


def test_a_directory_whose_only_page_was_only_begun_leaves_no_address():
    world = PagedBroker(settings=WIDE)
    left = killed_before_the_journal(world)
    world.fill(world.new_queues("q")[0], 5)
    world.turn()
    del left[0].contents[page_paths(left[0])[0]].data[10:]
    assert "a" not in world.again(left[0]).directory.addresses


@pytest.mark.parametrize("name", [b"", b"\n", None])
def test_a_directory_without_a_name_is_known_by_its_pages(name):
    """PG-4: an empty address.txt does not prevent the start."""
    world, (q,) = filled()
    files = world.memory.kill()
    path = world.pages.directory / "address.txt"
    if name is None:
        del files.contents[path]
    else:
        files.contents[path].data[:] = name
    again = world.again(files)
    assert again.drain(again.queues("q")[0]) == numbered(20)


def test_an_address_that_was_deleted_is_made_for_the_queues_that_need_it():
    world = PagedBroker(settings=SETTINGS)
    wild = world.queue("wild", "a.#")
    pages = world.paging.open(world.address("a.b"))
    for at in range(5):
        pages.append(world.message("a.b", b"%d " % at, durable=True), [wild])
    world.directory.delete_address("a.b")
    (pages,) = world.restarted().all_pages()
    assert pages.address.name == "a.b"
    (cursor,) = pages.cursors.values()
    assert (cursor.queue.name, cursor.remaining) == ("wild", 5)


def test_the_paging_directory_cannot_be_used():
    """PD-6."""
    world = PagedBroker(recover=False)

    world.memory.fail("make_directory", str(PAGING))
    with pytest.raises(StoreError, match="/data/paging"):
        world.recover()


def test_without_a_journal_everything_in_pages_is_there():
    """Nobody knows any more what was settled."""
    world, (q, _) = filled(names=("q", "r"))
    world.store.begin()
    world.page([q], b"20 ")
    world.store.commit()
    world.drain(q)
    world.turn()
    files = world.memory.kill()
    for path in [path for path in files.contents if path.suffix == ".journal"]:
        del files.contents[path]
    again = world.again(files)
    assert sorted(again.directory.queues) == ["q", "r"]
    queues = again.directory.queues
    assert again.drain(queues["r"]) == numbered(20)
    assert again.drain(queues["q"]) == numbered(21)


def test_a_deleted_queue_stays_deleted():
    """Also when the journal has long forgotten it, and another queue keeps its pages."""
    world = PagedBroker(journal_file_size=1024)
    q, r = world.queues("q", "r")
    positions = [world.page([q, r], b"%d " % at + bytes(98)) for at in range(10)]
    world.turn()
    world.cursor(q).settle_waiting(*positions[3], Reason.ACKNOWLEDGED)
    world.pages.forget(q)
    world.directory.delete_queue("q")
    for _ in range(2):
        world.turn()
        for _ in range(100):
            if len(world.journal.segments) == 1:
                break
            world.journal.compact_step(100, 1 << 20)
            world.turn()
        world = world.again(world.memory.kill())
        assert list(world.directory.queues) == ["r"]
        assert world.cursor(world.queues("r")[0]).remaining == 10
        world.queues(*(f"more{each}" for each in range(20)))
        for each in range(20):
            world.directory.delete_queue(f"more{each}")
    (r,) = world.queues("r")
    assert world.drain(r) == numbered(10)
    world.turn()
    assert not [
        kept for segment in world.journal.segments for kept in segment.live if isinstance(kept, QueueRemoved)
    ]


def test_two_directories_of_one_address():
    world, (q,) = filled()
    files = world.memory.kill()
    for path in page_paths(files)[1::2]:
        files.contents[path.parent.with_name(path.parent.name + "-2") / path.name] = files.contents.pop(path)
    files.contents[path.parent.with_name(path.parent.name + "-2") / "address.txt"] = files.contents[
        path.parent / "address.txt"
    ]
    again = world.again(files)
    assert len(again.all_pages()) == 1
    assert again.drain(again.queues("q")[0]) == numbered(20)
    again.close_pages()
    assert again.page_files() == []


# ---- page files as the journal knows them


def listed(files):
    """The pages that the journal tells of."""
    replay = Replay(files.kill(), JOURNAL)
    replay.read()
    return set(replay.page_files)


def found(files):
    """The pages that there are."""
    return {int(path.stem) for path in page_paths(files)}


def kills(world, act):
    """What a kill leaves before each change that is made to the files meanwhile, and at the end."""
    files, left = world.memory, []

    def watch(operation, path):
        if operation in ("open", "write", "remove", "rename", "truncate"):
            left.append(files.kill())

    files.fault = watch
    act()
    left.append(files.kill())
    return left


def test_empty_page_file_is_removed_without_a_record():
    world, (q,) = filled(5)

    def act():
        world.fill(q, 20)
        world.turn()

    left = [files for files in kills(world, act) if any(not files.data[path] for path in page_paths(files))]
    assert left
    for files in left:
        (empty,) = [int(path.stem) for path in page_paths(files) if not files.data[path]]
        again = world.again(files)
        assert empty not in found(again.memory)
        assert listed(again.memory) == found(again.memory)
        assert again.paging.lost_messages == again.paging.damaged_pages == 0
        assert again.again().paging.damaged_pages == 0


@pytest.mark.parametrize("size", [0, 10])
def test_page_is_removed_after_its_removal_is_recorded(size):
    """Be it removed, since it was only begun as far as one can tell, or set aside."""
    for place in (0, -1):
        world, _ = filled()
        files = world.memory.kill()
        path = page_paths(files)[place]
        del files.contents[path].data[size:]
        if size:
            files.contents[path].data[:4] = b"what"
        again = PagedBroker(files, recover=False)
        left = kills(again, again.recover)
        assert path not in again.memory.contents
        for killed in left:
            assert listed(killed) <= found(killed)


def test_a_page_that_cannot_be_read_now_may_be_read_later():
    """Its record is repeated when the segment goes that has it: otherwise nobody would know of the file."""
    world, _ = filled()
    files = world.memory.kill()
    path = page_paths(files)[1]
    again = PagedBroker(files, recover=False)

    files.fail("read", str(path))
    again.recover()
    files.heal()
    again.journal.file_size = 0  # each batch begins a new segment
    for _ in range(5):
        again.keep("other")
        again.journal.compact_step(1000, 1 << 20)
        again.turn()
    assert min(segment.number for segment in again.journal.segments) > 1
    third = again.again()
    assert third.drain(third.queues("q")[0]) == numbered(20)


def test_a_page_of_another_address_is_set_aside():
    world, _ = filled()
    other = world.paging.open(world.address("b"))
    page, _ = other.append(world.message("b", b"x", durable=True), [world.queue("b")])
    world.turn()
    files = world.memory.kill()
    files.contents[world.pages.directory / page.path.name] = files.contents.pop(page.path)
    again = world.again(files)
    assert again.drain(again.queues("q")[0]) == numbered(20)
    assert page.path.name + ".invalidPage" in again.page_files()


def test_a_page_that_was_removed_long_ago_is_set_aside():
    """The journal has forgotten its removal too."""
    world = PagedBroker(journal_file_size=1024)
    (q,) = world.queues("q")
    page, _ = world.fill(q, 20)[0]
    world.turn()
    data = world.memory.data[page.path]
    world.drain(q)
    world.turn()
    removed = world.journal.segments[-1].number
    while world.journal.segments[0].number <= removed:
        world.keep("other")
        world.journal.compact_step(1000, 1 << 20)
        world.turn()
    again = world.again(MemoryFiles({**world.memory.kill().data, page.path: data}))
    assert again.page_files() == ["000000001.page.invalidPage", "address.txt"]
    assert again.drain(again.queues("q")[0]) == []
