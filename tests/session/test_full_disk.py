"""Durable messages while the disk is full or the store fails: SEND and COMMIT as for a full address."""

from dataclasses import replace

import pytest

from stompring.server.reload import apply
from stompring.settings.model import AddressSettingEntry, DiskFullPolicy

from ..broker.broker_fixture import assert_nothing_held, bodies
from .session_fixture import Server, frame

FULL = "the disk of /d is full: usage 95.0 %, max-disk-usage 90 %"


def serve(policy=DiskFullPolicy.BLOCK):
    return Server({"#": {"auto_delete_queues": False, "disk_full_policy": policy}})


def send(client, body, persistent=True, **headers):
    durable = {"persistent": "true"} if persistent else {}
    client.say("SEND", body, destination="/queue/q", **durable, **headers)


def test_a_durable_message_waits_and_others_go_on():
    server = serve()
    producer, other = server.client(), server.client()
    server.world.broker.disk.set_fault(FULL)
    send(producer, b"1", receipt="1")
    assert producer.read() == [] and producer.session.blocked and not producer.wire.reading
    assert server.world.address("q").blocked_producers == 1
    send(other, b"2", persistent=False, receipt="2")
    assert other.one("RECEIPT")["receipt-id"] == "2"
    send(other, b"3", persistent=False)
    other.say("SUBSCRIBE", destination="/queue/q", id="s")
    assert other.bodies() == [b"2", b"3"]
    server.world.broker.disk.set_fault(None)
    server.world.pass_time(0)
    assert producer.one("RECEIPT")["receipt-id"] == "1"
    assert other.bodies() == [b"1"]
    assert not producer.session.blocked and server.world.address("q").blocked_producers == 0
    assert_nothing_held(server.world)


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}], ids=["without receipt", "with receipt"])
def test_the_same_headers_again_wait_too(receipt):
    """A producer that repeats its headers is on the short way, which must not pass by a full disk."""
    server = serve()
    producer = server.client()
    for number in range(5):
        send(producer, b"%d" % number, **receipt)
    server.world.broker.disk.set_fault(FULL)
    send(producer, b"5", **receipt)
    assert producer.session.blocked and len(bodies(server.queue())) == 5


def test_drop_takes_and_forgets():
    server = serve(DiskFullPolicy.DROP)
    client = server.client()
    server.world.broker.disk.set_fault(FULL)
    send(client, b"1", receipt="1")
    send(client, b"2", persistent=False, receipt="2")
    assert [got["receipt-id"] for got in client.read()] == ["1", "2"]
    assert bodies(server.queue()) == [b"2"] and server.world.address("q").dropped_messages == 1


def test_fail_says_why():
    server = serve(DiskFullPolicy.FAIL)
    client = server.client()
    server.world.broker.disk.set_fault(FULL)
    send(client, b"1", receipt="1")
    error = client.error()
    assert error["message"] == f"Address q rejects durable messages: {FULL}"
    assert error["receipt-id"] == "1"


@pytest.mark.parametrize("policy", list(DiskFullPolicy))
def test_commit_while_the_disk_is_full(policy):
    server = serve(policy)
    client = server.client()
    client.say("BEGIN", transaction="t")
    send(client, b"1", transaction="t", receipt="taken")
    client.one("RECEIPT")
    server.world.broker.disk.set_fault(FULL)
    client.say("COMMIT", transaction="t", receipt="done")
    if policy is DiskFullPolicy.FAIL:
        assert client.error()["message"] == (
            f"Transaction t is not committed: Address q rejects durable messages: {FULL}"
        )
    elif policy is DiskFullPolicy.DROP:
        assert client.one("RECEIPT")["receipt-id"] == "done"
    else:
        assert client.read() == [] and client.session.blocked
        server.world.broker.disk.set_fault(None)
        server.world.pass_time(0)
        assert client.one("RECEIPT")["receipt-id"] == "done"
    assert bodies(server.queue()) == ([b"1"] if policy is DiskFullPolicy.BLOCK else [])


def test_commit_of_what_is_not_durable_goes_on():
    server = serve(DiskFullPolicy.FAIL)
    client = server.client()
    client.say("BEGIN", transaction="t")
    send(client, b"1", persistent=False, transaction="t")
    server.world.broker.disk.set_fault(FULL)
    client.say("COMMIT", transaction="t", receipt="done")
    assert client.one("RECEIPT")["receipt-id"] == "done" and bodies(server.queue()) == [b"1"]


def test_a_commit_that_acknowledges_does_not_wait_for_itself():
    """Who consumes and sends on must go on when the disk is full: it is what makes room there."""
    server = serve()
    client = server.client()
    send(client, b"in")
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client-individual")
    (message,) = client.read()
    client.say("BEGIN", transaction="t")
    client.say("ACK", id=message["ack"], transaction="t")
    client.say("SEND", b"on", destination="/queue/out", persistent="true", transaction="t")
    server.world.broker.disk.set_fault(FULL)
    client.say("COMMIT", transaction="t", receipt="done")
    assert client.one("RECEIPT")["receipt-id"] == "done"
    assert bodies(server.queue("out")) == [b"on"]


def test_a_commit_waits_for_a_store_that_fails():
    server = serve(DiskFullPolicy.FAIL)
    client = server.client()
    client.say("BEGIN", transaction="t")
    send(client, b"1", transaction="t")
    store = server.world.broker.storage.write_limit
    store.set_fault("cannot write /d/journal/000000001.journal: No space left on device")
    client.say("COMMIT", transaction="t", receipt="done")
    assert client.read() == [] and client.session.blocked
    store.set_fault(None)
    server.world.pass_time(0)
    client.one("RECEIPT")


def test_acks_pass_a_send_that_waits_for_the_disk():
    server = serve()
    client = server.client()
    send(client, b"0")
    client.say("SUBSCRIBE", destination="/queue/q", id="s", ack="client-individual")
    (message,) = client.read()
    server.world.broker.disk.set_fault(FULL)
    waiting = frame("SEND", b"1", destination="/queue/q", persistent="true")
    client.write(waiting + frame("ACK", id=message["ack"]))
    assert client.session.blocked
    assert server.queue().messages_acknowledged == 1


def test_every_producer_goes_on_when_there_is_room():
    server = serve()
    producers = [server.client() for _ in range(20)]
    server.world.broker.disk.set_fault(FULL)
    for number, producer in enumerate(producers):
        send(producer, b"%d" % number, receipt="r")
    producers[7].lose()
    server.world.broker.disk.set_fault(None)
    server.world.pass_time(0)
    assert bodies(server.queue()) == [b"%d" % number for number in range(20) if number != 7]
    assert not any(producer.session.blocked for producer in producers)


def test_another_policy_is_for_those_who_wait_already_too():
    server = serve()
    producers = [server.client() for _ in range(3)]
    server.world.broker.disk.set_fault(FULL)
    for producer in producers:
        send(producer, b"x", receipt="r")
    assert all(producer.session.blocked for producer in producers)
    drop = AddressSettingEntry("#", {"disk_full_policy": DiskFullPolicy.DROP})
    apply(server.world.broker, replace(server.world.broker.configuration, address_settings=(drop,)))
    server.world.pass_time(0)
    for producer in producers:
        assert producer.one("RECEIPT")["receipt-id"] == "r" and not producer.session.blocked
    assert server.world.address("q").dropped_messages == 3


def test_who_still_has_to_wait_after_a_reload_waits():
    server = serve()
    producers = [server.client() for _ in range(3)]
    server.world.broker.disk.set_fault(FULL)
    for number, producer in enumerate(producers):
        send(producer, b"%d" % number, receipt="r")
    apply(server.world.broker, server.world.broker.configuration)
    server.world.pass_time(0)
    assert all(producer.session.blocked for producer in producers)
    server.world.broker.disk.set_fault(None)
    server.world.pass_time(0)
    assert bodies(server.queue()) == [b"0", b"1", b"2"]
    assert server.world.address("q").blocked_producers == 0
