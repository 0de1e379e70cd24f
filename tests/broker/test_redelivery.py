"""Redelivery delays, as tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .broker_fixture import BrokerFixture, join


def delays(settings, count, random=0.5, attempts=0):
    """How long each of so many deliveries waits after the one before has failed; ``attempts`` had failed already."""
    world = BrokerFixture({"#": {"max_delivery_attempts": -1, **settings}})
    world.broker.random = lambda: random
    world.send(body=b"", address=world.queue("q").name)
    taker = join(world.directory.queues["q"])
    taker.unsettled[0].attempts = attempts
    found = []
    for _ in range(count):
        taker.nack()
        world.settle_down()
        due = [call.getTime() for call in world.clock.calls]
        found.append(0 if taker.unsettled else round((min(due) - world.clock.seconds()) * 1000))
        world.pass_time(found[-1] + 1)
    assert len(taker.got) == count + 1
    return found


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, [0, 0, 0]),
        ({"redelivery_delay": 5000}, [5000, 5000, 5000]),
        (
            {"redelivery_delay": 5000, "redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 15000},
            [5000, 10000, 15000, 15000],
        ),
        ({"redelivery_delay": 10, "redelivery_delay_multiplier": 3.0}, [10, 30, 90, 100, 100]),
        ({"redelivery_delay": 100, "redelivery_delay_multiplier": 0.5}, [100, 50, 25, 12]),
        ({"redelivery_delay": 5000, "max_redelivery_delay": 1000}, [1000, 1000]),
        ({"redelivery_delay_multiplier": 2.0, "max_redelivery_delay": 9}, [0, 0]),
    ],
)
def test_delays(settings, expected):
    assert delays(settings, len(expected)) == expected


def test_thousands_of_attempts_do_not_overflow():
    settings = {"redelivery_delay": 1000, "redelivery_delay_multiplier": 10.0}
    assert delays(settings, 1, attempts=100_000) == [10_000]


@given(st.floats(0, 1), st.integers(1, 10), st.floats(0, 1))
def test_collision_avoidance_stays_within_its_factor(random, attempts, factor):
    settings = {
        "redelivery_delay": 1000,
        "redelivery_delay_multiplier": 2.0,
        "max_redelivery_delay": 8000,
        "redelivery_collision_avoidance_factor": factor,
    }
    plain = min(8000, 1000 * 2 ** (attempts - 1))
    (delay,) = delays(settings, 1, random, attempts - 1)
    assert plain * (1 - factor) - 1 <= delay <= min(8000, plain * (1 + factor))
