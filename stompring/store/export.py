"""The export format of ``stompring data export``: JSON lines with addresses, queues and messages (docs/data.md).

Fields have the names of the management API. Bytes that are not UTF-8 become ``{"base64": …}``. The first line
identifies the file, the last one counts its lines, so that a reader detects a truncated file.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import MISSING, asdict, fields
from enum import StrEnum
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

from stompring import __version__
from stompring.broker.clock import Recurrence
from stompring.broker.message import TAIL_END, Message, Traits
from stompring.broker.reference import QueueAttributes
from stompring.errors import Refused
from stompring.settings.model import QueueConfiguration, RoutingType, camel_case, frozen, options_of
from stompring.settings.value_types import VALUE_TYPES
from stompring.stomp.frames import header_line, unescape

from .bindings import ATTRIBUTES, UNUSABLE, StoredAddress, StoredQueue, describe_attributes
from .encoder import recurrence_fields, unpack_recurrence
from .inspection import DirectoryContents, Findings, JournalInspection
from .record import ADDRESS, QUEUE, TraitsCache

T = TypeVar("T")


class InvalidExport(Exception):
    """An export file, or a field in it, is malformed. The text names the field."""


def encode_text(data: bytes) -> str | dict[str, str]:
    """Return bytes as a string if they are UTF-8, else as ``{"base64": …}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def as_json(row: Any) -> dict[str, Any]:
    """Return the fields of a data class by their names in JSON."""
    return {camel_case(each.name): getattr(row, each.name) for each in fields(row)}


class FieldReader:
    """Reads the fields of a JSON object. Every method raises `InvalidExport` for a missing or invalid field."""

    def __init__(self, given: Any, what: str) -> None:
        if not isinstance(given, Mapping):
            raise InvalidExport(f"{what} is not an object")
        self._left = dict(given)
        self._what = what

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def value(self, name: str) -> Any:
        """Remove a field of any type from the object, and return its value."""
        try:
            return self._left.pop(name)
        except KeyError:
            raise InvalidExport(f"{self._what} has no field {name}") from None

    def done(self, found: T) -> T:
        """Return ``found``, the parsed object. Raises `InvalidExport` if a field of the JSON object was not read."""
        if self._left:
            raise InvalidExport(f"{self._what} has an unknown field {sorted(self._left)[0]}")
        return found

    def optional(self, name: str, read: Callable[[str], T]) -> T | None:
        """Return the field as ``read``, a method of this object, returns it; None if the field is null."""
        if self._left.get(name, "") is None:
            self.value(name)
            return None
        return read(name)

    def text(self, name: str) -> str:
        value = self.value(name)
        if not isinstance(value, str):
            raise InvalidExport(f"{self._what}: {name} is not a string")
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise InvalidExport(f"{self._what}: {name} is not a boolean")
        return value

    def number(self, name: str, most: int = 2**63 - 1, least: int = 0) -> int:
        """Return a field that is an integer from ``least`` to ``most``."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidExport(f"{self._what}: {name} is not an integer from {least} to {most}")
        return value

    def choice(self, name: str, kind: type[StrEnum]) -> Any:
        """Return a field that is a member of an enumeration; None if the field is null."""
        value = self.optional(name, self.text)
        if value is not None and value not in kind.__members__:
            raise InvalidExport(f"{self._what}: {name} is one of {', '.join(kind)}, not {value}")
        return None if value is None else kind(value)

    def items(self, name: str) -> list[Any]:
        value = self.value(name)
        if not isinstance(value, list):
            raise InvalidExport(f"{self._what}: {name} is not a list")
        return value

    def raw(self, name: str) -> bytes:
        """Return a field as bytes. The field is a string or ``{"base64": …}``."""
        return self.as_bytes(name, self.value(name))

    def as_bytes(self, name: str, value: Any) -> bytes:
        """Decode ``value``, a part of the field ``name``, as bytes."""
        with suppress(ValueError, TypeError):
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, Mapping) and value.keys() == {"base64"}:
                return base64.b64decode(value["base64"], validate=True)
        raise InvalidExport(f'{self._what}: {name} is neither a string nor {{"base64": …}}')


@frozen
class QueueEntry:
    """The state of a message in one queue."""

    queue: str
    deliveries: int = 0
    attempts: int = 0  # number of failed deliveries
    due: int = 0  # epoch ms; 0: not scheduled
    recurrence: Recurrence | None = None


@frozen
class PortableMessage:
    """A message with all the queues that hold it."""

    number: int  # number in the exporting broker; an import assigns another
    address: str
    places: Sequence[QueueEntry]
    traits: Traits
    body: bytes
    timestamp: int  # epoch ms
    expires: int  # epoch ms; 0: never

    def fields(self) -> dict[str, Any]:
        traits = self.traits
        return {
            "number": self.number,
            "address": self.address,
            "queues": [
                {
                    "queue": place.queue,
                    "deliveryCount": place.deliveries,
                    "failedAttempts": place.attempts,
                    "dueTime": place.due or None,
                    "recurrence": None if place.recurrence is None else recurrence_fields(place.recurrence),
                }
                for place in self.places
            ],
            "priority": traits.priority,
            "durable": traits.durable,
            "timestamp": self.timestamp,
            "expires": self.expires,
            "routingType": traits.routing_type,
            "destination": encode_text(traits.destination),
            "user": traits.user,
            "origin": None if traits.origin is None else str(traits.origin),
            "group": None if traits.group is None else encode_text(traits.group),
            "groupEnd": traits.group_sequence == -1,
            "headers": [
                [encode_text(name), encode_text(value)] for name, value in header_pairs(traits.block)
            ],
            "body": encode_text(self.body),
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableMessage:
        """Parse the JSON object of a message. Raises `InvalidExport`."""
        take = FieldReader(given, "message")
        block = b"".join(header_line(name, value) for name, value in _headers(take))
        traits = Traits(
            block,
            take.raw("destination"),
            take.choice("routingType", RoutingType),
            take.number("priority", 9),
            take.flag("durable"),
            0,
            take.optional("group", take.raw),
            -1 if take.flag("groupEnd") else 0,
            take.optional("origin", take.text),
            take.optional("user", take.text),
        )
        number, address, places = take.number("number"), take.text("address"), take.items("queues")
        if not places:
            raise InvalidExport("message: queues is empty")
        return take.done(
            cls(
                number,
                address,
                tuple(map(_place, places)),
                traits,
                take.raw("body"),
                take.number("timestamp"),
                take.number("expires"),
            )
        )

    def message(self, number: int, address: Any) -> Message:
        """Create the message on an `Address` of the importing broker."""
        traits = address.mark(self.traits)
        return Message(number, address, traits, self.body, self.timestamp, self.expires)


def header_pairs(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return name and value of each header in a block of header lines, unescaped, in order."""
    pairs = (line.partition(b":") for line in block.split(b"\n")[:-1])
    return [(unescape(name, b"1.2"), unescape(value, b"1.2")) for name, _, value in pairs]


def _headers(take: FieldReader) -> list[tuple[bytes, bytes]]:
    pairs = take.items("headers")
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise InvalidExport("headers is not a list of [name, value] pairs")
    return [(take.as_bytes("headers", name), take.as_bytes("headers", value)) for name, value in pairs]


def _place(given: Mapping[str, Any]) -> QueueEntry:
    take = FieldReader(given, "queues")
    due = take.optional("dueTime", take.number) or 0
    recurrence = take.value("recurrence")
    return take.done(
        QueueEntry(
            take.text("queue"),
            take.number("deliveryCount", 2**32 - 1),
            take.number("failedAttempts", 2**32 - 1),
            due,
            None if recurrence is None else _recurrence(recurrence),
        )
    )


def _recurrence(given: Any) -> Recurrence:
    take = FieldReader(given, "recurrence")
    try:
        found = Recurrence(
            take.number("period"),
            take.number("repeat", least=-1),
            take.optional("cron", take.text),
            take.number("delay"),
        )
    except Refused as fault:
        raise InvalidExport(str(fault)) from None
    return take.done(found)


# ---- queues and addresses


#: Names of the stored queue attributes (`bindings.ATTRIBUTES`), by their names in JSON.
QUEUE_FIELDS = {camel_case(name): name for name in ATTRIBUTES}
#: Types of the queue attributes that are options in broker.xml. Other attributes are flags that only the broker sets.
ATTRIBUTE_TYPES = {row.name: VALUE_TYPES[row.type] for row in options_of(QueueConfiguration)} | {
    "routing_type": VALUE_TYPES["routingType"]
}
FLAG = VALUE_TYPES["boolean"]


@frozen
class PortableQueue:
    """A queue with all its attributes, by their names in `QueueAttributes`."""

    name: str
    address: str
    attributes: Mapping[str, Any]
    paused: bool = False
    no_local: str | None = None  # origin of the messages that a no-local subscription skips
    as_configured: Mapping[str, Any] | None = None  # attributes in broker.xml when the file was last applied

    def fields(self) -> dict[str, Any]:
        configured = self.as_configured
        return {
            "name": self.name,
            "address": self.address,
            **_shown(self.attributes),
            "paused": self.paused,
            "noLocal": self.no_local,
            "asConfigured": None if configured is None else _shown(configured),
        }

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableQueue:
        """Parse the JSON object of a queue. Raises `InvalidExport`."""
        take = FieldReader(given, "queue")
        configured = take.value("asConfigured")
        return take.done(
            cls(
                take.text("name"),
                take.text("address"),
                _attributes(take),
                take.flag("paused"),
                take.optional("noLocal", take.text),
                None if configured is None else _only_attributes(configured),
            )
        )


def _shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attributes[ours] for name, ours in QUEUE_FIELDS.items()}


def _only_attributes(given: Any) -> dict[str, Any]:
    take = FieldReader(given, "asConfigured")
    return take.done(_attributes(take))


#: Default values of queue attributes, for files of older versions, which lack some attributes.
_DEFAULTS = {each.name: each.default for each in fields(QueueAttributes) if each.default is not MISSING}


def _attributes(take: FieldReader) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for shown, ours in QUEUE_FIELDS.items():
        if ours in _DEFAULTS and shown not in take:
            found[ours] = _DEFAULTS[ours]
            continue
        value_type = ATTRIBUTE_TYPES.get(ours, FLAG)
        if value_type.choices is not None:
            found[ours] = take.choice(shown, value_type.choices)
            if found[ours] is None:
                raise InvalidExport(f"queue: {shown} is missing")
        elif value_type.kind is bool:
            found[ours] = take.flag(shown)
        elif value_type.kind is int:
            found[ours] = take.number(shown, least=-1)
        else:
            found[ours] = take.optional(shown, take.text)
    return found


@frozen
class PortableAddress:
    """An address, without its queues."""

    name: str
    routing_types: frozenset[RoutingType]
    auto_created: bool = False
    configured: bool = False
    paused: bool = False

    def fields(self) -> dict[str, Any]:
        return {**as_json(self), "routingTypes": sorted(self.routing_types)}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PortableAddress:
        """Parse the JSON object of an address. Raises `InvalidExport`."""
        take = FieldReader(given, "address")
        types = take.items("routingTypes")
        if unknown := [each for each in types if each not in RoutingType.__members__]:
            raise InvalidExport(f"routingTypes: {unknown[0]!r} is not a routing type")
        return take.done(
            cls(
                take.text("name"),
                frozenset(map(RoutingType, types)),
                take.flag("autoCreated"),
                take.flag("configured"),
                take.flag("paused"),
            )
        )


@frozen
class DeclaredQueue:
    """A queue in an Artemis export. The export has only these attributes; the others come from the configuration."""

    name: str
    address: str
    routing_type: RoutingType
    filter: str | None = None


#: An address, a queue or a message in an import file.
Entry = PortableAddress | PortableQueue | DeclaredQueue | PortableMessage

#: The format that this version writes, and the newest that it reads.
FORMAT = 1
KINDS: dict[str, type[PortableAddress | PortableQueue | PortableMessage]] = {
    "address": PortableAddress,
    "queue": PortableQueue,
    "message": PortableMessage,
}
#: Compression level of exports. Level 9, the default of Python, takes three times as long for a tenth less bytes.
GZIP_LEVEL = 5


class ExportWriter:
    """Writes an export file to a temporary name. A context manager: it renames the complete file to ``path``."""

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        self.counts = dict.fromkeys(KINDS, 0)
        self._part = path.with_name(path.name + ".part")
        # the file is as confidential as the data directory
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        self._raw = os.fdopen(descriptor, "wb")
        self._file: IO[bytes] = self._raw
        if path.name.endswith(".gz"):
            name = path.name.removesuffix(".gz")
            self._file = gzip.GzipFile(name, "wb", GZIP_LEVEL, self._raw, now // 1000)  # type: ignore[assignment]
        self.write(
            "export",
            {"format": FORMAT, "id": str(uuid.uuid4()), "version": __version__, "created": now},
        )

    def write(self, kind: str, fields: Mapping[str, Any]) -> None:
        if kind in self.counts:
            self.counts[kind] += 1
        line = json.dumps({kind: fields}, ensure_ascii=False, separators=(",", ":"))
        self._file.write(line.encode() + b"\n")

    def __enter__(self) -> ExportWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if fault is None:
                self.write("end", self.counts)
                if self._file is not self._raw:
                    self._file.close()  # writes the end of the gzip data; the raw file stays open
                self._raw.flush()
                os.fsync(self._raw.fileno())
                os.replace(self._part, self.path)
        finally:
            with suppress(OSError):
                self._raw.close()
            with suppress(FileNotFoundError):
                self._part.unlink()


class ImportedFile(ExitStack[None]):
    """An input file, gzipped or not. Use it as a context manager. ``size`` is its size in bytes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._raw: BufferedReader = self.enter_context(path.open("rb"))
        self.size = os.fstat(self._raw.fileno()).st_size
        gzipped = self._raw.peek(2)[:2] == b"\x1f\x8b"
        self._file: IO[bytes] = gzip.GzipFile(fileobj=self._raw) if gzipped else self._raw  # type: ignore[assignment]

    @property
    def position(self) -> int:
        """Number of bytes read so far, of ``size`` bytes."""
        return self._raw.tell()


class ExportReader(ImportedFile):
    """Reads an export file. Each `InvalidExport` names the file, and the line if it is known."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.line = 0
        kind, header = self._next()
        if kind != "export":
            raise self.wrong("not a 'stompring data export' file")
        take = FieldReader(header, "export")
        try:
            if take.number("format") > FORMAT:
                raise InvalidExport("written by a newer version of stompring")
            self.id = take.text("id")
            self.created = take.number("created")
        except InvalidExport as fault:
            raise self.wrong(str(fault)) from None

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield kind and fields of each line except the first and last. Raises `InvalidExport` if lines are missing."""
        counts = dict.fromkeys(KINDS, 0)
        while True:
            kind, fields = self._next()
            if kind == "end":
                break
            if kind not in counts:
                raise self.wrong(f"unknown line type {kind!r}")
            counts[kind] += 1
            yield kind, fields
        if fields != counts:
            raise self.wrong("lines are missing: the counts in the last line do not match")
        if self._file.read(1):
            raise self.wrong("unexpected data after the last line")

    def identify(self) -> str:
        """Return the id of the export. Raises `InvalidExport` if the end of the file is missing."""
        ExportReader(self.path).check_whole()
        return self.id

    def entries(self) -> Iterator[Entry]:
        """Yield addresses, queues and messages in the order of the file. Raises `InvalidExport`."""
        for kind, given in self:
            try:
                entry = KINDS[kind].of(given)
            except InvalidExport as fault:
                raise self.wrong(str(fault)) from None
            yield entry

    def check_whole(self) -> None:
        """Check the last line, without parsing the other lines, and close the file. Raises `InvalidExport`."""
        last = b""
        try:
            for line in self._file:
                last = line
        except (OSError, EOFError, zlib.error) as fault:
            raise InvalidExport(f"{self.path} is damaged: {fault}") from None
        finally:
            self.close()
        if not last.startswith(b'{"end":') or not last.endswith(b"}\n"):
            raise InvalidExport(f"{self.path} is truncated: the last line is missing")

    def _next(self) -> tuple[str, Any]:
        self.line += 1
        try:
            raw = self._file.readline()
        except (OSError, EOFError, zlib.error) as fault:
            raise self.wrong(f"the file is damaged: {fault}") from None
        if not raw:
            raise self.wrong("unexpected end of file" if self.line > 1 else "the file is empty")
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError) as fault:
            raise self.wrong(f"invalid JSON: {fault}") from None
        if not isinstance(found, dict) or len(found) != 1:
            raise self.wrong("not an object with exactly one field")
        return next(iter(found.items()))

    def wrong(self, text: str) -> InvalidExport:
        """Return an `InvalidExport` that names the latest line that was read."""
        return InvalidExport(f"{self.path}:{self.line}: {text}")


def bound_queues(journal: JournalInspection) -> dict[int, PortableQueue]:
    """Return the queues with a valid BINDING record, by number. `faults` reports invalid records."""
    return {
        number: PortableQueue(
            stored.name,
            stored.address,
            describe_attributes(stored.attributes),
            stored.paused,
            stored.no_local,
            None if stored.as_configured is None else describe_attributes(stored.as_configured),
        )
        for number, stored in _bound(journal, QUEUE, StoredQueue.parse)
    }


def bound_addresses(journal: JournalInspection) -> dict[int, PortableAddress]:
    """Return the addresses with a valid BINDING record, by number. `faults` reports invalid records."""
    return {
        number: PortableAddress(**asdict(stored))
        for number, stored in _bound(journal, ADDRESS, StoredAddress.parse)
    }


def _bound(
    journal: JournalInspection, what: int, parse: Callable[[Mapping[str, Any]], T]
) -> Iterator[tuple[int, T]]:
    for (kind, number), (_, binding) in journal.bindings.items():
        if kind == what:
            with suppress(*UNUSABLE):
                yield number, parse(binding)


def faults(journal: JournalInspection) -> Iterator[str]:
    """Yield texts about invalid bindings, and about queues whose address does not exist."""
    addresses, queues = bound_addresses(journal), bound_queues(journal)
    for what, number in journal.bindings:
        if what == QUEUE and number not in queues:
            yield f"invalid binding record of queue {journal.queue(number)} (number {number})"
        elif what == ADDRESS and number not in addresses:
            name = journal.names.get((ADDRESS, number), "")
            yield f"invalid binding record of address {name} (number {number})"
    names = {address.name for address in addresses.values()}
    for number, queue in queues.items():
        if queue.address not in names:
            yield f"queue {queue.name} (number {number}) is bound to address {queue.address}, which does not exist"


def export(contents: DirectoryContents, path: Path, now: int, findings: Findings) -> dict[str, int]:
    """Export everything that a broker would recover from a directory. Returns the number of lines of each kind.

    Messages are in the order of their numbers, which is the order of delivery within a priority. ``now``: epoch ms.
    """
    journal = contents.journal
    queues, addresses = bound_queues(journal), bound_addresses(journal)
    names = {number: queue.name for number, queue in queues.items()}
    memo = TraitsCache()
    with ExportWriter(path, now) as writer:
        for address in addresses.values():
            writer.write("address", address.fields())
        for queue in queues.values():
            writer.write("queue", queue.fields())
        for held in contents.messages():
            places = [
                QueueEntry(names[number], *state[:3], unpack_recurrence(state.recurrence))
                for number, state in held.queues.items()
                if number in names
            ]
            if not places:
                findings(held.path, held.at, f"message {held.number} is in no existing queue")
                continue
            stored = held.stored
            traits, tail = stored.contents(memo)
            message = PortableMessage(
                held.number,
                journal.names.get((ADDRESS, stored.address), ""),
                places,
                traits,
                tail[stored.head : -TAIL_END],
                stored.timestamp,
                stored.expires,
            )
            writer.write("message", message.fields())
    return writer.counts
