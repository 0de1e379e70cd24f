"""Addresses that page, as a client and a look into the directory see them.

The PG numbers are those of the rows in which Artemis's behaviour was first written down.
"""

import re

import pytest

from .lasting import DURABLE, numbers, padded, take, texts
from .steps import leave, make_queue, several

#: Small pages; what may be read from them at a time is two pages' worth where nothing is said.
SMALL = {"page-size-bytes": "1K", "max-read-page-bytes": -1}
SETTINGS = {
    "five.#": {"max-size-messages": 5, **SMALL},
    "bytes.#": {"max-size-bytes": "10K", **SMALL},
    "always.#": {"max-size-messages": 0, **SMALL},
}
pytestmark = [pytest.mark.in_memory, pytest.mark.broker(settings=SETTINGS)]


@pytest.mark.parametrize("durable", [DURABLE, {}], ids=["durable", "not durable"])
def test_pg_1_an_address_pages_when_it_is_full(client, version, name, management, durable):
    queue = f"five.{name}"
    client.put(queue, *"1234", **durable)
    management.expect_address(queue, paging=False, numberOfPages=0)
    client.put(queue, *"567890", **durable)
    management.expect_address(queue, paging=True, timesPaged=1)
    management.expect(queue, messageCount=10, messagesAdded=10)
    client.subscribe(queue)
    for message in client.messages(*"1234567890"):
        client.answer("ACK", message)
    management.expect(queue, messageCount=0, messagesAcknowledged=10, pagedCount=0)
    management.expect_address(queue, paging=False, numberOfPages=0, pagesSize=0)


def test_pg_1_in_bytes(client, name, management):
    queue = f"bytes.{name}"
    client.put(queue, *padded(1, 50, 1000))
    address = management.address(queue)
    assert address["paging"] and address["addressSize"] < 30_000 and address["numberOfPages"] > 20
    assert take(client, queue, 50) == numbers(1, 50)
    management.expect_address(queue, paging=False, addressSize=0)


def test_pg_2_other_addresses_do_not_page(client, name, management):
    client.put(f"five.{name}.a", *padded(1, 20))
    client.put(f"five.{name}.b", *padded(1, 3))
    management.expect_address(f"five.{name}.a", paging=True)
    management.expect_address(f"five.{name}.b", paging=False)


def test_pg_3_all_new_messages_of_all_queues_page(connect, name, management):
    client, topic = connect(client_id=name), f"five.{name}"
    for subscriber in ("busy", "lazy"):
        client.subscribe(f"/topic/{topic}", id=subscriber, ack="client", durable_subscription_name=subscriber)
        leave(client, subscriber)
    client.put(f"/topic/{topic}", *padded(1, 20))
    busy = f"{topic}::{name}.busy"
    assert take(client, busy, 20) == numbers(1, 20)
    client.put(f"/topic/{topic}", *padded(21, 25))
    management.expect(f"{name}.busy", messageCount=5)
    management.expect_address(topic, paging=True)
    assert take(client, busy, 5) == numbers(21, 25)
    assert take(client, f"{topic}::{name}.lazy", 25) == numbers(1, 25)
    management.expect_address(topic, paging=False, numberOfPages=0)


def test_pg_4_page_files(lasting):
    lasting.start(settings=SETTINGS).connect().put("always.q", *padded(1, 30, 300), **DURABLE)
    pages = lasting.pages()
    assert len(pages) >= 10 and all(re.fullmatch(r"\d{9}\.page", path.name) for path in pages)
    assert all(path.stat().st_size < 2048 for path in pages)
    (directory,) = lasting.directories()
    assert (directory / "address.txt").read_text() == "always.q"
    lasting.stop()
    (directory / "address.txt").write_text("")
    assert lasting.start().drain("always.q") == numbers(1, 30)


def test_pg_5_a_file_goes_when_everybody_is_done_with_it(lasting):
    client = lasting.start(settings=SETTINGS).connect()
    client.put("always.q", *padded(1, 30, 300), **DURABLE)
    before = lasting.pages()
    client.subscribe("always.q", ack="client-individual", consumer_window_size="-1")
    messages = several(client, 30)
    assert texts(messages) == numbers(1, 30)
    for message in messages[10:20]:  # in the middle
        client.answer("ACK", message)
    client.put("other", "a round trip to the disk", **DURABLE)
    lasting.management.expect("always.q", messageCount=20)
    kept = [path for path in before if path.exists()]
    assert before[0] in kept and before[-1] in kept and len(before) - 6 <= len(kept) + 4 < len(before) + 2
    for message in messages[:10]:
        client.answer("ACK", message)
    lasting.management.expect_address("always.q", paging=True)
    client.put("other", "another", **DURABLE)
    assert not before[0].exists() and before[-1].exists()
    client.kill()
    assert lasting.again().drain("always.q") == numbers(21, 30)


def test_pg_6_page_mode_comes_and_goes(client, name, management):
    queue = f"five.{name}"
    for round_ in range(1, 4):
        client.put(queue, *padded(1, 30))
        management.expect_address(queue, paging=True, timesPaged=round_)
        assert take(client, queue, 30) == numbers(1, 30)
        management.expect_address(queue, paging=False, timesPaged=round_, numberOfPages=0)


def test_pg_7_directories_go_with_their_last_page(lasting):
    lasting.start(settings=SETTINGS)
    for _ in range(2):
        client = lasting.connect()
        for number in range(5):
            client.put(f"five.{number}", *padded(1, 20), **DURABLE)
        assert len(lasting.directories()) == 5
        lasting.again()
        for number in range(5):
            assert lasting.drain(f"five.{number}") == numbers(1, 20)
        lasting.again("stop")
        assert lasting.directories() == []


def test_pg_9_nothing_is_there_twice(client, name, management):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 40))
    client.subscribe(queue, id="look", ack="auto", browser="true")
    shown = several(client, 41)
    assert texts(shown[:-1]) == numbers(1, 40) and shown[-1]["browser"] == "end"
    management.expect(queue, messageCount=40, deliveringCount=0)
    assert texts_of(management, queue) == numbers(1, 40)
    assert take(client, queue, 40) == numbers(1, 40)


def test_pg_13_purge(client, name, management):
    queue = f"five.{name}"
    client.put(queue, *padded(1, 40), **DURABLE)
    assert management.ask("POST", f"/queues/{queue}/purge") == {"removed": 40}
    management.expect(queue, messageCount=0, pagedCount=0, messagesKilled=40)
    management.expect_address(queue, paging=False, numberOfPages=0, addressSize=0)
    client.put(queue, "new")
    assert take(client, queue, 1) == ["new"]


def test_pg_13_purge_when_the_last_consumer_goes(connect, name, management):
    queue = f"five.{name}"
    make_queue(management, queue, routingType="ANYCAST", purgeOnNoConsumers=True)
    client, consumer = connect(), connect()
    consumer.subscribe(queue, prefetch_count=1)
    client.put(queue, *padded(1, 40))
    management.expect_address(queue, paging=True)
    consumer.kill()
    management.expect(queue, messageCount=0)
    management.expect_address(queue, paging=False, numberOfPages=0, addressSize=0)


def test_pg_14_the_pages_of_a_passing_subscription_go_with_it(client, connect, name, management):
    subscriber, topic = connect(), f"five.{name}"
    subscriber.subscribe(f"/topic/{topic}", prefetch_count=1)
    client.put(f"/topic/{topic}", *padded(1, 40))
    management.expect_address(topic, paging=True)
    subscriber.kill()
    management.expect_address(topic, paging=False, numberOfPages=0, addressSize=0)


def test_pg_14_two_durable_subscriptions_over_a_restart(lasting):
    client = lasting.start(settings=SETTINGS).connect(client_id="c")
    for subscriber in "ab":
        client.subscribe("/topic/five.t", id=subscriber, durable_subscription_name=subscriber)
    client.put("/topic/five.t", *padded(1, 30), **DURABLE)
    client.kill()
    lasting.again()
    lasting.management.expect_address("five.t", paging=True)
    for subscriber in "ab":
        assert lasting.drain(f"c.{subscriber}") == numbers(1, 30)
    lasting.management.expect_address("five.t", paging=False, addressSize=0, numberOfPages=0)
    client = lasting.connect(client_id="c")
    client.subscribe("/topic/five.t", id="a", durable_subscription_name="a")
    client.put("/topic/five.t", "next", **DURABLE)
    client.message("next")


def test_pg_19_a_wildcard_queue_on_paging_addresses(client, connect, name, management):
    consumer = connect()
    consumer.subscribe(f"/topic/five.{name}.#", consumer_window_size="-1")
    sent = [f"{place} {word}" for place in range(1, 16) for word in ("a", "b")]
    for body in sent:
        client.put(f"/topic/five.{name}.{body[-1]}", body)
    got = [consumer.message() for _ in sent]
    for word in "ab":
        of_one = [frame.body.decode() for frame in got if frame.body.decode().endswith(word)]
        assert of_one == [body for body in sent if body.endswith(word)]
    management.expect_address(f"five.{name}.a", paging=True)
    for message in reversed(got):
        consumer.answer("ACK", message)
    for word in "ab":
        management.expect_address(f"five.{name}.{word}", paging=False, addressSize=0, numberOfPages=0)


def texts_of(management, queue):
    return [message["body"].partition(" ")[0] for message in management.messages(queue, size=200)]
