"""SEND, ACK and NACK in transactions: at COMMIT, or never."""

import pytest

UNDONE = {
    "ABORT": lambda client: client.ask("ABORT", {"transaction": "t"}),
    "DISCONNECT": lambda client: client.disconnect(),
    "reset": lambda client: client.kill(),
}


def test_sends_are_seen_at_commit(client, connect, version, name):
    reader = connect(version)
    reader.subscribe(f"/queue/{name}", ack="auto")
    client.ask("BEGIN", {"transaction": "t"})
    client.put(f"/queue/{name}", "1", "2", "3", transaction="t")
    reader.nothing()
    client.ask("COMMIT", {"transaction": "t"})
    reader.messages("1", "2", "3")


def test_sends_outside_do_not_wait_for_those_inside(client, version, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.ask("BEGIN", {"transaction": "t"})
    client.put(f"/queue/{name}", "inside", transaction="t")
    client.put(f"/queue/{name}", "outside")
    client.message("outside")
    client.ask("COMMIT", {"transaction": "t"})
    client.message("inside")


@pytest.mark.parametrize("undo", UNDONE)
def test_sends_are_undone(client, connect, version, name, management, undo):
    client.put(f"/queue/{name}", "stays")
    client.ask("BEGIN", {"transaction": "t"})
    client.put(f"/queue/{name}", "goes", transaction="t")
    UNDONE[undo](client)
    reader = connect(version)
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.message("stays")
    reader.nothing()
    management.expect(name, messagesAdded=1)


def test_acks_take_effect_at_commit(client, version, name, management):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "1", "2")
    messages = client.messages("1", "2")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("ACK", messages[0], transaction="t")
    client.answer("ACK", messages[1], transaction="t")
    management.expect(name, messageCount=2, deliveringCount=2, messagesAcknowledged=0)
    client.ask("COMMIT", {"transaction": "t"})
    management.expect(name, messageCount=0, deliveringCount=0, messagesAcknowledged=2)


@pytest.mark.parametrize("undo", UNDONE)
def test_acks_are_undone(client, connect, version, name, management, undo):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "1", "2", "3")
    messages = client.messages("1", "2", "3")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("ACK", messages[0], transaction="t")
    client.answer("ACK", messages[2], transaction="t")
    client.answer("ACK", messages[1])
    UNDONE[undo](client)
    management.expect(name, messageCount=2, messagesAcknowledged=1)
    if undo == "ABORT":  # they are still the client's
        client.nothing()
        management.expect(name, deliveringCount=2)
        client.answer("ACK", messages[0])
        client.answer("ACK", messages[2])
    else:
        reader = connect(version)
        reader.subscribe(f"/queue/{name}")
        again = reader.messages("1", "3")
        assert {message["redelivered"] for message in again} == {"true"}
        for message in again:
            reader.answer("ACK", message)
    management.expect(name, messageCount=0, messagesAcknowledged=3)


@pytest.mark.parametrize("end", ["NACK", "UNSUBSCRIBE", "DISCONNECT", "reset"])
def test_after_abort_a_message_comes_back_only_when_its_delivery_ends(client, connect, version, name, end):
    other = connect(version)
    client.subscribe(f"/queue/{name}", ack="client")
    client.put(f"/queue/{name}", "x")
    message = client.message("x")
    other.subscribe(f"/queue/{name}")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("ACK", message, transaction="t")
    client.ask("ABORT", {"transaction": "t"})
    client.nothing()
    other.nothing()
    ends = {
        "NACK": lambda: client.answer("NACK", message),
        "UNSUBSCRIBE": lambda: client.ask("UNSUBSCRIBE", {"id": "s"}),
        "DISCONNECT": client.disconnect,
        "reset": client.kill,
    }
    ends[end]()
    assert other.message("x")["redelivered"] == "true"


def test_a_cumulative_ack_in_a_transaction(client, version, name, management):
    client.subscribe(f"/queue/{name}", ack="client")
    client.put(f"/queue/{name}", *"1234")
    messages = client.messages(*"1234")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("ACK", messages[2], transaction="t")
    client.ask("COMMIT", {"transaction": "t"})
    management.expect(name, messageCount=1, messagesAcknowledged=3)


def test_nack_takes_effect_at_commit(client, version, name):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("NACK", client.message("x"), transaction="t")
    client.nothing()
    client.ask("COMMIT", {"transaction": "t"})
    assert client.message("x")["redelivered"] == "true"


@pytest.mark.every_carrier
def test_send_and_ack_together(client, version, name, management):
    """The usual reason for transactions: a message is moved on, wholly or not at all."""
    client.put(f"/queue/{name}.in", "x")
    client.subscribe(f"/queue/{name}.in")
    message = client.message("x")
    client.ask("BEGIN", {"transaction": "t"})
    client.answer("ACK", message, transaction="t")
    client.put(f"/queue/{name}.out", "x", transaction="t")
    client.kill()
    management.expect(f"{name}.in", messageCount=1, deliveringCount=0)
    management.expect(f"{name}.out", messageCount=0)


def test_transactions_of_one_connection_are_independent(client, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    for transaction in "ab":
        client.ask("BEGIN", {"transaction": transaction})
    client.put(f"/queue/{name}", "a", transaction="a")
    client.put(f"/queue/{name}", "b", transaction="b")
    client.ask("ABORT", {"transaction": "a"})
    client.ask("COMMIT", {"transaction": "b"})
    client.message("b")
    client.nothing()


def test_ids_belong_to_their_connection(connect, name):
    first, second = connect(), connect()
    first.ask("BEGIN", {"transaction": "t"})
    second.ask("BEGIN", {"transaction": "t"})
    first.put(f"/queue/{name}", "first", transaction="t")
    second.put(f"/queue/{name}", "second", transaction="t")
    second.ask("COMMIT", {"transaction": "t"})
    second.subscribe(f"/queue/{name}", ack="auto")
    second.message("second")
    second.nothing()


def test_a_thousand_sends_in_one_transaction(client, name, management):
    client.ask("BEGIN", {"transaction": "t"})
    client.put(f"/queue/{name}", *(str(n) for n in range(1000)), transaction="t")
    client.ask("COMMIT", {"transaction": "t"})
    management.expect(name, messageCount=1000)
    client.subscribe(f"/queue/{name}", ack="auto")
    client.messages(*(str(n) for n in range(1000)))
