"""Consumers below the slow-consumer-threshold."""

from dataclasses import replace

import pytest

from stompring.settings.model import SlowConsumerPolicy, ThresholdUnit

from .broker_fixture import BrokerFixture, Taker

PERIOD = 5000


class Client(Taker):
    """A consumer that can be closed."""

    def __init__(self, **more):
        super().__init__(**more)
        self.ends = []

    def cancelled(self, reason):
        """As a session does it."""
        self.ends.append(reason)
        self.queue.remove_consumer(self, [])


def world_with(threshold=10, **settings):
    values = {f"slow_consumer_{name}": value for name, value in settings.items()}
    world = BrokerFixture({"q": {"slow_consumer_threshold": threshold, **values}})
    return world, world.queue()


def seconds(world, number, sent=0, taken=None):
    """Let seconds pass, in each of which ``sent`` messages come and consumers take so many."""
    for _ in range(number):
        for _ in range(sent):
            world.send()
        for client, count in (taken or {}).items():
            client.settled += count
        world.pass_time(1000)


def test_nobody_is_looked_at_without_a_threshold():
    world, queue = world_with(-1)
    queue.add_consumer(Client())
    seconds(world, 30, sent=20)
    assert not world.clock.calls
    assert world.broker.slow_consumers.slow == 0


def test_notify_leaves_it_alone(caplog):
    world, queue = world_with(10)
    slow = Client()
    slow.remote = "203.0.113.9:4000"
    queue.add_consumer(slow)
    seconds(world, 21, sent=30)
    assert slow.ends == [] and world.broker.slow_consumers.notified == 4
    assert world.broker.slow_consumers.slow == 1
    told = [
        record.getMessage() for record in caplog.records if "slow consumer of queue q" in record.getMessage()
    ]
    assert told[0].startswith("203.0.113.9:4000: ") and len(told) == 2, "one line in ten seconds"
    assert "1 more were too slow" in told[1]
    seconds(world, 6, sent=0, taken={slow: 100})
    assert world.broker.slow_consumers.slow == 0


@pytest.mark.parametrize("exclusive", [True, False])
def test_who_stands_by_is_not_slow(exclusive):
    world, queue = world_with(10, policy=SlowConsumerPolicy.KILL)
    if exclusive:
        world.directory.update_queue(queue, {"exclusive": True})
    first, second = Client(), Client()
    first.priority = 0 if exclusive else 1
    queue.add_consumer(first)
    queue.add_consumer(second)
    seconds(world, 11, sent=30, taken={first: 20})
    assert (first.ends, second.ends) == ([], [])
    queue.dispatcher.pause_consumer(second)
    seconds(world, 11, sent=30, taken={first: 20})
    assert second.ends, "it can take nothing, whoever comes first"


def test_too_little_for_all_of_them_is_nobodys_fault():
    """Fewer come than they should take together, and fewer wait."""
    world, queue = world_with(10, policy=SlowConsumerPolicy.KILL)
    clients = [Client(credit=0), Client(credit=0)]
    for client in clients:
        queue.add_consumer(client)
    seconds(world, 11, sent=1)
    assert queue.message_count == 11 and not any(client.ends for client in clients)
    seconds(world, 10, sent=1)
    assert queue.message_count >= 20 and all(client.ends for client in clients), "now 20 wait"


def test_a_new_consumer_is_given_a_whole_period():
    world, queue = world_with(10, policy=SlowConsumerPolicy.KILL)
    first = Client()
    queue.add_consumer(first)
    seconds(world, 4, sent=30, taken={first: 30})
    late = Client()
    queue.add_consumer(late)
    seconds(world, 3, sent=30, taken={first: 30})
    assert late.ends == []
    seconds(world, 5, sent=30, taken={first: 30})
    assert late.ends and not first.ends


def test_a_threshold_of_none_is_passed_by_who_takes_nothing():
    world, queue = world_with(0, policy=SlowConsumerPolicy.KILL)
    idle, busy = Client(), Client()
    queue.add_consumer(idle)
    queue.add_consumer(busy)
    seconds(world, 6, taken={busy: 1})
    assert idle.ends and not busy.ends


@pytest.mark.parametrize("unit, enough", [("MINUTE", 1), ("HOUR", 1), ("DAY", 1)])
def test_other_units(unit, enough):
    measure = ThresholdUnit(f"MESSAGES_PER_{unit}")
    world, queue = world_with(10, policy=SlowConsumerPolicy.KILL, threshold_measurement_unit=measure)
    slow, fast = Client(), Client()
    queue.add_consumer(slow)
    queue.add_consumer(fast)
    seconds(world, 6, sent=10, taken={fast: enough})
    (reason,) = slow.ends
    assert f"10 messages per {unit.lower()}" in reason and not fast.ends


def test_the_period():
    world, queue = world_with(10, check_period=60)
    queue.add_consumer(Client())
    seconds(world, 59, sent=30)
    assert world.broker.slow_consumers.notified == 0
    seconds(world, 3, sent=30)
    assert world.broker.slow_consumers.notified == 1


def test_a_reload_begins_and_ends_it():
    world, queue = world_with(-1)
    queue.add_consumer(Client())
    address = queue.address
    address.apply(replace(address.settings, slow_consumer_threshold=10))
    seconds(world, 7, sent=30)
    assert world.broker.slow_consumers.notified == 1
    address.apply(replace(address.settings, slow_consumer_threshold=-1))
    seconds(world, 12, sent=30)
    assert world.broker.slow_consumers.notified == 1
    assert not world.clock.calls


def test_no_timer_once_nobody_is_there():
    world, queue = world_with(10)
    client = Client()
    queue.add_consumer(client)
    queue.remove_consumer(client, [])
    world.pass_time(2 * PERIOD)
    assert not world.clock.calls
    queue.add_consumer(Client())
    assert len(world.clock.calls) == 1
    world.broker.slow_consumers.stop()
    assert not world.clock.calls


def test_many_queues_have_one_timer():
    world = BrokerFixture({"#": {"slow_consumer_threshold": 1}})
    for number in range(100):
        world.queue(f"q{number}").add_consumer(Client())
        world.pass_time(25)
    assert len(world.clock.calls) == 1
