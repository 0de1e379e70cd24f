"""What one frame and one connection may be: each limit is named in the ERROR when it is passed."""

import pytest

BODY = pytest.mark.broker(parameters="maxBodyLength=1000")
HEADERS = pytest.mark.broker(parameters="maxHeaders=20;maxHeaderLength=200")


@BODY
def test_a_body_of_just_the_limit_is_taken(client, version, name):
    client.put(f"/queue/{name}", b"x" * 1000)
    client.put(f"/queue/{name}", b"x" * 1000, content_length=1000)


@BODY
def test_a_longer_content_length_is_refused_before_the_body_comes(client, version):
    client.raw(b"SEND\ndestination:/queue/x\ncontent-length:1001\n\n")
    client.error("body", "1001", "1000")


@BODY
def test_a_longer_body_without_content_length_is_refused_before_its_end(client, version):
    client.raw(b"SEND\ndestination:/queue/x\n\n" + b"x" * 1001)
    client.error("body", "SEND", "1000")


@HEADERS
def test_too_many_headers(client, version):
    client.send("SEND", {"destination": "/queue/x", **{f"h{n}": n for n in range(20)}}, b"x")
    client.error("headers", "20")


@HEADERS
def test_just_as_many_headers_as_may_be(client, version, name):
    client.put(f"/queue/{name}", "x", **{f"h{n}": n for n in range(18)})  # with destination and receipt 20


@HEADERS
def test_a_header_that_is_too_long_is_refused_before_its_end(client, version):
    client.raw(b"SEND\nlong-one:" + b"x" * 300)
    client.error("header", "long-one", "200")


@HEADERS
def test_a_command_that_is_too_long_is_refused_before_its_end(connect):
    client = connect(greet=False)
    client.raw(b"Z" * 300)
    client.error("command", "200")


def test_headers_of_one_and_of_two_kilobytes_are_fine(client, version, name):
    client.subscribe(f"/queue/{name}", ack="auto")
    client.put(f"/queue/{name}", "x", longer="l" * 1024, longest="m" * 2048)
    message = client.message("x")
    assert message["longer"] == "l" * 1024 and message["longest"] == "m" * 2048


@pytest.mark.broker(parameters="subscriptionsAllowed=3")
def test_subscriptions_per_connection(client, connect, version, name):
    for n in range(3):
        client.subscribe(f"/queue/{name}.{n}", id=str(n))
    client.ask("UNSUBSCRIBE", {"id": "0"})
    client.subscribe(f"/queue/{name}.4", id="4")
    connect(version).subscribe(f"/queue/{name}.1", id="of another connection")
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}.5", "id": "5", "receipt": "r"})
    client.error("3", "subscriptionsAllowed", receipt="r")


@pytest.mark.broker(parameters="transactionsAllowed=2")
def test_transactions_per_connection(client, version):
    for _ in range(5):
        client.ask("BEGIN", {"transaction": "again and again"})
        client.ask("COMMIT", {"transaction": "again and again"})
    client.ask("BEGIN", {"transaction": "1"})
    client.ask("BEGIN", {"transaction": "2"})
    client.send("BEGIN", {"transaction": "3", "receipt": "r"})
    client.error("2", "transactionsAllowed", receipt="r")


@pytest.mark.broker(parameters="connectionsAllowed=2")
def test_connections_per_acceptor(connect, over):
    if over == "websocket":
        pytest.skip("the one too many is refused before it is a WebSocket")
    first, _second = connect(), connect()
    connect(greet=False).error("2", "connections")
    first.disconnect()
    connect().ask("DISCONNECT")
