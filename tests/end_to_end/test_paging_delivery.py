"""The rules of delivery hold for paged messages: order, transactions, selectors, expiry, priorities, redelivery."""

import pytest

from .lasting import DURABLE, numbers, padded, take, texts
from .steps import abort, begin, commit, leave, several

#: Small pages; what may be read from them at a time is two pages' worth where nothing is said.
SMALL = {"page-size-bytes": "1K", "max-read-page-bytes": -1}
SETTINGS = {
    "five.#": {"max-size-messages": 5, **SMALL},
    "read.#": {"max-size-messages": 0, **SMALL, "max-read-page-messages": 10},
    "ring.#": {"max-size-messages": 0, **SMALL, "default-ring-size": 4},
    "exact.#": {"max-size-messages": 0, **SMALL, "default-ring-size": 4, "ring-counts-paged": "true"},
}
pytestmark = [pytest.mark.in_memory, pytest.mark.broker(settings=SETTINGS)]
LASTING = {"settings": SETTINGS}


# ---- order (PG-8)


def test_order_after_a_part_was_acknowledged(client, connect, name):
    consumer, queue = connect(), f"five.{name}"
    client.put(queue, *padded(1, 60))
    consumer.subscribe(queue, ack="client", prefetch_count=20)
    consumer.answer("ACK", several(consumer, 20)[9])
    consumer.kill()
    assert take(client, queue, 50) == numbers(11, 60)


@pytest.mark.parametrize("end", ["ABORT", "connection loss"])
def test_order_over_rollback(client, connect, name, management, end):
    consumer, queue = connect(), f"five.{name}"
    client.put(queue, *padded(1, 60))
    consumer.subscribe(queue, prefetch_count=30)
    begin(consumer)
    for message in several(consumer, 30):
        consumer.answer("ACK", message, transaction="t")
    if end == "ABORT":
        abort(consumer)
        consumer.disconnect()
    else:
        consumer.kill()
    management.expect(queue, messageCount=60, deliveringCount=0)
    assert take(client, queue, 60) == numbers(1, 60)


def test_order_over_rollback_and_restart(lasting):
    client = lasting.start(**LASTING).connect()
    client.put("five.q", *padded(1, 60), **DURABLE)
    client.subscribe("five.q", prefetch_count=30)
    begin(client)
    for message in several(client, 30):
        client.answer("ACK", message, transaction="t")
    assert lasting.again().drain("five.q") == numbers(1, 60)


def test_pg_11_acknowledged_out_of_order(lasting, how):
    client = lasting.start(**LASTING).connect()
    client.put("five.q", *padded(1, 100), **DURABLE)
    client.subscribe("five.q", consumer_window_size="-1")
    client.answer("ACK", several(client, 100)[76])
    lasting.again(how)
    lasting.management.expect("five.q", messageCount=99)
    assert lasting.drain("five.q") == [number for number in numbers(1, 100) if number != "77"]


# ---- transactions (4.3)


def test_messages_of_a_transaction_appear_at_commit(client, name, management):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 10))
    for end in ("ABORT", "COMMIT"):
        begin(client)
        client.put(queue, *padded(11, 15), transaction="t")
        management.expect(queue, messageCount=10)
        client.ask(end, {"transaction": "t"})
    management.expect(queue, messageCount=15)
    assert take(client, queue, 15) == numbers(1, 15)


def test_transactions_over_pages_and_memory(lasting, how):
    client = lasting.start(**LASTING).connect()
    client.put("five.q", *padded(1, 10), **DURABLE)
    begin(client, "done")
    begin(client, "open")
    for transaction in ("open", "done"):
        client.put("five.q", f"paged {transaction}", transaction=transaction, **DURABLE)
        client.put("memory", f"memory {transaction}", transaction=transaction, **DURABLE)
    commit(client, "done")
    for _ in range(2):  # the second time nothing but pages may remember it
        lasting.again(how)
        lasting.management.expect("five.q", messageCount=11)
    assert lasting.drain("five.q") == [*numbers(1, 10), "paged"]
    assert lasting.drain("memory") == ["memory"]


def test_acknowledged_in_a_transaction(lasting):
    client = lasting.start(**LASTING).connect()
    client.put("five.q", *padded(1, 20), **DURABLE)
    client.subscribe("five.q", consumer_window_size="-1")
    messages = several(client, 20)
    for end, chosen in (("COMMIT", messages[5:10]), ("ABORT", messages[10:15])):
        begin(client, end)
        for message in chosen:
            client.answer("ACK", message, transaction=end)
        client.ask(end, {"transaction": end})
    assert lasting.again().drain("five.q") == [*numbers(1, 5), *numbers(11, 20)]


# ---- counters (PG-10)


def test_pg_10_counters_of_an_active_and_a_lazy_queue(lasting):
    client = lasting.start(**LASTING).connect(client_id="c")
    for subscriber in ("active", "lazy"):
        client.subscribe("/topic/five.t", id=subscriber, ack="client", durable_subscription_name=subscriber)
        leave(client, subscriber)
    client.put("/topic/five.t", *padded(1, 200, 50), **DURABLE)
    assert lasting.drain("c.active") == numbers(1, 200)
    lasting.management.expect("c.active", messageCount=0, messagesAdded=200, messagesAcknowledged=200)
    lasting.management.expect("c.lazy", messageCount=200, messagesAdded=200, messagesAcknowledged=0)
    lasting.again()
    lasting.management.expect("c.active", messageCount=0)
    lasting.management.expect("c.lazy", messageCount=200)
    assert lasting.drain("c.lazy") == numbers(1, 200)


# ---- expiry (PG-12), schedules, priorities


def test_pg_12_expired_messages_among_others(client, name, management):
    queue = f"five.{name}"
    soon = client.in_ms(3000)
    for first in range(1, 200, 10):
        client.put(queue, *padded(first, first + 8, 50), expires=soon)
        client.put(queue, str(first + 9))
    client.subscribe(queue, id="late", ack="client-individual", prefetch_count=1)
    management.expect(queue, deliveringCount=1)
    client.time.sleep(max(0.0, soon / 1000 - client.time.now()) + 0.1)
    management.expect(queue, messagesExpired=179)  # one is in delivery
    leave(client, "late")
    client.inbox.clear()
    assert take(client, queue, 20) == [str(number) for number in range(10, 201, 10)]
    management.expect_address(queue, paging=False)


def test_scheduled_messages_wait_in_pages(client, name, management):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 20))
    due = client.in_ms(1000)
    client.put(queue, "scheduled", AMQ_SCHEDULED_TIME=due)
    management.expect(queue, messageCount=21, scheduledCount=1)
    client.subscribe(queue, consumer_window_size="-1")
    assert texts(several(client, 20)) == numbers(1, 20)
    client.message("scheduled")
    assert client.in_ms(0) >= due


def test_higher_priorities_come_first(client, name):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 20), priority=4)
    client.put(queue, *padded(21, 25), priority=9)
    client.put(queue, *padded(26, 30), priority=0)
    expected = [*numbers(21, 25), *numbers(1, 20), *numbers(26, 30)]
    assert take(client, queue, 30) == expected


def test_paged_priorities_over_a_restart(lasting):
    client = lasting.start(**LASTING).connect()
    client.put("five.q", *padded(1, 20), priority=4, **DURABLE)
    client.put("five.q", *padded(21, 25), priority=9, **DURABLE)
    client.put("five.q", "scheduled", AMQ_SCHEDULED_DELAY=600_000, **DURABLE)
    lasting.again()
    lasting.management.expect("five.q", messageCount=26, scheduledCount=1)
    assert lasting.drain("five.q") == [*numbers(21, 25), *numbers(1, 20)]


# ---- windows and slow subscribers (PG-15, PG-16)


def test_pg_15_a_limit_to_what_is_read(client, name, management):
    queue = f"read.{name}"
    client.put(queue, *padded(1, 100, 50))
    client.subscribe(queue, ack="client", consumer_window_size="-1")
    got = several(client, 10)
    client.nothing()
    management.expect(queue, messageCount=100, deliveringCount=10)
    while len(got) < 100:
        client.answer("ACK", got[-1])
        got += several(client, 10)
    client.answer("ACK", got[-1])
    assert texts(got) == numbers(1, 100)


def test_pg_16_a_lazy_subscriber_keeps_the_others_apart(client, connect, name, management):
    lazy, busy, topic = connect(), connect(), f"/topic/five.{name}"
    lazy.subscribe(topic, prefetch_count=1)
    busy.subscribe(topic, ack="auto")
    for first in range(1, 500, 50):
        client.put(topic, *padded(first, first + 49, 50))
    assert texts(several(busy, 500)) == numbers(1, 500)
    management.expect_address(f"five.{name}", paging=True)
    assert texts([lazy.message()]) == ["1"]


# ---- selectors (PG-17), browsing (PG-18)


def test_pg_17_selectors_do_not_starve(client, name, management):
    queue = f"read.{name}"
    client.put(queue, *padded(1, 200, 50), colour="blue")
    client.put(queue, "red 1", "red 2", colour="red")
    client.subscribe(queue, id="red", selector="colour = 'red'")
    assert texts([client.message(), client.message()]) == ["red", "red"]
    assert take(client, queue, 200) == numbers(1, 200)


def test_pg_18_browsing_with_a_selector(client, name, management):
    queue = f"five.{name}"
    for number in range(1, 61):
        client.put(queue, str(number), third=number % 3 == 0)
    client.subscribe(queue, id="look", ack="auto", browser="true", selector="third = 'True'")
    shown = several(client, 21)
    assert texts(shown[:-1]) == [str(number) for number in range(3, 61, 3)]
    assert shown[-1]["browser"] == "end"
    found = management.ask("GET", f"/queues/{queue}/messages", filter="third = 'True'", size=100)
    assert found["count"] == 20
    assert take(client, queue, 60) == numbers(1, 60)


def test_one_paged_message_is_removed(client, name, management):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 30))
    doomed = management.messages(queue, size=100)[19]
    assert doomed["body"].startswith("20 ")
    management.ask("DELETE", f"/queues/{queue}/messages/{doomed['messageID']}")
    assert take(client, queue, 29) == [number for number in numbers(1, 30) if number != "20"]


# ---- redelivery, groups, rings


def test_attempts_of_paged_messages(lasting):
    settings = {**SETTINGS, "#": {"max-delivery-attempts": 2, "dead-letter-address": "DLQ"}}
    client = lasting.start(settings=settings).connect()
    client.put("DLQ", "so that it is there")
    client.put("five.q", *padded(1, 20), **DURABLE)
    assert take(client, "five.q", 5) == numbers(1, 5)
    client.subscribe("five.q", prefetch_count=1)
    client.answer("NACK", client.message())
    leave(client)
    client = lasting.again().connect()
    assert take(client, "five.q", 1, ack="NACK") == ["6"]
    lasting.management.expect("DLQ", messageCount=1)
    assert lasting.drain("five.q") == numbers(7, 20)


def test_groups_stay_with_their_consumer(client, connect, name):
    queue = f"five.{name}"
    consumers = [connect(), connect()]
    for number, consumer in enumerate(consumers):
        consumer.subscribe(queue, id=str(number), prefetch_count=5)
    for number in range(40):
        client.put(queue, f"{number % 2} {number}", JMSXGroupID=f"g{number % 2}")
    for consumer in consumers:
        got = []
        for _ in range(20):
            message = consumer.message()
            got.append(message)
            consumer.answer("ACK", message)
        assert len({message["JMSXGroupID"] for message in got}) == 1
        order = [int(message.body.split()[1]) for message in got]
        assert order == sorted(order)


def test_rings_that_page(lasting):
    client = lasting.start(**LASTING).connect()
    for queue in ("ring.q", "exact.q"):
        client.put(queue, *padded(1, 30), **DURABLE)
    lasting.management.expect("exact.q", messageCount=4, messagesReplaced=26)
    lasting.again()
    lasting.management.expect("exact.q", messageCount=4)
    assert lasting.drain("exact.q") == numbers(27, 30)
    kept = lasting.drain("ring.q")  # what is in pages does not count, so some are left, the newest among them
    assert kept[-1] == "30" and kept == sorted(kept, key=int)
