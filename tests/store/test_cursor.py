"""Cursors: what is found first, what each step does to the counts, and what the journal hears of it."""

from stompring.broker.ports import Reason
from stompring.broker.reference import PENDING
from stompring.store.record import PAGE_SETTLED, WENT_OUT, Kind, unpack_runs
from stompring.store.replay import Replay
from stompring.store.segment import SegmentScan


def page_records(world):
    world.turn()
    replay = Replay(world.memory.kill(), world.journal.directory)
    replay.read()
    return [payload for _, payload in replay.page_records]


def test_cursor_of_a_deleted_queue_ignores_updates(world, q):
    ref = world.load(q, *world.fill(q, 20)[0])
    cursor = world.cursor(q)
    world.pages.forget(q)
    assert world.pages.empty
    cursor.settle(ref, Reason.ACKNOWLEDGED)
    cursor.put_back(ref)
    cursor.returned(ref)
    assert (cursor.remaining, cursor.waiting, cursor.first(4)) == (0, 0, None)


def test_settlements_of_one_turn_share_one_record(world, q):
    refs = [world.load(q, *position) for position in world.fill(q, 3)]
    world.turn()
    for ref in refs:
        world.cursor(q).settle(ref, Reason.ACKNOWLEDGED)
    records = page_records(world)
    assert len(records) == 1
    _, reason, _, address, queue, page, now = PAGE_SETTLED.unpack_from(records[0])
    assert (reason, address, queue, page, now) == (
        Reason.ACKNOWLEDGED,
        world.address("a").number,
        q.number,
        refs[0].position[0].number,
        world.now,
    )
    assert records[0][PAGE_SETTLED.size :] == bytes([0, 0, 0, 0, 3, 0, 0, 0])


def test_each_reason_has_its_own_page_settled_record(world, q):
    page, _ = world.fill(q, 4)[0]
    cursor = world.cursor(q)
    cursor.settle_waiting(page, 0, Reason.REPLACED)
    cursor.settle_waiting(page, 2, Reason.EXPIRED)
    cursor.settle_waiting(page, 1, Reason.REPLACED)
    found = {record[1]: record[PAGE_SETTLED.size :] for record in page_records(world)}
    assert found == {
        Reason.REPLACED: bytes([0, 0, 0, 0, 2, 0, 0, 0]),
        Reason.EXPIRED: bytes([2, 0, 0, 0, 1, 0, 0, 0]),
    }


def test_non_durable_messages_and_queues_leave_no_page_records(world, q):
    (passing,) = world.queues("passing", durable=False)
    first = world.page([q], durable=False)
    second = world.page([passing])
    world.page([q])
    for queue, position in ((q, first), (passing, second)):
        ref = world.load(queue, *position)
        world.cursor(queue).returned(ref)
        world.cursor(queue).settle(ref, Reason.ACKNOWLEDGED)
    world.pages.roll()
    page, _ = world.page([q], durable=False)
    world.cursor(q).acknowledge(page, 0, 1, durable=False)
    assert page_records(world) == []


def test_settlements_of_a_transaction_are_inside_its_record(world, q):
    """Even where the same turn has settled something in the same page before."""
    page, _ = world.fill(q, 3)[0]
    world.turn()
    cursor = world.cursor(q)
    cursor.settle_waiting(page, 0, Reason.ACKNOWLEDGED)
    world.store.begin()
    cursor.settle_waiting(page, 1, Reason.ACKNOWLEDGED)
    world.page([q])
    world.store.commit()
    world.turn()
    stream = world.journal.segments[-1]
    data = world.memory.data[stream.path]
    kinds = [Kind(data[begin]) for begin, _ in SegmentScan(data)]
    first, last = kinds.index(Kind.PAGE_SETTLED), kinds.index(Kind.TRANSACTION)
    assert first < last
    assert kinds.count(Kind.PAGE_SETTLED) == 1
    records = page_records(world)
    assert [record[PAGE_SETTLED.size :] for record in records] == [
        bytes([0, 0, 0, 0, 1, 0, 0, 0]),
        bytes([1, 0, 0, 0, 1, 0, 0, 0]),
    ]


def test_a_run_is_settled_as_each_of_its_messages_would_be(world, q):
    positions = world.fill(q, 4, size=10)
    cursor = world.cursor(q)
    page = positions[0][0]
    assert {where for where, _ in positions} == {page}
    cursor.acknowledge(page, 1, 3, durable=True)
    assert (cursor.remaining, cursor.waiting, cursor.levels[4]) == (2, 2, 2)
    assert cursor.states(page, 0, 4) == bytes([5, 0, 0, 5])
    (payload,) = page_records(world)
    assert payload[0] == Kind.PAGE_SETTLED
    assert payload[1] == WENT_OUT | Reason.ACKNOWLEDGED
    assert list(unpack_runs(payload[PAGE_SETTLED.size :])) == [(1, 2)]


def test_a_page_is_touched_once_a_delivery_has_come_back(world, q):
    (position,) = world.fill(q, 1)
    cursor = world.cursor(q)
    assert cursor.untouched(position[0])
    ref = world.load(q, *position)
    ref.deliveries, ref.state = 1, PENDING
    cursor.put_back(ref)
    assert not cursor.untouched(position[0])


def test_compressed_page_states_expand_on_access(world, q):
    positions = world.fill(q, 60)
    cursor = world.cursor(q)
    pages = world.pages.in_order()
    cold = [holding for holding in (next(iter(page.page_states)) for page in pages) if not holding.states]
    assert len(cold) > 10
    for place in (0, 30, 59, 1, 31):
        assert cursor.is_waiting(*positions[place])
    cold = [holding for holding in (next(iter(page.page_states)) for page in pages) if not holding.states]
    assert len(cold) > 10
