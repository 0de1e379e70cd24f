"""Types of a view's columns, and what values of decoded bodies become in them.

A type is data that JSON can carry: a name of `SCALARS`, or ``{"array": T}``, ``{"map": T}`` (keys are strings),
``{"decimal": [precision, scale]}``, ``{"struct": [{"name", "type", "required", "null"}]}``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
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


class Misfit(ValueError):
    """A value is none of its column's type; the text begins with its place."""


def arrow(type_: Type) -> Any:
    """A type, as Arrow has it."""
    if isinstance(type_, str):
        return SCALARS[type_]
    ((kind, inner),) = type_.items()
    if kind == "array":
        return pa.list_(arrow(inner))
    if kind == "map":
        return pa.map_(pa.string(), arrow(inner))
    if kind == "decimal":
        return pa.decimal128(*inner)
    return pa.struct([pa.field(field["name"], arrow(field["type"])) for field in inner])


def shown(type_: Type) -> str:
    """A type, as Spark's DDL has it."""
    if isinstance(type_, str):
        return _DDL[type_]
    ((kind, inner),) = type_.items()
    if kind == "array":
        return f"ARRAY<{shown(inner)}>"
    if kind == "map":
        return f"MAP<STRING,{shown(inner)}>"
    if kind == "decimal":
        return f"DECIMAL({inner[0]},{inner[1]})"
    return f"STRUCT<{','.join(field['name'] + ':' + shown(field['type']) for field in inner)}>"


def fit(type_: Type, value: Any, place: str) -> Any:
    """A value of JSON or Avro, as Arrow takes it. Raises `Misfit`."""
    if isinstance(type_, str):
        return _SCALAR[type_](value, place)
    ((kind, inner),) = type_.items()
    if kind == "array":
        if not isinstance(value, list):
            raise _misfit(value, "no array", place)
        return [None if each is None else fit(inner, each, f"{place}/{at}") for at, each in enumerate(value)]
    if kind == "map":
        if not isinstance(value, dict):
            raise _misfit(value, "no object", place)
        return [
            (_string(key, place), None if each is None else fit(inner, each, f"{place}/{key}"))
            for key, each in value.items()
        ]
    if kind == "decimal":
        return value  # only Avro has them, and its reader has made them
    return fit_struct(inner, value, place)


def fit_struct(fields: Sequence[Mapping[str, Any]], value: Any, place: str) -> dict[str, Any]:
    """An object's values by the fields of a struct; others are left out. Raises `Misfit`."""
    if not isinstance(value, dict):
        raise _misfit(value, "no object", place)
    found: dict[str, Any] = {}
    for field in fields:
        name = field["name"]
        given = value.get(name)
        if given is None:
            if name not in value:
                if field["required"]:
                    raise Misfit(f"{place or '#'}: {name} is required")
            elif not field["null"]:
                raise Misfit(f"{place}/{name}: null is not allowed")
            found[name] = None
        else:
            found[name] = fit(field["type"], given, f"{place}/{name}")
    return found


def _misfit(value: Any, what: str, place: str) -> Misfit:
    text = json.dumps(value, default=str)
    return Misfit(f"{place or '#'}: {text if len(text) <= 60 else text[:57] + '...'} is {what}")


def _string(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise _misfit(value, "no string", place)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit(f"{place or '#'}: the string has half of a surrogate pair") from None
    return value


def _any(value: Any, place: str) -> str:
    return _string(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), place)


def _whole(name: str) -> Any:
    least, most = _RANGES[name]

    def whole(value: Any, place: str) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _misfit(value, "no whole number", place)
        if not least <= value <= most:
            raise Misfit(f"{place}: it is beyond {_DDL[name]}")
        return value

    return whole


def _number(value: Any, place: str) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _misfit(value, "no number", place)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise Misfit(f"{place}: it is beyond DOUBLE")
    return number


def _boolean(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value, "no boolean", place)
    return value


def _binary(value: Any, place: str) -> bytes:
    if not isinstance(value, bytes):
        raise _misfit(value, "no bytes", place)
    return value


def _timestamp(value: Any, place: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        if not isinstance(value, str) or not DATE_TIME.fullmatch(value):
            raise ValueError
        time = datetime.fromisoformat(value.upper())
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise _misfit(value, "no date-time of RFC 3339", place) from None


def _date(value: Any, place: str) -> date:
    if isinstance(value, date):
        return value
    try:
        if not isinstance(value, str) or not DATE.fullmatch(value):
            raise ValueError
        return date.fromisoformat(value)
    except ValueError:
        raise _misfit(value, "no date of RFC 3339", place) from None


_SCALAR: Mapping[str, Any] = {
    "string": _string,
    "json": _any,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _number,
    "double": _number,
    "boolean": _boolean,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
}
