"""``/api/v1/connections``."""

from .admin_server import BEGIN, path


def test_detail(server):
    client = server.stomp(**{"client-id": "c-1", "login": "anna", "passcode": "x"})
    client.subscribe(id="s", ack="client", selector="a = '1'")
    client.put(a="1")
    client.send("BEGIN", transaction="t")
    number = client.session.number
    shown = server.get(path("connections", number))
    assert shown == {
        "verdict": "It is read, and its client reads.",
        "nextCommand": None,
        "connectionID": number,
        "remoteAddress": "127.0.0.1:50000",
        "user": shown["user"],
        "clientID": "c-1",
        "protocol": "STOMP 1.2",
        "acceptor": "stomp",
        "creationTime": BEGIN * 1000,
        "blocked": False,
        "slow": False,
        "messagesSent": 1,
        "messagesDelivered": 1,
        "deliveringCount": 1,
        "outgoingBytes": 0,
        "sentRate": None,
        "deliveredRate": None,
        "acknowledgedRate": None,
        "transactionCount": 1,
        "subscriptionCount": 1,
        "queues": ["q"],
        "subscriptions": server.shown()["consumers"],
    }
    assert f"\nsession:{number}\n".encode() in client.received


def test_a_list(server):
    clients = [server.stomp(**{"client-id": name}) for name in ("b", "a")]
    clients[1].subscribe(id="s")
    page = server.get("/api/v1/connections")
    assert [c["clientID"] for c in page["data"]] == ["b", "a"] and page["count"] == 2
    assert "subscriptions" not in page["data"][0]
    by_name = server.get("/api/v1/connections?sort=clientID")["data"]
    assert [c["clientID"] for c in by_name] == ["a", "b"]
    busy = server.get("/api/v1/connections?subscriptionCount=1")["data"]
    assert [c["connectionID"] for c in busy] == [clients[1].session.number]
    assert server.get(f"/api/v1/connections?search={clients[0].session.number}")["count"] == 1


def test_close(queue, client, server):
    client.put()
    client.subscribe(ack="client")
    assert server.shown()["deliveringCount"] == 1
    server.done("DELETE", path("connections", client.session.number))
    server.advance()
    assert b"ERROR" in client.received and b"message:Connection closed by management" in client.received
    assert client.wire.disconnecting
    shown = server.shown()
    assert (shown["messageCount"], shown["deliveringCount"], shown["consumerCount"]) == (1, 0, 0)
