"""A broker that runs is brought in line with a configuration."""

from dataclasses import fields, replace

import pytest

from stompring.errors import ConfigurationError
from stompring.server.reload import (
    COMPARED_SEPARATELY,
    ELEMENTS,
    apply,
    changed_values,
    preview,
    restart_required,
)
from stompring.settings.model import (
    AddressConfiguration,
    AddressSettingEntry,
    BrokerConfiguration,
    DeletionPolicy,
    DivertConfiguration,
    HttpAcceptor,
    PluginConfiguration,
    QueueConfiguration,
    StompAcceptor,
    WildcardSyntax,
)

from ..broker.broker_fixture import ANYCAST, MULTICAST, BrokerFixture, bodies, join


def configuration(*queues, settings=None):
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


def queue(name="q", **more):
    return QueueConfiguration(name, name, ANYCAST, configured=True, **more)


def running(*queues, settings=None):
    world = BrokerFixture()
    apply(world.broker, configuration(*queues, settings=settings))
    return world


@pytest.mark.parametrize(
    "bad, words",
    [
        (QueueConfiguration("q", "q", MULTICAST, configured=True), "routing-type cannot change"),
        (queue(durable=False), "durable cannot change"),
        (queue(ring_size=0), "queue q: ring-size"),
        (QueueConfiguration("q", "elsewhere", ANYCAST, configured=True), "bound to address q"),
    ],
)
def test_what_cannot_be_changes_nothing(bad, words):
    world = running(queue())
    before = world.broker.configuration
    with pytest.raises(ConfigurationError, match=words):
        apply(world.broker, configuration(queue("another", ring_size=3), bad))
    assert "another" not in world.directory.queues
    assert world.broker.configuration is before


@pytest.mark.parametrize(
    "change, named",
    [
        ({"journal_file_size": 4096}, ["<journal-file-size>"]),
        ({"persistence_enabled": False}, ["<persistence-enabled>"]),
        ({"page_sync_timeout": 5}, ["<page-sync-timeout>"]),
        ({"wildcard": WildcardSyntax("/")}, ["<wildcard-addresses>"]),
        ({"max_disk_usage": 50, "min_disk_free": 5, "disk_scan_period": 7, "dispatch_memory": 2**25}, []),
        ({"global_max_size": 5, "global_max_messages": 6}, []),
    ],
)
def test_what_requires_a_restart(change, named):
    world = BrokerFixture(persistence_enabled=True)
    before = world.broker.configuration
    new = replace(before, **change)
    assert list(restart_required(before, new)) == named
    applied = [f"<{name.replace('_', '-')}>" for name in change]
    assert sorted(apply(world.broker, new).applied) == ([] if named else sorted(applied))


def test_each_acceptor_that_requires_a_restart_is_named():
    kept, changed = StompAcceptor("kept", "127.0.0.1", 1), StompAcceptor("changed", "127.0.0.1", 2)
    http, new_http = HttpAcceptor("http", "127.0.0.1", 3), HttpAcceptor("new", "127.0.0.1", 4)
    before = BrokerConfiguration(stomp_acceptors=(kept, changed), http_acceptors=(http,))
    moved = replace(changed, port=5)
    new = replace(before, stomp_acceptors=(kept, moved), http_acceptors=(new_http,))
    assert list(restart_required(before, new)) == [
        "<acceptors>: acceptor changed changed",
        "<acceptors>: acceptor new added",
        "<acceptors>: acceptor http removed",
    ]


def test_what_was_applied_and_what_failed_is_listed():
    world = running(queue(), queue("gone"), settings={"config_delete_queues": DeletionPolicy.FORCE})
    world.queue("crowded", "crowded", ANYCAST)
    for _ in range(2):
        join(world.directory.queue("crowded"))
    outcome = apply(
        world.broker,
        replace(
            configuration(
                queue(ring_size=3),
                queue("new"),
                queue("crowded", max_consumers=1),
                settings={"config_delete_queues": DeletionPolicy.FORCE, "max_delivery_attempts": 3},
            ),
            plugins=(PluginConfiguration("limit", "rate-limit"),),
        ),
    )
    assert outcome.applied == [
        '<address-setting match="#"> changed',
        '<broker-plugin name="limit"> added',
        "address new created",
        "queue new created",
        "queue q changed: ring-size",
        "queue gone deleted",
    ]
    (failed,) = outcome.failed
    assert failed.startswith("queue crowded not changed (") and "max-consumers 1" in failed
    assert outcome.restart_required == [] and outcome.refused is None


def test_limits_of_memory_count_at_once_and_warnings_are_told(caplog):
    world = BrokerFixture()
    changed = replace(world.broker.configuration, global_max_messages=1, warnings=("x.xml:3: half a limit",))
    apply(world.broker, changed)
    world.queue("q")
    world.send()
    assert world.broker.memory.full
    assert "x.xml:3: half a limit" in [record.getMessage() for record in caplog.records]


def with_diverts(*diverts, forced=True, file=None):
    policy = DeletionPolicy.FORCE if forced else DeletionPolicy.OFF
    return replace(configuration(settings={"config_delete_diverts": policy}), diverts=diverts, file=file)


def test_a_reload_adds_changes_and_removes_diverts_as_its_preview_says():
    world = BrokerFixture()
    apply(
        world.broker,
        with_diverts(DivertConfiguration("a", "x", ("y",)), DivertConfiguration("b", "x", ("z",))),
    )
    new = with_diverts(
        DivertConfiguration("a", "x", ("y",), "k = '1'"), DivertConfiguration("c", "v.#", ("w",))
    )
    expected = ["divert a changed", "divert c created", "divert b deleted"]
    assert preview(world.broker, new).applied[-3:] == expected
    assert sorted(world.broker.diverts.by_name) == ["a", "b"]
    world.send("x", b"1")
    assert apply(world.broker, new).applied[-3:] == expected
    world.send("x", b"2")
    world.send("x", b"3", headers={"k": "1"})
    world.send("v.x", b"4")
    queued = {name: len(bodies(live)) for name, live in world.directory.queues.items()}
    assert not queued  # the addresses of this configuration are topics without subscribers
    counts = {one.name: one.unrouted_messages for one in world.broker.diverts.by_name.values()}
    assert counts == {"a": 2, "c": 1}
    changed = {(each.name, each.setting) for each in changed_values(new, new, with_diverts(), [])}
    assert ("a", "filter") in changed and ("c", "address") in changed


def test_a_divert_that_was_removed_stays_unless_it_is_forced_out():
    world = BrokerFixture()
    apply(world.broker, with_diverts(DivertConfiguration("a", "x", ("y",)), forced=False))
    outcome = apply(world.broker, with_diverts(forced=False))
    assert not [text for text in outcome.applied if "divert a" in text]
    world.send("x")
    assert world.broker.diverts.by_name["a"].unrouted_messages == 1
    looping = with_diverts(DivertConfiguration("b", "y", ("x",)), forced=False, file="f")
    with pytest.raises(ConfigurationError, match="divert 'b' and divert 'a' form a loop: y to x to y"):
        apply(world.broker, looping)
    assert list(world.broker.diverts.by_name) == ["a"]


def test_an_unchanged_divert_keeps_its_counters_and_its_object():
    world = BrokerFixture()
    one = DivertConfiguration("a", "x", ("y",))
    apply(world.broker, with_diverts(one))
    world.send("x")
    (bound,) = world.address("x").diverts
    apply(world.broker, with_diverts(replace(one)))
    assert world.address("x").diverts == (bound,) and bound.divert.unrouted_messages == 1


def test_a_changed_choice_of_notifications_is_applied():
    world = running(queue())
    chosen = replace(configuration(queue()), notified=frozenset({"MESSAGE_EXPIRED", "MESSAGE_DELIVERED"}))
    (change,) = changed_values(world.broker.configuration, world.broker.configuration, chosen, [])
    assert (change.setting, change.before, change.after) == (
        "broker-plugins",
        [],
        ["MESSAGE_DELIVERED", "MESSAGE_EXPIRED"],
    )
    assert apply(world.broker, chosen).applied == ["<broker-plugins>"]
    assert world.address("q").hooks.delivered is not None
    assert apply(world.broker, configuration(queue())).applied == ["<broker-plugins>"]
    assert world.address("q").hooks.delivered is None


def test_every_field_that_a_reload_compares_has_the_name_of_an_element():
    named = {each.name for each in fields(BrokerConfiguration)} - COMPARED_SEPARATELY
    assert named <= ELEMENTS.keys()
