"""broker.xml as a tree of plain data, checked against schema.xsd, with its references resolved.

`root_rules` returns schema.xsd as data: elements, attributes, and types of values. The schema is part of the package
and trusted, so the parser of the standard library may read it.

References are ``${env:NAME}``, ``${file:PATH}`` and ``${property:default}``. Properties are environment variables, or
defined by `parse_broker_xml`. The variable has the name of the property, or that name in capitals with ``_`` for every
character other than letters and digits, as a shell can set it (``data.dir``: ``DATA_DIR``). ``$${`` stands for ``${``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree  # nosec B405

from stompring.errors import ConfigurationError, Line

#: Values by the names of their elements, attributes or fields.
Values = dict[str, Any]


@dataclass(slots=True)
class Node:
    """One element. ``value`` is its text, None without text.

    The readers in `value_types` convert the text and the attributes. ``is_leaf``: the element may contain text only.
    """

    name: str
    line: int
    is_leaf: bool = False
    value: Any = None
    attributes: Values = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)

    def all(self, name: str) -> Iterator[Node]:
        """The child elements called ``name``."""
        return (child for child in self.children if child.name == name)

    def first(self, name: str) -> Node | None:
        """The child element called ``name``, or None."""
        return next(self.all(name), None)

    def within(self, name: str) -> tuple[Node, ...]:
        """The children of the child element called ``name``; empty if the child element is missing."""
        child = self.first(name)
        return tuple(child.children) if child else ()

    def leaves(self) -> Values:
        """The values of the child elements that are leaves, by name in snake case."""
        return {snake(child.name): child.value for child in self.children if child.is_leaf}

    def given(self) -> Values:
        """The values of the attributes, by name in snake case."""
        return {snake(name): value for name, value in self.attributes.items()}


def named(nodes: Iterable[Node], key: str = "name") -> Iterator[tuple[str, Node]]:
    """Yield the value of the attribute ``key`` of each node, and the node. Skips nodes without this attribute."""
    return ((node.attributes[key], node) for node in nodes if key in node.attributes)


def snake(name: str) -> str:
    """``ring-size`` as ``ring_size``."""
    return name.replace("-", "_")


SHORTEST_HIDDEN = 4
"""Minimum length of a hidden value: a shorter one would occur in other words by chance."""
#: Maximum number of faults of a file. The check ends there, because suggestions for many unknown names take time.
MAX_FAULTS = 200


class Faults:
    """Collects the faults of ``file`` and of its included files, so that one run reports all of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[tuple[str, int, str], tuple[int, str]] = {}
        self._hidden: dict[str, str] = {}
        self._added = 0

    def add(self, line: int, text: str) -> None:
        """Add a fault at ``line``, unless it was added before. Raises `ConfigurationError` at the 200th fault."""
        for value, reference in self._hidden.items():
            text = text.replace(value, reference)
        self._add(line, text)
        self._added += 1
        if self._added >= MAX_FAULTS:
            self._add(line, f"{MAX_FAULTS} faults found; the remainder was not checked")
            self.raise_if_any()

    def _add(self, line: int, text: str) -> None:
        file = line.file if isinstance(line, Line) else ""
        self._found.setdefault((file, int(line), text), (line, text))

    def hide(self, value: str, reference: str) -> None:
        """Show ``reference`` instead of ``value`` in all texts added later."""
        if len(value) >= SHORTEST_HIDDEN:
            self._hidden[value] = reference

    def raise_if_any(self) -> None:
        """Raise one `ConfigurationError` with all faults, one per line."""
        if not self._found:
            return
        faults = [fault for _, fault in sorted(self._found.items())]
        (line, first), *others = faults
        more = "".join(f"\n{self.place(line)}: {text}" for line, text in others)
        raise ConfigurationError(first + more, self.file, line, faults=faults)

    def place(self, line: int) -> str:
        """``file:line``, for a text about that line."""
        return f"{line.file if isinstance(line, Line) else self.file}:{int(line)}"


_XS = "{http://www.w3.org/2001/XMLSchema}"


class AttributeRule(NamedTuple):
    """An attribute: the simple type of its value, and whether it is required."""

    type: str
    required: bool


class ElementRule(NamedTuple):
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
    """The rule of the root element, ``configuration``, and of all its descendants."""
    schema = ElementTree.fromstring(schema_bytes())  # nosec B314
    types = {element.get("name", ""): element for element in schema.iter(f"{_XS}complexType")}
    return _elements(schema.findall(f"{_XS}element"), types)


def _elements(
    elements: list[ElementTree.Element], types: dict[str, ElementTree.Element]
) -> Mapping[str, ElementRule]:
    return {element.attrib["name"]: _rule(element, types) for element in elements}


def _rule(element: ElementTree.Element, types: dict[str, ElementTree.Element]) -> ElementRule:
    repeated = element.get("maxOccurs") == "unbounded"
    shape = types.get(element.attrib["type"])
    if shape is None:
        return ElementRule(element.attrib["type"], repeated, {}, {})
    extension = shape.find(f"{_XS}simpleContent/{_XS}extension")
    attributes = {
        attribute.attrib["name"]: AttributeRule(attribute.attrib["type"], attribute.get("use") == "required")
        for attribute in shape.iter(f"{_XS}attribute")
    }
    return ElementRule(
        None if extension is None else extension.attrib["base"],
        repeated,
        _elements(list(shape.iter(f"{_XS}element")), types),
        attributes,
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
    """The possible parent elements of ``name``, in order of the schema."""
    found = (parent for parent, element, _ in all_elements(root_rules()) if element == name and parent)
    return tuple(dict.fromkeys(found))


MAX_LISTED = 8


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to ``name``, or None if none is similar."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def with_suggestion(what: str, name: str, known: Iterable[str]) -> str:
    """Add to ``what`` the name in ``known`` most similar to ``name``. Without one, list ``known`` if it is short."""
    known = tuple(known)
    near = closest_match(name, known)
    if near is not None:
        return f"{what}; did you mean '{near}'?"
    if known and len(known) <= MAX_LISTED:
        return f"{what}; known: {', '.join(sorted(known))}"
    return what


REFERENCE_MARK = "${"
_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\})?")
#: The beginning of a reference with a kind or a default, such as ``${env:``. In a filter ``${`` alone may be text.
KNOWN_REFERENCE = re.compile(r"\$\{[\w.-]+:")
_NOT_IN_VARIABLE = re.compile(r"[^A-Za-z0-9]")

MAX_FILE_BYTES = 64 * 1024
"""Bytes of a referenced file: secrets are shorter, and reading a device would not end."""


class References(NamedTuple):
    """Resolves the references of one broker.xml. Paths are relative to ``folder``.

    ``properties``: values of properties for which there is no environment variable.
    """

    folder: Path
    environment: Mapping[str, str] = os.environ
    properties: Mapping[str, str] = {}

    def resolve(self, text: str) -> str:
        """Return ``text`` with its references resolved. Raises `ValueError` for a reference without a value."""
        return _REFERENCE.sub(self._value, text) if REFERENCE_MARK in text else text

    def _value(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return REFERENCE_MARK
        if found[2] is None:
            raise ValueError("'${' has no closing '}'; write '$${' for the characters themselves")
        kind, colon, name = found[1].partition(":")
        if kind == "file" and name:
            return self._of_file(name)
        if kind == "env" and name:
            name, colon, default = name.partition(":")
            values = [self.environment.get(name)]
            missing = f"environment variable {name} is not set"
        elif kind and kind not in ("env", "file"):
            default = name
            variable = _NOT_IN_VARIABLE.sub("_", kind).upper()
            values = [
                self.environment.get(kind),
                self.environment.get(variable),
                self.properties.get(kind),
            ]
            missing = (
                f"property {kind} is not set: set the environment variable {variable}, or write a default, "
                f"${{{kind}:default}}"
            )
        else:
            raise ValueError(
                f"'{found[0]}' is not a reference: use ${{env:NAME}}, ${{file:PATH}} or ${{property:default}}, and "
                "'$${' for the characters themselves"
            )
        if colon:
            values.append(default)
        for value in values:
            if value is not None:
                return value
        raise ValueError(missing)

    def _of_file(self, name: str) -> str:
        path = self.folder / name
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"cannot read file {path}: {reason}") from None
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"file {path} is longer than {MAX_FILE_BYTES} bytes")
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ValueError(f"file {path} is not UTF-8 text") from None


HIDDEN = "***"


class Secret(str):
    """A text from outside of broker.xml, such as a password.

    ``encode``, ``==`` and lookups as a key use the text; ``str``, ``repr``, ``format`` and log lines show stars.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return HIDDEN

    __repr__ = __str__

    def __format__(self, form: str) -> str:
        return HIDDEN


def revealed(text: str) -> str:
    """Return the text of a `Secret` as an ordinary string."""
    return str.__str__(text)


def hidden(value: object) -> object:
    """Return ``value`` for output, with stars for each `Secret` in it, also in dicts, lists and tuples."""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, dict):
        return {name: hidden(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one) for one in value]
    return value
