"""What a broker that takes over has: everything that had a receipt, and nothing of what was not committed.

All scenarios share one takeover: the active broker is killed (SIGKILL) while their clients are connected. Here are
those that clients are advised of; every other kind of queue and message has its workload in tests/failover.
"""

import pytest

from ..end_to_end.lasting import DURABLE, numbers, texts
from .scenarios import Scenarios, Takeover

SCENARIOS = Scenarios()


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


@SCENARIOS
def messages_with_receipts_are_there_in_order_and_acknowledged_ones_are_not(pair):
    client = pair.connect()
    client.put("orders", *numbers(1, 50), **DURABLE)
    client.put("orders", "passing", "passing")  # not durable: lost with its broker
    client.subscribe("orders")
    messages = client.messages(*numbers(1, 3))
    client.answer("ACK", messages[0])
    client.ask("BEGIN", {"transaction": "open"})
    client.answer("ACK", messages[1], transaction="open")
    yield
    assert drain(pair.connect(), "orders", 49) == numbers(2, 50)


@SCENARIOS
def sends_of_an_open_transaction_are_not_there(pair):
    client = pair.connect()
    for transaction in ("open", "committed"):
        client.ask("BEGIN", {"transaction": transaction})
        client.put("sends", transaction, transaction=transaction, **DURABLE)
    client.ask("COMMIT", {"transaction": "committed"})
    yield
    client = pair.connect()
    client.send("COMMIT", {"transaction": "open"})
    client.error("open")  # it ended with its connection
    assert drain(pair.connect(), "sends", 1) == ["committed"]


@SCENARIOS
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


@SCENARIOS
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


@pytest.fixture(scope="module")
def takeover(pair):
    takeover = Takeover(pair, SCENARIOS)
    yield takeover
    takeover.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_a_takeover(takeover, name):
    takeover.finish(name)


def test_an_orderly_stop_hands_over_what_has_receipts(takeover, pair):
    pair.wait_until_standby()
    client = pair.connect()
    client.put("handed over", *numbers(1, 20), **DURABLE)
    client.ask("BEGIN", {"transaction": "open"})
    client.put("handed over", "open", transaction="open", **DURABLE)
    pair.take_over("stop")
    assert client.frame().command == "ERROR"  # the client is told, and connects to the other broker
    assert drain(pair.connect(), "handed over", 20) == numbers(1, 20)
