"""ACK and NACK in the three modes (STOMP 1.2, "SUBSCRIBE ack Header", "ACK", "NACK")."""

import pytest

FIVE = ("1", "2", "3", "4", "5")


def test_auto_settles_by_being_written(client, version, name, management):
    client.put(f"/queue/{name}", *FIVE)
    client.subscribe(f"/queue/{name}", ack="auto")
    client.messages(*FIVE)
    management.expect(name, messageCount=0, deliveringCount=0, messagesAcknowledged=5, messagesAdded=5)


def test_auto_is_the_default(client, connect, version, name):
    client.put(f"/queue/{name}", "x")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1"})
    client.message("x")
    client.disconnect()
    reader = connect(version)
    reader.subscribe(f"/queue/{name}")
    reader.nothing()


def test_client_is_cumulative(client, version, name, management):
    client.subscribe(f"/queue/{name}", ack="client")
    client.put(f"/queue/{name}", *FIVE)
    messages = client.messages(*FIVE)
    client.answer("ACK", messages[3])
    management.expect(name, messageCount=1, deliveringCount=1, messagesAcknowledged=4)
    client.answer("ACK", messages[4])
    management.expect(name, messageCount=0, deliveringCount=0, messagesAcknowledged=5)


def test_client_does_not_reach_other_subscriptions(client, name, management):
    for letter in "ab":
        client.subscribe(f"/queue/{name}.{letter}", ack="client", id=letter)
        client.put(f"/queue/{name}.{letter}", "x")
    client.message()
    client.answer("ACK", client.message())
    management.expect(f"{name}.a", messageCount=1)
    management.expect(f"{name}.b", messageCount=0)


def test_client_individual_speaks_of_one(client, connect, version, name, management):
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.put(f"/queue/{name}", *FIVE)
    for message in client.messages(*FIVE)[1::2]:
        client.answer("ACK", message)
    management.expect(name, messageCount=3, deliveringCount=3, messagesAcknowledged=2)
    client.kill()
    reader = connect(version)
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.messages("1", "3", "5")


@pytest.mark.parametrize("extra", [{}, {"subscription": "s"}])
def test_ids_in_every_spelling_at_once(client, version, name, extra):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "1", "2")
    for command, message in zip(("ACK", "NACK"), client.messages("1", "2"), strict=True):
        identity = message.get("ack") or message["message-id"]
        client.ask(command, {"id": identity, "message-id": message["message-id"], **extra})
    client.message("2")


def test_1_2_may_acknowledge_by_message_id(connect, name, management):
    client = connect("1.2")
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    client.ask("ACK", {"message-id": client.message("x")["message-id"], "subscription": "s"})
    management.expect(name, messageCount=0)


def test_nack_puts_back_and_marks(client, version, name, management):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    first = client.message("x")
    assert first["redelivered"] == "false"
    client.answer("NACK", first)
    again = client.message("x")
    assert again["redelivered"] == "true"
    assert again["message-id"] == first["message-id"]
    management.expect(name, messageCount=1, messagesAcknowledged=0)
    client.answer("ACK", again)
    management.expect(name, messageCount=0, messagesAcknowledged=1)


def test_nack_in_client_mode_is_cumulative(client, version, name):
    client.subscribe(f"/queue/{name}", ack="client")
    client.put(f"/queue/{name}", *FIVE)
    client.answer("NACK", client.messages(*FIVE)[2])
    assert {message["redelivered"] for message in client.messages("1", "2", "3")} == {"true"}
    client.nothing()


def test_a_nacked_message_goes_to_another_consumer_first(connect, name):
    refusing, willing = connect(), connect()
    refusing.subscribe(f"/queue/{name}")
    refusing.put(f"/queue/{name}", "x")
    message = refusing.message("x")
    willing.subscribe(f"/queue/{name}")
    refusing.answer("NACK", message)
    refusing.nothing()
    assert willing.message("x")["redelivered"] == "true"


@pytest.mark.broker(settings={"#": {"redelivery-delay": 1000}})
def test_a_nacked_message_comes_back_to_its_only_consumer_after_the_delay(client, name):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    client.answer("NACK", client.message("x"))
    client.nothing()
    assert client.message("x")["redelivered"] == "true"


@pytest.mark.every_carrier
def test_two_consumers_alternate(connect, version, name):
    first, second = connect(version), connect(version)
    first.subscribe(f"/queue/{name}", ack="auto")
    second.subscribe(f"/queue/{name}", ack="auto")
    connect(version).put(f"/queue/{name}", *"abcdef")
    first.messages("a", "c", "e")
    second.messages("b", "d", "f")
    first.nothing()
    second.nothing()
