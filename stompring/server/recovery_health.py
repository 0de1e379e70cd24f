"""Health while a broker that was a standby recovers: the reactor has no time for HTTP then, a thread answers.

Without it a health check is refused for as long as the recovery takes, and a manager may restart the broker. Acceptors
with TLS or the PROXY protocol stay closed until the broker's own listeners open.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from threading import Thread

from stompring.admin.access import ANSWER_HEADERS
from stompring.admin.api import Answer, problem_answer
from stompring.admin.standby import LIVE, READY, recovering_problem

log = logging.getLogger(__name__)

#: Bytes of a request at most, and connections at a time: further ones are closed.
MAX_REQUEST, MAX_CONNECTIONS = 8192, 64

Address = tuple[str, int]


@contextmanager
def answer_health(addresses: Sequence[Address], live: Answer, ready: Answer) -> Iterator[None]:
    """Answer at ``addresses`` while the body runs; they are free again after it. Those in use are left out."""
    listeners = [found for each in addresses if (found := _listener(each)) is not None]
    if not listeners:
        yield
        return
    thread = HealthThread(listeners, live, ready)
    thread.start()
    try:
        yield
    finally:
        thread.stop()


def _listener(address: Address) -> socket.socket | None:
    host, port = address
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as fault:
        log.debug("health is not served at %s:%d during the recovery: %s", host, port, fault)
        found.close()
        return None
    found.setblocking(False)
    return found


class HealthThread:
    """Answers one request of each connection: ``live``, ``ready``, and 503 for every other path."""

    def __init__(self, listeners: Sequence[socket.socket], live: Answer, ready: Answer) -> None:
        self._live = live
        self._ready = ready
        self._waker, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._requests: dict[socket.socket, bytes] = {}
        for each in listeners:
            self._selector.register(each, selectors.EVENT_READ, self._accept)
        self._thread = Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close everything. Connections without a whole request get no answer."""
        self._waker.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    found = key.fileobj
                    if found is self._woken:
                        return
                    assert isinstance(found, socket.socket)
                    try:
                        key.data(found)
                    except BlockingIOError:
                        continue
                    except OSError:  # the client has gone, or there are no descriptors
                        self._close(found)
        except Exception:
            log.exception("health is not served any more during the recovery")
        finally:
            for each in list(self._selector.get_map().values()):
                assert isinstance(each.fileobj, socket.socket)
                each.fileobj.close()
            self._selector.close()

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if len(self._requests) >= MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        self._requests[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ, self._read)

    def _read(self, connection: socket.socket) -> None:
        data = connection.recv(MAX_REQUEST)
        request = self._requests[connection] = self._requests[connection] + data
        if b"\r\n\r\n" in request:
            connection.send(self._response(request))
        elif data and len(request) < MAX_REQUEST:
            return
        self._close(connection)

    def _close(self, found: socket.socket) -> None:
        self._requests.pop(found, None)
        self._selector.unregister(found)
        found.close()

    def _response(self, request: bytes) -> bytes:
        line = request.split(b"\r\n", 1)[0].decode("latin-1")
        method, _, rest = line.partition(" ")
        uri = rest.partition(" ")[0]
        path = uri.partition("?")[0]
        reads = method in ("GET", "HEAD")
        if reads and path == LIVE:
            answer = self._live
        elif reads and path == READY:
            answer = self._ready
        else:
            answer = problem_answer(recovering_problem(), uri)
        return _encode(answer, body=method != "HEAD")


def _encode(answer: Answer, *, body: bool) -> bytes:
    content = answer.body
    assert isinstance(content, bytes)
    headers = {
        **ANSWER_HEADERS,
        "Content-Type": answer.content_type or "",
        "Connection": "close",
        "Content-Length": str(len(content)),
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (content if body else b"")
