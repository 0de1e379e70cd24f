"""A broker is killed or stopped while it moves messages: each is in one queue or the other, never in both or none."""

import json
import random
import shutil
import threading
import time
from collections import Counter
from itertools import product
from urllib.request import Request, urlopen

import pytest

from ..broker_document import broker_xml
from ..management import Management
from ..stomp_client import StompClient
from .killable_broker import KillableBroker

MESSAGES = 5_000
KILLS = 3

#: Settings of the queue that messages leave, of the one that they go to, and of all addresses.
PAGED = {"max-size-messages": 300, "page-size-bytes": "64K"}
CASES = {
    "memory to memory": ({}, {}),
    "memory to pages": ({}, PAGED),
    "pages to memory": (PAGED, {}),
    "pages to pages": (PAGED, PAGED),
}

ORIGIN = {
    "_AMQ_ORIG_ADDRESS": "home",
    "_AMQ_ORIG_QUEUE": "home",
    "_AMQ_ORIG_REASON": "max-delivery-attempts",
    "stompring-imported": "true",
}


def fill(port):
    """Durable dead letters in queue ``away``, each with a body of its own; some are scheduled."""
    client = StompClient(port)
    client.connect()
    far = {"AMQ_SCHEDULED_DELAY": 3_600_000}
    for number in range(MESSAGES):
        headers = {"destination": "/queue/away", "persistent": "true", **ORIGIN}
        if number % 10 == 0:
            headers |= far
        client.send("SEND", headers, b"%d" % number)
    client.ask("SEND", {"destination": "/queue/away", "persistent": "true", **ORIGIN}, b"%d" % MESSAGES)
    client.socket.close()


def export(port, queue):
    with urlopen(f"http://127.0.0.1:{port}/api/v1/queues/{queue}/export", timeout=30) as answer:
        return Counter(json.loads(line)["message"]["body"] for line in answer.read().splitlines())


def long_but(*short):
    """All pairs of a case and an operation; those that are not named are long."""
    return [
        pytest.param(*pair, marks=() if pair in short else pytest.mark.long)
        for pair in product(CASES, ("move", "retry"))
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case, operation", long_but(("memory to pages", "retry"), ("pages to memory", "move"))
)
def test_every_message_is_in_exactly_one_queue(tmp_path, case, operation):
    away, home = CASES[case]
    config = tmp_path / "broker.xml"
    small = "<journal-file-size>200K</journal-file-size>"
    config.write_text(broker_xml(settings={"away": away, "home": home}, core=small))
    chance = random.Random(f"{case} {operation}")
    everything = Counter(str(number) for number in range(MESSAGES + 1))
    with KillableBroker(config) as broker:
        Management(broker.http_port).ask("POST", "/queues", {"name": "home", "routingType": "ANYCAST"})
        fill(broker.port)
    data = tmp_path / "broker-data"
    shutil.copytree(data, tmp_path / "filled")
    body = {} if operation == "retry" else {"address": "home"}
    interrupted = kill = 0
    longest = 0.01  # seconds from the answer to the kill
    while kill < KILLS or not interrupted:
        assert kill < 10 * KILLS, "no kill has interrupted anything"
        with KillableBroker(config) as broker:
            management = Management(broker.http_port)
            left = management.queue("away")["messageCount"]
            path = f"/queues/away/{operation}"
            task = management.ask("POST", path, {**body, "wait": False})
            goal = chance.randrange(max(1, left // (KILLS - kill % KILLS)))
            while kill % 2:  # the others do not wait for an answer, which may come when all is done
                task = management.ask("GET", f"/tasks/{task['taskID']}")
                if task["done"] >= goal or task["state"] != "running":
                    break
            time.sleep(chance.random() * longest)
            if kill % KILLS == KILLS - 1:
                broker.stop()
            else:
                broker.kill()
        with KillableBroker(config) as broker:
            there, here = export(broker.http_port, "away"), export(broker.http_port, "home")
            assert there + here == everything, f"after kill {kill}"
            assert Management(broker.http_port).queue("home")["messageCount"] == here.total()
        kill += 1
        interrupted += 0 < there.total() < left
        if there.total() == left:
            longest *= 2  # too early
        elif not there:  # too late: once more from the start
            longest /= 2
            shutil.rmtree(data)
            shutil.copytree(tmp_path / "filled", data)
    with KillableBroker(config) as broker:
        management = Management(broker.http_port)
        task = management.ask("POST", f"/queues/away/{operation}", body)
        assert (task["state"], task["skipped"], task["failed"]) == ("completed", 0, 0)
        broker.kill()  # the answer came when all was safe
    with KillableBroker(config) as broker:
        assert export(broker.http_port, "home") == everything
        assert export(broker.http_port, "away") == Counter()


def upload(port, lines):
    headers = {"Content-Type": "application/x-ndjson"}
    request = Request(f"http://127.0.0.1:{port}/api/v1/queues/home/import", lines, headers)
    with urlopen(request, timeout=30) as answer:
        assert answer.status == 200


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "settings", [pytest.param({}, marks=pytest.mark.long), PAGED], ids=["memory", "pages"]
)
def test_an_import_is_there_as_a_whole_or_not_at_all(tmp_path, settings):
    """Each request has 1000 durable messages with one body of its own."""
    config = tmp_path / "broker.xml"
    small = "<journal-file-size>200K</journal-file-size>"
    config.write_text(broker_xml(settings={"home": settings}, core=small))
    chance = random.Random(str(settings))
    with KillableBroker(config) as broker:
        Management(broker.http_port).ask("POST", "/queues", {"name": "home", "routingType": "ANYCAST"})
        client = StompClient(broker.port)
        client.connect()
        client.ask("SEND", {"destination": "/queue/home", "persistent": "true"}, b"x")
        with urlopen(f"http://127.0.0.1:{broker.http_port}/api/v1/queues/home/export", timeout=30) as answer:
            line = json.loads(answer.read())["message"]
        client.socket.close()
    answered = {"x": 1}
    for kill in range(KILLS):
        with KillableBroker(config) as broker:
            ended = threading.Event()

            def send_all(port, kill, ended, answered):
                try:
                    for number in range(1000):
                        body = f"{kill}-{number}"
                        text = json.dumps({"message": {**line, "body": body}})
                        upload(port, "\n".join([text] * 1000).encode())
                        answered[body] = 1000
                except OSError:
                    ended.set()

            thread = threading.Thread(target=send_all, args=(broker.http_port, kill, ended, answered))
            before = len(answered)
            thread.start()
            while len(answered) < before + 2:
                time.sleep(0.001)
            time.sleep(chance.random() * 0.3)
            broker.kill()
            thread.join()
            assert ended.is_set()
        with KillableBroker(config) as broker:
            found = export(broker.http_port, "home")
        assert {body: found[body] for body in answered} == answered, "what was answered is there"
        assert set(found.values()) <= {1, 1000}, "all of a request or nothing"
        answered = dict(found)
