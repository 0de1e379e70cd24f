"""``/api/v1/events``: what happens is listed, streamed to those who listen, and sent to activemq.notifications."""

import json
from dataclasses import replace

import pytest

from stompring.admin import http
from stompring.settings.model import SecuritySettingEntry

from ..docs.http_reference import notifications
from ..docs.pages import text_of
from .admin_server import BEGIN, AdminServer
from .test_permissions import MANAGEMENT, P, basic, server_where

#: Events of each type that are remembered.
MAX_EVENTS = 200


def listed(server, query="", **more):
    return server.get(f"/api/v1/events{query}", **more)["data"]


def types(found):
    return [event["type"] for event in found]


class Stream:
    """A client that reads events as they come."""

    def __init__(self, server, query="", headers=None):
        self.server = server
        sent = {"Accept": "text/event-stream", "Connection": None, **(headers or {})}
        self.channel, self.wire = server.begin("GET", f"/api/v1/events{query}", headers=sent)
        server.advance()

    @property
    def text(self):
        """Everything that came so far, without the chunks of HTTP."""
        head, _, body = self.wire.value().decode().partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200"), head
        found = ""
        while body:
            size, _, body = body.partition("\r\n")
            found, body = found + body[: int(size, 16)], body[int(size, 16) + 2 :]
        return found

    @property
    def events(self):
        return [data for _, data in self.pieces()]

    def pieces(self):
        """The id of each event, and its data."""
        for piece in self.text.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in piece.splitlines() if not line.startswith(":"))
            if "event" in fields:
                data = json.loads(fields["data"])
                assert data["type"] == fields["event"]
                yield fields.get("id"), data


def test_a_connection_and_its_consumer(server):
    client = server.stomp(**{"login": "anna", "client-id": "c"})
    client.subscribe(id="s", selector="a = 1")
    number = client.session.number
    client.protocol.connectionLost()
    found = listed(server)
    assert types(found) == [
        "CONNECTION_CREATED",
        "ADDRESS_ADDED",
        "BINDING_ADDED",
        "CONSUMER_CREATED",
        "CONNECTION_DESTROYED",
        "CONSUMER_CLOSED",
        "BINDING_REMOVED",
        "ADDRESS_REMOVED",
    ]
    consumer = found[3]
    assert consumer.pop("id") > BEGIN * 1000
    assert consumer == {
        "time": BEGIN * 1000,
        "type": "CONSUMER_CREATED",
        "text": "subscription s of queue q began",
        "connectionID": number,
        "user": "anna",
        "remoteAddress": "127.0.0.1:50000",
        "queue": "q",
        "address": "q",
        "consumer": "s",
        "consumerCount": 1,
        "filter": "a = 1",
    }
    assert found[5]["consumerCount"] == 0
    assert found[0]["clientID"] == "c"


def test_unsubscribe_and_a_deleted_queue_close_consumers(server):
    server.queue("other")
    client = server.stomp()
    client.subscribe(id="s")
    client.send("UNSUBSCRIBE", id="s")
    client.subscribe("/queue/other", "t")
    server.done("DELETE", "/api/v1/queues/other?force=true")
    closed = [event["text"] for event in listed(server, "?type[]=CONSUMER_CLOSED")]
    assert closed == [
        "subscription s of queue q ended",
        "subscription t of queue other ended: Queue other was deleted",
    ]


def test_no_event_for_messages(client, server):
    client.subscribe(id="s")
    before = server.broker.notifications.last_id
    for _ in range(50):
        client.put()
    assert server.broker.notifications.last_id == before


def test_full_and_no_longer_full(server):
    server = AdminServer({"q": {"max_size_messages": 1, "address_full_policy": "DROP"}})
    server.queue()
    client = server.stomp()
    for _ in range(3):
        client.put()
    client.subscribe(id="s")
    found = listed(server, "?type[]=ADDRESS_FULL&type[]=ADDRESS_NOT_FULL")
    assert types(found) == ["ADDRESS_FULL", "ADDRESS_NOT_FULL"]
    assert found[0]["address"] == "q" and "max-size-messages 1" in found[0]["text"]


def test_changes_over_http_are_events(server):
    server.done("POST", "/api/v1/queues", {"name": "q"})
    assert server.ask("DELETE", "/api/v1/queues/none").status == 404
    found = listed(server)
    assert types(found) == ["ADDRESS_ADDED", "BINDING_ADDED", "MANAGEMENT"]
    assert found[2]["text"] == "POST /api/v1/queues: 201" and found[2]["queue"] == "q"
    assert found[2]["remoteAddress"].startswith("127.0.0.1")


def test_violations_of_security(tmp_path):
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT), (P.SEND, "a"))
    server.ask("GET", "/api/v1/broker", headers=basic("anna:wrong"))
    server.ask("GET", "/api/v1/broker")  # without a login is no attempt
    server.ask("DELETE", "/api/v1/queues/q", headers=basic())
    server.stomp(login="mallory", passcode="secret!")
    client = server.stomp(login="anna", passcode="sécret:1")
    client.subscribe("a", "s")
    server.advance(5)
    found = [event for event in listed(server, headers=basic()) if event["type"].startswith("SECURITY")]
    assert types(found) == [
        "SECURITY_AUTHENTICATION_VIOLATION",
        "SECURITY_PERMISSION_VIOLATION",
        "SECURITY_AUTHENTICATION_VIOLATION",
        "SECURITY_PERMISSION_VIOLATION",
    ]
    assert found[1]["user"] == "anna" and found[1]["queue"] == "q"
    assert found[2]["user"] == "mallory" and "secret!" not in json.dumps(found)
    assert found[3]["user"] == "anna" and found[3]["connectionID"] == client.session.number


def test_since_types_and_size(server):
    for name in "abc":
        server.queue(name)
    found = listed(server)
    assert types(found) == ["ADDRESS_ADDED", "BINDING_ADDED"] * 3
    assert [event["id"] for event in found] == sorted(event["id"] for event in found)
    assert listed(server, f"?since={found[3]['id']}") == found[4:]
    assert listed(server, "?type[]=BINDING_ADDED&size=2") == [found[3], found[5]]
    assert server.get("/api/v1/events?type[]=BINDING_ADDED&size=2")["count"] == 3
    for query in ("type[]=NONE", "since=-1", "size=0", "types=x"):
        server.refused(400, "GET", f"/api/v1/events?{query}")


def test_frequent_events_do_not_displace_rare_ones(server):
    server.ask("POST", "/api/v1/drain")
    first = server.broker.notifications.last_id
    for number in range(MAX_EVENTS + 50):
        server.queue(f"q{number}")
    found = listed(server)
    assert types(found).count("DRAIN") == 1 and types(found).count("BINDING_ADDED") == MAX_EVENTS
    assert found[-1]["queue"] == f"q{MAX_EVENTS + 49}"
    assert [event["id"] for event in found] == sorted(event["id"] for event in found)
    assert types(Stream(server, f"?since={first}").events)[0] == "EVENTS_LOST"
    assert "EVENTS_LOST" not in types(Stream(server, f"?since={first + 200}").events)


def test_a_policy_that_fails_is_one_event_for_each_cause(server):
    for _ in range(3):
        server.service.policies.recorded.record("limit", "q", "admit", ValueError("x"), "broker.xml:7")
    (event,) = listed(server)
    assert (
        event["text"] == "policy limit of address q failed in admit: ValueError" and event["address"] == "q"
    )


# ---- the stream


def test_a_stream_has_events_as_they_happen(server):
    server.queue("before")
    stream = Stream(server)
    assert stream.text == "retry: 3000\n: stompring events\n\n"
    server.queue()
    server.advance()
    (address, queue) = stream.pieces()
    assert queue[1]["queue"] == "q" and queue[0] == str(queue[1]["id"])
    assert b"Content-Type: text/event-stream" in stream.wire.value()


@pytest.mark.parametrize("by_header", [True, False])
def test_a_stream_continues_after_the_last_event(server, by_header):
    for name in "abc":
        server.queue(name)
    all_events = listed(server)
    seen = str(all_events[2]["id"])
    stream = (
        Stream(server, headers={"Last-Event-ID": seen}) if by_header else Stream(server, f"?since={seen}")
    )
    assert stream.events == all_events[3:]
    server.queue("d")
    server.advance()
    assert stream.events == listed(server)[3:]


def test_a_stream_of_some_types(server):
    stream = Stream(server, "?type[]=BINDING_ADDED&since=0")
    server.queue()
    server.advance()
    assert types(stream.events) == ["BINDING_ADDED"]


@pytest.mark.parametrize("seen", ["1", str(BEGIN * 2000)])
def test_a_gap_is_reported(queue, server, seen):
    stream = Stream(server, headers={"Last-Event-ID": seen})
    assert types(stream.events) == ["EVENTS_LOST", "ADDRESS_ADDED", "BINDING_ADDED"]
    assert next(stream.pieces())[0] is None  # so that a browser keeps the id that it has


def test_an_invalid_last_event_id_is_ignored(queue, server):
    assert Stream(server, headers={"Last-Event-ID": "x" * 50}).events == []


def test_a_silent_stream_is_kept_alive(server):
    stream = Stream(server)
    server.advance(15, 3)
    assert stream.text.count(": keep-alive\n\n") == 3


def test_a_stream_is_not_ended_by_the_times_of_requests(server):
    stream = Stream(server)
    server.advance(10, 40)
    server.queue()
    server.advance()
    assert len(stream.events) == 2


def test_hostile_names_stay_within_their_event(server):
    stream = Stream(server)
    client = server.stomp(**{"client-id": "x\\n\\nevent: EVIL\\ndata: {}\\n\\n"})
    client.subscribe("/queue/<script>", "a\\n\\nid: 99\\n")
    server.advance()
    assert types(stream.events) == [
        "CONNECTION_CREATED",
        "ADDRESS_ADDED",
        "BINDING_ADDED",
        "CONSUMER_CREATED",
    ]
    assert stream.events[3]["consumer"] == "a\n\nid: 99\n"


def test_a_client_that_does_not_read_gets_an_end_and_no_memory(server):
    stream = Stream(server)
    stream.wire.producer.pauseProducing()  # the socket is full
    for number in range(1001):
        server.queue(f"q{number}")
    server.advance()
    assert not server.broker.notifications.listeners
    stream.wire.producer.resumeProducing()
    server.advance()
    assert types(stream.events) == ["STREAM_ENDED"]
    assert "did not read 1000 events" in stream.events[0]["text"]
    assert stream.wire.value().endswith(b"0\r\n\r\n")


def test_a_client_that_never_reads_is_closed_after_the_answer_time(server):
    stream = Stream(server)
    stream.wire.producer.pauseProducing()
    server.advance(http.ANSWER_TIME + 1)
    assert stream.wire.disconnected or stream.wire.disconnecting or stream.wire.aborting


def test_a_client_that_disconnects_is_forgotten(server):
    stream = Stream(server)
    assert len(server.broker.notifications.listeners) == 1
    stream.channel.connectionLost()
    assert not server.broker.notifications.listeners
    server.queue()
    server.advance(30)
    assert len(stream.events) == 0


def test_a_stream_ends_when_the_permission_is_revoked(tmp_path):
    server = server_where(tmp_path, (P.VIEW, MANAGEMENT))
    authorization = {name: str(value) for name, value in basic().items()}
    stream = Stream(server, headers=authorization)
    server.queue("x")
    server.advance()
    assert len(stream.events) == 2
    security = server.service.security
    security.use(
        replace(
            server.service.configuration,
            security_settings=(SecuritySettingEntry("#", {P.VIEW: frozenset(("others",))}),),
        )
    )
    server.queue("y")
    server.advance()
    assert types(stream.events)[2:] == ["STREAM_ENDED"]
    assert "view" in stream.events[2]["text"]


def test_a_stop_ends_streams(server):
    stream = Stream(server)
    server.service.stop_listening()
    server.advance()
    assert types(stream.events) == ["SHUTDOWN", "STREAM_ENDED"]


def test_the_number_of_streams_is_limited(server):
    streams = [Stream(server) for _ in range(50)]
    refused = server.refused(503, "GET", "/api/v1/events", headers={"Accept": "text/event-stream"})
    assert "50 streams" in refused["detail"]
    streams[0].channel.connectionLost()
    assert Stream(server).events == []


# ---- messages


def test_without_the_address_nothing_is_sent(queue, server):
    server.advance()
    assert "activemq.notifications" not in server.directory.addresses


def test_the_number_of_events_is_documented():
    assert f"the last {MAX_EVENTS} events of each type" in text_of("docs/http-api.md")


def test_a_message_has_the_documented_headers(server):
    watcher = server.stomp()
    watcher.subscribe("activemq.notifications")
    before = server.broker.notifications.last_id
    server.stomp(**{"login": "anna", "client-id": "c"}).subscribe(selector="a = 1")
    server.broker.notifications.notify("BRIDGE_STARTED", "bridge b was started", bridge="b")
    server.advance()
    frames = watcher.received.decode().split("\0")
    seen = set()
    for event in listed(server, f"?since={before}"):
        frame = next(each for each in frames[::-1] if f"_AMQ_NotifType:{event['type']}\n" in each)
        for name in notifications.HEADERS.keys() & event.keys() - {"routingType"}:
            value = str(event[name]).replace(":", "\\c")
            assert f"\n{notifications.HEADERS[name]}:{value}\n" in frame, (event, frame)
            seen.add(name)
    assert seen == notifications.HEADERS.keys() - {"routingType"}
