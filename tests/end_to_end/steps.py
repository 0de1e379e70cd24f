"""What clients do again and again."""

from __future__ import annotations

from typing import Any

from ..stomp_client import StompClient, spelled


def connected(broker: Any, version: str = "1.2", **headers: object) -> StompClient:
    """A client of a broker, which is connected."""
    client: StompClient = broker.client(version)
    client.connect(spelled(headers))
    return client


def say(client: StompClient, destination: str, body: bytes = b"", **headers: object) -> None:
    """SEND, and wait for nothing. Headers by `spelled`."""
    client.send("SEND", {"destination": destination, **spelled(headers)}, body)


def receive(client: StompClient, destination: str, *bodies: str, **headers: object) -> None:
    """Subscribe without acknowledgements, and get these messages first."""
    client.subscribe(destination, "auto", **headers)  # type: ignore[arg-type]
    client.messages(*bodies)


def leave(client: StompClient, subscription: str = "s") -> None:
    """UNSUBSCRIBE, and wait for the receipt."""
    client.ask("UNSUBSCRIBE", {"id": subscription})


def begin(client: StompClient, transaction: str = "t") -> None:
    """BEGIN, and wait for the receipt."""
    client.ask("BEGIN", {"transaction": transaction})


def commit(client: StompClient, transaction: str = "t") -> None:
    """COMMIT, and wait for the receipt."""
    client.ask("COMMIT", {"transaction": transaction})


def abort(client: StompClient, transaction: str = "t") -> None:
    """ABORT, and wait for the receipt."""
    client.ask("ABORT", {"transaction": transaction})
