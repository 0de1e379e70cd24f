"""Fixtures of the console's tests: one browser for the package, a tab for each module, and more where a test asks."""

from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from ..broker_process import PATIENCE
from .browser import AXE, ConsolePage, chromium, launch, violations

expect.set_options(timeout=PATIENCE * 1000)


# Of the package, not the session: Playwright keeps an event loop running in its thread meanwhile.
@pytest.fixture(scope="package")
def browser():
    """The browser that the tests share."""
    if chromium() is None:
        pytest.skip("Chromium is not installed")
    with launch() as running:
        yield running


@pytest.fixture
def open_console(browser):
    """Opens tabs, each without anything of the others; the test fails on any fault of theirs."""
    with ExitStack() as opened:
        pages = []

        def new(port, **options):
            pages.append(ConsolePage(browser, port, opened, **options))
            return pages[-1]

        yield new
        for page in pages:
            page.check()


class Tabs:
    """Tabs that the tests of a module share, one for each user."""

    def __init__(self, browser, opened):
        self._browser = browser
        self._opened = opened
        self._tabs = {}

    def get(self, port, user=""):
        """The tab of the user, a new one if the broker is another."""
        tab = self._tabs.get(user)
        if tab is None or tab.port != port or tab.page.is_closed():
            if tab is not None:
                tab.close()
            tab = self._tabs[user] = ConsolePage(self._browser, port, self._opened)
        return tab

    def leave(self, failed):
        """A test is over; after one that failed the tabs are closed."""
        for tab in self._tabs.values():
            if failed:
                tab.close()
            elif not tab.page.is_closed():
                tab.leave()


@pytest.fixture(scope="module")
def tabs_of_module(browser):
    """The tabs of a module."""
    with ExitStack() as opened:
        yield Tabs(browser, opened)


@pytest.fixture
def tabs(request, tabs_of_module):
    """The tabs of the module; the test fails on any fault of theirs."""
    failed = request.session.testsfailed
    yield tabs_of_module
    tabs_of_module.leave(request.session.testsfailed > failed)


@pytest.fixture
def console(tabs, broker):
    """The tab of the module, with the test's broker."""
    return tabs.get(broker.http_port)


@pytest.fixture
def axe():
    """Finds violations by axe-core, which no other way leads to: a test without it is skipped."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in tests/console")
    return violations


@pytest.fixture
def empty(start_broker):
    """A broker without queues."""
    return start_broker()
