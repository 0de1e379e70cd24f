"""A web site of one page for a browser without a screen, which tells the test what happens on it."""

import queue
import shutil
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from ..broker_process import PATIENCE

QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --no-proxy-server"
).split()

PAGE = """<!DOCTYPE html><title>a page</title>
<script>const tell = (line) => fetch('/told', {{ method: 'POST', body: line }});
onerror = (message) => {{ tell('failed: ' + message); }};</script>
{sources}
<script>{script}</script>
"""


def chromium():
    """Where it is, if it is."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """A page that loads ``scripts`` and then runs ``script``; there ``tell(text)`` speaks to `told`.

    Use as a context manager, and `visit` it with a browser.
    """

    def __init__(self, directory, scripts, script):
        self._directory = directory
        self._told = queue.Queue()
        self._browsers = []
        told = self._told
        sources = "".join(f'<script src="/{path.name}"></script>' for path in scripts)
        contents = {f"/{path.name}": ("text/javascript", path.read_bytes()) for path in scripts}
        contents["/"] = ("text/html; charset=utf-8", PAGE.format(sources=sources, script=script).encode())

        class Site(BaseHTTPRequestHandler):
            """Serves what there is and takes what is told."""

            def do_GET(self):
                kind, content = contents.get(self.path, ("text/plain", b""))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self):
                told.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, format, *args):
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="page", daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for browser in self._browsers:
            browser.send_signal(signal.SIGTERM)
            try:
                browser.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                browser.kill()
        self._server.shutdown()
        self._server.server_close()

    def visit(self, host="127.0.0.1"):
        """Open the page in a browser of its own; any host ``*.example`` is this machine to it."""
        program = chromium()
        assert program is not None
        profile = self._directory / f"profile-{len(self._browsers)}"
        self._browsers.append(
            subprocess.Popen(
                [
                    *(program, *QUIET, f"--user-data-dir={profile}"),
                    "--host-resolver-rules=MAP *.example 127.0.0.1",
                    f"http://{host}:{self.port}/",
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def told(self):
        """What the page says next."""
        try:
            return self._told.get(timeout=PATIENCE * 2)
        except queue.Empty:
            raise AssertionError("the page says nothing more") from None
