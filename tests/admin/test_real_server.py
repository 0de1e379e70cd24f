"""The HTTP side of a broker process, over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ..broker_process import PATIENCE
from ..management import Answered, Management


def test_ready_and_live(management, broker):
    assert json.loads(management.text("/health/live")) == {"status": "UP"}
    ready = json.loads(management.text("/health/ready"))
    assert {listener["acceptor"]: listener["port"] for listener in ready["listeners"]} == broker.ports


def quoted(name):
    return quote(name, safe="")


def test_keep_alive_connection_is_reused(broker):
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=PATIENCE)
    for method, path in (
        ("GET", "/metrics"),
        ("HEAD", "/metrics"),
        ("GET", "/nothing"),
        ("GET", "/api/v1/broker"),
    ) * 2:
        connection.request(method, path)
        response = connection.getresponse()
        response.read()
        assert response.getheader("Server") == "stompring"
    connection.close()


def test_oversized_body_gets_413(broker):
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=PATIENCE)
    connection.request("POST", "/api/v1/queues", b" " * 3_000_000, {"Content-Type": "application/json"})
    assert connection.getresponse().status == 413
    connection.close()


def test_client_disconnects_during_an_answer(broker, management):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", broker.http_port), PATIENCE) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.recv(1)
    assert json.loads(management.text("/health/live")) == {"status": "UP"}


@pytest.mark.broker()
def test_many_queues_are_scraped_and_listed(broker, management):
    def make(number):
        management.ask("POST", "/queues", {"name": f"many.{number}", "routingType": "ANYCAST"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(400)))
        texts = list(pool.map(lambda _: management.text("/metrics"), range(4)))
    for text in texts:
        families = {family.name: family for family in text_string_to_metric_families(text)}
        found = {sample.labels["queue"] for sample in families["stompring_queue_ring_size"].samples}
        assert {f"many.{number}" for number in range(400)} <= found
    page = management.ask("GET", "/queues", search="many.", sort="-name", size=3)
    assert page["count"] == 400 and [queue["name"] for queue in page["data"]] == [
        "many.99",
        "many.98",
        "many.97",
    ]


def test_a_reload_by_http(start_broker):
    broker = start_broker()
    management = Management(broker.http_port)
    good = broker.config.read_text(encoding="utf-8")
    broker.config.write_text(good.replace("</core>", "<oops/></core>"), encoding="utf-8")
    with pytest.raises(Answered) as answered:
        management.ask("POST", "/reload")
    assert answered.value.status == 409 and "oops" in answered.value.problem["detail"]
    broker.config.write_text(good, encoding="utf-8")
    assert os.fspath(management.ask("POST", "/reload")["configurationFile"]) == os.fspath(broker.config)
    assert json.loads(management.text("/health/ready"))["status"] == "UP"


def read_events(response, number):
    """The next events of a stream."""
    found: list[dict[str, object]] = []
    while len(found) < number:
        line = response.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            found.append(json.loads(line[6:]))
    return found


def test_events_are_streamed_and_resumed(broker, connect, name):
    def stream(**headers):
        connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=PATIENCE)
        sent = {"Accept": "text/event-stream", **headers}
        connection.request(
            "GET", "/api/v1/events?type[]=CONSUMER_CREATED&type[]=CONSUMER_CLOSED", headers=sent
        )
        response = connection.getresponse()
        assert (response.status, response.getheader("Content-Type")) == (200, "text/event-stream")
        return response

    live = stream()
    client = connect()
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "s", "receipt": "r"})
    client.expect("RECEIPT")
    client.send("UNSUBSCRIBE", {"id": "s", "receipt": "u"})
    client.expect("RECEIPT")
    created, closed = read_events(live, 2)
    assert (created["type"], created["queue"], closed["type"]) == (
        "CONSUMER_CREATED",
        name,
        "CONSUMER_CLOSED",
    )
    live.close()
    resumed = stream(**{"Last-Event-ID": str(created["id"])})
    assert read_events(resumed, 1) == [closed]
    resumed.close()


def test_rates_of_real_traffic(management, connect, name):
    client = connect()
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "s"})
    client.send("SEND", {"destination": f"/queue/{name}", "receipt": "r"}, b"x")
    client.expect("MESSAGE")
    client.expect("RECEIPT")

    def points():
        added: list[float | None] = management.ask("GET", f"/queues/{quoted(name)}/history")["series"][
            "added"
        ]
        return added

    deadline = time.monotonic() + PATIENCE
    while 1.0 not in points():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert management.queue(name)["addedRate"] > 0
