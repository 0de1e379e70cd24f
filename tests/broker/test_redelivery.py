"""Redelivery delays, as tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.lifetime import redelivery_delay
from stompring.settings.model import AddressSettings


def half():
    return 0.5


@pytest.mark.parametrize(
    ("settings", "delays"),
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
def test_delays(settings, delays):
    found = [redelivery_delay(AddressSettings(**settings), n + 1, half) for n in range(len(delays))]
    assert found == delays


def test_thousands_of_attempts_do_not_overflow():
    settings = AddressSettings(redelivery_delay=1000, redelivery_delay_multiplier=10.0)
    assert redelivery_delay(settings, 100_000, half) == 10_000


@given(st.floats(0, 1), st.integers(1, 10), st.floats(0, 1))
def test_collision_avoidance_stays_within_its_factor(random, attempts, factor):
    settings = AddressSettings(
        redelivery_delay=1000,
        redelivery_delay_multiplier=2.0,
        max_redelivery_delay=8000,
        redelivery_collision_avoidance_factor=factor,
    )
    plain = min(8000, 1000 * 2 ** (attempts - 1))
    delay = redelivery_delay(settings, attempts, lambda: random)
    assert plain * (1 - factor) - 1 <= delay <= min(8000, plain * (1 + factor))
