"""Engines that the tests of the replicated log share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..nats_cluster import NatsCluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three NATS servers. Tests leave all of them running."""
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster
