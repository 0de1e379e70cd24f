"""``GET /api/v1/queues/{name}/export`` and ``POST …/import``."""

import json

import pytest

from .admin_server import BEGIN, AdminServer, path
from .test_message_tasks import bodies, reject, send

LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def server():
    server = AdminServer({"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    for name in ("q", "p", "DLQ"):
        server.queue(name)
    return server


def export(server, queue="q", query=""):
    reply = server.ask("GET", path("queues", queue, "export") + query)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/x-ndjson")
    return reply.body


def upload(server, lines, queue="p"):
    return server.ask("POST", path("queues", queue, "import"), raw=lines, headers=LINES)


def test_a_round_trip_keeps_all_but_number_and_time(client, server):
    send(client, b"a", colour="r\\ced", priority="7", persistent="true", JMSXGroupID="g")
    send(client, b"\xff\0" * 100_000)
    send(client, 'grün\n"\\ '.encode() * 20_000, expires=str((BEGIN + 60) * 1000))
    send(client, b"later", AMQ_SCHEDULED_DELAY="5000", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="3")
    lines = export(server)
    assert [json.loads(line)["message"]["queues"][0]["queue"] for line in lines.splitlines()] == ["q"] * 4
    assert upload(server, lines).json == {"imported": 4}
    query = "?bodyFormat=base64"
    before, after = (server.get(path("queues", name, "messages") + query)["data"] for name in ("q", "p"))
    for one, other in zip(before, after, strict=True):
        for each in (one, other):
            del each["messageID"], each["headers"]["timestamp"]
            each["address"] = ""
        assert one == other


def test_only_what_matches_is_exported(client, server):
    send(client, b"a", n="1")
    send(client, b"b", n="2")
    (line,) = export(server, query="?filter=n%20%3D%202").splitlines()
    assert json.loads(line)["message"]["body"] == "b"
    assert export(server, query="?filter=n%20%3D%203") == b""
    server.refused(400, "GET", "/api/v1/queues/q/export?filter=n%20%3D")


def test_dead_letters_stay_dead_letters(client, server):
    send(client, b"a")
    reject(server)
    upload(server, export(server, "DLQ"))
    (letter,) = server.messages("p")
    assert (letter["originQueue"], letter["reason"]) == ("q", "max-delivery-attempts")


GOOD = {
    "number": 1,
    "address": "a",
    "queues": [{"queue": "q", "deliveryCount": 0, "failedAttempts": 0, "dueTime": None, "recurrence": None}],
    "priority": 4,
    "durable": False,
    "timestamp": 1,
    "expires": 0,
    "routingType": None,
    "destination": "a",
    "user": None,
    "origin": None,
    "group": None,
    "groupEnd": False,
    "headers": [["priority", "4"], ["persistent", "false"]],
    "body": "x",
}


@pytest.mark.parametrize(
    "change, named",
    [
        ({"priority": 10}, "priority"),
        ({"body": 7}, "body"),
        ({"body": {"base64": "?"}}, "body"),
        ({"queues": []}, "queues"),
        ({"colour": "red"}, "colour"),
        ({"headers": [["a"]]}, "headers"),
        ({"routingType": "UNICAST"}, "routingType"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(server, change, named):
    lines = [{"message": GOOD}, {"message": {**GOOD, **change}}]
    reply = upload(server, b"\n".join(json.dumps(line).encode() for line in lines))
    assert (reply.status, reply.json["line"]) == (400, 2)
    assert named in reply.json["detail"]
    assert bodies(server, "p") == []


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"queue": {}}', b"[" * 100_000, b"\xff"])
def test_what_is_no_message_is_refused(server, line):
    reply = upload(server, json.dumps({"message": GOOD}).encode() + b"\n" + line)
    assert (reply.status, reply.json["line"]) == (400, 2), reply.body


def test_blank_lines_and_nothing_at_all(server):
    assert upload(server, b"").json == {"imported": 0}
    assert upload(server, b"\n\r\n").json == {"imported": 0}
    assert upload(server, json.dumps({"message": GOOD}).encode() + b"\r\n\n").json == {"imported": 1}


def test_a_full_queue_imports_nothing():
    server = AdminServer({"p": {"max_size_messages": 1, "address_full_policy": "FAIL"}})
    server.queue("p")
    line = json.dumps({"message": GOOD}).encode()
    assert upload(server, line).status == 200
    reply = upload(server, line)
    assert reply.status == 409 and "nothing was imported" in reply.json["detail"]
    assert bodies(server, "p") == ["x"]


def test_a_filter_that_does_not_match_imports_nothing(server):
    server.queue("red", filter="colour = 'red'")
    reply = upload(server, json.dumps({"message": GOOD}).encode(), "red")
    assert reply.status == 400 and "filter of queue red" in reply.json["detail"]


def test_json_is_not_json_lines(server):
    server.refused(415, "POST", "/api/v1/queues/p/import", {"message": GOOD})
