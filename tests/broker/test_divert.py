"""Diverts: copies of messages for other addresses."""

import pytest

from stompring.broker import publish
from stompring.broker.message import Traits
from stompring.broker.publish import Publication, Transaction
from stompring.settings.model import (
    ComponentRoutingType,
    DivertConfiguration,
    FullPolicy,
)

from ..paging.stored_pages import StoredPages, drained
from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture, assert_nothing_held, bodies, join


def divert(name, address, *targets, **more):
    return DivertConfiguration(name, address, targets, **more)


def broker(*diverts, **settings):
    named = {match.replace("_", "."): values for match, values in settings.items()}
    named["#"] = {"default_address_routing_type": ANYCAST, **named.get("#", {})}
    return BrokerFixture(named, diverts=diverts)


def queued(world, name):
    found = world.directory.queues.get(name)
    return [] if found is None else bodies(found)


def only(world, name):
    (ref,) = world.directory.queue(name).dispatcher.in_order()
    return ref.message


def publish_to(world, address, body=b"", **more):
    block = "".join(f"{name}:{value}\n" for name, value in more.pop("headers", {}).items()).encode()
    traits = Traits(block, address.encode(), **more)
    publication = Publication(world.address(address), None, traits, None)
    return publish.publish(world.broker, publication, body)


def test_a_copy_is_sent_as_its_original_was():
    world = broker(divert("d", "a", "b"))
    original = world.send(
        "a",
        b"x",
        priority=7,
        group=b"g",
        routing_type=ANYCAST,
        origin="me",
        user="ada",
        expires=world.now + 5000,
    )
    copy = only(world, "b")
    assert copy.header(b"_AMQ_ORIG_ROUTING_TYPE") == b"1"
    traits = copy.traits
    assert (traits.priority, traits.group, traits.routing_type) == (7, b"g", None)
    assert (traits.origin, traits.user) == ("me", "ada")
    assert (copy.timestamp, copy.expires) == (original.timestamp, original.expires)


def test_a_copy_of_a_copy_names_the_last_step():
    world = broker(divert("one", "a", "b"), divert("two", "b", "c"))
    world.send("a", b"x")
    assert (queued(world, "b"), queued(world, "c")) == ([b"x"], [b"x"])
    last = only(world, "c")
    assert (last.header(b"_AMQ_ORIG_ADDRESS"), last.header(b"_AMQ_ORIG_QUEUE")) == (b"b", b"two")
    assert last.header(b"_AMQ_ORIG_MESSAGE_ID") == b"%d" % only(world, "b").number


def test_what_only_a_divert_has_taken_is_no_dead_letter():
    settings = {"send_to_dla_on_no_route": True, "dead_letter_address": "DLQ"}
    world = broker(divert("d", "a", "b", exclusive=True), divert("e", "c", "b"), a=settings, c=settings)
    world.queue("DLQ")
    world.send("a", b"x")
    world.send("c", b"y")
    world.send("a.b", b"z")
    assert (queued(world, "b"), queued(world, "DLQ")) == ([b"x", b"y"], [])
    assert (world.address("a").routed_messages, world.address("a").unrouted_messages) == (1, 0)
    assert (world.address("c").routed_messages, world.address("c").unrouted_messages) == (1, 0)


def test_a_copy_without_a_queue_is_a_dead_letter_of_its_own_address():
    world = broker(
        divert("d", "a", "b"),
        b={
            "send_to_dla_on_no_route": True,
            "dead_letter_address": "DLQ",
            "default_address_routing_type": MULTICAST,
        },
    )
    world.queue("DLQ")
    world.send("a", b"x")
    assert only(world, "DLQ").header(b"_AMQ_ORIG_ADDRESS") == b"b"
    assert world.broker.diverts.by_name["d"].unrouted_messages == 1


@pytest.mark.parametrize(
    "kind, sent, reached, shown",
    [
        (ComponentRoutingType.STRIP, ANYCAST, ["any", "multi"], None),
        (ComponentRoutingType.PASS, ANYCAST, ["any"], b"ANYCAST"),
        (ComponentRoutingType.PASS, None, ["any", "multi"], b"ANYCAST"),
        (ComponentRoutingType.ANYCAST, MULTICAST, ["any"], b"ANYCAST"),
        (ComponentRoutingType.MULTICAST, ANYCAST, ["multi"], b"MULTICAST"),
    ],
)
def test_routing_types(kind, sent, reached, shown):
    world = broker(divert("d", "a", "b", routing_type=kind))
    world.queue("any", "b", ANYCAST)
    world.queue("multi", "b", MULTICAST)
    world.send("a", b"x", routing_type=sent, headers={"destination-type": "ANYCAST"})
    assert [name for name in ("any", "multi") if queued(world, name)] == reached
    assert only(world, reached[0]).header(b"destination-type") == shown


def test_a_copy_expires_as_its_address_says():
    world = broker(divert("d", "a", "b", "c"), b={"max_expiry_delay": 10}, c={"no_expiry": True})
    world.queue("a")
    world.send("a", b"x", expires=world.now + 5000)
    assert only(world, "b").expires == world.now + 10
    assert only(world, "c").expires == 0


def test_messages_to_one_queue_are_diverted_too():
    world = broker(divert("d", "a", "b", filter="k = '1'", exclusive=True), divert("e", "a", "c"))
    queue = world.queue("q", "a")
    for value in ("1", "2"):
        publish.send(world.message("a", value.encode(), headers={"k": value}), queue=queue)
    assert (queued(world, "q"), queued(world, "b"), queued(world, "c")) == ([b"2"], [b"1"], [b"2"])


def test_drop_drops_the_copy():
    world = broker(divert("e", "x", "y"), y={"max_size_messages": 1, "address_full_policy": FullPolicy.DROP})
    world.queue("x")
    assert [publish_to(world, "x"), publish_to(world, "x")] == [None, None]
    assert (len(queued(world, "x")), len(queued(world, "y"))) == (2, 1)
    assert world.broker.diverts.by_name["e"].dropped_messages == 1
    assert world.address("y").dropped_messages == 1


def test_copies_for_a_paging_address_are_paged():
    world = StoredPages(2, diverts=(divert("d", "a", "b"),))
    world.queue("a")
    world.queue("b")
    sent = [b"%d" % number for number in range(6)]
    for body in sent:
        assert publish_to(world, "a", body) is None
    assert world.address("b").pages is not None
    assert world.directory.queue("b").message_count == 6
    assert drained(world, join(world.directory.queue("b"), auto=True)) == sent


def test_a_transaction_names_the_addresses_of_its_copies():
    world = broker(divert("d", "a", "b"))
    target = world.queue("b").address
    transaction = Transaction(world.broker)
    source = world.address("a")
    transaction.send(
        10, lambda: source, lambda: world.send("a"), durable=False, diverted=lambda: iter((target,))
    )
    assert transaction.loads() == {source: [10], target: [10]}
    transaction.commit()
    assert len(queued(world, "b")) == 1


def test_a_loop_through_a_dead_letter_address_ends():
    world = broker(
        divert("d", "a", "b"),
        b={
            "send_to_dla_on_no_route": True,
            "dead_letter_address": "a",
            "default_address_routing_type": MULTICAST,
        },
    )
    world.queue("a")
    world.send("a", b"x")
    assert queued(world, "a") == [b"x"]  # the dead letter of the copy would come back


def test_a_loop_of_diverts_ends_where_it_closes(caplog):
    world = broker(divert("d", "a", "b"), divert("e", "b", "a"))
    world.queue("a")
    for _ in range(2):
        world.send("a", b"x")
    assert (queued(world, "a"), queued(world, "b")) == ([b"x"] * 2, [b"x"] * 2)
    assert world.broker.diverts.by_name["e"].loops == 2
    (record,) = [record for record in caplog.records if "came from there" in record.message]
    assert "divert e: no copy to address a" in record.message
    assert not world.broker.copying_to


def test_an_address_that_cannot_be_created_is_logged_once(caplog):
    world = broker(divert("d", "a", "b"), b={"auto_create_addresses": False})
    world.queue("a")
    for _ in range(3):
        world.send("a", b"x")
    assert len([record for record in caplog.records if "no copy to address b" in record.message]) == 1
    assert world.broker.diverts.by_name["d"].unrouted_messages == 3
    world.queue("b")
    world.send("a", b"y")
    assert queued(world, "b") == [b"y"]


def test_copies_follow_a_forwarding_address_that_is_created_again():
    world = broker(divert("d", "a", "b"))
    world.queue("a")
    world.send("a", b"1")
    world.directory.delete_address("b", force=True)
    world.settle_down()
    world.send("a", b"2")
    assert queued(world, "b") == [b"2"]
    world.directory.delete_address("a", force=True)
    world.directory.delete_address("b", force=True)
    world.settle_down()
    assert_nothing_held(world)


def test_an_address_without_diverts_takes_the_short_way():
    world = broker(divert("d", "a", "b"))
    assert world.address("a").memory_limit.slow_path
    world.queue("c")
    assert not world.address("c").memory_limit.slow_path
    world.broker.diverts.remove("d")
    world.broker.diverts.bind_all()
    assert not world.address("a").memory_limit.slow_path


def test_dead_letters_and_expired_messages_are_diverted():
    world = broker(divert("d", "DLQ", "audit"), a={"dead_letter_address": "DLQ", "max_delivery_attempts": 1})
    world.queue("DLQ")
    queue = world.queue("a")
    world.send("a", b"x")
    join(queue).nack()
    assert (queued(world, "DLQ"), queued(world, "audit")) == ([b"x"], [b"x"])
    assert only(world, "audit").header(b"_AMQ_ORIG_ADDRESS") == b"DLQ"
