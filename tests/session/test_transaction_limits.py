"""A COMMIT is checked as a whole against the limits of the addresses it sends to, where these FAIL."""

from __future__ import annotations

from typing import Any

import pytest

from ..broker.broker_fixture import bodies
from .session_fixture import Server, frame

BODY = b"x" * 1000


def serve(settings, **configuration):
    entries = {"#": {"auto_delete_queues": False}, "q": {"address_full_policy": "FAIL", **settings}}
    server = Server(entries, **configuration)
    return server, server.client()


def transact(client, count, destination="/queue/q", *before):
    sends = frame("SEND", BODY, destination=destination, transaction="t") * count
    begin = frame("BEGIN", transaction="t") + b"".join(before)
    client.write(begin + sends + frame("COMMIT", transaction="t", receipt="r"))


LIMITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"max_size_bytes": 20_000}, {}, "max-size-bytes 20000"),
    ({"max_size_messages": 5}, {}, "max-size-messages 5"),
    ({}, {"global_max_size": 20_000}, "global-max-size 20000"),
    ({}, {"global_max_messages": 5}, "global-max-messages 5"),
]


@pytest.mark.parametrize(("settings", "configuration", "limit"), LIMITS, ids=[limit for *_, limit in LIMITS])
def test_a_commit_beyond_a_limit_is_refused_and_nothing_of_it_happens(settings, configuration, limit):
    server, client = serve(settings, **configuration)
    client.say("SEND", b"before", destination="/queue/q")
    transact(client, 500)
    error = client.error()
    assert error["receipt-id"] == "r"
    assert "Transaction t is not committed: Address q is too full for 500 messages of" in error["message"]
    assert error["message"].endswith(limit)
    assert bodies(server.queue()) == [b"before"]
    assert (server.world.broker.transaction_bytes.bytes, server.world.address("q").memory_limit.messages) == (
        0,
        1,
    )


@pytest.mark.parametrize("count", [4, 5, 6])
def test_as_many_are_taken_as_one_after_the_other(count):
    server, single = serve({"max_size_messages": 5, "max_size_bytes": 7000})
    transact(single, count)
    other, one_by_one = serve({"max_size_messages": 5, "max_size_bytes": 7000})
    for _ in range(count):
        if not one_by_one.session.closed:
            one_by_one.say("SEND", BODY, destination="/queue/q")
    assert single.session.closed == one_by_one.session.closed == (count > 5)
    if count <= 5:
        assert server.world.address("q").memory_limit.bytes == other.world.address("q").memory_limit.bytes


def test_what_the_transaction_acknowledges_makes_room_for_what_it_sends():
    server, client = serve({"max_size_messages": 5})
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client", prefetch_count=5)
    for _ in range(5):
        client.say("SEND", b"old", destination="/queue/q")
    ids = [message["ack"] for message in client.read()]
    transact(client, 3, "/queue/q", frame("ACK", id=ids[2], transaction="t"))
    assert [got.command for got in client.read()] == ["MESSAGE"] * 3 + ["RECEIPT"]
    assert server.queue().message_count == 5
    transact(client, 3, "/queue/q", frame("ACK", id=ids[4], transaction="t"))
    assert "max-size-messages 5" in client.error()["message"]
    assert server.queue().message_count == 5 and server.queue().messages_acknowledged == 3


def test_what_is_refused_in_it_or_stays_in_another_queue_makes_no_room():
    server, client = serve({"max_size_messages": 2})
    for name in ("one", "two"):
        client.say("SUBSCRIBE", destination="/topic/q", id=name, ack="client-individual")
    for _ in range(2):
        client.say("SEND", b"old", destination="/topic/q")
    ids = [message["ack"] for message in client.read()]
    verbs = frame("ACK", id=ids[0], transaction="t") + frame("NACK", id=ids[2], transaction="t")
    transact(client, 1, "/topic/q", verbs)
    assert "max-size-messages 2" in client.error()["message"]


def test_a_ring_that_gives_up_as_many_as_come_breaks_no_limit():
    server, client = serve({"max_size_messages": 4, "default_ring_size": 3})
    for _ in range(2):
        transact(client, 50)
        assert client.one("RECEIPT")["receipt-id"] == "r"
    assert server.queue().message_count == 3


def test_an_address_without_a_queue_holds_nothing():
    server, client = serve({"max_size_messages": 4})
    client.say("SUBSCRIBE", destination="/topic/q", id="s")
    client.say("SEND", b"", destination="/topic/q")
    client.say("UNSUBSCRIBE", id="s")
    client.read()
    transact(client, 50, "/topic/q")
    assert client.one("RECEIPT")["receipt-id"] == "r"


@pytest.mark.parametrize("policy", ["BLOCK", "DROP"])
def test_other_policies_take_a_transaction_that_begins_with_room(policy):
    server, client = serve({"max_size_messages": 5, "address_full_policy": policy})
    transact(client, 50)
    assert client.one("RECEIPT")["receipt-id"] == "r"
    assert server.queue().message_count == (50 if policy == "BLOCK" else 5)
