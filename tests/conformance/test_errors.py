"""ERROR frames: each says which rule, header or name, answers the receipt, and is the last frame."""

import pytest

REFUSED = [
    ("SEND", {}, ["SEND", "destination"]),
    ("SUBSCRIBE", {"id": "1"}, ["SUBSCRIBE", "destination"]),
    (
        "SUBSCRIBE",
        {"id": "1", "destination": "/queue/x", "ack": "sometimes"},
        ["ack", "client-individual", "sometimes"],
    ),
    ("SUBSCRIBE", {"id": "1", "destination": "/queue/x", "selector": "a = "}, ["selector"]),
    ("SUBSCRIBE", {"id": "1", "destination": "/queue/x", "selector": " "}, ["selector"]),
    ("SUBSCRIBE", {"id": "1", "destination": "/queue/x", "prefetch-count": "0"}, ["prefetch-count", "0"]),
    (
        "SUBSCRIBE",
        {"id": "1", "destination": "/queue/x", "prefetch-count": "many"},
        ["prefetch-count", "many"],
    ),
    (
        "SUBSCRIBE",
        {"id": "1", "destination": "/queue/x", "consumer-window-size": "-3"},
        ["consumer-window-size", "-3"],
    ),
    (
        "SUBSCRIBE",
        {"id": "1", "destination": "/topic/x", "durable-subscription-name": "d"},
        ["client-id", "d"],
    ),
    ("SUBSCRIBE", {"id": "1", "destination": "/queue/q::"}, ["q::"]),
    ("SUBSCRIBE", {"id": "1", "destination": "/queue/"}, ["destination", "/queue/"]),
    ("SUBSCRIBE", {"id": "1", "destination": "x", "subscription-type": "BOTH"}, ["ANYCAST", "BOTH"]),
    ("SUBSCRIBE", {"id": "1", "destination": "::nowhere"}, ["nowhere", "does not exist"]),
    ("SEND", {"destination": "/queue/"}, ["/queue/"]),
    ("SEND", {"destination": "::"}, ["::"]),
    ("SEND", {"destination": "x", "destination-type": "anycast"}, ["ANYCAST", "MULTICAST", "anycast"]),
    ("SEND", {"destination": "/queue/x", "AMQ_SCHEDULED_DELAY": "later"}, ["AMQ_SCHEDULED_DELAY", "later"]),
    ("SEND", {"destination": "/queue/x", "AMQ_SCHEDULED_TIME": "noon"}, ["AMQ_SCHEDULED_TIME", "noon"]),
    ("SEND", {"destination": "/queue/x", "AMQ_SCHEDULED_CRON": "* * *"}, ["AMQ_SCHEDULED_CRON", "* * *"]),
    (
        "SEND",
        {"destination": "/queue/x", "AMQ_SCHEDULED_REPEAT": "3"},
        ["AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_PERIOD"],
    ),
    ("SEND", {"destination": "/queue/x", "transaction": "unknown"}, ["unknown", "transaction"]),
    ("ACK", {}, ["ACK"]),
    ("ACK", {"id": "99-99", "message-id": "99-99", "subscription": "1"}, ["99-99"]),
    ("ACK", {"id": "someother", "message-id": "someother", "subscription": "1"}, ["someother"]),
    ("NACK", {}, ["NACK"]),
    ("NACK", {"id": "1-", "message-id": "1-", "subscription": "1"}, ["1-"]),
    ("BEGIN", {}, ["BEGIN", "transaction"]),
    ("COMMIT", {}, ["COMMIT", "transaction"]),
    ("ABORT", {}, ["ABORT", "transaction"]),
    ("COMMIT", {"transaction": "never"}, ["COMMIT", "never"]),
    ("ABORT", {"transaction": "never"}, ["ABORT", "never"]),
    ("UNSUBSCRIBE", {}, ["UNSUBSCRIBE", "id"]),
    ("UNSUBSCRIBE", {"id": "nobody"}, ["nobody"]),
    ("DANCE", {}, ["DANCE"]),
    ("send", {"destination": "/queue/x"}, ["send"]),
    ("MESSAGE", {}, ["MESSAGE"]),
    ("RECEIPT", {}, ["RECEIPT"]),
]


@pytest.mark.parametrize("command, headers, words", REFUSED)
def test_an_error_says_why_answers_the_receipt_and_closes(client, version, command, headers, words):
    client.send(command, {**headers, "receipt": "asked"}, b"body")
    error = client.error(*words, receipt="asked")
    assert error["content-type"].startswith("text/plain")
    assert "\n" not in error["message"]


def test_without_receipt_there_is_no_receipt_id(client, version):
    client.send("UNSUBSCRIBE", {"id": "nobody"})
    client.error("nobody", receipt=None)


def test_nothing_behind_an_error_is_done(client, connect, version, name):
    client.put(f"/queue/{name}", "before")
    client.raw(f"UNSUBSCRIBE\nid:nobody\n\n\0SEND\ndestination:/queue/{name}\n\nafter\0".encode())
    client.error("nobody")
    reader = connect()
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.message("before")
    reader.nothing()


def test_an_error_leaves_other_connections_alone(connect, name):
    other = connect()
    other.subscribe(f"/queue/{name}", ack="auto")
    client = connect()
    client.send("ABORT")
    client.error()
    other.put(f"/queue/{name}", "still served")
    other.message("still served")


@pytest.mark.every_carrier
def test_what_came_before_an_error_in_the_same_write_was_done(client, connect, name):
    client.raw(f"SEND\ndestination:/queue/{name}\nreceipt:1\n\nkept\0ABORT\n\n\0".encode())
    client.expect("RECEIPT", receipt_id="1")
    client.error("ABORT")
    reader = connect()
    reader.subscribe(f"/queue/{name}", ack="auto")
    reader.message("kept")


def test_an_id_may_be_used_once(client, version, name):
    client.subscribe(f"/queue/{name}", id="same")
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}.other", "id": "same", "receipt": "r"})
    client.error("same", receipt="r")


def test_begin_twice_is_an_error(client, version):
    client.ask("BEGIN", {"transaction": "twice"})
    client.send("BEGIN", {"transaction": "twice", "receipt": "r"})
    client.error("twice", "already", receipt="r")


def test_an_ack_that_names_the_wrong_subscription_leaves_the_message(connect, name):
    client = connect("1.1")
    client.subscribe(f"/queue/{name}", id="right")
    client.put(f"/queue/{name}", "x")
    client.send(
        "ACK", {"message-id": client.message("x")["message-id"], "subscription": "wrong", "receipt": "r"}
    )
    client.error("wrong", "right", receipt="r")
    reader = connect()
    reader.subscribe(f"/queue/{name}")
    assert reader.message("x")["redelivered"] == "true"


def test_acknowledging_twice_is_an_error(client, version, name):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    message = client.message("x")
    client.answer("ACK", message)
    client.send("ACK", {**client.reference(message), "receipt": "r"})
    client.error(message["message-id"], receipt="r")


def test_acknowledging_after_unsubscribe_is_an_error(client, version, name):
    client.subscribe(f"/queue/{name}")
    client.put(f"/queue/{name}", "x")
    message = client.message("x")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.send("ACK", client.reference(message))
    client.error(message["message-id"])


def test_rubbish_behind_a_frame_that_never_ends_is_not_answered(client, version, name):
    client.raw(b"BEGIN\ntransaction:t\nreceipt:r\n\n\0rubbish without an end")
    client.expect("RECEIPT", receipt_id="r")
    client.hear(0.2)
    with pytest.raises(TimeoutError):
        client.frame(patience=0.05)
