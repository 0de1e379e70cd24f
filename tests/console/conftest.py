"""Fixtures of the console's tests: one browser for the package, a tab for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from ..broker_process import PATIENCE, BrokerProcess
from ..conftest import StartBroker
from .browser import AXE, ConsolePage, chromium, launch, violations

expect.set_options(timeout=PATIENCE * 1000)

#: Opens a tab: ``open_console(port, viewport=…, color_scheme=…)``.
OpenConsole = Callable[..., ConsolePage]

#: What axe-core finds on a page as it is, one line per element.
Axe = Callable[[ConsolePage], list[str]]


# Of the package, not the session: Playwright keeps an event loop running in its thread meanwhile.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser that the tests share."""
    if chromium() is None:
        pytest.skip("Chromium is not installed")
    with launch() as running:
        yield running


@pytest.fixture
def open_console(browser: Browser) -> Iterator[OpenConsole]:
    """Opens tabs, each without anything of the others; the test fails on any fault of theirs."""
    with ExitStack() as opened:
        pages: list[ConsolePage] = []

        def new(port: int, **options: Any) -> ConsolePage:
            pages.append(ConsolePage(browser, port, opened, **options))
            return pages[-1]

        yield new
        for page in pages:
            page.check()


@pytest.fixture
def console(open_console: OpenConsole, broker: BrokerProcess) -> ConsolePage:
    """A tab with the test's broker, nothing loaded yet."""
    return open_console(broker.http_port)


@pytest.fixture
def axe() -> Axe:
    """Finds violations by axe-core, which no other way leads to: a test without it is skipped."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in tests/console")
    return violations


@pytest.fixture
def empty(start_broker: StartBroker) -> BrokerProcess:
    """A broker without queues."""
    return start_broker()
