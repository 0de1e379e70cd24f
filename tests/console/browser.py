"""A headless Chromium for the tests of the console, and a page that records every fault.

Playwright drives the Chromium of the system; it downloads no browser of its own.
"""

import re
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import expect, sync_playwright

from ..broker_process import PATIENCE
from ..end_to_end.page import chromium
from ..waiting import Deadline

__all__ = ["AXE", "ConsolePage", "chromium", "launch", "violations"]

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"

#: No name resolves: a request to another site fails, and `ConsolePage` reports it.
ARGUMENTS = (
    "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --no-proxy-server"
).split() + ["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost"]

WATCH = """addEventListener('securitypolicyviolation', (event) =>
    console.error(`CSP: ${event.violatedDirective} blocks ${event.blockedURI} ${event.sample}`), true);
addEventListener('unhandledrejection', (event) => console.error(`unhandled rejection: ${event.reason}`));"""


@contextmanager
def launch():
    """A browser, closed afterwards."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


#: Closes dialogs and notes, and goes to a page that asks for nothing.
LEAVE = """() => {
    for (const dialog of document.querySelectorAll('dialog[open]')) dialog.dispatchEvent(new Event('cancel'));
    for (const button of document.querySelectorAll('.notes button')) button.click();
    location.hash = '#/no/page';
}"""


class ConsolePage:
    """A tab of its own. `check` fails on console errors, exceptions, CSP violations and requests to other hosts.

    ``faults`` are those so far; `allow` excludes those that a test provokes.
    """

    def __init__(self, browser, port, opened, **options):
        self.port = port
        self.root = f"http://127.0.0.1:{port}"
        self.faults = []
        self.requests = []
        self._allowed = []
        self._running = set()
        self._context = browser.new_context(
            viewport=options.pop("viewport", {"width": 1280, "height": 800}),
            color_scheme=options.pop("color_scheme", "light"),
            reduced_motion="reduce",
            **options,
        )
        self.close = self._context.close
        opened.callback(self.close)
        self._context.set_default_timeout(PATIENCE * 1000)
        self._context.add_init_script(WATCH)
        self._context.on("request", self._on_request)
        self._context.on("requestfinished", self._on_end)
        self._context.on("requestfailed", self._on_end)
        self.page = self._context.new_page()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        self.page.on("websocket", self._on_websocket)
        self.page.on("dialog", self._on_dialog)

    # ---- faults

    def allow(self, pattern):
        """Faults in which the regular expression is found are expected."""
        self._allowed.append(pattern)

    def check(self):
        """Fail on the faults so far that are not allowed."""
        left = [fault for fault in self.faults if not any(re.search(one, fault) for one in self._allowed)]
        assert not left, "\n".join(left)

    def _on_console(self, message):
        if message.type in ("error", "warning"):
            place = message.location.get("url", "")
            self.faults.append(f"console {message.type}: {message.text} ({place})")

    def _on_request(self, request):
        self.requests.append(f"{request.method} {request.url}")
        self._running.add(request)
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.hostname not in ("127.0.0.1", "localhost"):
            self.faults.append(f"request to a third party: {request.url}")

    def _on_end(self, request):
        self._running.discard(request)

    def _on_websocket(self, socket):
        if urlsplit(socket.url).hostname not in ("127.0.0.1", "localhost"):
            self.faults.append(f"WebSocket to a third party: {socket.url}")

    def _on_dialog(self, dialog):
        self.faults.append(f"dialog of the browser: {dialog.message}")
        dialog.dismiss()

    # ---- what a user does

    def open(self, route="#/"):
        """Load a page of the console, anew."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.root}/{route}")
        return self.page

    def go(self, route):
        """Go to another page of the console, which is loaded only if it was not yet."""
        if self.page.url == "about:blank":
            return self.open(route)
        self.page.evaluate("route => { location.hash = route; }", route)
        return self.page

    def leave(self):
        """The test is over: fail on its faults, and be ready for the next one."""
        if self.page.url != "about:blank":
            self.page.evaluate(LEAVE)
            expect(self.page.locator("dialog")).to_have_count(0)
            deadline = Deadline()
            while self._running and not deadline.passed():
                self.page.wait_for_timeout(10)  # meanwhile Playwright reports events
        try:
            self.check()
        finally:
            self.faults, self.requests, self._allowed = [], [], []

    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return int(
            self.page.evaluate(
                "() => document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
            )
        )


def violations(console):
    """What axe-core finds on the page as it is, one line per element."""
    if not console.page.evaluate("() => 'axe' in window"):
        console.page.evaluate(AXE.read_text())
    found = console.page.evaluate(
        "() => axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a',"
        " 'wcag21aa', 'wcag22aa', 'best-practice']})"
    )
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {node['html'][:300]}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
