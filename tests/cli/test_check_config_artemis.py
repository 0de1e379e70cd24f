"""``check-config`` on configurations as operators of Artemis have them: which start, and the advice for the others.

Each file mixes what works, what has no effect and what is refused, as files in the field do.
"""

import pytest

from .command import invoke

STOMP = '<acceptor name="stomp">tcp://127.0.0.1:61613?protocols=STOMP;useEpoll=true</acceptor>'
TUNING = (
    "<journal-type>NIO</journal-type><journal-datasync>true</journal-datasync><journal-min-files>2</journal-min-files>"
    "<journal-pool-files>10</journal-pool-files><critical-analyzer>true</critical-analyzer>"
    "<page-sync-timeout>1720000</page-sync-timeout><max-redelivery-records>1</max-redelivery-records>"
)
OPEN = "<security-enabled>false</security-enabled>"


def check(folder, core, *acceptors, strict=False, code=0):
    """``stompring check-config`` of a file with this inside ``<core>``, one element on a line."""
    config = folder / "broker.xml"
    listed = "\n".join(acceptors or (STOMP,))
    config.write_text(
        f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">\n{core}\n'
        f"<acceptors>\n{listed}\n</acceptors>\n</core></configuration>"
    )
    return invoke(f"check-config {'--strict' * strict} {config}", code=code)


#: Name of a kind of installation: what is in its <core>, and its acceptors.
WORKING = {
    "container image with an open broker": (
        OPEN + TUNING,
        [
            '<acceptor name="artemis">tcp://127.0.0.1:61616?tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576;'
            "amqpCredits=1000;amqpLowCredits=300;protocols=CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE;useEpoll=true</acceptor>"
        ],
    ),
    "STOMP beside other protocols": (
        OPEN,
        [
            STOMP,
            '<acceptor name="amqp">tcp://127.0.0.1:5672?protocols=AMQP</acceptor>',
            '<acceptor name="mqtt">tcp://127.0.0.1:1883?protocols=MQTT;useEpoll=true</acceptor>',
            '<acceptor name="in-vm">vm://0</acceptor>',
        ],
    ),
    "broker in memory for tests": (
        OPEN
        + "<persistence-enabled>false</persistence-enabled><journal-directory>target/journal</journal-directory>"
        '<address-settings><address-setting match="#"><address-full-policy>PAGE</address-full-policy>'
        "<max-size-bytes>-1</max-size-bytes></address-setting></address-settings>",
        [STOMP],
    ),
    "queues with prefixes of HornetQ": (
        OPEN
        + '<addresses><address name="jms.queue.orders"><anycast><queue name="jms.queue.orders"/></anycast></address>'
        "</addresses>",
        [
            '<acceptor name="hornetq">tcp://127.0.0.1:5445?anycastPrefix=jms.queue.;protocols=HORNETQ,STOMP</acceptor>'
        ],
    ),
    "dead letters and expiry of each queue": (
        OPEN + '<address-settings><address-setting match="activemq.management.#"><dead-letter-address>DLQ'
        "</dead-letter-address></address-setting>"
        '<address-setting match="#"><auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>'
        "<dead-letter-address>DLQ</dead-letter-address><dead-letter-queue-prefix/>"
        "<dead-letter-queue-suffix>.DLQ</dead-letter-queue-suffix><redelivery-delay>5000</redelivery-delay>"
        "<max-delivery-attempts>3</max-delivery-attempts><message-counter-history-day-limit>10"
        "</message-counter-history-day-limit></address-setting></address-settings>",
        [STOMP],
    ),
    "diverts and last values": (
        OPEN + '<address-settings><address-setting match="prices.#"><default-last-value-key>symbol'
        "</default-last-value-key></address-setting></address-settings>"
        '<diverts><divert name="audit"><address>orders</address><forwarding-address>audit</forwarding-address>'
        "<exclusive>false</exclusive></divert></diverts>",
        [STOMP],
    ),
}


@pytest.mark.parametrize("name", sorted(WORKING))
def test_configuration_starts_as_it_is(tmp_path, name):
    core, acceptors = WORKING[name]
    assert "broker.xml: ok" in check(tmp_path, core, *acceptors).stdout


def test_settings_without_effect_are_listed_and_refused_by_strict(tmp_path):
    result = check(tmp_path, OPEN + TUNING)
    assert (
        "7 settings have no effect here: journal-type, journal-datasync, journal-min-files, " in result.stdout
    )
    assert check(tmp_path, OPEN + TUNING, strict=True, code=1).stderr.count("has no effect here") == 7


#: What is in <core> of a broker that is alone after the move, and the warning.
WARNED = {
    "primary of a pair": (
        "<ha-policy><replication><primary/></replication></ha-policy>",
        "replication of ha-policy: this broker is alone: there is no backup",
    ),
    "member of a cluster": (
        '<cluster-connections><cluster-connection name="c"><connector-ref>a</connector-ref></cluster-connection>'
        "</cluster-connections>",
        "cluster-connections: this broker is alone: nothing is forwarded",
    ),
    "messages in a database": (
        "<store><database-store><jdbc-driver-class-name>x</jdbc-driver-class-name></database-store></store>",
        "store: messages are stored in files, never in a database",
    ),
}


def test_a_declared_queue_that_is_a_ring_here_and_none_in_artemis_is_a_warning(tmp_path):
    core = (
        '<address-settings><address-setting match="a.#"><default-ring-size>5</default-ring-size></address-setting>'
        '</address-settings><addresses><address name="a.b"><anycast><queue name="open"/>'
        '<queue name="set" ring-size="5"/><queue name="off" ring-size="-1"/></anycast></address>'
        '<address name="b"><anycast><queue name="b"/></anycast></address></addresses>'
    )
    result = check(tmp_path, f"{OPEN}\n{core}")
    (line,) = [line for line in result.stderr.splitlines() if "ring" in line]
    assert line.startswith("queue 'open': default-ring-size 5 ") and line.endswith("(warning)")


@pytest.mark.parametrize("name", sorted(WARNED))
def test_what_other_brokers_and_databases_did_is_a_warning(tmp_path, name):
    core, words = WARNED[name]
    result = check(tmp_path, f"{OPEN}\n{core}")
    assert f"broker.xml:3: {words}" in result.stderr and "(warning)" in result.stderr


#: What is in <core>, and what the one refusal says.
REFUSED = {
    "backup of another broker": (
        "<ha-policy><replication><backup/></replication></ha-policy>",
        "it neither waits as a backup nor hands its messages to another broker",
    ),
    "cluster with named brokers": (
        '<cluster-connections><cluster-connection name="c"><connector-ref>a</connector-ref><static-connectors>'
        "<connector-ref>b</connector-ref></static-connectors></cluster-connection></cluster-connections>",
        "forward queues by <bridges>",
    ),
    "Java plugin": (
        '<broker-plugins><broker-plugin class-name="com.example.Audit"/></broker-plugins>',
        "docs/plugins.md",
    ),
    "interceptor": (
        "<remoting-incoming-interceptors><class-name>com.example.I</class-name></remoting-incoming-interceptors>",
        "use a <broker-plugin> (docs/plugins.md)",
    ),
    "misspelled element": ("<global-max-sise>100M</global-max-sise>", "did you mean"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusal_is_the_only_fault_and_has_line_and_advice(tmp_path, name):
    core, words = REFUSED[name]
    (fault,) = check(tmp_path, f"{OPEN}{TUNING}\n{core}", code=1).stderr.strip().splitlines()
    assert fault.removeprefix("Error: ").startswith(f"{tmp_path / 'broker.xml'}:3: "), fault
    assert words in fault


def test_all_refusals_are_reported_together(tmp_path):
    found = check(tmp_path, "\n".join([OPEN, *(core for core, _ in REFUSED.values())]), code=1).stderr
    assert all(words in found for _, words in REFUSED.values())
    assert len(found.strip().splitlines()) == len(REFUSED)


def test_broker_without_stomp_is_refused(tmp_path):
    result = check(
        tmp_path, OPEN, '<acceptor name="amqp">tcp://127.0.0.1:5672?protocols=AMQP</acceptor>', code=1
    )
    assert "no acceptor speaks STOMP: add one, for example" in result.stderr


def test_open_broker_for_other_machines_is_refused(tmp_path):
    """Artemis starts with it. What anybody may do is never passed over."""
    result = check(tmp_path, OPEN, STOMP.replace("127.0.0.1", "0.0.0.0"), code=1)
    assert "reachable from other machines, while <security-enabled> is false" in result.stderr
