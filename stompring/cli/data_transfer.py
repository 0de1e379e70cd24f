"""What is common to all ways that an import can go: the file from its first line to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from stompring.cli.data import progress
from stompring.store.export import (
    ExportReader,
    InvalidExport,
    PortableAddress,
    PortableMessage,
    PortableQueue,
)


class ImportTarget(Protocol):
    """Where an import goes."""

    most_messages: int  # that may count together
    most_bytes: int  # of their bodies

    def begin(self, marker: str) -> int:
        """How many messages of this file have come already; ``marker`` is the queue that remembers it."""

    def address(self, address: PortableAddress) -> None:
        """An address is to be there."""

    def queue(self, queue: PortableQueue) -> None:
        """A queue is to be there, as it is told here."""

    def message(self, message: PortableMessage) -> None:
        """A message comes."""

    def commit(self, done: int) -> None:
        """Everything since the last time counts, and with it that ``done`` messages of the file have come."""

    def settle(self) -> None:
        """Wait until all of it is safe."""

    def finish(self) -> None:
        """The import is complete and reported."""


def transfer(file: Path, receiver: ImportTarget) -> tuple[int, int]:
    """Bring in all that is in a file; returns how many messages it has, and how many of them had come before.

    Raises `InvalidExport` with file and line.
    """
    ExportReader(file).check_whole()
    with ExportReader(file) as reader, progress("importing", reader.size) as step:
        before = receiver.begin(f"stompring.import.{reader.id}")
        count = waiting = size = position = 0
        for kind, fields in reader:
            try:
                if kind == "address":
                    receiver.address(PortableAddress.of(fields))
                elif kind == "queue":
                    receiver.queue(PortableQueue.of(fields))
                else:
                    message = PortableMessage.of(fields)
            except InvalidExport as fault:
                raise reader.blame(fault) from None
            if kind != "message":
                continue
            count += 1
            if count <= before:
                continue
            receiver.message(message)
            waiting, size = waiting + 1, size + len(message.body)
            if waiting >= receiver.most_messages or size >= receiver.most_bytes:
                receiver.commit(count)
                waiting = size = 0
                step(reader.position - position)
                position = reader.position
        if waiting:
            receiver.commit(count)
        receiver.settle()
    return count, min(before, count)
