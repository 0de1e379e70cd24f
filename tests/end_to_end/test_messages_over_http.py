"""Messages over HTTP on a real broker with real clients: send, look, move, retry, download and upload."""

import json
from urllib.parse import quote

import pytest

from .steps import make_queue
from .test_stomp_py import Client

SETTINGS = {
    "#": {"dead-letter-address": "DLQ", "max-delivery-attempts": 1},
    "paged.#": {"max-size-messages": 20, "page-size-bytes": "4K"},
    "heavy.#": {"max-size-bytes": "1M", "page-size-bytes": "32M"},
    "blocked.#": {"max-size-messages": 5, "address-full-policy": "BLOCK"},
}
pytestmark = [pytest.mark.in_memory, pytest.mark.broker(settings=SETTINGS)]


def make(management, *names):
    for name in names:
        make_queue(management, name, routingType="ANYCAST")


def do(management, queue, operation, **body):
    task = management.ask("POST", f"/queues/{quote(queue, safe='')}/{operation}", body)
    return task["state"], task["done"], task["skipped"], task["failed"]


def raw(management, path, data=None):
    method, headers = ("GET", {}) if data is None else ("POST", {"Content_Type": "application/x-ndjson"})
    answer, content = management.exchange(method, f"/api/v1{path}", data, **headers)
    assert answer.status == 200, content
    return content


@pytest.mark.process
def test_stomp_py_receives_what_http_sends(broker, management, name):
    client = Client("1.2", broker.port)
    client.link.subscribe(f"/queue/{name}", id="1", ack="auto", headers={"receipt": "r"})
    client.ears.next("receipt")
    headers = {"colour": "r:ed\nblue", "priority": 7, "persistent": True, "content-type": "text/plain"}
    answer = management.ask(
        "POST", "/messages", {"address": name, "routingType": "ANYCAST", "headers": headers, "body": "grün"}
    )
    assert answer == {"sent": 1, "unrouted": 0, "rejected": 0, "reason": None}
    seen = client.ears.next("message")
    assert seen.body == "grün"
    assert (seen.headers["colour"], seen.headers["priority"]) == ("r:ed\nblue", "7")
    client.link.disconnect()


def test_large_messages_do_not_break_browsing(broker, client, management, name):
    """Ten messages of 10 MB, most of them on disk."""
    source, target = f"heavy.{name}", f"heavy.{name}.to"
    make(management, source, target)
    body = b"\xff\0large" * 1_500_000
    for number in range(10):
        client.put(f"/queue/{source}", body, number=number, content_length=len(body))
    page = management.ask("GET", f"/queues/{source}/messages", bodyLimit=10)
    assert [message["headers"]["number"] for message in page["data"]] == [str(number) for number in range(10)]
    assert {(message["bodySize"], message["bodyTruncated"]) for message in page["data"]} == {
        (len(body), True)
    }
    path = f"/queues/{source}/messages/{page['data'][7]['messageID']}"
    part = management.ask("GET", path, bodyOffset=len(body) - 5, bodyFormat="hex")
    assert bytes.fromhex(part["body"]) == b"large"
    assert raw(management, f"{path}/body") == body
    assert do(management, source, "move", address=target) == ("completed", 10, 0, 0)
    assert management.queue(target)["messageCount"] == 10
    line = raw(management, f"/queues/{target}/export?filter=number%20%3D%208")
    assert len(line) > len(body) and json.loads(line)["message"]["body"].keys() == {"base64"}
    assert do(management, target, "remove") == ("completed", 10, 0, 0)
