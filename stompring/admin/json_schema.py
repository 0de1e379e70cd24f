"""JSON schemas of the fields, parameters and bodies that routes read and answer. `openapi` collects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Component:
    """A schema with a name of its own below ``#/components/schemas``. It stands wherever a schema may stand."""

    name: str
    schema: Schema


def reader(source: str | Callable[[Thing], Any]) -> Callable[[Thing], Any]:
    """The function that reads a value: ``source``, or one for the attributes that it names, such as ``address.name``.

    The value is None if one of the attributes is.
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


@dataclass(frozen=True, slots=True)
class Field(Generic[Thing]):
    """A field of a JSON object: its schema, and how it is read from what the object represents, see `reader`."""

    source: str | Callable[[Thing], Any]
    schema: Schema
    read: Callable[[Thing], Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", reader(self.source))

    @property
    def description(self) -> str:
        """The meaning of the field."""
        return str(self.schema["description"])


TEXT: Schema = {"type": "string"}

#: The fields of a JSON object, in order.
Fields = Mapping[str, Field[Thing]]


def typed(kind: str, description: str, null: bool, more: Schema) -> Schema:
    """A schema of one type, or of that type and null."""
    return {"type": [kind, "null"] if null else kind, "description": description, **more}


def integer(description: str, minimum: int | None = 0, *, null: bool = False, **more: Any) -> Schema:
    """A whole number."""
    return typed("integer", description, null, ({} if minimum is None else {"minimum": minimum}) | more)


def number(description: str, minimum: int = 0, *, null: bool = False) -> Schema:
    """A number with a fraction."""
    return typed("number", description, null, {"minimum": minimum})


def string(description: str, *, null: bool = False, **more: Any) -> Schema:
    """Text."""
    return typed("string", description, null, more)


def boolean(description: str, *, null: bool = False, **more: Any) -> Schema:
    """true or false."""
    return typed("boolean", description, null, more)


def timestamp(description: str, *, null: bool = False) -> Schema:
    """A point in time."""
    return integer(f"{description} Milliseconds since the epoch.", None, null=null)


def keyword(values: type[StrEnum] | tuple[str, ...], description: str) -> Schema:
    """One of a few words."""
    return string(description, enum=[str(value) for value in values])


def array(items: Schema | Component, description: str, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": items, "description": description, **more}


def structure(
    properties: Mapping[str, Schema | Component],
    description: str = "",
    required: tuple[str, ...] | None = None,
) -> Schema:
    """A JSON object without other members than these. All are required unless ``required`` names some."""
    schema: dict[str, Any] = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = properties
    schema["required"] = list(properties if required is None else required)
    schema["additionalProperties"] = False
    return schema


def shown(fields: Fields[Any]) -> Mapping[str, Schema]:
    """The schemas of fields."""
    return {name: field.schema for name, field in fields.items()}


def object_of(name: str, fields: Fields[Any]) -> Component:
    """The schema of an object with these fields."""
    return Component(name, structure(shown(fields)))


def page_of(item: Component) -> Component:
    """One page of a list."""
    properties: dict[str, Schema | Component] = {
        "data": array(item, "The items of this page."),
        "count": integer("Number of items on all pages."),
        "page": integer("Number of this page, from 1.", 1),
        "size": integer("Maximum number of items per page.", 1),
    }
    return Component(f"{item.name}Page", structure(properties))
