"""The XML that ``artemis data exp`` writes: addresses, queues and messages of an Artemis broker (docs/data.md).

The reader reads pieces of 64 KiB, and has one message in memory. The file names only the address, the filter and the
routing type of a queue.

Artemis writes control characters and line ends in property values unescaped. XML forbids control characters, and a
parser turns line ends into blanks. `_repaired` escapes both. Artemis's own import fails at control characters, and
changes line ends.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from xml.parsers import expat  # nosec B407 - a document type is refused, so no entity can be declared

from stompring.broker.directory import WildcardAddresses
from stompring.broker.message import Traits
from stompring.settings.model import RoutingType, WildcardSyntax, frozen
from stompring.stomp.frames import header_line

from .export import (
    DeclaredQueue,
    Entry,
    ImportedFile,
    InvalidExport,
    PortableAddress,
    PortableMessage,
    QueueEntry,
)

CHUNK = 64 * 1024

#: Maximum length of a tag in bytes, enough for the value of one property. A longer tag is malformed.
LONGEST_TAG = 64 * 1024 * 1024

#: Names of Artemis's internal addresses and queues.
INTERNAL = re.compile(
    r"\$sys\.|\$\.artemis\.|\$\.activemq\.|\$ACTIVEMQ_|activemq\.(management|notifications)(\.|$)"
)

#: Store-and-forward queues of a cluster. Their messages wait for another broker.
STORE_AND_FORWARD = re.compile(r"\$\.(artemis|activemq)\.internal\.sf\.")

#: Properties that have another name in STOMP.
RENAMED = {
    "JMSCorrelationID": "correlation-id",
    "JMSReplyTo": "reply-to",
    "JMSType": "type",
    "_AMQ_CONTENT_TYPE": "content-type",
    "_AMQ_GROUP_ID": "JMSXGroupID",
    "_AMQ_GROUP_SEQUENCE": "JMSXGroupSeq",
    "_AMQ_INGRESS_TIMESTAMP": "ingress-timestamp",
}

#: Properties that do not become headers of a MESSAGE: instructions of a SEND, and those that only Artemis uses.
NOT_HEADERS = frozenset(
    {
        "_AMQ_LARGE_COMPRESSED",
        "_AMQ_LARGE_SIZE",
        "_AMQ_ROUTING_TYPE",
        "_AMQ_SCHED_DELIVERY",
        "__AMQ_CID",
        "ack",
        "browser",
        "content-length",
        "destination",
        "expires",
        "message-id",
        "persistent",
        "priority",
        "receipt",
        "redelivered",
        "selector",
        "subscription",
        "timestamp",
        "transaction",
    }
)

#: The suffix that Artemis adds to the filter of a durable ``no-local`` subscription. The suffix contains the id of a
#: connection, which is closed by the time of the import.
NO_LOCAL = re.compile(r"(?:\((?P<own>.*)\) AND )?\(__AMQ_CID <> '[^']*' OR __AMQ_CID IS NULL\)", re.DOTALL)

#: Types of messages whose bodies only Artemis's own clients can read.
JAVA_BODIES = frozenset({"map", "object", "stream"})


# ---- XML as Artemis writes it


#: A tag with characters that XML may forbid, or read as blanks.
_TAG = re.compile(rb"<[^<>\x00-\x1f\xef]*(?:[\x00-\x1f]|\xef)[^<>]*>")
_VALUE = re.compile(rb'"[^"]*"' + rb"|'[^']*'")
_FORBIDDEN = re.compile(rb"[\x00-\x1f]|\xef\xbf[\xbe\xbf]")

#: The first of the 32 noncharacters of Unicode that stand for the 32 control characters while the parser runs.
_RESERVED = 0xFDD0
_REPLACEMENTS = {
    **{bytes([code]): chr(_RESERVED + code).encode() for code in range(32)},
    **{b"\n": b"&#10;", b"\r": b"&#13;", b"\t": b"&#9;"},
    **{b"\xef\xbf\xbe": "\U0001fffe".encode(), b"\xef\xbf\xbf": "\U0001ffff".encode()},
}
_BACK = {_RESERVED + code: code for code in range(32)} | {0x1FFFE: 0xFFFE, 0x1FFFF: 0xFFFF}


def _repaired(tag: re.Match[bytes]) -> bytes:
    """Return a tag with its control characters, line ends and tabs in a form that XML allows."""
    lines = 0

    def value(found: re.Match[bytes]) -> bytes:
        nonlocal lines
        lines += found[0].count(b"\n")
        return _FORBIDDEN.sub(lambda character: _REPLACEMENTS[character[0]], found[0])

    text = _VALUE.sub(value, tag[0])
    if not lines:
        return text
    end = -2 if text.endswith(b"/>") else -1
    return text[:end] + b"\n" * lines + text[end:]  # keep the number of lines: errors name a line


class ArtemisExportReader(ImportedFile):
    """Reads an export file of Artemis. Each `InvalidExport` names the file, and the line if it is known.

    ``skipped``: number of messages in queues that the import skips, by the reason for the skip. ``java_bodies``: number
    of messages with a body in a Java format, by the type of the message.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.skipped: Counter[str] = Counter()
        self.java_bodies: Counter[str] = Counter()
        self._line = 1  # line at which the latest entry from `entries` ends
        self._entries: deque[tuple[int, Entry]] = deque()  # entries to yield, each with its last line
        self._left = b""  # the beginning of an incomplete tag
        self._elements: list[str] = []  # names of the open elements
        self._queues: dict[str, DeclaredQueue] = {}
        self._wildcards = WildcardAddresses(WildcardSyntax())
        self._message: _MessageReader | None = None
        self._parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartCdataSectionHandler = parser.EndCdataSectionHandler = self._cdata
        parser.StartDoctypeDeclHandler = self._doctype

    def identify(self) -> str:
        """Read the whole file, return its digest, and rewind. Raises `InvalidExport` if the end is missing."""
        digest = hashlib.blake2b(digest_size=16)
        last = b""
        for chunk in self._chunks():
            digest.update(chunk)
            last = (last + chunk)[-100:]
        if not last.rstrip().endswith(b"</activemq-journal>"):
            first = "not an 'artemis data exp' file, or truncated"
            raise InvalidExport(f"{self.path}: {first}: its end is not </activemq-journal>")
        self._file.seek(0)
        return digest.hexdigest()

    def entries(self) -> Iterator[Entry]:
        """Yield addresses, queues and messages in the order of the file. Raises `InvalidExport`."""
        for chunk in self._chunks():
            self._feed(chunk)
            while self._entries:
                self._line, entry = self._entries.popleft()
                yield entry
        self._parse(self._left, True)

    def _chunks(self) -> Iterator[bytes]:
        try:
            while chunk := self._file.read(CHUNK):
                yield chunk
        except (OSError, EOFError, zlib.error) as fault:
            raise InvalidExport(f"{self.path}: the file is damaged: {fault}") from None

    def wrong(self, text: str) -> InvalidExport:
        """Return an error at the line of the entry that `entries` yielded last."""
        return InvalidExport(f"{self.path}:{self._line}: {text}")

    def invalid(self, text: str) -> InvalidExport:
        """Return an error at the current line of the parser."""
        return InvalidExport(f"{self.path}:{self._parser.CurrentLineNumber}: {text}")

    # ---- XML

    def _feed(self, chunk: bytes) -> None:
        if not self._elements and chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise self.invalid("the file is UTF-16; convert it to UTF-8")
        data = self._left + chunk
        end = data.rfind(b">") + 1
        tag = data.find(b"<", end)
        if tag < 0 or data.startswith(b"<![CDATA[", tag):  # the text of a body may have any length
            end = len(data)
        self._left = data[end:]
        self._parse(_TAG.sub(_repaired, data[:end]), False)
        if len(self._left) > LONGEST_TAG:
            raise self.invalid("not XML: a tag has no end")

    def _parse(self, data: bytes, final: bool) -> None:
        try:
            self._parser.Parse(data, final)
        except expat.ExpatError as fault:
            text = expat.ErrorString(fault.code)
            raise InvalidExport(f"{self.path}:{fault.lineno}: not well-formed XML: {text}") from None

    # ---- events

    def _doctype(self, *_: object) -> None:
        raise self.invalid("a document type is not allowed")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        elements = self._elements
        elements.append(name)
        depth = len(elements)
        if depth == 1:
            if name != "activemq-journal":
                raise self.invalid(f"not an 'artemis data exp' file: the root is <{name}>")
            return
        given = _Attributes(self, name, attributes)
        parent = elements[-2]
        if parent == "bindings":
            if name == "address-binding":
                self._address(given)
            elif name == "queue-binding":
                self._queue(given)
            else:
                raise self.invalid(f"unknown element <{name}>")
        elif name == "message" and parent == "messages":
            self._message = _MessageReader(self, given)
        elif self._message is not None:
            self._message.start(name, parent, given)
        elif name not in ("bindings", "messages") or depth != 2:
            raise self.invalid(f"unknown element <{name}>")

    def _end(self, name: str) -> None:
        self._elements.pop()
        message = self._message
        if message is None:
            return
        if name == "message":
            self._message = None
            entry = message.entry(self._queues, self._wildcards)
            if entry is not None:
                self._add(entry)
        elif name == "body":
            message.end_piece()

    def _cdata(self) -> None:
        if self._message is not None:
            self._message.end_piece()

    def _text(self, data: str) -> None:
        if self._message is not None and self._elements[-1] == "body":
            self._message.piece.append(data)
        elif data.strip():
            raise self.invalid(f"unexpected text {data.strip()[:40]!r} in <{self._elements[-1]}>")

    def _add(self, entry: Entry) -> None:
        self._entries.append((self._parser.CurrentLineNumber, entry))

    # ---- bindings

    def _address(self, given: _Attributes) -> None:
        name = given.text("name")
        if not INTERNAL.match(name):
            types = frozenset(
                given.routing_type(each, "routing-types")
                for each in given.text("routing-types").split(",")
                if each
            )
            self._add(PortableAddress(name, types))

    def _queue(self, given: _Attributes) -> None:
        name, address = given.text("name"), given.text("address")
        if INTERNAL.match(name) or INTERNAL.match(address):
            return
        filter_ = given.text("filter-string", "").strip()
        if own := NO_LOCAL.fullmatch(filter_):
            filter_ = own["own"] or ""
        kind = given.routing_type(given.text("routing-type"), "routing-type")
        queue = self._queues[name] = DeclaredQueue(name, address, kind, filter_ or None)
        if self._wildcards.is_wildcard(address):
            self._wildcards.add(address)
        self._add(queue)


@frozen
class _Attributes:
    """The attributes of one element. Control characters in their values are restored."""

    _reader: ArtemisExportReader
    _element: str
    _values: dict[str, str]

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if value is None:
            raise self._reader.invalid(f"<{self._element}> has no attribute {name}")
        return value if value.isascii() else value.translate(_BACK)

    def number(self, name: str, most: int = 2**63 - 1, default: str | None = None) -> int:
        value = self.text(name, default)
        with suppress(ValueError):
            if 0 <= (found := int(value)) <= most:
                return found
        raise self._reader.invalid(
            f"<{self._element}>: {name} is an integer from 0 to {most}, not {value[:40]!r}"
        )

    def routing_type(self, value: str, name: str) -> RoutingType:
        if value not in RoutingType.__members__:
            raise self._reader.invalid(
                f"<{self._element}>: {name} is ANYCAST or MULTICAST, not {value[:40]!r}"
            )
        return RoutingType(value)


# ---- messages


class _MessageReader:
    """Collects the parts of one message from the parser."""

    def __init__(self, reader: ArtemisExportReader, given: _Attributes) -> None:
        self._reader = reader
        self._number = given.number("id")
        self._priority = given.number("priority", 9, "4")
        self._expires = given.number("expiration", default="0")
        self._timestamp = given.number("timestamp", default="0")
        self._type = given.text("type", "default")
        self._properties: dict[str, tuple[str, str]] = {}
        self._queues: list[str] = []
        # Artemis encodes each piece of a large body as Base64
        self.piece: list[str] = []  # Base64 text of the current piece
        self._pieces: list[bytes] = []  # decoded pieces of the body

    def start(self, name: str, parent: str, given: _Attributes) -> None:
        if name == "property" and parent == "properties":
            self._properties[given.text("name")] = given.text("type", "string"), given.text("value")
        elif name == "queue" and parent == "queues":
            self._queues.append(given.text("name"))
        elif name not in ("properties", "queues", "body") or parent != "message":
            raise self._reader.invalid(f"unknown element <{name}> in <{parent}>")
        elif name == "body":
            self._pieces.clear()

    def end_piece(self) -> None:
        try:
            self._pieces += [
                base64.b64decode(text, b"-_", validate=True) for text in "".join(self.piece).split()
            ]
        except ValueError:
            raise self._reader.invalid("<body> is not Base64") from None
        self.piece.clear()

    # ---- conversion

    def entry(
        self, queues: Mapping[str, DeclaredQueue], wildcards: WildcardAddresses
    ) -> PortableMessage | None:
        places = [queues[name] for name in self._queues if name in queues]
        for name in self._queues:
            if name in queues:
                continue
            reason = f"in queue {name}, which did not exist any more"
            if STORE_AND_FORWARD.match(name):
                reason = f"in {name}, which waits for another broker of a cluster"
            elif INTERNAL.match(name):
                reason = f"in Artemis's own queue {name}"
            self._reader.skipped[reason] += 1
        if not places:
            return None
        properties = self._properties
        destination = "" if "_AMQ_ORIG_ADDRESS" in properties else self._property("destination")
        # the file does not name the address of a message: take the address of its queue, or for a queue on a wildcard
        # address the destination of the message
        address = places[0].address
        if address in wildcards.matching(destination):
            address = destination
        due = self._due()
        name = "_AMQ_GROUP_SEQUENCE" if "_AMQ_GROUP_SEQUENCE" in properties else "JMSXGroupSeq"
        traits = Traits(
            b"priority:%d\npersistent:true\n" % self._priority + b"".join(self._header_lines()),
            (destination or address).encode("utf-8", "replace"),
            _ROUTING_TYPES.get(self._property("_AMQ_ROUTING_TYPE")),
            self._priority,
            True,
            0,
            self._property("_AMQ_GROUP_ID").encode("utf-8", "replace") or None,
            -1 if self._property(name).strip() == "-1" else 0,
            None,
            self._property("_AMQ_VALIDATED_USER") or None,
        )
        return PortableMessage(
            self._number,
            address,
            tuple(QueueEntry(place.name, due=due) for place in places),
            traits,
            self._final_body(),
            self._timestamp,
            self._expires,
        )

    def _property(self, name: str) -> str:
        """Return the value of a property, an empty string if it is missing."""
        return self._properties.get(name, ("", ""))[1]

    def _due(self) -> int:
        found = self._properties.get("_AMQ_SCHED_DELIVERY")
        if found is None:
            return 0
        with suppress(ValueError):
            return max(0, int(found[1]))
        raise self._reader.invalid(f"_AMQ_SCHED_DELIVERY is not an integer: {found[1][:40]!r}")

    def _header_lines(self) -> Iterator[bytes]:
        for name, (kind, value) in self._properties.items():
            if name in NOT_HEADERS or not name or (kind == "bytes" and value == "null"):
                continue
            header = RENAMED.get(name, name)
            if header != name and header in self._properties:
                continue  # the sender has also set a property with the new name
            if name == "JMSReplyTo":  # Artemis adds a prefix to this property
                value = value.removeprefix("queue://").removeprefix("topic://")
            pair = [text.replace("\0", "\ufffd").encode("utf-8", "replace") for text in (header, value)]
            yield header_line(*pair)

    def _final_body(self) -> bytes:
        body, kind = b"".join(self._pieces), self._type
        if self._property("_AMQ_LARGE_COMPRESSED") == "true":
            try:
                body = zlib.decompress(body)
            except zlib.error as fault:
                raise self._reader.invalid(
                    f"the compressed body of message {self._number}: {fault}"
                ) from None
        if kind == "text":
            return self._characters(body)
        if kind in JAVA_BODIES:
            self._reader.java_bodies[kind] += 1
        return body

    def _characters(self, body: bytes) -> bytes:
        """Convert the body of a text message to UTF-8: a byte (0: no text), a length in bytes, and text in UTF-16."""
        if not body or body[0] == 0:
            return b""
        length = int.from_bytes(body[1:5], "big")
        if len(body) < 5 or len(body) - 5 < length:
            raise self._reader.invalid(f"the text of message {self._number} is truncated")
        return body[5 : 5 + length].decode("utf-16-le", "replace").encode()


_ROUTING_TYPES = {"0": RoutingType.MULTICAST, "1": RoutingType.ANYCAST}
