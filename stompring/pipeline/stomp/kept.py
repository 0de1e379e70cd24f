"""The rows of a task that may have to be sent once more: in memory, and on disk where there are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

#: Bytes of record batches that are kept in memory; what comes behind them goes to a file.
MOST = 64 << 20


class Kept(AbstractContextManager["Kept"]):
    """Record batches of one schema, given back in their order. Leaving it deletes the file, which has no name."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._batches: list[Any] = []
        self._size = 0
        self._over = False
        self._file: Any = None
        self._writer: Any = None

    def __exit__(self, *exception: object) -> None:
        self._batches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def through(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The same batches, each kept before it is handed on."""
        for batch in batches:
            self._keep(batch)
            yield batch

    def again(self) -> Iterator[Any]:
        """All that was kept. What goes through after is not."""
        self._over = True
        yield from self._batches
        if self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)

    def _keep(self, batch: Any) -> None:
        if self._over:
            return
        self._size += batch.nbytes
        if self._size <= self._most:
            self._batches.append(batch)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)
