"""Messages over HTTP on a real broker with real clients: send, look, move, retry, download and upload."""

import json
from urllib.parse import quote

import pytest

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
        management.ask("POST", "/queues", {"name": name, "routingType": "ANYCAST"})


def do(management, queue, operation, **body):
    task = management.ask("POST", f"/queues/{quote(queue, safe='')}/{operation}", body)
    return task["state"], task["done"], task["skipped"], task["failed"]


def raw(management, path, data=None):
    method, headers = ("GET", {}) if data is None else ("POST", {"Content_Type": "application/x-ndjson"})
    answer, content = management.exchange(method, f"/api/v1{path}", data, **headers)
    assert answer.status == 200, content
    return content


def ended(management, task):
    """The task, when it has ended."""
    found = []

    def look():
        found.append(management.ask("GET", f"/tasks/{task['taskID']}"))
        return found[-1]["state"] != "running"

    management.until(look)
    return found[-1]


def bodies(management, queue):
    lines = raw(management, f"/queues/{queue}/export").splitlines()
    return [json.loads(line)["message"]["body"] for line in lines]


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


@pytest.mark.process
def test_a_rejected_message_is_found_and_retried(broker, connect, management, name):
    make(management, "DLQ")
    client = Client("1.2", broker.port)
    client.link.subscribe(f"/queue/{name}", id="1", ack="client-individual", headers={"prefetch-count": "1"})
    client.link.send(f"/queue/{name}", "first", headers={"persistent": "true", "colour": "red"})
    seen = client.ears.next("message")
    client.link.nack(seen.headers["ack"])
    management.expect("DLQ", messageCount=1)
    (group,) = management.ask("GET", "/dead-letters", originQueue=name)["data"]
    assert (group["queue"], group["reason"], group["count"]) == ("DLQ", "max-delivery-attempts", 1)
    assert do(management, group["queue"], "retry", filter=group["filter"]) == ("completed", 1, 0, 0)
    again = client.ears.next("message")
    assert (again.body, again.headers["colour"], again.headers["redelivered"]) == ("first", "red", "false")
    assert not [header for header in again.headers if header.startswith("_AMQ_")]
    assert management.ask("GET", "/dead-letters", originQueue=name)["data"] == []
    client.link.disconnect()


def test_a_waiting_consumer_receives_what_is_moved(connect, management, name):
    client, source, target = connect(), f"{name}.from", f"{name}.to"
    make(management, source)
    client.subscribe(f"/queue/{target}", ack="auto")
    connect().put(f"/queue/{source}", "a", "b", "c")
    assert do(management, source, "move", address=target) == ("completed", 3, 0, 0)
    client.messages("a", "b", "c")


@pytest.mark.process
def test_selection_in_pages(broker, connect, management, name):
    client, source, target = connect(), f"paged.{name}", f"{name}.to"
    make(management, source, target)
    for number in range(200):
        client.put(f"/queue/{source}", str(number), n=number % 10, persistent="true", padding="x" * 300)
    assert management.queue(source)["pagedCount"] > 100
    assert do(management, source, "move", address=target, filter="n = 3", limit=15) == ("completed", 15, 0, 0)
    assert bodies(management, target) == [str(number) for number in range(200) if number % 10 == 3][:15]
    last = management.ask("GET", f"/queues/{source}/messages", filter="n = 9", size=20)["data"][-3:]
    ids = [message["messageID"] for message in last]
    assert management.ask("GET", f"/queues/{source}/messages/{ids[0]}")["body"] == last[0]["body"]
    assert do(management, source, "move", address=target, messages=[*ids, "1"]) == ("completed", 3, 1, 0)
    assert bodies(management, target)[15:] == [message["body"] for message in last]
    assert do(management, source, "remove") == ("completed", 182, 0, 0)
    assert management.queue(source)["messageCount"] == 0


def test_large_messages_do_not_break_browsing(broker, connect, management, name):
    """Ten messages of 10 MB, most of them on disk."""
    client, source, target = connect(), f"heavy.{name}", f"heavy.{name}.to"
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


def test_a_full_target_is_waited_for(connect, management, name):
    client, source, target = connect(), f"{name}.from", f"blocked.{name}"
    make(management, source, target)
    client.put(f"/queue/{source}", *[str(number) for number in range(40)])
    task = management.ask("POST", f"/queues/{source}/move", {"address": target, "wait": False})
    management.expect(target, messageCount=5)
    assert management.ask("GET", f"/tasks/{task['taskID']}")["state"] == "running"
    consumer = connect()
    consumer.subscribe(f"/queue/{target}", ack="auto")
    consumer.messages(*[str(number) for number in range(40)])
    task = ended(management, task)
    assert (task["state"], task["done"]) == ("completed", 40)


def test_a_task_that_waits_is_cancelled(connect, management, name):
    client, source, target = connect(), f"{name}.from", f"blocked.{name}"
    make(management, source, target)
    client.put(f"/queue/{source}", *[str(number) for number in range(10)])
    task = management.ask("POST", f"/queues/{source}/move", {"address": target, "wait": False})
    management.expect(target, messageCount=5)
    management.ask("DELETE", f"/tasks/{task['taskID']}")
    management.expect(source, messageCount=5)
    task = ended(management, task)
    assert (task["state"], task["done"]) == ("cancelled", 5)


def test_what_is_downloaded_is_uploaded_again(broker, connect, management, name):
    source, target = f"paged.{name}", f"{name}.to"
    make(management, source, target)
    connect().put(f"/queue/{source}", *[str(number) for number in range(100)], persistent="true")
    lines = raw(management, f"/queues/{source}/export")
    assert json.loads(raw(management, f"/queues/{target}/import", lines)) == {"imported": 100}
    assert bodies(management, target) == [str(number) for number in range(100)]
