"""Last-value queues of a real broker: over STOMP and HTTP, in memory and in pages, over a kill -9."""

import pytest
from click.testing import CliRunner

from stompring.cli.main import main

from ..broker_document import anycast
from ..management import Answered
from .steps import abort, begin, make_queue, receive, say

pytestmark = pytest.mark.in_memory


KEYS = 200
SETTINGS = {
    "#": {
        "auto-delete-queues": "false",
        "auto-delete-addresses": "false",
        "default-address-routing-type": "ANYCAST",
        "default-queue-routing-type": "ANYCAST",
    },
    "paged": {"max-size-messages": "5", "address-full-policy": "PAGE", "page-size-bytes": "4K"},
    "prices.#": {"default-last-value-key": "symbol"},
}
QUEUES = (
    anycast("orders", 'last-value="true"')
    + anycast("paged", 'last-value-key="code"')
    + anycast("states", 'last-value-key="device" non-destructive="true"')
)


def fill(client, first):
    """A message for each key, its number in the body."""
    for number in range(first, first + KEYS):
        say(client, "paged", b"%d" % number, code=f"k{number % KEYS}", persistent="true")
    begin(client)
    client.put("paged", "x", transaction="t")
    abort(client)


def test_values_over_stomp_and_http_and_over_kill_9(lasting):
    lasting.start(settings=SETTINGS, addresses=QUEUES)
    client, management = lasting.connect(), lasting.management
    client.put("orders", "1", "2", _AMQ_LVQ_NAME="7")
    client.put("orders", "3", persistent="true", _AMQ_LVQ_NAME="8")
    client.put("orders", "4", persistent="true", _AMQ_LVQ_NAME="7")
    management.expect(
        "orders", messageCount=2, messagesReplaced=2, keyCount=2, lastValue=True, lastValueKey=None
    )
    client.subscribe("prices.gold")
    management.expect("prices.gold", lastValue=True, lastValueKey="symbol")
    for first in (0, KEYS, 2 * KEYS):
        fill(client, first)
    found = management.expect("paged", messageCount=KEYS, keyCount=KEYS, messagesReplaced=2 * KEYS)
    assert found["pagedCount"] > 0
    for body in ("old", "new"):
        client.put("states", body, persistent="true", device="a")

    lasting.again("kill")
    client, management = lasting.connect(), lasting.management
    receive(client, "orders", "3", "4", id="o")
    client.put("paged", "late", persistent="true", code="k0")
    management.expect("paged", messageCount=KEYS, keyCount=KEYS)
    for reader in "ab":
        receive(client, "states", "new", id=reader)
    receive(client, "paged", *[str(number) for number in range(2 * KEYS + 1, 3 * KEYS)], "late", id="p")
    client.nothing()
    management.expect("paged", messageCount=0, keyCount=0)


def test_a_durable_subscription_gets_current_values_when_it_returns(lasting):
    lasting.start(settings=SETTINGS)
    names = {"durable-subscription-name": "s", "id": "s", "ack": "auto"}
    client = lasting.connect(client_id="c")
    client.ask("SUBSCRIBE", {"destination": "/topic/prices.#", **names})
    client.disconnect()
    sender = lasting.connect()
    for symbol, price in (("gold", "1"), ("iron", "2"), ("gold", "3")):
        sender.put(f"/topic/prices.{symbol}", price, symbol=symbol, persistent="true")
    client = lasting.connect(client_id="c")
    client.ask("SUBSCRIBE", {"destination": "/topic/prices.#", **names})
    client.messages("2", "3")
    client.nothing()


def test_a_queue_that_exists_does_not_become_a_last_value_queue(lasting):
    management = lasting.start(settings=SETTINGS, addresses=QUEUES).management
    make_queue(management, "plain")
    made = make_queue(management, "keyed", lastValueKey="code")
    assert (made["lastValue"], made["lastValueKey"]) == (True, "code")
    for change in ({"lastValue": True}, {"lastValueKey": "code"}):
        with pytest.raises(Answered) as refused:
            management.update("plain", **change)
        assert (
            refused.value.status == 409 and "cannot change while it exists" in refused.value.problem["detail"]
        )


def test_an_export_brings_the_values_to_another_broker(lasting, tmp_path):
    lasting.start(settings=SETTINGS, addresses=QUEUES)
    client = lasting.connect()
    for first in (0, KEYS):
        fill(client, first)
    client.put("states", "1", "2", persistent="true", device="a")
    lasting.stop()
    file, data = tmp_path / "all.json", tmp_path / "imported"
    for command in (
        ["export", str(file), "--data", str(lasting.data)],
        ["import", str(file), "--data", str(data)],
    ):
        done = CliRunner().invoke(main, ["data", *command])
        assert done.exit_code == 0, done.output
    lasting.data = data
    lasting.start()
    lasting.management.expect("paged", messageCount=KEYS, keyCount=KEYS, lastValueKey="code")
    lasting.management.expect("states", messageCount=1, keyCount=1, nonDestructive=True)
    assert lasting.drain("paged") == [str(number) for number in range(KEYS, 2 * KEYS)]
