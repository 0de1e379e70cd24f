"""Pairs of brokers: one for each module and each way to replicate the data."""

from contextlib import ExitStack

import pytest

from stompring.replication.engines import create_log
from stompring.settings.model import ReplicatedLogSettings

from .. import nats_cluster
from .pair import REPLICATED, SHARED, BrokerPair


def replicated_pair(directory, opened):
    """Two brokers, each with a data directory of its own, and a log on three nodes."""
    nats_cluster.installed()  # or skip
    cluster = opened.enter_context(nats_cluster.NatsCluster(directory / "nats"))
    url = cluster.url.partition("?")[0]
    create_log(ReplicatedLogSettings(url=url, stream="pair", monitor=cluster.monitors), -1)

    def core(number):
        return (
            f'<ha-policy><replicated-log url="{url}" stream="pair" broker="broker-{number}" '
            f'monitor="{cluster.monitors}"/></ha-policy>'
        )

    return BrokerPair(directory, [], shared=False, core=core)


@pytest.fixture(scope="module", params=[SHARED, pytest.param(REPLICATED, marks=pytest.mark.long)])
def pair(request, tmp_path_factory):
    """An active broker and its standby."""
    directory = tmp_path_factory.mktemp("pair")
    with ExitStack() as opened:
        if request.param == SHARED:
            pair = BrokerPair(directory, ["--wait"], shared=True)
        else:
            pair = replicated_pair(directory, opened)
        yield opened.enter_context(pair)
