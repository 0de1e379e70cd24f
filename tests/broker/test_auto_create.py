"""Auto-creation and auto-deletion."""

import pytest

from stompring.broker.directory import CHECKED_AT_ONCE, CHECKED_PER_CREATION, UNUSED_AFTER, allow_all
from stompring.errors import NotFound, Refused
from stompring.settings.model import QueueConfiguration

from .broker_fixture import ANYCAST, MULTICAST, BrokerFixture, join


def test_an_untyped_send_never_changes_an_address():
    world = BrokerFixture()  # whose default type is MULTICAST
    world.queue("a")
    address = world.broker.auto_create.address_for_send("a", None, allow_all)
    assert address.routing_types == {ANYCAST}


def test_sending_the_other_type_adds_it():
    world = BrokerFixture()
    queue = world.queue("a")
    address = world.broker.auto_create.address_for_send("a", MULTICAST, allow_all)
    assert address.routing_types == {ANYCAST, MULTICAST}
    world.send("a", routing_type=MULTICAST)
    assert queue.count == 0


def test_a_consumer_reads_the_queue_of_the_same_name_or_the_least_read():
    world = BrokerFixture()
    one, two = world.queue("one", "a"), world.queue("two", "a")
    join(one)
    assert world.broker.auto_create.queue_to_consume("a", allow_all) is two
    own = world.queue("a", "a")
    assert world.broker.auto_create.queue_to_consume("a", allow_all) is own


def durable(**more):
    return QueueConfiguration("client.sub", "topic", MULTICAST, auto_created=True, **more)


def test_a_durable_subscription_is_found_again():
    world = BrokerFixture()
    auto_create = world.broker.auto_create
    queue = auto_create.subscription_queue(durable(), allow_all)
    assert auto_create.subscription_queue(durable(), allow_all) is queue
    assert auto_create.subscription_queue(durable(filter="a = '1'"), allow_all) is queue
    assert queue.attributes.filter == "a = '1'"
    join(queue)
    with pytest.raises(Refused, match="in use with another selector"):
        auto_create.subscription_queue(durable(), allow_all)
    world.queue("client.sub2", "q")
    with pytest.raises(Refused, match="exists on address q, not on topic"):
        auto_create.subscription_queue(QueueConfiguration("client.sub2", "topic", MULTICAST), allow_all)


def made(world, name="a"):
    world.broker.auto_create.address_for_send(name, ANYCAST, allow_all)
    return world.directory.queue(name)


def test_a_queue_that_was_never_used_stays():
    world = BrokerFixture()
    queue = made(world)
    world.send("a", expires=world.now + 125)
    world.pass_time(1000)
    assert queue.message_count == 0 and not queue.deleted


def test_or_goes_where_the_usage_check_is_skipped():
    world = BrokerFixture({"#": {"auto_delete_queues_skip_usage_check": True}})
    queue = made(world)
    world.send("a", expires=world.now + 125)
    world.pass_time(1000)
    assert queue.deleted


def test_a_queue_with_messages_goes_when_they_have_expired():
    world = BrokerFixture()
    queue = made(world)
    taker = join(queue, 0)
    world.send("a", expires=world.now + 500)
    taker.close()
    assert not queue.deleted
    world.pass_time(500)
    assert queue.deleted


def test_delays_count_from_the_last_consumer():
    world = BrokerFixture({"#": {"auto_delete_queues_delay": 1000, "auto_delete_addresses_delay": 500}})
    queue = made(world)
    join(queue).close()
    world.pass_time(750)
    join(queue).close()
    world.pass_time(875)
    assert not queue.deleted, "the delay began anew"
    world.pass_time(125)
    assert queue.deleted and "a" in world.directory.addresses
    world.pass_time(500)
    assert "a" not in world.directory.addresses
    assert not world.clock.calls


def test_a_consumer_that_comes_within_the_delay_keeps_the_queue():
    world = BrokerFixture({"#": {"auto_delete_queues_delay": 1000}})
    queue = made(world)
    join(queue).close()
    join(queue)
    world.pass_time(5000)
    assert not queue.deleted


@pytest.mark.parametrize("setting", ["auto_delete_queues", "auto_delete_addresses"])
def test_switched_off(setting):
    world = BrokerFixture({"#": {setting: False}})
    queue = made(world)
    join(queue).close()
    assert queue.deleted is (setting != "auto_delete_queues")
    assert "a" in world.directory.addresses


def test_what_was_configured_stays():
    queue = BrokerFixture().queue()
    join(queue).close()
    assert not queue.deleted


# ---- addresses that never had a queue


def sent(world, name="t", messages=1):
    """An address that was made for messages to a topic that nobody reads."""
    address = world.broker.auto_create.address_for_send(name, MULTICAST, allow_all)
    for _ in range(messages):
        world.send(name)
    return address


def test_an_address_that_nobody_reads_goes_when_nothing_is_sent_any_more():
    world = BrokerFixture()
    address = sent(world)
    assert address.unrouted_messages == 1
    world.pass_time(UNUSED_AFTER - 125)
    assert not address.deleted
    world.pass_time(125)
    assert address.deleted and not world.directory.addresses
    assert not world.clock.calls


def test_an_address_stays_while_somebody_sends_there():
    world = BrokerFixture()
    address = sent(world)
    for _ in range(5):
        world.pass_time(UNUSED_AFTER - 125)
        world.send("t")
    assert world.directory.addresses["t"] is address and not address.deleted
    world.pass_time(2 * UNUSED_AFTER)
    assert address.deleted and not world.clock.calls


def test_an_address_that_gets_a_queue_after_all_goes_with_it():
    world = BrokerFixture()
    address = sent(world)
    queue = world.queue("q", "t", MULTICAST, auto_created=True, auto_delete=True)
    world.pass_time(2 * UNUSED_AFTER)
    assert not address.deleted and not world.clock.calls
    join(queue).close()
    assert address.deleted


def test_the_delay_of_an_address_counts_where_it_is_longer():
    world = BrokerFixture({"slow.#": {"auto_delete_addresses_delay": 4 * UNUSED_AFTER}})
    slow, quick = sent(world, "slow.t"), sent(world, "t")
    world.pass_time(UNUSED_AFTER)
    assert quick.deleted
    world.pass_time(3 * UNUSED_AFTER - 125)
    assert not slow.deleted
    world.pass_time(125)
    assert slow.deleted


def test_an_address_that_nobody_reads_stays_where_that_is_switched_off():
    world = BrokerFixture({"#": {"auto_delete_addresses": False}})
    address = sent(world)
    assert not world.clock.calls
    world.pass_time(2 * UNUSED_AFTER)
    assert not address.deleted


def test_an_address_stays_while_a_wildcard_address_holds_its_messages():
    world = BrokerFixture()
    queue = world.queue("all", "t.#", MULTICAST)
    address = sent(world, "t.a")
    world.pass_time(3 * UNUSED_AFTER)
    assert queue.message_count == 1 and not address.deleted
    queue.purge()
    world.pass_time(UNUSED_AFTER)
    assert address.deleted


def test_an_address_that_was_made_for_a_queue_that_may_not_be_goes():
    world = BrokerFixture({"#": {"auto_create_queues": False}})
    for refused in (
        lambda: world.broker.auto_create.queue_to_consume("a", allow_all),
        lambda: world.broker.auto_create.queue_for("b", "q", ANYCAST, allow_all),
    ):
        with pytest.raises(NotFound):
            refused()
    assert set(world.directory.addresses) == {"a", "b"}
    world.pass_time(UNUSED_AFTER)
    assert not world.directory.addresses and not world.clock.calls


def test_many_addresses_go_a_few_at_a_time():
    world = BrokerFixture()
    for number in range(3 * CHECKED_AT_ONCE):
        sent(world, f"t{number}")
    (look,) = world.clock.calls
    world.clock.rightNow += UNUSED_AFTER / 1000  # and nothing is called yet
    look.func()
    assert len(world.directory.addresses) == 2 * CHECKED_AT_ONCE
    sent(world, "new")  # a creation deletes others
    assert len(world.directory.addresses) == 2 * CHECKED_AT_ONCE + 1 - CHECKED_PER_CREATION
    look.cancel()
    world.settle_down()
    assert set(world.directory.addresses) == {"new"}
    world.pass_time(UNUSED_AFTER)
    assert not world.directory.addresses and not world.clock.calls


def test_a_queue_without_messages_goes_at_once_however_much_else_is_to_be_done():
    world = BrokerFixture()
    world.slice_finely()
    full = world.queue("full")
    for _ in range(100):
        world.send("full")
    full.purge()
    jobs = len(world.broker.background)
    for number in range(20):
        queue = world.queue(f"s{number}", f"t{number}", MULTICAST, auto_created=True, auto_delete=True)
        taker = join(queue, auto=True)
        world.send(f"t{number}")
        taker.close()
        assert taker.got and set(world.directory.queues) == set(world.directory.addresses) == {"full"}
    assert full.message_count and len(world.broker.background) == jobs


def test_no_timer_for_unread_addresses_is_left_at_the_end():
    world = BrokerFixture()
    sent(world)
    world.broker.stop()
    assert not world.clock.calls
