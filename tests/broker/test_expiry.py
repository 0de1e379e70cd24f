"""When messages expire, as a table."""

import pytest

from stompring.broker.lifetime import expiry_time
from stompring.settings.model import AddressSettings

NOW = 1_000_000


@pytest.mark.parametrize(
    ("settings", "asked", "expires"),
    [
        ({}, 0, 0),
        ({}, NOW + 5, NOW + 5),
        ({"no_expiry": True, "expiry_delay": 10}, NOW + 5, 0),
        ({"expiry_delay": 10}, 0, NOW + 10),
        ({"expiry_delay": 0}, 0, NOW),
        ({"expiry_delay": 10}, NOW + 5, NOW + 5),
        ({"expiry_delay": 10, "min_expiry_delay": 20, "max_expiry_delay": 30}, 0, NOW + 10),
        ({"min_expiry_delay": 20}, 0, NOW + 20),
        ({"max_expiry_delay": 30}, 0, NOW + 30),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, 0, NOW + 30),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, NOW + 10, NOW + 20),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, NOW + 25, NOW + 25),
        ({"min_expiry_delay": 20, "max_expiry_delay": 30}, NOW + 99, NOW + 30),
        ({"min_expiry_delay": 20}, NOW - 500, NOW + 20),
    ],
)
def test_lifetimes(settings, asked, expires):
    assert expiry_time(AddressSettings(**settings), NOW, asked) == expires
