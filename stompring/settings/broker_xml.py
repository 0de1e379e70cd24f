"""broker.xml, read into a `BrokerConfiguration`.

Nothing in the file is ever ignored: a name that is not in the schema, a value out of its range, a
contradiction is a fault, and all faults of a file come together in one `ConfigurationError`, each with its
line. Entities and external files are off: a document type declaration is refused, since nothing in a
broker.xml needs one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from lxml import etree

from stompring.errors import ConfigurationError
from stompring.settings import units
from stompring.settings.artemis_names import SECTIONS, not_supported
from stompring.settings.assembly import assemble
from stompring.settings.document import Node
from stompring.settings.faults import Faults
from stompring.settings.model import BrokerConfiguration
from stompring.settings.nearest import unknown
from stompring.settings.references import References, refers, refers_by_name
from stompring.settings.secret import Secret
from stompring.settings.vocabulary import ElementRule, homes, root_rules, schema_bytes

NAMESPACES = ("urn:activemq", "urn:activemq:core", None)
_XINCLUDE = "http://www.w3.org/2001/XInclude"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_ROOT = "configuration"
_NOT_IN_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

#: More attributes than any element has here. libxml2 looks for each from the first one on: a hundred thousand of them
#: would take minutes.
_MOST_ATTRIBUTES = 200


def read_broker_xml(path: str | os.PathLike[str]) -> BrokerConfiguration:
    """The configuration in the file at ``path``.

    Raises `ConfigurationError` with everything that is wrong with it, also where it cannot be read at all.
    """
    file = os.fspath(path)
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", file) from error
    return parse_broker_xml(data, file)


def parse_broker_xml(data: bytes, file: str) -> BrokerConfiguration:
    """The configuration in ``data``, which came from ``file``; paths in it are relative to that file.

    Raises `ConfigurationError` as `read_broker_xml` does.
    """
    faults = Faults(file)
    root = _well_formed(data, file)
    references = References(Path(file).parent)
    reading = _Reading(faults, references)
    document = reading.document(root)
    core = document.first("core")
    configuration = assemble(core, faults, references) if core is not None else BrokerConfiguration(file=file)
    faults.raise_if_any()
    _hold_against_schema(root, faults)
    faults.raise_if_any()
    return configuration


def _well_formed(data: bytes, file: str) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        reason = (error.msg or "empty").split(", line ")[0]
        raise ConfigurationError(f"not well-formed XML: {reason}", file, error.lineno or 1) from error
    docinfo: Any = root.getroottree().docinfo  # its types lack what we ask
    if docinfo.doctype:
        raise ConfigurationError("<!DOCTYPE …> is not allowed; remove it", file, 1)
    return root


@cache
def _schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.fromstring(schema_bytes()))


def _hold_against_schema(root: etree._Element, faults: Faults) -> None:
    """The second look: whatever the reading below let pass and the schema does not."""
    schema = _schema()
    if not schema.validate(root.getroottree()):
        log: Any = schema.error_log
        for error in log:
            faults.add(error.line, f"against the schema: {error.message}")


class _Reading:
    """Turns the parsed tree into `Node`s, and notes what is not in the schema or cannot be read.

    On its way it brings the tree into the plain form that the schema describes: no namespaces, no unknown
    names, values in one spelling.
    """

    def __init__(self, faults: Faults, references: References) -> None:
        self._faults = faults
        self._references = references

    def document(self, root: etree._Element) -> Node:
        """The whole document. A root that is no configuration ends the reading at once."""
        line = _line(root)
        name = self._plain_name(root)
        if name != _ROOT:
            self._faults.add(line, f"the document is <{root.tag}>; it must be <{_ROOT}> with <core> in it")
            self._faults.raise_if_any()
        root.tag = _ROOT
        node = self._node(root, root_rules()[_ROOT])
        if not len(root):
            self._faults.add(line, f"<{_ROOT}> holds no <core>")
        return node

    def _node(self, element: etree._Element, rule: ElementRule) -> Node:
        name = str(element.tag)
        node = Node(name, _line(element), is_leaf=rule.text is not None and not rule.attributes)
        self._read_attributes(element, rule, node)
        self._read_children(element, rule, node)
        if rule.text is None:
            self._refuse_text(element)
        else:
            text = (element.text or "").strip()
            known, node.value, text = self._value(f"<{name}>", node.line, rule.text, text)
            element.text = _plain(node.value, text)
            if not known:
                node.is_leaf = False  # so that nobody takes it for a value
        return node

    def _read_children(self, element: etree._Element, rule: ElementRule, node: Node) -> None:
        first_lines: dict[str, int] = {}
        for child in list(element):
            name = self._plain_name(child)
            line = _line(child)
            child_rule = rule.children.get(name or "")
            if name is None or child_rule is None:
                if name is not None:
                    self._faults.add(line, _unknown_element(name, node.name, rule))
                element.remove(child)
                continue
            child.tag = name
            if name in first_lines and not child_rule.repeated:
                twice = f"<{name}> is given twice in <{node.name}>"
                self._faults.add(line, f"{twice}; the first is at line {first_lines[name]}")
            first_lines.setdefault(name, line)
            node.children.append(self._node(child, child_rule))

    def _read_attributes(self, element: etree._Element, rule: ElementRule, node: Node) -> None:
        if len(element.attrib) > _MOST_ATTRIBUTES:
            self._faults.add(node.line, f"<{node.name}> has {len(element.attrib)} attributes")
            return
        for name, text in list(element.attrib.items()):
            name, text = str(name), str(text).strip()
            attribute = rule.attributes.get(name)
            if attribute is None:
                del element.attrib[name]
                if not name.startswith(f"{{{_XSI}}}"):
                    self._faults.add(node.line, _unknown_attribute(name, node.name, rule))
                continue
            known, value, text = self._value(f"{name} of <{node.name}>", node.line, attribute.type, text)
            element.set(name, _plain(value, text))
            if known:
                node.attributes[name] = value
        for name, attribute in rule.attributes.items():
            if attribute.required and name not in element.attrib:
                self._faults.add(node.line, f"<{node.name}> lacks its attribute '{name}'")

    def _value(self, what: str, line: int, kind: str, text: str) -> tuple[bool, object, str]:
        """Whether it can be read, what was read, and the text with what it refers to."""
        # of a URL each parameter is looked up on its own: what it stands for may hold a ';'
        own = kind == "url" or (kind == "filter" and not refers_by_name(text))
        if own or not refers(text):
            return *self._read(what, line, kind, text, text), text
        try:
            resolved = self._references.resolve(text)
            if _NOT_IN_XML.search(resolved):
                raise ValueError("what it refers to holds a control character")
        except ValueError as error:
            self._faults.add(line, f"{what}: {error}")
            return False, None, ""
        self._faults.hide(resolved, text)
        known, value = self._read(what, line, kind, resolved, text)
        return known, Secret(value) if kind == "secretText" and isinstance(value, str) else value, resolved

    def _read(self, what: str, line: int, kind: str, text: str, shown: str) -> tuple[bool, object]:
        try:
            return True, units.READERS[kind](text)
        except ValueError as error:
            self._faults.add(line, f"{what} is '{shown}': {str(error).replace(text, shown)}")
            return False, None

    def _plain_name(self, element: etree._Element) -> str | None:
        """The element's name without its namespace; None, and a fault, where the namespace is foreign."""
        name = etree.QName(element)
        if name.namespace in NAMESPACES:
            return name.localname
        if name.namespace == _XINCLUDE:
            text = "XInclude is not supported; write everything into one file"
        else:
            text = f"<{name.localname}> is of the unknown namespace '{name.namespace}'"
        self._faults.add(_line(element), text)
        return None

    def _refuse_text(self, element: etree._Element) -> None:
        pieces = [element.text, *(child.tail for child in element)]
        for piece in pieces:
            if piece and piece.strip():
                what = f"text '{piece.strip()[:40]}' in <{element.tag}>"
                self._faults.add(_line(element), f"{what}, which holds elements and attributes only")


def _unknown_element(name: str, parent: str, rule: ElementRule) -> str:
    known_to_artemis = _artemis(f"<{name}> in <{parent}>", name, parent)
    if known_to_artemis is not None:
        return known_to_artemis
    what = f"unknown element <{name}> in <{parent}>"
    if name in rule.attributes:
        return f'{what}; it is an attribute: <{parent} {name}="…">'
    if homes(name):
        return f"{what}; it belongs in {' or '.join(f'<{home}>' for home in homes(name))}"
    return unknown(what, name, (*rule.children, *rule.attributes))


def _unknown_attribute(name: str, parent: str, rule: ElementRule) -> str:
    known_to_artemis = _artemis(f"attribute '{name}' of <{parent}>", name, parent)
    if known_to_artemis is not None:
        return known_to_artemis
    what = f"unknown attribute '{name}' of <{parent}>"
    if name in rule.children:
        return f"{what}; it is an element: <{parent}><{name}>…</{name}></{parent}>"
    return unknown(what, name, (*rule.attributes, *rule.children))


def _artemis(what: str, name: str, parent: str) -> str | None:
    names: Mapping[str, str] = SECTIONS.get(parent, {})
    if name not in names:
        return None
    return not_supported(what, names[name])


def _plain(value: object, text: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.value if isinstance(value, StrEnum) else text


def _line(element: etree._Element) -> int:
    sourceline: Any = element.sourceline
    return int(sourceline or 1)
