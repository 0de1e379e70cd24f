"""Who may send management requests, with and without permissions per operation."""

import json

import pytest

from ..broker_document import broker_xml, permitted
from ..broker_process import BrokerProcess
from ..management import Answered
from .steps import say
from .test_management_messages import ADDRESS, Manager
from .test_permissions import add
from .test_security import login

ALL = {
    name: "admins, viewers"
    for name in ("send", "consume", "createAddress", "createDurableQueue", "createNonDurableQueue")
}
PERMISSIONS = (
    permitted("#", {**ALL, "send": "admins, viewers, senders"})
    + permitted("secret", {"send": "nobody"})
    + permitted(ADDRESS, {"manage": "admins, viewers", "send": "senders"})
    + permitted("mops.#", {"view": "admins, viewers", "edit": "admins"})
    + permitted("mops.queue.precious.#", {"view": "admins"})
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    config = tmp_path_factory.mktemp("management") / "broker.xml"
    core = "<management-message-rbac>true</management-message-rbac>"
    config.write_text(broker_xml(secure=True, permissions=PERMISSIONS, core=core))
    for user in ("admin", "viewer", "sender"):
        add(config, user, f"{user}s")
    with BrokerProcess(config) as broker:
        yield broker


def connected(broker, user):
    client = login(broker, login=user, passcode=user)
    client.expect("CONNECTED")
    return client


def manager(broker, user):
    return Manager(connected(broker, user), f"/queue/{user}-replies")


def test_a_request_needs_manage_and_not_send(broker):
    client = connected(broker, "sender")
    say(client, ADDRESS, _AMQ_ResourceName="broker", _AMQ_Attribute="Started")
    error = client.expect("ERROR")["message"]
    assert "permission='MANAGE'" in error and ADDRESS in error
    assert manager(broker, "viewer").ask("broker", "Started") == (True, True)


def test_a_reply_needs_what_a_send_there_needs(broker):
    client = connected(broker, "admin")
    say(client, ADDRESS, reply_to="secret", _AMQ_ResourceName="broker", _AMQ_Attribute="Started")
    assert "permission='SEND' on address secret" in client.expect("ERROR")["message"]


@pytest.mark.parametrize(
    "user, resource, what, permission",
    [
        ("admin", "broker", ["createQueue", ["orders", "orders", "ANYCAST"]], None),
        ("admin", "broker", ["createQueue", ["precious", "precious", "ANYCAST"]], None),
        ("viewer", "queue.orders", ["listMessages", [""]], None),
        ("viewer", "queue.orders", ["getMessageCount", []], None),
        ("viewer", "queue.orders", "Paused", None),
        ("viewer", "queue.precious", "Paused", "'VIEW' on address mops.queue.precious.isPaused"),
        ("viewer", "queue.precious", "RingSize", "'VIEW' on address mops.queue.precious.getRingSize"),
        ("viewer", "queue.orders", ["pause", []], "'EDIT' on address mops.queue.orders.pause"),
        ("admin", "queue.orders", ["pause", []], None),
        ("admin", "queue.precious", ["countMessages", []], None),
        ("admin", "queue.precious", ["pause", []], "'EDIT' on address mops.queue.precious.pause"),
        (
            "viewer",
            "queue.precious",
            ["countMessages", []],
            "'VIEW' on address mops.queue.precious.countMessages",
        ),
        (
            "viewer",
            "broker",
            ["reloadConfigurationFile", []],
            "'EDIT' on address mops.broker.reloadConfigurationFile",
        ),
    ],
)
def test_each_operation_needs_view_or_edit_on_its_address(broker, user, resource, what, permission):
    succeeded, result = manager(broker, user).ask(resource, what)
    if permission is None:
        assert succeeded, result
    else:
        assert not succeeded and permission in result
        asked = {"type[]": "SECURITY_PERMISSION_VIOLATION"}
        events = broker.management(("admin", "admin")).ask("GET", "/events", **asked)["data"]
        assert permission in events[-1]["text"] and events[-1]["user"] == user


def test_roles_have_the_form_of_artemis(broker):
    admin = manager(broker, "admin")
    roles = json.loads(admin.value("broker", ["getRolesAsJSON", ["mops.queue.orders.pause"]]))
    assert [(role["name"], role["view"], role["edit"]) for role in roles] == [
        ("admins", True, True),
        ("viewers", True, False),
    ]
    recorded = """name send consume createDurableQueue deleteDurableQueue createNonDurableQueue deleteNonDurableQueue
    manage browse createAddress deleteAddress view edit"""
    assert all(role.keys() == set(recorded.split()) for role in roles)


def test_messages_are_sent_as_the_user_that_is_named(broker):
    admin = manager(broker, "admin")
    admin.ask("broker", ["createAddress", ["secret", "ANYCAST"]])
    body = [{}, 3, "hello", False]
    assert admin.ask("address.secret", ["sendMessage", [*body, None, None]])[0]
    succeeded, result = admin.ask("address.secret", ["sendMessage", [*body, "sender", "sender"]])
    assert not succeeded and "permission='SEND'" in result
    succeeded, result = admin.ask("address.secret", ["sendMessage", [*body, "sender", "wrong"]])
    assert not succeeded


def test_users_are_managed_and_passwords_are_not_logged(broker):
    admin = manager(broker, "admin")
    assert admin.ask("broker", ["addUser", ["carl", "s3cret-of-carl", "viewers", False]])[0]
    login(broker, login="carl", passcode="s3cret-of-carl").expect("CONNECTED")
    users = json.loads(admin.value("broker", ["listUser", ["carl"]]))
    assert users == [{"username": "carl", "roles": ["viewers"]}]
    assert admin.ask("broker", ["removeUser", ["carl"]])[0]
    assert any('addUser ["carl","***"' in line for line in broker.log)
    assert not any("s3cret-of-carl" in line for line in broker.log)


def test_http_sends_nothing_to_the_management_address(broker):
    with pytest.raises(Answered, match="HTTP 400: .*use the HTTP API"):
        broker.management(("admin", "admin")).ask("POST", "/messages", {"address": ADDRESS})
