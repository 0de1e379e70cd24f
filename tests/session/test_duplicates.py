"""`_AMQ_DUPL_ID`: what is sent twice is routed once."""

from dataclasses import replace

import pytest

from stompring.server.reload import apply
from stompring.settings.model import AddressSettingEntry

from ..broker.broker_fixture import bodies
from .session_fixture import Server


def keeping(**configuration):
    return Server({"#": {"auto_delete_queues": False}}, **configuration)


def send(client, body, identifier="1", to="/queue/q", **more):
    headers = {} if identifier is None else {"_AMQ_DUPL_ID": identifier}
    client.send(body, to, **headers, **more)


def full(policy):
    limits = {"max_size_messages": 1, "address_full_policy": policy}
    return Server({"#": {"auto_delete_queues": False, **limits}})


def counted(server, name="q"):
    return server.address(name).duplicate_messages


@pytest.mark.parametrize("identifier", [None, ""], ids=["none", "an empty one"])
def test_messages_without_an_id_are_never_duplicates(server, client, identifier):
    for body in (b"a", b"b"):
        send(client, body, identifier)
    assert bodies(server.queue()) == [b"a", b"b"] and server.address().duplicates is None


def test_an_id_of_any_bytes(server, client):
    for body in (b"a", b"b"):
        client.write(b"SEND\ndestination:/queue/q\n_AMQ_DUPL_ID:\xff\\n\\c\xfe" + b"\n\n" + body + b"\0")
    assert bodies(server.queue()) == [b"a"]
    assert server.address().duplicates.in_order == [b"\xff\n:\xfe"]


def test_queues_of_one_address_share_them(server):
    server.world.queue("one", "news"), server.world.queue("two", "news")
    client = server.client()
    send(client, b"a", to="news::one")
    send(client, b"a", to="news::two")
    assert [bodies(server.queue(name)) for name in ("one", "two")] == [[b"a"], []]


def test_a_message_that_no_queue_took_is_remembered():
    server = Server({"#": {"auto_create_queues": False, "auto_delete_addresses": False}})
    client = server.client()
    for _ in range(2):
        send(client, b"a", to="/topic/news")
    assert (counted(server, "news"), server.address("news").unrouted_messages) == (1, 1)


def test_a_scheduled_message_is_sent_once(server, client):
    for _ in range(2):
        send(client, b"a", AMQ_SCHEDULED_PERIOD=1000, AMQ_SCHEDULED_REPEAT=2)
    assert len(server.queue().scheduled) == 1
    server.pass_time(5000)
    assert bodies(server.queue()) == [b"a"] * 3 and counted(server) == 1


def test_dead_letters_are_no_duplicates():
    server = Server(
        {"#": {"auto_delete_queues": False, "dead_letter_address": "DLA", "max_delivery_attempts": 1}}
    )
    server.world.queue("DLA")
    client = server.client()
    send(client, b"first", to="/queue/DLA")
    send(client, b"a")
    client.subscribe(id="1", ack="client")
    client.say("NACK", id=client.one("MESSAGE")["ack"])
    assert bodies(server.queue("DLA")) == [b"first", b"a"]


# ---- full addresses


def test_what_waited_or_was_dropped_may_come_again():
    server = full("DROP")
    client = server.client()
    send(client, b"a", "1")
    send(client, b"b", "2")  # dropped
    send(client, b"a", "1")  # a duplicate needs no room
    assert (server.address().dropped_messages, counted(server)) == (1, 1)
    server.queue().purge()
    send(client, b"b", "2")
    assert bodies(server.queue()) == [b"b"] and counted(server) == 1


def test_a_blocked_message_is_no_duplicate_of_itself():
    server = full("BLOCK")
    client = server.client()
    send(client, b"a", "1")
    send(client, b"b", "2", receipt="r")
    assert client.session.blocked
    server.queue().purge()
    server.pass_time()
    assert client.one("RECEIPT") and bodies(server.queue()) == [b"b"] and counted(server) == 0


def test_a_refused_message_may_come_again():
    server = full("FAIL")
    send(server.client(), b"a", "1")
    refused = server.client()
    send(refused, b"b", "2")
    assert "full" in refused.error()["message"]
    server.queue().purge()
    send(server.client(), b"b", "2")
    assert bodies(server.queue()) == [b"b"] and counted(server) == 0


# ---- settings


def test_a_reload_changes_the_size_at_once(server, client):
    for number in range(4):
        send(client, b"%d" % number, str(number))
    new = replace(server.broker.configuration, id_cache_size=2)
    apply(server.broker, new)
    cache = server.address().duplicates
    assert cache.in_order == [b"2", b"3"]
    send(client, b"again", "1")
    send(client, b"again", "3")
    entry = AddressSettingEntry("q", {"id_cache_size": 0})
    apply(server.broker, replace(new, address_settings=(*new.address_settings, entry)))
    assert len(cache) == 0
    send(client, b"off", "1")
    apply(server.broker, new)
    send(client, b"on", "1")
    assert bodies(server.queue()) == [b"0", b"1", b"2", b"3", b"again", b"off", b"on"]


# ---- transactions


def begin(client, *identifiers):
    client.begin()
    for identifier in identifiers:
        send(client, identifier.encode(), identifier, transaction="t")


@pytest.mark.parametrize(
    "before, within", [("2", ["1", "2", "3"]), ("x", ["1", "2", "2"])], ids=["before", "within"]
)
def test_a_duplicate_in_a_transaction_fails_all_of_it(server, client, before, within):
    send(client, b"taken", "taken")
    send(client, b"before", before, to="/queue/p")
    send(client, b"before", before)
    client.subscribe(id="1", ack="client-individual", prefetch_count=1)
    taken = client.one("MESSAGE")
    begin(client, *within)
    client.ack(taken["ack"], transaction="t")
    client.commit(receipt="c")
    error = client.error()
    assert error["message"] == "Transaction t is not committed: duplicate _AMQ_DUPL_ID '2' on address q"
    assert error["receipt-id"] == "c"
    assert bodies(server.queue()) == [b"taken", b"before"] and counted(server) == 1
    send(server.client(), b"free", "1")
    assert bodies(server.queue()) == [b"taken", b"before", b"free"]


def test_the_same_id_for_two_addresses_in_one_transaction(server, client):
    client.begin()
    for name in ("p", "q"):
        send(client, b"a", to=f"/queue/{name}", transaction="t")
    client.commit(receipt="c")
    assert client.one("RECEIPT") and bodies(server.queue("p")) == bodies(server.queue("q")) == [b"a"]


def test_what_a_commit_drops_may_come_again():
    server = full("DROP")
    client = server.client()
    begin(client, "1", "2")
    client.commit(receipt="c")
    assert client.one("RECEIPT") and bodies(server.queue()) == [b"1"]
    server.queue().purge()
    begin(client, "2")
    client.commit(receipt="c")
    assert client.one("RECEIPT") and bodies(server.queue()) == [b"2"]


def test_a_blocked_commit_looks_again():
    server = full("BLOCK")
    client, other = server.client(), server.client()
    send(other, b"a", "a")
    begin(client, "1")
    client.commit(receipt="c")
    assert client.session.blocked
    server.queue().purge()
    send(other, b"1", "1")  # comes first
    server.pass_time()
    assert "'1'" in client.error()["message"] and bodies(server.queue()) == [b"1"]
