"""Many frames in one read are done in slices: others are served between them, and nothing is lost or out of order."""

from itertools import count

import pytest

from stompring.broker.directory import CREATION
from stompring.session.commands import FRAMES_AT_ONCE, OTHERS_AT_ONCE, STEPS

from .session_fixture import Server, frame

MANY = 5 * FRAMES_AT_ONCE


def sliced(**settings):
    """Each look at the time ends a slice."""
    server = Server({"#": settings} if settings else None)
    server.broker.background.now = count(0, 1).__next__
    return server


def sends(number, destination="/queue/q"):
    return [frame("SEND", destination=destination, receipt=at) for at in range(number)]


def receipts(client):
    """Of what a client has read, in order."""
    return [int(got["receipt-id"]) for got in client.read() if got.command == "RECEIPT"]


def test_others_are_served_between_the_frames_of_one_read():
    server = sliced()
    busy, other = server.client(), server.client()
    busy.write(b"".join(sends(MANY)))
    done = []
    while busy.session.blocked:
        assert not busy.wire.reading
        done.append(server.queue().message_count)
        other.send(b"", "/queue/other", receipt=len(done))
        assert receipts(other) == [len(done)]
        server.one_turn()
    assert done == [FRAMES_AT_ONCE * turn for turn in range(1, MANY // FRAMES_AT_ONCE)]
    server.settle_down()
    assert receipts(busy) == list(range(MANY))
    assert busy.wire.reading


def test_what_is_read_after_them_comes_after_them():
    server = sliced()
    client = server.client()
    frames = sends(MANY + 10)
    client.write(b"".join(frames[:MANY]) + frames[MANY][:10])
    client.write(frames[MANY][10:] + b"".join(frames[MANY + 1 :]))
    server.settle_down()
    assert receipts(client) == list(range(MANY + 10))


def test_few_frames_are_done_at_once():
    client = sliced().client()
    client.write(b"".join(sends(FRAMES_AT_ONCE)))
    assert client.wire.calls == []
    assert receipts(client) == list(range(FRAMES_AT_ONCE))


def test_acks_of_one_read_settle_all_that_they_name():
    server = sliced()
    producer, consumer = server.client(), server.client()
    consumer.subscribe(id=1, ack="client-individual", prefetch_count=MANY)
    producer.write(b"".join(sends(MANY)))
    server.settle_down()
    keys = [got["ack"] for got in consumer.read()]
    assert len(keys) == MANY
    consumer.write(b"".join(frame("ACK", id=key) for key in keys))
    assert server.queue().delivering == MANY - FRAMES_AT_ONCE
    server.settle_down()
    assert server.queue().message_count == 0


def test_an_error_in_a_later_slice_leaves_what_came_before_it_and_ends_the_rest():
    server = sliced()
    client = server.client()
    frames = sends(MANY)
    frames[MANY // 2] = frame("SEND")
    client.write(b"".join(frames))
    server.settle_down()
    assert server.queue().message_count == MANY // 2
    assert client.wire.closed
    assert [got.command for got in client.read()][-1] == "ERROR"


def test_a_client_that_leaves_in_a_later_slice_has_done_all_before_it():
    server = sliced()
    client = server.client()
    client.write(b"".join([*sends(MANY), frame("DISCONNECT", receipt=MANY), *sends(5)]))
    server.settle_down()
    assert receipts(client) == list(range(MANY + 1))
    assert client.wire.closed and server.queue().message_count == MANY


def test_a_connection_that_is_lost_between_slices_does_no_more():
    server = sliced()
    client = server.client()
    client.write(b"".join(sends(MANY)))
    client.lose()
    server.settle_down()
    assert server.queue().message_count == FRAMES_AT_ONCE


@pytest.mark.parametrize("at", [1, FRAMES_AT_ONCE - 1, FRAMES_AT_ONCE, 3 * FRAMES_AT_ONCE])
def test_acks_pass_a_send_that_is_blocked_in_any_slice(at):
    """They may be what makes room for it."""
    server = sliced(max_size_messages=MANY, address_full_policy="BLOCK")
    producer, both = server.client(), server.client()
    both.subscribe(id=1, ack="client-individual", prefetch_count=2 * MANY)
    producer.write(b"".join(sends(MANY)))
    server.settle_down()
    keys = [got["ack"] for got in both.read()]
    # other SENDs have room elsewhere; the one to the full address is blocked until something is acknowledged
    frames = [frame("SEND", destination="/queue/else")] * at
    frames.append(frame("SEND", destination="/queue/q", receipt="late"))
    both.write(b"".join(frames + [frame("ACK", id=key) for key in keys]))
    server.settle_down()
    assert "late" in [got.headers.get("receipt-id") for got in both.read()]
    assert server.queue().delivering == 1
    assert both.wire.reading and not both.session.blocked


def test_subscribes_of_many_connections_share_slices_and_so_do_their_browsers():
    server = sliced()
    server.world.slice_finely()
    server.broker.frame_slices.now = count().__next__  # over at the second look
    other = server.client()
    messages, browsers = 100, 20
    other.write(b"".join(sends(messages)))
    other.read()
    clients = [server.client() for _ in range(3)]
    for client in clients:
        frames = [
            frame("SUBSCRIBE", destination="/queue/q", id=at, browser="true", receipt=at)
            for at in range(browsers)
        ]
        client.write(b"".join(frames))
    shown = [[] for _ in clients]
    begun = turns = 0
    while any(client.session.blocked for client in clients) or len(server.broker.scans):
        other.send(b"", "/queue/other", receipt=turns)
        assert receipts(other) == [turns], "others are served"
        server.one_turn()
        now = sum(len(client.session.subscriptions) for client in clients)
        assert now - begun <= (2 + len(clients) * bool(not turns)) * OTHERS_AT_ONCE
        assert sum(map(note, clients, shown)) <= 17, "some messages of two browsers in a turn"
        begun, turns = now, turns + 1
    server.settle_down()
    for client, mine in zip(clients, shown, strict=True):
        note(client, mine)
        for at in range(browsers):
            receipt, *numbers, end = [one.split()[1] for one in mine if one.startswith(f"{at} ")]
            assert (receipt, end) == ("begun", "end")
            assert numbers == [str(int(numbers[0]) + number) for number in range(messages)]


def note(client, shown):
    """Add what a client has read to ``shown``, by subscription; returns how many messages it was."""
    read = client.read()
    for got in read:
        if got.command == "RECEIPT":
            shown.append(f"{got['receipt-id']} begun")
        else:
            shown.append(f"{got['subscription']} {got['message-id'].split('-')[-1]}")
    return sum(got.command == "MESSAGE" for got in read)


def test_messages_that_many_selectors_are_asked_about_count_for_what_they_cost():
    server = sliced()
    busy, other = server.client(), server.client()
    selectors = 500
    for at in range(selectors):
        other.subscribe(id=at, selector=f"n = -{at}")
    busy.write(b"".join(sends(50)))
    done = 0
    while busy.session.blocked:
        assert server.queue().message_count - done <= STEPS / selectors + 2
        done = server.queue().message_count
        server.one_turn()
    assert done and server.queue().message_count == 50


def test_sends_that_create_addresses_count_for_what_they_cost():
    server = sliced()
    client = server.client()
    client.write(b"".join(frame("SEND", destination=f"/topic/{at}", receipt=at) for at in range(100)))
    known = 0
    while client.session.blocked:
        made = len(server.directory.addresses)
        assert made - known <= STEPS / CREATION + 1
        known = made
        server.one_turn()
    assert known and receipts(client) == list(range(100))
