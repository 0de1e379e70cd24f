"""Columns of a view from a JSON Schema, an Avro schema, or the bodies that are there; and decoding bodies by them."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stompring.pipeline.lake.types import DATE, DATE_TIME, Misfit, Type

#: More names than these are no columns: names of such an object are data.
MOST_FIELDS = 1000

#: Objects within objects.
DEPTH = 32

Decoder = Callable[[bytes], Any]


class BadSchema(ValueError):
    """A schema that no columns can be made of; the text begins with the place in it."""


# ---- JSON Schema


def from_json_schema(text: bytes) -> list[dict[str, Any]]:
    """Fields of a JSON Schema whose values are objects. Raises `BadSchema`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise BadSchema(f"it is no JSON: {reason}") from None
    found = _Schema(document).fields()
    return found


class _Schema:
    def __init__(self, document: Any) -> None:
        self._document = document

    def fields(self) -> list[dict[str, Any]]:
        type_, _ = self._type(self._document, "#", ())
        if not isinstance(type_, dict) or "struct" not in type_:
            raise BadSchema("#: columns need an object with properties")
        found: list[dict[str, Any]] = type_["struct"]
        return found

    def _type(self, schema: Any, place: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        """The type, and whether null is allowed."""
        if schema is True or schema == {}:
            return "json", True
        if not isinstance(schema, dict):
            raise BadSchema(f"{place}: {json.dumps(schema)[:40]} is no schema of values")
        if len(within) > DEPTH:
            raise BadSchema(f"{place}: it is nested too deeply")
        if "$ref" in schema:
            return self._reference(schema["$ref"], place, within)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._one_of(schema[word], f"{place}/{word}", within)
        for word in ("allOf", "not", "if", "patternProperties"):
            if word in schema:
                raise BadSchema(f"{place}/{word}: no type of a column follows from it")
        names = self._names(schema, place)
        null = "null" in names
        names = [name for name in names if name != "null"]
        if len(names) > 1 and set(names) == {"integer", "number"}:
            names = ["number"]
        if len(names) != 1:
            what = " and ".join(names) or "null alone"
            raise BadSchema(f"{place}/type: {what}: a column has one type beside null")
        return self._of_name(names[0], schema, place, within), null

    def _names(self, schema: Mapping[str, Any], place: str) -> list[str]:
        names = schema.get("type")
        if names is None:
            values = schema["enum"] if isinstance(schema.get("enum"), list) else None
            values = [schema["const"]] if "const" in schema else values
            if values is None:
                if "properties" in schema:
                    return ["object"]
                if "items" in schema:
                    return ["array"]
                raise BadSchema(f"{place}: type is missing")
            names = sorted({_name_of(value) for value in values})
        names = [names] if isinstance(names, str) else names
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadSchema(f"{place}/type: must be a name, or a list of names")
        for name in names:
            if name not in _NAMES:
                raise BadSchema(f"{place}/type: {name!r} is none of {', '.join(sorted(_NAMES))}")
        return list(names)

    def _of_name(self, name: str, schema: Mapping[str, Any], place: str, within: tuple[str, ...]) -> Type:
        if name == "string":
            return {"date-time": "timestamp", "date": "date"}.get(str(schema.get("format")), "string")
        if name == "array":
            items = schema.get("items", True)
            return {"array": self._type(items, f"{place}/items", (*within, ""))[0]}
        if name != "object":
            return _NAMES[name]
        properties = schema.get("properties")
        more = schema.get("additionalProperties", True)
        if not properties:
            if isinstance(more, dict) and more:
                return {"map": self._type(more, f"{place}/additionalProperties", (*within, ""))[0]}
            return "json"
        if not isinstance(properties, dict):
            raise BadSchema(f"{place}/properties: must be an object")
        required = schema.get("required", [])
        if not isinstance(required, list):
            raise BadSchema(f"{place}/required: must be a list of names")
        fields = []
        for each, inner in properties.items():
            type_, null = self._type(inner, f"{place}/properties/{each}", (*within, ""))
            fields.append({"name": each, "type": type_, "required": each in required, "null": null})
        check_names(fields, f"{place}/properties")
        return {"struct": fields}

    def _one_of(self, schemas: Any, place: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        if not isinstance(schemas, list):
            raise BadSchema(f"{place}: must be a list")
        others = [(at, one) for at, one in enumerate(schemas) if one != {"type": "null"}]
        if len(others) != 1:
            raise BadSchema(f"{place}: a column has one type beside null, and these are {len(others)}")
        ((at, only),) = others
        type_, null = self._type(only, f"{place}/{at}", (*within, ""))
        return type_, null or len(others) < len(schemas)

    def _reference(self, reference: Any, place: str, within: tuple[str, ...]) -> tuple[Type, bool]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise BadSchema(f"{place}/$ref: {reference!r} is not in this file")
        if reference in within:
            raise BadSchema(f"{place}/$ref: {reference} contains itself, and a column cannot")
        found = self._document
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise BadSchema(f"{place}/$ref: there is no {reference}")
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


def check_names(fields: Iterable[Mapping[str, Any]], place: str) -> None:
    """SQL does not tell capitals from small letters. Raises `BadSchema`."""
    seen: dict[str, str] = {}
    for field in fields:
        name = field["name"]
        if not name:
            raise BadSchema(f"{place}: an empty name is none of a column")
        if name.lower() in seen:
            raise BadSchema(f"{place}: {seen[name.lower()]} and {name} are the same name in SQL")
        seen[name.lower()] = name
    if len(seen) > MOST_FIELDS:
        raise BadSchema(f"{place}: {len(seen):,} names, and {MOST_FIELDS:,} are the most")


def decode_json(body: bytes) -> Any:
    """The value of a body. Raises `Misfit`."""
    try:
        return json.loads(body, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Misfit("the body is no UTF-8") from None
    except RecursionError:
        raise Misfit("the body is nested too deeply") from None
    except ValueError as reason:
        raise Misfit(f"the body is no JSON: {reason}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is none of its values")


# ---- the bodies that are there


class Inference:
    """Fields by bodies of JSON: each that is `add`\\ ed widens them."""

    def __init__(self) -> None:
        self.bodies = 0
        self.bad = 0
        self._root = _Seen()

    def add(self, body: bytes) -> None:
        """Take one more into account."""
        self.bodies += 1
        try:
            value = decode_json(body)
        except Misfit:
            self.bad += 1
            return
        if not isinstance(value, dict):
            self.bad += 1
            return
        self._root.add(value, 0)

    def fields(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The fields, and where values of different types made them wider. Raises `BadSchema`."""
        notes: list[str] = []
        type_ = self._root.type("", notes)
        if not isinstance(type_, dict):
            raise BadSchema(f"of {self.bodies:,} bodies none is a JSON object with a name in it")
        return type_["struct"], notes


class _Seen:
    """What values were in one place."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.names: dict[str, _Seen] = {}
        self.items: _Seen | None = None

    def add(self, value: Any, depth: int) -> None:
        kind = _kind(value)
        if depth > DEPTH:
            kind = "object" if kind == "array" else kind
        self.kinds[kind] += 1
        if depth > DEPTH:
            return
        if kind == "object":
            for name, each in value.items():
                if len(self.names) <= MOST_FIELDS or name in self.names:
                    self.names.setdefault(name, _Seen()).add(each, depth + 1)
        elif kind == "array":
            self.items = self.items or _Seen()
            for each in value:
                self.items.add(each, depth + 1)

    def type(self, place: str, notes: list[str]) -> Type:
        kinds = {kind: count for kind, count in self.kinds.items() if kind != "null"}
        if not kinds:
            return "json"
        if len(kinds) == 1:
            (kind,) = kinds
            if kind == "array":
                assert self.items is not None
                return {"array": self.items.type(f"{place}/[]", notes)}
            return self._struct(place, notes) if kind == "object" else _KINDS[kind]
        told = ", ".join(f"{_WORDS[kind]} in {count:,}" for kind, count in sorted(kinds.items()))
        if set(kinds) <= {"long", "large", "double"}:
            wide = "double"
        elif set(kinds) <= {"string", "timestamp", "date"}:
            wide = "string"
        else:
            wide = "json"
        notes.append(f"{place or '#'}: {told}: {'DOUBLE' if wide == 'double' else 'STRING'}")
        return wide

    def _struct(self, place: str, notes: list[str]) -> Type:
        if not self.names:
            return "json"
        if len(self.names) > MOST_FIELDS:
            notes.append(f"{place or '#'}: more than {MOST_FIELDS:,} names: STRING")
            return "json"
        names: dict[str, str] = {}
        for name in self.names:
            if not name or names.setdefault(name.lower(), name) != name:
                notes.append(
                    f"{place or '#'}: {names.get(name.lower(), '')!r} and {name!r} are one name in SQL: STRING"
                )
                return "json"
        return {
            "struct": [
                {"name": name, "type": seen.type(f"{place}/{name}", notes), "required": False, "null": True}
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
_WORDS = {
    **_KINDS,
    "long": "a whole number",
    "large": "a larger one",
    "double": "a number",
    "timestamp": "a date-time",
}
_WORDS |= {
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
    """Fields of an Avro schema of a record. Raises `BadSchema`."""
    schema = _parsed(text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadSchema("#: columns need a record")
    found: list[dict[str, Any]] = _Avro().type(schema, "#", ())["struct"]
    return found


def _parsed(text: bytes) -> Any:
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        return parse_schema(json.loads(text))
    except (ValueError, RecursionError) as reason:
        raise BadSchema(f"it is no JSON: {reason}") from None
    except (SchemaParseException, UnknownType, KeyError, TypeError, AttributeError) as reason:
        raise BadSchema(f"it is no Avro schema: {reason!r}") from None


class _Avro:
    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def type(self, schema: Any, place: str, within: tuple[str, ...]) -> Type:
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            if len(others) != 1:
                raise BadSchema(f"{place}: a union of {len(others)} types beside null is no column")
            return self.type(others[0], place, within)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return _PRIMITIVES[schema]
            if schema in within:
                raise BadSchema(f"{place}: {schema} contains itself, and a column cannot")
            if schema in self._named:
                return self.type(self._named[schema], place, within)
            raise BadSchema(f"{place}: {schema!r} is no type of a column")
        name = schema["type"]
        if "name" in schema:
            self._named[schema["name"]] = schema
        logical = schema.get("logicalType")
        if logical is not None:
            return self._logical(logical, schema, place)
        if name == "array":
            return {"array": self.type(schema["items"], f"{place}/items", within)}
        if name == "map":
            return {"map": self.type(schema["values"], f"{place}/values", within)}
        if name in ("enum", "fixed"):
            return "string" if name == "enum" else "binary"
        if name not in ("record", "error"):
            return self.type(name, place, within)
        inner = (*within, schema["name"])
        fields = [
            {
                "name": field["name"],
                "type": self.type(field["type"], f"{place}/{field['name']}", inner),
                "required": False,
                "null": True,
            }
            for field in schema["fields"]
        ]
        check_names(fields, place)
        if not fields:
            raise BadSchema(f"{place}: a record without fields is no column")
        return {"struct": fields}

    def _logical(self, logical: str, schema: Mapping[str, Any], place: str) -> Type:
        if logical == "decimal":
            precision = schema["precision"]
            if precision > 38:
                raise BadSchema(f"{place}: a decimal of {precision} digits, and 38 are the most")
            return {"decimal": [precision, schema.get("scale", 0)]}
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        raise BadSchema(f"{place}: there is no type of a column for {logical}")


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
            raise Misfit(f"the body is no Avro of this schema: {str(reason) or repr(reason)}"[:300]) from None
        left = len(body) - file.tell()
        if left:
            raise Misfit(f"the body is no Avro of this schema: it has {left} bytes behind the value")
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
