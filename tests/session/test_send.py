"""SEND: headers that mean something, and those that are passed on."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompring.broker.directory import UNUSED_AFTER
from stompring.broker.message import BROKERS_OWN, ORIGIN_HEADERS
from stompring.session.send import NOT_PASSED_ON, user_block
from stompring.stomp.frames import Head, encode_frame

from ..broker.broker_fixture import bodies
from .session_fixture import Server


def both():
    server = Server({"#": {"auto_delete_queues": False}})
    client = server.client()
    client.subscribe()
    return server, client


OWN = sorted(name.decode() for name in BROKERS_OWN)


@pytest.mark.parametrize("more", [{}, {"persistent": "true"}], ids=["plain", "with a meaning"])
def test_what_receivers_take_for_the_brokers_word_is_not_passed_on(more):
    assert {"AMQUserID", "JMSXUserID", "_AMQ_VALIDATED_USER", *map(bytes.decode, ORIGIN_HEADERS)} <= set(OWN)
    _, client = both()
    lines = "".join(f"{name}:forged\n" for name in (*OWN, *more))
    client.write(f"SEND\ndestination:/queue/q\n{lines}own:kept\n\nbody\0".encode())
    message = client.one("MESSAGE")
    assert "forged" not in message.headers.values() and message["own"] == "kept"


def test_where_a_dead_letter_came_from_cannot_be_forged():
    server = Server(
        {"#": {"auto_delete_queues": False, "dead_letter_address": "D", "max_delivery_attempts": 1}}
    )
    client = server.client()
    server.world.queue("D")
    client.subscribe(ack="client")
    client.send(_AMQ_ORIG_QUEUE="forged", _AMQ_ORIG_ROUTING_TYPE="0", _AMQ_ACTUAL_EXPIRY="1")
    client.say("NACK", id=client.one("MESSAGE")["ack"])
    (copy,) = server.queue("D").dispatcher.in_order()
    headers = copy.message.headers()
    assert headers["_AMQ_ORIG_QUEUE"] == "q"
    assert headers.get("_AMQ_ORIG_ROUTING_TYPE") != "0" and "_AMQ_ACTUAL_EXPIRY" not in headers


def test_an_import_says_where_its_dead_letters_came_from():
    _, client = both()
    client.send(_AMQ_ORIG_QUEUE="elsewhere", stompring_imported="true")
    message = client.one("MESSAGE")
    assert message["_AMQ_ORIG_QUEUE"] == "elsewhere" and "stompring-imported" not in message.headers


@pytest.mark.parametrize("repeat", [1, -1])
def test_a_short_period(repeat):
    server, client = both()
    client.send(AMQ_SCHEDULED_PERIOD=100, AMQ_SCHEDULED_REPEAT=repeat)
    client.send(AMQ_SCHEDULED_PERIOD=1, AMQ_SCHEDULED_REPEAT=0)
    client.send(AMQ_SCHEDULED_PERIOD=99, AMQ_SCHEDULED_REPEAT=repeat, receipt="r")
    text = "AMQ_SCHEDULED_PERIOD is 99 ms, and the shortest at address q is 100 ms (min-scheduled-period)"
    error = client.error()
    assert (error["message"], error["receipt-id"]) == (text, "r")
    assert server.broker.rejections.counts["min-scheduled-period"] == 1


def test_equal_headers_do_not_share_repeats():
    server, client = both()
    for _ in range(2):
        client.send(AMQ_SCHEDULED_PERIOD=1000, AMQ_SCHEDULED_REPEAT=1)
    server.pass_time(10_000)
    assert len(client.bodies()) == 4


def test_a_plan_is_made_anew_when_its_queue_is_gone():
    server, client = both()
    client.send(b"1")
    client.say("UNSUBSCRIBE", id="s")
    server.directory.delete_address("q", force=True)
    client.send(b"2")
    assert bodies(server.queue()) == [b"2"]


NAMES = sorted(NOT_PASSED_ON) + [b"a", b"x-destination", b"destination2", b"content-type"]


@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from([b"", b"1", b"a b", b"x:y", b"destination", b"1\t"])
    )
)
@example({b"a": b"x:y"})
def test_cutting_lines_out_of_a_block_is_as_good_as_putting_them_together(headers):
    block = b"SEND" + b"".join(b"\n%b:%b" % header for header in headers.items())
    assert user_block(headers, block) == user_block(headers)


# ---- addresses that nobody reads


def test_who_goes_on_sending_where_nobody_reads_always_finds_the_same_address(server, client):
    addresses = server.directory.addresses
    client.send(destination="/topic/t")
    address = addresses["t"]
    for _ in range(4):
        server.pass_time(UNUSED_AFTER - 125)
        client.send(destination="/topic/t")
    assert addresses["t"] is address and address.unrouted_messages == 5
    server.pass_time(2 * UNUSED_AFTER)
    assert not addresses
    client.send(destination="/topic/t")
    assert addresses["t"] is not address and addresses["t"].unrouted_messages == 1


def test_an_address_beyond_the_limit_is_refused_by_the_name_of_the_setting():
    server = Server(global_max_addresses=1)
    client = server.client()
    client.send(destination="/topic/one")
    client.send(destination="/topic/two")
    assert "global-max-addresses" in client.one("ERROR")["message"]
    server.pass_time(UNUSED_AFTER)
    server.client().send(destination="/topic/two")
    assert set(server.directory.addresses) == {"two"}


@given(st.binary(), st.sampled_from(["1.0", "1.1", "1.2"]))
def test_a_receipt_equals_the_general_encoding(receipt, version):
    client = Server().client(version)
    client.read()
    client.session.receipt(Head(b"SEND", {b"receipt": receipt}))
    client.session.outbox.flush()
    assert client.wire.written == encode_frame(
        b"RECEIPT", [(b"receipt-id", receipt)], version=version.encode()
    )
