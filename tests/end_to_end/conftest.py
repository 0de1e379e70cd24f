"""Fixtures of tests that start a broker more than once, or several brokers of one replicated log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..nats_cluster import NatsCluster
from .lasting import LastingBroker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three NATS servers for the logs of a module. Tests leave all of them running."""
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def lasting(over: str, tmp_path: Path) -> Iterator[LastingBroker]:
    """A broker with a data directory of its own, not yet started; it is stopped after the test, and must stop well."""
    with ExitStack() as opened:
        broker = LastingBroker(tmp_path, opened, over)
        yield broker
        broker.stop()


@pytest.fixture(params=["kill", "stop"])
def how(request: pytest.FixtureRequest) -> str:
    """How the broker ends before it starts again."""
    return str(request.param)
