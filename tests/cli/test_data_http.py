"""What the data commands make of an answer over HTTP that no broker gives."""

from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import click
import pytest

from stompring.cli.data_import import ManagementApi


@contextmanager
def answering(status, body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.wfile.write(status + b"\r\nConnection: close\r\n\r\n" + body)

        def log_message(self, format, *args):
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("body", [b"<html>", b"9" * 5001, b"[" * 200_000, b"\xff"])
def test_no_json(body):
    with answering(b"HTTP/1.1 200 OK", body) as root:
        with pytest.raises(click.ClickException, match=r"is not a management API: the response is not JSON"):
            ManagementApi(root).ask("GET", ("broker",))


def test_no_http():
    with answering(b"9" * 5001, b"") as root:
        with pytest.raises(click.ClickException, match="cannot connect to the management API"):
            ManagementApi(root).ask("GET", ("broker",))
