"""How many addresses, queues and sessions there may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stompring.errors import LimitReached, NotFound
from stompring.settings.model import QueueConfiguration, ResourceLimit

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture


def limit_of(error: pytest.ExceptionInfo[LimitReached]) -> str | None:
    return error.value.limit


def test_queues_in_all() -> None:
    world = BrokerFixture(global_max_queues=2)
    provision = world.broker.provision
    provision.address_for_send("a", ANYCAST)
    provision.queue_to_consume("b")
    for attempt in (
        lambda: provision.address_for_send("c", ANYCAST),
        lambda: provision.queue_to_consume("c"),
        lambda: provision.queue_for("c", "c", ANYCAST),
        lambda: provision.queue_for("a", "another", ANYCAST),
        lambda: provision.subscription_queue(QueueConfiguration("s", "c", MULTICAST)),
    ):
        with pytest.raises(LimitReached, match="There are 2 queues, and the limit is 2") as caught:
            attempt()
        assert limit_of(caught) == "global-max-queues"
    assert set(world.directory.addresses) == {"a", "b"}, "nothing is left of what was refused"
    provision.address_for_send("a", ANYCAST)
    provision.address_for_send("topic", MULTICAST)
    world.directory.delete_queue("b")
    provision.queue_to_consume("c")


def test_addresses_in_all() -> None:
    world = BrokerFixture(global_max_addresses=1)
    world.broker.provision.address_for_send("a", MULTICAST)
    with pytest.raises(LimitReached, match="There are 1 addresses") as caught:
        world.broker.provision.address_for_send("b", MULTICAST)
    assert limit_of(caught) == "global-max-addresses"
    world.broker.provision.queue_to_consume("a")


def test_what_the_broker_makes_itself_is_always_made_and_counts() -> None:
    settings = {
        "#": {
            "dead_letter_address": "DLA",
            "auto_create_dead_letter_resources": True,
            "max_delivery_attempts": 1,
        }
    }
    world = BrokerFixture(settings, global_max_queues=1, global_max_addresses=1)
    queue = world.queue()
    world.send(body=b"x")
    ref = queue.mark_delivering(world.message())
    queue.requeue([ref], failed=True)
    assert "DLQ.q" in world.directory.queues
    with pytest.raises(LimitReached):
        world.broker.provision.queue_to_consume("b")


def test_queues_of_a_user() -> None:
    world = BrokerFixture(resource_limits=(ResourceLimit("ann", max_queues=2),))
    provision = world.broker.provision
    provision.address_for_send("a", ANYCAST, user="ann")
    provision.queue_to_consume("b", user="ann")
    with pytest.raises(LimitReached, match="User ann has 2 queues, and the limit is 2") as caught:
        provision.queue_to_consume("c", user="ann")
    assert limit_of(caught) == "max-queues"
    provision.queue_to_consume("c", user="bob")
    provision.queue_to_consume("d")
    assert world.directory.queue("b").attributes.user == "ann"
    assert provision.queue_to_consume("c", user="ann"), "to use another's queue needs no queue of one's own"
    world.directory.delete_queue("a")
    provision.queue_to_consume("e", user="ann")


def test_a_queue_that_gets_another_owner() -> None:
    world = BrokerFixture(resource_limits=(ResourceLimit("ann", max_queues=1),))
    allowance = world.directory.allowance
    queue = world.queue(user="ann")
    assert dict(allowance.queues) == {"ann": 1}
    world.directory.update_queue(queue, {"user": "bob"})
    assert dict(allowance.queues) == {"bob": 1}
    allowance.check_queue("ann")
    world.directory.update_queue(queue, {"user": None})
    world.directory.delete_queue("q")
    assert not allowance.queues


def test_sessions_of_a_user() -> None:
    world = BrokerFixture(
        resource_limits=(ResourceLimit("ann", max_sessions=1), ResourceLimit("eve", max_sessions=0))
    )
    allowance = world.directory.allowance
    allowance.enter("ann")
    with pytest.raises(LimitReached, match="User ann has 1 sessions, and the limit is 1") as caught:
        allowance.enter("ann")
    assert limit_of(caught) == "max-sessions"
    with pytest.raises(LimitReached):
        allowance.enter("eve")
    for user in (None, None, "bob", "bob"):
        allowance.enter(user)
        allowance.enter(user)
        allowance.leave(user)
    allowance.leave("ann")
    allowance.enter("ann")
    assert dict(allowance.sessions) == {"ann": 1, "bob": 2}


def test_new_limits_hold_for_what_comes() -> None:
    world = BrokerFixture()
    world.queue("a")
    world.queue("b")
    configuration = world.broker.configuration
    world.directory.allowance.apply(replace(configuration, global_max_queues=1))
    with pytest.raises(LimitReached, match="There are 2 queues, and the limit is 1"):
        world.directory.allowance.check_queue(None)
    assert len(world.directory.queues) == 2
    world.directory.allowance.apply(replace(configuration, global_max_queues=-1))
    world.directory.allowance.check_queue(None)
    with pytest.raises(NotFound):
        world.directory.queue("c")
