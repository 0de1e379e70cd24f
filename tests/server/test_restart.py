"""A broker that starts on what it kept is brought in line with broker.xml: who wins, the file or what changed since."""

import logging

import pytest

from stompring.errors import ConfigurationError
from stompring.server.reload import apply
from stompring.settings.model import DeletionPolicy, QueueConfiguration

from ..broker.broker_fixture import MULTICAST, bodies
from ..store.stored_broker import StoredBroker
from .test_reload import configuration, queue


def started(file, before=None, **settings):
    """A broker with this file, on what ``before`` left when it was killed."""
    if before is None:
        world = StoredBroker()
    else:
        before.turn()
        world = before.again()
    apply(world.broker, file, starting=True)
    world.turn()
    return world


def live(world):
    return world.directory.queue("q")


def limits(world):
    attributes = live(world).attributes
    return attributes.ring_size, attributes.max_consumers


def change(world, **changes):
    """By management."""
    world.directory.update_queue(live(world), changes)


def test_what_management_changed_lasts():
    file = configuration(queue(ring_size=3, max_consumers=2))
    world = started(file)
    change(world, ring_size=7)
    for _ in range(3):
        world = started(file, world)
        assert limits(world) == (7, 2)


def test_what_the_file_changed_since_wins_and_nothing_else():
    world = started(configuration(queue(ring_size=3, max_consumers=2)))
    change(world, ring_size=7, max_consumers=9)
    world = started(configuration(queue(ring_size=3, max_consumers=5)), world)
    assert limits(world) == (7, 5)
    world = started(configuration(queue(ring_size=3)), world)
    assert limits(world) == (7, -1), "what vanished goes back to its default"
    world = started(configuration(queue(ring_size=4)), world)
    assert live(world).ring_size == 4


def test_defaults_of_address_settings_count_as_said_by_the_file():
    world = started(configuration(queue(), settings={"default_ring_size": 3}))
    change(world, ring_size=7)
    world = started(configuration(queue(), settings={"default_ring_size": 3}), world)
    assert live(world).ring_size == 7
    world = started(configuration(queue(), settings={"default_ring_size": 4}), world)
    assert live(world).ring_size == 4


def test_a_reload_goes_by_the_file():
    file = configuration(queue(ring_size=3))
    world = started(file)
    change(world, ring_size=7)
    apply(world.broker, file)
    assert live(world).ring_size == 3
    assert live(started(file, world)).ring_size == 3


def test_a_file_that_was_changed_while_it_ran_is_remembered():
    world = started(configuration(queue(ring_size=3)))
    apply(world.broker, configuration(queue(ring_size=4)))
    change(world, ring_size=9)
    assert live(started(configuration(queue(ring_size=4)), world)).ring_size == 9


def test_a_queue_of_a_client_that_the_file_has_now():
    world = started(configuration())
    world.queue("q", auto_created=True)
    world.durable("q", b"kept")
    world = started(configuration(queue(ring_size=5)), world)
    found = live(world)
    assert found.ring_size == 5 and found.attributes.configured and bodies(found) == [b"kept"]
    assert live(started(configuration(queue(ring_size=5)), world)).attributes.configured


def test_queues_of_the_file_that_management_deleted_come_again():
    file = configuration(queue(ring_size=5))
    world = started(file)
    world.directory.delete_address("q", force=True)
    world = started(file, world)
    assert live(world).ring_size == 5


@pytest.mark.parametrize("policy", list(DeletionPolicy))
def test_what_vanished_from_the_file_while_it_was_down(policy):
    settings = {"config_delete_queues": policy, "config_delete_addresses": policy}
    world = started(configuration(queue(), queue("p"), settings=settings))
    world.queue("mine")
    world = started(configuration(queue("p"), settings=settings), world)
    forced = policy is DeletionPolicy.FORCE
    assert ("q" in world.directory.queues, "q" in world.directory.addresses) == (not forced, not forced)
    assert "mine" in world.directory.queues


CONFLICTS = [
    (QueueConfiguration("q", "q", MULTICAST, configured=True), "routing-type cannot change"),
    (queue(durable=False), "durable cannot change"),
    (queue(non_destructive=True), "non-destructive cannot change"),
    (queue(last_value_key="code"), "last-value cannot change"),
    (QueueConfiguration("q", "elsewhere", MULTICAST, configured=True), "bound to address q"),
]


@pytest.mark.parametrize("other, words", CONFLICTS)
def test_an_empty_queue_becomes_what_the_file_says(other, words):
    found = live(started(configuration(other), started(configuration(queue()))))
    assert found.address.name == other.address
    assert found.attributes.routing_type is other.routing_type
    assert (found.durable, found.attributes.non_destructive) == (other.durable, bool(other.non_destructive))


@pytest.mark.parametrize("other, words", CONFLICTS)
def test_a_queue_with_messages_stays_as_it_is(other, words, caplog):
    caplog.set_level(logging.ERROR)
    world = started(configuration(queue()))
    world.durable("q", b"kept")
    world = started(configuration(other, queue("p")), world)
    found = live(world)
    assert found.address.name == "q" and bodies(found) == [b"kept"] and found.durable
    assert words in caplog.text and "1 messages" in caplog.text
    assert "p" in world.directory.queues, "the rest of the file is in force"


def test_what_no_queue_can_be_stops_the_start():
    world = started(configuration(queue()))
    with pytest.raises(ConfigurationError, match="queue q: ring-size"):
        started(configuration(queue(ring_size=0)), world)


def test_addresses_keep_what_they_were_made_as():
    file = configuration(queue())
    address = started(file, started(file)).address("q")
    assert address.configured and not address.auto_created
