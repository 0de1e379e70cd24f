"""Instances of Artemis start as ``artemis create`` wrote them, and stock clients log in with their user.

Where the distribution is installed all variants of ``create`` are made; one small instance is written by hand.
"""

import queue
import random
import shutil
import socket
import subprocess
from contextlib import closing

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from ..artemis import create_all, needs_artemis, needs_java
from ..broker_process import PATIENCE, BrokerProcess
from ..stomp_client import StompClient
from ..waiting import LONGEST
from .steps import say

#: Variants of ``create``, by its options. The first ten are not about several brokers or databases.
VARIANTS = {
    "default": ("--require-login",),
    "STOMP only": (
        *("--require-login", "--no-amqp-acceptor", "--no-mqtt-acceptor", "--no-hornetq-acceptor"),
        *("--nio", "--no-web", "--name", "mine", "--support-advisory", "--autodelete"),
    ),
    "anonymous": ("--allow-anonymous",),
    "no auto-create": ("--require-login", "--no-autocreate"),
    "blocking": ("--require-login", "--blocking"),
    "asynchronous journal": ("--require-login", "--aio", "--paging", "--purge-page-folders"),
    "mapped journal": ("--require-login", "--mapped", "--no-fsync"),
    "in memory": ("--require-login", "--disable-persistence", "--ping", "127.0.0.1"),
    "basic security": ("--require-login", "--security-manager", "basic"),
    "queues and limits": (
        *("--require-login", "--queues", "orders,audit:multicast", "--addresses", "events,jobs:anycast"),
        *("--journal-retention", "7", "--journal-retention-max-bytes", "1G"),
        *("--global-max-size", "100M", "--global-max-messages", "10000"),
    ),
    "without the acceptor of STOMP": ("--require-login", "--no-stomp-acceptor"),
    "clustered": ("--require-login", "--clustered", "--cluster-user", "c", "--cluster-password", "c"),
    "replicated": ("--require-login", "--replicated", "--cluster-user", "c", "--cluster-password", "c"),
    "database": ("--require-login", "--jdbc"),
}

#: What a start says of variants whose setting has another meaning here.
WARNINGS = {
    "in memory": "paging requires <persistence-enabled>",
    "clustered": "cluster-connections",
    "replicated": "ha-policy",
    "database": "store: ",
    "anonymous": "GuestLoginModule",
    "basic security": "security-manager ActiveMQBasicSecurityManager",
}


def free_offset():
    """An offset for the ports of an instance with which all of STOMP's are free."""
    for _ in range(100):
        offset = random.randrange(1, 3900)
        try:
            for port in (61616, 61613, 5445):
                with closing(socket.create_server(("127.0.0.1", port + offset))):
                    pass
        except OSError:
            continue
        return offset
    raise AssertionError("no free ports")


@pytest.fixture(scope="module")
def instances(tmp_path_factory):
    """The broker.xml of each variant."""
    directory = tmp_path_factory.mktemp("artemis")
    common = ("--host", "127.0.0.1", "--port-offset", str(free_offset()))
    options = {name.replace(" ", "-"): (*more, *common) for name, more in VARIANTS.items()}
    files = create_all(options, directory)
    return {name: files[name.replace(" ", "-")] for name in VARIANTS}


def started(file):
    """A broker with the data directory that an Artemis instance has."""
    return BrokerProcess(file, file.parent.parent / "data")


class Inbox:
    """Listens to stomp.py."""

    def __init__(self):
        self.frames = queue.Queue()

    def __getattr__(self, name):
        if name in ("on_message", "on_error", "on_receipt"):
            return lambda frame: self.frames.put(frame)
        if name.startswith("on_"):
            return lambda *_: None
        raise AttributeError(name)


def converse(port, destination):
    """stomp.py logs in, sends, and receives."""
    stomp = pytest.importorskip("stomp", reason="stomp.py is not installed")
    inbox = Inbox()
    connection = stomp.Connection12([("127.0.0.1", port)], reconnect_attempts_max=1)
    connection.set_listener("", inbox)
    connection.connect("u", "p", wait=True)
    connection.subscribe(destination, id="1", headers={"receipt": "subscribed"})
    assert inbox.frames.get(timeout=PATIENCE).cmd == "RECEIPT"
    connection.send(destination, "hello")
    frame = inbox.frames.get(timeout=PATIENCE)
    assert (frame.cmd, frame.body) == ("MESSAGE", "hello")
    connection.disconnect()


def refused(port, **login):
    """The text of the ERROR that a login gets."""
    with closing(StompClient(port)) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "localhost", **login})
        return client.expect("ERROR")["message"]


@needs_artemis
@needs_java
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_instance_starts_as_create_wrote_it_and_its_user_logs_in(variant, instances):
    file = instances[variant]
    checked = CliRunner().invoke(main, ["check-config", str(file)])
    assert checked.exit_code == 0, checked.output
    with started(file) as broker:
        log = "\n".join(broker.log)
        assert "settings have no effect here: " in log and " ERROR " not in log
        assert WARNINGS.get(variant, "") in log
        name = "artemis" if variant == "without the acceptor of STOMP" else "stomp"
        port = broker.ports[name]
        assert "amqp" not in broker.ports and "mqtt" not in broker.ports
        converse(port, "DLQ" if variant == "no auto-create" else "some.address")
        assert "User name [u] or password is invalid" in refused(port, login="u", passcode="wrong")
        if variant == "anonymous":
            with closing(StompClient(port)) as client:
                client.connect()
                client.ask("SEND", {"destination": "some.address"})
        else:
            assert "login and passcode are required" in refused(port)
        if variant == "no auto-create":
            with closing(StompClient(port)) as client:
                client.connect({"login": "u", "passcode": "p"})
                say(client, "undeclared", receipt="r")
                client.expect("ERROR")
        if variant == "queues and limits":
            converse(port, "orders")
            converse(port, "events")


# ---- an instance on machines without Artemis

#: Of the passcode "p", as ``artemis create`` wrote it.
HASH = (
    "ENC(1024:8F6CB0FE1ACE9F240CAE6788D33F456AE3F3BFDC339DB982AF9509D6902217D2:756C5047E7A9A8A12AC49932AFBD1E0DAAE8DB71"
    "34062DC9ACDEB7F5CC6FD3D78A5B59E3FF00916C33E526233BCD363164A3C58199FE7DF278F187044C6660F7)"
)

PERMISSIONS = "".join(
    f'<permission type="{name}" roles="r"/>'
    for name in (
        "createNonDurableQueue",
        "deleteNonDurableQueue",
        "createAddress",
        "consume",
        "browse",
        "send",
    )
)

BROKER_XML = f"""<?xml version='1.0'?>
<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude">
  <core xmlns="urn:activemq:core">
    <name>0.0.0.0</name>
    <max-redelivery-records>1</max-redelivery-records>
    <journal-type>NIO</journal-type>
    <paging-directory>data/paging</paging-directory>
    <bindings-directory>data/bindings</bindings-directory>
    <journal-directory>${{data.dir:../data}}/journal</journal-directory>
    <critical-analyzer>true</critical-analyzer>
    <populate-validated-user>true</populate-validated-user>
    <acceptors>
      <acceptor name="stomp">tcp://127.0.0.1:0?tcpSendBufferSize=1048576;protocols=CORE,STOMP;useEpoll=true</acceptor>
      <acceptor name="amqp">tcp://127.0.0.1:0?protocols=AMQP;amqpCredits=1000</acceptor>
      <acceptor name="in-vm">vm://0</acceptor>
    </acceptors>
    <security-settings>
      <security-setting match="#">{PERMISSIONS}</security-setting>
    </security-settings>
    <xi:include href="settings.xml"/>
  </core>
</configuration>
"""

SETTINGS_XML = """<address-settings xmlns="urn:activemq:core">
  <address-setting match="activemq.management#"><max-size-bytes>-1</max-size-bytes></address-setting>
  <address-setting match="#">
    <dead-letter-address>DLQ</dead-letter-address>
    <max-delivery-attempts>0</max-delivery-attempts>
    <message-counter-history-day-limit>10</message-counter-history-day-limit>
  </address-setting>
</address-settings>
"""

LOGIN_CONFIG = """activemq {
   org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule sufficient
       reload=true
       org.apache.activemq.jaas.properties.user="artemis-users.properties"
       org.apache.activemq.jaas.properties.role="artemis-roles.properties";
   org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule sufficient
       org.apache.activemq.jaas.guest.user="visitor"
       org.apache.activemq.jaas.guest.role="visitors";
};
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with the instance directory that is written by hand."""
    etc = tmp_path_factory.mktemp("instance") / "etc"
    etc.mkdir()
    for name, text in {
        "broker.xml": BROKER_XML,
        "settings.xml": SETTINGS_XML,
        "login.config": LOGIN_CONFIG,
        "bootstrap.xml": '<broker><jaas-security domain="activemq"/></broker>',
        "artemis-users.properties": f"u = {HASH}\nbill=activemq\n",
        "artemis-roles.properties": "r = u,bill\n",
    }.items():
        (etc / name).write_text(text)
    with started(etc / "broker.xml") as running:
        yield running


def test_the_user_of_an_instance_logs_in_by_stomp_py(broker):
    converse(broker.port, "some.address")
    assert set(broker.ports) == {"stomp"}


def test_the_log_names_settings_without_effect_and_plain_passwords(broker):
    log = "\n".join(broker.log)
    assert "settings have no effect here: " in log and "acceptor 'amqp' is skipped" in log
    assert "1 passwords are not hashed (bill)" in log and "activemq" not in log.partition("not hashed")[2]


def test_a_wrong_passcode_is_refused_also_where_guests_may_come(broker):
    for login in ({"login": "u", "passcode": "q"}, {"login": "x", "passcode": "p"}):
        assert f"User name [{login['login']}] or password is invalid" in refused(broker.port, **login)
    assert "login and passcode are required" in refused(broker.port, login="u")


def test_a_guest_has_the_permissions_of_its_role_only(broker):
    with closing(StompClient(broker.port)) as client:
        client.connect()
        say(client, "some.address", receipt="r")
        assert "User visitor does not have permission='SEND'" in client.expect("ERROR")["message"]


def test_messages_have_the_user_who_logged_in(broker):
    with closing(StompClient(broker.port)) as client:
        client.connect({"login": "bill", "passcode": "activemq"})
        client.ask("SUBSCRIBE", {"destination": "who", "id": "1"})
        say(client, "who", JMSXUserID="u")
        assert client.expect("MESSAGE")["JMSXUserID"] == "bill"


#: Programs of stock clients that log in, send, and print what they receive.
PROGRAMS = {
    "ruby": (
        "require 'stomp'; c = Stomp::Connection.new('u', 'p', '127.0.0.1', ARGV[0].to_i, false);"
        "c.subscribe('ruby', {'id' => '1', 'receipt' => 'r'}); c.receive;"
        "c.publish('ruby', 'hello'); puts c.receive.body; c.disconnect",
        "require 'stomp'",
    ),
    "perl": (
        "use Net::Stomp; my $c = Net::Stomp->new({hostname => '127.0.0.1', port => $ARGV[0]});"
        "$c->connect({login => 'u', passcode => 'p'});"
        "$c->subscribe({destination => 'perl', id => '1', receipt => 'r'}); $c->receive_frame;"
        "$c->send({destination => 'perl', body => 'hello'}); print $c->receive_frame->body; $c->disconnect;",
        "use Net::Stomp; 1",
    ),
    "php": (
        "$c = new Stomp('tcp://127.0.0.1:' . $argv[1], 'u', 'p'); $c->subscribe('php', ['id' => '1']);"
        "$c->send('php', 'hello', ['receipt' => 'r']); $c->setReadTimeout(30); echo $c->readFrame()->body;",
        "exit(class_exists('Stomp') ? 0 : 1);",
    ),
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_clients_of_other_languages_log_in(language, broker):
    program, probe = PROGRAMS[language]
    option = "-r" if language == "php" else "-e"
    if (
        shutil.which(language) is None
        or subprocess.run([language, option, probe], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{language} is not installed with its STOMP client")
    done = subprocess.run(
        [language, option, program, str(broker.port)],
        capture_output=True,
        text=True,
        timeout=LONGEST * PATIENCE,
        check=False,
    )
    assert done.stdout.strip() == "hello", done.stdout + done.stderr
