"""Pairs of brokers: one for each module and each way to replicate the data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .pair import BrokerPair

#: What the scenarios of this directory need of the brokers.
DOCUMENT = {
    "settings": {
        "ring": {"default-ring-size": 3},
        "paged": {"max-size-messages": 5, "page-size-bytes": "1K", "max-read-page-bytes": -1},
        "prices": {"default-last-value-key": "symbol"},
    },
}


@pytest.fixture(scope="module", params=["shared data directory"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """An active broker and its standby."""
    with BrokerPair(tmp_path_factory.mktemp("pair"), ["--wait"], shared=True, **DOCUMENT) as pair:
        yield pair
