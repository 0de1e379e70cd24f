"""What happens to messages that leave otherwise than by a consumer, and to those that recur."""

import pytest

from stompring.broker import publish
from stompring.broker.recurrence import FOREVER, Recurrence
from stompring.broker.transaction import Transaction

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture, assert_nothing_held, bodies, join


def origin(world, queue):
    (ref,) = world.directory.queues[queue].dispatcher.in_order()
    return {name: value for name, value in ref.message.headers().items() if name.startswith("_AMQ_")}


def test_dead_letters_after_the_last_attempt():
    world = BrokerFixture({"q": {"dead_letter_address": "DLQ", "max_delivery_attempts": 3}})
    dead = world.queue("DLQ")
    queue = world.queue()
    message = world.send(body=b"poison", routing_type=ANYCAST, priority=7, durable=True)
    taker = join(queue, 1)
    for _ in range(3):
        assert dead.count == 0
        taker.nack()
    assert (bodies(dead), queue.messages_killed, queue.message_count) == ([b"poison"], 1, 0)
    assert origin(world, "DLQ") == {
        "_AMQ_ORIG_ADDRESS": "q",
        "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": str(message.number),
        "_AMQ_ORIG_ROUTING_TYPE": "1",
        "_AMQ_ORIG_REASON": "max-delivery-attempts",
    }
    (copy,) = dead.dispatcher.in_order()
    assert (copy.message.traits.priority, copy.message.traits.durable) == (7, True)


@pytest.mark.parametrize("target", [None, "nowhere"])
def test_without_a_place_for_dead_letters_they_are_gone(target):
    world = BrokerFixture({"q": {"dead_letter_address": target, "max_delivery_attempts": 1}})
    queue = world.queue()
    world.send()
    join(queue, 1).nack()
    assert queue.messages_killed == 1
    assert_nothing_held(world)


@pytest.mark.parametrize("unlimited", [-1, 0])
def test_any_number_of_attempts(unlimited):
    world = BrokerFixture({"q": {"max_delivery_attempts": unlimited, "dead_letter_address": "DLQ"}})
    queue = world.queue()
    world.send()
    taker = join(queue, 1)
    for _ in range(50):
        taker.nack()
    assert taker.deliveries == list(range(1, 52))


def test_dead_letters_stay_in_their_own_queue():
    world = BrokerFixture({"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    dead = world.queue("DLQ")
    world.send("DLQ")
    join(dead, 1).nack()
    assert dead.delivering == 1


def test_auto_created_dead_letter_queue_takes_only_its_own_address():
    settings = {
        "dead_letter_address": "DLA",
        "max_delivery_attempts": 1,
        "auto_create_dead_letter_resources": True,
    }
    world = BrokerFixture({"#": settings})
    for name in ("one", "it's"):
        queue = world.queue(name)
        world.send(name, name.encode())
        join(queue, 1).nack()
    one, other = world.directory.queues["DLQ.one"], world.directory.queues["DLQ.it's"]
    assert (bodies(one), bodies(other)) == ([b"one"], [b"it's"])
    assert one.attributes.routing_type is MULTICAST and one.address.name == "DLA"


def test_no_route_goes_to_the_dead_letters_where_asked():
    world = BrokerFixture({"lost": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    dead = world.queue("DLQ")
    world.send("lost", b"1")
    world.send("dropped", b"2")
    assert bodies(dead) == [b"1"]
    assert world.address("lost").unrouted_messages == world.address("dropped").unrouted_messages == 1
    assert origin(world, "DLQ")["_AMQ_ORIG_ADDRESS"] == "lost"


def test_no_matching_filter_is_no_route():
    world = BrokerFixture({"q": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    dead = world.queue("DLQ")
    world.queue(filter="colour = 'red'")
    world.send(headers={"colour": "red"})
    world.send(headers={"colour": "blue"})
    assert dead.count == 1


def test_expired_messages_move_with_their_expiry():
    world = BrokerFixture({"q": {"expiry_address": "EXP"}})
    world.queue("EXP")
    queue = world.queue()
    expires = world.now + 500
    message = world.send(body=b"old", expires=expires, routing_type=MULTICAST)
    assert queue.count == 0, "a multicast message is not for an anycast queue"
    message = world.send(body=b"old", expires=expires)
    world.pass_time(375)
    assert queue.count == 1
    world.pass_time(125)
    assert (queue.count, queue.messages_expired) == (0, 1)
    assert origin(world, "EXP") == {
        "_AMQ_ORIG_ADDRESS": "q",
        "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": str(message.number),
        "_AMQ_ORIG_REASON": "expired",
        "_AMQ_ACTUAL_EXPIRY": str(expires),
    }
    world.pass_time(3600_000)
    assert world.directory.queues["EXP"].count == 1, "the copy does not expire"


def test_expiry_queue_does_not_feed_itself():
    world = BrokerFixture({"#": {"expiry_address": "EXP"}})
    expired = world.queue("EXP")
    world.send("EXP", expires=world.now + 125)
    world.pass_time(500)
    assert (expired.count, expired.messages_expired) == (0, 1)


def test_auto_created_expiry_queue():
    world = BrokerFixture(
        {"q": {"expiry_address": "EXA", "auto_create_expiry_resources": True, "expiry_queue_prefix": "X-"}}
    )
    world.queue()
    world.send(body=b"1", expires=world.now + 125)
    world.pass_time(125)
    assert bodies(world.directory.queues["X-q"]) == [b"1"]


def test_a_copy_of_a_copy_tells_of_its_last_place_only():
    world = BrokerFixture(
        {"q": {"expiry_address": "p"}, "p": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}}
    )
    world.queue("DLQ")
    world.queue()
    second = world.queue("p")
    world.send(expires=world.now + 125, headers={"user": "header"})
    world.pass_time(125)
    join(second, 1).nack()
    moved = origin(world, "DLQ")
    assert moved["_AMQ_ORIG_ADDRESS"] == "p" and "_AMQ_ACTUAL_EXPIRY" not in moved
    (ref,) = world.directory.queues["DLQ"].dispatcher.in_order()
    assert ref.message.header(b"user") == b"header"


def test_period_and_repeat():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue)
    world.send(body=b"tick", due=world.now + 1000, recurrence=Recurrence(500, 3))
    got = []
    for _ in range(8):
        world.pass_time(500)
        got.append(len(taker.got))
    assert got == [0, 1, 2, 3, 4, 4, 4, 4]
    assert len({message.number for message in taker.got}) == 4
    taker.ack()
    assert (queue.messages_added, queue.messages_acknowledged) == (4, 4)
    assert_nothing_held(world)
    assert not world.clock.calls


def test_queues_of_one_address_count_repeats_on_their_own():
    world = BrokerFixture()
    takers = [join(world.queue(name, "topic", MULTICAST)) for name in ("one", "two")]
    world.send("topic", due=world.now + 500, recurrence=Recurrence(500, 2))
    world.pass_time(5000)
    assert [len(taker.got) for taker in takers] == [3, 3]


def test_forever_until_it_is_killed():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue, auto=True)
    world.send(due=world.now + 500, recurrence=Recurrence(500, FOREVER))
    world.pass_time(10_000)
    assert (len(taker.got), queue.scheduled_count) == (20, 1)
    queue.purge()
    world.pass_time(10_000)
    assert len(taker.got) == 20
    assert_nothing_held(world)


def test_cron_with_a_series():
    world = BrokerFixture()
    queue = world.queue()
    taker = join(queue, auto=True)
    recurrence = Recurrence(500, 2, "* * * * *", 1000)
    first = recurrence.next_cron(world.now)
    assert first is not None
    world.send(due=first, recurrence=recurrence)
    world.pass_time(first - world.now + 875)
    assert len(taker.got) == 0
    world.pass_time(125 + 1000)
    assert len(taker.got) == 3
    world.pass_time(60_000)
    assert len(taker.got) == 6
    assert queue.scheduled_count == 1


def test_a_scheduled_message_in_a_transaction_waits_for_the_commit():
    world = BrokerFixture()
    queue = world.queue()
    transaction = Transaction(world.broker)
    message = world.message()
    transaction.send(
        1, lambda: message.address, lambda: publish.send(message, world.now + 500), durable=False
    )
    assert queue.scheduled_count == 0
    transaction.commit()
    assert queue.scheduled_count == 1
    world.pass_time(500)
    assert queue.count == 1


def test_to_one_queue_by_its_full_name():
    world = BrokerFixture()
    one, two = world.queue("one", "a", filter="x = '1'"), world.queue("two", "a")
    publish.send_to_queue(one, world.message("a", b"no"))
    publish.send_to_queue(one, world.message("a", b"yes", headers={"x": "1"}))
    assert (bodies(one), bodies(two)) == ([b"yes"], [])
    assert (one.address.routed_messages, one.address.unrouted_messages) == (1, 1)


def test_stop_leaves_no_timer():
    world = BrokerFixture({"#": {"auto_delete_queues_delay": 1000}})
    queue = world.queue(auto_delete=True)
    join(queue).close()
    world.send(due=world.now + 500)
    world.send(expires=world.now + 500)
    assert world.clock.calls
    world.broker.stop()
    assert not world.clock.calls
