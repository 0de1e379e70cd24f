"""A data directory that a real broker has filled, for the tests of the commands that look at one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stompring.cli.main import main

from ..management import Management
from ..store.populated_directory import PopulatedDirectory, populate


@dataclass
class Stopped:
    """What the broker held, and what it said of that before it stopped."""

    filled: PopulatedDirectory
    queues: dict[str, dict[str, Any]]
    addresses: dict[str, dict[str, Any]]
    live: dict[tuple[str, ...], Result]  # what commands said while it ran


def invoke(*arguments: str | Path) -> Result:
    """``stompring data …``."""
    return CliRunner().invoke(main, ["data", *map(str, arguments)])


@pytest.fixture(scope="session")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Made once: do not touch (see `data`)."""
    with populate(tmp_path_factory.mktemp("filled")) as (filled, broker):
        management = Management(broker.http_port)
        queues = {each["name"]: each for each in management.ask("GET", "/queues")["data"]}
        addresses = {each["name"]: each for each in management.ask("GET", "/addresses")["data"]}
        live = {}
        for command in (
            ("print", "--json"),
            ("print",),
            ("verify",),
            ("export", str(filled.data.parent / "live.gz")),
        ):
            live[command] = invoke(*command, "--data", filled.data)
        broker.stop()
    return Stopped(filled, queues, addresses, live)


@pytest.fixture
def filled(stopped: Stopped, tmp_path: Path) -> PopulatedDirectory:
    """A copy that a test may damage."""
    data = tmp_path / "data"
    shutil.copytree(stopped.filled.data, data)
    return replace(stopped.filled, data=data)
