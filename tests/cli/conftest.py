"""A data directory that a real broker has filled, for the tests of the commands that look at one."""

import json
import shutil
from dataclasses import dataclass, replace
from typing import Any

import pytest
from click.testing import Result

from ..management import Management
from ..store.populated_directory import PopulatedDirectory, populate
from . import command
from .remote_cli import Cli


@dataclass
class Stopped:
    """What the broker held, and what it said of that before it stopped."""

    filled: PopulatedDirectory
    queues: dict[str, dict[str, Any]]
    addresses: dict[str, dict[str, Any]]
    live: dict[tuple[str, ...], Result]  # what commands said while it ran


def invoke(line, *others, **more):
    """``stompring data …``."""
    return command.invoke(f"data {line}", *others, **more)


def told(line, *others, **more):
    """The JSON that ``stompring data …`` prints."""
    return json.loads(invoke(line, *others, **more).stdout)


@pytest.fixture(scope="session")
def stopped(tmp_path_factory):
    """Made once: do not touch (see `data`)."""
    with populate(tmp_path_factory.mktemp("filled")) as (filled, broker):
        management = Management(broker.http_port)
        queues = {each["name"]: each for each in management.ask("GET", "/queues")["data"]}
        addresses = {each["name"]: each for each in management.ask("GET", "/addresses")["data"]}
        live = {}
        for line in (
            ("print", "--json"),
            ("print",),
            ("verify",),
            ("export", str(filled.data.parent / "live.gz")),
        ):
            live[line] = invoke(*line, "--data", filled.data)
        broker.stop()
    return Stopped(filled, queues, addresses, live)


@pytest.fixture
def cli(broker, tmp_path):
    """Commands for the test's broker."""
    return Cli(broker.http_port, tmp_path / "home")


@pytest.fixture
def to(broker):
    """The option that names the test's broker."""
    return f"--broker stomp://127.0.0.1:{broker.port}"


@pytest.fixture
def client(connect):
    """A client of the test's broker."""
    return connect()


@pytest.fixture
def queue(name):
    """A queue that no other test uses."""
    return name


@pytest.fixture
def filled(stopped, tmp_path):
    """A copy that a test may damage."""
    data = tmp_path / "data"
    shutil.copytree(stopped.filled.data, data)
    return replace(stopped.filled, data=data)
