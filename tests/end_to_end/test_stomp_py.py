"""stomp.py, the usual client for Python, over each version of STOMP."""

from __future__ import annotations

import queue
from typing import NamedTuple

import pytest

from ..broker_process import PATIENCE

stomp = pytest.importorskip("stomp", reason="stomp.py is not installed")

pytestmark = pytest.mark.broker(settings={"ring3.#": {"default-ring-size": 3}})


class Seen(NamedTuple):
    """What stomp.py tells its listener."""

    kind: str
    headers: dict[str, str]
    body: str


class Ears(stomp.ConnectionListener):
    """Keeps what comes until a test asks for it."""

    def __init__(self):
        self._seen: queue.Queue[Seen] = queue.Queue()

    def on_connected(self, frame):
        self._seen.put(Seen("connected", frame.headers, frame.body))

    def on_message(self, frame):
        self._seen.put(Seen("message", frame.headers, frame.body))

    def on_receipt(self, frame):
        self._seen.put(Seen("receipt", frame.headers, frame.body))

    def on_error(self, frame):
        self._seen.put(Seen("error", frame.headers, frame.body))

    def on_disconnected(self):
        self._seen.put(Seen("disconnected", {}, ""))

    def on_heartbeat_timeout(self):
        self._seen.put(Seen("heartbeat timeout", {}, ""))

    def next(self, kind):
        """What comes next must be of that kind."""
        seen = self.any()
        assert seen.kind == kind, seen
        return seen

    def any(self):
        """What comes next."""
        return self._seen.get(timeout=PATIENCE)

    def nothing(self, seconds):
        """Nothing comes for a while."""
        with pytest.raises(queue.Empty):
            raise AssertionError(self._seen.get(timeout=seconds))


class Client:
    """A connected stomp.py connection with its ears."""

    def __init__(self, version, port, client_id=None, **options):
        kinds = {
            "1.0": stomp.StompConnection10,
            "1.1": stomp.StompConnection11,
            "1.2": stomp.StompConnection12,
        }
        self.version = version
        self.ears = Ears()
        self.link = kinds[version]([("127.0.0.1", port)], **options)
        self.link.set_listener("ears", self.ears)
        own = {} if client_id is None else {"client-id": client_id}
        self.link.connect("user", "password", wait=True, headers=own)
        connected = self.ears.next("connected")
        assert connected.headers.get("version", "1.0") == version

    def acknowledge(self, message, verb="ack", **more):
        """ACK or NACK in the way of the version."""
        act = getattr(self.link, verb)
        if self.version == "1.2":
            act(message.headers["ack"], **more)
        elif self.version == "1.1":
            act(message.headers["message-id"], message.headers["subscription"], **more)
        else:
            act(message.headers["message-id"], **more)

    def leave(self):
        """DISCONNECT; the broker has taken everything back when this returns."""
        self.link.disconnect(receipt="bye")
        # stomp.py tells of the end before it tells of the receipt that brought it
        assert {self.ears.any().kind for _ in range(2)} == {"receipt", "disconnected"}

    def said(self, receipt):
        """Everything up to the frame with that receipt is done."""
        assert self.ears.next("receipt").headers["receipt-id"] == receipt


@pytest.fixture
def client(broker, version):
    """Connects clients of the version; they are disconnected after the test."""
    opened: list[Client] = []

    def open_client(**options):
        opened.append(Client(version, broker.port, **options))
        return opened[-1]

    yield open_client
    for one in opened:
        if one.link.is_connected():
            one.link.disconnect()


def test_send_and_receive(client, name):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    for n in range(20):
        one.link.send(f"/queue/{name}", f"zażółć {n} 🐢", headers={"n": str(n), "colon": "a:b"})
    for n in range(20):
        message = one.ears.next("message")
        assert message.body == f"zażółć {n} 🐢"
        assert message.headers["n"] == str(n)
        assert message.headers["colon"] == "a:b"
        assert message.headers["destination"] == f"/queue/{name}"


def test_individual_acks(client, name, management):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="client-individual")
    for n in range(3):
        one.link.send(f"/queue/{name}", str(n))
    messages = [one.ears.next("message") for _ in range(3)]
    one.acknowledge(messages[1])
    management.expect(name, messageCount=2, messagesAcknowledged=1)
    one.leave()
    two = client()
    two.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    again = [two.ears.next("message") for _ in range(2)]
    assert [message.body for message in again] == ["0", "2"]
    assert {message.headers["redelivered"] for message in again} == {"true"}


def test_cumulative_acks(client, name, management):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="client")
    for n in range(5):
        one.link.send(f"/queue/{name}", str(n))
    messages = [one.ears.next("message") for _ in range(5)]
    one.acknowledge(messages[3])
    management.expect(name, messageCount=1, messagesAcknowledged=4)


def test_nack(client, version, name):
    if version == "1.0":
        pytest.skip("stomp.py knows no NACK in STOMP 1.0")
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="client-individual")
    one.link.send(f"/queue/{name}", "x")
    first = one.ears.next("message")
    one.acknowledge(first, "nack")
    again = one.ears.next("message")
    assert again.headers["message-id"] == first.headers["message-id"]
    assert again.headers["redelivered"] == "true"


def test_transactions(client, name, management):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    aborted = one.link.begin()
    one.link.send(f"/queue/{name}", "never", transaction=aborted)
    one.link.abort(aborted)
    committed = one.link.begin()
    one.link.send(f"/queue/{name}", "at commit", transaction=committed)
    one.link.send(f"/queue/{name}", "before", receipt="sent")
    assert one.ears.next("message").body == "before"
    one.said("sent")
    one.link.commit(committed)
    assert one.ears.next("message").body == "at commit"
    management.expect(name, messageCount=0, messagesAdded=2)


def test_a_topic(client, name):
    first, second, sender = client(), client(), client()
    for number, one in enumerate((first, second)):
        one.link.subscribe(f"/topic/{name}", id="1", ack="auto", headers={"receipt": f"r{number}"})
        one.said(f"r{number}")
    sender.link.send(f"/topic/{name}", "to all")
    assert first.ears.next("message").body == second.ears.next("message").body == "to all"


def test_unsubscribe(client, name):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    one.link.send(f"/queue/{name}", "1")
    one.ears.next("message")
    one.link.unsubscribe(id="1")
    one.link.send(f"/queue/{name}", "2", receipt="sent")
    one.said("sent")


def test_heart_beats_keep_a_quiet_connection(client, version, name):
    if version == "1.0":
        pytest.skip("STOMP 1.0 has no heart-beats")
    one = client(heartbeats=(600, 600))
    one.ears.nothing(2.5)
    assert one.link.is_connected()
    one.link.send(f"/queue/{name}", "still here", receipt="r")
    one.said("r")


def test_an_error_is_heard(client, name):
    one = client()
    one.link.send(f"/queue/{name}", "x", headers={"priority": "high"}, receipt="r")
    error = one.ears.next("error")
    assert "priority" in error.headers["message"]
    assert error.headers["receipt-id"] == "r"
    one.ears.next("disconnected")


def test_a_ring_of_three(client, name, management):
    one = client()
    for body in "ABC":
        one.link.send(f"ring3.{name}", body)
    one.link.send(f"ring3.{name}", "D", receipt="sent")
    one.said("sent")
    assert management.queue(f"ring3.{name}")["messagesReplaced"] == 1
    one.link.subscribe(f"ring3.{name}", id="1", ack="auto")
    assert [one.ears.next("message").body for _ in range(3)] == ["B", "C", "D"]


def test_a_scheduled_message(client, name):
    one = client()
    one.link.subscribe(f"/queue/{name}", id="1", ack="auto")
    one.link.send(f"/queue/{name}", "later", headers={"AMQ_SCHEDULED_DELAY": "400"})
    one.link.send(f"/queue/{name}", "now")
    assert [one.ears.next("message").body for _ in range(2)] == ["now", "later"]


def test_a_durable_subscription(client, name):
    sender = client()
    for gathered in ((), ("meanwhile",)):
        one = client(client_id=name)
        durable = {"durable-subscription-name": "d", "receipt": "r"}
        one.link.subscribe(f"/topic/{name}", id="1", ack="auto", headers=durable)
        one.said("r")
        for body in gathered:
            assert one.ears.next("message").body == body
        one.leave()
        sender.link.send(f"/topic/{name}", "meanwhile", receipt="sent")
        sender.said("sent")
