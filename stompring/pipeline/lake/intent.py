"""What an ingest was about to do: written down before each batch, so that the next run completes what one has begun."""

from __future__ import annotations

import json
from dataclasses import dataclass

from stompring.pipeline.folder import Folder
from stompring.pipeline.positions import Positions, dumped, loaded
from stompring.store.ingested import Busy

_FOLDER = "batches"

#: How many are kept.
KEPT = 20


@dataclass(frozen=True, slots=True)
class Intent:
    """Batch ``number``: what is between two positions, put to tables that were at some versions of theirs before."""

    number: int
    start: Positions
    end: Positions
    versions: dict[str, int]


class Intents:
    """Those of one lake, the last one first to be asked for."""

    def __init__(self, state: Folder) -> None:
        self._state = state

    def last(self) -> Intent | None:
        """The newest one, None before the first. Raises `ValueError` for a file that cannot be read."""
        names = self._names()
        return self._read(names[-1]) if names else None

    def of_batch(self, number: int) -> Intent | None:
        """That of a batch, None where it is not kept any more. Raises `ValueError`."""
        name = f"{_FOLDER}/{number:09d}.json"
        return self._read(name) if name in self._names() else None

    def _read(self, name: str) -> Intent:
        text = self._state.read(name)
        try:
            told = json.loads(text)
            return Intent(
                int(told["batch"]), loaded(told["start"]), loaded(told["end"]), dict(told["versions"])
            )
        except (ValueError, KeyError, TypeError) as fault:
            raise ValueError(f"{self._state}/{name} cannot be read: {fault!r}") from None

    def write(self, intent: Intent) -> None:
        """Remember one, for good when this returns. Raises `Busy` where another process has begun the same batch."""
        told = {
            "version": 1,
            "batch": intent.number,
            "start": dumped(intent.start),
            "end": dumped(intent.end),
            "versions": intent.versions,
        }
        try:
            self._state.create(f"{_FOLDER}/{intent.number:09d}.json", json.dumps(told, indent=1).encode())
        except FileExistsError as fault:
            raise Busy(f"another process ingests: batch {intent.number} is its ({fault})") from None
        for name in self._names()[:-KEPT]:
            self._state.remove(name)

    def _names(self) -> list[str]:
        return sorted(one.name for one in self._state.entries(_FOLDER) if one.name.endswith(".json"))
