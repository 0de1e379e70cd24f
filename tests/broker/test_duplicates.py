"""The ids by which an address knows duplicates."""

import logging
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import Traits
from stompring.broker.publish import Publication, publish_admitted

from ..session.session_fixture import Server


def send(server, identifier, to="q"):
    server.client().send(b"", f"/queue/{to}", _AMQ_DUPL_ID=identifier)


def cache_of(size):
    """The empty cache of an address."""
    server = Server(id_cache_size=size)
    send(server, "first")
    cache = server.address().duplicates
    cache.clear()
    return cache


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
    cache, model, size, persisted = cache_of(4), OrderedDict[bytes, bool](), 4, 0
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
    cache = cache_of(size)
    cache.restore(ids)
    assert cache.in_order == ids and cache.forgotten == 0
    cache.add(b"new", persisted=True)
    assert cache.in_order == [*ids, b"new"][-size:]
    assert cache.forgotten == max(0, len(ids) + 1 - size)


def test_an_address_has_none_until_it_needs_one():
    server = Server({"few": {"id_cache_size": 2}, "none": {"id_cache_size": 0}}, id_cache_size=7)
    for name, size in (("q", 7), ("few", 2), ("none", None)):
        server.world.queue(name)
        assert server.address(name).duplicates is None
        send(server, "1", name)
        cache = server.address(name).duplicates
        assert (None if cache is None else cache.size) == size


def test_it_is_said_at_times(caplog):
    server = Server()
    server.world.queue("q")
    send(server, "x\x1b\\n")
    with caplog.at_level(logging.INFO, "stompring.broker.address"):
        for _ in range(100):
            send(server, "x\x1b\\n")
        assert [record.getMessage() for record in caplog.records] == [
            "address q: duplicates rejected: 1 so far, latest _AMQ_DUPL_ID 'x??'"
        ]
        server.pass_time(61_000)
        send(server, "x\x1b\\n")
    assert len(caplog.records) == 2 and server.address().duplicate_messages == 101


@pytest.mark.parametrize(
    "identifier, text",
    [
        (b"plain", "plain"),
        ("größer".encode(), "größer"),
        (b"\xff\x01", "\\xff?"),
        (b"x" * 100, "x" * 80 + "…"),
    ],
)
def test_ids_for_people(identifier, text, caplog):
    client = Server().client()
    with caplog.at_level(logging.INFO, "stompring.broker.address"):
        client.write((b"SEND\ndestination:/queue/q\n_AMQ_DUPL_ID:" + identifier + b"\n\n\0") * 2)
    assert caplog.records[0].getMessage().endswith(f"latest _AMQ_DUPL_ID '{text}'")


def test_an_address_that_is_deleted_remembers_nothing():
    world = Server().world
    world.queue("q")
    address = world.address("q")
    publication = Publication(address, None, Traits(b"", b"q"), None)
    publication.identifier = b"1"
    world.directory.delete_address("q", force=True)
    publish_admitted(world.broker, publication, b"")
    assert address.deleted and address.duplicates is None
