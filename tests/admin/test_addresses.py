"""``/api/v1/addresses``."""

import pytest

from stompring.settings.document import Secret
from stompring.settings.model import AddressSettings, PolicyUse, Property

from .admin_server import ANYCAST, MULTICAST, AdminServer, pick

ONE = "/api/v1/addresses/a"


@pytest.fixture
def server():
    return AdminServer({"full": {"max_size_messages": 2}})


def test_create_and_show(server):
    reply = server.ask("POST", "/api/v1/addresses", {"name": "a", "routingTypes": ["MULTICAST", "ANYCAST"]})
    assert (reply.status, reply.headers["location"]) == (201, "/api/v1/addresses/a")
    shown = server.get(ONE)
    assert shown == reply.json
    assert shown["routingTypes"] == ["ANYCAST", "MULTICAST"]
    assert pick(shown, "queues", "queueCount", "messageCount") == ([], 0, 0)
    assert pick(shown, "paging", "numberOfPages", "limitPercent") == (False, 0, 0)


def test_new_address_has_the_default_routing_type(server):
    assert server.ask("POST", "/api/v1/addresses", {"name": "a"}).json["routingTypes"] == ["MULTICAST"]


def test_counters(server):
    server.queue("full")
    server.queue("copy", "full", MULTICAST)
    client = server.stomp()
    for _ in range(3):
        client.put(to="full", destination_type="ANYCAST")
    shown = server.get("/api/v1/addresses/full")
    assert pick(shown, "messageCount", "routedMessageCount", "blockedProducers") == (2, 2, 1)
    assert shown["limitPercent"] == 100
    assert shown["addressSize"] == server.broker.memory.bytes
    assert shown["queues"] == ["full", "copy"]


def test_detail_has_the_settings_in_force(server):
    server.directory.create_address("full", frozenset({ANYCAST}))
    settings = server.get("/api/v1/addresses/full")["settings"]
    assert len(settings) == len(AddressSettings.__dataclass_fields__)
    assert pick(settings, "maxSizeMessages", "addressFullPolicy") == (2, "BLOCK")
    assert settings["deadLetterAddress"] is None


def test_lists(server):
    for name, kinds in (("b", {ANYCAST}), ("a", {MULTICAST}), ("ab", {ANYCAST, MULTICAST})):
        server.directory.create_address(name, frozenset(kinds))

    def names(query):
        return [address["name"] for address in server.get(f"/api/v1/addresses?{query}")["data"]]

    assert names("") == ["b", "a", "ab"]
    assert names("sort=name") == ["a", "ab", "b"]
    assert names("routingTypes=ANYCAST") == ["b", "ab"]
    assert names("search=A&sort=-name") == ["ab", "a"]
    assert names("sort=routingTypes") == ["b", "ab", "a"]


def test_routing_types_change(server):
    server.queue("q", "a", ANYCAST)
    server.done("PATCH", ONE, {"routingTypes": ["ANYCAST", "MULTICAST"]})
    problem = server.refused(409, "PATCH", ONE, {"routingTypes": ["MULTICAST"], "paused": True})
    assert "queue q" in problem["detail"]
    assert pick(server.get(ONE), "routingTypes", "paused") == (["ANYCAST", "MULTICAST"], False)


def test_pause_applies_to_existing_and_new_queues(server):
    server.queue("q1", "a")
    assert server.ask("PATCH", ONE, {"paused": True}).json["paused"] is True
    server.queue("q2", "a")
    assert [server.shown(name)["paused"] for name in ("q1", "q2")] == [True, True]
    assert server.ask("PATCH", ONE, {"paused": False}).json["paused"] is False
    assert [server.shown(name)["paused"] for name in ("q1", "q2")] == [False, False]


@pytest.mark.parametrize(
    "body, field",
    [
        ({}, "name"),
        ({"name": "a", "routingTypes": []}, "routingTypes"),
        ({"name": "a", "routingTypes": "ANYCAST"}, "routingTypes"),
        ({"name": "a", "routingTypes": ["BOTH"]}, "routingTypes"),
        ({"name": "a", "routingTypes": [["ANYCAST"]]}, "routingTypes"),
        ({"name": "a", "paused": 0}, "paused"),
        ({"name": "a", "queues": []}, "queues"),
    ],
)
def test_invalid_field_is_rejected(server, body, field):
    assert server.refused(400, "POST", "/api/v1/addresses", body)["field"] == field
    assert not server.directory.addresses


def test_creating_an_existing_address_conflicts(server):
    server.queue("q", "a")
    server.refused(409, "POST", "/api/v1/addresses", {"name": "a"})


def test_delete(server):
    server.queue("q", "a")
    client = server.stomp()
    client.put(to="a", destination_type="ANYCAST")
    client.subscribe("a::q", ack="client")
    problem = server.refused(409, "DELETE", ONE)
    assert "q" in problem["detail"] and "force=true" in problem["detail"]
    server.done("DELETE", f"{ONE}?force=true")
    server.refused(404, "GET", ONE)
    server.refused(404, "GET", "/api/v1/queues/q")
    assert b"ERROR" in client.received
    assert server.broker.memory.bytes == 0


def test_delete_an_empty_one(server):
    server.directory.create_address("a", frozenset({ANYCAST}))
    server.done("DELETE", ONE)
    server.refused(404, "DELETE", ONE)


def test_duplicates_are_forgotten(server):
    server.queue("q")
    client = server.stomp()
    send = {"destination": "/queue/q", "_AMQ_DUPL_ID": "1"}
    forget = "/api/v1/addresses/q/forget-duplicates"
    client.send("SEND", b"x", **send)
    client.send("SEND", b"x", **send)
    assert server.ask("POST", forget).json == {"forgotten": 1}
    client.send("SEND", b"x", **send)
    shown = server.get("/api/v1/addresses/q")
    assert pick(shown, "messageCount", "duplicateMessageCount") == (2, 1)
    assert server.ask("POST", forget).json == {"forgotten": 1}
    assert server.ask("POST", forget).json == {"forgotten": 0}
    server.refused(404, "POST", "/api/v1/addresses/other/forget-duplicates")


def test_secrets_of_policies_are_not_shown():
    use = PolicyUse("p", (Property("key", Secret("m4rker")),), enabled=False)
    server = AdminServer({"#": {"address_policy": (use,)}})
    server.queue("q", "a")
    reply = server.ask("GET", "/api/v1/addresses/a")
    assert reply.status == 200 and "m4rker" not in reply.text
    assert reply.json["settings"]["addressPolicy"][0]["properties"][0]["value"] == "***"
