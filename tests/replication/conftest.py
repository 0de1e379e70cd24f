"""Engines that the tests of the replicated log share."""

import pytest

from .. import postgres_server
from ..nats_cluster import NatsCluster
from ..postgres_server import postgres_pair
from .directories import ActiveBroker
from .memory_log import MemoryEngine


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Three NATS servers. Tests leave all of them running."""
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pair():
    """A primary of PostgreSQL and its synchronous standby. Tests leave both running."""
    if reason := postgres_server.missing():
        pytest.skip(reason)
    with postgres_pair() as pair:
        yield pair


@pytest.fixture
def active(tmp_path):
    """A broker that writes to a log in memory."""
    return ActiveBroker(MemoryEngine(), tmp_path / "active")
