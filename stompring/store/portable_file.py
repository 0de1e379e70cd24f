"""The file of ``stompring data export``: JSON lines, gzipped where its name ends in ``.gz`` (docs/data.md).

The first line says what the file is, the last one what must have been in it, so that a file that was cut off is
known. Between them each line is an address, a queue or a message.
"""

from __future__ import annotations

import gzip
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from stompring import __version__

from .portable_fields import Fields, Unusable

#: What this version writes, and the newest that it reads.
FORMAT = 1
KINDS = ("address", "queue", "message")
#: gzip's own default costs three times the time for a tenth of the size.
LEVEL = 5


class PortableWriter:
    """Writes a file under another name, and gives it its own when it is complete."""

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        self.counts = dict.fromkeys(KINDS, 0)
        self._part = path.with_name(path.name + ".part")
        # what is in messages is nobody's business but of those who may read the data directory
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._raw = os.fdopen(descriptor, "wb")
        self._file: IO[bytes] = self._raw
        if path.name.endswith(".gz"):
            name = path.name.removesuffix(".gz")
            self._file = gzip.GzipFile(name, "wb", LEVEL, self._raw, now // 1000)  # type: ignore[assignment]
        self._write(
            "export",
            {"format": FORMAT, "id": str(uuid.uuid4()), "version": __version__, "created": now},
        )

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """One line."""
        self.counts[kind] += 1
        self._write(kind, fields)

    def _write(self, kind: str, fields: Mapping[str, Any]) -> None:
        line = json.dumps({kind: fields}, ensure_ascii=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")

    def __enter__(self) -> PortableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if fault is None:
                self._write("end", self.counts)
                if self._file is not self._raw:
                    self._file.close()  # which leaves the file below it open
                self._raw.flush()
                os.fsync(self._raw.fileno())
                os.replace(self._part, self.path)
        finally:
            with suppress(OSError):
                self._raw.close()
            with suppress(FileNotFoundError):
                self._part.unlink()


class PortableReader:
    """Reads a file. Every `Unusable` that is raised names the file and the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self._raw: BufferedReader = path.open("rb")
        self.size = os.fstat(self._raw.fileno()).st_size
        gzipped = self._raw.peek(2)[:2] == b"\x1f\x8b"
        self._file: IO[bytes] = gzip.GzipFile(fileobj=self._raw) if gzipped else self._raw  # type: ignore[assignment]
        kind, header = self._next()
        if kind != "export":
            raise self._wrong("it is no file of 'stompring data export'")
        take = Fields(header, "export")
        try:
            if take.number("format") > FORMAT:
                raise Unusable("it was written by a newer version of stompring")
            self.id = take.text("id")
            self.created = take.number("created")
        except Unusable as fault:
            raise self._wrong(str(fault)) from None

    @property
    def position(self) -> int:
        """Bytes of the file that were read, of `size`."""
        return self._raw.tell()

    def close(self) -> None:
        """Nothing more will be read."""
        self._raw.close()

    def __enter__(self) -> PortableReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Kind and fields of every line between the first and the last. Raises `Unusable` where the last is missing."""
        counts = dict.fromkeys(KINDS, 0)
        while True:
            kind, fields = self._next()
            if kind == "end":
                break
            if kind not in counts:
                raise self._wrong(f"a line cannot be {kind!r}")
            counts[kind] += 1
            yield kind, fields
        if fields != counts:
            raise self._wrong("lines are missing: the last one counts others than there are")
        if self._file.read(1):
            raise self._wrong("something follows the last line")

    def check_whole(self) -> None:
        """Read to the end and see that it is there, without looking at what the lines say. Leaves the file closed."""
        last = b""
        try:
            for line in self._file:
                last = line
        except (OSError, EOFError, zlib.error) as fault:
            raise Unusable(f"{self.path} is damaged: {fault}") from None
        finally:
            self.close()
        if not last.startswith(b'{"end":') or not last.endswith(b"}\n"):
            raise Unusable(f"{self.path} is not whole: its last line is missing")

    def _next(self) -> tuple[str, Any]:
        self.line += 1
        try:
            raw = self._file.readline()
        except (OSError, EOFError, zlib.error) as fault:
            raise self._wrong(f"the file is damaged: {fault}") from None
        if not raw:
            raise self._wrong("the file ends here, and should not" if self.line > 1 else "the file is empty")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError) as fault:
            raise self._wrong(f"it is no JSON: {fault}") from None
        if not isinstance(found, dict) or len(found) != 1:
            raise self._wrong("it is not an object with one field")
        return next(iter(found.items()))

    def _wrong(self, text: str) -> Unusable:
        return Unusable(f"{self.path}:{self.line}: {text}")

    def blame(self, fault: Unusable) -> Unusable:
        """A fault that was found in the fields of the line read last."""
        return self._wrong(str(fault))
