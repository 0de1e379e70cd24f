"""Columns of a view: their types, schemas (JSON Schema, Avro, inferred from bodies), and decoding bodies by them.

A type is data that JSON can carry: a name of `SCALARS`, or ``{"array": T}``, ``{"map": T}`` (keys are strings),
``{"decimal": [precision, scale]}``, ``{"struct": [{"name", "type", "required", "null"}]}``.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

#: What is in a column of one value, by Arrow. ``json`` is a string: any value, as JSON where it is none.
SCALARS: Mapping[str, Any] = {
    "string": pa.string(),
    "json": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}

#: The same, as Spark's DDL names them.
_DDL = {
    "string": "STRING",
    "json": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}

Type = Any

DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)?")
DATE = re.compile(r"\d{4}-\d\d-\d\d")

#: Least and greatest of whole numbers.
_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}


class TypeMismatch(ValueError):
    """A value is none of its column's type; the text begins with its place."""


def arrow_type(type_: Type) -> Any:
    """A type, as Arrow has it."""
    if isinstance(type_, str):
        return SCALARS[type_]
    ((kind, inner),) = type_.items()
    if kind == "array":
        return pa.list_(arrow_type(inner))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(inner))
    if kind == "decimal":
        return pa.decimal128(*inner)
    return pa.struct([pa.field(field["name"], arrow_type(field["type"])) for field in inner])


def ddl_type(type_: Type) -> str:
    """A type, as Spark's DDL has it."""
    if isinstance(type_, str):
        return _DDL[type_]
    ((kind, inner),) = type_.items()
    if kind == "array":
        return f"ARRAY<{ddl_type(inner)}>"
    if kind == "map":
        return f"MAP<STRING,{ddl_type(inner)}>"
    if kind == "decimal":
        return f"DECIMAL({inner[0]},{inner[1]})"
    return f"STRUCT<{','.join(field['name'] + ':' + ddl_type(field['type']) for field in inner)}>"


def convert(type_: Type, value: Any, pointer: str) -> Any:
    """A value of JSON or Avro, as Arrow takes it. Raises `TypeMismatch`."""
    if isinstance(type_, str):
        return _SCALAR[type_](value, pointer)
    ((kind, inner),) = type_.items()
    if kind == "array":
        if not isinstance(value, list):
            raise _mismatch(value, "not an array", pointer)
        return [
            None if each is None else convert(inner, each, f"{pointer}/{at}") for at, each in enumerate(value)
        ]
    if kind == "map":
        if not isinstance(value, dict):
            raise _mismatch(value, "not an object", pointer)
        return [
            (_string(key, pointer), None if each is None else convert(inner, each, f"{pointer}/{key}"))
            for key, each in value.items()
        ]
    if kind == "decimal":
        return value  # only Avro has them, and its reader has made them
    return convert_struct(inner, value, pointer)


def convert_struct(fields: Sequence[Mapping[str, Any]], value: Any, pointer: str) -> dict[str, Any]:
    """An object's values by the fields of a struct; others are left out. Raises `TypeMismatch`."""
    if not isinstance(value, dict):
        raise _mismatch(value, "not an object", pointer)
    found: dict[str, Any] = {}
    for field in fields:
        name = field["name"]
        given = value.get(name)
        if given is None:
            if name not in value:
                if field["required"]:
                    raise TypeMismatch(f"{pointer or '#'}: {name} is required")
            elif not field["null"]:
                raise TypeMismatch(f"{pointer}/{name}: null is not allowed")
            found[name] = None
        else:
            found[name] = convert(field["type"], given, f"{pointer}/{name}")
    return found


def _mismatch(value: Any, what: str, pointer: str) -> TypeMismatch:
    text = json.dumps(value, default=str)
    return TypeMismatch(f"{pointer or '#'}: {text if len(text) <= 60 else text[:57] + '...'} is {what}")


def _string(value: Any, pointer: str) -> str:
    if not isinstance(value, str):
        raise _mismatch(value, "not a string", pointer)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeMismatch(f"{pointer or '#'}: the string has an unpaired surrogate") from None
    return value


def _json_text(value: Any, pointer: str) -> str:
    return _string(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), pointer)


def _whole(name: str) -> Any:
    least, most = _RANGES[name]

    def whole(value: Any, pointer: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _mismatch(value, "not a whole number", pointer)
        if not least <= value <= most:
            raise TypeMismatch(f"{pointer}: out of range of {_DDL[name]}")
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


def _boolean(value: Any, pointer: str) -> bool:
    if not isinstance(value, bool):
        raise _mismatch(value, "not a boolean", pointer)
    return value


def _binary(value: Any, pointer: str) -> bytes:
    if not isinstance(value, bytes):
        raise _mismatch(value, "not bytes", pointer)
    return value


def _timestamp(value: Any, pointer: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if not isinstance(value, str) or not DATE_TIME.fullmatch(value):
            raise ValueError
        time = datetime.fromisoformat(value.upper())
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _mismatch(value, "not an RFC 3339 date-time", pointer) from None


def _date(value: Any, pointer: str) -> date:
    if isinstance(value, date):
        return value
    try:
        if not isinstance(value, str) or not DATE.fullmatch(value):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise _mismatch(value, "not an RFC 3339 date", pointer) from None


_SCALAR: Mapping[str, Any] = {
    "string": _string,
    "json": _json_text,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _number,
    "double": _number,
    "boolean": _boolean,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
}


#: More names than these are no columns: names of such an object are data.
MAX_FIELDS = 1000

#: Objects within objects.
MAX_DEPTH = 32

Decoder = Callable[[bytes], Any]


class InvalidSchema(ValueError):
    """A schema that no columns can be made of; the text begins with the place in it."""


# ---- JSON Schema


def from_json_schema(text: bytes) -> list[dict[str, Any]]:
    """Fields of a JSON Schema whose values are objects. Raises `InvalidSchema`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InvalidSchema(f"not JSON: {reason}") from None
    found = _JsonSchema(document).fields()
    return found


class _JsonSchema:
    def __init__(self, document: Any) -> None:
        self._document = document

    def fields(self) -> list[dict[str, Any]]:
        type_, _ = self._type(self._document, "#", ())
        if not isinstance(type_, dict) or "struct" not in type_:
            raise InvalidSchema("#: an object with properties is required")
        found: list[dict[str, Any]] = type_["struct"]
        return found

    def _type(self, schema: Any, pointer: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        """The type, and whether null is allowed."""
        if schema is True or schema == {}:
            return "json", True
        if not isinstance(schema, dict):
            raise InvalidSchema(f"{pointer}: {json.dumps(schema)[:40]} is not a schema")
        if len(within) > MAX_DEPTH:
            raise InvalidSchema(f"{pointer}: nested more than {MAX_DEPTH} levels")
        if "$ref" in schema:
            return self._reference(schema["$ref"], pointer, within)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._one_of(schema[word], f"{pointer}/{word}", within)
        for word in ("allOf", "not", "if", "patternProperties"):
            if word in schema:
                raise InvalidSchema(f"{pointer}/{word}: not supported, it determines no column type")
        names = self._names(schema, pointer)
        null = "null" in names
        names = [name for name in names if name != "null"]
        if len(names) > 1 and set(names) == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            what = " and ".join(names) or "null alone"
            raise InvalidSchema(f"{pointer}/type: {what}: a column must have one type besides null")
        return self._of_name(names[0], schema, pointer, within), null

    def _names(self, schema: Mapping[str, Any], pointer: str) -> list[str]:
        names = schema.get("type")
        if names is None:
            values = schema["enum"] if isinstance(schema.get("enum"), list) else None
            values = [schema["const"]] if "const" in schema else values
            if values is None:
                if "properties" in schema:
                    return ["object"]
                if "items" in schema:
                    return ["array"]
                raise InvalidSchema(f"{pointer}: type is missing")
            names = sorted({_name_of(value) for value in values})
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InvalidSchema(f"{pointer}/type: must be a name, or a list of names")
        for name in names:
            if name not in _NAMES:
                raise InvalidSchema(f"{pointer}/type: {name!r} is not one of {', '.join(sorted(_NAMES))}")
        return list(names)

    def _of_name(self, name: str, schema: Mapping[str, Any], pointer: str, within: tuple[str, ...]) -> Type:
        if name == "string":
            return {"date-time": "timestamp", "date": "date"}.get(str(schema.get("format")), "string")
        if name == "array":
            items = schema.get("items", True)
            return {"array": self._type(items, f"{pointer}/items", (*within, ""))[0]}
        if name != "object":
            return _NAMES[name]
        properties = schema.get("properties")
        more = schema.get("additionalProperties", True)
        if not properties:
            if isinstance(more, dict) and more:
                return {"map": self._type(more, f"{pointer}/additionalProperties", (*within, ""))[0]}
            return "json"
        if not isinstance(properties, dict):
            raise InvalidSchema(f"{pointer}/properties: must be an object")
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise InvalidSchema(f"{pointer}/required: must be a list of names")
        fields = []
        for each, inner in properties.items():
            type_, null = self._type(inner, f"{pointer}/properties/{each}", (*within, ""))
            fields.append({"name": each, "type": type_, "required": each in required, "null": null})
        check_names(fields, f"{pointer}/properties")
        return {"struct": fields}

    def _one_of(self, schemas: Any, pointer: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        if not isinstance(schemas, list):
            raise InvalidSchema(f"{pointer}: must be a list")
        others = [(at, one) for at, one in enumerate(schemas) if one != {"type": "null"}]
        if len(others) != 1:
            raise InvalidSchema(f"{pointer}: a column must have one type besides null, not {len(others)}")
        ((at, only),) = others
        type_, null = self._type(only, f"{pointer}/{at}", (*within, ""))
        return type_, null or len(others) < len(schemas)

    def _reference(self, reference: Any, pointer: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise InvalidSchema(f"{pointer}/$ref: {reference!r} is not within this file")
        if reference in within:
            raise InvalidSchema(f"{pointer}/$ref: {reference} is recursive, which a column type cannot be")
        found = self._document
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise InvalidSchema(f"{pointer}/$ref: {reference} does not exist")
            found = found[part]
        return self._type(found, reference, (*within, reference))


_NAMES = {
    "string": "string",
    "integer": "long",
    "number": "double",
    "boolean": "boolean",
    "array": "",
    "object": "",
    "null": "",
}


def _name_of(value: Any) -> str:
    for type_, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, type_):
            return name
    return "null" if value is None else "object"


def check_names(fields: Iterable[Mapping[str, Any]], pointer: str) -> None:
    """SQL does not tell capitals from small letters. Raises `InvalidSchema`."""
    seen: dict[str, str] = {}
    for field in fields:
        name = field["name"]
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
    """The value of a body. Raises `TypeMismatch`."""
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


# ---- the bodies that are there


class Inference:
    """Fields by bodies of JSON: each that is `add`\\ ed widens them."""

    def __init__(self) -> None:
        self.bodies = 0
        self.bad = 0
        self._root = _ObservedType()

    def add(self, body: bytes) -> None:
        """Take one more into account."""
        self.bodies += 1
        try:
            value = decode_json(body)
        except TypeMismatch:
            self.bad += 1
            return
        if not isinstance(value, dict):
            self.bad += 1
            return
        self._root.add(value, 0)

    def fields(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The fields, and where values of different types made them wider. Raises `InvalidSchema`."""
        notes: list[str] = []
        type_ = self._root.type("", notes)
        if not isinstance(type_, dict):
            raise InvalidSchema(f"none of {self.bodies:,} bodies is a JSON object with members")
        return type_["struct"], notes


class _ObservedType:
    """What values were in one place."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.names: dict[str, _ObservedType] = {}
        self.items: _ObservedType | None = None

    def add(self, value: Any, depth: int) -> None:
        kind = _kind(value)
        if depth > MAX_DEPTH:
            kind = "object" if kind == "array" else kind
        self.kinds[kind] += 1
        if depth > MAX_DEPTH:
            return
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
            return self._struct(pointer, notes) if kind == "object" else _KINDS[kind]
        kinds_text = ", ".join(f"{_KIND_NAMES[kind]} in {count:,}" for kind, count in sorted(kinds.items()))
        if set(kinds) <= {"long", "large", "double"}:
            wide = "double"
        elif set(kinds) <= {"string", "timestamp", "date"}:
            wide = "string"
        else:
            wide = "json"
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
            if not name or names.setdefault(name.lower(), name) != name:
                notes.append(
                    f"{pointer or '#'}: {names.get(name.lower(), '')!r} and {name!r} differ only in case: STRING"
                )
                return "json"
        return {
            "struct": [
                {"name": name, "type": seen.type(f"{pointer}/{name}", notes), "required": False, "null": True}
                for name, seen in self.names.items()
            ]
        }


_KINDS = {
    "long": "long",
    "large": "double",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "timestamp": "timestamp",
    "date": "date",
}
_KIND_NAMES = {
    **_KINDS,
    "long": "a whole number",
    "large": "a larger one",
    "double": "a number",
    "timestamp": "a date-time",
}
_KIND_NAMES |= {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "date": "a date",
    "boolean": "a boolean",
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


def from_avro(text: bytes) -> list[dict[str, Any]]:
    """Fields of an Avro schema of a record. Raises `InvalidSchema`."""
    schema = _parsed(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidSchema("#: a record is required")
    found: list[dict[str, Any]] = _AvroSchema().type(schema, "#", ())["struct"]
    return found


def _parsed(text: bytes) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        return parse_schema(json.loads(text))
    except (ValueError, RecursionError) as reason:
        raise InvalidSchema(f"not JSON: {reason}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError) as reason:
        raise InvalidSchema(f"not an Avro schema: {reason!r}") from None


class _AvroSchema:
    def __init__(self) -> None:
        self._definitions: dict[str, Any] = {}

    def type(self, schema: Any, pointer: str, within: tuple[str, ...]) -> Type:
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if len(others) != 1:
                raise InvalidSchema(
                    f"{pointer}: a union of {len(others)} types besides null is not supported"
                )
            return self.type(others[0], pointer, within)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            if schema in within:
                raise InvalidSchema(f"{pointer}: {schema} is recursive, which a column type cannot be")
            if schema in self._definitions:
                return self.type(self._definitions[schema], pointer, within)
            raise InvalidSchema(f"{pointer}: {schema!r} is not a column type")
        name = schema["type"]
        if "name" in schema:
            self._definitions[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical is not None:
            return self._logical(logical, schema, pointer)
        if name == "array":
            return {"array": self.type(schema["items"], f"{pointer}/items", within)}
        if name == "map":
            return {"map": self.type(schema["values"], f"{pointer}/values", within)}
        if name in ("enum", "fixed"):
            return "string" if name == "enum" else "binary"
        if name not in ("record", "error"):
            return self.type(name, pointer, within)
        inner = (*within, schema["name"])
        fields = [
            {
                "name": field["name"],
                "type": self.type(field["type"], f"{pointer}/{field['name']}", inner),
                "required": False,
                "null": True,
            }
            for field in schema["fields"]
        ]
        check_names(fields, pointer)
        if not fields:
            raise InvalidSchema(f"{pointer}: a record without fields is not supported")
        return {"struct": fields}

    def _logical(self, logical: str, schema: Mapping[str, Any], pointer: str) -> Type:
        if logical == "decimal":
            precision = schema["precision"]
            if precision > 38:
                raise InvalidSchema(f"{pointer}: a decimal of {precision} digits, at most 38 are supported")
            return {"decimal": [precision, schema.get("scale", 0)]}
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        raise InvalidSchema(f"{pointer}: logical type {logical} is not supported")


_PRIMITIVES: Mapping[str, Type] = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Mapping[str, Type] = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "date": "date",
    "uuid": "string",
}


def avro_decoder(text: bytes) -> Decoder:
    """What decodes bodies: one value each, as it is or in Avro's single-object encoding."""
    from fastavro import schemaless_reader
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    schema = _parsed(text)
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(json.loads(text)), "CRC-64-AVRO"))
    header = b"\xc3\x01" + mark

    def decode(body: bytes) -> Any:
        file = io.BytesIO(body)
        if body.startswith(header):
            file.seek(len(header))
        try:
            value = schemaless_reader(file, schema, None)
        except Exception as reason:  # fastavro raises what its parts raise, for bytes of any kind
            raise TypeMismatch(
                f"the body is not Avro of this schema: {str(reason) or repr(reason)}"[:300]
            ) from None
        left = len(body) - file.tell()
        if left:
            raise TypeMismatch(f"the body is not Avro of this schema: {left} bytes follow the value")
        return _plain(value)

    return decode


def _plain(value: Any) -> Any:
    """UUIDs as text."""
    from uuid import UUID

    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, UUID) else value
