"""Views of a lake: columns of bodies and headers, what does not fit, and tables that grow with the messages."""

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from stompring.pipeline.lake.duckdb_query import query
from stompring.pipeline.lake.lake import Maintenance
from stompring.pipeline.lake.views import (
    Inference,
    InvalidSchema,
    ViewDefinition,
    ViewError,
    from_avro,
    from_json_schema,
)

from .ingesting import done, run
from .lake_fixture import BEGIN, LakeFixture

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": "number"},
        "paid": {"type": ["boolean", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "rest": {},
        "address": {"type": "string"},
    },
    "$defs": {
        "line": {
            "type": "object",
            "required": ["sku"],
            "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
        }
    },
}

GOOD = [
    {"id": 1},
    {"id": 2.0, "price": 3, "paid": None, "at": "2026-07-01T12:00:00.123456789+02:00", "day": "2026-02-28"},
    {"id": -(2**63), "lines": [{"sku": "a", "count": 2, "more": 1}, {"sku": "é\u0000"}], "tags": {"a": "b"}},
    {"id": 4, "rest": {"any": [1, "x"]}, "address": "Main Street"},
    {"id": 5, "rest": "text", "at": "2026-07-01t12:00:00", "lines": [], "ignored": {}},
]

#: Bodies that do not fit, and what is said of them.
BAD = [
    (b"", "the body is not JSON"),
    (b"\xff", "the body is not UTF-8"),
    (b"{", "the body is not JSON"),
    (b"[]", "#: [] is not an object"),
    (b"{}", "#: id is required"),
    (b'{"id": null}', "/id: null is not allowed"),
    (b'{"id": "1"}', '/id: "1" is not a whole number'),
    (b'{"id": true}', "/id: true is not a whole number"),
    (b'{"id": 1.5}', "/id: 1.5 is not a whole number"),
    (b'{"id": 9223372036854775808}', "/id: out of range of BIGINT"),
    (b'{"id": 1e30}', "/id: out of range of BIGINT"),
    (b'{"id": 1, "price": 1e999}', "/price: out of range of DOUBLE"),
    (b'{"id": 1, "price": NaN}', "NaN is not a JSON value"),
    (b'{"id": 1, "price": ' + b"9" * 400 + b"}", "/price: out of range of DOUBLE"),
    (b'{"id": ' + b"9" * 5000 + b"}", "the body is not JSON"),
    (b'{"id": 1, "paid": 0}', "/paid: 0 is not a boolean"),
    (b'{"id": 1, "at": "2026-02-30T00:00:00Z"}', "/at: "),
    (b'{"id": 1, "at": "0001-01-01T00:00:00+10:00"}', "/at: "),
    (b'{"id": 1, "at": "yesterday"}', '/at: "yesterday" is not an RFC 3339 date-time'),
    (b'{"id": 1, "day": "2026-2-3"}', "/day: "),
    (b'{"id": 1, "lines": [{"sku": "a"}, {"count": 1}]}', "/lines/1: sku is required"),
    (b'{"id": 1, "lines": {}}', "/lines: {} is not an array"),
    (b'{"id": 1, "tags": {"a": 1}}', "/tags/a: 1 is not a string"),
    (b'{"id": 1, "address": "\\ud800"}', "/address: the string has an unpaired surrogate"),
    (b"[" * 100_000, "the body is nested too deeply"),
]


def schema_file(tmp_path, schema=ORDER):
    path = tmp_path / "schema.json"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(path)


def rows_of(filled, text):
    with query(filled.lake, text) as result:
        return list(result.rows())


def values_of(filled):
    """The own columns of a view that are not null, by row."""
    text = "select * exclude (message_id, queue, address, timestamp, broker) from v order by message_id"
    with query(filled.lake, text) as result:
        rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def view(filled, *words):
    return done("view", "v", "--lake", str(filled.lake), *words)


def typed(filled, tmp_path, *words):
    return view(filled, "--address", "orders", "--json-schema", schema_file(tmp_path), *words)


@pytest.fixture
def filled(tmp_path):
    return LakeFixture(tmp_path / "lake")


def test_json_schema_gives_types_and_keeps_what_does_not_fit(filled, tmp_path):
    filled.add(*[json.dumps(one).encode() for one in GOOD], headers={"region": "north", "n": "7"})
    filled.add(b'{"id": 99}', address="elsewhere")
    filled.add(*[body for body, _ in BAD])
    told = typed(filled, tmp_path, "--header", "n:int")
    columns = dict(line.split() for line in told.splitlines())
    assert columns == {
        "message_id": "BIGINT",
        "queue": "STRING",
        "address": "STRING",
        "timestamp": "TIMESTAMP",
        "broker": "STRING",
        "n": "INT",
        "id": "BIGINT",
        "price": "DOUBLE",
        "paid": "BOOLEAN",
        "at": "TIMESTAMP",
        "day": "DATE",
        "lines": "ARRAY<STRUCT<sku:STRING,count:BIGINT>>",
        "tags": "MAP<STRING,STRING>",
        "rest": "STRING",
        "body_address": "STRING",
        "_bad": "STRUCT<body:BINARY,reason:STRING>",
    }
    rows = values_of(filled)
    good, bad = rows[: len(GOOD)], rows[len(GOOD) :]
    lines = [{"sku": "a", "count": 2}, {"sku": "é\0", "count": None}]
    assert [row.pop("n") for row in good] == [7] * len(good)
    assert good == [
        {"id": 1},
        {"id": 2, "price": 3.0, "at": datetime(2026, 7, 1, 10, 0, 0, 123456), "day": date(2026, 2, 28)},
        {"id": -(2**63), "lines": lines, "tags": {"a": "b"}},
        {"id": 4, "rest": '{"any": [1, "x"]}', "body_address": "Main Street"},
        {"id": 5, "at": datetime(2026, 7, 1, 12), "lines": [], "rest": "text"},
    ]
    for row, (body, reason) in zip(bad, BAD, strict=True):
        assert [*row] == ["_bad"] and row["_bad"]["body"] == body and reason in row["_bad"]["reason"], row
    assert rows_of(filled, "select min(timestamp) from v") == [[BEGIN.replace(tzinfo=None)]]


@pytest.mark.parametrize(
    "property_, reason",
    [
        ({"type": "int"}, "/type: 'int' is not one of array, boolean"),
        ({"type": ["string", "integer"]}, "/type: string and integer: a column"),
        ({"title": "x"}, ": type is missing"),
        ({"$ref": "other.json"}, "/$ref: 'other.json' is not within this file"),
        ({"$ref": "#/$defs/b"}, "/$ref: #/$defs/b does not exist"),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "/anyOf: a column must have one type besides null, not 2",
        ),
        ({"allOf": []}, "/allOf: not supported, it determines no column type"),
        (False, ": false is not a schema"),
    ],
)
def test_property_that_gives_no_column_is_refused_with_its_place(property_, reason):
    with pytest.raises(InvalidSchema, match=f"^#/properties/a{re.escape(reason)}"):
        from_json_schema(json.dumps({"properties": {"a": property_}}).encode())


@pytest.mark.parametrize(
    "schema, reason",
    [
        ({"type": "array"}, "#: an object with properties is required"),
        ({"type": "object"}, "#: an object with properties is required"),
        ({"properties": {"Ab": {}, "aB": {}}}, "#/properties: Ab and aB differ only in case"),
        (
            {
                "$defs": {"b": {"properties": {"c": {"$ref": "#/$defs/b"}}}},
                "properties": {"a": {"$ref": "#/$defs/b"}},
            },
            "#/$defs/b/properties/c/$ref: #/$defs/b is recursive",
        ),
    ],
)
def test_schema_that_gives_no_columns_is_refused_with_its_place(schema, reason):
    with pytest.raises(InvalidSchema, match=f"^{re.escape(reason)}"):
        from_json_schema(json.dumps(schema).encode())


def test_names_that_are_taken_get_a_prefix(filled, tmp_path):
    schema = {
        "properties": {"Queue": {"type": "string"}, "region": {"type": "string"}, "_bad": {"type": "string"}}
    }
    filled.add(b'{"Queue": "b", "region": "c"}', headers={"region": "d", "queue": "e"})
    words = (
        "--address",
        "#",
        "--json-schema",
        schema_file(tmp_path, schema),
        "--header",
        "region",
        "--header",
        "queue",
    )
    view(filled, *words)
    found = rows_of(filled, "select region, header_queue, body_Queue, body_region, body__bad, queue from v")
    assert found == [["d", "e", "b", "c", None, "orders"]]
    with pytest.raises(InvalidSchema, match="columns: a and A differ only in case"):
        ViewDefinition("w", ("a",), headers=(("a", "string"), ("A", "string"))).check()


#: Type, text of the header, and the value; None where it does not fit.
TYPED = [
    ("int", "2147483647", 2**31 - 1),
    ("int", "2147483648", None),
    ("long", "+12", 12),
    ("long", "１", None),
    ("long", "1_000", None),
    ("double", "1e3", 1000.0),
    ("double", "nan", None),
    ("boolean", "TRUE", True),
    ("boolean", "yes", None),
    ("date", "2026-07-01", date(2026, 7, 1)),
    ("timestamp", "2026-07-01T00:00:00Z", datetime(2026, 7, 1)),
    ("string", "", ""),
]


def test_header_of_a_type(filled):
    for number, (_, text, _) in enumerate(TYPED):
        filled.add(b"raw", headers={f"h{number}": text})
    filled.add(b"raw")
    headers = [
        word for number, (type_, *_) in enumerate(TYPED) for word in ("--header", f"h{number}:{type_}")
    ]
    view(filled, "--address", "orders", *headers)
    *found, without = values_of(filled)
    assert without == {}
    for number, (row, (_, _, expected)) in enumerate(zip(found, TYPED, strict=True)):
        if expected is None:
            assert [*row] == ["_bad"] and row["_bad"]["body"] == b"raw"
            assert row["_bad"]["reason"].startswith(f"header h{number}: ")
        else:
            assert row == {f"h{number}": expected}


def test_selector_and_patterns_choose(filled):
    filled.add(b"1", address="a.b", headers={"kind": "x"}, priority=7)
    filled.add(b"2", address="a.b", headers={"kind": "x"}, priority=3)
    filled.add(b"3", address="a.c.d", headers={"kind": "y"}, priority=9)
    filled.add(b"4", address="other", priority=9)
    view(filled, "--address", "a.#", "--where", "AMQPriority > 5", "--header", "kind")
    assert rows_of(filled, "select address, kind from v order by 1") == [["a.b", "x"], ["a.c.d", "y"]]
    done("view", "w", "--lake", str(filled.lake), "--address", "a.*,other", "--header", "kind")
    assert (
        len(rows_of(filled, "select v.kind from v join w using (message_id)")) == 1
    )  # scanned more than once


def test_inference_widens_and_reports(filled):
    bodies = [
        {"n": 1, "x": 1, "t": "2026-07-01T00:00:00Z", "s": "a", "o": {"a": 1}, "l": [1], "e": None, "m": 1},
        {
            "n": 2**70,
            "x": 1.5,
            "t": "2026-07-01T00:00:00Z",
            "s": 5,
            "o": {"b": [True]},
            "l": [None, 2.5],
            "m": {},
        },
        {"t": None, "d": "2026-07-01", "s": {"k": 1}},
    ]
    filled.add(*[json.dumps(one).encode() for one in bodies], b"no json", b"[1]")
    result = run("view", "v", "--lake", str(filled.lake), "--address", "orders", "--infer")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "mixed types: /n: a larger one in 1, a whole number in 1: DOUBLE",
        "mixed types: /x: a number in 1, a whole number in 1: DOUBLE",
        "mixed types: /s: a whole number in 1, an object in 1, a string in 1: STRING",
        "mixed types: /l/[]: a number in 1, a whole number in 1: DOUBLE",
        "mixed types: /m: a whole number in 1, an object in 1: STRING",
        "2 of 5 bodies are not JSON objects",
    ]
    columns = dict(line.split() for line in result.stdout.splitlines())
    assert {name: columns[name] for name in ("n", "x", "t", "s", "o", "l", "e", "m", "d")} == {
        "n": "DOUBLE",
        "x": "DOUBLE",
        "t": "TIMESTAMP",
        "s": "STRING",
        "o": "STRUCT<a:BIGINT,b:ARRAY<BOOLEAN>>",
        "l": "ARRAY<DOUBLE>",
        "e": "STRING",
        "m": "STRING",
        "d": "DATE",
    }
    assert rows_of(filled, "select n, s, l, d from v where _bad is null order by message_id") == [
        [1.0, "a", [1.0], None],
        [float(2**70), "5", [None, 2.5], None],
        [None, '{"k": 1}', None, date(2026, 7, 1)],
    ]
    assert rows_of(filled, "select count(*) from v where _bad is not null") == [[2]]


def test_names_in_bodies_do_not_reach_the_terminal_as_they_are(filled):
    filled.add(b'{"\\u001b[2J": 1}', b'{"\\u001b[2J": {"\\u001b[0m": 1}}', b'{"o": {"\\u001b[1m": 1}}')
    made = run("view", "v", "--lake", str(filled.lake), "--address", "orders", "--infer")
    text = made.output + made.stderr + run("views", "--lake", str(filled.lake)).output
    assert "mixed types: /\\x1b[2J" in text and "STRUCT<\\x1b[1m" in text and "\x1b" not in text


def test_inference_of_names_that_are_data_and_of_nothing():
    seen = Inference()
    with pytest.raises(InvalidSchema, match="none of 0 bodies is a JSON object"):
        seen.fields()
    for number in range(1200):
        seen.add(json.dumps({"by": {str(number): 1}, "Case": {"a": 1, "A": 2}, "deep": 1}).encode())
    fields, notes = seen.fields()
    assert dict(ViewDefinition("v", ("#",), fields=fields).shown()[5:-1]) == {
        "by": "STRING",
        "Case": "STRING",
        "deep": "BIGINT",
    }
    assert notes == ["/by: more than 1,000 names: STRING", "/Case: 'a' and 'A' differ only in case: STRING"]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
    ],
}


def test_avro(filled, tmp_path):
    fastavro = pytest.importorskip("fastavro")
    key, moment = UUID(int=5), datetime(2026, 7, 1, 12, 0, 0, 5000, UTC)
    value = {
        "id": 1,
        "note": "é",
        "at": moment,
        "price": Decimal("1.25"),
        "kind": "B",
        "key": key,
        "lines": [{"a": 1}],
    }
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), value)
    body = file.getvalue()
    canonical = fastavro.schema.to_parsing_canonical_form(AVRO)
    mark = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
    filled.add(body, b"\xc3\x01" + mark + body, body[:-1], body + b"x", b"", b"\x80" * 30)
    view(filled, "--address", "orders", "--avro", schema_file(tmp_path, AVRO), "--materialize")
    *found, torn, longer, empty, rubbish = values_of(filled)
    assert found == [value | {"at": moment.replace(tzinfo=None), "key": str(key)}] * 2
    for row in (torn, longer, empty, rubbish):
        assert [*row] == ["_bad"] and "is not Avro of this schema" in row["_bad"]["reason"]
    assert "1 bytes follow the value" in longer["_bad"]["reason"]


@pytest.mark.parametrize(
    "type_, reason",
    [
        (["int", "string"], "a union of 2 types besides null is not supported"),
        (["null", "R"], "R is recursive"),
        ({"type": "int", "logicalType": "time-millis"}, "logical type time-millis is not supported"),
    ],
)
def test_avro_schema_that_gives_no_columns_is_refused(type_, reason):
    pytest.importorskip("fastavro")
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": type_}]}
    for schema, expected in (
        (record, f"#/a: {reason}"),
        ({"type": "array", "items": "int"}, "#: a record is required"),
        ({"type": "record"}, "not an Avro schema"),
    ):
        with pytest.raises(InvalidSchema, match=f"^{expected}"):
            from_avro(json.dumps(schema).encode())


# ---- materialized


def ids(filled):
    return [row[0] for row in rows_of(filled, "select id from v order by message_id")]


def materialized(filled, tmp_path):
    told = typed(filled, tmp_path, "--materialize")
    assert told.splitlines()[-1] == f"v: {len(ids(filled))} rows, 0 of them not decoded (column _bad)"
    return filled.lake.views.get("v")


def order(number):
    return json.dumps({"id": number}).encode()


def add(filled, *numbers):
    filled.add(*map(order, numbers))


def refresh(filled):
    return done("view", "v", "--lake", str(filled.lake), "--refresh")


def test_refresh_adds_what_came_once(filled, tmp_path):
    add(filled, 1, 2)
    made = materialized(filled, tmp_path)
    assert refresh(filled) == "v: added 0 rows, 0 of them not decoded (column _bad)\n"
    add(filled, 3)
    filled.add(b"bad", order(99), address="other")
    filled.add(b"bad")
    assert ids(filled) == [1, 2]  # as of the last refresh
    assert refresh(filled) == "v: added 2 rows, 1 of them not decoded (column _bad)\n"
    assert ids(filled) == [1, 2, 3, None]
    version = DeltaTable(made.folder.where).version()
    assert made.refresh() == (0, 0, False) and DeltaTable(made.folder.where).version() == version
    told = json.loads(done("views", "--lake", str(filled.lake), "--json"))
    assert (told["v"]["rows"], told["v"]["bad"]) == (4, 1)
    assert "v of orders: 4 rows, 1 not decoded" in done("views", "--lake", str(filled.lake))


def test_compaction_and_vacuum_of_messages_add_nothing(filled, tmp_path):
    add(filled, 1)
    made = materialized(filled, tmp_path)
    add(filled, 2)
    messages = filled.lake.tables["messages"]
    messages.compact(1 << 20)
    assert made.refresh() == (1, 0, False) and ids(filled) == [1, 2]
    add(filled, 3)
    add(filled, 4)
    messages.compact(1 << 20)
    messages.vacuum(0, dry_run=False)
    assert made.refresh() == (4, 0, True)  # the files that came are gone: all rows anew
    assert ids(filled) == [1, 2, 3, 4]


def test_small_files_of_a_materialized_view_are_put_together(filled, tmp_path):
    add(filled, 1)
    made = materialized(filled, tmp_path)
    for number in (2, 3, 4):
        filled.add(order(number))
        assert made.refresh() == (1, 0, False)
    assert made.small_files(1 << 20) == 4
    assert "view v: compacted 4 files into 1\n" in done("compact", "--lake", str(filled.lake))
    assert ids(filled) == [1, 2, 3, 4] and made.small_files(1 << 20) == 1
    assert "view v: 4 files deleted\n" in done("vacuum", "--lake", str(filled.lake), "--hours", "0")
    add(filled, 5)
    assert made.refresh() == (1, 0, False) and ids(filled) == [1, 2, 3, 4, 5]
    upkeep = Maintenance(filled.lake, small_files=1, hours=0)
    upkeep.run_due()
    assert upkeep.done.compacted["v"] == 2
    assert len(list(Path(made.folder.where).glob("*.parquet"))) == 1
    assert ids(filled) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kept", [(), ("--materialize",)])
def test_view_of_an_earlier_version(filled, tmp_path, kept):
    add(filled, 1)
    typed(filled, tmp_path, *kept)
    add(filled, 2)
    with query(filled.lake, "select id from v", versions={"messages": 1}) as result:
        assert list(result.rows()) == [[1]]


def test_restored_messages_are_taken_anew(filled, tmp_path):
    add(filled, 1)
    made = materialized(filled, tmp_path)
    add(filled, 2)
    made.refresh()
    filled.lake.tables["messages"].open().restore(1)
    assert made.refresh() == (1, 0, True) and ids(filled) == [1]


def test_interrupted_refresh_is_completed_by_the_next(filled, tmp_path):
    add(filled, 1)
    made = materialized(filled, tmp_path)
    add(filled, 2, 3)

    def die(name):
        raise KeyboardInterrupt

    made.folder.sync = die  # of a file that no commit names yet
    with pytest.raises(KeyboardInterrupt):
        made.refresh()
    assert ids(filled) == [1] and made.folder.local is not None
    assert len([*made.folder.local.glob("*.parquet")]) == 2
    assert filled.lake.views.get("v").refresh() == (2, 0, False)
    assert ids(filled) == [1, 2, 3]


def test_view_that_was_half_made_is_made_anew(filled):
    add(filled, 1)
    known = filled.lake.views
    definition = ViewDefinition(
        "v", ("orders",), fields=tuple(from_json_schema(json.dumps(ORDER).encode())), materialized=True
    )
    (file,) = Path(filled.lake.tables["messages"].folder.where).rglob("*.parquet")
    away = file.rename(file.with_suffix(".away"))
    with pytest.raises(OSError):
        known.create(definition)
    assert known.every() == []
    away.rename(file)
    add(filled, 2)
    known.create(definition)
    assert ids(filled) == [1, 2]


def test_two_brokers_and_a_damaged_definition(filled, tmp_path):
    both = LakeFixture(tmp_path / "both", ("main", "second"))
    both.add(order(1))
    both.add(order(2), broker="second")
    typed(both, tmp_path)
    assert rows_of(both, "select broker, id from v order by 1") == [["main", 1], ["second", 2]]
    (Path(str(both.lake)) / "_stompring" / "views" / "v.json").write_text("{")
    result = run("views", "--lake", str(both.lake))
    assert result.exit_code == 1 and "views/v.json is damaged" in result.output


def test_names_and_options_that_are_refused(filled, tmp_path):
    place, schema, broken = str(filled.lake), schema_file(tmp_path), str(tmp_path / "broken.json")
    Path(broken).write_text("{")
    view(filled, "--address", "a", "--header", "h")
    for line, status, reason in [
        ("v --address a --header h", 1, "view v already exists"),
        ("messages --address a --header h", 1, "invalid view name 'messages'"),
        ("A-b --address a --header h", 1, "invalid view name 'A-b'"),
        ("w --header h", 2, "--address is required"),
        ("w --address a", 1, "a view needs columns"),
        ("w --address a --header h:text", 2, "one of string, int, long"),
        ("w --address a --header h --where a>", 1, "invalid selector 'a>' (--where): "),
        (f"w --address a --infer --json-schema {schema}", 2, "--infer and --avro cannot be combined"),
        (f"w --address a --json-schema {broken}", 1, f"Error: {broken}: not JSON"),
        ("w --drop", 1, "has no view 'w'; it has v"),
        ("v --drop --refresh", 2, "take no other option"),
        ("v --refresh", 1, "view v is not materialized"),
        ("w --address a --infer", 1, "none of 0 bodies is a JSON object"),
    ]:
        result = run("view", "--lake", place, *line.split())
        assert result.exit_code == status and reason in result.output, (line, result.output)
    assert done("view", "v", "--lake", place, "--drop") == "dropped v\n"
    assert done("views", "--lake", place) == ""
    with pytest.raises(ViewError, match="it has none"):
        filled.lake.views.get("v")
