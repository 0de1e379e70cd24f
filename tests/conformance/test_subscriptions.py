"""What else SUBSCRIBE can ask for: selectors, durable names, no-local, windows, browsing."""

import pytest

DURABLE = ["durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(
    "selector, matching",
    [
        ("colour = 'red'", ["red 5"]),
        ("size > 7", ["blue 10"]),
        ("size > 7 OR colour = 'red'", ["red 5", "blue 10"]),
        ("NOT colour = 'red'", ["blue 10"]),
        ("colour IS NULL", ["plain"]),
        ("colour LIKE 'r%' AND size BETWEEN 1 AND 5", ["red 5"]),
        ("convert_string_expressions:size = 10", ["blue 10"]),
    ],
)
def test_selectors(client, version, name, kind, selector, matching):
    client.subscribe(f"/{kind}/{name}", ack="auto", selector=selector)
    client.put(f"/{kind}/{name}", "red 5", colour="red", size="5")
    client.put(f"/{kind}/{name}", "blue 10", colour="blue", size="10")
    client.put(f"/{kind}/{name}", "plain")
    client.messages(*matching)
    client.nothing()


def test_what_a_selector_leaves_is_for_others(client, name):
    client.subscribe(f"/queue/{name}", ack="auto", id="odd", selector="n IN ('1', '3')")
    for n in range(1, 5):
        client.put(f"/queue/{name}", str(n), n=n)
    client.messages("1", "3")
    client.subscribe(f"/queue/{name}", ack="auto", id="rest")
    client.messages("2", "4")


@pytest.mark.parametrize("header", DURABLE)
def test_a_durable_subscription_gathers_while_its_client_is_away(connect, version, name, header):
    sender = connect(version)
    client = connect(version, client_id=name)
    client.ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "1", header: "news"})
    client.disconnect()
    sender.put(f"/topic/{name}", "1", "2")
    client = connect(version, client_id=name)
    client.ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "1", header: "news"})
    client.messages("1", "2")
    client.ask("UNSUBSCRIBE", {"id": "1", header: "news"})
    client.disconnect()
    sender.put(f"/topic/{name}", "3")
    client = connect(version, client_id=name)
    client.ask("SUBSCRIBE", {"destination": f"/topic/{name}", "id": "1", header: "news"})
    client.nothing()


def test_unsubscribing_by_id_alone_keeps_a_durable_subscription(connect, name):
    client = connect(client_id=name)
    client.subscribe(f"/topic/{name}", ack="auto", durable_subscription_name="news")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.put(f"/topic/{name}", "kept")
    client.subscribe(f"/topic/{name}", ack="auto", durable_subscription_name="news")
    client.message("kept")


def test_two_connections_share_a_durable_subscription(connect, name, management):
    first, second = connect(client_id=name), connect(client_id=name)
    for client in (first, second):
        client.subscribe(f"/topic/{name}", ack="auto", durable_subscription_name="news")
    assert management.queue(f"{name}.news")["consumerCount"] == 2
    connect().put(f"/topic/{name}", "1", "2")
    first.message("1")
    second.message("2")
    first.send("UNSUBSCRIBE", {"id": "s", "durable-subscription-name": "news"})
    first.error("news", "in use")


def test_a_changed_selector_takes_effect(connect, name):
    client = connect(client_id=name)
    client.subscribe(f"/topic/{name}", ack="auto", durable_subscription_name="d", selector="a = '1'")
    client.ask("UNSUBSCRIBE", {"id": "s"})
    client.subscribe(f"/topic/{name}", ack="auto", durable_subscription_name="d", selector="a = '2'")
    client.put(f"/topic/{name}", "no", a="1")
    client.put(f"/topic/{name}", "yes", a="2")
    client.message("yes")
    client.nothing()


@pytest.mark.parametrize("header", ["no-local", "activemq.noLocal"])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_no_local(client, connect, version, name, header, kind):
    other = connect(version)
    client.ask("SUBSCRIBE", {"destination": f"/{kind}/{name}", "id": "1", header: "true"})
    client.put(f"/{kind}/{name}", "own")
    other.put(f"/{kind}/{name}", "of another")
    client.message("of another")
    client.nothing()


def test_no_local_and_a_selector(client, connect, name):
    other = connect()
    client.subscribe(f"/topic/{name}", ack="auto", no_local="true", selector="a = 'foo' OR b = 'bar'")
    client.put(f"/topic/{name}", "own", a="foo")
    other.put(f"/topic/{name}", "wrong", a="x")
    other.put(f"/topic/{name}", "right", b="bar")
    client.message("right")
    client.nothing()


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_a_window_in_messages(client, version, name, header, ack):
    client.put(f"/queue/{name}", *"12345")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "ack": ack, header: "2"})
    one, two = client.messages("1", "2")
    client.nothing()
    client.answer("ACK", one)
    client.message("3")
    client.nothing()
    client.answer("NACK", two)
    client.message("2")


def test_a_window_in_bytes_is_soft(client, version, name):
    """A message goes out while there is credit, so the last one may exceed it (Artemis)."""
    client.put(f"/queue/{name}", *(str(n) * 400 for n in range(4)))
    client.subscribe(f"/queue/{name}", consumer_window_size=800)
    client.message("0" * 400)
    second = client.message("1" * 400)
    client.nothing()
    client.answer("ACK", second)
    client.message("2" * 400)
    client.nothing()


def test_a_cumulative_ack_gives_the_credit_of_all(client, version, name):
    client.put(f"/queue/{name}", *"1234")
    client.subscribe(f"/queue/{name}", ack="client", prefetch_count=2)
    client.answer("ACK", client.messages("1", "2")[1])
    client.messages("3", "4")


@pytest.mark.parametrize("settle", ["ACK", "NACK"])
def test_a_window_of_0_is_one_message_at_a_time(client, version, name, settle):
    client.put(f"/queue/{name}", "1", "2")
    client.subscribe(f"/queue/{name}", consumer_window_size=0)
    first = client.message("1")
    client.nothing()
    client.answer(settle, first)
    client.message("2" if settle == "ACK" else "1")
    client.nothing()


@pytest.mark.broker(parameters="stompConsumerWindowSize=1000")
def test_the_acceptor_s_window_is_for_clients_who_acknowledge(client, name):
    client.put(f"/queue/{name}", *(str(n) * 600 for n in range(6)))
    client.subscribe(f"/queue/{name}", id="1")
    client.messages("0" * 600, "1" * 600)
    client.nothing()
    client.subscribe(f"/queue/{name}", id="2", ack="auto")
    client.messages(*(str(n) * 600 for n in range(2, 6)))


@pytest.mark.broker(parameters="stompPrefetchCount=1")
def test_the_acceptor_s_prefetch_count(client, name):
    client.put(f"/queue/{name}", "1", "2")
    client.subscribe(f"/queue/{name}")
    client.message("1")
    client.nothing()


def test_a_message_larger_than_the_window_is_delivered(client, name):
    client.put(f"/queue/{name}", "x" * 10_000)
    client.subscribe(f"/queue/{name}", consumer_window_size=10)
    client.message("x" * 10_000)


def test_a_stuck_consumer_holds_back_no_more_than_its_window(connect, name):
    stuck, busy = connect(), connect()
    stuck.subscribe(f"/queue/{name}", prefetch_count=1)
    busy.subscribe(f"/queue/{name}", ack="auto")
    connect().put(f"/queue/{name}", *"12345")
    stuck.message("1")
    busy.messages("2", "3", "4", "5")


def test_browsing_shows_and_leaves(client, version, name, management):
    client.put(f"/queue/{name}", "1", "2", "3", n="1")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "b", "browser": "true"})
    for body in ("1", "2", "3"):
        assert client.message(body)["subscription"] == "b"
    assert client.message("")["browser"] == "end"
    client.nothing()
    management.expect(name, messageCount=3, deliveringCount=0, messagesAcknowledged=0, consumerCount=0)
    client.ask("UNSUBSCRIBE", {"id": "b"})
    client.subscribe(f"/queue/{name}", ack="auto")
    assert {message["redelivered"] for message in client.messages("1", "2", "3")} == {"false"}


def test_browsing_gives_its_receipt_first(client, name):
    client.put(f"/queue/{name}", "1")
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "b", "browser": "true", "receipt": "r"})
    client.expect("RECEIPT", receipt_id="r")
    client.message("1")


def test_browsing_with_a_selector(client, name):
    for n in range(4):
        client.put(f"/queue/{name}", str(n), n=n)
    client.subscribe(f"/queue/{name}", ack="auto", browser="true", selector="n >= 2")
    client.messages("2", "3")
    assert client.message("")["browser"] == "end"


def test_browsing_an_empty_queue_ends_at_once(client, name):
    client.subscribe(f"/queue/{name}", ack="auto", browser="true")
    assert client.message("")["browser"] == "end"


@pytest.mark.every_carrier
def test_browsing_more_than_the_socket_takes(client, name):
    client.put(f"/queue/{name}", *("x" * 50_000 for _ in range(200)))
    client.subscribe(f"/queue/{name}", ack="auto", browser="true")
    for _ in range(200):
        client.message("x" * 50_000)
    assert client.message("")["browser"] == "end"
