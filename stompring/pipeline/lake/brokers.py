"""The brokers of a lake: which data directory each one is, and where the lake keeps how far it has been ingested."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stompring.pipeline.backlog import DirectoryReplaced

#: The name of a broker that is given none.
DEFAULT_BROKER = "main"

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

    @property
    def directory(self) -> bytes | None:
        """The identity as segments have it."""
        return None if self.identity is None else bytes.fromhex(self.identity)

    def dumped(self) -> dict[str, Any]:
        """As it stands in ``lake.json``, under its name."""
        return {"identity": self.identity, "data": self.data, "state": self.state, "writer": self.writer}

    @classmethod
    def loaded(cls, name: str, entry: Mapping[str, Any]) -> Broker:
        """From what `dump_positions` gives. Raises `KeyError`, `TypeError`."""
        return cls(name, entry["identity"], entry["data"], str(entry["state"]), str(entry["writer"]))


def identified_broker(
    brokers: Mapping[str, Broker], name: str, identity: str | None, data: str, lake: str
) -> Broker:
    """The broker of a name, when the directory that is to be ingested under it has an identity and is at ``data``.

    A directory of no known identity, as those of format 1, is taken for the one it was: its positions tell. Raises
    `DirectoryReplaced` for another one, `ValueError` for what cannot be a name.
    """
    known = brokers.get(name)
    here = f"data directory {data} has {'no identity' if identity is None else f'identity {identity}'}"
    other = next(
        (one for one in brokers.values() if one.name != name and _is_same(one, identity, data)), None
    )
    if other is not None:
        raise DirectoryReplaced(
            f"{here}, and the lake {lake} has it as broker {other.name!r} (at {other.data}): ingesting it under a "
            f"second name would duplicate each message; use --as {other.name}"
        )
    if known is None:
        return Broker.new(name, identity, data)
    if known.identity is not None and known.identity != identity:
        raise DirectoryReplaced(
            f"{here}, but broker {name!r} of the lake {lake} has identity {known.identity} (at {known.data}): the "
            "directory belongs to another broker or was created anew; to ingest both into this lake, use another "
            "name: --as NAME"
        )
    return replace(known, identity=identity, data=data)


def _is_same(broker: Broker, identity: str | None, data: str) -> bool:
    return broker.data == data if identity is None else broker.identity == identity


#: The one broker of a lake of version 1, which had no names for brokers and did not know their identities.
VERSION_1_BROKER = Broker(DEFAULT_BROKER, None, None, "", "stompring-ingest")


def check_name(name: str) -> str:
    """The name itself. Raises `ValueError`."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"invalid broker name {name!r}: use letters, digits, dots, dashes and underscores, at most 64 characters"
        )
    return name
