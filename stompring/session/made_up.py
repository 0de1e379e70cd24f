"""Names that clients make up and the broker keeps: of subscriptions, transactions, and messages that may come twice."""

from __future__ import annotations

from stompring.broker.directory import MAX_NAME
from stompring.errors import Refused


def bounded(header: str, name: bytes) -> bytes:
    """The name, which is in that header. Raises `Refused` for one that is longer than names of queues may be.

    A header line may be 64 KiB: ten thousand subscriptions, or the ids that one address remembers, would be a gigabyte.
    """
    if len(name) > MAX_NAME:
        raise Refused(f"The header {header} is longer than {MAX_NAME} bytes", status=400)
    return name
