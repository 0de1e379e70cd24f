"""The brokers of a lake: which data directory each one is, and where the lake keeps how far it has been ingested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The name of a broker that is given none.
MAIN = "main"

#: Names are in paths and in SQL.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class UnknownBroker(ValueError):
    """A lake has no broker of this name, or several of which none was named."""


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker: an entry of ``brokers`` in ``lake.json``.

    ``identity`` is that of its data directory in hexadecimal, None while it is not known. ``data`` is where the
    directory was at the last ingest. ``state`` is a folder below ``_stompring`` (empty: that itself), and ``writer``
    the application id of its transactions in the Delta tables.
    """

    name: str
    identity: str | None
    data: str | None
    state: str
    writer: str

    @classmethod
    def new(cls, name: str, identity: str | None, data: str) -> Broker:
        """A broker that the lake has not seen before. Raises `ValueError` for what cannot be a name."""
        return cls(check_name(name), identity, data, f"brokers/{name}", f"stompring-ingest-{name}")

    def dumped(self) -> dict[str, Any]:
        """As it stands in ``lake.json``, under its name."""
        return {"identity": self.identity, "data": self.data, "state": self.state, "writer": self.writer}

    @classmethod
    def loaded(cls, name: str, entry: Mapping[str, Any]) -> Broker:
        """From what `dumped` gives. Raises `KeyError`, `TypeError`."""
        return cls(name, entry["identity"], entry["data"], str(entry["state"]), str(entry["writer"]))


#: The one broker of a lake of version 1, which had no names for brokers and did not know their identities.
FIRST = Broker(MAIN, None, None, "", "stompring-ingest")


def check_name(name: str) -> str:
    """The name itself. Raises `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot be the name of a broker: letters, digits, dots, dashes and underscores, 64 at most"
        )
    return name
