"""What clients do again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..broker_document import broker_xml
from ..management import Management
from ..stomp_client import Frame, StompClient, spelled


def written(directory: Path, name: str = "broker.xml", **document: Any) -> Path:
    """A configuration file; takes what `broker_xml` takes."""
    config = directory / name
    config.write_text(broker_xml(**document), encoding="utf-8")
    return config


def connected(broker: Any, version: str = "1.2", **headers: object) -> StompClient:
    """A client of a broker, which is connected."""
    client: StompClient = broker.client(version)
    client.connect(spelled(headers))
    return client


def say(client: StompClient, destination: str, body: bytes = b"", **headers: object) -> None:
    """SEND, and wait for nothing. Headers by `spelled`."""
    client.send("SEND", {"destination": destination, **spelled(headers)}, body)


def refused(client: StompClient, destination: str, body: bytes, *words: str, **headers: object) -> None:
    """SEND with a receipt is answered by an ERROR with these words, the last frame."""
    say(client, destination, body, receipt="refused", **headers)
    client.error(*words, receipt="refused")


def receive(client: StompClient, destination: str, *bodies: str, **headers: object) -> None:
    """Subscribe without acknowledgements, and get these messages first."""
    client.subscribe(destination, "auto", **headers)  # type: ignore[arg-type]
    client.messages(*bodies)


def several(client: StompClient, number: int) -> list[Frame]:
    """The next messages, whatever they are."""
    return [client.message() for _ in range(number)]


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


def make_queue(management: Management, name: str, **attributes: object) -> Any:
    """A queue, made by management."""
    return management.ask("POST", "/queues", {"name": name, **attributes})
