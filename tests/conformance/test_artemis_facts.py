"""What clients of Artemis and ActiveMQ have come to count on beyond the specification, one test for each."""

import pytest

from ..broker_document import anycast


@pytest.mark.parametrize("host", [None, "", "localhost", "no.such.host", "/", "größe"])
def test_host_may_be_anything_or_missing(connect, version, host):
    client = connect(version, greet=False)
    client.send("CONNECT", {"accept-version": version, **({} if host is None else {"host": host})})
    client.expect("CONNECTED", version=version)


def test_unknown_headers_are_tolerated_everywhere(connect, version, name):
    client = connect(version, greet=False)
    strange = {"x-strange": "1", "exclusive": "true", "activemq.retroactive": "true", "priority": "5"}
    client.send("CONNECT", {"accept-version": version, "host": "h", **strange})
    client.expect("CONNECTED")
    client.ask("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "ack": "client", **strange})
    client.ask("BEGIN", {"transaction": "t", **strange})
    client.ask("COMMIT", {"transaction": "t", **strange})
    client.put(f"/queue/{name}", "x", **strange)
    client.ask("ACK", {**client.reference(client.message("x")), **strange})
    client.ask("UNSUBSCRIBE", {"id": "1", **strange})
    client.ask("DISCONNECT", strange)


@pytest.mark.broker(parameters="disableStompServerHeader=true")
def test_the_server_header_can_be_left_out(connect, version):
    assert connect(version).connected.get("server") is None


def test_one_message_has_an_id_of_its_own_in_each_subscription(client, name):
    client.subscribe(f"/topic/{name}", id="1")
    client.subscribe(f"/topic/{name}", id="2")
    client.put(f"/topic/{name}", "x")
    first, second = client.messages("x", "x")
    assert first["message-id"] != second["message-id"]
    assert first["ack"] != second["ack"]
    client.answer("ACK", first)
    client.answer("ACK", second)


def test_a_disconnected_topic_subscriber_gets_nothing_until_it_subscribes_again(client, connect, name):
    client.subscribe(f"/topic/{name}", ack="auto")
    client.disconnect()
    client = connect()
    client.put(f"/topic/{name}", "missed")
    client.nothing()
    client.subscribe(f"/topic/{name}", ack="auto")
    client.put(f"/topic/{name}", "seen")
    client.message("seen")


def test_a_bad_selector_makes_nothing(client, name, management):
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "selector": "a >"})
    client.error("Invalid selector", "a >")
    management.gone(name)


def test_a_durable_name_on_a_queue_means_nothing(connect, name, management):
    client = connect(client_id=name)
    client.subscribe(f"/queue/{name}", ack="auto", durable_subscription_name="d")
    client.put(f"/queue/{name}", "x")
    client.message("x")
    management.gone(f"{name}.d")


def test_persistent_messages_are_marked_so(client, version, name):
    client.subscribe(name, ack="auto")
    client.put(name, "1", persistent="true")
    client.put(name, "2", persistent="false")
    client.put(name, "3")
    assert [message["persistent"] for message in client.messages("1", "2", "3")] == ["true", "false", "false"]


@pytest.mark.broker(
    addresses=anycast("values", 'last-value-key="code"')
    + anycast("ringed", 'last-value-key="code" ring-size="3"')
    + anycast("table", 'last-value-key="code" non-destructive="true"')
)
def test_last_value_queues_as_artemis_2_44_showed_them(client, connect, management):
    """Each line was measured beside Artemis 2.44.0 over STOMP."""
    reader = connect()

    def put(queue, *messages, **more):
        for body, key in messages:
            client.put(queue, body, **({"code": key} if key else {}), **more)

    def shows(queue, *bodies):
        reader.subscribe(queue, ack="auto")
        reader.messages(*bodies)
        reader.nothing()
        reader.ask("UNSUBSCRIBE", {"id": "s"})

    put("values", ("a1", "A"), ("b1", "B"), ("a2", "A"), ("n1", ""), ("n2", ""))
    shows("values", "b1", "a2", "n1", "n2")
    put("values", ("x1", ""), ("x2", ""), _AMQ_LVQ_NAME="X")
    put("values", ("x3", "X"))
    put("values", ("y", "Y"), _AMQ_LVQ_NAME="X")
    shows("values", "x3", "y")
    put("values", ("low", "K"), priority=9)
    put("values", ("new", "K"), priority=1)
    put("values", ("x", "L"), priority=5)
    shows("values", "x", "new")
    put("values", ("sent first", "K"), AMQ_SCHEDULED_DELAY=300)
    put("values", ("sent later", "K"))
    management.expect("values", scheduledCount=0, messageCount=1)
    shows("values", "sent first")
    put("ringed", ("a1", "A"), ("b1", "B"), ("c1", "C"), ("a2", "A"), ("b2", "B"), ("d1", "D"))
    shows("ringed", "a2", "b2", "d1")
    put("table", ("a1", "A"), ("b1", "B"), ("a2", "A"))
    shows("table", "b1", "a2")
    shows("table", "b1", "a2")
    reader.subscribe("table", ack="auto")
    put("table", ("a3", "A"))
    reader.messages("b1", "a2", "a3")
    management.expect("table", messageCount=2, messagesReplaced=2)


def test_a_thousand_subscriptions_on_one_connection(client, name):
    for n in range(1000):
        client.send("SUBSCRIBE", {"destination": f"/topic/{name}", "id": str(n)})
    client.put(f"/topic/{name}", "to each")
    assert len({client.message("to each")["subscription"] for _ in range(1000)}) == 1000
