"""Views of a lake: messages of some addresses with columns computed from their headers and bodies.

The definition of a view is a file, ``_stompring/views/NAME.json``. `ViewRows` computes the rows of a view for Spark
(`View.frame`), DuckDB (`View.stream`) and `View.refresh`. A materialized view has a Delta table, ``views/NAME``. Each
refresh adds the rows of new messages to this table in one commit, together with the version of ``messages``, so that no
row is duplicated if an interrupted refresh is repeated.

The schema of bodies is a JSON Schema, an Avro schema, or inferred from bodies. The type of a column is a JSON value: a
name of `SCALARS`, or ``{"array": T}``, ``{"map": T}`` (keys are strings), ``{"decimal": [precision, scale]}``,
``{"struct": [{"name", "type", "required", "null"}]}``.
"""

from __future__ import annotations

import io
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache, cached_property
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import Schema
from deltalake.transaction import Transaction

from stompring.errors import PipelineError
from stompring.pipeline.arrays import TABLES, rows_where
from stompring.pipeline.options import TableScan
from stompring.pipeline.storage import Folder
from stompring.selector import InvalidSelector, compile_selector
from stompring.store.datadir import ingesting

from .data_files import BROKER, FileWriter, NewFile, sync_files
from .delta import LakeTable, Table, arrow_schema, ddl_name
from .selection import SelectableRow, address_condition

Type = Any

#: Fields of a struct: name, type, whether the value is required, and whether it may be null.
Fields = list[dict[str, Any]]

DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")


class TypeMismatch(ValueError):
    """A value does not have the type of its column. The text begins with the path of the value."""


def arrow_type(type_: Type) -> Any:
    """Return the Arrow type of a column type."""
    if isinstance(type_, str):
        return SCALARS[type_][0]
    ((kind, inner),) = type_.items()
    if kind == "array":
        return pa.list_(arrow_type(inner))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(inner))
    if kind == "decimal":
        return pa.decimal128(*inner)
    return pa.struct([(field["name"], arrow_type(field["type"])) for field in inner])


def convert(type_: Type, value: Any, pointer: str) -> Any:
    """Convert a JSON or Avro value to a Python value that an Arrow array of the column type accepts. ``pointer``: path
    of the value, for errors. Raises `TypeMismatch`."""
    if value is None:
        return None
    if isinstance(type_, str):
        return SCALARS[type_][1](value, pointer)
    ((kind, inner),) = type_.items()
    if kind == "array":
        if not isinstance(value, list):
            raise _mismatch(value, "not an array", pointer)
        return [convert(inner, each, f"{pointer}/{at}") for at, each in enumerate(value)]
    if kind == "map":
        if not isinstance(value, dict):
            raise _mismatch(value, "not an object", pointer)
        every = value.items()
        return [(_string(key, pointer), convert(inner, each, f"{pointer}/{key}")) for key, each in every]
    if kind == "decimal":
        return value  # a Decimal: only Avro has this type, and its reader returns decimals
    return convert_struct(inner, value, pointer)


def convert_struct(fields: Sequence[Mapping[str, Any]], value: Any, pointer: str) -> dict[str, Any]:
    """Convert an object to a struct. Omit members of the object that are not fields. Raises `TypeMismatch`."""
    if not isinstance(value, dict):
        raise _mismatch(value, "not an object", pointer)
    found: dict[str, Any] = {}
    for each in fields:
        name = each["name"]
        if name not in value:
            if each["required"]:
                raise TypeMismatch(f"{pointer or '#'}: {name} is required")
        elif value[name] is None and not each["null"]:
            raise TypeMismatch(f"{pointer}/{name}: null is not allowed")
        found[name] = convert(each["type"], value.get(name), f"{pointer}/{name}")
    return found


def _mismatch(value: Any, what: str, pointer: str) -> TypeMismatch:
    text = json.dumps(value, default=str)
    return TypeMismatch(f"{pointer or '#'}: {text if len(text) <= 60 else text[:57] + '...'} is {what}")


def _string(value: Any, pointer: str) -> str:
    if not isinstance(value, str):
        if isinstance(value, UUID):  # the Avro reader returns UUIDs
            return str(value)
        raise _mismatch(value, "not a string", pointer)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeMismatch(f"{pointer or '#'}: the string has an unpaired surrogate") from None
    return value


def _json_text(value: Any, pointer: str) -> str:
    return _string(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), pointer)


def _whole(bits: int, name: str) -> Any:
    def whole(value: Any, pointer: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _mismatch(value, "not a whole number", pointer)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise TypeMismatch(f"{pointer}: out of range of {name}")
        return value

    return whole


def _number(value: Any, pointer: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _mismatch(value, "not a number", pointer)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise TypeMismatch(f"{pointer}: out of range of DOUBLE")
    return number


def _instance(kind: type, what: str, parse: Callable[[str], Any] | None = None) -> Any:
    """Return a converter that accepts instances of ``kind``, and texts that ``parse`` can convert to such instances."""

    def instance(value: Any, pointer: str) -> Any:
        if isinstance(value, kind):
            return value
        if parse is not None and isinstance(value, str):
            with suppress(ValueError, OverflowError):
                return parse(value)
        raise _mismatch(value, f"not {what}", pointer)

    return instance


def _date_time(text: str) -> datetime:
    if not DATE_TIME.fullmatch(text):
        raise ValueError
    time = datetime.fromisoformat(text.upper())
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _date(text: str) -> date:
    if not DATE.fullmatch(text):
        raise ValueError
    return date.fromisoformat(text)


#: Arrow type and converter of each scalar type. ``json`` is the type of a string column for values of any type: it
#: contains strings unchanged, and other values as JSON.
SCALARS: Mapping[str, tuple[Any, Callable[[Any, str], Any]]] = {
    "string": (pa.string(), _string),
    "json": (pa.string(), _json_text),
    "int": (pa.int32(), _whole(32, "INT")),
    "long": (pa.int64(), _whole(64, "BIGINT")),
    "float": (pa.float32(), _number),
    "double": (pa.float64(), _number),
    "boolean": (pa.bool_(), _instance(bool, "a boolean")),
    "binary": (pa.binary(), _instance(bytes, "bytes")),
    "date": (pa.date32(), _instance(date, "an RFC 3339 date", _date)),
    "timestamp": (pa.timestamp("us", "UTC"), _instance(datetime, "an RFC 3339 date-time", _date_time)),
}


#: Maximum number of fields of a struct. If an object has more names, they are probably data, not fields.
MAX_FIELDS = 1000

#: Maximum depth of nested types.
MAX_DEPTH = 32

Decoder = Callable[[bytes], Any]


class InvalidSchema(PipelineError):
    """A schema from which no columns can be made. The text begins with the path of the faulty part in the schema."""


# ---- JSON Schema


def from_json_schema(text: bytes) -> Fields:
    """Return the fields of a JSON Schema of an object. Raises `InvalidSchema`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InvalidSchema(f"not JSON: {reason}") from None
    type_, _ = _JsonSchema(document).type(document, "#")
    if not isinstance(type_, dict) or "struct" not in type_:
        raise InvalidSchema("#: an object with properties is required")
    return list(type_["struct"])


@dataclass
class _JsonSchema:
    """A part of a JSON Schema. ``_within``: an item for each level around this part: the ``$ref`` that leads to the
    level, or an empty text."""

    _document: Any
    _within: tuple[str, ...] = ()

    def _inside(self, reference: str = "") -> _JsonSchema:
        return _JsonSchema(self._document, (*self._within, reference))

    def type(self, schema: Any, pointer: str) -> tuple[Type, bool]:
        """Return the type, and whether null is allowed."""
        if schema is True or schema == {}:
            return "json", True
        if not isinstance(schema, dict):
            raise InvalidSchema(f"{pointer}: {json.dumps(schema)[:40]} is not a schema")
        if len(self._within) > MAX_DEPTH:
            raise InvalidSchema(f"{pointer}: nested more than {MAX_DEPTH} levels")
        if "$ref" in schema:
            return self._reference(schema["$ref"], pointer)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._one_of(schema[word], f"{pointer}/{word}")
        for word in ("allOf", "not", "if", "patternProperties"):
            if word in schema:
                raise InvalidSchema(f"{pointer}/{word}: not supported, it determines no column type")
        every = self._names(schema, pointer)
        names = [name for name in every if name != "null"]
        if set(names) == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            what = " and ".join(names) or "null alone"
            raise InvalidSchema(f"{pointer}/type: {what}: a column must have one type besides null")
        return self._of_name(names[0], schema, pointer), "null" in every

    def _names(self, schema: Mapping[str, Any], pointer: str) -> list[str]:
        names = schema.get("type")
        if names is None:
            values = [schema["const"]] if "const" in schema else schema.get("enum")
            if not isinstance(values, list):
                if "properties" in schema:
                    return ["object"]
                if "items" in schema:
                    return ["array"]
                raise InvalidSchema(f"{pointer}: type is missing")
            names = sorted({_SCHEMA_NAMES.get(kind, kind) for kind in map(_kind, values)})
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidSchema(f"{pointer}/type: must be a name, or a list of names")
        for name in names:
            if name not in _NAMES:
                raise InvalidSchema(f"{pointer}/type: {name!r} is not one of {', '.join(sorted(_NAMES))}")
        return list(names)

    def _of_name(self, name: str, schema: Mapping[str, Any], pointer: str) -> Type:
        if name == "string":
            return {"date-time": "timestamp", "date": "date"}.get(str(schema.get("format")), "string")
        if name == "array":
            return {"array": self._inside().type(schema.get("items", True), f"{pointer}/items")[0]}
        if name != "object":
            return _NAMES[name]
        properties = schema.get("properties")
        more = schema.get("additionalProperties", True)
        if not properties:
            if isinstance(more, dict) and more:
                return {"map": self._inside().type(more, f"{pointer}/additionalProperties")[0]}
            return "json"
        if not isinstance(properties, dict):
            raise InvalidSchema(f"{pointer}/properties: must be an object")
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise InvalidSchema(f"{pointer}/required: must be a list of names")
        check_names(properties, f"{pointer}/properties")
        fields = []
        for each, inner in properties.items():
            type_, null = self._inside().type(inner, f"{pointer}/properties/{each}")
            fields.append({"name": each, "type": type_, "required": each in required, "null": null})
        return {"struct": fields}

    def _one_of(self, schemas: Any, pointer: str) -> tuple[Type, bool]:
        if not isinstance(schemas, list):
            raise InvalidSchema(f"{pointer}: must be a list")
        others = [(at, one) for at, one in enumerate(schemas) if one != {"type": "null"}]
        if len(others) != 1:
            raise InvalidSchema(f"{pointer}: a column must have one type besides null, not {len(others)}")
        ((at, only),) = others
        type_, null = self._inside().type(only, f"{pointer}/{at}")
        return type_, null or len(others) < len(schemas)

    def _reference(self, reference: Any, pointer: str) -> tuple[Type, bool]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidSchema(f"{pointer}/$ref: {reference!r} is not within this file")
        if reference in self._within:
            raise InvalidSchema(f"{pointer}/$ref: {reference} is recursive, which a column type cannot be")
        found = self._document
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise InvalidSchema(f"{pointer}/$ref: {reference} does not exist")
            found = found[part]
        return self._inside(reference).type(found, reference)


_NAMES = {
    "string": "string",
    "integer": "long",
    "number": "double",
    "boolean": "boolean",
    "array": "",
    "object": "",
    "null": "",
}


#: JSON Schema's names for the kinds of values (`_kind`) that have another name in this module.
_SCHEMA_NAMES = {
    "long": "integer",
    "large": "integer",
    "double": "number",
    "timestamp": "string",
    "date": "string",
}


def check_names(names: Iterable[str], pointer: str) -> None:
    """Raise `InvalidSchema` for an empty name, too many names, or names that differ only in case, which SQL ignores."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise InvalidSchema(f"{pointer}: a column name must not be empty")
        if name.lower() in seen:
            raise InvalidSchema(
                f"{pointer}: {seen[name.lower()]} and {name} differ only in case, which SQL ignores"
            )
        seen[name.lower()] = name
    if len(seen) > MAX_FIELDS:
        raise InvalidSchema(f"{pointer}: {len(seen):,} names, at most {MAX_FIELDS:,} are supported")


def decode_json(body: bytes) -> Any:
    """Parse a JSON body. Raises `TypeMismatch`."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise TypeMismatch("the body is not UTF-8") from None
    except RecursionError:
        raise TypeMismatch("the body is nested too deeply") from None
    except ValueError as reason:
        raise TypeMismatch(f"the body is not JSON: {reason}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


# ---- inference from bodies


class Inference:
    """Inference of fields from JSON bodies. ``bad`` counts bodies that are not JSON objects."""

    def __init__(self) -> None:
        self.bodies = 0
        self.bad = 0
        self._root = _ObservedType()

    def add(self, body: bytes) -> None:
        """Add fields and types of a body."""
        self.bodies += 1
        try:
            value = decode_json(body)
        except TypeMismatch:
            value = None
        if isinstance(value, dict):
            self._root.add(value, 0)
        else:
            self.bad += 1

    def fields(self) -> tuple[Fields, list[str]]:
        """Return the fields, and a note for each path with values of different types. Raises `InvalidSchema`."""
        notes: list[str] = []
        type_ = self._root.type("", notes)
        if not isinstance(type_, dict):
            raise InvalidSchema(f"none of {self.bodies:,} bodies is a JSON object with members")
        return type_["struct"], notes


class _ObservedType:
    """The values at one path. ``kinds``: number of values of each kind. ``names``: for objects, the values of each
    member. ``items``: for arrays, the items."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.names: dict[str, _ObservedType] = {}
        self.items: _ObservedType | None = None

    def add(self, value: Any, depth: int) -> None:
        kind = _kind(value)
        if depth > MAX_DEPTH:
            self.kinds["object" if kind == "array" else kind] += 1
            return
        self.kinds[kind] += 1
        if kind == "object":
            for name, each in value.items():
                if len(self.names) <= MAX_FIELDS or name in self.names:
                    self.names.setdefault(name, _ObservedType()).add(each, depth + 1)
        elif kind == "array":
            self.items = self.items or _ObservedType()
            for each in value:
                self.items.add(each, depth + 1)

    def type(self, pointer: str, notes: list[str]) -> Type:
        kinds = {kind: count for kind, count in self.kinds.items() if kind != "null"}
        if not kinds:
            return "json"
        if len(kinds) == 1:
            (kind,) = kinds
            if kind == "array":
                assert self.items is not None
                return {"array": self.items.type(f"{pointer}/[]", notes)}
            if kind == "object":
                return self._struct(pointer, notes)
            return "double" if kind == "large" else kind
        kinds_text = ", ".join(f"{_KIND_NAMES[kind]} in {count:,}" for kind, count in sorted(kinds.items()))
        wide = "json"
        if kinds.keys() <= {"long", "large", "double"}:
            wide = "double"
        elif kinds.keys() <= {"string", "timestamp", "date"}:
            wide = "string"
        notes.append(f"{pointer or '#'}: {kinds_text}: {'DOUBLE' if wide == 'double' else 'STRING'}")
        return wide

    def _struct(self, pointer: str, notes: list[str]) -> Type:
        if not self.names:
            return "json"
        if len(self.names) > MAX_FIELDS:
            notes.append(f"{pointer or '#'}: more than {MAX_FIELDS:,} names: STRING")
            return "json"
        names: dict[str, str] = {}
        for name in self.names:
            other = names.setdefault(name.lower(), name) if name else ""
            if not name or other != name:
                notes.append(f"{pointer or '#'}: {other!r} and {name!r} differ only in case: STRING")
                return "json"
        return _struct((name, seen.type(f"{pointer}/{name}", notes)) for name, seen in self.names.items())


def _struct(members: Iterable[tuple[str, Type]]) -> Type:
    """Return a struct type with optional, nullable fields."""
    return {
        "struct": [{"name": name, "type": type_, "required": False, "null": True} for name, type_ in members]
    }


_KIND_NAMES = {
    "long": "a whole number",
    "large": "a larger one",
    "double": "a number",
    "boolean": "a boolean",
    "string": "a string",
    "timestamp": "a date-time",
    "date": "a date",
    "array": "an array",
    "object": "an object",
}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(2**63) <= value < 2**63 else "large"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "timestamp" if DATE_TIME.fullmatch(value) else "date" if DATE.fullmatch(value) else "string"
    return "array" if isinstance(value, list) else "object"


# ---- Avro


def from_avro(text: bytes) -> Fields:
    """Return the fields of an Avro record schema. Raises `InvalidSchema`."""
    from fastavro.schema import expand_schema

    schema = _parsed(text, expand_schema)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidSchema("#: a record is required")
    return list(_avro_type(schema, "#")["struct"])


def _parsed(text: bytes, parse: Callable[[Any], Any]) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse(json.loads(text))
    except (ValueError, RecursionError) as reason:
        raise InvalidSchema(f"not JSON: {reason}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError) as reason:
        raise InvalidSchema(f"not an Avro schema: {reason!r}") from None


def _avro_type(schema: Any, pointer: str) -> Type:
    """Return the column type for a part of an expanded schema. If such a schema still has the name of a record as a
    type, the record contains itself."""
    if isinstance(schema, list):
        others = [one for one in schema if one != "null"]
        if len(others) != 1:
            raise InvalidSchema(f"{pointer}: a union of {len(others)} types besides null is not supported")
        return _avro_type(others[0], pointer)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema == "null":
            raise InvalidSchema(f"{pointer}: 'null' is not a column type")
        raise InvalidSchema(f"{pointer}: {schema} is recursive, which a column type cannot be")
    name, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        precision = schema["precision"]
        if precision > 38:
            raise InvalidSchema(f"{pointer}: a decimal of {precision} digits, at most 38 are supported")
        return {"decimal": [precision, schema.get("scale", 0)]}
    if logical is not None:
        if logical not in _LOGICAL:
            raise InvalidSchema(f"{pointer}: logical type {logical} is not supported")
        return _LOGICAL[logical]
    if name == "array":
        return {"array": _avro_type(schema["items"], f"{pointer}/items")}
    if name == "map":
        return {"map": _avro_type(schema["values"], f"{pointer}/values")}
    if name in ("enum", "fixed"):
        return "string" if name == "enum" else "binary"
    if name not in ("record", "error"):
        return _avro_type(name, pointer)
    names = [field["name"] for field in schema["fields"]]
    check_names(names, pointer)
    if not names:
        raise InvalidSchema(f"{pointer}: a record without fields is not supported")
    types = (_avro_type(field["type"], f"{pointer}/{field['name']}") for field in schema["fields"])
    return _struct(zip(names, types, strict=True))


_PRIMITIVES: Mapping[str, Type] = {
    "bytes": "binary",
    **{name: name for name in ("boolean", "int", "long", "float", "double", "string")},
}
_LOGICAL: Mapping[str, Type] = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "date": "date",
    "uuid": "string",
}


def avro_decoder(text: bytes) -> Decoder:
    """Return a decoder of bodies with one Avro value, plain or in the single-object encoding."""
    from fastavro import schemaless_reader
    from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form

    schema = _parsed(text, parse_schema)
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO"))
    header = b"\xc3\x01" + mark

    def decode(body: bytes) -> Any:
        file = io.BytesIO(body)
        if body.startswith(header):
            file.seek(len(header))
        try:
            value = schemaless_reader(file, schema, None)
        except Exception as reason:  # fastavro raises exceptions of many types for malformed bytes
            raise TypeMismatch(
                f"the body is not Avro of this schema: {str(reason) or repr(reason)}"[:300]
            ) from None
        left = len(body) - file.tell()
        if left:
            raise TypeMismatch(f"the body is not Avro of this schema: {left} bytes follow the value")
        return value

    return decode


log = logging.getLogger(__name__)

#: The first columns of each view, from ``messages``.
MESSAGE_COLUMNS = ("message_id", "queue", "address", "timestamp", BROKER)

#: Column for errors: if a header or the body cannot be converted, it has the body and the reason, else null.
BAD_COLUMN = "_bad"

_BAD_TYPE = pa.struct([("body", pa.binary()), ("reason", pa.string())])

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}")

_FOLDER = "views"

#: Application id of refreshes in the transactions of a view's table. The version of the last transaction is the version
#: of ``messages`` at the last refresh.
_WRITER = "stompring-view"

#: Maximum number of rows in a record batch of a view.
_ROWS = 4096

#: Approximate bytes of rows in one file.
_FILE_BYTES = 512 << 20

_VERSION = 1

#: Types of header columns.
HEADER_TYPES = ("string", "int", "long", "double", "boolean", "date", "timestamp")


class ViewError(PipelineError):
    """A view is invalid, already exists, or does not exist."""


class RefreshResult(NamedTuple):
    """Result of a refresh. ``rows``: number of rows added. ``bad``: number of them with a value in `BAD_COLUMN`.
    ``whole``: whether all rows were computed again."""

    rows: int
    bad: int
    whole: bool


class ViewDefinition(NamedTuple):
    """Definition of a view. ``headers``: names and types of headers. ``fields``: fields of bodies (see the module)."""

    name: str
    addresses: Sequence[str]
    where: str | None = None  # selector of messages; None: all messages
    headers: Sequence[Sequence[str]] = ()
    fields: Sequence[Mapping[str, Any]] = ()
    avro: str | None = None  # schema of Avro bodies; None: bodies are JSON
    materialized: bool = False

    def check(self) -> None:
        """Raise `ViewError` or `InvalidSchema` if the definition is invalid."""
        if not _NAME.fullmatch(self.name) or self.name in TABLES:
            raise ViewError(
                f"invalid view name {self.name!r}: use lower-case letters, digits and _, at most 64 characters, "
                f"and not {', '.join(TABLES)}"
            )
        if not self.fields and not self.headers:
            raise ViewError("a view needs columns, from a schema of bodies or from headers")
        for name, type_ in self.headers:
            if type_ not in HEADER_TYPES:
                raise ViewError(f"header {name}: {type_!r} is not one of {', '.join(HEADER_TYPES)}")
        if self.where is not None:
            try:
                compile_selector(self.where)
            except InvalidSelector as reason:
                raise ViewError(f"invalid selector {self.where!r} (--where): {reason}") from None
        self.columns()

    def columns(self) -> list[tuple[str, str, Type]]:
        """Return name, origin (``header NAME`` or ``/NAME``) and type of each column: first those from headers, then
        those from bodies. If an earlier column has the same name (ignoring upper and lower case), the later column gets
        the prefix ``header_`` or ``body_``."""
        used = {name.lower() for name in (*MESSAGE_COLUMNS, BAD_COLUMN)}
        found: list[tuple[str, str, Type]] = []
        for prefix, origin, entries in (
            ("header_", "header ", self.headers),
            ("body_", "/", [(one["name"], one["type"]) for one in self.fields]),
        ):
            for name, type_ in entries:
                column = f"{prefix}{name}" if name.lower() in used else name
                found.append((column, f"{origin}{name}", type_))
            check_names([column for column, _, _ in found], "columns")
            used |= {column.lower() for column, _, _ in found}
        return found

    def schema(self) -> Any:
        """Return the Arrow schema of all columns."""
        fields = map(arrow_schema("messages").field, MESSAGE_COLUMNS)
        own = [(name, arrow_type(type_)) for name, _, type_ in self.columns()]
        return pa.schema([*fields, *own, (BAD_COLUMN, _BAD_TYPE)])

    def shown(self) -> list[tuple[str, str]]:
        """Return names and DDL types of all columns."""
        return [(field.name, ddl_name(field.type)) for field in Schema.from_arrow(self.schema()).fields]


def _address_filter(addresses: Sequence[str]) -> Callable[[str | None], bool]:
    """Return a cached function that tests whether an address matches one of the patterns."""
    wanted = TableScan(addresses=tuple(addresses))
    return cache(lambda address: address is not None and wanted.matches(address))


class ViewRows:
    """A function that computes the rows of a view from messages. Tasks of Spark call it. Only the view's definition is
    pickled."""

    def __init__(self, definition: ViewDefinition) -> None:
        self._definition = definition
        self._schema = definition.schema()
        self._is_selected = _address_filter(definition.addresses)
        self._matches = None if definition.where is None else compile_selector(definition.where).matches
        #: Columns of ``messages`` that `__call__` needs. ``headers`` is only included if necessary, because it is the
        #: slowest column to read.
        self.columns: tuple[str, ...] = (*MESSAGE_COLUMNS, "body")
        if definition.headers or definition.where is not None:
            self.columns += ("headers",)
        if definition.where is not None:
            self.columns += ("expires", "priority", "durable", "user")
        columns = iter([column for column, _, _ in definition.columns()])
        self._headers = [(next(columns), header) for header in definition.headers]
        self._names = [(column, one["name"]) for column, one in zip(columns, definition.fields, strict=True)]
        self._decode: Decoder = (
            decode_json if definition.avro is None else avro_decoder(definition.avro.encode())
        )

    def __reduce__(self) -> Any:
        return ViewRows, (self._definition,)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Convert record batches of messages with `columns` to batches of the view."""
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                rows = self._rows(batch.slice(start, _ROWS))
                if rows.num_rows:
                    yield rows

    def _rows(self, batch: Any) -> Any:
        batch = rows_where([self._is_selected(each) for each in batch.column("address").to_pylist()], batch)
        if self._matches is not None:
            batch = rows_where([self._matches(SelectableRow(row)) for row in batch.to_pylist()], batch)
        count = batch.num_rows
        found: dict[str, list[Any]] = {column: [None] * count for column, _ in (*self._headers, *self._names)}
        bad: list[Any] = [None] * count
        headers = batch.column("headers").to_pylist() if self._headers else [None] * count
        bodies = batch.column("body").to_pylist()
        for at in range(count):
            reasons = []
            given = dict(headers[at] or ())
            for column, (name, type_) in self._headers:
                if (text := given.get(name)) is not None:
                    try:
                        found[column][at] = _header_value(type_, text, f"header {name}")
                    except TypeMismatch as reason:
                        reasons.append(str(reason))
            if self._names:
                try:
                    value = convert_struct(self._definition.fields, self._decode(bodies[at] or b""), "")
                    for column, name in self._names:
                        found[column][at] = value[name]
                except TypeMismatch as reason:
                    reasons.append(str(reason))
            if reasons:
                bad[at] = {"body": bodies[at], "reason": "; ".join(reasons)}
        arrays = [batch.column(name).cast(self._schema.field(name).type) for name in MESSAGE_COLUMNS]
        arrays += [pa.array(values, self._schema.field(column).type) for column, values in found.items()]
        arrays.append(pa.array(bad, _BAD_TYPE))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _header_value(type_: str, text: str, pointer: str) -> Any:
    """Convert the value of a header. Raises `TypeMismatch`."""
    value: Any = text
    if type_ in ("int", "long") and re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        value = int(text)
    elif type_ == "double" and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII):
        value = float(text)
    elif type_ == "boolean":
        value = {"true": True, "false": False}.get(text.lower(), text)
    return convert(type_, value, pointer)


class View(Table):
    """One view of a lake, and its table if it is materialized."""

    def __init__(self, views: Views, definition: ViewDefinition) -> None:
        super().__init__(views.lake.folder(_FOLDER).folder(definition.name), definition.name)
        self.definition = definition
        self._views = views

    # ---- for Spark and DuckDB

    def is_stored(self, version: int | None) -> bool:
        """Return whether the view's table has its rows at ``version`` of ``messages``. The table of a materialized view
        has only the rows of the last refresh, so the result is False if ``version`` is a number.
        """
        return self.definition.materialized and version is None

    def frame(self, spark: Any, version: int | None = None) -> Any:
        """Return a DataFrame of the view at ``version`` of ``messages``, by default the latest. By default, a
        materialized view has the rows of its last refresh."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = self.definition.schema()
        if self.is_stored(version):
            return self._frame(spark, schema)
        messages = self._views.messages.frame(spark, version)
        rows = ViewRows(self.definition)
        messages = messages.where(address_condition(self.definition.addresses)).select(*rows.columns)
        return messages.mapInArrow(rows, from_arrow_schema(schema))

    def stream(self, version: int | None = None) -> Any:
        """Return an object with Arrow's stream interface. Each scan, by DuckDB for example, computes the rows."""
        return _Stream(self.definition, self._views.messages, version)

    # ---- its table

    def _locked(self) -> AbstractContextManager[None]:
        directory = self._views.folder.local
        if directory is None:
            return nullcontext()  # no lock is needed on object storage: one of two concurrent commits fails
        directory.mkdir(parents=True, exist_ok=True)
        return ingesting(directory, self.name)

    def refresh(self) -> RefreshResult:
        """Add the rows of the messages that are new since the last refresh. Raises `Busy` if another process refreshes
        the view."""
        messages = self._views.messages
        with self._locked():
            version = messages.open().version()
            if not self.exists():
                self._create(self.definition.schema())
            table = self.open()
            before = table.transaction_version(_WRITER)
            if before == version:
                return RefreshResult(0, 0, False)
            files = None if before is None or before > version else self._new_files(int(before), version)
            make = ViewRows(self.definition)
            if files is None:
                rows = messages.dataset(version)
            else:
                paths, system = [messages.folder.path(name) for name in files], messages.folder.system
                rows = ds.dataset(paths, arrow_schema(messages.name), "parquet", system)
            written, bad = self._write(make(rows.to_batches(columns=list(make.columns))))
            mode = "overwrite" if files is None else "append"
            self.transact(table, written, Transaction(_WRITER, version), mode)
        return RefreshResult(sum(file.rows for file in written), bad, files is None and before is not None)

    def _write(self, batches: Iterable[Any]) -> tuple[list[NewFile], int]:
        """Write rows to files, and sync the files. Returns the files, and the number of rows with a value in
        `BAD_COLUMN`."""
        schema, bad = self.definition.schema(), 0
        files: list[NewFile] = []
        file: FileWriter | None = None
        for batch in batches:
            file = file or FileWriter(self.folder, f"part-{uuid4().hex}.parquet", schema)
            file.add(batch)
            bad += batch.num_rows - batch.column(BAD_COLUMN).null_count
            if file.written >= _FILE_BYTES:
                files.append(file.close())
                file = None
        if file is not None:
            files.append(file.close())
        sync_files(self.folder, files)
        return files, bad

    def _new_files(self, before: int, version: int) -> list[str] | None:
        """Return the files of ``messages`` that commits after version ``before`` have added. Returns None if all rows
        must be computed again: a commit removed rows or changed metadata, or log entries or files were deleted."""
        folder, found = self._views.messages.folder, []
        for number in range(before + 1, version + 1):
            try:
                lines = folder.read(f"_delta_log/{number:020d}.json").splitlines()
            except OSError:
                return None  # the log entry of this version was deleted
            for line in lines:
                action = json.loads(line)
                if "metaData" in action or action.get("remove", {}).get("dataChange"):
                    return None
                if action.get("add", {}).get("dataChange"):
                    found.append(action["add"]["path"])
        return found if all(folder.exists(path) for path in found) else None

    # ---- upkeep of its table

    def small_files(self, size: int) -> int:
        """Return the number of files smaller than ``size`` bytes."""
        return sum(one < size for one in self.actions().column("size_bytes").to_pylist())

    def compact(self, target_size: int, date: str | None = None) -> tuple[int, int]:
        """Compact the table. Raises `Busy` if another process changes it."""
        with self._locked(), self._views.rewriting():
            return super().compact(target_size, date)

    def vacuum(self, hours: int, *, dry_run: bool, keep: Sequence[int] = ()) -> list[str]:
        """Vacuum the table. Raises `Busy` if another process changes it."""
        with self._locked():
            return super().vacuum(hours, dry_run=dry_run, keep=keep)

    def counts(self) -> tuple[int, int]:
        """Return the number of all rows in the table, and of the rows with a value in `BAD_COLUMN`."""
        rows = self.dataset()
        return rows.count_rows(), rows.count_rows(filter=ds.field(BAD_COLUMN, "reason").is_valid())


@dataclass
class _Stream:
    """The rows of a view, with Arrow's stream interface. Each scan computes them."""

    definition: ViewDefinition
    messages: LakeTable
    version: int | None

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        rows = ViewRows(self.definition)
        batches = self.messages.batches(rows.columns, self.version)
        reader = pa.RecordBatchReader.from_batches(self.definition.schema(), rows(batches))
        return reader.__arrow_c_stream__(requested_schema)


@dataclass
class Views:
    """The views of the lake in the folder ``lake``."""

    lake: Folder
    state: Folder
    messages: LakeTable
    rewriting: Callable[[], AbstractContextManager[object]]  # `Lake.rewriting`

    @cached_property
    def folder(self) -> Folder:
        """Folder of the definitions."""
        return self.state.folder(_FOLDER)

    def every(self) -> list[View]:
        """Return all views, ordered by name. Raises `ViewError` for a damaged definition."""
        return [self.get(name) for name in self._names()]

    def _names(self) -> list[str]:
        files = (one.name.partition(".") for one in self.folder.entries())
        return sorted(name for name, _, ending in files if ending == "json")

    def get(self, name: str) -> View:
        """Return the view of this name. Raises `ViewError`."""
        location = f"{self.folder}/{name}.json"
        try:
            document = json.loads(self.folder.read(f"{name}.json"))
            if document["version"] != _VERSION:
                raise ViewError(f"{location} has version {document['version']}: use a newer stompring")
            definition = ViewDefinition(**document["view"])
            definition.check()
            return View(self, definition)
        except FileNotFoundError:
            names = ", ".join(self._names())
            raise ViewError(f"the lake {self.lake} has no view {name!r}; it has {names or 'none'}") from None
        except (InvalidSchema, ValueError, KeyError, TypeError) as fault:
            raise ViewError(f"{location} is damaged: {fault!r}") from None

    def create(self, definition: ViewDefinition) -> View:
        """Create a view. Raises `ViewError`, `InvalidSchema`."""
        definition.check()
        if self.folder.exists(f"{definition.name}.json"):
            raise ViewError(f"view {definition.name} already exists: delete it with --drop")
        view = View(self, definition)
        self.lake.remove_all(f"{_FOLDER}/{definition.name}")  # the table of an interrupted drop
        if definition.materialized:
            view.refresh()
        self.folder.save(f"{definition.name}.json", {"version": _VERSION, "view": definition._asdict()})
        return view

    def drop(self, name: str) -> None:
        """Delete a view and its table. Raises `ViewError`."""
        self.get(name)
        self.folder.remove(f"{name}.json")
        self.lake.remove_all(f"{_FOLDER}/{name}")

    def materialized(self) -> list[View]:
        """Return the materialized views."""
        return [view for view in self.every() if view.definition.materialized]

    def refresh(self) -> None:
        """Refresh all materialized views. Log a failure; the next call repeats that refresh."""
        for view in self.materialized():
            try:
                view.refresh()
            except Exception as fault:  # a failed refresh must not make an ingest fail
                log.warning("view %s: refresh failed: %s", view.name, fault)


def bodies(messages: LakeTable, addresses: Sequence[str]) -> Iterator[bytes]:
    """Iterate over the bodies of messages of some addresses, for `Inference`."""
    is_selected = _address_filter(addresses)
    for batch in messages.batches(("address", "body")):
        for address, body in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if is_selected(address):
                yield body or b""
