"""``GET /api/v1/dead-letters``: groups by origin, found by headers and not by names."""

import pytest

from stompring.settings.model import RingPolicy, RoutingType

from .admin_server import BEGIN, AdminServer, pick
from .test_message_tasks import bodies, do, reject, send

GROUPS = "/api/v1/dead-letters"


@pytest.fixture
def server():
    server = AdminServer(
        {"#": {"dead_letter_address": "graves", "max_delivery_attempts": 1, "expiry_address": "graves"}}
    )
    for name in ("q", "it's", "graves"):
        server.queue(name)
    return server


def groups(server, query=""):
    return [
        pick(each, "queue", "originQueue", "reason", "count")
        for each in server.get(f"{GROUPS}{query}")["data"]
    ]


def test_messages_are_grouped_by_origin_and_reason(client, server):
    send(client, b"a", b"b")
    send(client, b"c", to="it's")
    reject(server, number=2)
    server.advance(5)
    reject(server, "/queue/it's")
    send(client, b"d", expires=str((BEGIN + 10) * 1000))
    send(client, b"no letter", to="graves")
    server.advance(20)
    assert sorted(groups(server)) == [
        ("graves", "it's", "max-delivery-attempts", 1),
        ("graves", "q", "expired", 1),
        ("graves", "q", "max-delivery-attempts", 2),
    ]
    assert groups(server, "?reason=expired") == [("graves", "q", "expired", 1)]
    assert groups(server, "?sort=-count&size=1") == [("graves", "q", "max-delivery-attempts", 2)]
    assert groups(server, "?queue=q") == []
    first = server.get(f"{GROUPS}?originQueue=it%27s")["data"][0]
    assert pick(first, "oldest", "newest", "complete") == ((BEGIN + 5) * 1000,) * 2 + (True,)
    assert pick(first, "address", "originAddress") == ("graves", "it's")


def test_the_filter_of_a_group_selects_it(client, server):
    send(client, b"a")
    send(client, b"b", to="it's")
    reject(server)
    reject(server, "/queue/it's")
    send(client, b"c", expires=str((BEGIN + 1) * 1000))
    server.advance(2)
    found = {pick(each, "originQueue", "reason"): each for each in server.get(GROUPS)["data"]}
    for (name, reason), left in (
        (("it's", "max-delivery-attempts"), ["a", "c"]),
        (("q", "expired"), ["a"]),
        (("q", "max-delivery-attempts"), []),
    ):
        group = found[name, reason]
        assert do(server, "retry", queue=group["queue"], filter=group["filter"])["done"] == group["count"]
        assert bodies(server, "graves") == left
    assert groups(server) == []
    assert (bodies(server, "q"), bodies(server, "it's")) == (["c", "a"], ["b"])


def test_a_dead_letter_that_was_moved_is_found_where_it_is(client, server):
    send(client, b"a")
    reject(server)
    server.queue("parked")
    do(server, "move", queue="graves", address="parked")
    assert groups(server) == [("parked", "q", "max-delivery-attempts", 1)]
    do(server, "retry", queue="parked")
    assert bodies(server, "q") == ["a"]


def test_evicted_messages_are_a_group(server):
    server.queue("ring", ring_size=1, ring_policy=RingPolicy.DEAD_LETTER)
    send(server.stomp(), b"a", b"b", to="ring")
    assert groups(server) == [("graves", "ring", "evicted", 1)]


def test_only_the_first_messages_of_a_queue_are_counted(server, client):
    letter = b"SEND\ndestination:/queue/graves\n_AMQ_ORIG_ADDRESS:q\n_AMQ_ORIG_QUEUE:q\nstompring-imported:true\n\n\0"
    for number, complete in ((10_000, True), (1, False)):
        client.protocol.dataReceived(letter * number)
        server.advance(1, 20)
        (group,) = server.get(GROUPS)["data"]
        assert pick(group, "count", "complete") == (10_000, complete)


def test_a_letter_of_an_earlier_version_has_no_reason(client, server):
    server.queue("old", "old", RoutingType.ANYCAST)
    client.put(to="old", _AMQ_ORIG_ADDRESS="q", _AMQ_ORIG_QUEUE="q", **{"stompring-imported": "true"})
    assert groups(server) == [("old", "q", "unknown", 1)]
    group = server.get(GROUPS)["data"][0]
    assert do(server, "retry", queue="old", filter=group["filter"])["done"] == 1
    assert server.shown()["messageCount"] == 1
