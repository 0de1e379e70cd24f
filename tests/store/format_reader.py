"""A reader of data directories by somebody who has docs/dev/store-format.md and nothing else.

What it knows beyond the tables is said in that document in words: what a later record does to an earlier one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from .format_tables import Format

ADDRESS, QUEUE = 1, 2


@dataclass
class File:
    """A segment or page, with all that its tables say."""

    path: Path
    header: dict[str, Any]
    records: list[tuple[int, str, dict[str, Any]]]  # position, title, fields
    footer: dict[str, Any] | None = None
    page_footer: dict[str, Any] | None = None


@dataclass
class Found:
    """A message in one queue."""

    number: int
    address: str
    queue: str
    fields: dict[str, Any]
    deliveries: int
    attempts: int
    due: int
    recurrence: dict[str, Any] | None
    paged: bool

    @property
    def headers(self):
        """The header lines, unescaped."""
        lines = self.fields["head"].decode().split("\n")[1:-2]
        pairs = (line.split(":", 1) for line in lines)
        return {_plain(name): _plain(value) for name, value in pairs}


def _plain(text):
    for code, character in (("\\n", "\n"), ("\\r", "\r"), ("\\c", ":"), ("\\\\", "\\")):
        text = text.replace(code, character)
    return text


@dataclass
class Directory:
    """All files of a data directory, and what they add up to."""

    format: Format
    root: Path
    journal: list[File] = field(default_factory=list)
    pages: dict[str, list[File]] = field(default_factory=dict)  # by the address's name
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    bindings: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    states: dict[tuple[int, int], tuple[int, int, int, Any]] = field(default_factory=dict)  # number, queue
    gone: set[tuple[int, int]] = field(default_factory=set)
    page_gone: dict[tuple[int, int, int], set[int]] = field(default_factory=dict)  # address, queue, page
    page_states: dict[tuple[int, int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    duplicate_ids: dict[int, dict[int, bytes]] = field(default_factory=dict)  # by address and position
    queue_addresses: dict[int, int] = field(default_factory=dict)
    transactions: set[int] = field(default_factory=set)
    sure: int = 0
    identity: bytes = b""
    page_files: dict[int, dict[str, Any]] = field(default_factory=dict)  # that there must be, by number
    next_page: int = 0
    oldest_segment: int = 0

    @classmethod
    def read(cls, root):
        """Everything below ``root``."""
        self = cls(Format.of_document(), root)
        assert (root / "schema-version").read_text() == "3\n"
        identity = (root / "identity").read_text()
        assert re.fullmatch(r"[0-9a-f]{32}\n", identity)
        self.identity = bytes.fromhex(identity)
        self.journal = [self._file(path, 1) for path in sorted((root / "journal").glob("*.journal"))]
        for folder in sorted((root / "paging").glob("*")):
            name = (folder / "address.txt").read_text()
            self.pages[name.removesuffix("\n")] = [
                self._file(path, 2) for path in sorted(folder.glob("*.page"))
            ]
        for file in self.journal:
            for _, title, fields in file.records:
                self._apply(title, fields)
        self._check_files()
        return self

    # ---- files

    def _check_files(self):
        """The files that there must be are there, and no others."""
        numbers = [file.header["number"] for file in self.journal]
        assert numbers == list(range(self.oldest_segment, numbers[-1] + 1))
        for before, after in zip(self.journal, self.journal[1:], strict=False):
            assert before.footer is not None and after.header["previous"] == before.footer["size"]
        pages = {file.header["number"]: file for files in self.pages.values() for file in files}
        assert pages.keys() == self.page_files.keys() and max(pages) < self.next_page
        for number, file in pages.items():
            told = self.page_files[number]
            assert file.header["address"] == told["address"]
            assert (told["operation"] == 1) is (file.footer is not None)
            if file.page_footer is not None:
                messages = [fields for _, title, fields in file.records if title == "MESSAGE"]
                durable = [message for message in messages if message["flags"] & 1]
                assert told["messages"] == len(messages)
                assert {each["queue"]: each["count"] for each in told["shares"]} == {
                    queue: sum(queue in message["queues"] for message in durable)
                    for queue in {queue for message in durable for queue in message["queues"]}
                }

    def _file(self, path, kind):
        data = path.read_bytes()
        header, at = self.format.read("Header", data)
        assert header["magic"] == b"STOMPRNG" and header["format"] == 3 and header["kind"] == kind
        assert header["number"] == int(path.stem) and header["directory"] == self.identity
        assert header["crc"] == crc32(data[:12] + bytes(4) + data[16:at])
        assert path.stem == f"{int(path.stem):09d}"
        stop, footer_at = len(data), None
        last = self.format.tables["Trailer"][-1]
        size = last.offset + int(last.count)
        trailer, _ = self.format.read("Trailer", data, len(data) - size)
        if trailer["magic"] == b"SEAL":
            assert trailer["crc"] == crc32(data[-size : -size + 8])
            footer_at, stop = trailer["footer"], len(data) - size
        file = File(path, header, [])
        while at < stop and (kind != 1 or footer_at is not None or any(data[at:])):
            record, end = self.format.read("Record", data, at)
            assert record["crc"] == crc32(record["payload"]), (path, at)
            title, fields = self.format.payload(record["payload"])
            if title == "FOOTER":
                assert at == footer_at and end == stop
                file.footer = fields
            else:
                file.records.append((at, title, fields))
            at = end
        if footer_at is not None:
            self._check_footer(file, data)
        return file

    def _check_footer(self, file, data):
        footer = file.footer
        size = footer["size"]
        blocks = [data[at : min(at + 65536, size)] for at in range(0, size, 65536)]
        assert footer["blocks"] == [crc32(block) for block in blocks]
        paged = file.header["kind"] == 2
        starts = [at for at, title, _ in file.records if not paged or title == "MESSAGE"]
        assert footer["starts"] == starts
        addresses = {
            fields["id"] for _, title, fields in file.records if title == "NAME" and fields["what"] == 1
        }
        assert set(footer["addresses"]) == addresses
        messages = [fields for _, title, fields in self._flat(file.records) if title == "MESSAGE"]
        for column in ("number", "timestamp"):
            values = [message[column] for message in messages] or [0]
            assert (footer[f"least_{column}"], footer[f"greatest_{column}"]) == (min(values), max(values)), (
                file.path
            )
        if not paged:
            assert footer["more"] == b""
            return
        found, end = self.format.read("PAGE_FOOTER", footer["more"], outer=footer)
        assert end == len(footer["more"])
        file.page_footer = found
        self._check_page_footer(found, messages)

    @staticmethod
    def _check_page_footer(found, messages):
        kinds = [m["priority"] + 1 + 128 * (m["flags"] & 1) + 64 * (m["due"] > 0) for m in messages]
        assert found["kinds"] == (kinds[:1] if len(set(kinds)) == 1 else kinds)
        for column, name in (("expires", "soonest_expiry"), ("due", "soonest_due")):
            assert found[name] == min((m[column] for m in messages if m[column]), default=0)
        assert found["greatest_transaction"] == max(m["transaction"] for m in messages)
        members = {}
        for index, message in enumerate(messages):
            for queue in message["queues"]:
                members.setdefault(queue, set()).add(index)
        assert {each["queue"]: each["bitmap"] for each in found["members"]} == members

    def _flat(self, records):
        for at, title, fields in records:
            if title == "TRANSACTION":
                for part in fields["parts"]:
                    yield at, *self.format.payload(part["content"])
            else:
                yield at, title, fields

    # ---- what records mean

    def _apply(self, title, fields):
        if title == "TRANSACTION":
            for part in fields["parts"]:
                self._apply(*self.format.payload(part["content"]))
            self.transactions.add(fields["number"])
        elif title == "NAME":
            self.names[fields["what"], fields["id"]] = fields["name"]
        elif title == "BINDING":
            key = fields["what"], fields["id"]
            if fields["operation"] == 0:
                self.bindings[key] = fields["attributes"]
            else:
                self.bindings.pop(key, None)
        elif title == "NUMBERS":
            self.sure = fields["next_transaction"]
            self.next_page, self.oldest_segment = fields["next_page"], fields["oldest_segment"]
        elif title == "PAGE_FILE":
            self.page_files[fields["page"]] = fields
            if fields["operation"] == 2:
                del self.page_files[fields["page"]]
        elif title == "DUPLICATE_IDS":
            found = self.duplicate_ids.setdefault(fields["address"], {})
            found.update(enumerate([each["content"] for each in fields["ids"]], fields["first"]))
        elif title == "QUEUE_ADDRESS":
            assert (QUEUE, fields["queue"]) in self.names and (ADDRESS, fields["address"]) in self.names
            self.queue_addresses[fields["queue"]] = fields["address"]
        elif title.startswith("PAGE_"):
            self._apply_to_page(title, fields)
        else:
            self._apply_to_message(title, fields)

    def _apply_to_message(self, title, fields):
        if title == "MESSAGE":
            number = fields["number"]
            self.messages[number] = fields
            for queue in fields["queues"]:
                self.gone.discard((number, queue))
                self.states[number, queue] = fields["deliveries"], 0, fields["due"], None
            return
        queue = fields["queue"]
        if title == "STATE":
            state = fields["deliveries"], fields["attempts"], fields["due"], fields["recurrence"]
            self.states[fields["number"], queue] = state
            return
        for number in fields["numbers"]:
            if title == "SETTLED":
                self.gone.add((number, queue))
            else:
                deliveries, *rest = self.states.get((number, queue), (0, 0, 0, None))
                self.states[number, queue] = deliveries + 1, *rest

    def _apply_to_page(self, title, fields):
        key = fields["address"], fields["queue"], fields["page"]
        if title == "PAGE_STATE":
            state = fields["deliveries"], fields["attempts"], fields["due"]
            self.page_states[*key, fields["index"]] = state
            return
        settled = {
            index for run in fields["runs"] for index in range(run["first"], run["first"] + run["count"])
        }
        if title == "PAGE_CURSOR":
            self.page_gone[key] = settled
        else:
            self.page_gone.setdefault(key, set()).update(settled)

    # ---- what is there

    def contents(self):
        """Every message in every queue that has not given it up."""
        for number, fields in self.messages.items():
            for queue in fields["queues"]:
                if (number, queue) not in self.gone and (QUEUE, queue) in self.bindings:
                    yield self._found(fields, queue, self.states[number, queue], paged=False)
        for files in self.pages.values():
            for file in files:
                yield from self._contents_of(file)

    def _contents_of(self, file):
        page = int(file.path.stem)
        for _, title, fields in file.records:
            if title == "NAME":
                self.names.setdefault((fields["what"], fields["id"]), fields["name"])
        messages = [fields for _, title, fields in file.records if title == "MESSAGE"]
        for index, fields in enumerate(messages):
            transaction = fields["transaction"]
            if transaction and transaction >= self.sure and transaction not in self.transactions:
                continue
            for queue in fields["queues"]:
                key = fields["address"], queue, page
                lasts = fields["flags"] & 1 and (QUEUE, queue) in self.bindings
                if lasts and index not in self.page_gone.get(key, ()):
                    state = self.page_states.get((*key, index), (fields["deliveries"], 0, fields["due"]))
                    yield self._found(fields, queue, (*state, None), paged=True)

    def _found(self, fields, queue, state, *, paged):
        address = self.names[ADDRESS, fields["address"]]
        return Found(fields["number"], address, self.names[QUEUE, queue], fields, *state, paged=paged)
