"""Floods of things that each are allowed."""

import pytest

from ..stomp_client import frame_bytes
from .conftest import HOSTILE

pytestmark = HOSTILE


def pour(client, frames, at_once=100):
    """Many frames, some of them in one write, and a round trip at the end."""
    gathered = list(frames)
    for at in range(0, len(gathered), at_once):
        client.raw(b"".join(gathered[at : at + at_once]))
    client.waiting()


@pytest.mark.parametrize(
    "command, name_of, limit, allowed",
    [("SUBSCRIBE", "id", "subscriptionsAllowed", 500), ("BEGIN", "transaction", "transactionsAllowed", 200)],
)
def test_more_than_a_connection_may_have(connect, name, other_clients, command, name_of, limit, allowed):
    def ask():
        for _ in range(3):
            client = connect()
            for number in range(allowed + 1):
                client.send(command, {"destination": f"/topic/{name}.{number % 50}", name_of: number})
            client.error(limit, str(allowed))

    other_clients.beside(ask, memory=24)


def test_subscriptions_with_wildcards(connect, name, other_clients):
    """Two hundred patterns that match what is sent, and as many that do not."""
    client = connect()
    kinds = (f"{name}.#", f"#.{name}.a.b", f"{name}.*.b", f"{name}.*.c")

    def subscribe():
        for number in range(200):
            for kind in kinds[:2] if number % 2 else kinds[2:]:
                headers = {"destination": f"/topic/{kind}", "id": f"{kind} {number}", "ack": "auto"}
                client.send("SUBSCRIBE", headers)
        client.put(f"/topic/{name}.a.b", "for many")
        for number in range(200):
            for kind in kinds[:2] if number % 2 else kinds[2:]:
                client.send("UNSUBSCRIBE", {"id": f"{kind} {number}"})
        assert client.waiting() == 300
        client.inbox.clear()

    other_clients.beside(subscribe, memory=24)


def test_subscribing_and_unsubscribing(connect, name, management, other_clients):
    client = connect()

    def churn():
        frames = []
        for number in range(1500):
            headers = {"destination": f"/topic/{name}.{number}", "id": "1"}
            frames += [frame_bytes("SUBSCRIBE", headers), frame_bytes("UNSUBSCRIBE", {"id": "1"})]
        pour(client, frames)

    other_clients.beside(churn, memory=32)
    assert management.ask("GET", "/queues", search=name)["count"] == 0, (
        "queues of topics go with who has made them"
    )


def test_transactions_begun_and_left(connect, name, other_clients):
    client = connect()

    def begin():
        frames = []
        for number in range(800):
            transaction = {"transaction": f"t{number}"}
            frames.append(frame_bytes("BEGIN", transaction))
            frames += [frame_bytes("SEND", {"destination": f"/queue/{name}", **transaction}, b"x")] * 3
            frames.append(frame_bytes("ABORT", transaction))
        pour(client, frames)

    other_clients.beside(begin, memory=24)


KEPT = {
    "SUBSCRIBE": ("id", {"destination": "/topic/kept"}),
    "BEGIN": ("transaction", {}),
    "SEND": ("_AMQ_DUPL_ID", {"destination": "/queue/kept", "persistent": "true"}),
}


@pytest.mark.parametrize("command", KEPT)
def test_names_that_are_kept(command, connect):
    """Ten thousand subscriptions with an id of 60 kB each would be 600 MB."""
    header, headers = KEPT[command]
    client = connect()
    client.ask(command, {**headers, header: "x" * 2048})
    client.send(command, {**headers, header: "y" * 2049})
    client.error(header, "longer than 2048 bytes")


RUBBISH = [
    "",
    "x",
    "-1",
    "1-",
    "-",
    "1-2-3",
    "99999999999999999999999-1",
    "1-99999999999999999999999999",
    "1-٣",
    "0x1-0x1",
    "\u0000",
    "1-1\r\n",
    "a" * 60_000,
    "%s%s%n",
    "../../1-1",
]


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_settling_what_never_was(command, connect, name, other_clients):
    """An ERROR, and what really is in delivery comes back to somebody else."""

    def settle():
        for rubbish in RUBBISH:
            client = connect()
            client.subscribe(f"/queue/{name}", ack="client")
            client.put(f"/queue/{name}", "x")
            answer = client.message("x")
            client.send(command, {"id": rubbish.replace("\0", "%00")})
            client.error(command)
            other = connect()
            other.subscribe(f"/queue/{name}", ack="client")
            other.answer("ACK", other.message("x"))
            assert answer["message-id"]
            other.close()

    other_clients.beside(settle, memory=24)


def test_nack_storms(connect, name, management, other_clients):
    """Everything is refused, again and again; what has failed too often goes where it fits."""
    client = connect()
    queue = f"nacked.{name}"
    client.subscribe(queue)

    def storm():
        client.put(queue, *["x"] * 200)
        for _ in range(200 * 5):
            client.send("NACK", client.reference(client.message()))
        client.nothing()

    other_clients.beside(storm, memory=24)
    management.expect(queue, messageCount=0)
    assert management.queue("dead")["messageCount"] <= 200


def test_one_message_refused_for_ever(connect, name, other_clients):
    client = connect()
    queue = f"for.ever.{name}"
    client.subscribe(queue)
    client.put(queue, "round and round")

    def storm():
        for _ in range(1500):
            client.send("NACK", client.reference(client.message()))

    other_clients.beside(storm, memory=16)


def test_temporary_queues(connect, name, management, other_clients):
    """They go with their connection."""

    def flood():
        client = connect()
        for number in range(400):
            headers = {"destination": f"/queue/{name}", "reply-to": f"/temp-queue/{name}.{number}"}
            client.send("SEND", headers, b"?")
            client.send("SUBSCRIBE", {"destination": f"/temp-queue/{name}.{number}", "id": number})
        client.waiting()
        client.kill()

    other_clients.beside(flood, memory=24)
    assert management.ask("GET", "/queues", search=f"temp-queue.{name}")["count"] == 0


def test_durable_subscriptions(connect, name, management, other_clients):
    """They stay, for that is what they are for: until they are unsubscribed or deleted."""

    def flood():
        client = connect(client_id=name)
        for number in range(300):
            own = {"id": number, "durable-subscription-name": f"s{number}"}
            client.send("SUBSCRIBE", {"destination": f"/topic/{name}", **own})
        client.put(f"/topic/{name}", "for all")
        client.waiting()
        for number in range(300):
            own = {"id": number, "durable-subscription-name": f"s{number}"}
            client.send("UNSUBSCRIBE", own)
        client.waiting()
        client.close()

    other_clients.beside(flood, memory=32)
    assert management.ask("GET", "/queues", search=name)["count"] == 0


def test_addresses_that_nobody_needs(connect, name, other_clients):
    """Topics are made by sending to them."""
    client = connect()

    def flood():
        frames = [
            frame_bytes("SEND", {"destination": f"/topic/{name}.{number}"}, b"x") for number in range(1500)
        ]
        pour(client, frames)

    other_clients.beside(flood, memory=32)
