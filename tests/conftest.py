"""Fixtures for tests that talk to a broker, in memory or in a process (``--over``).

Tests with the mark ``in_memory`` (all of tests/conformance, modules of tests/end_to_end) run in memory, on a clock
that the test turns, unless ``--over tcp`` or ``--over websocket`` is given. All other tests have a broker in a process;
those that need the same configuration share it.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from .broker_document import broker_xml
from .broker_process import BrokerProcess
from .management import Management
from .service import Service
from .stomp_client import StompClient
from .summary import ProcessorTime, RunReport
from .websocket_client import WebSocketDialogue

# pytest asks for the version of Twisted around each test, which reads its metadata from the disk each time.
importlib.metadata.version = cache(importlib.metadata.version)

# How long an example takes tells of the machine's load.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")
# Fixed examples have to be the same in each process. Without this, hypothesis takes numbers and words from the modules
# of the product that were imported before, so that an example can fail or take minutes in one order of tests only.
providers.is_local_module_file = lambda path: False

#: What a broker is reached over.
OVER = ("memory", "tcp", "websocket")

#: Starts a broker; takes what `broker_xml` takes.
StartBroker = Callable[..., Any]

#: Opens a dialogue with a broker, already connected: ``connect(version="1.1", broker=..., **headers)``.
Connect = Callable[..., StompClient]


@pytest.fixture
def over(request: pytest.FixtureRequest) -> str:
    """What the test's STOMP goes over: ``memory``, ``tcp`` or ``websocket``."""
    chosen = str(getattr(request, "param", request.config.getoption("over")))
    node = request.node
    able = node.get_closest_marker("in_memory") and not node.get_closest_marker("process")
    if chosen == "memory" and not able:
        return "tcp"
    return chosen


@pytest.fixture
def start_broker(over: str, tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers with a configuration of their own; all are stopped, and must stop well, after the test."""
    with ExitStack() as running:

        def start(**document: Any) -> BrokerProcess | Service:
            name = f"broker-{uuid4().hex[:8]}"
            if over == "memory":
                service = Service(tmp_path, tmp_path / f"{name}-data").start(broker_xml(**document))
                running.callback(service.stop)
                return service
            config = tmp_path / f"{name}.xml"
            config.write_text(broker_xml(**document))
            return running.enter_context(BrokerProcess(config))

        yield start


class Brokers:
    """Running brokers by their configuration, so that tests with the same one share it; the latest few are kept."""

    KEPT = 4

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, BrokerProcess] = {}

    def get(self, document: str) -> BrokerProcess:
        """The broker with this broker.xml, started if need be."""
        broker = self._running.pop(document, None)
        if broker is None:
            config = self._directory / f"broker-{uuid4().hex[:8]}.xml"
            config.write_text(document)
            broker = BrokerProcess(config).__enter__()
        self._running[document] = broker
        while len(self._running) > self.KEPT:
            self._running.pop(next(iter(self._running))).stop()
        return broker

    def stop(self) -> None:
        """Stop them all; each must stop well."""
        with ExitStack() as stopping:
            for broker in self._running.values():
                stopping.callback(broker.stop)


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The brokers that tests share."""
    running = Brokers(tmp_path_factory.mktemp("brokers"))
    yield running
    running.stop()


@pytest.fixture
def broker(
    request: pytest.FixtureRequest, over: str, brokers: Brokers, tmp_path: Path
) -> Iterator[BrokerProcess | Service]:
    """A broker with the configuration ``@pytest.mark.broker(settings=…)``, or none.

    In a process it is shared with all tests of the same configuration, which leave each other alone by using queues of
    their own `name`. What must have a broker for itself starts one by `start_broker`.
    """
    mark = request.node.get_closest_marker("broker")
    document = broker_xml(**(mark.kwargs if mark is not None else {}))
    if over != "memory":
        yield brokers.get(document)
        return
    service = Service(tmp_path, tmp_path / "data").start(document)
    yield service
    service.stop()


@pytest.fixture
def management(broker: BrokerProcess | Service) -> Management:
    """The management API of the test's broker."""
    return broker.management()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for an address or queue that no other test uses."""
    return f"t.{request.node.originalname}.{uuid4().hex[:8]}"


@pytest.fixture
def connect(over: str, broker: BrokerProcess | Service) -> Iterator[Connect]:
    """Opens dialogues; their connections are closed after the test."""
    with ExitStack() as opened:

        def open_dialogue(
            version: str = "1.2", greet: bool = True, port: int | None = None, **headers: object
        ) -> StompClient:
            if isinstance(broker, Service):
                dialogue = broker.client(version, port)
            else:
                kind = WebSocketDialogue if over == "websocket" else StompClient
                dialogue = kind(port or broker.port, version)
            opened.callback(dialogue.close)
            if greet:
                dialogue.connect({name.replace("_", "-"): value for name, value in headers.items()})
            return dialogue

        yield open_dialogue


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What has the mark ``every_carrier`` runs over each, unless ``--over`` chooses one."""
    if (
        metafunc.definition.get_closest_marker("every_carrier")
        and metafunc.config.getoption("over") == "memory"
    ):
        metafunc.parametrize("over", OVER, indirect=True)


@pytest.fixture(params=["1.0", "1.1", "1.2"])
def version(request: pytest.FixtureRequest) -> str:
    """Each version of STOMP in turn."""
    return str(request.param)


#: The groups that take longest, the longest first.
LONGEST = (
    "spark",
    "processes of Spark",
    "failover: 0",
    "failover: 1",
    "crash/test_kills",
    "end_to_end/test_plugin_package",
    "crash/test_write_faults",
    "crash/test_power_loss",
    "cli/test_data_import",
    "benchmarks/test_stompload",
)


def _file(item: pytest.Item) -> str:
    """The name of a test's file; those in several directories have the same last part."""
    return f"{item.path.parent.name}/{item.path.stem}"


def _needs_a_process(item: pytest.Item) -> bool:
    """Whether a test starts brokers in processes of their own."""
    if hasattr(item.module, "BrokerProcess"):  # type: ignore[attr-defined]
        return True
    if item.get_closest_marker("in_memory") is not None:
        return False
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = getattr(item, "fixturenames", ())
    return parameters.get("over", "tcp") != "memory" and not {"brokers", "start_broker"}.isdisjoint(fixtures)


def _rank(item: pytest.Item) -> int:
    """What begins sooner has less."""
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    group = mark.args[0] if mark.args else mark.kwargs["name"]
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


@pytest.hookimpl(wrapper=True)  # before pytest-xdist, which looks for the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Where tests run in several processes, those of one file run in the same: brokers that they share, and
    environments, are made once. So do all that use the session of Spark, which takes memory and time to start; tests
    that start processes of Spark instead name a group of their own. The groups that take longest begin first."""
    for item in items:
        if item.path.parent.name == "conformance":
            item.add_marker("in_memory")
        if item.get_closest_marker("xdist_group") is None:
            group = "spark" if "spark" in getattr(item, "fixturenames", ()) else _file(item)
            item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("in_memory"):
        outside = [item for item in items if _needs_a_process(item)]
        config.hook.pytest_deselected(items=outside)
        items[:] = [item for item in items if item not in outside]
    items.sort(key=_rank)
    yield
    # with pytest 9.2 pytest-xdist 3.8 passes over all groups in silence, and everything takes twice as long
    if config.getoption("loadgroup", False) and items and "@" not in items[0].nodeid:
        raise pytest.UsageError("this pytest-xdist does not know the groups of this pytest")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--over``: the choice for tests that can run in memory. ``--in-memory`` leaves out all others."""
    parser.addoption("--in-memory", action="store_true", help="leave out tests that start brokers")
    parser.addoption("--counts", help="a file for the counts of this run, which tests/run.py reads")
    parser.addoption("--over", choices=OVER, default="memory", help="how a broker is reached")


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks of this suite, and measure and report what each run must keep to."""
    config.pluginmanager.register(ProcessorTime())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RunReport(workers=bool(config.getoption("numprocesses", None))))
    config.addinivalue_line(
        "markers", "broker(**document): the configuration of the test's broker; see tests/broker_document.py"
    )
    config.addinivalue_line("markers", "in_memory: needs no process, unless --over says tcp or websocket")
    config.addinivalue_line("markers", "process: of a module in memory, but needs a broker in a process")
    config.addinivalue_line("markers", "every_carrier: runs in memory, over TCP and over WebSocket")
