"""The browser of these tests reports what it must: each kind of fault that a page can have."""

import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ..waiting import Deadline
from .browser import ConsolePage

POLICY = "default-src 'none'; script-src 'self' 'nonce-1'; img-src * data:; connect-src *"

#: A script, and what must be reported.
FAULTS = {
    "console.error('broken')": "console error: broken",
    "console.warn('odd')": "console warning: odd",
    "throw new Error('thrown')": "exception: thrown",
    "Promise.reject(new Error('dropped'))": "dropped",
    "document.body.setAttribute('onclick', 'f()'); document.body.click()": "CSP: script-src-attr blocks inline",
    "try { eval('1') } catch {}": "CSP: script-src blocks eval",
    "new Image().src = 'http://elsewhere.example/x.png'": "request to a third party: http://elsewhere.example",
    "new WebSocket('ws://elsewhere.example/')": "WebSocket to a third party: ws://elsewhere.example/",
    "fetch('/missing')": "404",
    "alert('hello')": "dialog of the browser: hello",
}


@pytest.fixture(scope="module")
def site():
    """The port of a site whose page /N has the N-th script."""

    class Site(BaseHTTPRequestHandler):
        """One page per script."""

        def do_GET(self):
            number = self.path.strip("/")
            known = number.isdigit()
            script = ["", *FAULTS][int(number)] if known else ""
            text = (
                "<!DOCTYPE html><html lang=en><title>a page</title><link rel=icon href='data:,'>"
                f"<body><main><h1>A</h1></main><script nonce=1>{script}</script>"
            )
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format, *args):
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("script", FAULTS)
def test_a_fault_is_reported(browser, site, script):
    with ExitStack() as opened:
        console = ConsolePage(browser, site, opened)
        console.open(str(1 + list(FAULTS).index(script)))
        deadline = Deadline()
        while not any(FAULTS[script] in fault for fault in console.faults):
            assert not deadline.passed(), console.faults
            console.page.wait_for_timeout(20)  # meanwhile Playwright reports events
        with pytest.raises(AssertionError):
            console.check()
        console.allow(r".")
        console.check()


def test_a_good_page_has_no_faults(open_console, site, axe):
    console = open_console(site)
    console.open("0")
    assert axe(console) == []
    assert console.overflow() == 0


def test_axe_reports_violations_under_a_strict_policy(open_console, site, axe):
    console = open_console(site)
    page = console.open("0")
    page.evaluate("() => document.querySelector('main').append(document.createElement('input'))")
    assert [line.split(" ")[0] for line in axe(console)] == ["label"]
