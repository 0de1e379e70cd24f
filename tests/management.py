"""A client of the management API, as a script of an administrator would have it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPResponse
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode

from .waiting import PATIENCE, Deadline
from .wire import REAL_TIME, SocketWire, Time, Wire


class Answered(AssertionError):
    """The API answered with an error. ``status`` is that of HTTP, ``problem`` its problem+json."""

    def __init__(self, status: int, content_type: str, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status
        self.content_type = content_type
        self.problem = json.loads(text) if "json" in content_type else {}


def basic(user: str, password: str) -> str:
    """The value of ``Authorization``."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


class _Received:
    """What http.client wants of a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._data)


class Management:
    """The JSON API of one broker. ``open_wire`` opens a connection; without it there is a new one to ``port``."""

    def __init__(
        self,
        port: int = 0,
        address: str = "127.0.0.1",
        login: tuple[str, str] | None = None,
        open_wire: Callable[[], Wire] | None = None,
        time: Time = REAL_TIME,
    ) -> None:
        self._open = open_wire or (lambda: SocketWire(port, address))
        self._login = {} if login is None else {"Authorization": basic(*login)}
        self.time = time

    def exchange(
        self, method: str, path: str, data: bytes | None = None, **headers: str
    ) -> tuple[HTTPResponse, bytes]:
        """Send a request, ``_`` in the name of a header being ``-``; the answer to it and its whole body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Host": "localhost", "Connection": "close", **self._login, **named}
        if data is not None:
            sent["Content-Length"] = str(len(data))
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        wire, got = self._open(), bytearray()
        try:
            wire.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + (data or b""))
            while more := wire.receive(PATIENCE):
                got += more
        finally:
            wire.close()
        answer = HTTPResponse(_Received(bytes(got)), method=method)  # type: ignore[arg-type]
        answer.begin()
        return answer, answer.read()

    def text(self, path: str, method: str = "GET", body: object = None) -> str:
        """The answer to a request. Raises `Answered` for anything but success."""
        if body is None:
            answer, content = self.exchange(method, path)
        else:
            data = json.dumps(body).encode()
            answer, content = self.exchange(method, path, data, Content_Type="application/json")
        if answer.status >= 400:
            raise Answered(answer.status, answer.headers.get("Content-Type", ""), content.decode())
        return content.decode()

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The JSON answer of a route below ``/api/v1``."""
        question = f"?{urlencode(query)}" if query else ""
        text = self.text(f"/api/v1{path}{question}", method, body)
        return json.loads(text) if text else None

    # ---- queues

    def queue(self, name: str) -> dict[str, Any]:
        """Everything about a queue."""
        return dict(self.ask("GET", f"/queues/{quote(name, safe='')}"))

    def address(self, name: str) -> dict[str, Any]:
        """Everything about an address."""
        return dict(self.ask("GET", f"/addresses/{quote(name, safe='')}"))

    def update(self, name: str, **changes: object) -> Any:
        """PATCH a queue."""
        return self.ask("PATCH", f"/queues/{quote(name, safe='')}", changes)

    def messages(self, name: str, **query: object) -> list[dict[str, Any]]:
        """The messages of a queue, as it lists them."""
        found = self.ask("GET", f"/queues/{quote(name, safe='')}/messages", **query)
        return list(found["data"])

    def expect(self, name: str, **counters: object) -> dict[str, Any]:
        """The queue, once it has these counters; they must come true within `PATIENCE`."""
        return self._expect(lambda: self.queue(name), f"queue {name}", counters)

    def expect_address(self, name: str, **counters: object) -> dict[str, Any]:
        """As `expect`, of an address."""
        return self._expect(lambda: self.address(name), f"address {name}", counters)

    def until(self, happened: Callable[[], object]) -> None:
        """Wait until that is true; it must come true within `PATIENCE`."""
        deadline = Deadline(clock=self.time.steady)
        while not happened():
            assert not deadline.passed(), "it does not happen"
            self.time.sleep(0.02)

    def gone(self, name: str) -> None:
        """The queue is not there (any more)."""
        deadline = Deadline(clock=self.time.steady)
        while True:
            try:
                found = self.queue(name)
            except Answered as answer:
                assert answer.status == 404, answer
                return
            assert not deadline.passed(), f"queue {name} is still there: {found}"
            self.time.sleep(0.02)

    def _expect(self, look: Any, what: str, counters: dict[str, object]) -> dict[str, Any]:
        deadline = Deadline(clock=self.time.steady)
        while True:
            found: dict[str, Any] = look()
            seen = {name: found[name] for name in counters}
            if seen == counters:
                return found
            assert not deadline.passed(), f"{what} has {seen}, not {counters}"
            self.time.sleep(0.02)
