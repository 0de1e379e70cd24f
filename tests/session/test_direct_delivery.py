"""Messages that are delivered as they arrive: no `Message` or no `Reference` is made of them until one is needed."""

import pytest

from stompring.broker.reference import DELIVERING

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server, frame
from .test_subscribe import settle


def delivered(count, version="1.2", **headers):
    """A subscriber that has got ``count`` messages as they arrived, and acknowledged none."""
    server = Server({"#": {"auto_delete_queues": False}})
    client, producer = server.client(version), server.client()
    client.subscribe(**headers)
    for number in range(count):
        producer.send(b"%d" % number)
    got = client.read()
    assert [each.body for each in got] == [b"%d" % number for number in range(count)]
    return server, client, got


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_an_ack_settles_and_frees_the_memory(version, mode):
    server, client, got = delivered(5, version, ack=mode)
    settle(client, "ACK", got[2], version)
    assert server.queue().delivering == (2 if mode == "client" else 4)
    for each in got[3:] if mode == "client" else [got[0], got[1], *got[3:]]:
        settle(client, "ACK", each, version)
    assert (server.queue().delivering, server.queue().messages_acknowledged) == (0, 5)
    (subscription,) = client.session.subscriptions.values()
    assert subscription.credit_bytes == subscription.terms.window_bytes
    assert_nothing_held(server.world)


def test_management_is_shown_one_reference_to_each():
    server, _, _ = delivered(3, ack="client-individual")
    (consumer,) = server.queue().consumers
    shown = list(consumer.unsettled_references())
    assert [(ref.state, ref.deliveries, ref.message.body) for ref in shown] == [
        (DELIVERING, 1, b"%d" % number) for number in range(3)
    ]
    assert list(consumer.unsettled_references()) == shown
    assert server.queue().delivering == 3


def test_a_message_of_several_queues_is_kept_only_where_nobody_is_ready():
    server = Server({"#": {"auto_delete_queues": False, "auto_delete_addresses": False}})
    ready, absent, producer = (server.client(client_id=name) for name in ("ready", "absent", "producer"))
    for client in (ready, absent):
        client.subscribe("/topic/t", durable_subscription_name="d")
    absent.lose()
    producer.send(b"x", "/topic/t", color="red")
    message = ready.one("MESSAGE")
    back = server.client(client_id="absent")
    back.subscribe("/topic/t", durable_subscription_name="d")
    late = back.one("MESSAGE")
    assert late["message-id"].partition("-")[2] == message["message-id"].partition("-")[2]
    assert (late.body, late["color"], late["timestamp"]) == (b"x", "red", message["timestamp"])
    assert_nothing_held(server.world)


def ack_frames(got):
    return b"".join(frame("ACK", id=each["ack"]) for each in got)


def windowed(count):
    server = Server({"#": {"auto_delete_queues": False}})
    client, producer = server.client(), server.client()
    client.subscribe(ack="client-individual", **{"activemq.prefetchSize": "3"})
    for number in range(count):
        producer.send(b"%d" % number)
    return server, client, client.read()


def test_the_acks_of_one_read_free_credit_for_as_many_messages():
    server, client, got = windowed(8)
    assert [each.body for each in got] == [b"0", b"1", b"2"]
    client.write(ack_frames(got))
    assert [each.body for each in client.read()] == [b"3", b"4", b"5"]
    assert (server.queue().messages_acknowledged, server.queue().delivering) == (3, 3)


def test_credit_that_is_free_with_the_end_of_a_subscription_is_nobodys():
    server, client, got = windowed(8)
    client.write(ack_frames(got) + frame("UNSUBSCRIBE", id="s"))
    assert client.read() == [] and bodies(server.queue()) == [b"3", b"4", b"5", b"6", b"7"]
    assert server.queue().delivering == 0


def test_credit_is_free_before_the_error_that_ends_a_connection():
    server, client, got = windowed(4)
    client.write(ack_frames(got) + b"NONSENSE\n\n\0")
    assert client.read()[-1].command == "ERROR"
    assert bodies(server.queue()) == [b"3"] and server.queue().delivering == 0
