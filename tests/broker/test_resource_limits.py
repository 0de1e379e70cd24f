"""How many addresses, queues and sessions there may be."""

from dataclasses import replace

import pytest

from stompring.broker.directory import allow_all
from stompring.errors import LimitReached, NotFound
from stompring.settings.model import QueueConfiguration, ResourceLimit

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture


def limit_of(error):
    return error.value.limit


def test_queues_in_all():
    world = BrokerFixture(global_max_queues=2)
    auto_create = world.broker.auto_create
    auto_create.address_for_send("a", ANYCAST, allow_all)
    auto_create.queue_to_consume("b", allow_all)
    for attempt in (
        lambda: auto_create.address_for_send("c", ANYCAST, allow_all),
        lambda: auto_create.queue_to_consume("c", allow_all),
        lambda: auto_create.queue_for("c", "c", ANYCAST, allow_all),
        lambda: auto_create.queue_for("a", "another", ANYCAST, allow_all),
        lambda: auto_create.subscription_queue(QueueConfiguration("s", "c", MULTICAST), allow_all),
    ):
        with pytest.raises(LimitReached, match="There are 2 queues, and the limit is 2") as caught:
            attempt()
        assert limit_of(caught) == "global-max-queues"
    assert set(world.directory.addresses) == {"a", "b"}, "nothing is left of what was refused"
    auto_create.address_for_send("a", ANYCAST, allow_all)
    auto_create.address_for_send("topic", MULTICAST, allow_all)
    world.directory.delete_queue("b")
    auto_create.queue_to_consume("c", allow_all)


def test_what_the_broker_makes_itself_is_always_made_and_counts():
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
    queue.requeue([queue.mark_delivering(world.message())], failed=True)
    assert "DLQ.q" in world.directory.queues
    with pytest.raises(LimitReached):
        world.broker.auto_create.queue_to_consume("b", allow_all)


def test_a_queue_that_gets_another_owner():
    world = BrokerFixture(resource_limits=(ResourceLimit("ann", max_queues=1),))
    resource_limits = world.directory.resource_limits
    queue = world.queue(user="ann")
    assert dict(resource_limits.queues) == {"ann": 1}
    world.directory.update_queue(queue, {"user": "bob"})
    assert dict(resource_limits.queues) == {"bob": 1}
    resource_limits.check_queue("ann")
    world.directory.update_queue(queue, {"user": None})
    world.directory.delete_queue("q")
    assert not resource_limits.queues


def test_sessions_of_a_user():
    world = BrokerFixture(
        resource_limits=(ResourceLimit("ann", max_sessions=1), ResourceLimit("eve", max_sessions=0))
    )
    resource_limits = world.directory.resource_limits
    resource_limits.enter("ann")
    with pytest.raises(LimitReached, match="User ann has 1 sessions, and the limit is 1") as caught:
        resource_limits.enter("ann")
    assert limit_of(caught) == "max-sessions"
    with pytest.raises(LimitReached):
        resource_limits.enter("eve")
    for user in (None, None, "bob", "bob"):
        resource_limits.enter(user)
        resource_limits.enter(user)
        resource_limits.leave(user)
    resource_limits.leave("ann")
    resource_limits.enter("ann")
    assert dict(resource_limits.sessions) == {"ann": 1, "bob": 2}


def test_new_limits_hold_for_what_comes():
    world = BrokerFixture()
    world.queue("a")
    world.queue("b")
    configuration = world.broker.configuration
    world.directory.resource_limits.apply(replace(configuration, global_max_queues=1))
    with pytest.raises(LimitReached, match="There are 2 queues, and the limit is 1"):
        world.directory.resource_limits.check_queue(None)
    assert len(world.directory.queues) == 2
    world.directory.resource_limits.apply(replace(configuration, global_max_queues=-1))
    world.directory.resource_limits.check_queue(None)
    with pytest.raises(NotFound):
        world.directory.queue("c")
