"""What happens to messages that leave otherwise than by a consumer, and to those that recur."""

import pytest

from stompring.broker import publish
from stompring.broker.clock import Recurrence

from .broker_fixture import MULTICAST, BrokerFixture, assert_nothing_held, bodies, join


def origin(world, queue):
    (ref,) = world.directory.queues[queue].dispatcher.in_order()
    return {name: value for name, value in ref.message.headers().items() if name.startswith("_AMQ_")}


@pytest.mark.parametrize("target", [None, "nowhere"])
def test_without_a_place_for_dead_letters_they_are_gone(target):
    world = BrokerFixture({"q": {"dead_letter_address": target, "max_delivery_attempts": 1}})
    queue = world.queue()
    world.send()
    join(queue, 1).nack()
    assert queue.messages_killed == 1
    assert_nothing_held(world)


def test_dead_letters_stay_in_their_own_queue():
    world = BrokerFixture({"#": {"dead_letter_address": "DLQ", "max_delivery_attempts": 1}})
    dead = world.queue("DLQ")
    world.send("DLQ")
    join(dead, 1).nack()
    assert dead.delivering == 1


def test_no_matching_filter_is_no_route():
    world = BrokerFixture({"q": {"dead_letter_address": "DLQ", "send_to_dla_on_no_route": True}})
    dead = world.queue("DLQ")
    world.queue(filter="colour = 'red'")
    world.send(headers={"colour": "red"})
    world.send(headers={"colour": "blue"})
    assert dead.count == 1


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


def test_queues_of_one_address_count_repeats_on_their_own():
    world = BrokerFixture()
    takers = [join(world.queue(name, "topic", MULTICAST)) for name in ("one", "two")]
    world.send("topic", due=world.now + 500, recurrence=Recurrence(500, 2))
    world.pass_time(5000)
    assert [len(taker.got) for taker in takers] == [3, 3]


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


def test_to_one_queue_by_its_full_name():
    world = BrokerFixture()
    one, two = world.queue("one", "a", filter="x = '1'"), world.queue("two", "a")
    publish.send(world.message("a", b"no"), queue=one)
    publish.send(world.message("a", b"yes", headers={"x": "1"}), queue=one)
    assert (bodies(one), bodies(two)) == ([b"yes"], [])
    assert (one.address.routed_messages, one.address.unrouted_messages) == (1, 1)


def test_stop_leaves_no_timer():
    world = BrokerFixture({"#": {"auto_delete_queues_delay": 1000}})
    join(world.queue(auto_delete=True)).close()
    world.send(due=world.now + 500)
    world.send(expires=world.now + 500)
    assert world.clock.calls
    world.broker.stop()
    assert not world.clock.calls
