"""Durable messages while the disk is full or the store fails: SEND and COMMIT as for a full address."""

from dataclasses import replace

import pytest

from stompring.server.reload import apply
from stompring.settings.model import AddressSettingEntry, DiskFullPolicy

from ..broker.broker_fixture import bodies
from .session_fixture import Server

FULL = "the disk of /d is full: usage 95.0 %, max-disk-usage 90 %"


def serve(policy=DiskFullPolicy.BLOCK):
    return Server({"#": {"auto_delete_queues": False, "disk_full_policy": policy}})


def send(client, body, persistent=True, **headers):
    durable = {"persistent": "true"} if persistent else {}
    client.send(body, **durable, **headers)


@pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}], ids=["without receipt", "with receipt"])
def test_the_same_headers_again_wait_too(receipt):
    """A producer that repeats its headers is on the short way, which must not pass by a full disk."""
    server = serve()
    producer = server.client()
    for number in range(5):
        send(producer, b"%d" % number, **receipt)
    server.broker.disk.set_fault(FULL)
    send(producer, b"5", **receipt)
    assert producer.session.blocked and len(bodies(server.queue())) == 5


def test_commit_of_what_is_not_durable_goes_on():
    server = serve(DiskFullPolicy.FAIL)
    client = server.client()
    client.begin()
    send(client, b"1", persistent=False, transaction="t")
    server.broker.disk.set_fault(FULL)
    client.commit(receipt="done")
    assert client.one("RECEIPT")["receipt-id"] == "done" and bodies(server.queue()) == [b"1"]


def test_a_commit_that_acknowledges_does_not_wait_for_itself():
    """Who consumes and sends on must go on when the disk is full: it is what makes room there."""
    server = serve()
    client = server.client()
    send(client, b"in")
    client.subscribe(ack="client-individual")
    (message,) = client.read()
    client.begin()
    client.ack(message["ack"], transaction="t")
    client.send(b"on", "/queue/out", persistent="true", transaction="t")
    server.broker.disk.set_fault(FULL)
    client.commit(receipt="done")
    assert client.one("RECEIPT")["receipt-id"] == "done"
    assert bodies(server.queue("out")) == [b"on"]


def test_a_commit_waits_for_a_store_that_fails():
    server = serve(DiskFullPolicy.FAIL)
    client = server.client()
    client.begin()
    send(client, b"1", transaction="t")
    store = server.broker.storage.write_limit
    store.set_fault("cannot write /d/journal/000000001.journal: No space left on device")
    client.commit(receipt="done")
    assert client.read() == [] and client.session.blocked
    store.set_fault(None)
    server.pass_time()
    client.one("RECEIPT")


def test_another_policy_is_for_those_who_wait_already_too():
    server = serve()
    producers = [server.client() for _ in range(3)]
    server.broker.disk.set_fault(FULL)
    for producer in producers:
        send(producer, b"x", receipt="r")
    assert all(producer.session.blocked for producer in producers)
    drop = AddressSettingEntry("#", {"disk_full_policy": DiskFullPolicy.DROP})
    apply(server.broker, replace(server.broker.configuration, address_settings=(drop,)))
    server.pass_time()
    for producer in producers:
        assert producer.one("RECEIPT")["receipt-id"] == "r" and not producer.session.blocked
    assert server.address().dropped_messages == 3


def test_who_still_has_to_wait_after_a_reload_waits():
    server = serve()
    producers = [server.client() for _ in range(3)]
    server.broker.disk.set_fault(FULL)
    for number, producer in enumerate(producers):
        send(producer, b"%d" % number, receipt="r")
    apply(server.broker, server.broker.configuration)
    server.pass_time()
    assert all(producer.session.blocked for producer in producers)
    server.broker.disk.set_fault(None)
    server.pass_time()
    assert bodies(server.queue()) == [b"0", b"1", b"2"]
    assert server.address().blocked_producers == 0
