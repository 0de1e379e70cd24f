"""Elements of broker.xml that management created, changed or deleted while the broker ran.

An element is JSON with the names and texts of broker.xml: its attributes and child elements. `merge` puts the elements
into the XML tree of broker.xml, whose reader then reads the result: rules and error texts are the same. `read_section`
reads one section alone, so that a change of one element does not read the whole file.

``base`` is the digest of the element in broker.xml when management changed the element. If the digest differs now,
broker.xml was edited later, and its element applies.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from lxml import etree

from stompring.errors import ConfigurationError, Line, Refused

from .broker_xml import INCLUDED, read_tree
from .document import KNOWN_REFERENCE, REFERENCE_MARK, ElementRule, root_rules
from .match import with_delimiter
from .model import BrokerConfiguration
from .network import shown_url
from .urls import SECRET_PARAMETER

#: Where an element comes from, as lists show it.
FILE, RUN_TIME = "broker.xml", "run time"

#: Name of the element that has its text in the attribute ``string``.
FILTER = "filter"

#: Name of the element of broker.xml that declares a connector, and of the member in the JSON of a bridge that has the
#: URLs of the bridge's own connectors.
CONNECTOR = "connector"


#: The kinds of elements that management can change, each with its attribute for the name. Their sections in core have
#: the plural.
KINDS = {"divert": "name", "bridge": "name", "address-setting": "match", "security-setting": "match"}

Values = Mapping[str, Any]


class RunTimeElement(NamedTuple):
    """A change of one element. ``element`` None: it is deleted. ``base``: digest of the element that it replaces."""

    kind: str
    name: str
    element: Values | None
    base: str | None = None

    @property
    def place(self) -> str:
        """The text that names this element as the place of a fault; other faults name a file."""
        return f"{RUN_TIME}: {self.kind} {self.name}"


def source_of(line: int | None) -> str:
    """Where an element comes from, by its line: `FILE` or `RUN_TIME`."""
    return RUN_TIME if isinstance(line, Line) and line.file.startswith(RUN_TIME) else FILE


def line_of(line: int | None) -> int | None:
    """The line of an element of broker.xml, None for an element of the run time."""
    return None if line is None or source_of(line) is RUN_TIME else int(line)


def key_of(kind: str, name: str, configuration: BrokerConfiguration) -> str:
    """The name under which an element is stored. A match may get a delimiter, as in broker.xml (`with_delimiter`)."""
    if KINDS[kind] == "name":
        return name
    return with_delimiter(name, configuration.literal_match_markers, configuration.wildcard)


# ---- the tree


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname


def _child(element: etree._Element, name: str) -> etree._Element:
    """The child element with a name, which is added if it is missing."""
    for child in element:
        if _local(child) == name:
            return child
    return _add(element, name)


def _add(element: etree._Element, name: str) -> etree._Element:
    """Add a child element in the namespace of its parent."""
    return etree.SubElement(element, etree.QName(etree.QName(element).namespace, name))


def _elements(
    core: etree._Element, kind: str, configuration: BrokerConfiguration
) -> dict[str, etree._Element]:
    """The elements of a kind by name. Of several with one name only the first: the reader reports the others."""
    found: dict[str, etree._Element] = {}
    for parent in core:
        if _local(parent) == f"{kind}s":
            for child in parent:
                name = (child.get(KINDS[kind]) or "").strip()
                found.setdefault(key_of(kind, name, configuration), child)
    return found


def digest_of(values: Values) -> str:
    """SHA-256 of an element as JSON."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def unchanged(
    configuration: BrokerConfiguration, elements: Iterable[RunTimeElement]
) -> Iterator[RunTimeElement]:
    """Yield the elements that apply: broker.xml has not changed the element since management changed it."""
    core = _child(configuration.document, "core")
    present = {kind: _elements(core, kind, configuration) for kind in KINDS}
    for each in elements:
        found = present[each.kind].get(each.name)
        if found is None:
            if each.element is not None:
                yield each
        elif each.base is not None and digest_of(values_of(found, each.kind)) == each.base:
            yield each


def of_file(
    kind: str, name: str, configuration: BrokerConfiguration
) -> tuple[Values, str] | tuple[None, None]:
    """An element of broker.xml as JSON, with its digest; two None if broker.xml has no such element."""
    root = configuration.document
    element = None if root is None else _elements(_child(root, "core"), kind, configuration).get(name)
    if element is None:
        return None, None
    values = values_of(element, kind)
    return values, digest_of(values)


def values_of(element: etree._Element, kind: str) -> Values:
    """An element as JSON, without its name."""
    return {key: value for key, value in _read(element, _rule_of(kind)) if key != KINDS[kind]}


def _rule_of(kind: str) -> ElementRule:
    return root_rules()["configuration"].children["core"].children[f"{kind}s"].children[kind]


def _read(element: etree._Element, rule: ElementRule | None) -> Iterator[tuple[str, Any]]:
    """The attributes and child elements of an element. Elements that can be repeated are lists."""
    for name, text in element.attrib.items():
        if name != INCLUDED:
            yield str(name), str(text)
    lists: dict[str, list[Any]] = {}
    for child in element:
        name = _local(child)
        inner = None if rule is None else rule.children.get(name)
        value: Any = (child.text or "").strip()
        if name == FILTER:
            value = child.get("string")
        elif len(child) or child.attrib:
            value = dict(_read(child, inner))
        if inner is not None and inner.repeated:
            lists.setdefault(name, []).append(value)
        else:
            yield name, value
    yield from lists.items()


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    return str(value)


def literal(values: Any, key: str = "") -> Any:
    """Convert JSON from a user to values of an element: remove null members, and escape ``${``, which is not a
    reference here.
    """
    if isinstance(values, Mapping):
        return {name: literal(value, name) for name, value in values.items() if value is not None}
    if isinstance(values, list):
        return [literal(one, key) for one in values]
    # the reader looks for references in a filter only if one is of a known kind
    if isinstance(values, str) and (key != FILTER or KNOWN_REFERENCE.search(values)):
        return values.replace(REFERENCE_MARK, f"${REFERENCE_MARK}")
    return values


def _fill(element: etree._Element, values: Values, rule: ElementRule | None) -> None:
    """Add attributes and child elements. Raises `ValueError` for a text that XML cannot contain."""
    for name, value in values.items():
        if rule is not None and name in rule.attributes:
            element.set(name, _text(value))
            continue
        inner = None if rule is None else rule.children.get(name)
        several = isinstance(value, list) and (inner is None or inner.repeated)
        for one in value if several else [value]:
            child = _add(element, name)
            if isinstance(one, Mapping):
                _fill(child, one, inner)
            elif name == FILTER:
                child.set("string", _text(one))
            else:
                child.text = _text(one)


def merge(
    root: etree._Element, elements: Iterable[RunTimeElement], configuration: BrokerConfiguration
) -> None:
    """Replace, add and remove elements in a tree. Raises `ConfigurationError` for one that XML cannot contain."""
    core = _child(root, "core")
    present = {kind: _elements(core, kind, configuration) for kind in KINDS}
    for each in elements:
        key = KINDS[each.kind]
        former = present[each.kind].get(each.name)
        if each.element is None:
            if former is not None:
                former.getparent().remove(former)  # type: ignore[union-attr]
            continue
        added = _add(_child(core, f"{each.kind}s"), each.kind)
        try:
            added.set(key, each.name)
            added.set(INCLUDED, each.place)
            values = dict(each.element)
            if key in values:
                raise ConfigurationError(f"unknown element <{key}> in <{each.kind}>")
            if CONNECTOR in values:
                _add_connectors(core, each, values)
            _fill(added, values, _rule_of(each.kind))
        except ValueError:
            text = f"{each.kind} {each.name!r}: a text or name has a character that XML cannot contain"
            raise ConfigurationError(text) from None
        if former is not None:
            former.getparent().replace(former, added)  # type: ignore[union-attr]


def _add_connectors(core: etree._Element, each: RunTimeElement, values: dict[str, Any]) -> None:
    """Declare a connector for each URL of a bridge, and refer to it."""
    if "static-connectors" in values:
        raise ConfigurationError(
            f"bridge {each.name!r} has both URLs and static-connectors: keep one of them"
        )
    home = _child(core, "connectors")
    taken = {one.get("name") for one in home}
    names = []
    for url in values.pop(CONNECTOR):
        name = next(name for number in count(1) if (name := f"bridge {each.name} {number}") not in taken)
        taken.add(name)
        one = _add(home, CONNECTOR)
        one.text = _text(url)
        one.set("name", name)
        one.set(INCLUDED, each.place)
        names.append(name)
    values["static-connectors"] = {"connector-ref": names}


# ---- configurations


def merged(configuration: BrokerConfiguration, elements: Iterable[RunTimeElement]) -> BrokerConfiguration:
    """Return the configuration of a file after the changes of ``elements``. Raises `ConfigurationError`."""
    assert configuration.file is not None
    root = deepcopy(configuration.document)
    merge(root, elements, configuration)
    found = read_tree(root, configuration.file)
    return replace(found, files=configuration.files, document=configuration.document)


#: Elements of core on which the reading of a section depends.
_CONTEXT = ("wildcard-addresses", "literal-match-markers", "persistence-enabled", "broker-plugins")


def read_section(
    configuration: BrokerConfiguration, kind: str, elements: Iterable[RunTimeElement], *, alone: bool = False
) -> BrokerConfiguration:
    """Read one section of broker.xml after the changes of ``elements``.

    ``alone``: do not read the other elements of the section. Raises `ConfigurationError`.
    """
    assert configuration.file is not None
    source = _child(configuration.document, "core")
    wanted = {*_CONTEXT, *(() if alone else (f"{kind}s", "connectors"))}
    root = etree.Element(configuration.document.tag)
    core = etree.SubElement(root, source.tag)
    _add(core, "security-enabled").text = "false"
    core.extend(deepcopy(child) for child in source if _local(child) in wanted)
    merge(root, elements, configuration)
    return read_tree(root, configuration.file)


# ---- export

_SECRET_IN_URL = re.compile(rf"([^?;&=]*{SECRET_PARAMETER}[^=;&]*=)([^;&]+)", re.IGNORECASE)
_SECRET_KEY = re.compile("password|passcode|secret|token", re.IGNORECASE)


def export(
    configuration: BrokerConfiguration,
    elements: Iterable[RunTimeElement],
    addresses: Values,
    secrets: bool,
) -> str:
    """The broker.xml with the elements, its includes resolved. ``addresses``: the addresses of the broker by name.

    Raises `ConfigurationError` for an element, and `Refused` for an address, that XML cannot contain.

    Without ``secrets`` each password is replaced by a reference to an environment variable that does not exist:
    STOMPRING_SECRET_1 and so on. References of the file remain.
    """
    root = deepcopy(configuration.document)
    merge(root, elements, configuration)
    core, rules = _child(root, "core"), root_rules()["configuration"].children["core"]
    for section in [each for each in core if _local(each) == "addresses"]:
        core.remove(section)
    all_of = {"address": [{"name": name, **values} for name, values in addresses.items()]}
    try:
        _fill(_add(core, "addresses"), all_of, rules.children["addresses"])
    except ValueError:
        raise Refused("The name of an address or a queue has a character that XML cannot contain") from None
    numbers = count(1)

    def reference() -> str:
        return f"${{env:STOMPRING_SECRET_{next(numbers)}}}"

    for element in root.iter("*"):
        element.attrib.pop(INCLUDED, "")
        if secrets:
            continue
        name, text = _local(element), (element.text or "").strip()
        secret = name.endswith("password") and text.lower() not in ("", "true", "false")
        if secret and REFERENCE_MARK not in text:
            element.text = reference()
        elif name in ("acceptor", "connector"):
            element.text = _SECRET_IN_URL.sub(
                lambda found: found[0] if REFERENCE_MARK in found[2] else found[1] + reference(), text
            )
        for key, value in element.attrib.items():
            named = str(element.get("key", "")) if key == "value" else str(key)
            if _SECRET_KEY.search(named) and REFERENCE_MARK not in str(value):
                element.set(key, reference())
            elif key == "url":
                element.set(key, shown_url(str(value)))
    etree.cleanup_namespaces(root)
    etree.indent(root, "  ")
    return etree.tostring(root, encoding="unicode") + "\n"
