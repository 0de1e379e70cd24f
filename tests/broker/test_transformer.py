"""Transformers: the headers of copies."""

from stompring.broker.message import Message, Traits, changed_headers, copied_traits, sent_headers
from stompring.settings.model import RoutingType

from .broker_fixture import BrokerFixture

BLOCK = b"priority:7\npersistent:true\nregion:eu\nnote:a\\cb\n"


def traits():
    return Traits(BLOCK, b"/queue/a", RoutingType.ANYCAST, 7, True, 9000, b"g", 0, "origin", "ada")


def test_headers_are_added_replaced_and_removed():
    copied = copied_traits(traits(), b"b", None, {b"region": b"us", b"note": None, b"new:er": b"x\ny"})
    assert copied.block == b"priority:7\npersistent:true\nregion:us\nnew\\cer:x\\ny\n"
    assert copied.destination == b"b" and copied.routing_type is None
    assert (copied.priority, copied.durable, copied.requested_expiry) == (7, True, 9000)
    assert (copied.group, copied.origin, copied.user) == (b"g", "origin", "ada")


def test_headers_with_a_meaning_keep_it():
    changes = {b"priority": b"2", b"persistent": b"false", b"expires": b"12", b"JMSXGroupID": b"h"}
    copied = copied_traits(traits(), b"b", None, changes)
    assert (copied.priority, copied.durable, copied.requested_expiry, copied.group) == (2, False, 12, b"h")
    assert copied.block == b"priority:2\npersistent:false\nregion:eu\nnote:a\\cb\nJMSXGroupID:h\n"


def test_removed_headers_lose_their_meaning():
    removed = dict.fromkeys((b"priority", b"persistent", b"expires", b"JMSXGroupID"))
    copied = copied_traits(traits(), b"b", None, removed)
    assert (copied.priority, copied.durable, copied.requested_expiry, copied.group) == (4, False, 0, None)
    assert copied.block.startswith(b"priority:4\npersistent:false\n")


def test_a_value_without_meaning_is_ignored():
    copied = copied_traits(traits(), b"b", None, {b"priority": b"11", b"expires": b"soon"})
    assert (copied.priority, copied.requested_expiry) == (7, 9000)


def test_headers_of_a_message_are_decoded():
    message = Message(1, BrokerFixture().address("a"), traits(), b"", 0)
    headers = sent_headers(message)
    assert headers == {b"priority": b"7", b"persistent": b"true", b"region": b"eu", b"note": b"a:b"}
    assert changed_headers(headers, {b"region": None, b"x": b"1"}) == {
        b"priority": b"7",
        b"persistent": b"true",
        b"note": b"a:b",
        b"x": b"1",
    }
