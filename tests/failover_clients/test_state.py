"""What a broker that takes over has: everything that had a receipt, and nothing of what was not committed.

All scenarios share one takeover: the active broker is killed (SIGKILL) while their clients are connected.
"""

import time

import pytest

from ..end_to_end.lasting import DURABLE, numbers, padded, texts
from .scenarios import Scenario, Takeover

SCENARIOS: dict[str, Scenario] = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def drain(client, destination, count):
    """Take and acknowledge that many messages, and find no more."""
    client.subscribe(destination, id=destination)
    found = []
    for _ in range(count):
        message = client.message()
        found += texts([message])
        client.answer("ACK", message)
    client.nothing()
    client.ask("UNSUBSCRIBE", {"id": destination})
    return found


@scenario
def messages_with_receipts_are_there_in_order(pair):
    client = pair.connect()
    client.put("orders", *numbers(1, 50), **DURABLE)
    client.put("orders", "passing", "passing")  # not durable: lost with its broker
    yield
    assert drain(pair.connect(), "orders", 50) == numbers(1, 50)


@scenario
def acknowledged_messages_stay_away_and_others_come_again(pair):
    client = pair.connect()
    client.put("acks", *"123456", **DURABLE)
    client.subscribe("acks")
    messages = client.messages(*"123456")
    for message in messages[:2]:
        client.answer("ACK", message)
    yield
    client = pair.connect()
    client.subscribe("acks")
    again = client.messages(*"3456")
    assert [message["message-id"] for message in again] == [message["message-id"] for message in messages[2:]]


@scenario
def sends_of_an_open_transaction_are_not_there(pair):
    client = pair.connect()
    client.ask("BEGIN", {"transaction": "open"})
    client.put("sends", "open 1", "open 2", transaction="open", **DURABLE)
    client.ask("BEGIN", {"transaction": "aborted"})
    client.put("sends", "aborted", transaction="aborted", **DURABLE)
    client.ask("ABORT", {"transaction": "aborted"})
    client.ask("BEGIN", {"transaction": "committed"})
    client.put("sends", "committed", transaction="committed", **DURABLE)
    client.ask("COMMIT", {"transaction": "committed"})
    yield
    client = pair.connect()
    client.send("COMMIT", {"transaction": "open"})
    client.error("open")  # it ended with its connection
    assert drain(pair.connect(), "sends", 1) == ["committed"]


@scenario
def acknowledgements_of_an_open_transaction_are_undone(pair):
    client = pair.connect()
    client.put("undone", *"12", **DURABLE)
    client.subscribe("undone")
    messages = client.messages(*"12")
    for message, transaction in zip(messages, ("committed", "open"), strict=True):
        client.ask("BEGIN", {"transaction": transaction})
        client.answer("ACK", message, transaction=transaction)
    client.ask("COMMIT", {"transaction": "committed"})
    yield
    assert drain(pair.connect(), "undone", 1) == ["2"]


@scenario
def durable_subscriptions_collect_and_keep_their_selector(pair):
    named = {"id": "d", "durable_subscription_name": "d", "selector": "n > 1"}
    client = pair.connect(client_id="c")
    client.subscribe("/topic/news", ack="auto", **named)
    client.ask("UNSUBSCRIBE", {"id": "d"})
    client.subscribe("/topic/news", id="passing", ack="auto")
    for n in range(4):
        pair.connect().put("/topic/news", str(n), n=n, **DURABLE)
    yield
    pair.connect().put("/topic/news", "4", n=4, **DURABLE)
    client = pair.connect(client_id="c")
    client.subscribe("/topic/news", ack="auto", **named)
    client.messages("2", "3", "4")
    client.nothing()


@scenario
def scheduled_messages_come_when_they_are_due(pair):
    client = pair.connect()
    due = int(time.time() * 1000) + 3000
    client.put("later", "due", AMQ_SCHEDULED_TIME=due, **DURABLE)
    client.put("later", "in an hour", AMQ_SCHEDULED_DELAY=3_600_000, **DURABLE)
    yield
    pair.management.expect("later", messageCount=2)
    client = pair.connect()
    client.subscribe("later", ack="auto")
    client.message("due")
    assert int(time.time() * 1000) >= due
    client.nothing()
    pair.management.expect("later", scheduledCount=1)


@scenario
def a_ring_has_its_newest_messages(pair):
    pair.connect().put("ring", *"12345", **DURABLE)
    yield
    client = pair.connect()
    client.put("ring", "6", **DURABLE)
    assert drain(client, "ring", 3) == list("456")


@scenario
def messages_in_pages_are_there_in_order(pair):
    pair.connect().put("paged", *padded(1, 60), **DURABLE)
    assert pair.management.address("paged")["numberOfPages"] > 1
    yield
    assert pair.management.address("paged")["numberOfPages"] > 1
    client = pair.connect()
    client.put("paged", *padded(61, 70), **DURABLE)
    assert drain(client, "paged", 70) == numbers(1, 70)


@scenario
def a_resent_message_with_its_duplicate_id_is_there_once(pair):
    client = pair.connect()
    for number in numbers(1, 20):
        client.put("resent", number, _AMQ_DUPL_ID=number, **DURABLE)
    for number in numbers(21, 25):  # whether these have arrived nobody knows: their receipts are not awaited
        client.send(
            "SEND",
            {"destination": "resent", "_AMQ_DUPL_ID": number, "receipt": f"r{number}", **DURABLE},
            number.encode(),
        )
    yield
    client = pair.connect()
    for number in numbers(11, 30):
        client.put("resent", number, _AMQ_DUPL_ID=number, **DURABLE)
    assert drain(client, "resent", 30) == numbers(1, 30)


@scenario
def a_repeated_transaction_is_refused_where_its_commit_held(pair):
    """As the documentation advises for a COMMIT whose receipt did not come."""

    def transact(client):
        client.ask("BEGIN", {"transaction": "t"})
        client.put("repeated", "1", _AMQ_DUPL_ID="first", transaction="t", **DURABLE)
        client.send("COMMIT", {"transaction": "t", "receipt": "c"})

    client = pair.connect()
    transact(client)
    assert client.frame()["receipt-id"] == "c"
    yield
    client = pair.connect()
    transact(client)
    client.error("first", receipt="c")
    assert drain(pair.connect(), "repeated", 1) == ["1"]


@scenario
def last_values_are_the_last(pair):
    client = pair.connect()
    client.subscribe("prices")  # makes the queue
    client.ask("UNSUBSCRIBE", {"id": "s"})
    for symbol, price in (("gold", "1"), ("tin", "2"), ("gold", "3")):
        client.put("prices", f"{symbol} {price}", symbol=symbol, **DURABLE)
    yield
    client = pair.connect()
    pair.management.expect("prices", messageCount=2, keyCount=2, lastValueKey="symbol")
    client.put("prices", "tin 4", symbol="tin", **DURABLE)
    pair.management.expect("prices", messageCount=2, keyCount=2)
    client.subscribe("prices", ack="auto")
    assert {client.message().body, client.message().body} == {b"gold 3", b"tin 4"}


@scenario
def each_message_group_has_one_consumer_and_its_order(pair):
    client = pair.connect()
    client.subscribe("groups")
    for body in ("a1", "b1", "a2", "b2", "a3", "b3"):
        client.put("groups", body, JMSXGroupID=body[0], **DURABLE)
    client.answer("ACK", next(message for message in client.inbox if message.body == b"a1"))
    yield
    consumers = [pair.connect(), pair.connect()]
    for consumer in consumers:
        consumer.subscribe("groups")
    for body in ("a4", "b4"):
        pair.connect().put("groups", body, JMSXGroupID=body[0], **DURABLE)
    pair.management.expect("groups", messageCount=7)
    for consumer in consumers:
        consumer.waiting()
    received = [[message.body.decode() for message in consumer.inbox] for consumer in consumers]
    for group, expected in (("a", ["a2", "a3", "a4"]), ("b", ["b1", "b2", "b3", "b4"])):
        per_consumer = [[body for body in bodies if body[0] == group] for bodies in received]
        assert sorted(per_consumer) == [[], expected]


@scenario
def queues_of_the_management_api_and_their_settings_are_there(pair):
    made = {"maxConsumers": 3, "ringSize": 17, "filter": "colour = 'red'", "exclusive": True}
    pair.management.ask("POST", "/queues", {"name": "made", "routingType": "ANYCAST", **made})
    pair.management.ask("POST", "/queues", {"name": "deleted", "routingType": "ANYCAST"})
    pair.management.ask("DELETE", "/queues/deleted")
    yield
    queue = pair.management.queue("made")
    assert {name: queue[name] for name in made} == made
    pair.management.gone("deleted")


@pytest.fixture(scope="module")
def takeover(pair):
    takeover = Takeover(pair, SCENARIOS)
    yield takeover
    takeover.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_takeover(takeover, name):
    takeover.finish(name)


def test_the_killed_broker_is_the_next_standby(takeover, pair):
    assert pair.ready(pair.active)[0] == 200
    pair.wait_until_standby()


def test_an_orderly_stop_hands_over_what_has_receipts(takeover, pair):
    pair.wait_until_standby()
    client = pair.connect()
    client.put("handed over", *numbers(1, 20), **DURABLE)
    client.ask("BEGIN", {"transaction": "open"})
    client.put("handed over", "open", transaction="open", **DURABLE)
    pair.take_over("stop")
    assert client.frame().command == "ERROR"  # the client is told, and connects to the other broker
    assert drain(pair.connect(), "handed over", 20) == numbers(1, 20)
