"""``/api/v1/queues/{name}/messages`` and ``/scheduled``."""

import base64

import pytest

from stompring.broker import publish
from stompring.broker.message import Message, Traits

from .admin_server import BEGIN, AdminServer, pick

WHOLE = "/api/v1/queues/q/messages"
SCHEDULED = "/api/v1/queues/q/scheduled"


@pytest.fixture
def server():
    server = AdminServer()
    server.queue()
    return server


def bodies(page):
    return [message["body"] for message in page["data"]]


def counts(server):
    shown = server.shown()
    return shown["messageCount"], shown["scheduledCount"], shown["messagesAcknowledged"]


# ---- looking


def test_fields_of_a_message(server, client):
    client.put(b"hello", priority="7", persistent="true", expires=str(BEGIN * 1000 + 60_000), colour="r\\ced")
    (message,) = server.messages()
    headers = message.pop("headers")
    assert message.pop("size") == server.broker.memory.bytes
    assert (
        message
        == {
            "messageID": f"{server.directory.queue('q').number}-{BEGIN * 1_000_000}",  # numbers begin from the clock
            "state": "pending",
            "address": "q",
            "priority": 7,
            "durable": True,
            "timestamp": BEGIN * 1000,
            "age": 0,
            "expires": BEGIN * 1000 + 60_000,
            "user": None,
            "group": None,
            "deliveryCount": 0,
            "failedAttempts": 0,
            "dueTime": None,
            "recurrence": None,
            "originAddress": None,
            "originQueue": None,
            "reason": None,
            "body": "hello",
            "encoding": "text",
            "bodySize": 5,
            "bodyTruncated": False,
        }
    )
    assert headers["colour"] == "r:ed"
    assert headers["content-length"] == "5"


def test_message_id_equals_the_header(server, client):
    client.put(b"x")
    shown = server.messages()[0]["messageID"]
    client.subscribe(ack="client")
    assert f"\nmessage-id:{shown}\n".encode() in client.received
    (delivering,) = server.messages()
    assert pick(delivering, "messageID", "state", "deliveryCount") == (
        shown,
        "delivering",
        1,
    )


def test_states_in_order_and_a_transaction(server, client):
    client.put(b"scheduled", AMQ_SCHEDULED_DELAY="5000")
    for body in (b"acked", b"taken", b"waits"):
        client.put(body)
    client.subscribe(ack="client-individual", prefetch_count="2")
    first = server.get(f"{WHOLE}?size=200")["data"]
    assert [pick(message, "body", "state") for message in first] == [
        ("waits", "pending"),
        ("scheduled", "scheduled"),
        ("acked", "delivering"),
        ("taken", "delivering"),
    ]
    client.send("BEGIN", transaction="t")
    acked = next(message["messageID"] for message in first if message["body"] == "acked")
    client.send("ACK", id=acked, transaction="t")
    page = server.get(WHOLE)
    assert page["count"] == server.shown()["messageCount"]
    assert [m["state"] for m in page["data"] if m["body"] == "acked"] == ["delivering"]
    client.send("COMMIT", transaction="t")
    assert "acked" not in bodies(server.get(WHOLE))


def test_pages_and_filters(server, client):
    for number in range(230):
        client.put(b"%d" % number, number=str(number))
    page = server.get(WHOLE)
    assert (len(page["data"]), page["count"], page["size"]) == (200, 230, 200)
    assert bodies(server.get(f"{WHOLE}?page=2")) == [str(number) for number in range(200, 230)]
    assert bodies(server.get(f"{WHOLE}?page=3&size=5")) == [str(number) for number in range(10, 15)]
    found = server.get(f"{WHOLE}?filter=number%20%3E%3D%20225&size=2&page=2")
    assert (bodies(found), found["count"]) == (["227", "228"], 5)
    assert server.refused(400, "GET", f"{WHOLE}?size=201")["parameter"] == "size"
    assert "filter" in server.refused(400, "GET", f"{WHOLE}?filter=a%20%3D")["detail"]


def test_the_size_of_a_page_is_a_setting():
    server = AdminServer({"q": {"management_browse_page_size": 3}})
    server.queue()
    client = server.stomp()
    for number in range(5):
        client.put(b"%d" % number)
    assert bodies(server.get(WHOLE)) == ["0", "1", "2"]
    server.refused(400, "GET", f"{WHOLE}?size=4")


@pytest.mark.parametrize(
    "body, limit, shown, encoding",
    [
        (b"", 10, "", "text"),
        ("grün ✓".encode(), 100, "grün ✓", "text"),
        (b"a\0b\n", 100, "a\0b\n", "text"),
        (b"\xff\xfe", 100, base64.b64encode(b"\xff\xfe").decode(), "base64"),
        ("12345✓".encode(), 6, "12345", "text"),  # the cut goes through a character
        (b"12345\xff6", 5, "12345", "text"),
        (b"12345\xe2", 100, base64.b64encode(b"12345\xe2").decode(), "base64"),
        (b"\xff" * 9, 3, base64.b64encode(b"\xff" * 3).decode(), "base64"),
        (b"abc", 0, "", "text"),
        (b"abc", 3, "abc", "text"),
    ],
)
def test_encodings_of_bodies(server, client, body, limit, shown, encoding):
    client.put(body)
    (message,) = server.get(f"{WHOLE}?bodyLimit={limit}")["data"]
    found = pick(message, "body", "encoding", "bodySize", "bodyTruncated")
    assert found == (shown, encoding, len(body), limit < len(body))


def test_long_bodies_are_truncated(server, client):
    client.put(b"x" * 65537)
    (message,) = server.messages()
    assert (len(message["body"]), message["bodySize"], message["bodyTruncated"]) == (
        65536,
        65537,
        True,
    )
    (message,) = server.get(f"{WHOLE}?bodyLimit=10")["data"]
    assert message["body"] == "x" * 10
    assert server.refused(400, "GET", f"{WHOLE}?bodyLimit=65537")["parameter"] == "bodyLimit"


def test_headers_that_are_not_utf8_are_replaced(server, client):
    address = server.directory.address("q")
    publish.send(Message(99, address, Traits(b"k\xff:v\xfe\n", group=b"\xff"), b"", 0))
    (message,) = server.messages()
    assert message["headers"]["k\N{REPLACEMENT CHARACTER}"] == "v\N{REPLACEMENT CHARACTER}"
    assert message["group"] == "\N{REPLACEMENT CHARACTER}"


# ---- removing


def test_remove_one_message(server, client):
    for body in (b"a", b"b", b"c"):
        client.put(body)
    ids = [message["messageID"] for message in server.messages()]
    server.done("DELETE", f"{WHOLE}/{ids[1]}")
    assert bodies(server.get(WHOLE)) == ["a", "c"]
    assert counts(server) == (2, 0, 1)
    server.refused(404, "DELETE", f"{WHOLE}/{ids[1]}")
    server.done("DELETE", f"{WHOLE}/{ids[0].partition('-')[2]}")
    assert bodies(server.get(WHOLE)) == ["c"]


@pytest.mark.parametrize("identifier", ["x", "99-1", "-1", "1-", "1-x", "1--1", "9" * 50, "%D9%A1", "1.0"])
def test_unknown_message_id_gets_404(server, client, identifier):
    client.put(b"a")
    for method, place in (("DELETE", WHOLE), ("DELETE", SCHEDULED)):
        server.refused(404, method, f"{place}/{identifier}")
    server.refused(404, "POST", f"{SCHEDULED}/{identifier}/deliver")
    assert counts(server) == (1, 0, 0)


def test_delivering_message_is_not_removed(server, client):
    client.put(b"a")
    client.subscribe(ack="client")
    (message,) = server.messages()
    assert "in delivery" in server.refused(409, "DELETE", f"{WHOLE}/{message['messageID']}")["detail"]


# ---- scheduled


def test_scheduled_by_due_time(server, client):
    for seconds in (30, 10, 20):
        client.put(b"%d" % seconds, AMQ_SCHEDULED_DELAY=f"{seconds}000")
    client.put(b"again", AMQ_SCHEDULED_DELAY="5000", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="2")
    client.put(b"cron", AMQ_SCHEDULED_CRON="0 0 1 1 *")
    client.put(b"pending")
    page = server.get(SCHEDULED)
    assert bodies(page) == ["again", "10", "20", "30", "cron"]
    assert page["count"] == 5
    again, ten, *_, cron = page["data"]
    assert ten["dueTime"] == (BEGIN + 10) * 1000 and ten["recurrence"] is None and ten["state"] == "scheduled"
    assert again["recurrence"] == {"period": 1000, "repeat": 2, "cron": None, "delay": 0}
    assert cron["recurrence"]["cron"] == "0 0 1 1 *"
    assert bodies(server.get(f"{SCHEDULED}?page=2&size=2")) == ["20", "30"]


def test_many_scheduled_messages_are_sorted_in_steps(server, client):
    for number in range(2500):
        delay = 1 + number * 7919 % 2500
        client.protocol.dataReceived(
            b"SEND\ndestination:/queue/q\nAMQ_SCHEDULED_DELAY:%d\n\n%d\0" % (delay, delay)
        )
    assert bodies(server.get(f"{SCHEDULED}?page=12&size=200")) == [str(delay) for delay in range(2201, 2401)]


def test_deliver_now(server, client):
    client.subscribe()
    client.put(b"later", AMQ_SCHEDULED_DELAY="60000")
    (message,) = server.get(SCHEDULED)["data"]
    server.done("POST", f"{SCHEDULED}/{message['messageID']}/deliver")
    server.advance()
    assert b"later" in client.received
    assert counts(server) == (0, 0, 1)
    server.refused(404, "POST", f"{SCHEDULED}/{message['messageID']}/deliver")


def test_deliver_a_recurring_one_now(server, client):
    client.put(b"tick", AMQ_SCHEDULED_DELAY="60000", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="1")
    (message,) = server.get(SCHEDULED)["data"]
    for times in (1, 2):
        server.done("POST", f"{SCHEDULED}/{message['messageID']}/deliver")
        assert counts(server) == (1 + times, 1, 0)
    assert server.get(SCHEDULED)["data"] == [message]


def test_cancel(server, client):
    client.put(b"later", AMQ_SCHEDULED_DELAY="60000")
    (message,) = server.get(SCHEDULED)["data"]
    server.done("DELETE", f"{SCHEDULED}/{message['messageID']}")
    assert counts(server) == (0, 0, 1)
    server.advance(61)
    assert counts(server) == (0, 0, 1)


def test_only_scheduled_messages_are_cancelled(server, client):
    client.put(b"pending")
    (message,) = server.messages()
    server.refused(404, "DELETE", f"{SCHEDULED}/{message['messageID']}")
    assert counts(server) == (1, 0, 0)


# ---- formats of bodies


@pytest.mark.parametrize(
    "raw, shown_as, expected",
    [
        (b"{}", "auto", ("{}", "text")),
        (b'{"a": 1e5}', "json", ('{"a": 1e5}', "json")),
        (b"{", "json", ("{", "text")),
        (b"", "json", ("", "text")),
        (b"[" * 100_000, "json", ("[" * 65_536, "text")),
        (b"[" * 50_000, "json", ("[" * 50_000, "text")),
        (b"\xff{}", "json", ("/3t9", "base64")),
        (b"a\xffb", "text", ("a\ufffdb", "text")),
        (b"\0\xff", "hex", ("00ff", "hex")),
        (b"abc", "base64", ("YWJj", "base64")),
    ],
)
def test_body_formats(server, client, raw, shown_as, expected):
    client.put(raw)
    (message,) = server.get(f"{WHOLE}?bodyFormat={shown_as}")["data"]
    assert pick(message, "body", "encoding") == expected
    assert message["bodySize"] == len(raw)


def test_unknown_body_format(server):
    assert server.refused(400, "GET", f"{WHOLE}?bodyFormat=xml")["parameter"] == "bodyFormat"


# ---- one message


def test_one_message_in_every_state(server, client):
    client.put(b"later", AMQ_SCHEDULED_DELAY="5000")
    client.put(b"taken")
    client.put(b"waits")
    client.subscribe(ack="client", prefetch_count="1")
    for listed in server.messages():
        assert server.get(f"{WHOLE}/{listed['messageID']}") == listed
    client.send("BEGIN", transaction="t")
    taken = next(each for each in server.messages() if each["body"] == "taken")
    client.send("ACK", id=taken["messageID"], transaction="t")
    assert server.get(f"{WHOLE}/{taken['messageID']}")["state"] == "delivering"
    server.refused(404, "GET", f"{WHOLE}/77")
    server.refused(404, "GET", f"{WHOLE}/9-{taken['messageID'].rpartition('-')[2]}")


def test_a_part_of_a_body(server, client):
    client.put(b"0123456789")
    message = server.messages()[0]["messageID"]
    part = server.get(f"{WHOLE}/{message}?bodyOffset=4&bodyLimit=3")
    assert pick(part, "body", "bodySize", "bodyTruncated") == ("456", 10, True)
    assert server.get(f"{WHOLE}/{message}?bodyOffset=99")["body"] == ""
    server.refused(400, "GET", f"{WHOLE}/{message}?bodyLimit=1048577")


def test_a_body_is_downloaded_as_it_is(server, client):
    body = bytes(range(256)) * 1000 + b"<script>alert(1)</script>"
    client.put(body, **{"content-type": "text/html"})
    message = server.messages()[0]["messageID"]
    reply = server.ask("GET", f"{WHOLE}/{message}/body")
    assert reply.body == body
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-disposition"] == f'attachment; filename="message-{message}.bin"'
    assert reply.headers["content-length"] == str(len(body))
