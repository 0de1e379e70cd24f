"""Whole conversations: what stands between the commands, errors, the end of a connection, and waiting for room."""

import pytest

from stompring.session.outbox import ROOM
from stompring.settings.model import FullPolicy

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server, frame


def full(policy, limit=1):
    return {"q": {"max_size_messages": limit, "address_full_policy": policy}}


def send(client, body=b"x", destination="/queue/q", **headers):
    client.say("SEND", body, destination=destination, **headers)


def subscribe(client, destination="/queue/q", id="s", **headers):
    client.say("SUBSCRIBE", destination=destination, id=id, **headers)


def test_a_message_goes_round():
    server = Server()
    client = server.client()
    subscribe(client, receipt="r1")
    assert client.one("RECEIPT")["receipt-id"] == "r1"
    send(client, b"hello", receipt="r2", colour="red")
    message, receipt = client.read()
    assert (message.command, message.body, receipt["receipt-id"]) == ("MESSAGE", b"hello", "r2")
    assert message["destination"] == "/queue/q" and message["subscription"] == "s"
    assert message["colour"] == "red" and message["redelivered"] == "false"
    assert message["content-length"] == "5"
    assert not {"receipt", "transaction"} & set(message.headers)
    assert_nothing_held(server.world)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_bytes_may_come_in_any_pieces(size):
    server = Server()
    client = server.client(None)
    stream = (
        frame("CONNECT", accept_version="1.2", host="/")
        + frame("SUBSCRIBE", destination="/queue/q", id="1")
        + frame("SEND", b"a\0b", destination="/queue/q")
        + b"\n\r\n"
        + frame("SEND", b"c", destination="/queue/q")
        + frame("DISCONNECT", receipt="bye")
    )
    for at in range(0, len(stream), size):
        client.write(stream[at : at + size])
    got = client.read()
    assert [each.command for each in got] == ["CONNECTED", "MESSAGE", "MESSAGE", "RECEIPT"]
    assert [each.body for each in got[1:3]] == [b"a\0b", b"c"]
    assert client.wire.closed


def test_one_write_for_one_read():
    server = Server()
    client = server.client()
    subscribe(client)
    before = client.wire.writes
    client.write(b"".join(frame("SEND", b"%d" % n, destination="/queue/q", receipt=n) for n in range(50)))
    assert client.wire.writes == before + 1
    assert len(client.read()) == 100


@pytest.mark.parametrize(
    ("stream", "words", "receipt"),
    [
        (frame("SEND", receipt="r"), "SEND needs a destination header", "r"),
        (frame("FLY", receipt="r"), "Unknown command", "r"),
        (frame("CONNECT", accept_version="1.2", host="/", receipt="r"), "already connected", "r"),
        (frame("SEND", destination="/queue/", receipt="r"), "has no address", "r"),
        (frame("SEND", destination="/queue/q", priority="10", receipt="r"), "priority must be", "r"),
        (frame("SEND", destination="/queue/q", expires="soon"), "expires must be", None),
        (frame("SEND", destination="/queue/q", destination_type="anycast"), "ANYCAST or MULTICAST", None),
        (
            frame("SEND", destination="/queue/q", AMQ_SCHEDULED_DELAY="x", receipt="r"),
            "AMQ_SCHEDULED_DELAY",
            "r",
        ),
        (frame("SEND", destination="/queue/q", AMQ_SCHEDULED_CRON="x"), "AMQ_SCHEDULED_CRON", None),
        (frame("SEND", destination="/queue/q", transaction="t", receipt="r"), "no transaction 't'", "r"),
        (frame("SUBSCRIBE", id="1"), "destination", None),
        (frame("SUBSCRIBE", destination="/queue/q", id="1", ack="maybe"), "ack must be", None),
        (frame("SUBSCRIBE", destination="/queue/q", id="1", selector="a ="), "", None),
        (frame("SUBSCRIBE", destination="/queue/q", id="1", prefetch_count="0"), "prefetch-count", None),
        (frame("UNSUBSCRIBE", id="nothing", receipt="r"), "no subscription exists for id 'nothing'", "r"),
        (frame("ACK", id="1-1", receipt="r"), "no message with id '1-1'", "r"),
        (frame("ACK", receipt="r"), "ACK needs the header id", "r"),
        (frame("NACK", id="rubbish"), "no message with id 'rubbish'", None),
        (frame("BEGIN"), "BEGIN needs the header transaction", None),
        (frame("COMMIT", transaction="t", receipt="r"), "no transaction 't'", "r"),
        (frame("ABORT", transaction="t"), "no transaction 't'", None),
    ],
)
def test_errors_say_why_and_close(stream, words, receipt):
    server = Server()
    client = server.client()
    client.write(stream + frame("SEND", b"never", destination="/queue/late"))
    error = client.error()
    assert words in error["message"] and words in error.body.decode()
    assert error.headers.get("receipt-id") == receipt
    assert "late" not in server.world.directory.queues, "nothing after the fault is done"
    client.write(frame("SEND", b"never", destination="/queue/late"))
    assert "late" not in server.world.directory.queues


def test_what_is_unsettled_comes_back_in_order_and_redelivered():
    server = Server()
    producer, consumer = server.client(), server.client()
    subscribe(consumer, ack="client-individual")
    for number in range(5):
        send(producer, b"%d" % number)
    got = consumer.read()
    consumer.say("ACK", id=got[1]["ack"])
    consumer.say("BEGIN", transaction="t")
    consumer.say("ACK", id=got[0]["ack"], transaction="t")
    consumer.lose()
    assert bodies(server.queue()) == [b"0", b"2", b"3", b"4"]
    another = server.client()
    subscribe(another)
    got = another.read()
    assert [message.body for message in got] == [b"0", b"2", b"3", b"4"]
    assert {message["redelivered"] for message in got} == {"true"}
    assert_nothing_held(server.world)


def test_a_lost_connection_keeps_the_order_of_groups():
    server = Server({"q": {"auto_delete_queues": False}})
    producer, first, second = server.client(), server.client(), server.client()
    subscribe(first, ack="client-individual", prefetch_count=1)
    subscribe(second)
    for number in range(3):
        send(producer, b"%d" % number, JMSXGroupID="g")
    first.lose()
    assert second.bodies() == [b"0", b"1", b"2"]


def test_a_lost_connection_is_given_nothing_more():
    """Two subscriptions of one connection: what the first gives back is not for the second, who is lost too."""
    server = Server({"q": {"default_exclusive_queue": True}})
    producer, consumer = server.client(), server.client()
    subscribe(consumer, id="1", ack="client-individual", prefetch_count=1)
    subscribe(consumer, id="2")
    for number in range(3):
        send(producer, b"%d" % number)
    consumer.lose()
    queue = server.queue()
    assert bodies(queue) == [b"0", b"1", b"2"]
    assert (queue.delivering, queue.messages_acknowledged) == (0, 0)


def test_transactions_end_with_their_connection():
    server = Server()
    client = server.client()
    client.say("BEGIN", transaction="t")
    send(client, transaction="t")
    client.lose()
    assert server.queue().message_count == 0


def test_a_deleted_queue_ends_its_subscriptions():
    server = Server()
    client = server.client()
    subscribe(client, id="1")
    subscribe(client, id="2", ack="client")
    send(server.client(), b"x")
    send(server.client(), b"y")
    client.read()
    queue = server.queue()
    server.world.directory.delete_queue("q", force=True)
    server.outgoing.flush()
    assert "Queue q was deleted" in client.error()["message"]
    assert queue.message_count == 0


# ---- a full address


def test_fail_says_which_limit():
    server = Server(full(FullPolicy.FAIL))
    client = server.client()
    send(client, receipt="1")
    client.one("RECEIPT")
    send(client, receipt="2")
    error = client.error()
    assert "max-size-messages 1" in error["message"] and error["receipt-id"] == "2"


def test_drop_is_counted_and_acknowledged():
    server = Server(full(FullPolicy.DROP))
    client = server.client()
    for number in range(3):
        send(client, b"%d" % number, receipt=number)
    assert [got["receipt-id"] for got in client.read()] == ["0", "1", "2"]
    assert (bodies(server.queue()), server.world.address("q").dropped_messages) == ([b"0"], 2)


def test_block_holds_the_producer_until_there_is_room():
    server = Server(full(FullPolicy.BLOCK) | {"#": {"auto_delete_queues": False}})
    producer, consumer = server.client(), server.client()
    producer.write(b"".join(frame("SEND", b"%d" % n, destination="/queue/q", receipt=n) for n in range(3)))
    assert [got["receipt-id"] for got in producer.read()] == ["0"]
    assert producer.session.blocked and not producer.wire.reading
    assert server.world.address("q").blocked_producers == 1
    subscribe(consumer, ack="client-individual")
    for number in range(3):
        (message,) = consumer.read()
        assert message.body == b"%d" % number
        consumer.say("ACK", id=message["ack"])
        server.world.pass_time(0)
    assert [got["receipt-id"] for got in producer.read()] == ["1", "2"]
    assert not producer.session.blocked and producer.wire.reading
    assert server.world.address("q").blocked_producers == 0
    assert_nothing_held(server.world)


def test_an_ack_passes_a_blocked_send():
    server = Server(full(FullPolicy.BLOCK))
    client = server.client()
    subscribe(client, ack="client-individual")
    send(client, b"0")
    (message,) = client.read()
    client.write(frame("SEND", b"1", destination="/queue/q", receipt="r") + frame("ACK", id=message["ack"]))
    server.world.pass_time(0)
    assert [got.command for got in client.read()] == ["MESSAGE", "RECEIPT"]
    assert not client.session.blocked


def test_blocked_producers_are_woken_in_turn_and_none_is_forgotten():
    server = Server(full(FullPolicy.BLOCK) | {"#": {"auto_delete_queues": False}})
    producers = [server.client() for _ in range(10)]
    for number, producer in enumerate(producers):
        send(producer, b"%d" % number, receipt="r")
    assert sum(producer.session.blocked for producer in producers) == 9
    producers[3].lose()  # one gives up
    consumer = server.client()
    subscribe(consumer)
    server.world.pass_time(0)
    assert consumer.bodies() == [b"%d" % number for number in range(10) if number != 3]
    assert not any(producer.session.blocked for producer in producers)
    assert server.world.address("q").blocked_producers == 0


def test_a_blocked_connection_is_not_silent():
    server = Server(full(FullPolicy.BLOCK))
    client = server.client(heart_beat="1000,0")
    send(client)
    send(client)
    server.world.pass_time(60_000)
    assert not client.session.closed, "it is the broker that does not read"


def test_raising_the_limit_lets_producers_go_on():
    server = Server(full(FullPolicy.BLOCK))
    client = server.client()
    send(client, b"0")
    send(client, b"1", receipt="r")
    server.world.address("q").memory_limit.set_limits(-1, 5)
    server.world.pass_time(0)
    client.one("RECEIPT")


@pytest.mark.parametrize("policy", [FullPolicy.FAIL, FullPolicy.DROP, FullPolicy.BLOCK])
def test_commit_on_a_full_address(policy):
    server = Server(full(policy) | {"#": {"auto_delete_queues": False}})
    client, other = server.client(), server.client()
    client.say("BEGIN", transaction="t")
    send(client, b"1", transaction="t", receipt="taken")
    client.one("RECEIPT")
    send(other, b"0")
    client.say("COMMIT", transaction="t", receipt="done")
    queue = server.queue()
    if policy is FullPolicy.FAIL:
        assert "max-size-messages" in client.error()["message"]
        assert bodies(queue) == [b"0"]
    elif policy is FullPolicy.DROP:
        assert client.one("RECEIPT")["receipt-id"] == "done"
        assert bodies(queue) == [b"0"]
    else:
        assert client.read() == [] and client.session.blocked
        queue.purge()
        server.world.pass_time(0)
        assert client.one("RECEIPT")["receipt-id"] == "done"
        assert bodies(queue) == [b"1"]


# ---- a slow socket


def test_a_slow_socket_holds_back_its_own_messages_only():
    server = Server()
    slow, quick, producer = server.client(), server.client(), server.client()
    for client in (slow, quick):
        subscribe(client, "/topic/t")
    slow.session.outbox.pause()
    body = b"x" * 100_000
    for _ in range(30):
        send(producer, body, "/topic/t")
    assert len(quick.bodies()) == 30
    got = len(slow.bodies())
    assert got == ROOM // len(body) + 1, "the outbox's room is on its way, the rest waits in its queue"
    slow.session.outbox.resume()
    server.world.pass_time(0)
    server.outgoing.flush()
    assert got + len(slow.bodies()) == 30
    assert_nothing_held(server.world)
