"""Ring queues as a client sees them, counts read from the management API.

The RQ numbers are those of Artemis's own tests (RingQueueTest).
"""

import pytest

from .steps import begin, commit, leave, receive, say, several

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(settings={f"ring{n}.#": {"default-ring-size": n} for n in (1, 3, 10, 25, 100)}),
]


def ring(size, name):
    """A queue that is a ring of that size when it is made."""
    return f"ring{size}.{name}"


def drain(client, queue, *bodies):
    """The queue holds just these messages; it is empty afterwards."""
    receive(client, queue, *bodies, id="drain")
    client.nothing()
    leave(client, "drain")


def consume(client, queue, count):
    """Take so many messages, and give nothing else back."""
    client.subscribe(queue, id="consume", prefetch_count=1)
    for _ in range(count):
        client.answer("ACK", client.message())
    leave(client, "consume")
    client.inbox.clear()


def test_rq_1_the_newest_stays(client, name, management):
    queue = ring(1, name)
    for round_ in range(1, 51):
        client.put(queue, "A")
        management.expect(queue, messageCount=1)
        client.put(queue, "B")
        management.expect(queue, messageCount=1, messagesReplaced=round_)
        client.subscribe(queue)
        client.answer("ACK", client.message("B"))
        leave(client)


@pytest.mark.parametrize("undo", ["ABORT", "connection loss"])
def test_rq_2_rollback_into_a_full_ring(client, connect, name, management, undo):
    queue = ring(1, name)
    consumer = connect()
    consumer.subscribe(queue)
    client.put(queue, "m0")
    message = consumer.message("m0")
    management.expect(queue, deliveringCount=1)
    begin(consumer)
    consumer.answer("ACK", message, transaction="t")
    client.put(queue, "m1")
    consumer.message("m1")
    management.expect(queue, messageCount=2, deliveringCount=2, messagesReplaced=0)
    if undo == "ABORT":
        consumer.send("ABORT", {"transaction": "t"})
        consumer.send("DISCONNECT")
    else:
        consumer.kill()
    management.expect(queue, messageCount=1, deliveringCount=0, messagesReplaced=1)
    client.subscribe(queue)
    begin(client)
    client.answer("ACK", client.message("m1"), transaction="t")
    commit(client)
    management.expect(queue, messageCount=0, messagesAcknowledged=1)


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "DISCONNECT", "connection loss"])
def test_rq_3_consumer_close(client, connect, name, management, end):
    consumer, queue = connect(), ring(1, name)
    consumer.subscribe(queue)
    client.put(queue, "m0", "m1")
    consumer.messages("m0", "m1")
    management.expect(queue, messageCount=2, deliveringCount=2, messagesReplaced=0)
    if end == "connection loss":
        consumer.kill()
    else:
        consumer.ask(end, {"id": "s"})
    management.expect(queue, messageCount=1, deliveringCount=0, messagesReplaced=1)
    client.subscribe(queue)
    client.answer("ACK", client.message("m1"))
    management.expect(queue, messageCount=0, deliveringCount=0, messagesReplaced=1, messagesAcknowledged=1)


def test_rq_6_changing_the_size(client, name, management):
    queue = name
    client.put(queue, *(str(n) for n in range(100)))
    management.update(queue, ringSize=10)
    management.expect(queue, messageCount=100, ringSize=10, messagesReplaced=0)
    consume(client, queue, 95)
    management.expect(queue, messageCount=5)
    client.put(queue, *"abcde")
    management.expect(queue, messageCount=10, messagesReplaced=0)
    for replaced, body in enumerate("fghij", 1):
        client.put(queue, body)
        management.expect(queue, messageCount=10, messagesReplaced=replaced)
    consume(client, queue, 1)
    management.expect(queue, messageCount=9)
    management.update(queue, ringSize=5)
    management.expect(queue, messageCount=9, messagesReplaced=5)
    consume(client, queue, 4)
    management.expect(queue, messageCount=5)
    client.put(queue, "k")
    management.expect(queue, messageCount=5, messagesReplaced=6)
    management.update(queue, ringSize=10)
    client.put(queue, *"lmnop")
    management.expect(queue, messageCount=10, messagesReplaced=6)
    client.put(queue, "q")
    management.expect(queue, messageCount=10, messagesReplaced=7)
    drain(client, queue, *"hijklmnopq")


def test_a_ring_above_its_lowered_size_gives_up_one_for_each_that_comes(client, name, management):
    client.put(name, *"123456")
    management.update(name, ringSize=2)
    client.put(name, "7")
    management.expect(name, messageCount=6, messagesReplaced=1)
    management.ask("POST", f"/queues/{name}/trim")
    management.expect(name, messageCount=2, messagesReplaced=5)
    drain(client, name, "6", "7")


def test_rq_9_producers_at_once(connect, name, management):
    queue = ring(25, name)
    producers = [connect() for _ in range(25)]
    for number in range(25):
        for producer in producers:
            say(producer, queue, str(number).encode())
    for producer in producers:
        producer.nothing()
    management.expect(queue, messageCount=25, messagesAdded=625, messagesReplaced=600)


def test_a_scheduled_message_is_the_loser_when_it_falls_due(client, name, management):
    queue = ring(3, name)
    client.put(queue, "A", AMQ_SCHEDULED_DELAY=600_000)
    client.put(queue, *"BCD")
    management.expect(queue, messageCount=4, scheduledCount=1, messagesReplaced=0)
    (waiting,) = management.ask("GET", f"/queues/{queue}/scheduled")["data"]
    management.ask("POST", f"/queues/{queue}/scheduled/{waiting['messageID']}/deliver")
    management.expect(queue, messageCount=3, scheduledCount=0, messagesReplaced=1)
    drain(client, queue, *"BCD")


def test_with_free_places_the_latest_of_those_that_come_back_survive(client, connect, name, management):
    consumer, queue = connect(), ring(3, name)
    consumer.subscribe(queue, prefetch_count=4)
    client.put(queue, *"1234")
    consumer.messages(*"1234")
    client.put(queue, "5")
    consumer.kill()
    management.expect(queue, messageCount=3, messagesReplaced=2)
    drain(client, queue, *"345")


def test_a_nacked_message_loses_to_a_full_ring(client, name, management):
    queue = ring(1, name)
    client.subscribe(queue, prefetch_count=1)
    client.put(queue, "old", "new")
    client.answer("NACK", client.message("old"))
    client.message("new")
    management.expect(queue, messageCount=1, messagesReplaced=1, messagesKilled=0)


def test_the_receipt_of_a_send_means_that_its_eviction_has_happened(client, name, management):
    queue = ring(1, name)
    client.put(queue, "0")
    for n in range(1, 20):
        client.put(queue, str(n))
        assert management.queue(queue)["messagesReplaced"] == n  # at once, not some time later


def test_the_head_is_the_oldest_of_the_highest_priority(client, name, management):
    queue = ring(3, name)
    client.put(queue, "low", priority=1)
    client.put(queue, "high 1", "high 2", priority=9)
    client.put(queue, "middle", priority=5)
    management.expect(queue, messagesReplaced=1)
    drain(client, queue, "high 2", "middle", "low")


def test_a_transaction_enters_the_ring_at_commit(client, name, management):
    queue = ring(3, name)
    client.put(queue, "before")
    begin(client)
    client.put(queue, *"12345", transaction="t")
    management.expect(queue, messageCount=1, messagesReplaced=0)
    commit(client)
    management.expect(queue, messageCount=3, messagesReplaced=3)
    drain(client, queue, *"345")


def test_browsing_protects_nothing(client, name, management):
    queue = ring(3, name)
    client.put(queue, *"123")
    receive(client, queue, *"123", "", id="browse", browser="true")
    client.put(queue, "4")
    management.expect(queue, messageCount=3, messagesReplaced=1, deliveringCount=0)
    drain(client, queue, *"234")


def test_each_queue_of_a_topic_has_its_own_ring(client, name):
    topic = f"/topic/{ring(3, name)}"
    client.subscribe(topic, id="busy", ack="auto")
    client.subscribe(topic, id="slow", prefetch_count=1)
    client.put(topic, *"12345")
    got = several(client, 6)
    assert [m.body for m in got if m["subscription"] == "busy"] == [b"1", b"2", b"3", b"4", b"5"]
    slow = [m for m in got if m["subscription"] == "slow"]
    for expected in ("1", "3", "4", "5"):  # "1" is in delivery; of the other four the ring keeps three
        message = slow.pop() if slow else client.message()
        assert message.body == expected.encode()
        client.answer("ACK", message)


def test_a_paused_ring_still_evicts(client, name, management):
    queue = ring(3, name)
    client.put(queue, "1")
    management.update(queue, paused=True)
    client.put(queue, *"234")
    management.expect(queue, messageCount=3, messagesReplaced=1)


def test_an_expiring_message_that_was_evicted_counts_as_replaced(client, name, management):
    queue = ring(1, name)
    far = 4_000_000_000_000
    client.put(queue, "1", "2", expires=far)
    management.expect(queue, messageCount=1, messagesReplaced=1, messagesExpired=0)


def test_ring_size_can_be_taken_away(client, name, management):
    queue = ring(1, name)
    client.put(queue, "1")
    management.update(queue, ringSize=-1)
    client.put(queue, "2", "3")
    management.expect(queue, messageCount=3, ringSize=-1, messagesReplaced=0)
