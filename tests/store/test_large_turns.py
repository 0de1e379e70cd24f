"""Much that is told to the journal at once is put into records in slices, and is safe or not as a whole."""

import pytest

from stompring.store import journal

from ..broker.broker_fixture import numbered, turn
from .stored_broker import StoredBroker, held

MANY = 100


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch):
    monkeypatch.setattr(journal, "MAX_ENCODED_AT_ONCE", 7)


def records(world):
    return len(world.journal._encoder.footer.starts)


@pytest.fixture
def world():
    world = StoredBroker()
    world.queue()
    world.turn()
    return world


def fill(world):
    for body in numbered(MANY):
        world.durable(body=body)


def test_records_are_encoded_in_slices_and_callbacks_run_after_the_last(world):
    fill(world)
    heard, most = world.synced(), 0
    while not heard:
        before = records(world)
        turn(world.clock)
        most = max(most, records(world) - before)
    assert 0 < most <= 10
    assert held(world.again()) == numbered(MANY)


def test_sync_callback_waits_for_records_before_it_only(world):
    fill(world)
    for _ in range(3):
        turn(world.clock)
    first = world.synced()
    world.durable(body=b"later")
    second = world.synced()
    assert not first
    while not first:
        turn(world.clock)
    assert held(world.again())[:MANY] == numbered(MANY)
    world.turn()
    assert second and held(world.again()) == [*numbered(MANY), b"later"]


@pytest.mark.parametrize("turns", [0, 1, 5, 10])
def test_a_transaction_of_which_only_a_part_is_put_into_records_has_not_happened(world, turns):
    world.keep(body=b"before")
    with world.broker.together():
        fill(world)
    for _ in range(turns):
        turn(world.clock)
    assert held(world.again()) == [b"before"]
    world.turn()
    assert held(world.again()) == [b"before", *numbered(MANY)]


def test_open_transaction_delays_writes_and_callbacks(world):
    world.store.begin()
    world.durable(body=b"a")
    heard = world.synced()
    world.turn()
    assert not heard
    world.durable(body=b"b")
    world.store.commit()
    world.turn()
    assert heard and held(world.again()) == [b"a", b"b"]


@pytest.mark.parametrize("delay", [0, 5_000_000])
def test_messages_settled_before_encoding_are_not_written(delay):
    world = StoredBroker(journal_buffer_timeout=delay)
    queue = world.queue()
    world.pass_time(1000)
    fill(world)
    for _ in range(3):
        turn(world.clock, 0.125)
    for ref in list(queue.dispatcher.in_order())[50:]:
        queue.kill(ref)
    heard = world.synced()
    world.pass_time(1000)
    assert heard and world.writer.idle
    assert held(world.again()) == numbered(50)


def test_a_broker_that_stops_writes_all_of_it(world):
    fill(world)
    turn(world.clock)
    world.broker.stop()
    assert world.writer.idle
    assert held(world.again()) == numbered(MANY)


def test_compaction_waits_until_all_is_put_into_records(world):
    fill(world)
    assert world.journal.compact_step(10, 1000) == 0
    world.turn()
    assert held(world.again()) == numbered(MANY)
