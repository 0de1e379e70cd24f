"""Health, queues and metrics of stompring, read over HTTP."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST

ANSWER_SECONDS = 60.0


class NotTold(Exception):
    """The broker did not answer, or a value is not the expected one, as the text says."""


def _read(broker: Stompring, path: str) -> str:
    url = f"http://{HOST}:{broker.http_port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError as error:
        raise NotTold(f"{url}: {error}") from error


def queue(broker: Stompring, name: str) -> dict[str, Any]:
    """Return all attributes of a queue."""
    return dict(json.loads(_read(broker, f"/api/v1/queues/{urllib.parse.quote(name, safe='')}")))


def queues(broker: Stompring, **fields: str) -> list[dict[str, Any]]:
    """Return the queues with these values, at most 1,000."""
    query = urllib.parse.urlencode(fields | {"size": "1000"})
    return list(json.loads(_read(broker, f"/api/v1/queues?{query}"))["data"])


def metrics(broker: Stompring) -> dict[str, float]:
    """Return the metrics: name to the sum over its labels."""
    found: dict[str, float] = {}
    for line in _read(broker, "/metrics").splitlines():
        if line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        found[name] = found.get(name, 0.0) + float(value)
    return found


def ready(broker: Stompring) -> bool:
    """Return whether /health/ready reports a ready broker."""
    try:
        _read(broker, "/health/ready")
    except NotTold:
        return False
    return True


def wait_ready(broker: Stompring, seconds: float) -> None:
    """Wait until the broker is ready. Raises `NotTold` after ``seconds``, `BrokerDied` if the broker has ended."""
    deadline = time.monotonic() + seconds
    while not ready(broker):
        broker.alive()
        if time.monotonic() > deadline:
            raise NotTold(f"not ready within {seconds:g} s:\n{broker.tail()}")
        time.sleep(0.02)


def expect(broker: Stompring, name: str, counter: str, value: int, seconds: float = 20.0) -> None:
    """Wait until a counter of a queue has this value. Raises `NotTold` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while (found := queue(broker, name)[counter]) != value:
        if time.monotonic() > deadline:
            raise NotTold(f"{counter} of {name} is {found} and not {value}")
        time.sleep(0.05)
