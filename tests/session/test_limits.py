"""Limits of one connection, and of all sessions together."""

from itertools import product

import pytest

from stompring.broker.clock import Clock
from stompring.broker.directory import MAX_WORDS, subscription_size
from stompring.broker.limits import UNCOUNTED
from stompring.broker.message import REFERENCE_OVERHEAD
from stompring.broker.queue import PAUSED_SINGLY
from stompring.session.commands import STEPS
from stompring.session.outbox import SLOW
from stompring.settings.model import ResourceLimit
from stompring.stomp.headers import FIRST_FRAME

from ..broker.broker_fixture import ANYCAST
from .session_fixture import Server, frame

KEEP = {"#": {"auto_delete_queues": False}}


OF_THE_BROKER = (
    "global_max_wildcard_words",
    "global_max_unfinished_size",
    "global_max_subscription_size",
)


def limited(settings=None, **limits):
    configuration = {name: limits.pop(name) for name in OF_THE_BROKER if name in limits}
    return Server(KEEP | (settings or {}), acceptor=limits, **configuration)


def refused(server):
    return {limit: number for limit, number in server.broker.rejections.counts.items() if number}


# ---- transactions


# ---- what was delivered and not acknowledged


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_fewer_may_be_asked_for_and_auto_is_free(ack):
    client = limited(max_unsettled_messages=5).client()
    for number in range(16):
        client.send(b"%d" % number)
    for identity, (asked, got) in enumerate((("2", 2), ("99", 5))):
        client.subscribe(id=identity, ack=ack, prefetch_count=asked)
        assert len(client.bodies()) == got
    client.subscribe(id="auto")
    assert len(client.bodies()) == 9


# ---- frames that are not whole


MANY_BYTES = 2 * UNCOUNTED


def begin(client, sent, length=10 * UNCOUNTED):
    """Begin a SEND of ``length`` bytes; returns what is missing."""
    client.write(b"SEND\ndestination:/queue/q\nreceipt:r\ncontent-length:%d\n\n%b" % (length, b"x" * sent))
    return b"x" * (length - sent) + b"\0"


def test_of_unfinished_frames_that_are_too_many_the_largest_is_refused():
    server = limited(global_max_unfinished_size=5 * UNCOUNTED)
    unfinished = server.broker.unfinished
    alone, small, attacker = server.client(), server.client(), server.client()
    rest = begin(alone, 9 * UNCOUNTED)
    assert unfinished.bytes >= 9 * UNCOUNTED, "it is alone, and may have a frame of any length"
    begin(attacker, UNCOUNTED)
    assert unfinished.bytes == 9 * UNCOUNTED, "so little is not counted"
    alone.write(rest)
    assert alone.one("RECEIPT") and unfinished.bytes == 0
    rest = begin(small, MANY_BYTES)
    others = [server.client() for _ in range(3)]
    for other in others:
        begin(other, MANY_BYTES + 1)
    attacker.write(b"x" * MANY_BYTES)
    server.settle_down()
    assert unfinished.bytes <= unfinished.limit
    assert [client.session.closed for client in (attacker, *others)] == [True, True, True, False]
    text = attacker.error()["message"]
    assert f"this connection holds the most, {3 * UNCOUNTED}" in text
    assert f"the limit is {unfinished.limit} (global-max-unfinished-size)" in text
    small.write(rest)
    assert small.one("RECEIPT")
    assert refused(server) == {"global-max-unfinished-size": 3}
    others[-1].lose()
    assert unfinished.bytes == 0


def test_the_first_frame_is_short(server):
    client = server.client(None)
    client.write(b"CONNECT\npasscode:" + b"x" * FIRST_FRAME)
    assert f"the limit of {FIRST_FRAME} bytes before CONNECTED" in client.error()["message"]
    assert refused(server) == {"first-frame": 1}


# ---- subscriptions and deliveries


@pytest.mark.parametrize("selector", [None, "n = 1", " OR ".join(f"n = {number}" for number in range(500))])
def test_all_subscriptions_count_with_their_selectors(selector):
    size = subscription_size(selector)
    server = limited(global_max_subscription_size=3 * size)
    headers = {} if selector is None else {"selector": selector}
    client, other = server.client(), server.client()
    for number in range(2):
        client.subscribe("/topic/t", str(number), **headers)
    other.subscribe(id="1", browser="true", **headers)
    memory = server.broker.subscription_memory
    assert memory.bytes == 3 * size
    other.say("UNSUBSCRIBE", id="1")
    other.subscribe(id="1", **headers)
    other.subscribe(id="2", **headers)
    text = f"All subscriptions hold {3 * size} bytes, this one needs {size}, and the limit is {3 * size}"
    assert text in other.error()["message"]
    assert refused(server) == {"global-max-subscription-size": 1}
    assert memory.bytes == 2 * size, "it has left"
    client.lose()
    assert memory.bytes == 0


READERS = 20


@pytest.mark.parametrize("topic", [True, False], ids=["topic", "non-destructive queue"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_each_delivery_of_a_message_counts(ack, topic):
    settings = {
        "t": {
            "max_size_bytes": 3 * READERS * REFERENCE_OVERHEAD,
            "address_full_policy": "BLOCK",
            "default_non_destructive": not topic,
        }
    }
    server = limited(settings)
    client, sender = server.client(), server.client()
    destination = "/topic/t" if topic else "/queue/t"
    for number in range(READERS):
        client.subscribe(destination, str(number), ack=ack, prefetch_count="100")
    sent = 0
    while not sender.session.blocked and sent < 10:
        sender.send(b"", destination)
        sent += 1
    assert sender.session.blocked and sent == 4
    assert len(client.read()) == 3 * READERS
    memory = server.address("t").memory_limit
    assert memory.bytes >= 3 * (READERS - 1) * REFERENCE_OVERHEAD and memory.messages == 3
    client.lose()
    server.settle_down()
    assert not sender.session.blocked
    assert (memory.bytes, memory.messages) == (0, 0) if topic else memory.bytes < 4 * 1000


def test_many_subscriptions_end_in_slices(server):
    client, sender = server.client(), server.client()
    for number in range(100):
        client.subscribe("/topic/t", str(number), ack="client")
    sender.send(b"", "/topic/t")
    server.world.slice_finely()
    client.session.lost()
    turns = 0
    while len(server.broker.background):
        server.one_turn()
        turns += 1
    assert turns > 25, "some of them in each"
    assert not server.directory.queues and not server.broker.memory.bytes


def test_what_no_store_knows_is_let_go_of_when_the_broker_stops(server):
    client, sender = server.client(), server.client()
    client.subscribe(id="1", ack="client")
    sender.send(b"")
    sender.send(b"", persistent="true")
    queue = server.queue()
    server.broker.stopping = True
    client.lose()
    assert (queue.messages_requeued, queue.message_count) == (1, 1)


def test_a_queue_that_no_start_recovers_takes_nothing_back_when_the_broker_stops(server):
    client, sender = server.client(), server.client()
    client.subscribe("/topic/t", "1", ack="client")
    sender.send(b"", "/topic/t", persistent="true")
    client.say("NACK", id=client.read()[0]["ack"])
    (queue,) = server.directory.queues.values()
    assert queue.messages_requeued == 1
    server.broker.stopping = True
    client.lose()
    assert (queue.messages_requeued, queue.delivering) == (1, 0)


def test_the_end_of_many_consumers_of_a_queue_leaves_the_others(server):
    client, other, sender = server.client(), server.client(), server.client()
    other.subscribe(id="o", ack="auto")
    for number in range(3 * PAUSED_SINGLY):
        client.subscribe(id=str(number), ack="client")
    client.lose()
    for number in range(3):
        sender.send(b"%d" % number)
    assert [got.body for got in other.read()] == [b"0", b"1", b"2"] and len(server.queue().ready) == 1


# ---- a client that does not read


def test_messages_alone_do_not_stop_it_from_being_read():
    """It may have to send ACKs before it reads on: not to read these would be a deadlock."""
    client = limited(outbox_size=1024).client()
    client.subscribe(id="1", ack="client-individual")
    client.session.outbox.pause()
    for _ in range(10):
        client.send(b"x" * 1000)
    assert client.wire.reading and client.session.outbox.capacity <= 0


def test_a_client_that_waits_for_two_things_is_read_when_it_has_both():
    settings = {"full": {"max_size_messages": 1, "address_full_policy": "BLOCK"}}
    server = limited(settings, outbox_size=1024)
    client, other = server.client(), server.client()
    client.session.outbox.pause()
    for _ in range(2):
        client.send(destination="/queue/full")
    assert client.session.blocked and not client.wire.reading
    client.session.outbox.send(b"x" * 2000)
    client.session.outbox.resume()
    assert not client.wire.reading, "it is still blocked"
    client.session.outbox.pause()
    client.session.outbox.send(b"x" * 2000)
    other.subscribe("/queue/full", "1")
    server.pass_time()
    assert not client.session.blocked and not client.wire.reading, "and takes no answers"
    client.session.outbox.resume()
    assert client.wire.reading


def test_a_choked_client_is_not_silent():
    server = limited(outbox_size=1024, connection_ttl=5000)
    client = server.client()
    client.session.outbox.pause()
    client.session.outbox.send(b"x" * 2000)
    server.pass_time(20_000)
    assert not client.session.closed
    client.wire.written = b""
    client.session.outbox.resume()
    server.pass_time(6_000)
    assert "connection TTL" in client.error()["message"]


def test_slow_connections_are_known(caplog):
    server = limited(outbox_size=1024)
    slow, pausing = server.client(), server.client()
    for client in (slow, pausing):
        client.subscribe(id="1")
        client.session.outbox.pause()
    for _ in range(4):
        slow.send(b"x" * 1000)
    sockets = server.outgoing.slow
    assert sockets.count == 0
    server.pass_time(SLOW // 2)
    pausing.session.outbox.resume()
    server.pass_time(SLOW // 2)
    assert sockets.count == 1
    server.pass_time(10 * SLOW)
    told = [record.getMessage() for record in caplog.records if ": slow reader: " in record.getMessage()]
    assert len(told) == 1 and told[0].startswith("203.0.113.1:50000: slow reader: "), told
    slow.lose()
    assert sockets.count == 0
    assert not server.world.clock.calls, "no timer without them"


# ---- sessions and queues of users


def test_whoever_never_logged_in_takes_nobodys_place():
    server = Server(KEEP, resource_limits=(ResourceLimit("ann", max_sessions=1),))
    ann = server.client(login="ann")
    for _ in range(3):
        late = server.client(version=None)
        late.say("CONNECT", accept_version="1.2", host="/", login="ann")
        late.error()
        late.lose()
    assert dict(server.directory.resource_limits.sessions) == {"ann": 1}
    ann.lose()
    assert not server.directory.resource_limits.sessions


def test_temporary_queues_are_free_again_with_their_connection():
    server = Server(KEEP, resource_limits=(ResourceLimit("ann", max_queues=1),))
    for _ in range(3):
        ann = server.client(login="ann")
        ann.subscribe("/temp-queue/answers", "1", receipt="r")
        assert ann.one("RECEIPT")
        ann.say("DISCONNECT")
    assert not server.directory.resource_limits.queues


# ---- what exists already counts too


@pytest.mark.parametrize(
    "acceptor, data, limit",
    [
        (
            {"subscriptions_allowed": 0},
            frame("SUBSCRIBE", destination="/queue/q", id="1"),
            "subscriptionsAllowed",
        ),
        ({"transactions_allowed": 0}, frame("BEGIN", transaction="t"), "transactionsAllowed"),
        ({}, b"SEND\ndestination:/queue/q\ncontent-length:999999999\n\n", "maxBodyLength"),
        ({}, b"SEND\ndestination:/queue/q\n" + b"a:b\n" * 1001, "maxHeaders"),
        ({}, b"SEND\ndestination:/queue/q\na:" + b"b" * 70_000, "maxHeaderLength"),
        ({}, b"S" * 70_000, "maxHeaderLength"),
        ({}, b"SEND\n" + (b"a:" + b"b" * 60_000 + b"\n") * 18, "maxHeaderLength"),
    ],
)
def test_each_limit_has_its_counter(acceptor, data, limit):
    server = limited(**acceptor)
    client = server.client()
    client.write(data)
    client.error()
    assert refused(server) == {limit: 1}


# ---- names


A_LONG_NAME = ".".join("a" * 129)


@pytest.mark.parametrize(
    "frame_of",
    [
        lambda: frame("SEND", destination=f"/topic/{A_LONG_NAME}"),
        lambda: frame("SEND", destination=f"/queue/{A_LONG_NAME}::q"),
        lambda: frame("SUBSCRIBE", destination=f"/topic/{A_LONG_NAME}", id="1"),
        lambda: frame("SUBSCRIBE", destination="/topic/" + ".".join("#" * 500), id="1"),
    ],
    ids=["SEND", "SEND to a queue", "SUBSCRIBE", "SUBSCRIBE to wildcards"],
)
def test_an_address_has_so_many_words(server, client, frame_of):
    client.write(frame_of())
    assert "words, and the limit is 128" in client.error()["message"]
    assert refused(server) == {"address-words": 1}
    assert not server.directory.addresses


def test_an_address_that_is_there_may_have_more_words(server):
    server.directory.create_address(A_LONG_NAME, frozenset({ANYCAST}), configured=True)
    client = server.client()
    client.send(destination=f"/queue/{A_LONG_NAME}", receipt="r")
    assert client.one("RECEIPT")


def test_wildcard_addresses_have_so_many_words_after_their_first_wildcard():
    server = limited(global_max_wildcard_words=3)
    client = server.client()
    for number, name in enumerate(("a.b.c.d.#", "#.a.b", "#.a.c", "#.a.c")):
        client.subscribe(f"/topic/{name}", number)
    assert client.read() == []
    client.subscribe("/topic/#.b", "more")
    assert "(global-max-wildcard-words)" in client.error()["message"]
    assert refused(server) == {"global-max-wildcard-words": 1}
    again = server.client()
    again.subscribe("/topic/*.b.c.d", "more", receipt="r")
    assert again.one("RECEIPT"), "those of the connection that was closed are gone"


@pytest.mark.parametrize(
    "destination", ["/topic/a.#", "/queue/*.b", "#", "/topic/a.*::q", ".".join("#" * 100)]
)
def test_a_message_is_sent_to_one_address(server, destination):
    reader = server.client()
    reader.subscribe("/topic/a.#", "1")
    client = server.client()
    client.send(destination=destination, receipt="r")
    assert "has wildcards: SEND needs one address" in client.error()["message"]
    assert reader.read() == [] and set(server.directory.addresses) == {"a.#"}


def test_an_asterisk_among_letters_is_a_letter(server, client):
    client.send(destination="/queue/a.b*", receipt="r")
    assert client.one("RECEIPT") and server.queue("a.b*").message_count == 1


def test_a_queue_of_a_wildcard_address_is_reached_by_its_name(server):
    reader = server.client(client_id="c")
    reader.subscribe("/topic/a.#", "1", durable_subscription_name="d")
    client = server.client()
    client.send(destination="::c.d", receipt="r")
    assert client.one("RECEIPT") and reader.bodies() == [b"x"]


def test_names_that_take_long_to_match_are_taken_in_turns(server, monkeypatch):
    """Frames of one read whose names visit many nodes: others are served between them, and none is lost."""
    reader = server.client()
    words = ("a", "*", "#")
    for number, (b, c, d, e, f) in enumerate(product(words, repeat=5)):
        name = f"#.a.#.{b}.{c}.{d}.{e}.{f}.a.#.a.#.z"
        reader.subscribe(f"/topic/{name}", number)
    wildcards = server.directory.wildcards
    client = server.client()
    sends = [
        frame("SEND", destination=f"/topic/{number}." + ".".join("a" * 120), receipt=number)
        for number in range(50)
    ]
    turns = []
    monkeypatch.setattr(Clock, "soon", lambda _, call: turns.append(call))
    most = STEPS + wildcards.words_after + 3 * MAX_WORDS
    before = wildcards.visited
    client.write(b"".join(sends))
    taken = 1
    while client.session.blocked:
        assert wildcards.visited - before <= most and not client.wire.reading
        before = wildcards.visited
        turns.pop(0)()
        taken += 1
    while turns:  # flushes
        turns.pop(0)()
    assert [got["receipt-id"] for got in client.read()] == [str(n) for n in range(50)]
    assert client.wire.reading and taken > 10
