"""BEGIN, COMMIT and ABORT."""

from time import thread_time

import pytest

from stompring.broker.queue import Queue

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server, frame


def keeping():
    return Server({"#": {"auto_delete_queues": False}})


def outstanding(server, count, ack="client-individual", **settings):
    """A client that has been delivered ``count`` messages, and their ids."""
    client = server.client()
    client.subscribe(ack=ack, prefetch_count=count)
    for number in range(count):
        client.send(b"%d" % number)
    return client, [message["ack"] for message in client.read()]


@pytest.mark.parametrize("verb", ["ACK", "NACK"])
def test_what_an_aborted_transaction_had_may_be_acknowledged_in_another(server, verb):
    client, ids = outstanding(server, 1)
    for end in ("ABORT", "ABORT", "COMMIT"):
        client.begin()
        client.say("ACK" if end == "COMMIT" else verb, id=ids[0], transaction="t")
        client.say(end, transaction="t")
        assert client.read() == []
    assert server.queue().messages_acknowledged == 1
    assert_nothing_held(server.world)


@pytest.mark.parametrize("elsewhere", [{}, {"transaction": "u"}], ids=["outside", "in another transaction"])
def test_what_an_open_transaction_has_cannot_be_acknowledged_elsewhere(server, elsewhere):
    client, ids = outstanding(server, 1)
    client.begin()
    client.begin("u")
    client.ack(ids[0], transaction="t")
    client.ack(ids[0], **elsewhere)
    assert "awaits acknowledgement" in client.error()["message"]
    assert bodies(server.queue()) == [b"0"]


def test_unsubscribe_within_a_transaction_then_abort_gives_back_without_an_attempt():
    server = Server({"#": {"auto_delete_queues": False, "redelivery_delay": 1000}})
    client, ids = outstanding(server, 3)
    client.begin()
    client.ack(ids[1], transaction="t")
    client.say("UNSUBSCRIBE", id="s")
    assert (bodies(server.queue()), server.queue().delivering) == ([b"0", b"2"], 1)
    client.abort()
    assert bodies(server.queue()) == [b"0", b"1", b"2"]
    assert [ref.attempts for ref in server.queue().dispatcher.in_order()] == [0, 0, 0]


def test_credit_is_free_within_a_transaction_and_taken_again_after_abort(server):
    client, ids = outstanding(server, 1)
    client.send(b"1")
    client.send(b"2")
    client.begin()
    client.ack(ids[0], transaction="t")
    assert (second := client.one("MESSAGE")).body == b"1", "or a long transaction would never end"
    client.abort()
    client.ack(ids[0])
    assert client.read() == [], "the window of one is still used by the second"
    client.ack(second["ack"])
    assert client.one("MESSAGE").body == b"2"


def test_a_later_cumulative_ack_covers_what_was_aborted_in_the_order_of_delivery(server):
    client, ids = outstanding(server, 6, "client")
    for name, last in (("t", 1), ("u", 3)):
        client.begin(name)
        client.ack(ids[last], transaction=name)
    client.abort()
    client.abort("u")  # its messages belong between those of the other and the rest
    client.ack(ids[1])
    assert (server.queue().messages_acknowledged, server.queue().delivering) == (2, 4)
    client.ack(ids[4])
    client.lose()
    assert bodies(server.queue()) == [b"5"]


def test_an_abort_of_many_cumulative_acks_takes_time_in_proportion(server):
    """What they had is put in order once, and not once for each of them."""
    client, ids = outstanding(server, 6000, "client")
    client.write(frame("BEGIN", transaction="t"))
    acks = b"".join(frame("ACK", id=each, transaction="t") for each in ids)
    begun = thread_time()
    client.write(acks)
    between = thread_time()
    client.abort()
    client.ack(ids[-2])
    assert thread_time() - between < 5 * (between - begun)
    assert (server.queue().messages_acknowledged, server.queue().delivering) == (5999, 1)


def test_a_lost_connection_with_an_open_transaction_is_one_attempt_for_all_it_had():
    server = Server({"#": {"auto_delete_queues": False, "redelivery_delay": 1000}})
    client, ids = outstanding(server, 3)
    client.begin()
    client.ack(ids[0], transaction="t")
    client.say("NACK", id=ids[2], transaction="t")
    client.lose()
    queue = server.queue()
    assert (queue.count, queue.scheduled_count) == (0, 3)
    assert [ref.attempts for ref in queue.scheduled.values()] == [1, 1, 1]
    server.pass_time(1000)
    assert bodies(queue) == [b"0", b"1", b"2"]


def test_an_unknown_transaction_costs_the_message_nothing(server, client):
    client.send(b"0")
    client.subscribe(ack="client")
    client.ack(client.one("MESSAGE")["ack"], transaction="nope")
    client.error()
    assert bodies(server.queue()) == [b"0"]


#: More than one ACK settles at once.
MANY = 1200


def sliced():
    """A server that does one step of a commit in a turn of the reactor, and a client with a large transaction."""
    server = keeping()
    client = server.client()
    client.begin()
    for number in range(MANY):
        client.send(b"%d" % number, transaction="t")
    server.world.slice_finely()
    return server, client


def test_a_large_commit_is_done_in_slices_and_its_receipt_comes_at_the_end():
    server, client = sliced()
    other = server.client()
    client.commit(receipt="1")
    client.send(b"after", receipt="2")
    turns = 0
    while server.queue().count < MANY:
        before = server.queue().count
        assert not client.read()
        other.send(destination="/queue/other", receipt="other")
        assert other.one("RECEIPT"), "others are served"
        server.one_turn()
        assert server.queue().count - before <= 2
        turns += 1
    assert turns > MANY / 4
    server.settle_down()
    assert [got["receipt-id"] for got in client.read()] == ["1", "2"]
    assert bodies(server.queue()) == [*(b"%d" % number for number in range(MANY)), b"after"]


def test_a_commit_is_done_to_its_end_when_its_client_hangs_up_meanwhile():
    server, client = sliced()
    client.commit(receipt="1")
    client.session.lost()
    server.settle_down()
    assert bodies(server.queue()) == [b"%d" % number for number in range(MANY)]
    assert server.broker.transaction_bytes.bytes == 0


def test_commits_are_done_one_after_the_other():
    server, client = sliced()
    other = server.client()
    other.begin("u")
    other.send(b"later", transaction="u")
    client.commit()
    other.commit("u", receipt="2")
    assert not other.read()
    server.settle_down()
    assert other.one("RECEIPT")["receipt-id"] == "2"
    assert bodies(server.queue())[-1] == b"later"


def with_deliveries(ack):
    """A server that works in fine slices, and a client that has `MANY` messages; with their ids."""
    server = keeping()
    client = server.client()
    for number in range(MANY):
        client.send(b"%d" % number)
    client.subscribe(ack=ack, prefetch_count=MANY)
    ids = [got["ack"] for got in client.read()]
    assert len(ids) == MANY
    server.world.slice_finely()
    return server, client, ids


def test_a_cumulative_ack_of_many_is_done_in_slices_and_its_receipt_comes_at_the_end(monkeypatch):
    server, client, ids = with_deliveries("client")
    settled = []
    settle = Queue.settle
    monkeypatch.setattr(
        Queue, "settle", lambda queue, ref: (settled.append(ref.message.body), settle(queue, ref))
    )
    client.ack(ids[-2], receipt="1")
    turns = 0
    while server.queue().messages_acknowledged < MANY - 1:
        before = server.queue().messages_acknowledged
        assert not client.read()
        server.one_turn()
        assert server.queue().messages_acknowledged - before <= 2
        turns += 1
    assert turns > MANY / 4
    server.settle_down()
    assert client.one("RECEIPT")["receipt-id"] == "1"
    assert settled == [b"%d" % number for number in range(MANY - 1)]
    client.session.lost()
    server.settle_down()
    assert bodies(server.queue()) == [b"%d" % (MANY - 1)]


def test_a_cumulative_ack_is_done_to_its_end_when_its_client_hangs_up_meanwhile():
    server, client, ids = with_deliveries("client")
    client.ack(ids[-2], receipt="1")
    client.session.lost()
    server.settle_down()
    assert server.queue().messages_acknowledged == MANY - 1
    assert bodies(server.queue()) == [b"%d" % (MANY - 1)]


@pytest.mark.parametrize("hangs_up", [False, True])
def test_an_abort_of_many_acks_is_done_in_slices(hangs_up):
    server, client, ids = with_deliveries("client-individual")
    client.begin()
    for one in ids:
        client.ack(one, transaction="t")
    client.abort(receipt="1")
    assert not client.read()
    if hangs_up:
        client.session.lost()
        server.settle_down()
        assert bodies(server.queue()) == [b"%d" % number for number in range(MANY)]
    else:
        server.settle_down()
        assert client.one("RECEIPT")["receipt-id"] == "1"
        for one in ids:
            client.ack(one)
        assert server.queue().messages_acknowledged == MANY


def test_an_ack_that_comes_in_one_read_with_an_abort_waits_for_it():
    server, client, ids = with_deliveries("client-individual")
    client.begin()
    for one in ids:
        client.ack(one, transaction="t")
    acks = [frame("ACK", id=one, receipt=one) for one in ids]
    client.session.receive(frame("ABORT", transaction="t", receipt="abort") + b"".join(acks))
    server.settle_down()
    assert [got["receipt-id"] for got in client.read()] == ["abort", *ids]
    assert server.queue().messages_acknowledged == MANY


def test_a_commit_with_nacks_of_many_ends_when_all_of_them_are_back():
    server, client, ids = with_deliveries("client")
    client.begin()
    client.say("NACK", id=ids[-1], transaction="t")
    client.commit(receipt="1")
    other = server.client()
    other.subscribe(id="o", ack="client", prefetch_count=MANY)
    turns, back = 0, []
    while not (got := client.read()):
        server.one_turn()
        back += other.read()
        assert len(back) in (0, MANY), "nobody is given anything before all of them are back"
        turns += 1
    assert turns > MANY / 4
    assert [each["receipt-id"] for each in got] == ["1"]
    assert [each.body for each in back] == [b"%d" % number for number in range(MANY)]


def test_a_stop_finishes_a_commit_that_waits_for_what_comes_back():
    server, client, ids = with_deliveries("client")
    client.begin()
    client.say("NACK", id=ids[-1], transaction="t")
    client.commit(receipt="1")
    server.broker.background.finish()
    assert len(server.broker.background) == 0
    client.session.lost()
    server.broker.background.finish()
    assert bodies(server.queue()) == [b"%d" % number for number in range(MANY)]
