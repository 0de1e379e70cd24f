"""A client of the management API, as a script of an administrator would have it."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from .broker_process import PATIENCE


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


class Management:
    """The JSON API of one broker."""

    def __init__(self, port: int, address: str = "127.0.0.1", login: tuple[str, str] | None = None) -> None:
        self._root = f"http://{address}:{port}"
        self._login = {} if login is None else {"Authorization": basic(*login)}

    def text(self, path: str, method: str = "GET", body: object = None) -> str:
        """The answer to a request. Raises `Answered` for anything but success."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._login if data is None else {**self._login, "Content-Type": "application/json"}
        request = Request(self._root + path, data, headers, method=method)
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            raise Answered(error.code, error.headers.get("Content-Type", ""), error.read().decode()) from None

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

    def gone(self, name: str) -> None:
        """The queue is not there (any more)."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                found = self.queue(name)
            except Answered as answer:
                assert answer.status == 404, answer
                return
            assert time.monotonic() < deadline, f"queue {name} is still there: {found}"
            time.sleep(0.02)

    @staticmethod
    def _expect(look: Any, what: str, counters: dict[str, object]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while True:
            found: dict[str, Any] = look()
            seen = {name: found[name] for name in counters}
            if seen == counters:
                return found
            assert time.monotonic() < deadline, f"{what} has {seen}, not {counters}"
            time.sleep(
                0.02
            )  # what the broker does by itself, after a lost connection for one, takes its time
