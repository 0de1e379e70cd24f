"""What is not settled comes back: in its old order, marked, whatever ended the first delivery."""

import pytest

ENDS = {
    "UNSUBSCRIBE": lambda client: client.ask("UNSUBSCRIBE", {"id": "s"}),
    "DISCONNECT": lambda client: client.disconnect(),
    "end of stream": lambda client: client.close(),
    "reset": lambda client: client.kill(),
    "ERROR": lambda client: client.provoke(),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.every_carrier
def test_unsettled_messages_come_back(client, connect, version, name, management, end):
    client.subscribe(f"/queue/{name}", prefetch_count=5)
    client.put(f"/queue/{name}", *"12345678")
    messages = client.messages(*"12345")
    client.answer("ACK", messages[1])
    client.message("6")
    ENDS[end](client)
    management.expect(name, deliveringCount=0, messageCount=7, consumerCount=0)

    reader = connect(version)
    reader.subscribe(f"/queue/{name}", ack="auto")
    again = reader.messages(*"1345678")
    assert [message["redelivered"] for message in again] == ["true"] * 5 + ["false"] * 2
    assert [message["message-id"] for message in again[:4]] == [
        messages[n]["message-id"] for n in (0, 2, 3, 4)
    ]


def test_they_come_before_what_arrived_in_the_meantime(client, name):
    client.subscribe(f"/queue/{name}", prefetch_count=2)
    client.put(f"/queue/{name}", "1", "2")
    client.messages("1", "2")
    client.put(f"/queue/{name}", "3", "4")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe(f"/queue/{name}", ack="auto", id="again")
    client.messages("1", "2", "3", "4")


def test_what_two_consumers_held_comes_back_in_one_order(connect, name, management):
    first, second = connect(), connect()
    first.subscribe(f"/queue/{name}")
    second.subscribe(f"/queue/{name}")
    connect().put(f"/queue/{name}", *"123456")
    first.messages("1", "3", "5")
    second.messages("2", "4", "6")
    first.kill()
    # what the first one held goes to the second, who is there
    assert {m["redelivered"] for m in second.messages("1", "3", "5")} == {"true"}
    second.kill()
    management.expect(name, messageCount=6, deliveringCount=0)
    reader = connect()
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.messages(*"123456")


def test_priorities_are_kept_when_messages_come_back(client, name):
    client.put(f"/queue/{name}", "low", priority=1)
    client.put(f"/queue/{name}", "high", priority=8)
    client.subscribe(f"/queue/{name}")
    client.messages("high", "low")
    client.put(f"/queue/{name}", "later but middle", priority=5)
    client.message("later but middle")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe(f"/queue/{name}", ack="auto", id="2")
    client.messages("high", "later but middle", "low")
