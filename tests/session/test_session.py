"""Whole conversations: what stands between the commands, errors, the end of a connection, and waiting for room."""

from stompring.session.outbox import ROOM
from stompring.settings.model import FullPolicy

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server, frame


def full(policy, limit=1):
    return {"q": {"max_size_messages": limit, "address_full_policy": policy}}


def test_one_write_for_one_read(client):
    client.subscribe()
    before = client.wire.writes
    client.write(b"".join(frame("SEND", b"%d" % n, destination="/queue/q", receipt=n) for n in range(50)))
    assert client.wire.writes == before + 1
    assert len(client.read()) == 100


def test_a_lost_connection_keeps_the_order_of_groups():
    server = Server({"q": {"auto_delete_queues": False}})
    producer, first, second = server.client(), server.client(), server.client()
    first.subscribe(ack="client-individual", prefetch_count=1)
    second.subscribe()
    for number in range(3):
        producer.send(b"%d" % number, JMSXGroupID="g")
    first.lose()
    assert second.bodies() == [b"0", b"1", b"2"]


def test_a_lost_connection_is_given_nothing_more():
    """Two subscriptions of one connection: what the first gives back is not for the second, who is lost too."""
    server = Server({"q": {"default_exclusive_queue": True}})
    producer, consumer = server.client(), server.client()
    consumer.subscribe(id="1", ack="client-individual", prefetch_count=1)
    consumer.subscribe(id="2")
    for number in range(3):
        producer.send(b"%d" % number)
    consumer.lose()
    queue = server.queue()
    assert bodies(queue) == [b"0", b"1", b"2"]
    assert (queue.delivering, queue.messages_acknowledged) == (0, 0)


# ---- a full address


def test_raising_the_limit_lets_producers_go_on():
    server = Server(full(FullPolicy.BLOCK))
    client = server.client()
    client.send(b"0")
    client.send(b"1", receipt="r")
    server.address().memory_limit.set_limits(-1, 5)
    server.pass_time()
    client.one("RECEIPT")


# ---- a slow socket


def test_a_slow_socket_holds_back_its_own_messages_only(server):
    slow, quick, producer = server.client(), server.client(), server.client()
    for client in (slow, quick):
        client.subscribe("/topic/t")
    slow.session.outbox.pause()
    body = b"x" * 100_000
    for _ in range(30):
        producer.send(body, "/topic/t")
    assert len(quick.bodies()) == 30
    got = len(slow.bodies())
    assert got == ROOM // len(body) + 1, "the outbox's room is on its way, the rest waits in its queue"
    slow.session.outbox.resume()
    server.pass_time()
    server.outgoing.flush()
    assert got + len(slow.bodies()) == 30
    assert_nothing_held(server.world)
