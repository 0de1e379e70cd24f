"""A second reader of the replicated log, without code of the product: who wrote what, and the files from it."""

import asyncio
import struct
import time
from dataclasses import dataclass
from typing import TypeVar

import nats.errors

HEAD = struct.Struct(">BBQQQQHH")
WRITE, WHOLE, TRUNCATE, REMOVE, MOVE, BEAT, CLAIM, RELEASE, REWRITE, REWRITTEN = range(1, 11)

#: Seconds in which NATS must answer.
ANSWERS = 30.0

T = TypeVar("T")

#: What of a data directory is in the log.
FILES = ("identity", "schema-version")
DIRECTORIES = ("journal", "paging")


@dataclass(frozen=True)
class Entry:
    """One message of the stream."""

    sequence: int
    operation: int
    writer: int
    number: int
    at: int
    path: str
    target: str
    data: bytes


def decode(sequence, payload):
    """An entry from the payload of its message."""
    version, operation, writer, number, _, at, path, target = HEAD.unpack_from(payload)
    assert version == 2, f"entry {sequence} has format {version}"
    rest = payload[HEAD.size :]
    names = rest[:path].decode(), rest[path : path + target].decode()
    return Entry(sequence, operation, writer, number, at, *names, rest[path + target :])


def read(servers, stream, after=0):
    """All entries behind a sequence that are not purged."""
    return insist(lambda: _read(servers.split(","), stream, after))


def insist(ask):
    """What NATS answers, if need be a little later: it elects a leader now and then. Raises what it raised last."""
    deadline = time.monotonic() + ANSWERS
    while True:
        try:
            return asyncio.run(ask())
        except (nats.errors.Error, OSError):  # a timeout is one, too
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


async def _read(servers, stream, after):
    import nats
    from nats.js.api import ConsumerConfig, DeliverPolicy

    connection = await nats.connect(servers, allow_reconnect=False, connect_timeout=5)
    try:
        context = connection.jetstream(timeout=10)
        state = (await context.stream_info(stream)).state
        found = []
        if state.last_seq <= after or not state.messages or state.last_seq < state.first_seq:
            return found
        config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=after + 1)
        subscription = await context.subscribe(
            f"{stream}.>", stream=stream, ordered_consumer=True, config=config
        )
        sequence = after
        while sequence < state.last_seq:
            try:
                message = await subscription.next_msg(timeout=5)
            except TimeoutError:
                break  # the last ones may be purged meanwhile
            sequence = message.metadata.sequence.stream
            found.append(decode(sequence, message.data))
        await subscription.unsubscribe()
        return found
    finally:
        await connection.close()


class Writers:
    """Checks that each sequence has one writer, and that a writer that was followed by another never wrote again."""

    def __init__(self):
        self.last = 0
        self.writers = []
        self.faults = []
        self._number = 0
        self._sequence = 0

    def check(self, entries):
        """The next entries in order."""
        for entry in entries:
            if entry.sequence <= self.last:
                self.faults.append(f"entry {entry.sequence} comes after {self.last}")
            if not self.writers or entry.writer != self.writers[-1]:
                self._next_writer(entry)
            elif entry.number - self._number != entry.sequence - self._sequence:
                self.faults.append(
                    f"entry {entry.sequence} is number {entry.number} of its writer; "
                    f"entry {self._sequence} was number {self._number}"
                )
            self.last = self._sequence = entry.sequence
            self._number = entry.number

    def _next_writer(self, entry):
        if entry.writer in self.writers:
            self.faults.append(f"entry {entry.sequence}: writer {entry.writer} wrote after it was fenced")
        # the claim itself may be purged, as a beat
        elif entry.operation != CLAIM and entry.sequence == self.last + 1 and self.writers:
            self.faults.append(f"entry {entry.sequence} is the first of its writer, and claims nothing")
        self.writers.append(entry.writer)


def files_of(entries):
    """The files that the entries make."""
    files = {}
    for entry in entries:
        if entry.operation == WRITE:
            file = files.setdefault(entry.path, bytearray())
            if len(file) < entry.at:
                file.extend(bytes(entry.at - len(file)))
            file[entry.at : entry.at + len(entry.data)] = entry.data
        elif entry.operation == WHOLE:
            files[entry.path] = bytearray(entry.data)
        elif entry.operation in (TRUNCATE, REWRITTEN):
            file = files.setdefault(entry.path, bytearray())
            del file[entry.at :]
            file.extend(bytes(entry.at - len(file)))
        elif entry.operation in (REMOVE, MOVE):
            files.pop(entry.path, None)
    return {path: bytes(data) for path, data in files.items()}


def files_in(directory):
    """The files of a data directory that are in the log."""
    found = {name: (directory / name).read_bytes() for name in FILES if (directory / name).exists()}
    for part in DIRECTORIES:
        for path in (directory / part).rglob("*"):
            if path.is_file():
                found[path.relative_to(directory).as_posix()] = path.read_bytes()
    return found


def differences(first, second, names):
    """What is not equal, byte for byte."""
    found = []
    for path in sorted(first.keys() | second.keys()):
        one, other = first.get(path), second.get(path)
        if one is None or other is None:
            missing, there = names if one is None else names[::-1]
            found.append(f"{path} is in {there} ({len(one or other or b'')} bytes), not in {missing}")
        elif one != other:
            pairs = enumerate(zip(one, other, strict=False))
            at = next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
            found.append(
                f"{path} has {len(one)} bytes in {names[0]}, {len(other)} in {names[1]}; they differ from {at} on"
            )
    return found
