"""schema.xsd as data: the elements and attributes, their parents, and the types of their values.

The schema is part of the package and trusted, so the parser of the standard library may read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from xml.etree import ElementTree  # nosec B405

_XS = "{http://www.w3.org/2001/XMLSchema}"


@dataclass(frozen=True, slots=True)
class AttributeRule:
    """An attribute: the simple type of its value, and whether it is required."""

    type: str
    required: bool


@dataclass(frozen=True, slots=True)
class ElementRule:
    """The content of an element. ``text`` is the simple type of its text, None without text."""

    text: str | None
    repeated: bool
    children: Mapping[str, ElementRule]
    attributes: Mapping[str, AttributeRule]


def schema_bytes() -> bytes:
    """The content of schema.xsd."""
    return files("stompring.settings").joinpath("schema.xsd").read_bytes()


@cache
def root_rules() -> Mapping[str, ElementRule]:
    """The root element, ``configuration``, with all its descendants."""
    schema = ElementTree.fromstring(schema_bytes())  # nosec B314
    types = {element.get("name", ""): element for element in schema.iter(f"{_XS}complexType")}
    return _elements(schema.findall(f"{_XS}element"), types)


def _elements(
    elements: list[ElementTree.Element], types: dict[str, ElementTree.Element]
) -> Mapping[str, ElementRule]:
    return MappingProxyType({element.attrib["name"]: _rule(element, types) for element in elements})


def _rule(element: ElementTree.Element, types: dict[str, ElementTree.Element]) -> ElementRule:
    repeated = element.get("maxOccurs") == "unbounded"
    shape = types.get(element.attrib["type"])
    if shape is None:
        return ElementRule(element.attrib["type"], repeated, MappingProxyType({}), MappingProxyType({}))
    extension = shape.find(f"{_XS}simpleContent/{_XS}extension")
    attributes = {
        attribute.attrib["name"]: AttributeRule(attribute.attrib["type"], attribute.get("use") == "required")
        for attribute in shape.iter(f"{_XS}attribute")
    }
    return ElementRule(
        None if extension is None else extension.attrib["base"],
        repeated,
        _elements(list(shape.iter(f"{_XS}element")), types),
        MappingProxyType(attributes),
    )


def all_elements(
    rules: Mapping[str, ElementRule], parent: str = ""
) -> Iterator[tuple[str, str, ElementRule]]:
    """Every element below ``parent`` as (its parent, its name, its rule)."""
    for name, rule in rules.items():
        yield parent, name, rule
        yield from all_elements(rule.children, name)


@cache
def parents_of(name: str) -> tuple[str, ...]:
    """The elements in which ``name`` may stand, in order of the schema."""
    found = (parent for parent, element, _ in all_elements(root_rules()) if element == name and parent)
    return tuple(dict.fromkeys(found))


MAX_LISTED = 8


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to ``name``, or None if none is similar."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def with_suggestion(what: str, name: str, known: Iterable[str]) -> str:
    """``what``, then the nearest of ``known``, or all of them where they are few and none is near."""
    known = tuple(known)
    near = closest_match(name, known)
    if near is not None:
        return f"{what}; did you mean '{near}'?"
    if known and len(known) <= MAX_LISTED:
        return f"{what}; known: {', '.join(sorted(known))}"
    return what
