"""Queues and addresses as the journal describes them."""

import json
from dataclasses import fields

import pytest

from stompring.broker.reference import QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import RingPolicy, RoutingType
from stompring.store.bindings import (
    DERIVED,
    StoredAddress,
    StoredQueue,
    attributes_of,
    describe_address,
    describe_attributes,
    describe_queue,
)

from ..broker.broker_fixture import ANYCAST, MULTICAST, BrokerFixture


def other_than(default, name):
    """A value that an attribute may have and does not have by default."""
    value = getattr(default, name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, RoutingType):
        return MULTICAST if value is ANYCAST else ANYCAST
    if isinstance(value, RingPolicy):
        return RingPolicy.DEAD_LETTER
    if isinstance(value, int):
        return 17
    return "a = 'ü'" if name == "filter" else "somebody"


@pytest.mark.parametrize(
    "name", [field.name for field in fields(QueueAttributes) if field.name not in DERIVED]
)
def test_every_attribute_survives_encoding(name):
    default = QueueAttributes(ANYCAST)
    changed = default.changed({name: other_than(default, name)})
    again = attributes_of(json.loads(json.dumps(describe_attributes(changed))))
    assert getattr(again, name) == getattr(changed, name) != getattr(default, name)
    for field in fields(QueueAttributes):
        if field.name not in DERIVED:
            assert getattr(again, field.name) == getattr(changed, field.name)
    assert (again.accepts is None) == (changed.accepts is None)


def test_unknown_attributes_are_ignored():
    described = describe_attributes(QueueAttributes(ANYCAST, ring_size=3)) | {"colour": "red"}
    assert attributes_of(described).ring_size == 3


def test_missing_attributes_have_their_default():
    assert attributes_of({"routing_type": "MULTICAST"}) == QueueAttributes(MULTICAST)


@pytest.mark.parametrize(
    "described",
    [{}, {"routing_type": "SOMECAST"}, {"routing_type": "ANYCAST", "ring_policy": "KEEP"}],
)
def test_invalid_descriptions_are_rejected(described):
    with pytest.raises((KeyError, ValueError)):
        attributes_of(described)


def test_a_filter_that_cannot_be():
    with pytest.raises(Refused, match="filter"):
        attributes_of({"routing_type": "ANYCAST", "filter": "(("})


def test_a_queue():
    queue = BrokerFixture().queue("ü", "t", MULTICAST, filter="a = 1")
    queue.no_local, queue.paused = "me", True
    queue.as_configured = queue.attributes.changed({"ring_size": 5})
    stored = StoredQueue.parse(json.loads(json.dumps(describe_queue(queue))))
    assert (stored.name, stored.address, stored.no_local, stored.paused) == ("ü", "t", "me", True)
    assert stored.attributes.filter == "a = 1"
    assert stored.as_configured.ring_size == 5


def test_an_address():
    address = BrokerFixture().address("a")
    address.auto_created, address.paused = True, True
    stored = StoredAddress.parse(json.loads(json.dumps(describe_address(address))))
    assert stored == StoredAddress("a", frozenset({ANYCAST, MULTICAST}), True, False, True)
