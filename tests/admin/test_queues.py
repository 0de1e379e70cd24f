"""``/api/v1/queues``: lists, attributes, changes, deletion."""

import pytest

from ..docs.http_reference import DOCUMENT, ROUTES
from .admin_server import ANYCAST, MULTICAST, AdminServer, pick

ONE = "/api/v1/queues/q"


def names(page):
    return [queue["name"] for queue in page["data"]]


# ---- lists


def test_a_list_in_pages(server):
    for number in range(450):
        server.queue(f"q{number}")
    first = server.get("/api/v1/queues")
    assert (len(first["data"]), first["count"], first["page"], first["size"]) == (200, 450, 1, 200)
    third = server.get("/api/v1/queues?page=3")
    assert names(third) == [f"q{number}" for number in range(400, 450)]
    assert server.get("/api/v1/queues?page=4")["data"] == []
    assert names(server.get("/api/v1/queues?page=5&size=7")) == [f"q{number}" for number in range(28, 35)]
    assert len(server.get("/api/v1/queues?size=1000")["data"]) == 450


def test_search_filter_and_sort(server):
    for name, ring, kind in (
        ("orders.EU", 5, ANYCAST),
        ("orders.us", 30, MULTICAST),
        ("bills.eu", 10, ANYCAST),
    ):
        server.queue(name, "all", kind, ring_size=ring)
    server.directory.queue("bills.eu").pause()
    for query, expected in {
        "search=eu": ["orders.EU", "bills.eu"],
        "search=ORDERS": ["orders.EU", "orders.us"],
        "routingType=MULTICAST": ["orders.us"],
        "ringSize=10": ["bills.eu"],
        "paused=true": ["bills.eu"],
        "paused=false&search=us": ["orders.us"],
        "filter=null": ["orders.EU", "orders.us", "bills.eu"],
        "name=orders.us": ["orders.us"],
        "address=none": [],
        "sort=ringSize": ["orders.EU", "bills.eu", "orders.us"],
        "sort=-ringSize": ["orders.us", "bills.eu", "orders.EU"],
        "sort=name&routingType=ANYCAST": ["bills.eu", "orders.EU"],
        "sort=oldestMessageAge": ["orders.EU", "orders.us", "bills.eu"],
        "sort=-ringSize&size=1&page=2": ["bills.eu"],
    }.items():
        assert names(server.get(f"/api/v1/queues?{query}")) == expected, query
    assert server.get("/api/v1/queues?search=eu&size=1")["count"] == 2


@pytest.mark.parametrize("field", DOCUMENT["components"]["schemas"]["Queue"]["properties"])
def test_every_field_can_be_sorted_and_filtered_by(server, field):
    server.queue("a", filter="x = 1", user="anna", ring_size=3)
    server.queue("b")
    server.stomp().put(to="/queue/b")
    for direction in ("", "-"):
        assert sorted(names(server.get(f"/api/v1/queues?sort={direction}{field}"))) == ["a", "b"]
    assert server.get(f"/api/v1/queues?{field}=never")["count"] == 0


def test_sort_by_nullable_field(server):
    for name, user in (("a", "zoe"), ("b", None), ("c", "anna")):
        server.queue(name, user=user)
    assert names(server.get("/api/v1/queues?sort=user")) == ["b", "c", "a"]


# ---- making


def test_new_queue_inherits_address_settings():
    server = AdminServer(
        {"#": {"default_ring_size": 7, "default_queue_routing_type": ANYCAST, "default_max_consumers": 2}}
    )
    reply = server.ask("POST", "/api/v1/queues", {"name": "q"})
    assert reply.status == 201
    assert reply.headers["location"] == "/api/v1/queues/q"
    assert reply.json == server.shown()
    shown = reply.json
    assert pick(shown, "ringSize", "routingType", "maxConsumers", "address") == (
        7,
        "ANYCAST",
        2,
        "q",
    )
    assert pick(shown, "durable", "configured", "autoCreated") == (True, False, False)


ALL_SET = {
    "routingType": "ANYCAST",
    "durable": False,
    "nonDestructive": True,
    "lastValue": True,
    "lastValueKey": "code",
    "filter": "colour = 'red'",
    "ringSize": 5,
    "ringPolicy": "DEAD_LETTER",
    "ringCountsPaged": True,
    "maxConsumers": 3,
    "exclusive": True,
    "purgeOnNoConsumers": True,
    "consumersBeforeDispatch": 2,
    "delayBeforeDispatch": 500,
    "groupBuckets": 8,
    "groupRebalance": True,
    "groupRebalancePauseDispatch": True,
    "groupFirstKey": "JMSXGroupFirstForConsumer",
    "enabled": False,
    "user": "anna",
    "paused": True,
}


def test_all_attributes_of_a_new_queue(server):
    assert ALL_SET.keys() == ROUTES["POST", "/api/v1/queues"].fields.keys() - {"name", "address"}
    reply = server.ask("POST", "/api/v1/queues", {"name": "q", "address": "a", **ALL_SET})
    assert {name: reply.json[name] for name in ALL_SET} == ALL_SET
    assert server.directory.queue("q").address.name == "a"


@pytest.mark.parametrize("kind", [ANYCAST, MULTICAST])
def test_new_queue_inherits_the_routing_type_of_its_address(server, kind):
    server.directory.create_address("a", frozenset({kind}))
    assert server.ask("POST", "/api/v1/queues", {"name": "q", "address": "a"}).json["routingType"] == kind


@pytest.mark.parametrize(
    "field, value",
    [
        *(("ringSize", each) for each in (0, -2, "10", 1.5, True, None, 1 << 63)),
        ("maxConsumers", -5),
        ("exclusive", 1),
        ("groupBuckets", -2),
        ("groupRebalance", "yes"),
        ("groupFirstKey", 1),
        ("groupFirstKey", "message-id"),
        ("paused", "yes"),
        ("routingType", "anycast"),
        ("routingType", ["ANYCAST"]),
        ("ringPolicy", "KEEP"),
        ("filter", 7),
        ("user", []),
        ("address", 5),
        ("messageCount", 5),
        *(("name", each) for each in (5, None, "q\ud800")),
    ],
)
def test_invalid_field_is_rejected(server, field, value):
    problem = server.refused(400, "POST", "/api/v1/queues", {"name": "q", field: value})
    assert problem["field"] == field
    assert field in problem["detail"]
    assert not server.directory.queues and not server.directory.addresses


@pytest.mark.parametrize("name", ["", " q", "q\n", "a::b", "x" * 3000, "nul\0"])
def test_invalid_name_is_rejected(server, name):
    server.refused(400, "POST", "/api/v1/queues", {"name": name})
    assert not server.directory.queues


def test_invalid_filter_is_rejected(server):
    assert (
        "filter" in server.refused(400, "POST", "/api/v1/queues", {"name": "q", "filter": "a = "})["detail"]
    )
    server.queue()
    assert "filter" in server.refused(400, "PATCH", ONE, {"filter": "a = "})["detail"]


def test_creating_an_existing_queue_conflicts(server):
    server.queue("q", "a")
    assert "exists" in server.refused(409, "POST", "/api/v1/queues", {"name": "q"})["detail"]


# ---- changing


def test_change_applies_at_once(queue, client, server):
    for _ in range(5):
        client.put()
    assert server.ask("PATCH", ONE, {"ringSize": 3}).json["ringSize"] == 3
    assert server.shown()["messageCount"] == 5, "lowering a ring trims nothing"
    client.put()
    assert (server.shown()["messageCount"], server.shown()["messagesReplaced"]) == (5, 1)
    assert server.ask("POST", f"{ONE}/trim").json == {"replaced": 2}
    assert (server.shown()["messageCount"], server.shown()["messagesReplaced"]) == (3, 3)
    assert server.ask("PATCH", ONE, {"ringSize": -1}).json["ringSize"] == -1


def test_every_changeable_attribute_changes(server):
    server.queue(durable=False, non_destructive=True, last_value_key="code")
    before = server.shown()
    changed = server.ask("PATCH", ONE, ALL_SET).json
    assert {name: changed[name] for name in ALL_SET} == ALL_SET
    back = server.ask("PATCH", ONE, {name: before[name] for name in ALL_SET}).json
    assert back == before


@pytest.mark.parametrize(
    "change",
    [
        {"ringSize": 5, "maxConsumers": "many"},
        {"ringSize": 5, "paused": True, "colour": "red"},
        {"ringSize": 5, "paused": True, "durable": False},
        {"ringSize": 5, "paused": True, "filter": "a ="},
        {"ringSize": 5, "paused": True, "maxConsumers": 1},  # it has two
        {"name": "other"},
        {"address": "other"},
    ],
)
def test_patch_applies_all_or_nothing(queue, client, server, change):
    for number in "12":
        client.subscribe(id=number)
    before = server.shown()
    assert server.ask("PATCH", ONE, change).status in (400, 409)
    assert server.shown() == before


def test_a_header_that_no_message_has_is_no_key(server):
    body = {"name": "keyed", "lastValueKey": "transaction"}
    problem = server.refused(400, "POST", "/api/v1/queues", body)
    assert "the broker itself uses 'transaction'" in problem["detail"]
    assert "keyed" not in server.directory.queues


@pytest.mark.parametrize(
    "change",
    [
        {"durable": False},
        {"routingType": "MULTICAST"},
        {"nonDestructive": True},
        {"lastValue": True},
        {"lastValueKey": "k"},
    ],
)
def test_fixed_attributes_do_not_change(queue, server, change):
    assert "cannot change" in server.refused(409, "PATCH", ONE, change)["detail"]


def test_pause_and_resume(queue, client, server):
    client.subscribe()
    assert server.ask("PATCH", ONE, {"paused": True}).json["paused"] is True
    client.put(b"hello")
    assert b"hello" not in client.received
    assert server.shown()["messageCount"] == 1
    assert server.ask("PATCH", ONE, {"paused": False}).json["paused"] is False
    server.advance()
    assert b"hello" in client.received


# ---- deleting


def test_delete(queue, server):
    server.stomp().put()
    reply = server.ask("DELETE", ONE)
    assert (reply.status, reply.body) == (204, b"")
    server.refused(404, "GET", ONE)
    assert server.broker.memory.bytes == 0


def test_a_queue_with_consumers_is_deleted_by_force_only(queue, client, server):
    client.subscribe(ack="client")
    client.put()
    assert "1 consumer;" in server.refused(409, "DELETE", ONE)["detail"]
    server.done("DELETE", f"{ONE}?force=true")
    assert b"ERROR" in client.received and b"Queue q was deleted" in client.received
    assert server.broker.memory.bytes == 0


def test_purge(queue, client, server):
    for number in range(120):
        client.put(colour="red" if number % 2 else "blue")
    client.put(AMQ_SCHEDULED_DELAY="1000")
    assert server.ask("POST", f"{ONE}/purge", {"filter": "colour = 'red'"}).json == {"removed": 60}
    assert server.shown()["messageCount"] == 61
    assert server.ask("POST", f"{ONE}/purge").json == {"removed": 61}
    shown = server.shown()
    assert pick(shown, "messageCount", "scheduledCount", "messagesKilled") == (0, 0, 121)
    assert server.ask("POST", f"{ONE}/purge", {"filter": None}).json == {"removed": 0}
    assert "filter" in server.refused(400, "POST", f"{ONE}/purge", {"filter": "a ="})["detail"]
    assert server.refused(400, "POST", f"{ONE}/purge", {"filter": 3})["field"] == "filter"
