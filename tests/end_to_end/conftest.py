"""Fixtures of tests that start a broker more than once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .lasting import LastingBroker


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[LastingBroker]:
    """A broker with a data directory of its own, not yet started; it is stopped after the test, and must stop well."""
    with ExitStack() as opened:
        broker = LastingBroker(tmp_path, opened)
        yield broker
        broker.stop()


@pytest.fixture(params=["kill", "stop"])
def how(request: pytest.FixtureRequest) -> str:
    """How the broker ends before it starts again."""
    return str(request.param)
