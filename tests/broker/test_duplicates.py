"""The ids by which an address knows duplicates."""

import logging
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.address import DuplicateIds, add_id, cache_size, count_duplicate, printable_id

from .broker_fixture import BrokerFixture


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 12), st.booleans()),
            st.tuples(st.just("size"), st.integers(1, 8)),
        ),
        max_size=60,
    )
)
def test_it_is_a_circle_of_ids(steps):
    cache, model, size, persisted = DuplicateIds(4), OrderedDict[bytes, bool](), 4, 0
    for what, more in steps:
        if what == "size":
            size = more
            cache.resize(size)
        else:
            identifier = b"%d" % what
            assert (identifier in cache) == (identifier in model)
            if identifier not in model:
                model[identifier] = bool(more)
                cache.add(identifier, persisted=bool(more))
                persisted += bool(more)
        while len(model) > size:
            model.popitem(last=False)
        assert cache.in_order == list(model)
        assert cache.forgotten == persisted - sum(model.values())


@given(st.lists(st.integers(0, 1000), unique=True, max_size=30), st.integers(1, 10))
def test_what_was_restored_goes_first(before, size):
    ids = [b"%d" % number for number in before][-size:]
    cache = DuplicateIds(size)
    cache.restore(ids)
    assert cache.in_order == ids and cache.forgotten == 0
    cache.add(b"new", persisted=True)
    assert cache.in_order == [*ids, b"new"][-size:]
    assert cache.forgotten == max(0, len(ids) + 1 - size)


def test_an_address_has_none_until_it_needs_one():
    world = BrokerFixture({"few": {"id_cache_size": 2}, "none": {"id_cache_size": 0}}, id_cache_size=7)
    world.queue("q"), world.queue("few"), world.queue("none")
    assert [cache_size(world.address(name)) for name in ("q", "few", "none")] == [7, 2, 0]
    assert world.address("q").duplicates is None
    add_id(world.address("few"), b"1", persisted=False)
    cache = world.address("few").duplicates
    assert cache is not None and cache.size == 2


def test_it_is_said_at_times(caplog):
    world = BrokerFixture()
    world.queue("q")
    address = world.address("q")
    add_id(address, b"x\x1b\n", persisted=False)
    with caplog.at_level(logging.INFO, "stompring.broker.address"):
        for _ in range(100):
            count_duplicate(address, b"x\x1b\n")
        assert [record.getMessage() for record in caplog.records] == [
            "address q: duplicates rejected: 1 so far, latest _AMQ_DUPL_ID 'x??'"
        ]
        world.pass_time(61_000)
        world.broker.clock.refresh()
        count_duplicate(address, b"x\x1b\n")
    assert len(caplog.records) == 2 and address.duplicate_messages == 101


@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        (b"plain", "plain"),
        ("größer".encode(), "größer"),
        (b"\xff\x00", "\\xff?"),
        (b"x" * 100, "x" * 80 + "…"),
    ],
)
def test_ids_for_people(identifier, text):
    assert printable_id(identifier) == text


def test_an_address_that_is_deleted_remembers_nothing():
    world = BrokerFixture()
    world.queue("q")
    address = world.address("q")
    world.directory.delete_address("q", force=True)
    add_id(address, b"1", persisted=True)
    assert address.deleted and address.duplicates is None
