"""Spark's processes and the broker are killed; see `kills` for more of it."""

from __future__ import annotations

import re
import signal
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..made import made, written
from .kills import Command, campaign

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.xdist_group("processes of Spark")]


def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    for library in ("pyspark", "deltalake", "duckdb"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    with ExitStack() as opened:
        found = campaign(tmp_path, opened, spark=1, broker=1, replays=1, seed=7)
    assert found.messages > 300 and found.events > 600


def test_following_ends_in_good_order_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("pyspark", "deltalake"):
        pytest.importorskip(library, reason="not installed: pip install 'stompring[test]'")
    data = written(tmp_path / "data", made())
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    words = ("--data", str(data), "--lake", str(tmp_path / "lake"))
    follow = Command("ingest", *words, "--follow", "--metrics-port", "0")
    follow.wait_for(r"batch 0: .* messages/s")
    assert manager.recv(1000) == b"READY=1\nSTATUS=ingesting"
    assert manager.recv(1000).startswith(b"STATUS=batch 0: ")
    (metrics,) = re.findall(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)", follow.output())
    with urllib.request.urlopen(metrics, timeout=30) as answer:
        assert re.search(rb'stompring_lake_rows_total{table="messages"} [1-9]', answer.read())
    other = Command("ingest", "--data", str(data), "--lake", str(tmp_path / "lake"))
    other.process.wait(60)
    assert "another process ingests" in other.output() and other.process.returncode == 1
    follow.process.send_signal(signal.SIGTERM)
    output = follow.finish()
    assert "stopping after this batch" in output and re.search(
        r"ingested .*\d+ messages, .* batches, .* MB; 0\.0 MB, 0 s are left", output
    )
