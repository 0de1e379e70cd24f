"""The files of config/ are configurations, and say what their comments promise."""

from itertools import product
from pathlib import Path

import pytest
from lxml import etree

from stompring.policy.load import PluginSources, load
from stompring.security.access import Permissions, open_management
from stompring.settings.artemis import describe_ignored
from stompring.settings.broker_xml import parse_broker_xml, read_broker_xml
from stompring.settings.machine import data_directory
from stompring.settings.match import SettingsRepository
from stompring.settings.model import (
    DeletionPolicy,
    DiskFullPolicy,
    FullPolicy,
    PageFullPolicy,
    PermissionType,
    RingPolicy,
    RoutingType,
)

from ..cli.command import invoke

CONFIG = Path(__file__).parents[2] / "config"
FILES = sorted(CONFIG.glob("*.xml"))


def read(name):
    configuration = read_broker_xml(CONFIG / name)
    return configuration, SettingsRepository.of(configuration)


def test_there_is_one_for_each_feature():
    assert {path.stem for path in FILES} >= {
        "broker", "ring", "scheduled", "limits", "paging", "security", "dead-letter", "wildcards", "policies",
        "tls", "websocket", "groups", "consumers", "artemis",
    }  # fmt: skip


def test_include():
    configuration, repository = read("include.xml")
    assert configuration.name == "orders" and configuration.populate_validated_user
    assert configuration.configuration_file_refresh_period == 5000
    assert [Path(file).name for file in configuration.files] == ["include.xml", "addresses.xml"]
    assert [address.name for address in configuration.addresses] == ["orders"]
    assert all(repository.lookup(name).enable_ingress_timestamp for name in ("orders", "orders.x"))
    assert not repository.lookup("orders2").enable_ingress_timestamp


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_listeners_and_prefixes_are_those_of_the_shipped_file(path):
    configuration, _ = read(path.name)
    stomp, *others = configuration.stomp_acceptors
    (http,) = configuration.http_acceptors
    over_tls = path.stem == "tls"
    assert (stomp.tls is not None) == (http.tls is not None) == over_tls
    ports = (61612, 8162) if over_tls else (61613, 8161)
    assert (stomp.port, http.port) == ports and http.host == "127.0.0.1"
    assert stomp.anycast_prefix == ("/queue/", "queue/")
    assert stomp.multicast_prefix == ("/topic/", "topic/")
    assert stomp.host == ("0.0.0.0" if configuration.security_enabled else "127.0.0.1")
    assert [acceptor.name for acceptor in others] == (
        ["websocket"] if path.stem in ("broker", "websocket") else []
    )
    for websocket in others:
        assert (websocket.host, websocket.port, websocket.websocket.path) == ("127.0.0.1", 61614, "/stomp")
        assert websocket.anycast_prefix == stomp.anycast_prefix
        assert websocket.multicast_prefix == stomp.multicast_prefix


def test_the_shipped_file():
    configuration, repository = read("broker.xml")
    assert not configuration.security_enabled and configuration.persistence_enabled
    assert data_directory(configuration).root == CONFIG.parent / "data"
    assert configuration.max_disk_usage == 90
    assert configuration.global_max_size == 512 * 1024**2
    settings = repository.lookup("anything")
    assert settings.default_address_routing_type == settings.default_queue_routing_type == RoutingType.ANYCAST
    assert not settings.auto_delete_addresses and not settings.auto_delete_queues
    assert (settings.dead_letter_address, settings.expiry_address) == ("DLQ", "ExpiryQueue")
    assert settings.address_full_policy == FullPolicy.PAGE
    assert {address.name: address.routing_types for address in configuration.addresses} == {
        "DLQ": {RoutingType.ANYCAST},
        "ExpiryQueue": {RoutingType.ANYCAST},
    }
    assert [queue.name for address in configuration.addresses for queue in address.queues] == [
        "DLQ",
        "ExpiryQueue",
    ]


def test_commented_out_settings_of_the_shipped_file_are_valid():
    text = (CONFIG / "broker.xml").read_text()
    opened = text.replace("<!--\n      <address-setting", "<address-setting").replace(
        "</address-setting>\n      -->", "</address-setting>"
    )
    assert opened != text
    configuration = parse_broker_xml(opened.encode(), "broker.xml")
    assert SettingsRepository(configuration.address_settings).lookup("ring.a").default_ring_size == 100


def test_every_element_of_the_shipped_file_is_explained():
    """A comment stands before each element or before the first of its group of other_clients."""
    core = etree.parse(CONFIG / "broker.xml").getroot()[0]
    for element in core.iterchildren(etree.Element):
        assert isinstance(element.getprevious(), etree._Comment), element.tag


def test_ring():
    configuration, repository = read("ring.xml")
    queues = {queue.name: queue for address in configuration.addresses for queue in address.queues}
    assert queues["last-readings"].ring_size == 1000
    assert repository.lookup("prices.gold").default_ring_size == 1
    assert repository.lookup("jobs").ring_policy == RingPolicy.DEAD_LETTER
    assert repository.lookup("jobs").dead_letter_address == "overflow" in queues


def test_paging():
    configuration, repository = read("paging.xml")
    assert data_directory(configuration).paging == CONFIG.parent / "data" / "paging"
    assert (configuration.global_max_messages, configuration.dispatch_memory) == (100_000, 32 * 1024**2)
    assert configuration.warnings == ()
    assert repository.lookup("x").address_full_policy == FullPolicy.PAGE
    assert repository.lookup("archive.2024").max_size_messages == 0
    assert repository.lookup("jobs").page_full_policy == PageFullPolicy.FAIL
    assert repository.lookup("readings").disk_full_policy == DiskFullPolicy.DROP
    assert repository.lookup("readings").ring_counts_paged


SECURE = [CONFIG / "security.xml", CONFIG / "tls.xml", *CONFIG.glob("*/broker.xml"), None]


@pytest.mark.parametrize("path", SECURE, ids=lambda path: path and f"{path.parent.name}-{path.name}")
def test_ordinary_roles_reach_no_address_of_the_management(path, tmp_path):
    if path is None:
        invoke(f"init {tmp_path}/new")
        path = tmp_path / "new/etc/broker.xml"
    _, found, rest = path.read_text().partition("<security-settings>")
    settings = found + rest.partition("</security-settings>")[0] + "</security-settings>"
    core = f"<configuration><core>{settings}</core></configuration>"
    configuration = parse_broker_xml(core.encode(), "broker.xml")
    assert list(open_management(configuration)) == []
    rules, clients, admins = Permissions.of(configuration), frozenset(("clients",)), frozenset(("admins",))
    for address, permission in product(("activemq.management", "activemq.notifications"), PermissionType):
        assert not rules.allows(clients, permission, address)
        assert rules.allows(admins, permission, address) or path.name == "tls.xml"
    assert rules.allows(frozenset(("monitoring",)), PermissionType.VIEW, "activemq.management")
    assert not rules.allows(clients, PermissionType.CONSUME, "#"), "which has the notifications too"
    assert rules.allows(clients, PermissionType.CONSUME, "orders.#")


def test_policies():
    configuration, repository = read("policies.xml")
    load(configuration, PluginSources(configuration.file))
    modules = {plugin.name: plugin.policy for plugin in configuration.plugins}
    assert modules["slow-clients"] == "rate-limit" and modules["order-schema"] == "json-schema"

    def names(address):
        return [use.name for use in repository.lookup(address).address_policy if use.enabled]

    assert names("x") == ["stamp"]
    assert names("prices.gold") == ["stamp", "newest-per-key"]
    assert names("orders.new") == ["stamp", "slow-clients", "order-schema"]
    assert names("orders.test") == ["stamp", "slow-clients"]
    assert names("log") == ["stamp", "spill"]
    assert names("payments.card") == ["stamp", "tap"]
    assert names("measurements.heat") == ["stamp", "sample"]
    assert names("positions.ships") == ["stamp", "timed-ring"]
    assert repository.lookup("alarms.fire").address_full_policy == "evict-lowest-priority"
    warm = repository.lookup("log-of-yesterday")
    assert (warm.max_size_bytes, warm.default_ring_size) == (0, 100_000) and warm.ring_counts_paged


def test_wildcards():
    _, repository = read("wildcards.xml")
    assert repository.lookup("news/europe/sport").default_ring_size == 10
    assert repository.lookup("news/europe/sport").max_delivery_attempts == 5
    assert repository.lookup("news/europe").default_ring_size == 100
    assert repository.lookup("news/#").default_ring_size == -1


def test_settings_of_artemis():
    configuration, _ = read("artemis.xml")
    assert describe_ignored(configuration.ignored) == (
        "9 settings have no effect here: journal-type, journal-min-files, bindings-directory, critical-analyzer, "
        "connector 'artemis', protocols other than STOMP of acceptor, useEpoll of acceptor, amqpCredits of acceptor, "
        "message-counter-history-day-limit of address-setting"
    )
    (warning,) = configuration.warnings
    assert "acceptor 'mqtt' is skipped" in warning


def test_diverts():
    configuration, repository = read("diverts.xml")
    diverts = {divert.name: divert for divert in configuration.diverts}
    assert diverts["audited-orders"].transformer.remove_headers == ("card-number",)
    assert diverts["large-orders"].exclusive and not diverts["all-readings"].exclusive
    assert diverts["all-readings"].address == "readings.sensor.#"
    assert repository.lookup("orders").config_delete_diverts is DeletionPolicy.FORCE


def test_retroactive_addresses():
    _, repository = read("retroactive.xml")
    counts = {
        name: repository.lookup(name).retroactive_message_count for name in ("news.a.b", "readings.x", "x")
    }
    assert counts == {"news.a.b": 100, "readings.x": 1, "x": 0}
    assert repository.lookup("$.artemis.internal.news.a.address.retro").retroactive_message_count == 0
