"""A broker that runs is brought in line with a configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stompring.errors import ConfigurationError
from stompring.server.reload import apply
from stompring.settings.model import (
    AddressConfiguration,
    AddressSettingEntry,
    BrokerConfiguration,
    DeletionPolicy,
    QueueConfiguration,
)

from ..broker.world import ANYCAST, MULTICAST, World, bodies, join


def configuration(*queues: QueueConfiguration, settings: dict[str, Any] | None = None) -> BrokerConfiguration:
    names = {queue.address for queue in queues}
    addresses = tuple(
        AddressConfiguration(
            name,
            frozenset(queue.routing_type for queue in queues if queue.address == name),
            tuple(queue for queue in queues if queue.address == name),
        )
        for name in sorted(names)
    )
    return BrokerConfiguration(
        addresses=addresses, address_settings=(AddressSettingEntry("#", settings or {}),)
    )


def queue(name: str = "q", **more: Any) -> QueueConfiguration:
    return QueueConfiguration(name, name, ANYCAST, configured=True, **more)


def running(*queues: QueueConfiguration, settings: dict[str, Any] | None = None) -> World:
    world = World()
    apply(world.broker, configuration(*queues, settings=settings))
    return world


def test_the_start_makes_everything() -> None:
    world = running(queue(ring_size=3), queue("p"))
    assert world.directory.queue("q").ring_size == 3
    assert world.address("p").configured and not world.address("p").auto_created


def test_attributes_change_and_go_back_to_their_defaults() -> None:
    world = running(queue())
    live = world.directory.queue("q")
    world.send(body=b"kept")
    apply(world.broker, configuration(queue(ring_size=5, max_consumers=2, exclusive=True, filter="a = '1'")))
    assert (live.ring_size, live.attributes.max_consumers, live.attributes.exclusive) == (5, 2, True)
    assert live.attributes.filter == "a = '1'"
    apply(world.broker, configuration(queue()))
    assert (live.ring_size, live.attributes.max_consumers, live.attributes.exclusive) == (-1, -1, False)
    assert live.attributes.filter is None and bodies(live) == [b"kept"]


def test_settings_take_effect_at_once() -> None:
    world = running(queue())
    world.send()
    apply(world.broker, configuration(queue(), settings={"max_size_messages": 1}))
    assert world.address("q").full is not None
    apply(world.broker, configuration(queue()))
    assert world.address("q").full is None


@pytest.mark.parametrize("policy", list(DeletionPolicy))
def test_what_vanished(policy: DeletionPolicy) -> None:
    settings = {"config_delete_queues": policy, "config_delete_addresses": policy}
    world = running(queue(), queue("p"), settings=settings)
    world.send()
    taker = join(world.directory.queue("q"))
    made_by_client = world.queue("mine")
    apply(world.broker, configuration(queue("p"), settings=settings))
    forced = policy is DeletionPolicy.FORCE
    assert ("q" in world.directory.queues, "q" in world.directory.addresses) == (not forced, not forced)
    assert (taker.cancel_reason is not None) is forced
    assert not made_by_client.deleted


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (QueueConfiguration("q", "q", MULTICAST, configured=True), "routing-type cannot change"),
        (queue(durable=False), "durable cannot change"),
        (queue(ring_size=0), "queue q: ring-size"),
        (QueueConfiguration("q", "elsewhere", ANYCAST, configured=True), "bound to address q"),
    ],
)
def test_what_cannot_be_changes_nothing(bad: QueueConfiguration, words: str) -> None:
    world = running(queue())
    before = world.broker.configuration
    with pytest.raises(ConfigurationError, match=words):
        apply(world.broker, configuration(queue("another", ring_size=3), bad))
    assert "another" not in world.directory.queues
    assert world.broker.configuration is before


def test_global_limits() -> None:
    world = running(queue())
    world.send()
    apply(world.broker, replace(configuration(queue()), global_max_size=1))
    assert world.broker.memory.full


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"journal_file_size": 4096}, "journal-file-size"),
        ({"persistence_enabled": False}, "persistence-enabled"),
        ({"page_sync_timeout": 5}, "page-sync-timeout"),
        ({"max_disk_usage": 50, "min_disk_free": 5, "disk_scan_period": 7, "dispatch_memory": 2**24}, None),
        ({"global_max_size": 5, "global_max_messages": 6}, None),
    ],
)
def test_what_only_a_restart_applies_is_told(
    change: dict[str, object], told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(persistence_enabled=True)
    apply(world.broker, replace(world.broker.configuration, **change))  # type: ignore[arg-type]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ([] if told is None else [f"a change of {told} takes effect with the next start"])


def test_limits_of_memory_count_at_once_and_warnings_are_told(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    changed = replace(world.broker.configuration, global_max_messages=1, warnings=("x.xml:3: half a limit",))
    apply(world.broker, changed)
    world.queue("q")
    world.send()
    assert world.broker.memory.full
    assert "x.xml:3: half a limit" in [record.getMessage() for record in caplog.records]
