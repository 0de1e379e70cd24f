"""Messages about events, beside Artemis 2.44: `HEADERS` was recorded there from a subscription over STOMP."""

import pytest

from stompring.settings.model import RoutingType

from .session_fixture import Server
from .test_permissions import P, Scene

#: The headers of each type besides those that every MESSAGE has, with a value of Artemis.
HEADERS = {
    "BINDING_ADDED": {
        "_AMQ_Binding_Type": "0", "_AMQ_RoutingName": "n9", "_AMQ_Distance": "0", "_AMQ_Address": "na9",
        "_AMQ_Binding_ID": "2289", "_AMQ_FilterString": "a=1", "_AMQ_ClusterName": "n903832a3b",
    },
    "BINDING_REMOVED": {
        "_AMQ_RoutingName": "n9", "_AMQ_Distance": "0", "_AMQ_Address": "na9", "_AMQ_Binding_ID": "2289",
        "_AMQ_FilterString": "a=1", "_AMQ_ClusterName": "n903832a3b",
    },
    **dict.fromkeys(("ADDRESS_ADDED", "ADDRESS_REMOVED"), {"_AMQ_Routing_Type": "1", "_AMQ_Address": "na9"}),
    "CONSUMER_CREATED": {
        "_AMQ_Distance": "0", "_AMQ_ConsumerCount": "1", "_AMQ_User": "admin", "_AMQ_SessionName": "b859",
        "_AMQ_Address": "na9", "_AMQ_RemoteAddress": "127.0.0.1:34632", "_AMQ_ConsumerName": "s",
        "_AMQ_ClusterName": "n903832a3b", "_AMQ_ValidatedUser": "admin", "_AMQ_RoutingName": "n9",
        "_AMQ_CertSubjectDN": "unavailable",
    },
    "CONSUMER_CLOSED": {
        "_AMQ_Distance": "0", "_AMQ_ConsumerCount": "0", "_AMQ_User": "admin", "_AMQ_SessionName": "b972",
        "_AMQ_Address": "na9", "_AMQ_RemoteAddress": "127.0.0.1:34658", "_AMQ_ConsumerName": "s",
        "_AMQ_ClusterName": "n903832a3b", "_AMQ_RoutingName": "n9", "_AMQ_FilterString": "",
    },
    **dict.fromkeys(("CONNECTION_CREATED", "CONNECTION_DESTROYED"), {
        "_AMQ_RemoteAddress": "127.0.0.1:34658", "_AMQ_CertSubjectDN": "unavailable",
        "_AMQ_ConnectionName": "e344d0ea",
    }),
    **dict.fromkeys(("SESSION_CREATED", "SESSION_CLOSED"), {
        "_AMQ_User": "admin", "_AMQ_Distance": "0", "_AMQ_SessionName": "b972", "_AMQ_Protocol_Name": "STOMP",
        "_AMQ_Address": "activemq.notifications", "_AMQ_Client_ID": "", "_AMQ_ConnectionName": "e344d0ea",
    }),
    "MESSAGE_DELIVERED": {
        "_AMQ_Routing_Type": "1", "_AMQ_RoutingName": "q", "_AMQ_Address": "q", "_AMQ_Message_ID": "2285",
    },
    "MESSAGE_EXPIRED": {
        "_AMQ_Routing_Type": "1", "_AMQ_RoutingName": "nq", "_AMQ_Address": "nq", "_AMQ_Message_ID": "2242",
    },
    "SECURITY_PERMISSION_VIOLATION": {"_AMQ_User": "ron", "_AMQ_Address": "there", "_AMQ_CheckType": "SEND"},
}  # fmt: skip

#: Headers whose value is the same in both brokers.
SAME = {
    "_AMQ_Binding_Type", "_AMQ_CertSubjectDN", "_AMQ_CheckType", "_AMQ_Client_ID", "_AMQ_ConsumerCount",
    "_AMQ_Distance", "_AMQ_Protocol_Name", "_AMQ_Routing_Type",
}  # fmt: skip


def watch(server, **headers):
    watcher = server.client()
    watcher.subscribe("/topic/activemq.notifications", "w", **headers)
    watcher.read()
    return watcher


def test_the_address_is_a_topic_without_a_prefix_whatever_the_default():
    server = Server({"#": {"default_address_routing_type": RoutingType.ANYCAST}})
    watcher = server.client()
    watcher.subscribe("activemq.notifications", "w")
    server.client().subscribe()
    assert "CONSUMER_CREATED" in told(server, watcher)


def told(server, watcher):
    server.pass_time()
    return {frame["_AMQ_NotifType"]: frame for frame in watcher.read() if frame.command == "MESSAGE"}


def check(kind, frame):
    assert frame["_AMQ_NotifTimestamp"].isdigit()
    for name, recorded in HEADERS[kind].items():
        value = frame.headers.get(name)
        if value is None and name in ("_AMQ_User", "_AMQ_ValidatedUser"):
            continue  # without security there is none
        if value is None and name == "_AMQ_FilterString":
            continue  # there it is empty where there is no filter
        assert value is not None, (kind, name)
        assert value.isdigit() == recorded.isdigit() or not recorded.isdigit(), (kind, name, value)
        if name in SAME:
            assert value == recorded, (kind, name, value)


def test_messages_have_the_headers_of_artemis(server):
    watcher = watch(server)
    client = server.client()
    client.subscribe(selector="a = 1")
    client.say("UNSUBSCRIBE", id="s")
    client.subscribe("/topic/t", "t", selector="a = 1")
    client.lose()
    frames = told(server, watcher)
    expected = HEADERS.keys() - {"SECURITY_PERMISSION_VIOLATION", "MESSAGE_DELIVERED", "MESSAGE_EXPIRED"}
    server.pass_time(1)
    frames |= told(server, watcher)
    directory = server.directory
    for name in list(directory.addresses):
        if name in ("q", "t"):
            directory.delete_address(name, force=True)
    frames |= told(server, watcher)
    assert expected <= frames.keys()
    for kind in expected - {"ADDRESS_ADDED", "ADDRESS_REMOVED"}:
        check(kind, frames[kind])


@pytest.mark.parametrize("kind, number", [("/queue/", "1"), ("/topic/", "0")])
def test_the_routing_type_of_an_address_is_the_number_that_artemis_has(server, kind, number):
    watcher = watch(server)
    server.client().subscribe(f"{kind}a")
    frame = told(server, watcher)["ADDRESS_ADDED"]
    assert frame["_AMQ_Address"] == "a" and frame["_AMQ_Routing_Type"] == number


def test_a_permission_violation_names_user_address_and_permission():
    scene = Scene()
    watcher = watch(scene.server)
    client = scene.client()
    scene.changed(P.SEND)
    client.send(destination="/queue/there")
    frame = told(scene.server, watcher)["SECURITY_PERMISSION_VIOLATION"]
    assert frame["_AMQ_CheckType"] == "SEND" and frame["_AMQ_Address"] == "there" and frame["_AMQ_User"]


def test_a_selector_compares_the_numbers_of_notifications(server):
    watcher = watch(server, selector="_AMQ_NotifType = 'CONSUMER_CREATED' AND _AMQ_ConsumerCount > 1")
    client = server.client()
    client.subscribe(id="1")
    assert told(server, watcher) == {}
    client.subscribe(id="2")
    assert told(server, watcher)["CONSUMER_CREATED"]["_AMQ_ConsumerName"] == "2"


def test_a_client_cannot_forge_a_notification(server):
    watcher = watch(server)
    server.client().send(destination="/topic/activemq.notifications", _AMQ_NotifType="DISK_FULL")
    frames = [frame for frame in watcher.read() if frame.command == "MESSAGE" and frame.body == b"x"]
    assert len(frames) == 1 and "_AMQ_NotifType" not in frames[0].headers


def test_delivered_and_expired_messages_are_notified_where_the_configuration_asks():
    server = Server(notified=frozenset({"MESSAGE_DELIVERED", "MESSAGE_EXPIRED"}))
    watcher = watch(server, selector="_AMQ_NotifType LIKE 'MESSAGE%'")
    client = server.client()
    client.send(expires=server.world.now + 1000)
    client.subscribe(ack="client-individual")
    check("MESSAGE_DELIVERED", told(server, watcher)["MESSAGE_DELIVERED"])
    client.lose()
    server.pass_time(2000)
    check("MESSAGE_EXPIRED", told(server, watcher)["MESSAGE_EXPIRED"])


def test_nothing_is_notified_per_message_otherwise(server):
    watcher = watch(server, selector="_AMQ_NotifType LIKE 'MESSAGE%'")
    client = server.client()
    client.send()
    client.subscribe(ack="client-individual")
    assert told(server, watcher) == {}
    assert server.directory.address("q").hooks.delivered is None


def test_the_address_of_notifications_can_be_another_and_sessions_may_be_left_out():
    server = Server(management_notification_address="told", suppress_session_notifications=True)
    watcher = server.client()
    watcher.subscribe("/topic/told", "w")
    watcher.read()
    server.client().lose()
    assert told(server, watcher).keys() == {"CONNECTION_CREATED", "CONNECTION_DESTROYED"}
