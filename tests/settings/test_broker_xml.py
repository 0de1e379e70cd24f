"""Whole files, read into the model."""

from types import MappingProxyType

import pytest

from stompring.errors import ConfigurationError
from stompring.settings.broker_xml import parse_broker_xml, read_broker_xml
from stompring.settings.machine import machine_memory
from stompring.settings.model import (
    AddressConfiguration,
    AddressSettingEntry,
    BrokerConfiguration,
    DeletionPolicy,
    FrameLimits,
    FullPolicy,
    HttpAcceptor,
    QueueConfiguration,
    RingPolicy,
    RoutingType,
    StompAcceptor,
    WildcardSyntax,
)

from .documents import FILE, QUIET, document, parse, queue, setting

WHOLE = """<?xml version="1.0" encoding="UTF-8"?>
<configuration xmlns="urn:activemq" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
               xsi:schemaLocation="urn:activemq /schema/artemis-configuration.xsd">
  <core xmlns="urn:activemq:core">
    <!-- a comment -->
    <name>east<!-- within a value --></name>
    <persistence-enabled>FALSE</persistence-enabled>
    <security-enabled>true</security-enabled>
    <users-file>people/users</users-file>
    <global-max-size> 1GB </global-max-size>
    <global-max-messages>5000000</global-max-messages>
    <connection-ttl-override>60000</connection-ttl-override>
    <literal-match-markers>()</literal-match-markers>
    <wildcard-addresses>
      <routing-enabled>false</routing-enabled>
      <delimiter>/</delimiter>
      <any-words>></any-words>
      <single-word>+</single-word>
    </wildcard-addresses>
    <acceptors>
      <acceptor name="stomp">tcp://0.0.0.0:61613?anycastPrefix=/queue/&amp;maxHeaders=10</acceptor>
      <acceptor name="http">http://[::1]:8161</acceptor>
      <acceptor name="free">
        tcp://127.0.0.1:0
      </acceptor>
      <acceptor name="free too">tcp://127.0.0.1:0</acceptor>
    </acceptors>
    <address-settings>
      <address-setting match=">">
        <default-ring-size>100</default-ring-size>
        <address-full-policy>drop</address-full-policy>
        <redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
        <config-delete-queues>FORCE</config-delete-queues>
        <ring-policy>dead_letter</ring-policy>
        <default-queue-routing-type>ANYCAST</default-queue-routing-type>
        <auto-create-queues>false</auto-create-queues>
        <dead-letter-address>DLQ</dead-letter-address>
        <dead-letter-queue-prefix/>
      </address-setting>
      <address-setting match="a/b">
        <dead-letter-address/>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="a">
        <anycast>
          <queue name="q" ring-size="3" ring-policy="DISCARD" max-consumers="2" purge-on-no-consumers="true"
                 exclusive="true" non-destructive="false" consumers-before-dispatch="2" delay-before-dispatch="50"
                 last-value="true" last-value-key="code" enabled="false" user="eva">
            <filter string="x &lt; 5"/>
            <durable>false</durable>
          </queue>
        </anycast>
        <multicast>
          <queue name="r"><user>ann</user></queue>
          <queue name="s"/>
        </multicast>
      </address>
      <address name="b"><multicast/></address>
    </addresses>
  </core>
</configuration>
"""


def test_a_whole_file():
    assert parse_broker_xml(WHOLE.encode(), "/etc/stompring/broker.xml") == BrokerConfiguration(
        name="east",
        file="/etc/stompring/broker.xml",
        persistence_enabled=False,
        security_enabled=True,
        users_file="/etc/stompring/people/users",
        roles_file="/etc/stompring/roles.properties",
        global_max_size=1024**3,
        global_max_messages=5_000_000,
        dispatch_memory=256 * 1024**2,
        global_max_transaction_size=256 * 1024**2,
        global_max_unfinished_size=256 * 1024**2,
        global_max_subscription_size=256 * 1024**2,
        connection_ttl_override=60000,
        wildcard=WildcardSyntax("/", ">", "+", routing_enabled=False),
        literal_match_markers="()",
        stomp_acceptors=(
            StompAcceptor(
                "stomp", "0.0.0.0", 61613, anycast_prefix=("/queue/",), limits=FrameLimits(max_headers=10)
            ),
            StompAcceptor("free", "127.0.0.1", 0),
            StompAcceptor("free too", "127.0.0.1", 0),
        ),
        http_acceptors=(HttpAcceptor("http", "::1", 8161),),
        address_settings=(
            AddressSettingEntry(
                ">",
                MappingProxyType(
                    {
                        "default_ring_size": 100,
                        "address_full_policy": FullPolicy.DROP,
                        "redelivery_delay_multiplier": 1.5,
                        "config_delete_queues": DeletionPolicy.FORCE,
                        "ring_policy": RingPolicy.DEAD_LETTER,
                        "default_queue_routing_type": RoutingType.ANYCAST,
                        "auto_create_queues": False,
                        "dead_letter_address": "DLQ",
                        "dead_letter_queue_prefix": "",
                    }
                ),
                29,
            ),
            AddressSettingEntry("a/b", MappingProxyType({"dead_letter_address": None}), 40),
        ),
        addresses=(
            AddressConfiguration(
                "a",
                frozenset(RoutingType),
                (
                    QueueConfiguration(
                        "q",
                        "a",
                        RoutingType.ANYCAST,
                        durable=False,
                        filter="x < 5",
                        ring_size=3,
                        ring_policy=RingPolicy.DISCARD,
                        max_consumers=2,
                        purge_on_no_consumers=True,
                        exclusive=True,
                        non_destructive=False,
                        last_value=True,
                        last_value_key="code",
                        consumers_before_dispatch=2,
                        delay_before_dispatch=50,
                        enabled=False,
                        user="eva",
                    ),
                    QueueConfiguration("r", "a", RoutingType.MULTICAST, user="ann"),
                    QueueConfiguration("s", "a", RoutingType.MULTICAST),
                ),
            ),
            AddressConfiguration("b", frozenset({RoutingType.MULTICAST})),
        ),
    )


def test_an_empty_core_has_the_defaults():
    memory = machine_memory()
    expected = BrokerConfiguration(
        file=FILE,
        users_file="etc/users.properties",
        roles_file="etc/roles.properties",
        global_max_size=memory // 4,
        dispatch_memory=max(memory // 16, 16 * 1024**2),
        global_max_transaction_size=max(memory // 16, 16 * 1024**2),
        global_max_unfinished_size=max(memory // 16, 16 * 1024**2),
        global_max_subscription_size=max(memory // 16, 16 * 1024**2),
    )
    assert parse() == expected
    assert parse("<acceptors/>", "<addresses/>", "<address-settings/>", "<wildcard-addresses/>") == expected
    assert expected.security_enabled and expected.persistence_enabled


@pytest.mark.parametrize(
    "configured, security, expected",
    [
        (None, "true", "etc/users.properties"),
        (None, "false", None),
        ("people", "false", "etc/people"),
        ("/srv/people", "true", "/srv/people"),
        ("../people", "true", "etc/../people"),
    ],
)
def test_users_file_is_relative_to_the_file(configured, security, expected):
    users = f"<users-file>{configured}</users-file>" if configured else ""
    assert parse(f"<security-enabled>{security}</security-enabled>", users).users_file == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_encodings(encoding):
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + document("<name>Büro</name>").decode()
    assert parse_broker_xml(text.encode(encoding), FILE).name == "Büro"


def test_namespaces_are_optional_and_may_have_prefixes():
    core = "<name>x</name>"
    for text in (
        f"<configuration><core>{core}</core></configuration>",
        f"<configuration xmlns='urn:activemq'><core xmlns='urn:activemq:core'>{core}</core></configuration>",
        f"<configuration xmlns='urn:activemq'><core>{core}</core></configuration>",
        "<a:configuration xmlns:a='urn:activemq' xmlns:c='urn:activemq:core'>"
        "<c:core><c:name>x</c:name></c:core></a:configuration>",
    ):
        assert parse_broker_xml(text.encode(), FILE).name == "x"


def test_an_address_without_a_type_has_that_of_its_settings():
    addresses = '<addresses><address name="a"/></addresses>'
    assert parse(addresses).addresses[0].routing_types == {RoutingType.MULTICAST}
    configuration = parse(setting("default-address-routing-type", "anycast"), addresses)
    assert configuration.addresses[0].routing_types == {RoutingType.ANYCAST}


def test_unset_queue_attributes_are_none():
    (address,) = parse(queue()).addresses
    assert address.queues == (QueueConfiguration("q", "a", RoutingType.ANYCAST),)


def test_a_file_is_read_from_its_path(tmp_path):
    path = tmp_path / "broker.xml"
    path.write_bytes(document(QUIET, "<name>x</name>"))
    configuration = read_broker_xml(path)
    assert (configuration.name, configuration.file) == ("x", str(path))
    assert read_broker_xml(str(path)) == configuration


def test_a_file_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "missing.xml", tmp_path):
        with pytest.raises(ConfigurationError, match=f"^{path}: cannot be read: "):
            read_broker_xml(path)
