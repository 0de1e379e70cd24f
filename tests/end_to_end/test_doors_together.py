"""Security with TLS, client certificates, WebSocket and a proxy in front: what each door knows reaches all others."""

import json
from base64 import b64encode
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from stompring.security.accounts import edit_roles, edit_users

from ..broker_document import permitted
from ..broker_process import PATIENCE, BrokerProcess
from ..certificates import Authority
from ..security.hashers import QUICK
from ..stomp_client import StompClient
from ..websocket_client import WebSocketDialogue
from .steps import say

TLS = "keyStorePath=broker.pem;trustStorePath=authority.pem;wantClientAuth=true"
FULL = {"send": "workers", "consume": "workers", "createAddress": "workers", "createDurableQueue": "workers"}
PERMISSIONS = permitted("orders.#", FULL) + permitted("activemq.management", {"view": "workers"})

DOCUMENT = f"""<configuration><core>
<certificate-users-file>certificate-users.properties</certificate-users-file>
<security-settings>{PERMISSIONS}</security-settings>
<acceptors>
<acceptor name="ssl">ssl://127.0.0.1:0?{TLS}</acceptor>
<acceptor name="wss">wss://127.0.0.1:0/stomp?{TLS}</acceptor>
<acceptor name="proxy">tcp://127.0.0.1:0?proxyProtocolEnabled=true;connectionsAllowedPerHost=2</acceptor>
<acceptor name="http">https://127.0.0.1:0?{TLS}</acceptor>
</acceptors>
<address-settings><address-setting match="#">
<default-address-routing-type>ANYCAST</default-address-routing-type>
<default-queue-routing-type>ANYCAST</default-queue-routing-type>
</address-setting></address-settings>
</core></configuration>"""


class House:
    """A broker with all of it, and the certificates: anna has roles, otto has none, nobody knows eve's."""

    def __init__(self, folder):
        self.config = folder / "broker.xml"
        self.config.write_text(DOCUMENT)
        self.authority = Authority(folder)
        self.authority.issue("broker.pem")
        self.files = {
            name: self.authority.issue(f"{name}.pem", common=name, client=True)
            for name in ("anna", "otto", "eve")
        }
        (folder / "certificate-users.properties").write_text(
            "anna = CN=anna, O=Example\notto = CN=otto, O=Example\n"
        )
        with edit_users(folder / "users.properties", QUICK) as users:
            users.put("bob", "secret of bob")
        with edit_roles(folder / "roles.properties") as roles:
            roles.grant("workers", "anna")
            roles.grant("workers", "bob")
        self.broker = BrokerProcess(self.config)

    def as_who(self, name):
        return self.authority.trusting(None if name is None else self.files[name])

    def open(self, door, who):
        if door == "wss":
            return WebSocketDialogue(self.broker.ports["wss"], context=self.as_who(who))
        return StompClient(self.broker.ports["ssl"], context=self.as_who(who))

    def get(self, path, who, **headers):
        url = f"https://localhost:{self.broker.ports['http']}{path}"
        try:
            with urlopen(Request(url, headers=headers), timeout=PATIENCE, context=self.as_who(who)) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as fault:
            return fault.code, fault.read().decode()


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    found = House(tmp_path_factory.mktemp("doors"))
    with found.broker:
        yield found


@pytest.mark.parametrize("door", ["ssl", "wss"])
def test_a_certificate_is_a_login_with_its_users_roles(house, door):
    client = house.open(door, "anna")
    client.connect()
    client.subscribe("orders.1", ack="auto")
    client.put("orders.1", "by certificate")
    client.message("by certificate")
    say(client, "elsewhere", b"x")
    client.error("User anna does not have permission='SEND' on address elsewhere")


@pytest.mark.parametrize("door", ["ssl", "wss"])
def test_a_certificate_without_roles_may_connect_and_nothing_else(house, door):
    client = house.open(door, "otto")
    client.connect()
    client.send("SUBSCRIBE", {"id": "1", "destination": "orders.1"})
    client.error("User otto does not have permission='CONSUME' on address orders.1")


@pytest.mark.parametrize("door", ["ssl", "wss"])
def test_a_certificate_that_is_nobodys_needs_a_password(house, door):
    client = house.open(door, "eve")
    client.send("CONNECT", {"accept-version": "1.2", "host": "h"})
    client.error("is not mapped to a user")
    client = house.open(door, "eve")
    client.connect({"login": "bob", "passcode": "secret of bob"})
    client.put("orders.2", "x")


def test_a_certificate_is_not_another_user(house):
    client = house.open("ssl", "anna")
    client.send(
        "CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": "secret of bob"}
    )
    client.error("the certificate is that of user [anna], not of [bob]")


def test_http_takes_the_certificate_too(house):
    status, told = house.get("/api/v1/broker", "anna")
    assert status == 200 and json.loads(told)["name"] == "stompring"
    assert house.get("/metrics", "anna")[0] == 200
    status, told = house.get("/api/v1/broker", "otto")
    assert status == 403 and "VIEW" in told and "activemq.management" in told
    assert house.get("/api/v1/broker", "eve")[0] == house.get("/api/v1/broker", None)[0] == 401
    assert house.get("/health/live", None)[0] == 200
    bob = b64encode(b"bob:secret of bob").decode()
    status, told = house.get("/api/v1/broker", "anna", Authorization=f"Basic {bob}")
    assert status == 401 and "the certificate is that of user [anna], not of [bob]" in told


def proxied(house, host, passcode):
    client = StompClient(
        house.broker.ports["proxy"], before=f"PROXY TCP4 {host} 10.0.0.1 4711 61613\r\n".encode()
    )
    client.send("CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": passcode})
    return client


def test_limits_of_a_host_are_those_of_the_client_behind_the_proxy(house):
    here = [proxied(house, "192.0.2.1", "secret of bob") for _ in range(2)]
    for client in here:
        client.expect("CONNECTED")
    proxied(house, "192.0.2.1", "secret of bob").error(
        "More than 2 connections from 192.0.2.1", "connectionsAllowedPerHost"
    )
    proxied(house, "192.0.2.2", "secret of bob").expect("CONNECTED")
    here[0].raw(b"ABORT\n\n\0")
    here[0].error("ABORT")
    proxied(house, "192.0.2.1", "secret of bob").expect("CONNECTED")


def test_failed_logins_slow_down_the_client_and_not_the_proxy(house):
    seen = len(house.broker.log)
    for _ in range(12):
        proxied(house, "192.0.2.66", "wrong").error("User name [bob] or password is invalid")
    house.broker.wait_for_log(r"failed logins from 192\.0\.2\.66: delaying further logins", seen)
    proxied(house, "192.0.2.67", "secret of bob").expect("CONNECTED")
