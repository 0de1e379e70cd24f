"""Messages that cannot be delivered: attempts, delays, dead-letter addresses, and those that nobody wanted."""

import pytest

from ..broker_document import anycast
from .steps import abort, begin, leave, receive

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        addresses=anycast("DLQ"),
        settings={
            "#": {"dead-letter-address": "DLQ", "max-delivery-attempts": 2},
            "auto.#": {"dead-letter-address": "dead", "auto-create-dead-letter-resources": "true"},
            "none.#": {"dead-letter-address": "nowhere"},
            "endless.#": {"max-delivery-attempts": -1},
            "delay.#": {
                "redelivery-delay": 300,
                "redelivery-delay-multiplier": "2.0",
                "max-delivery-attempts": 4,
            },
            "ring.#": {"redelivery-delay": 60_000, "default-ring-size": 1, "max-delivery-attempts": 5},
            "wanted.#": {"send-to-dla-on-no-route": "true", "dead-letter-address": "auto.unrouted"},
        },
    ),
]


def refuse(connect, queue, body, times):
    """A consumer that NACKs a message so many times."""
    client = connect()
    client.subscribe(queue, prefetch_count=1)
    for _ in range(times):
        client.answer("NACK", client.message(body))
    leave(client)


def test_after_its_last_attempt_a_message_moves(client, connect, version, name, management):
    client.put(f"/queue/{name}", "x", own="header", type="t", priority=7)
    refuse(connect, f"/queue/{name}", "x", times=2)
    management.expect(name, messageCount=0, messagesKilled=1, messagesAcknowledged=0)
    client.subscribe("DLQ", selector=f"_AMQ_ORIG_ADDRESS = '{name}'")
    message = client.message("x")
    assert message["_AMQ_ORIG_ADDRESS"] == message["_AMQ_ORIG_QUEUE"] == name
    assert message["_AMQ_ORIG_MESSAGE_ID"]
    assert (message["own"], message["type"], message["priority"]) == ("header", "t", "7")
    assert message["redelivered"] == "false"
    client.answer("ACK", message)


ENDS = {
    "DISCONNECT": lambda client: client.disconnect(),
    "reset": lambda client: client.kill(),
    "ERROR": lambda client: client.provoke(),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_connection_is_a_failed_attempt(connect, name, management, end):
    """So a message that no client can deal with is a dead letter in the end, however politely they close."""
    connect().put(name, "x")
    for _ in range(2):
        client = connect()
        client.subscribe(name)
        client.message("x")
        ENDS[end](client)
        management.expect(name, consumerCount=0)
    management.expect(name, messageCount=0, messagesKilled=1)


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_connection_waits_for_the_redelivery_delay(client, name, management, end):
    queue = f"ring.{name}"
    client.put(queue, "x")
    client.subscribe(queue)
    client.message("x")
    ENDS[end](client)
    management.expect(queue, consumerCount=0, scheduledCount=1, deliveringCount=0)


def test_unsubscribe_is_no_failed_attempt_and_has_no_delay(client, name, management):
    queue = f"ring.{name}"
    client.put(queue, "x")
    for _ in range(6):
        client.subscribe(queue)
        client.message("x")
        leave(client)
    management.expect(queue, messageCount=1, messagesKilled=0, scheduledCount=0)


def test_abort_is_no_failed_attempt_and_no_redelivery(client, name, management):
    client.put(name, "x")
    client.subscribe(name)
    message = client.message("x")
    for _ in range(3):
        begin(client)
        client.answer("ACK", message, transaction="t")
        abort(client)
    client.nothing()
    management.expect(name, messageCount=1, deliveringCount=1, messagesKilled=0)
    client.answer("ACK", message)
    management.expect(name, messageCount=0, messagesAcknowledged=1)


def test_resources_are_made_for_each_origin(client, connect, name, management):
    for part in "ab":
        client.put(f"auto.{name}.{part}", part)
        refuse(connect, f"auto.{name}.{part}", part, times=2)
        management.expect(f"DLQ.auto.{name}.{part}", messageCount=1, address="dead", routingType="MULTICAST")
    receive(client, f"dead::DLQ.auto.{name}.a", "a")


def test_without_a_queue_at_the_address_the_message_is_dropped(connect, name, management):
    connect().put(f"none.{name}", "x")
    refuse(connect, f"none.{name}", "x", times=2)
    management.expect(f"none.{name}", messageCount=0, messagesKilled=1)


def test_no_limit_of_attempts(connect, name, management):
    connect().put(f"endless.{name}", "x")
    refuse(connect, f"endless.{name}", "x", times=15)
    management.expect(f"endless.{name}", messageCount=1, messagesKilled=0)


def test_the_delay_grows(client, name):
    client.put(f"delay.{name}", "x")
    client.subscribe(f"delay.{name}")
    message = client.message("x")
    for milliseconds in (300, 600):
        refused = client.in_ms(0)
        client.answer("NACK", message)
        message = client.message("x")
        assert message["redelivered"] == "true"
        assert client.in_ms(-refused) >= milliseconds - 1


def test_while_it_waits_a_message_is_scheduled(client, name, management):
    client.put(f"ring.{name}", "x")
    client.subscribe(f"ring.{name}")
    client.answer("NACK", client.message("x"))
    management.expect(f"ring.{name}", messageCount=1, scheduledCount=1, deliveringCount=0, messagesReplaced=0)
    client.nothing()


def test_a_full_ring_drops_before_the_delay_begins(client, name, management):
    queue = f"ring.{name}"
    client.subscribe(queue, prefetch_count=1)
    client.put(queue, "old", "new")
    client.answer("NACK", client.message("old"))
    management.expect(queue, scheduledCount=0, messagesReplaced=1)
    client.message("new")


def test_what_nobody_wanted_goes_to_the_dead_letters(client, name):
    client.subscribe("auto.unrouted", ack="auto")
    client.put(f"/topic/wanted.{name}", "nobody is here")
    assert client.message("nobody is here")["_AMQ_ORIG_ADDRESS"] == f"wanted.{name}"
    leave(client)
