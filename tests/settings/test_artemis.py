"""Settings of Artemis that this broker does not have: accepted without effect, or refused with advice."""

import pytest

from stompring.settings import urls
from stompring.settings.artemis import (
    ACCEPTOR_PARAMETERS,
    CONNECTOR_PARAMETERS,
    SECTIONS,
    Support,
    describe_ignored,
)
from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.model import IgnoredSetting
from stompring.settings.urls import (
    LISTENER_PARAMETERS,
    OLD_PARAMETER_NAMES,
    STOMP_PARAMETERS,
    parse_connector,
)

from .documents import FILE, QUIET, acceptor, faults, faults_of, parse, queue, setting

LISTENER = acceptor("tcp://127.0.0.1:61613")


def names(*lines):
    """The settings without effect of a document with ``lines``."""
    return [each.name for each in parse(QUIET, *lines).ignored]


def test_what_only_tunes_artemis_is_accepted_and_listed_with_line_and_reason():
    found = parse(QUIET, "<journal-type>ASYNCIO</journal-type>", setting("redistribution-delay", "0")).ignored
    assert [(each.line, each.name) for each in found] == [
        (4, "journal-type"),
        (5, "redistribution-delay of address-setting"),
    ]
    assert found[0].reason == "the only journal type is plain files with one sync per batch"


def test_the_list_counts_each_setting_once():
    settings = [
        IgnoredSetting(3, "journal-type", "r"),
        IgnoredSetting(5, "useEpoll of acceptor", "r"),
        IgnoredSetting(6, "useEpoll of acceptor", "r"),
        IgnoredSetting(7, "store", "r", is_warning=True),
    ]
    assert describe_ignored(settings) == "2 settings have no effect here: journal-type, useEpoll of acceptor"
    assert describe_ignored(settings[:1]) == "1 setting has no effect here: journal-type"
    assert describe_ignored(settings[3:]) is None


ROWS = [
    (section, name, row)
    for section, rows in SECTIONS.items()
    for name, row in rows.items()
    if section in ("core", "address-setting")
]


@pytest.mark.parametrize("section, name, row", ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_each_element_is_accepted_or_refused_as_its_row_says(section, name, row):
    assert row is SECTIONS[section][name]
    line = f"<{name}>x</{name}>" if section == "core" else setting(name, "x")
    if SECTIONS[section][name].support is Support.NO_EFFECT:
        assert [each.partition(" of ")[0] for each in names(line)] == [name]
    else:
        (fault,) = faults(QUIET, line)
        assert fault.startswith(
            f"4: <{name}> in <{section}> is an Artemis setting without support in stompring"
        )


@pytest.mark.parametrize("name", ACCEPTOR_PARAMETERS)
def test_each_parameter_of_an_acceptor_is_accepted_or_refused_as_its_row_says(name):
    line = acceptor(f"tcp://127.0.0.1:61613?{name}=x")
    if ACCEPTOR_PARAMETERS[name].support is Support.NO_EFFECT:
        assert names(line) == [f"{name} of acceptor"]
    else:
        (fault,) = faults(QUIET, line)
        assert fault.startswith(f"4: acceptor 'x': parameter '{name}' is an Artemis setting without support")


@pytest.mark.parametrize("name", CONNECTOR_PARAMETERS)
def test_each_parameter_of_a_connector_is_accepted_or_refused_as_its_row_says(name):
    ignored = []
    url = f"tcp://127.0.0.1:61613?{name}=x"
    if CONNECTOR_PARAMETERS[name].support is Support.NO_EFFECT:
        parse_connector("x", url, ignored=ignored)
        assert ignored == [(name, CONNECTOR_PARAMETERS[name].reason)]
    else:
        with pytest.raises(ValueError, match="is an Artemis setting without support in stompring"):
            parse_connector("x", url, ignored=ignored)


def test_every_row_has_its_reason():
    tables = [*SECTIONS.values(), ACCEPTOR_PARAMETERS, CONNECTOR_PARAMETERS]
    assert [name for rows in tables for name, row in rows.items() if not row.reason and not row.neutral] == []


NEUTRAL = [
    ("<wild-card-routing-enabled>TRUE</wild-card-routing-enabled>", "wild-card-routing-enabled"),
    ("<address-queue-scan-period>30000</address-queue-scan-period>", "address-queue-scan-period"),
    ("<mask-password>${env:NO_SUCH_NAME_AT_ALL}</mask-password>", None),
    ("<wildcard-addresses><enabled>true</enabled></wildcard-addresses>", "enabled of wildcard-addresses"),
    ("<wildcard-addresses><enabled>false</enabled></wildcard-addresses>", None),
    (setting("auto-create-jms-queues", "true"), "auto-create-jms-queues of address-setting"),
    (acceptor("tcp://127.0.0.1:1?trustAll=false"), "trustAll of acceptor"),
    (acceptor("tcp://127.0.0.1:1?autoStart=true"), "autoStart of acceptor"),
    (acceptor("tcp://127.0.0.1:1?autoStart=1"), None),
    ("<ha-policy><shared-store><primary/></shared-store></ha-policy>", "shared-store of ha-policy"),
    ("<ha-policy><shared-store><slave/></shared-store></ha-policy>", None),
    ("<ha-policy><live-only><scale-down/></live-only></ha-policy>", None),
    (
        "<cluster-connections><cluster-connection name='c'><static-connectors><connector-ref>a</connector-ref>"
        "</static-connectors></cluster-connection></cluster-connections>",
        None,
    ),
]


@pytest.mark.parametrize("line, accepted", NEUTRAL)
def test_a_refused_setting_is_accepted_with_a_value_that_changes_nothing(line, accepted):
    if accepted is None:
        assert "an Artemis setting without support" in faults(QUIET, line)[0]
    else:
        assert names(line) == [accepted]


LOGGING = "org.apache.activemq.artemis.core.server.plugin.impl.LoggingActiveMQServerPlugin"


def test_the_plugin_that_only_logs_has_no_effect_and_others_are_refused():
    inside = '<property key="LOG_ALL_EVENTS" value="true"/>'
    line = f'<broker-plugins><broker-plugin class-name="{LOGGING}">{inside}</broker-plugin></broker-plugins>'
    assert names(line) == ["class-name of broker-plugin"]
    assert faults(QUIET, line.replace("Logging", "Other")) == [
        "4: attribute 'class-name' of <broker-plugin> is an Artemis setting without support in stompring: plugins are "
        "Python modules: set name and policy (docs/plugins.md)"
    ]


NOTIFICATIONS = "org.apache.activemq.artemis.core.server.plugin.impl.NotificationActiveMQServerPlugin"


def notification_plugin(*properties):
    inside = "".join(f'<property key="{key}" value="{value}"/>' for key, value in properties)
    return f'<broker-plugins><broker-plugin class-name="{NOTIFICATIONS}">{inside}</broker-plugin></broker-plugins>'


def test_the_plugin_for_notifications_chooses_those_per_message():
    line = notification_plugin(
        ("SEND_CONNECTION_NOTIFICATIONS", "true"),
        ("SEND_DELIVERED_NOTIFICATIONS", "true"),
        ("SEND_EXPIRED_NOTIFICATIONS", "false"),
    )
    assert parse(QUIET, line).notified == {"MESSAGE_DELIVERED"}
    assert parse(QUIET).notified == frozenset()


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("SEND_DELIVERED_NOTIFICATION", "true", "did you mean 'SEND_DELIVERED_NOTIFICATIONS'"),
        ("SEND_DELIVERED_NOTIFICATIONS", "yes", "property 'SEND_DELIVERED_NOTIFICATIONS'"),
    ],
)
def test_a_wrong_property_of_the_plugin_for_notifications_is_a_fault(key, value, words):
    (fault,) = faults(QUIET, notification_plugin((key, value)))
    assert fault.startswith("4: ") and words in fault


def test_what_concerns_other_brokers_is_a_warning_and_not_in_the_list():
    found = parse(
        QUIET,
        "<cluster-connections><cluster-connection name='c'/></cluster-connections>",
        "<store><database-store/></store>",
    )
    assert found.warnings == (
        "etc/broker.xml:4: cluster-connections: this broker is alone: nothing is forwarded to other brokers",
        "etc/broker.xml:5: store: messages are stored in files, never in a database: see journal-directory and "
        "paging-directory",
    )
    assert describe_ignored(found.ignored) is None


def acceptors(*urls):
    inside = "".join(f'<acceptor name="a{number}">{url}</acceptor>' for number, url in enumerate(urls))
    return f"<acceptors>{inside}</acceptors>"


def test_acceptors_of_other_protocols_are_skipped_with_a_warning():
    found = parse(
        QUIET,
        acceptors(
            "tcp://127.0.0.1:5672?protocols=AMQP;amqpNonsense=x",
            "tcp://127.0.0.1:1883?protocols=mqtt,CORE",
            "vm://0",
            "tcp://127.0.0.1:61613?protocols=STOMP",
        ),
    )
    assert [(each.name, each.port) for each in found.stomp_acceptors] == [("a3", 61613)]
    assert found.warnings == (
        "etc/broker.xml:4: acceptor 'a0' is skipped: it speaks AMQP, and this broker STOMP only",
        "etc/broker.xml:4: acceptor 'a1' is skipped: it speaks MQTT, CORE, and this broker STOMP only",
        "etc/broker.xml:4: acceptor 'a2' is skipped: in-VM: only clients in the same Java machine use it",
    )


def test_an_acceptor_with_several_protocols_or_none_serves_stomp():
    found = parse(
        QUIET,
        acceptors("tcp://127.0.0.1:61616?protocols=CORE,AMQP,STOMP", "tcp://127.0.0.1:61617?useEpoll=true"),
    )
    assert [each.port for each in found.stomp_acceptors] == [61616, 61617]
    assert [each.name for each in found.ignored] == [
        "protocols other than STOMP of acceptor",
        "useEpoll of acceptor",
    ]


@pytest.mark.parametrize("others", [(), ("vm://0",), ("http://127.0.0.1:8161",)])
def test_without_an_acceptor_that_speaks_stomp_the_file_is_refused(others):
    amqp = "tcp://127.0.0.1:5672?protocols=AMQP"
    (fault,) = faults(QUIET, acceptors(*others, amqp))
    assert fault.startswith("4: no acceptor speaks STOMP: add one, for example <acceptor")
    assert parse(QUIET, acceptors(*others, amqp, "ws://127.0.0.1:61614")).stomp_acceptors


def test_a_file_with_in_vm_acceptors_only_is_like_one_without_acceptors():
    found = parse(QUIET, acceptors("vm://0"))
    assert found.stomp_acceptors == ()
    assert [each.is_warning for each in found.ignored] == [True]


def test_declarations_of_jms_are_refused_and_an_empty_element_has_no_effect():
    file = '<configuration><jms xmlns="urn:activemq:jms">{}</jms><core/></configuration>'
    assert [each.name for each in parse_broker_xml(file.format("").encode(), FILE).ignored] == [
        "jms of configuration"
    ]
    (fault,) = faults_of(file.format('<queue name="q"/>').encode())
    assert fault.startswith("1: <jms> in <configuration> is an Artemis setting")
    assert fault.endswith("declare addresses and queues in <core><addresses>")


def test_a_parameter_without_effect_may_be_repeated():
    assert names(acceptor("tcp://127.0.0.1:1?useEpoll=true;useEpoll=false")) == ["useEpoll of acceptor"] * 2


def test_attributes_of_xml_itself_are_accepted_on_every_element():
    assert names('<acceptors xml:base="more.xml" xml:space="preserve"/>') == []


def test_a_protocol_that_artemis_does_not_have_is_a_fault_and_not_skipped():
    (fault,) = faults(QUIET, acceptors("tcp://127.0.0.1:5672?protocols=SMTP", "tcp://127.0.0.1:1"))
    assert "must be a comma-separated list of AMQP, CORE," in fault


def test_no_name_is_both_supported_and_in_the_table():
    assert not set(ACCEPTOR_PARAMETERS) & {
        *STOMP_PARAMETERS,
        *LISTENER_PARAMETERS,
        *OLD_PARAMETER_NAMES,
        "protocols",
    }
    assert not set(CONNECTOR_PARAMETERS) & set(urls.CONNECTOR_PARAMETERS)


def test_a_file_without_settings_of_artemis_ignores_nothing():
    assert parse(QUIET, LISTENER, queue('ring-size="3"')).ignored == ()


def test_old_name_of_an_element_has_the_effect_of_the_new_one():
    text = '<address-settings><address-setting match="#"><last-value-queue>true</last-value-queue></address-setting>'
    (entry,) = parse("", f"{text}</address-settings>").address_settings
    assert entry.values == {"default_last_value_queue": True}


@pytest.mark.parametrize("name", ["management-address", "management-notification-address"])
@pytest.mark.parametrize("value", ["a.#", "*", "a::b"])
def test_requests_and_notifications_have_one_address(name, value):
    (fault,) = faults(QUIET, f"<{name}>{value}</{name}>")
    assert fault == f"4: <{name}> is '{value}': must be one address, without wildcards and without ::"


def test_requests_and_notifications_have_two_addresses():
    same = (
        "<management-address>m</management-address>",
        ("<management-notification-address>m</management-notification-address>"),
    )
    assert faults(QUIET, *same) == [
        "5: <management-notification-address> and <management-address> are both 'm': name two different addresses"
    ]
    (fault,) = faults(QUIET, "<management-address>activemq.notifications</management-address>")
    assert fault.startswith("4: ") and "are both 'activemq.notifications'" in fault
