"""Spark's processes and the broker are killed; see `kills` for more of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from .kills import campaign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    for library in ("pyspark", "deltalake", "duckdb"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    with ExitStack() as opened:
        found = campaign(tmp_path, opened, spark=2, broker=3, replays=1, seed=7)
    assert found.messages > 300 and found.events > 600
