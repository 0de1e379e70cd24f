"""docs/dev/store-format.md says what is on disk: its tables against what a broker wrote."""

import struct

import pytest

from stompring.broker.message import Message, Traits
from stompring.settings.model import RoutingType
from stompring.store import record
from stompring.store.record import Kind

from .format_reader import ADDRESS, QUEUE, Directory
from .format_tables import NUMBERS, Format
from .populated_directory import Expected, populate

FORMAT = Format.of_document()


#: Tables that are part of others, and may speak of their fields.
AROUND = {"PAGE_FOOTER": ("FOOTER",), "PAGE_MEMBER": ("PAGE_FOOTER", "FOOTER")}


def test_every_kind_of_record_is_documented():
    assert FORMAT.kinds == {kind.value: kind.name for kind in Kind}
    assert set(FORMAT.kinds.values()) <= FORMAT.tables.keys()


@pytest.mark.parametrize("title", sorted(FORMAT.tables))
def test_lengths_name_a_field_before_them(title):
    known = {field.name for outer in AROUND.get(title, ()) for field in FORMAT.tables[outer]}
    for field in FORMAT.tables[title]:
        count = field.count
        assert count is None or count == "*" or count.isdigit() or count.partition("&")[0] in known, (
            field.name
        )
        assert field.type in NUMBERS or count is not None, f"{field.name}: how long is it?"
        known.add(field.name)
    rest = [field.name for field in FORMAT.tables[title] if field.count == "*"]
    assert rest in ([], [FORMAT.tables[title][-1].name]), "only the last one takes the rest"


# ---- records as the code makes them, read with the tables


def message(**traits):
    made = Traits(
        b"priority:7\npersistent:true\ncolour\\c:red\\nblue\n",
        b"/queue/a",
        **traits,
    )
    return Message(41, None, made, b"body\0 of bytes \xff", 1_700_000_000_000, 1_800_000_000_000)


def test_a_message():
    sent = message(
        routing_type=RoutingType.MULTICAST,
        priority=7,
        durable=True,
        group=b"g",
        group_sequence=-1,
        origin="c-9",
        user="anna",
    )
    head = record.message_head(
        sent, 3, struct.pack("<III", 5, 6, 1 << 31), due=99, deliveries=2, transaction=12
    )
    payload = head + sent.tail
    title, fields = FORMAT.payload(payload)
    assert title == "MESSAGE"
    assert fields == {
        "kind": 1,
        "flags": 1 + 4 + 8,
        "priority": 7,
        "deliveries": 2,
        "address": 3,
        "number": 41,
        "timestamp": 1_700_000_000_000,
        "expires": 1_800_000_000_000,
        "due": 99,
        "transaction": 12,
        "head": fields["head"],
        "head_length": len(fields["head"]),
        "body": b"body\0 of bytes \xff",
        "body_length": 16,
        "queue_count": 3,
        "traits_length": 20 + len("/queue/a") + len("anna") + len("c-9") + len("g"),
        "queues": [5, 6, 1 << 31],
        "block_length": len(sent.traits.block),
        "destination_length": 8,
        "user_length": 4,
        "origin_length": 3,
        "group_length": 1,
        "destination": b"/queue/a",
        "user": "anna",
        "origin": "c-9",
        "group": b"g",
        "retain": [],
        "end": b"\0\n",
    }
    assert fields["head"].startswith(b"41\ncontent-length:16\n")
    assert fields["head"].endswith(b"\n" + sent.traits.block + b"\n")
    assert fields["head"][-1 - fields["block_length"] : -1] == sent.traits.block


# ---- a directory that a broker made


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    with populate(tmp_path_factory.mktemp("filled")) as (filled, broker):
        broker.stop()
    return filled, Directory.read(filled.data)


def user_headers(found):
    return {
        name: value
        for name, value in found.headers.items()
        if name not in ("content-length", "timestamp", "expires")
    }


def test_document_tables_recover_every_message(stopped):
    filled, directory = stopped
    contents = sorted(directory.contents(), key=lambda found: found.number)
    for queue in {expected.queue for expected in filled.messages}:
        found = [
            Expected(
                each.queue,
                each.fields["body"],
                user_headers(each),
                each.fields["priority"],
                each.due,
                each.deliveries,
                0 if each.recurrence is None else each.recurrence["repeat"],
            )
            for each in contents
            if each.queue == queue
        ]
        assert found == filled.of(queue), queue
    assert len(contents) == len(filled.messages)


def test_fixture_has_every_kind_of_record(stopped):
    """Segments that rolled, pages, every kind of record: else the tables were not put to the test."""
    _, directory = stopped
    assert len(directory.journal) > 1
    assert any(file.footer for file in directory.journal)
    pages = directory.pages["pages.a"]
    assert len(pages) > 2 and any(file.page_footer for file in pages)
    assert any(found.paged for found in directory.contents())
    titles = {title for file in (*directory.journal, *pages) for _, title, _ in file.records}
    elsewhere = {"SAMPLE", "RETAINED", "SCOPED"}  # tests/store/test_retention.py reads those
    assert titles | {"FOOTER"} == set(directory.format.kinds.values()) - elsewhere


def test_message_fields_match_the_sent_message(stopped):
    _, directory = stopped
    for found in directory.contents():
        fields = found.fields
        assert fields["origin"] == "filler" and fields["user"] == ""
        assert fields["flags"] & 1
        assert fields["block_length"] == len(fields["head"].split(b"\n", 4)[4]) - 1
        assert fields["timestamp"] == int(found.headers["timestamp"])
        assert found.headers["content-length"] == str(len(fields["body"]))
    grouped = [found for found in directory.contents() if found.fields["group"]]
    assert [found.fields["group"] for found in grouped] == [b"g:1"]


def test_document_tables_recover_queue_attributes(stopped):
    _, directory = stopped
    queues = {binding["name"]: binding for (what, _), binding in directory.bindings.items() if what == QUEUE}
    assert "deleted" not in queues
    ring = queues["ring"]
    assert ring["address"] == "ring" and ring["paused"] is True
    attributes = ring["attributes"]
    assert attributes["ring_size"] == 5 and attributes["max_consumers"] == 3
    assert attributes["filter"] == "colour <> 'grey' OR colour IS NULL" and attributes["user"] == "anna"
    assert queues["news.one"]["attributes"]["configured"] is True


def test_addresses_of_queues_are_those_of_the_bindings(stopped):
    _, directory = stopped
    bound = {
        number: binding["address"] for (what, number), binding in directory.bindings.items() if what == QUEUE
    }
    told = {
        number: directory.names[ADDRESS, address] for number, address in directory.queue_addresses.items()
    }
    assert len(told) > 5 and bound.keys() & told.keys()
    assert {number: told[number] for number in bound if number in told} == {
        number: name for number, name in bound.items() if number in told
    }
    named = {
        fields["id"]
        for file in directory.journal
        for _, title, fields in file.records
        if title == "NAME" and fields["what"] == QUEUE
    }
    assert named == told.keys()
