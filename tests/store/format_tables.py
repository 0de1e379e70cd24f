"""docs/dev/store-format.md as a reader of data directories: its tables, and nothing of the broker's own code."""

import json
import re
import struct
from collections import ChainMap
from dataclasses import dataclass, replace

from ..docs.pages import text_of

DOCUMENT = "docs/dev/store-format.md"

NUMBERS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
ROW = re.compile(r"^\| (\d+|…) \| `(\w+)(?:\[([\w*&]+)\])?` \| (\w+) \| (.*?) ?\|$")


@dataclass(frozen=True)
class Field:
    """One row of a table."""

    offset: int | None  # None: right after the one before
    type: str
    count: str | None  # None: one; "*": up to the end
    name: str
    meaning: str

    @property
    def one(self):
        """A field for each item of this one."""
        return replace(self, count=None)


class Malformed(Exception):
    """The bytes are not what a table says."""


class Format:
    """All tables of the document."""

    def __init__(self, text):
        self.tables = {}
        self.kinds = {}
        title = ""
        for line in text.splitlines():
            if line.startswith("#"):
                title = line.lstrip("# ")
            elif found := ROW.match(line):
                offset, kind, count, name, meaning = found.groups()
                number = None if offset == "…" else int(offset)
                self.tables.setdefault(title, []).append(Field(number, kind, count, name, meaning))
            elif found := re.match(r"^\| (\d+) \| \[(\w+)\]\(#(\w+)\) \|", line):
                self.kinds[int(found[1])] = found[2]

    @classmethod
    def of_document(cls):
        """The format as it is documented."""
        return cls(text_of(DOCUMENT))

    def read(self, title, data, at=0, stop=None, outer=None):
        """The fields of one table from ``at`` on, and where they end; ``outer`` are those of the table around it."""
        stop = len(data) if stop is None else stop
        start = at
        fields = ChainMap({}, dict(outer or {}))
        for field in self.tables[title]:
            if field.offset is not None and field.offset != at - start:
                raise Malformed(f"{title}.{field.name} is at {at - start}, not {field.offset}")
            fields[field.name], at = self._read_field(field, fields, data, at, stop)
            if at > stop:
                raise Malformed(f"{title}.{field.name} ends at {at}, beyond {stop}")
        return dict(fields.maps[0]), at

    def payload(self, data):
        """What a payload is, and its fields; it must be used up."""
        title = self.kinds[data[0]]
        fields, at = self.read(title, data)
        if at != len(data):
            raise Malformed(f"{len(data) - at} bytes after the end of {title}")
        return title, fields

    def _read_field(self, field, fields, data, at, stop):
        code = NUMBERS.get(field.type)
        if field.count is None and code is not None:
            if at + struct.calcsize(code) > stop:
                raise Malformed(f"{field.name} is cut off")
            return struct.unpack_from("<" + code, data, at)[0], at + struct.calcsize(code)
        if field.type == "bitmap":
            return _bitmap(self._count(field, fields), fields["count"], data, at)
        if field.type in ("bytes", "text", "json"):
            size = stop - at if field.count == "*" else self._count(field, fields)
            return _text(field.type, data[at : at + size]), at + size
        items = []
        unit = field.one
        wanted = None if field.count == "*" else self._count(field, fields)
        while at < stop if wanted is None else len(items) < wanted:
            item, at = self._read_item(unit, fields, data, at, stop)
            items.append(item)
        return items, at

    def _read_item(self, unit, fields, data, at, stop):
        if unit.type in NUMBERS:
            return self._read_field(unit, fields, data, at, stop)
        return self.read(unit.type, data, at, stop, fields)

    @staticmethod
    def _count(field, fields):
        name, _, bit = field.count.partition("&")
        if bit:
            return int(fields[name] & int(bit) > 0)
        return int(field.count) if field.count.isdigit() else int(fields[field.count])


def _text(kind, data):
    if kind == "bytes":
        return data
    if kind == "text":
        return data.decode("utf-8", "surrogateescape")
    return json.loads(data) if data else None


def _bitmap(messages, count, data, at):
    if count == messages:
        return set(range(messages)), at
    end = at + (messages + 7) // 8
    return {index for index in range(messages) if data[at + index // 8] >> index % 8 & 1}, end
