"""``/api/v1/consumers`` and the consumers of a queue and of a connection."""

from .admin_server import BEGIN, AdminServer, path, pick


def consumer(server):
    (found,) = server.get("/api/v1/consumers")["data"]
    return found


def sends(client, count, destination="/queue/q"):
    for _ in range(count):
        client.put(to=destination)


def test_all_fields(server):
    client = server.stomp(**{"client-id": "c-1", "login": "anna"})
    client.subscribe(
        id="s", ack="client-individual", selector="a = 1", prefetch_count="5", consumer_priority="7"
    )
    number = client.session.number
    assert consumer(server) == {
        "consumerID": f"{number}/s",
        "subscription": "s",
        "queue": "q",
        "address": "q",
        "destination": "/queue/q",
        "ack": "client-individual",
        "filter": "a = 1",
        "browser": False,
        "priority": 7,
        "groupCount": 0,
        "deliveringCount": 0,
        "oldestDelivering": None,
        "credit": 5,
        "prefetchCount": 5,
        "consumerWindowSize": -1,
        "messagesDelivered": 0,
        "messagesAcknowledged": 0,
        "deliveredRate": None,
        "acknowledgedRate": None,
        "slow": False,
        "connectionID": number,
        "remoteAddress": "127.0.0.1:50000",
        "user": "anna",
        "clientID": "c-1",
        "protocol": "STOMP 1.2",
        "acceptor": "stomp",
        "creationTime": BEGIN * 1000,
        "verdict": "No message waits for it.",
        "nextCommand": None,
    }


def test_a_queue_and_a_connection_show_the_same_objects(client, server):
    client.subscribe(id="s")
    server.stomp().subscribe("/queue/other", "s")
    everywhere = server.get("/api/v1/consumers")["data"]
    assert [each["queue"] for each in everywhere] == ["q", "other"]
    assert server.get("/api/v1/queues/q/consumers")["data"] == everywhere[:1]
    assert pick(server.shown(), "consumers", "consumerCount") == (everywhere[:1], 1)
    assert server.get(path("connections", client.session.number))["subscriptions"] == everywhere[:1]


def test_counts_of_an_acknowledging_consumer(client, server):
    client.subscribe(id="s", ack="client-individual", prefetch_count="3")
    sends(client, 1)
    server.advance(2)
    sends(client, 4)
    assert consumer(server)["oldestDelivering"] == 2000
    first, second, third = client.acks
    client.send("ACK", id=first)
    assert consumer(server)["oldestDelivering"] == 0
    client.send("NACK", id=second)  # and it is delivered again
    shown = consumer(server)
    assert pick(shown, "deliveringCount", "credit") == (3, 0)
    assert pick(shown, "messagesDelivered", "messagesAcknowledged") == (5, 1)
    assert server.get(path("connections", client.session.number))["messagesDelivered"] == 5


def test_an_aborted_transaction_undoes_acknowledgement_and_rejection(client, server):
    client.subscribe(id="s", ack="client-individual")
    sends(client, 3)
    first, second, third = client.acks
    client.send("BEGIN", transaction="t")
    client.send("ACK", id=first, transaction="t")
    client.send("NACK", id=second, transaction="t")
    shown = consumer(server)
    assert pick(shown, "messagesAcknowledged", "deliveringCount", "messagesDelivered") == (1, 1, 3)
    client.send("ABORT", transaction="t")
    shown = consumer(server)
    assert pick(shown, "messagesAcknowledged", "deliveringCount", "messagesDelivered") == (0, 3, 3)


def test_an_auto_consumer_has_no_limit_and_acknowledges_at_once(client, server):
    client.subscribe(id="s")
    sends(client, 4)
    shown = consumer(server)
    assert pick(shown, "credit", "prefetchCount", "consumerWindowSize") == (None, -1, -1)
    assert pick(shown, "messagesDelivered", "messagesAcknowledged", "deliveringCount") == (4, 4, 0)


def test_credit_is_0_while_the_window_in_bytes_is_used_up(client, server):
    client.subscribe(id="s", ack="client", **{"consumer-window-size": "10", "prefetch-count": "5"})
    assert consumer(server)["credit"] == 5
    sends(client, 1)
    assert pick(consumer(server), "credit", "consumerWindowSize") == (0, 10)


def test_a_connection_counts_what_ended_subscriptions_were_delivered(client, server):
    for ack in ("auto", "client"):
        client.subscribe(id="s", ack=ack)
        sends(client, 2)
        client.send("UNSUBSCRIBE", id="s")
    shown = server.get(path("connections", client.session.number))
    assert pick(shown, "messagesDelivered", "queues", "deliveringCount") == (4, [], 0)


def test_a_browser_is_listed_with_its_connection_only(queue, client, server):
    client.subscribe(id="b", browser="true")
    assert server.get("/api/v1/consumers")["data"] == []
    (shown,) = server.get(path("connections", client.session.number))["subscriptions"]
    assert shown["browser"] is True


def test_a_consumer_below_the_threshold_is_slow():
    server = AdminServer({"#": {"slow_consumer_threshold": 10, "slow_consumer_check_period": 1}})
    client = server.stomp()
    client.subscribe(id="s", ack="client-individual", prefetch_count="1")
    sends(client, 50)
    assert consumer(server)["slow"] is False
    server.advance(1, 3)
    assert consumer(server)["slow"] is True
    assert server.get("/api/v1/consumers?slow=true")["count"] == 1


def test_search_sort_and_filters(server):
    for name, count in (("a", 1), ("b", 3), ("ab", 2)):
        client = server.stomp()
        client.subscribe(f"/queue/{name}", name, ack="client")
        sends(client, count, f"/queue/{name}")

    def queues(query):
        return [each["queue"] for each in server.get(f"/api/v1/consumers?{query}")["data"]]

    assert queues("sort=-deliveringCount") == ["b", "ab", "a"]
    assert queues("search=A") == ["a", "ab"]
    assert queues("subscription=b") == ["b"]
    assert queues("size=1&page=2") == ["b"]
    server.refused(400, "GET", "/api/v1/consumers?colour=red")
