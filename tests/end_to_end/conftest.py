"""Fixtures of tests that start a broker more than once, or several brokers of one replicated log."""

from contextlib import ExitStack

import pytest

from ..nats_cluster import NatsCluster
from .lasting import LastingBroker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Three NATS servers for the logs of a module. Tests leave all of them running."""
    with NatsCluster(tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def lasting(over, tmp_path):
    """A broker with a data directory of its own, not yet started; it is stopped after the test, and must stop well."""
    with ExitStack() as opened:
        broker = LastingBroker(tmp_path, opened, over)
        yield broker
        broker.stop()


@pytest.fixture
def client(request, connect):
    """A client that is connected: of the test's ``version`` where it names one, else of the latest."""
    return connect(request.getfixturevalue("version") if "version" in request.fixturenames else "1.2")


@pytest.fixture
def serve(start_broker):
    """Starts a broker of the test's own, as `start_broker` does: that, its management API, and a client of it."""

    def start(**document):
        broker = start_broker(**document)
        client = broker.client()
        client.connect()
        return broker, broker.management(), client

    return start


@pytest.fixture(params=["kill", "stop"])
def how(request):
    """How the broker ends before it starts again."""
    return str(request.param)
