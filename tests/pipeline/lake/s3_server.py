"""A server of the S3 protocol on the loopback interface, in a process of its own: moto, with writes one at a time.

moto looks at the condition of a write and then writes, in a thread for each request. Stores do that at once, and so a
lock does it here. Run as a program it prints its port and serves until it is ended.
"""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from urllib.request import Request, urlopen
from uuid import uuid4

PATIENCE = 60.0


class ObjectServer:
    """It, from `start` to `stop`."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def bucket(self):
        """A new one; its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        with urlopen(Request(f"{self.url}/{name}", method="PUT"), timeout=PATIENCE):
            return name

    @property
    def environment(self):
        """How it is reached."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "an id",
            "AWS_SECRET_ACCESS_KEY": "a secret",
            "AWS_REGION": "us-east-1",
        }

    def stop(self):
        """End it."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        if self._process.stdout is not None:
            self._process.stdout.close()


class _OneWriter:
    """Of requests that write one at a time is worked on; the others are read before they wait."""

    def __init__(self, application):
        self._application = application
        self._lock = Lock()

    def __call__(self, environment, start):
        with ExitStack() as held:
            if environment["REQUEST_METHOD"] != "GET":
                held.enter_context(self._lock)
            return list(self._application(environment, start))


def main():
    """Serve."""
    from moto.server import DomainDispatcherApplication, create_backend_app  # type: ignore[import-untyped]
    from werkzeug.serving import WSGIRequestHandler, make_server

    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    application = _OneWriter(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
