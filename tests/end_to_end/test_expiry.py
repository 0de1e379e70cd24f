"""Messages whose time is over: exactly when it is, wherever they are."""

import pytest

from ..broker_document import anycast
from .steps import receive

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        addresses=anycast("expired"),
        settings={
            "moved.#": {"expiry-address": "expired"},
            "auto.#": {"expiry-address": "past", "auto-create-expiry-resources": "true"},
            "short.#": {"expiry-delay": 300},
            "bounded.#": {"max-expiry-delay": 300},
            "patient.#": {"min-expiry-delay": 600_000},
            "eternal.#": {"no-expiry": "true"},
        },
    ),
]


def test_a_waiting_message_expires_by_itself(client, version, name, management):
    client.put(f"/queue/{name}", "goes", expires=client.in_ms(300))
    client.put(f"/queue/{name}", "stays", expires=client.in_ms(600_000))
    management.expect(name, messageCount=1, messagesExpired=1)
    receive(client, f"/queue/{name}", "stays")
    client.nothing()


def test_what_is_too_old_on_arrival_is_never_delivered(client, name, management):
    client.put(name, "first, so that the queue is there", "")
    client.put(name, "old", expires=1)
    management.expect(name, messagesExpired=1)
    receive(client, name, "first, so that the queue is there", "")
    client.nothing()


def test_a_message_in_delivery_is_its_consumer_s(client, name, management):
    client.subscribe(name, prefetch_count=1)
    client.put(name, "held", expires=client.in_ms(300))
    client.put(name, "waiting", expires=client.in_ms(300))
    held = client.message("held")
    management.expect(name, messagesExpired=1, messageCount=1, deliveringCount=1)
    client.answer("ACK", held)
    management.expect(name, messagesAcknowledged=1, messageCount=0)


def test_one_that_comes_back_too_late_expires(client, name, management):
    client.subscribe(name, prefetch_count=1)
    client.put(name, "held", expires=client.in_ms(300))
    client.put(name, "the clock", expires=client.in_ms(300))
    held = client.message("held")
    management.expect(name, messagesExpired=1)
    client.answer("NACK", held)
    management.expect(name, messagesExpired=2, messageCount=0)
    client.nothing()


def test_expired_messages_move(client, name, management):
    expires = client.in_ms(300)
    client.put(f"moved.{name}", "x", expires=expires, own="header")
    management.expect(f"moved.{name}", messageCount=0, messagesExpired=1, messagesKilled=0)
    client.subscribe("expired", selector=f"_AMQ_ORIG_ADDRESS = 'moved.{name}'", ack="auto")
    message = client.message("x")
    assert message["_AMQ_ACTUAL_EXPIRY"] == str(expires)
    assert message["_AMQ_ORIG_QUEUE"] == f"moved.{name}"
    assert message["expires"] == "0"
    assert message["own"] == "header"


def test_resources_are_made_for_each_origin(client, name, management):
    client.put(f"auto.{name}", "x", expires=client.in_ms(100))
    management.expect(f"auto.{name}", messagesExpired=1)
    management.expect(f"EXP.auto.{name}", messageCount=1, address="past")


@pytest.mark.parametrize("expires", [0, None, "later"])
def test_expiry_delay_is_for_messages_that_say_nothing(client, name, management, expires):
    queue = f"short.{name}"
    headers = {} if expires is None else {"expires": client.in_ms(600_000) if expires == "later" else expires}
    client.put(queue, "x", **headers)
    if expires == "later":
        client.put(queue, "the clock")
        management.expect(queue, messagesExpired=1, messageCount=1)
    else:
        management.expect(queue, messagesExpired=1, messageCount=0)


def test_max_expiry_delay_bounds(client, name, management):
    client.put(f"bounded.{name}", "asks for more", expires=client.in_ms(600_000))
    client.put(f"bounded.{name}", "asks for nothing")
    management.expect(f"bounded.{name}", messagesExpired=2)


def test_min_expiry_delay_bounds(client, name):
    client.subscribe(f"patient.{name}", ack="auto")
    client.put(f"patient.{name}", "x", expires=client.in_ms(1))
    assert int(client.message("x")["expires"]) > client.in_ms(500_000)


def test_no_expiry(client, name):
    client.put(f"eternal.{name}", "x", expires=1)
    client.subscribe(f"eternal.{name}", ack="auto")
    assert client.message("x")["expires"] == "0"


def test_the_subscriber_sees_when(client, version, name):
    expires = client.in_ms(600_000)
    client.subscribe(name, ack="auto")
    client.put(name, "x", expires=expires)
    assert client.message("x")["expires"] == str(expires)
