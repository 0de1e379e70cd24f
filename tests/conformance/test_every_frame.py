"""Every client frame in every version: what it does, and its receipt."""

import pytest


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_connect_and_stomp_are_the_same(connect, version, command):
    client = connect(version, greet=False)
    client.send(
        command, {"accept-version": version, "host": "anything at all", "login": "who", "passcode": "ever"}
    )
    client.expect("CONNECTED", version=version)


def test_connect_without_any_header_is_version_1_0(connect):
    client = connect(greet=False, version="1.0")
    client.raw(b"CONNECT\n\n\0")
    assert client.expect("CONNECTED").get("version") in (None, "1.0")
    client.raw(b"SUBSCRIBE\ndestination:/queue/no.id\nreceipt:r\n\n\0")  # an id is not needed in 1.0
    client.expect("RECEIPT", receipt_id="r")


def test_connected_carries_session_server_and_heart_beat(connect, version):
    client = connect(version, heart_beat="0,0")
    assert client.connected["session"]
    assert "stompring/" in client.connected["server"] and "ActiveMQ" in client.connected["server"]
    assert client.connected["heart-beat"] == "0,0"


def test_each_connection_has_a_session_of_its_own(connect):
    greetings = [connect().connected for _ in range(3)]
    assert len({greeting["session"] for greeting in greetings if greeting is not None}) == 3


def test_request_id_is_answered(connect, version):
    assert connect(version, request_id="1").connected["response-id"] == "1"


@pytest.mark.every_carrier
def test_every_frame_is_answered_with_its_receipt(client, version, name):
    destination = f"/queue/{name}"
    client.ask("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "client"})
    client.ask("BEGIN", {"transaction": "a"})
    client.ask("SEND", {"destination": destination, "transaction": "a"}, b"in a transaction")
    client.ask("COMMIT", {"transaction": "a"})
    client.ask("ACK", client.reference(client.message("in a transaction")))
    client.ask("BEGIN", {"transaction": "b"})
    client.ask("ABORT", {"transaction": "b"})
    client.ask("SEND", {"destination": destination}, b"plain")
    client.ask("NACK", client.reference(client.message("plain")))
    client.message("plain")
    client.ask("UNSUBSCRIBE", {"id": "1"})
    client.ask("DISCONNECT")
    client.closed()


def test_connect_is_answered_with_its_receipt_too(connect, version):
    connect(version, receipt="c").expect("RECEIPT", receipt_id="c")


def test_disconnect_without_receipt_closes(client, version):
    client.send("DISCONNECT")
    client.closed()


def test_what_follows_disconnect_is_not_done(client, connect, version, name):
    client.put(f"/queue/{name}", "before")
    client.raw(b"DISCONNECT\nreceipt:bye\n\n\0SEND\ndestination:/queue/" + name.encode() + b"\n\nafter\0")
    client.expect("RECEIPT", receipt_id="bye")
    client.closed()
    reader = connect()
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.message("before")
    reader.nothing()


def test_a_message_already_due_comes_before_the_receipt_of_disconnect(client, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.raw(
        b"SEND\ndestination:/queue/" + name.encode() + b"\n\nlast words\0DISCONNECT\nreceipt:bye\n\n\0"
    )
    client.expect("MESSAGE")
    client.expect("RECEIPT", receipt_id="bye")


def test_the_receipt_of_subscribe_comes_before_its_messages(client, version, name):
    client.put(f"/queue/{name}", "waiting")
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "receipt": "r"})
    client.expect("RECEIPT", receipt_id="r")
    client.expect("MESSAGE")


def test_unsubscribe_stops_messages(client, version, name, management):
    client.subscribe(f"/queue/{name}", id="7")
    client.put(f"/queue/{name}", "one")
    client.message("one")
    client.ask("UNSUBSCRIBE", {"id": "7"})
    client.put(f"/queue/{name}", "two")
    client.nothing()
    management.expect(name, messageCount=2, deliveringCount=0, consumerCount=0)


@pytest.mark.parametrize(
    "version, known", [("1.0", "subscription//queue/"), ("1.1", "/queue/"), ("1.2", "/queue/")]
)
def test_a_subscription_without_id_is_known_by_its_destination(client, name, version, known):
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}"})
    client.put(f"/queue/{name}", "one")
    assert client.message("one")["subscription"] == known + name
    client.ask("UNSUBSCRIBE", {"destination": f"/queue/{name}"})
    client.put(f"/queue/{name}", "two")
    client.nothing()


def test_a_message_frame_has_all_that_it_must(client, version, name):
    client.subscribe(f"/queue/{name}", id="sub 1")
    client.put(f"/queue/{name}", "body", content_type="text/plain")
    message = client.message("body")
    assert message["destination"] == f"/queue/{name}"
    assert message["subscription"] == "sub 1"
    assert message["content-length"] == "4"
    assert message["content-type"] == "text/plain"
    assert message["redelivered"] == "false"
    assert message["priority"] == "4"
    assert message["persistent"] == "false"
    assert message["expires"] == "0"
    assert int(message["timestamp"]) > 0
    assert message["message-id"]
    assert (message.get("ack") is not None) == (version == "1.2")
    names = [key for key, _ in message.headers]
    assert len(names) == len(set(names)), message.raw


def test_an_auto_subscriber_of_1_2_gets_no_ack_header(client, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "x")
    assert client.message("x").get("ack") is None


def test_transport_headers_are_not_passed_on(client, version, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.ask("BEGIN", {"transaction": "t"})
    client.send("SEND", {"destination": f"/queue/{name}", "transaction": "t", "receipt": "r"}, b"x")
    client.expect("RECEIPT", receipt_id="r")
    client.ask("COMMIT", {"transaction": "t"})
    message = client.message("x")
    assert message.get("receipt") is None
    assert message.get("transaction") is None


@pytest.mark.parametrize("ahead", [b"\n", b"\n\n\n\n", b"\n" * 5000])
def test_line_ends_before_and_between_frames_are_ignored(client, version, ahead):
    client.raw(ahead)
    client.ask("BEGIN", {"transaction": "t"})
    client.raw(ahead)
    client.ask("ABORT", {"transaction": "t"})


def test_line_ends_before_connect_are_ignored(connect):
    client = connect(greet=False)
    client.raw(b"\n\r\n\n")
    client.connect()


def test_frames_of_one_write_are_all_answered_in_order(client, version, name):
    one = f"SEND\ndestination:/queue/{name}\nreceipt:%d\n\nbody %d\0"
    client.raw("".join(one % (n, n) for n in range(500)).encode())
    assert [client.expect("RECEIPT")["receipt-id"] for _ in range(500)] == [str(n) for n in range(500)]
    client.subscribe(f"/queue/{name}", ack="auto")
    for n in range(500):
        client.message(f"body {n}")


def test_a_conversation_split_at_every_byte(connect, version, name):
    client = connect(version, greet=False)
    said = (
        f"CONNECT\naccept-version:{version}\nhost:h\n\n\0\n"
        f"SUBSCRIBE\nid:1\ndestination:/queue/{name}\nack:auto\nreceipt:s\n\n\0"
        f"SEND\ndestination:/queue/{name}\ncontent-length:5\n\na\0b\0c\0\n\n"
        f"SEND\ndestination:/queue/{name}\n\nplain\0"
        "DISCONNECT\nreceipt:d\n\n\0"
    ).encode()
    for at in range(len(said)):
        client.raw(said[at : at + 1])
    client.expect("CONNECTED", version=version)
    client.expect("RECEIPT", receipt_id="s")
    assert client.expect("MESSAGE").body == b"a\0b\0c"
    assert client.expect("MESSAGE").body == b"plain"
    client.expect("RECEIPT", receipt_id="d")
    client.closed()


def test_a_conversation_cut_in_two_at_each_place(client, name):
    said = f"SEND\ndestination:/queue/{name}\ncontent-length:3\nreceipt:%d\n\n\0\n\0\0\r\n\n".encode()
    for at in range(1, len(said)):
        whole = said.replace(b"%d", b"%d" % at)
        client.raw(whole[:at])
        client.raw(whole[at:])
        client.expect("RECEIPT", receipt_id=str(at))
