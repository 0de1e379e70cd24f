"""JSON schemas of the fields, parameters and bodies that routes read and answer. `openapi` collects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

Thing = TypeVar("Thing")

#: A value that becomes a JSON object.
JsonObject = dict[str, Any]

Schema = Mapping[str, Any]


class Component(NamedTuple):
    """A schema that the OpenAPI document has once, as ``#/components/schemas/NAME``. Other schemas refer to it."""

    name: str
    schema: Schema


#: Source of a value in an object: a function, or the names of attributes such as ``address.name``.
Source = str | Callable[[Thing], Any]


def reader(source: Source[Thing]) -> Callable[[Thing], Any]:
    """The function that reads a value: ``source`` itself, or a function for attributes such as ``address.name``.

    The value is None if one of the attributes is None.
    """
    if not isinstance(source, str):
        return source
    names = source.split(".")
    if len(names) == 1:
        return attrgetter(source)

    def read(thing: Any) -> Any:
        for name in names:
            thing = getattr(thing, name)
            if thing is None:
                return None
        return thing

    return read


class Field(dict[str, Any], Generic[Thing]):
    """The JSON schema of a field. ``read`` reads the value of the field from a queue or other object, see `reader`."""

    __slots__ = ("read",)

    def __init__(self, schema: Schema, source: Source[Thing] = "") -> None:
        super().__init__(schema)
        self.read = reader(source)


TEXT: Schema = {"type": "string"}

#: The fields of a JSON object, in order.
Fields = Mapping[str, Field[Thing]]


def typed(kind: str, description: str, source: Source[Thing], null: bool, more: Schema) -> Field[Thing]:
    """A schema of one type, or of that type and null."""
    return Field({"type": [kind, "null"] if null else kind, "description": description, **more}, source)


def integer(
    description: str,
    source: Source[Thing] = "",
    minimum: int | None = 0,
    *,
    null: bool = False,
    **more: Any,
) -> Field[Thing]:
    """The schema of a whole number."""
    return typed(
        "integer", description, source, null, ({} if minimum is None else {"minimum": minimum}) | more
    )


def number(description: str, source: Source[Thing] = "", *, null: bool = False) -> Field[Thing]:
    """The schema of a number with a fraction, of at least 0."""
    return typed("number", description, source, null, {"minimum": 0})


def string(description: str, source: Source[Thing] = "", **more: Any) -> Field[Thing]:
    """The schema of a text."""
    return typed("string", description, source, False, more)


def string_or_null(description: str, source: Source[Thing] = "", **more: Any) -> Field[Thing]:
    """The schema of a text or null."""
    return typed("string", description, source, True, more)


def boolean(description: str, source: Source[Thing] = "") -> Field[Thing]:
    """The schema of true or false."""
    return typed("boolean", description, source, False, {})


def timestamp(description: str, source: Source[Thing] = "", *, null: bool = False) -> Field[Thing]:
    """The schema of a time in epoch ms."""
    return integer(f"{description} Milliseconds since the epoch.", source, None, null=null)


def keyword(
    values: type[StrEnum] | tuple[str, ...], description: str, source: Source[Thing] = ""
) -> Field[Thing]:
    """The schema of one of a few words."""
    return string(description, source, enum=[str(value) for value in values])


def array(
    items: Schema | Component, description: str, source: Source[Thing] = "", **more: Any
) -> Field[Thing]:
    """The schema of a list."""
    return Field({"type": "array", "items": items, "description": description, **more}, source)


def structure(
    properties: Mapping[str, Schema | Component],
    description: str = "",
    required: tuple[str, ...] | None = None,
) -> Schema:
    """The schema of an object with only these members. All are required unless ``required`` names some."""
    return {
        "type": "object",
        **({"description": description} if description else {}),
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def object_of(name: str, fields: Mapping[str, Schema | Component]) -> Component:
    """The schema of an object with these fields."""
    return Component(name, structure(fields))


def nullable(fields: Fields[Thing]) -> Fields[Thing]:
    """Return ``fields`` with schemas that also allow null."""
    return {
        name: Field({**field, "type": [field["type"], "null"]}, field.read) for name, field in fields.items()
    }


def page_of(item: Component) -> Component:
    """The schema of one page of a list."""
    properties: dict[str, Schema | Component] = {
        "data": array(item, "The items of this page."),
        "count": integer("Number of items on all pages."),
        "page": integer("Number of this page, from 1.", minimum=1),
        "size": integer("Maximum number of items per page.", minimum=1),
    }
    return Component(f"{item.name}Page", structure(properties))
