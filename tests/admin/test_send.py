"""``POST /api/v1/messages``."""

import pytest

from stompring.settings.model import AddressSettingEntry, RoutingType

from .admin_server import BEGIN, AdminServer, path, pick

MULTICAST = RoutingType.MULTICAST
SEND = "/api/v1/messages"


@pytest.fixture
def server():
    server = AdminServer()
    server.queue()
    return server


def send(server, **body):
    reply = server.ask("POST", SEND, body)
    assert reply.status == 200, (reply.status, reply.body)
    return reply.json


def test_headers_mean_what_they_mean_in_send(server):
    answer = send(
        server,
        address="q",
        headers={
            "priority": 7,
            "persistent": True,
            "colour": "r:ed\n",
            "JMSXGroupID": "g",
            "reply-to": "answers",
        },
        body="grün",
    )
    assert answer == {"sent": 1, "unrouted": 0, "rejected": 0, "reason": None}
    (message,) = server.messages()
    assert pick(message, "priority", "durable", "group") == (7, True, "g")
    assert (message["body"], message["headers"]["colour"]) == ("grün", "r:ed\n")
    assert message["headers"]["reply-to"] == "answers"


def test_a_consumer_receives_what_is_sent(client, server):
    client.subscribe(ack="auto")
    send(server, address="q", body="hello", headers={"content-type": "text/plain"})
    assert b"content-type:text/plain\n" in client.received
    assert client.received.rstrip(b"\n\0").endswith(b"\n\nhello")


@pytest.mark.parametrize(
    "encoding, body, raw",
    [("base64", "AP8=", b"\x00\xff"), ("hex", "00 FF", b"\x00\xff"), ("text", "", b"")],
)
def test_encodings(server, encoding, body, raw):
    send(server, address="q", body=body, encoding=encoding)
    (message,) = server.messages()
    assert server.ask("GET", path("queues", "q", "messages", message["messageID"], "body")).body == raw


def test_schedules(server):
    send(
        server,
        address="q",
        headers={"AMQ_SCHEDULED_DELAY": 5000, "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": 2},
    )
    (message,) = server.messages()
    assert pick(message, "state", "dueTime") == ("scheduled", BEGIN * 1000 + 5000)
    assert message["recurrence"]["repeat"] == 2


def test_a_count_sends_many(server):
    assert send(server, address="q", body="x", count=55)["sent"] == 55
    assert server.directory.queue("q").count == 55


def test_one_queue_is_a_target(server):
    for name in ("one", "two"):
        server.queue(name, "news", MULTICAST)
    send(server, queue="two", body="x")
    send(server, address="news", queue="one", body="y")
    assert [each["body"] for each in server.messages("one")] == ["y"]
    assert [each["body"] for each in server.messages("two")] == ["x"]


def test_an_address_is_created_as_for_a_send(server):
    assert send(server, address="new", routingType="ANYCAST", body="x")["unrouted"] == 0
    assert len(server.messages("new")) == 1
    assert send(server, address="nobody", routingType="MULTICAST", body="x", count=2)["unrouted"] == 2


def test_a_duplicate_is_rejected(server):
    send(server, address="q", headers={"_AMQ_DUPL_ID": "once"})
    answer = send(server, address="q", headers={"_AMQ_DUPL_ID": "once"})
    assert pick(answer, "sent", "rejected") == (0, 1) and "_AMQ_DUPL_ID" in answer["reason"]
    assert len(server.messages()) == 1


@pytest.mark.parametrize("full", ["FAIL", "BLOCK"])
def test_a_full_address_ends_it(full):
    server = AdminServer({"q": {"max_size_messages": 2, "address_full_policy": full}})
    server.queue()
    answer = send(server, address="q", body="x", count=5)
    assert pick(answer, "sent", "rejected") == (2, 3) and "max-size-messages" in answer["reason"]
    assert "max-size-messages" in server.refused(409, "POST", SEND, {"address": "q"})["detail"]


@pytest.mark.parametrize("outcome", ["room", "no room", "fault"])
def test_it_waits_for_a_store_with_much_to_write(server, outcome):
    limit = server.broker.storage.write_limit
    limit.set_limits(10)
    limit.bytes = 10
    limit.review()
    if outcome == "room":
        server.reactor.callLater(5, limit.set_limits, -1)
    elif outcome == "fault":
        limit.set_fault("cannot write /d")
    request = {"address": "q", "headers": {"persistent": True}, "count": 3}
    reply = server.ask("POST", SEND, request, step=0.1)
    if outcome == "room":
        assert (reply.status, reply.json["sent"], reply.json["rejected"]) == (200, 3, 0)
    else:
        reason = "cannot write /d" if outcome == "fault" else "the disk is too slow"
        assert reply.status == 409
        assert reply.json["detail"] == f"Address q rejects durable messages: {reason}"


def test_what_a_full_address_drops_is_counted():
    server = AdminServer({"q": {"max_size_messages": 2, "address_full_policy": "DROP"}})
    server.queue()
    assert pick(send(server, address="q", body="x", count=5), "sent", "rejected") == (2, 3)
    assert server.get("/api/v1/addresses/q")["droppedMessageCount"] == 3


def test_what_only_a_broker_may_set_is_removed(server):
    send(server, address="q", headers={"_AMQ_ORIG_QUEUE": "forged", "JMSXUserID": "root", "message-id": "1"})
    (message,) = server.messages()
    assert not {"_AMQ_ORIG_QUEUE", "JMSXUserID", "message-id"} & message["headers"].keys()


@pytest.mark.parametrize(
    "body, named",
    [
        ({"address": ""}, "address"),
        ({"queue": ""}, "queue"),
        ({"address": "a::b"}, "::"),
        ({"address": "a.#"}, "wildcards"),
        ({"routingType": "UNICAST"}, "routingType"),
        ({"headers": []}, "headers"),
        ({"headers": {"": "x"}}, "headers"),
        ({"headers": {"a": "\0"}}, "headers"),
        ({"headers": {"a": None}}, "headers"),
        ({"headers": {"a": "x" * 70_000}}, "65536"),
        ({"headers": {str(n): "" for n in range(1001)}}, "1000"),
        ({"headers": {"receipt": "1"}}, "receipt"),
        ({"headers": {"transaction": "1"}}, "transaction"),
        ({"headers": {"reply-to": "/temp-queue/x"}}, "temporary queue"),
        ({"headers": {"priority": "10"}}, "priority"),
        ({"headers": {"AMQ_SCHEDULED_CRON": "x"}}, "cron"),
        ({"body": "x", "encoding": "base64"}, "base64"),
        ({"body": "x", "encoding": "hex"}, "hex"),
        ({"body": "x", "encoding": "gzip"}, "encoding"),
        ({"body": 7}, "body"),
        ({"count": 0}, "count"),
        ({"count": 10_001}, "count"),
        ({"count": True}, "count"),
    ],
)
def test_invalid_requests_send_nothing(server, body, named):
    problem = server.refused(400, "POST", SEND, {"address": "q", **body})
    assert named in problem["detail"], problem
    assert server.messages() == []


def test_what_is_not_there_is_sent_nothing(server):
    assert "address" in server.refused(400, "POST", SEND, {})["detail"]
    assert "nowhere" in server.refused(404, "POST", SEND, {"queue": "nowhere"})["detail"]


def test_settings_of_the_address_apply():
    server = AdminServer(address_settings=(AddressSettingEntry("q", {"expiry_delay": 1000}),))
    server.queue()
    send(server, address="q")
    assert server.messages()[0]["expires"] == BEGIN * 1000 + 1000
    server.advance(2)
    assert server.messages() == []
