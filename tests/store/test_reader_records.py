"""What segments tell to those who read them one by one: copies, addresses of queues, who has acknowledged."""

import pytest

from stompring.broker import queue_browser
from stompring.broker.ports import Reason
from stompring.session.outbox import Outgoing
from stompring.settings.model import Retention as Settings
from stompring.store import encoder
from stompring.store.record import (
    ADDRESS,
    CONSUMER,
    COPY,
    MESSAGE,
    NAME,
    PAGE_SETTLED,
    QUEUE,
    QUEUE_ADDRESS,
    SETTLED,
    Kind,
    unpack_numbers,
    unpack_runs,
)

from ..broker.broker_fixture import MULTICAST, join
from ..session.session_fixture import Server
from .decoded_files import passed_on, payloads
from .paged_broker import SETTINGS as PAGED_SETTINGS
from .paged_broker import PagedBroker
from .stored_broker import StoredBroker, pending

KEPT = Settings("/data/retention")
SETTINGS = {"#": {"auto_delete_queues": False, "auto_delete_addresses": False}}


def segments(world, suffix=".journal"):
    """The payloads of each file, those that are kept too, by their numbers."""
    paths = sorted((path for path in world.memory.data if path.suffix == suffix), key=lambda path: path.name)
    return [payloads(world.memory.data[path]) for path in paths]


def flags(world):
    """The flags of each MESSAGE, by number."""
    found = {}
    for payload in sum(segments(world), []):
        if payload[0] == Kind.MESSAGE:
            found.setdefault(MESSAGE.unpack_from(payload)[5], []).append(payload[1])
    return found


# ---- copies


@pytest.fixture
def world():
    return kept()


def test_compaction_sets_the_rewritten_flag():
    world = StoredBroker(
        settings=SETTINGS,
        journal_file_size=1000,
        journal_compact_min_files=0,
        journal_retention_directory=KEPT,
    )
    world.queue("stays")
    for name in ("a", "b"):
        world.queue(name, "t", MULTICAST)
    single, both = world.durable("stays", b"1"), world.durable("t", b"2")
    world.turn()
    for _ in range(3):
        world.journal.file_size = 1
        world.keep("stays", b"x")
        world.journal.compact_step(100, 1 << 20)
        world.turn()
        found = flags(world)
        for message in (single, both):
            first, *later = found[message.number]
            assert first == 1 and later and set(later) == {1 | COPY}
        world = world.again()
        (ref,) = [
            ref for ref in pending(world.directory.queue("stays")) if ref.message.number == single.number
        ]
        assert ref.message.traits.record[0] == 1
        (ref,) = pending(world.directory.queue("a"))
        assert ref.message.traits.record[0] == 1


def test_a_message_that_enters_one_more_queue_is_a_copy():
    world = StoredBroker(settings=SETTINGS)
    one, other = world.queue("one"), world.queue("other")
    message = world.keep("one")
    assert flags(world) == {message.number: [1]}
    other.enqueue(message)
    world.turn()
    assert flags(world) == {message.number: [1, 1 | COPY]}
    again = world.again()
    for queue in (one, other):
        (ref,) = pending(again.directory.queue(queue.name))
        assert ref.message.traits.record[0] == 1


def test_a_message_in_two_queues_at_once_is_none():
    world = StoredBroker(settings=SETTINGS)
    for name in ("a", "b"):
        world.queue(name, "t", MULTICAST)
    message = world.keep("t")
    assert flags(world) == {message.number: [1]}


# ---- addresses of queues


def told_addresses(segment):
    """Name and address of each queue that a segment names, which is told behind both names and before all else."""
    names = {}
    found = {}
    for payload in segment:
        if payload[0] == Kind.NAME:
            _, what, _, number = NAME.unpack_from(payload)
            names[what, number] = payload[NAME.size :].decode()
        elif payload[0] == Kind.QUEUE_ADDRESS:
            *_, queue, address = QUEUE_ADDRESS.unpack_from(payload)
            assert names[QUEUE, queue] not in found
            found[names[QUEUE, queue]] = names[ADDRESS, address]
        elif payload[0] == Kind.SETTLED:
            assert names[QUEUE, SETTLED.unpack_from(payload)[3]] in found
    assert set(found) == {name for (what, _), name in names.items() if what == QUEUE}
    return found


def test_every_segment_has_the_addresses_of_its_queues():
    world = StoredBroker(settings=SETTINGS, journal_file_size=600, journal_retention_directory=KEPT)
    for name in ("t.one", "t.two"):
        join(world.queue(name, "t", MULTICAST), auto=True)
    world.queue("q")
    for _ in range(12):
        world.durable("t")
        world.keep("q")
    world.q.purge()
    world.turn()
    told = [told_addresses(segment) for segment in segments(world)]
    assert len([each for each in told if each == {"t.one": "t", "t.two": "t", "q": "q"}]) > 2


def test_restart_repeats_queue_addresses_and_loses_no_message():
    world = StoredBroker(settings=SETTINGS)
    world.queue("t.one", "t", MULTICAST)
    world.keep("t", b"1")
    again = world.again()
    again.keep("t", b"2")
    (segment,) = segments(again)
    assert [payload[0] for payload in segment].count(Kind.QUEUE_ADDRESS) == 2
    assert [ref.message.body for ref in pending(again.again().directory.queue("t.one"))] == [b"1", b"2"]


# ---- who has acknowledged


def conversing(world):
    server = Server()
    server.world, server.outgoing = world, Outgoing(world.broker.clock)
    return server


def takers(world):
    """Reason and consumer by message, looked up in the segment of the fact."""
    found = {}
    for segment in segments(world):
        names = {0: ""}
        for payload in segment:
            if payload[0] == Kind.NAME and payload[1] == CONSUMER:
                number = NAME.unpack_from(payload)[3]
                assert number not in names, "each is given once in a segment"
                names[number] = payload[NAME.size :].decode()
            elif payload[0] == Kind.SETTLED:
                _, reason, consumer, _, _ = SETTLED.unpack_from(payload)
                for message in unpack_numbers(payload[SETTLED.size :]):
                    assert message not in found
                    found[message] = reason, names[consumer]
            elif payload[0] == Kind.RETAINED:
                for message, _, consumer in passed_on(payload):
                    assert message not in found
                    found[message] = 0, names[consumer]
    return found


def kept(**more):
    world = StoredBroker(settings=SETTINGS, journal_retention_directory=KEPT, **more)
    world.queue("q")
    return world


def subscribe(client, mode, identity="s", queue="q"):
    client.say("SUBSCRIBE", id=identity, destination=f"/queue/{queue}", ack=mode)
    client.server.world.settle_down()


def messages(client):
    return [got for got in client.read() if got.command == "MESSAGE"]


def acknowledge(client):
    (frame,) = messages(client)
    client.say("ACK", id=frame["ack"])


@pytest.mark.parametrize("before", [False, True], ids=["waited", "straight"])
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_acknowledging_consumer_is_recorded(world, mode, before):
    client = conversing(world).client(client_id="c-1")
    if before:
        subscribe(client, mode)
    message = world.keep()
    if not before:
        subscribe(client, mode)
    if mode != "auto":
        acknowledge(client)
    world.turn()
    assert takers(world) == {message.number: (Reason.ACKNOWLEDGED, "c-1/s")}


def test_without_a_client_id_it_is_the_connection(world):
    client = conversing(world).client()
    subscribe(client, "auto", "0")
    message = world.keep()
    assert takers(world) == {message.number: (0, f"{client.session.number}/0")}


def test_settlements_of_two_consumers_of_one_queue_are_distinguished(world):
    server = conversing(world)
    clients = [server.client(client_id=name) for name in ("one", "two")]
    for client in clients:
        subscribe(client, "client-individual")
    sent = [world.durable() for _ in range(6)]
    world.turn()
    for client in clients:
        for frame in messages(client):
            client.say("ACK", id=frame["ack"])
    world.turn()
    found = takers(world)
    assert set(found) == {message.number for message in sent}
    assert sorted(name for _, name in found.values()) == ["one/s"] * 3 + ["two/s"] * 3
    facts = [payload for payload in sum(segments(world), []) if payload[0] == Kind.SETTLED]
    assert len(facts) == 2, "one for each consumer"


def test_committed_transactions_record_the_acknowledging_consumer(world):
    server = conversing(world)
    client, other = server.client(client_id="one"), server.client(client_id="two")
    subscribe(client, "client-individual")
    done, undone = world.durable(), world.durable()
    world.turn()
    first, second = messages(client)
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=first["ack"], transaction="t")
    client.say("UNSUBSCRIBE", id="s")  # what is in the transaction stays its own
    client.say("COMMIT", transaction="t")
    subscribe(other, "client-individual")
    (frame,) = messages(other)
    other.say("BEGIN", transaction="u")
    other.say("ACK", id=frame["ack"], transaction="u")
    other.say("ABORT", transaction="u")
    other.say("UNSUBSCRIBE", id="s")
    world.turn()
    assert takers(world) == {done.number: (0, "one/s")}
    world.q.purge()
    world.turn()
    assert takers(world)[undone.number] == (Reason.KILLED, "") and second["ack"]


def test_other_settlements_have_no_consumer(world):
    """Not even where one has refused it before, or died with it."""
    client = conversing(world).client(client_id="one")
    subscribe(client, "client-individual")
    refused, killed = world.durable(), world.durable()
    world.turn()
    for frame in messages(client):
        client.say("NACK", id=frame["ack"])
    client.lose()
    world.turn()
    queue = world.q
    assert list(queue_browser.remove_message(queue, refused.number)) == []
    queue.purge()
    world.turn()
    assert takers(world) == {refused.number: (0, ""), killed.number: (Reason.KILLED, "")}


def test_without_retention_consumers_are_not_recorded():
    world = StoredBroker(settings=SETTINGS)
    world.queue("q")
    client = conversing(world).client(client_id="one")
    message = world.keep()
    subscribe(client, "client-individual")
    acknowledge(client)
    world.turn()
    assert takers(world) == {message.number: (0, "")}
    assert not [p for p in sum(segments(world), []) if p[0] == Kind.NAME and p[1] == CONSUMER]


def test_each_segment_names_them_and_a_restart_does_not_give_a_number_again():
    world = kept(journal_file_size=700)
    expected = {}
    for life in range(3):
        server = conversing(world)
        clients = [server.client(client_id=f"{life}-{number}") for number in range(3)]
        for client in clients:
            subscribe(client, "client-individual")
        for _ in range(15):
            message = world.keep()
            (number,) = [number for number, each in enumerate(clients) if each.wire.written]
            acknowledge(clients[number])
            world.turn()
            expected[message.number] = 0, f"{life}-{number}/s"
        world = world.again()
    assert takers(world) == expected
    assert len(segments(world)) > 3
    assert len({name for _, name in expected.values()}) == 9


def test_too_many_consumers_in_one_segment(monkeypatch):
    monkeypatch.setattr(encoder, "MAX_CONSUMERS", 2)
    world = kept()
    server = conversing(world)
    expected = {}
    for number in range(4):
        client = server.client(client_id=f"c{number}")
        subscribe(client, "auto")
        expected[world.durable().number] = 0, f"c{number}/s" if number < 2 else ""
        world.turn()
        client.say("UNSUBSCRIBE", id="s")
    assert takers(world) == expected


class Named:
    """As much of a consumer as a fact needs."""

    def __init__(self, name):
        self.consumer_name = name


def test_messages_of_pages_too():
    one_page = {"#": {**PAGED_SETTINGS["#"], "page_size_bytes": 65536}}
    world = PagedBroker(settings=one_page, journal_retention_directory=KEPT)
    (queue,) = world.queues("a.one")
    places = world.fill(queue, 6, 10)
    world.turn()
    refs = [world.load(queue, *place) for place in places]
    for ref, taker in zip(refs, ("one", "two", "one", "", "two", "one"), strict=True):
        ref.last_rejected_by = Named(taker) if taker else None
        world.cursor(queue).settle(ref, Reason.KILLED if ref is refs[5] else Reason.ACKNOWLEDGED)
    world.turn()
    names = {0: ""}
    found = []
    for payload in sum(segments(world), []):
        if payload[0] == Kind.NAME and payload[1] == CONSUMER:
            names[NAME.unpack_from(payload)[3]] = payload[NAME.size :].decode()
        elif payload[0] == Kind.PAGE_SETTLED:
            _, reason, consumer, *_ = PAGE_SETTLED.unpack_from(payload)
            runs = list(unpack_runs(payload[PAGE_SETTLED.size :]))
            found.append((reason, names[consumer], runs))
    assert sorted(found) == [
        (0, "", [(3, 1)]),
        (0, "one", [(0, 1), (2, 1)]),
        (0, "two", [(1, 1), (4, 1)]),
        (Reason.KILLED, "", [(5, 1)]),
    ]
    assert world.again().cursor(queue).remaining == 0
