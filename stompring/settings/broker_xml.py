"""broker.xml and the files that it includes, read into a `BrokerConfiguration`.

A name that is not in the schema, a value out of its range and a contradiction are faults. Settings of Artemis without
effect here are listed (`settings.artemis`). One `ConfigurationError` reports all faults of a file, each with its line.
Entities and external files are off, and a document type declaration is refused: no broker.xml needs one. XInclude
includes only files below the directory of broker.xml (`Inclusion`).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lxml import etree

from stompring.errors import ConfigurationError, Line

from . import value_types
from .artemis import (
    ENCODED,
    NOTIFICATION_PLUGIN,
    NOTIFICATION_PROPERTIES,
    OLD_ELEMENT_NAMES,
    SECTIONS,
    find_logins,
    ldap_login,
    not_supported,
)
from .document import (
    KNOWN_REFERENCE,
    REFERENCE_MARK,
    ElementRule,
    Faults,
    Node,
    References,
    Secret,
    Values,
    named,
    parents_of,
    revealed,
    root_rules,
    schema_bytes,
    snake,
    with_suggestion,
)
from .machine import (
    default_dispatch_memory,
    default_global_max_size,
    instance_directory,
    machine_memory,
)
from .match import (
    INTERNAL,
    DivertGraph,
    Pattern,
    SettingsRepository,
    defaults_of,
    is_internal,
    literal_name,
    with_delimiter,
)
from .model import (
    AddressConfiguration,
    AddressSettingEntry,
    AnyLogin,
    BridgeConfiguration,
    BrokerConfiguration,
    Connector,
    DivertConfiguration,
    FullPolicy,
    HttpAcceptor,
    IgnoredSetting,
    LoginModule,
    PermissionType,
    PluginConfiguration,
    PolicyUse,
    Property,
    QueueConfiguration,
    ReplicatedLogSettings,
    ResourceLimit,
    Retention,
    RoutingType,
    SecuritySettingEntry,
    StompAcceptor,
    TokenLogin,
    TransformerConfiguration,
    WildcardSyntax,
)
from .network import NATS, POSTGRESQL, is_loopback, scheme_of, shown_url
from .urls import (
    IN_VM_ONLY,
    Acceptor,
    Ignored,
    parse_acceptor,
    parse_connector,
    skip_reason,
    with_absolute_paths,
)

#: Artemis's one transformer for headers. Its properties are the headers that it sets.
ADD_HEADERS = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"

#: Headers that a transformer must not change, with the reason.
FIXED_HEADERS = {
    "destination": "the forwarding address is the destination",
    "content-length": "it is a header of the frame",
    "receipt": "it is a header of the frame",
    "transaction": "it is a header of the frame",
    "subscription": "each subscription has its own",
    "message-id": "the broker sets it",
    "ack": "the broker sets it",
    "redelivered": "the broker sets it",
    "timestamp": "the broker sets it",
}


NAMESPACES = ("urn:activemq", "urn:activemq:core", None)
_JMS = "urn:activemq:jms"
_XINCLUDE = "http://www.w3.org/2001/XInclude"
#: Namespaces of attributes that XML and XML Schema allow on any element: they have no effect.
_OF_XML = ("{http://www.w3.org/2001/XMLSchema-instance}", "{http://www.w3.org/XML/1998/namespace}")
_ROOT = "configuration"
_NOT_IN_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

#: Maximum number of attributes of an element; no element has as many in the schema. libxml2 searches them linearly:
#: 100,000 would take minutes.
_MAX_ATTRIBUTES = 200


def read_broker_xml(
    path: str | os.PathLike[str], tolerates: Callable[[ConfigurationError], bool] = lambda faults: False
) -> BrokerConfiguration:
    """The configuration in the file at ``path``.

    Raises `ConfigurationError` with all faults of the file, or with the reason why it cannot be read. If ``tolerates``
    returns True for the faults, the result is the configuration without the faulty settings.
    """
    file = os.fspath(path)
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror or error}", file) from error
    return parse_broker_xml(data, file, tolerates)


def parse_broker_xml(
    data: bytes, file: str, tolerates: Callable[[ConfigurationError], bool] = lambda faults: False
) -> BrokerConfiguration:
    """The configuration in ``data``, which came from ``file``; paths in it are relative to that file.

    Raises `ConfigurationError` as `read_broker_xml` does.
    """
    faults = Faults(file)
    references = _references_of(file)
    inclusion = Inclusion(file, references, faults)
    try:
        root = _parse_xml(data, file)
        inclusion.resolve(root, Path(file), (Path(file).resolve(),))
        document = deepcopy(root)
        configuration = read_tree(root, file, faults, tolerates)
    except ConfigurationError as error:
        error.files = tuple(inclusion.files)
        raise
    return replace(configuration, files=tuple(inclusion.files), document=document)


def _references_of(file: str) -> References:
    folder = Path(file).parent
    instance = instance_directory(file)
    # the properties that Artemis's start script defines
    properties = {
        "artemis.instance": str(instance),
        "artemis.instance.etc": str(folder.absolute()),
        "data.dir": str(instance / "data"),
    }
    return References(folder, properties=properties)


def read_tree(
    root: etree._Element,
    file: str,
    faults: Faults | None = None,
    tolerates: Callable[[ConfigurationError], bool] = lambda faults: False,
) -> BrokerConfiguration:
    """The configuration in a tree whose includes are resolved. Changes the tree. Raises `ConfigurationError`."""
    faults = faults or Faults(file)
    references = _references_of(file)
    reading = _DocumentReader(faults, references)
    document = reading.document(root)
    core = document.first("core")
    configuration = (
        _CoreReader(core, faults, references, reading.ignored).configuration()
        if core is not None
        else BrokerConfiguration(file=file)
    )
    try:
        faults.raise_if_any()
        _validate(root, faults)
        faults.raise_if_any()
    except ConfigurationError as error:
        if core is None or not tolerates(error):
            raise
    return replace(configuration, notified=frozenset(reading.notified))


def _parse_xml(data: bytes, file: str) -> etree._Element:
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
        column = None if error.offset is None else error.offset + 1
        raise ConfigurationError(
            f"not well-formed XML: {reason}", file, error.lineno or 1, column=column
        ) from error
    docinfo: Any = root.getroottree().docinfo  # missing in the type stubs
    if docinfo.doctype:
        raise ConfigurationError("<!DOCTYPE …> is not allowed; remove it", file, 1)
    return root


#: Maximum number of files that one broker.xml includes, directly or not: files may include others many times.
MAX_INCLUDED = 200

#: Name of the attribute that marks the root element of an included file. Its value is the path of the file.
INCLUDED = "{urn:stompring:included}file"


class Inclusion:
    """Replaces each ``<xi:include href="…"/>`` by the root element of that file, which may include others.

    The path is relative to the including file or, as in Artemis, to the directory of the instance; it may have
    references. Files must be below the directory of broker.xml, symbolic links followed. Only whole XML files can be
    included: ``parse="text"``, ``xpointer`` and ``<xi:fallback>`` are refused. ``files`` lists all files read so far.
    """

    def __init__(self, file: str, references: References, faults: Faults) -> None:
        self.files = [file]
        self._references = references
        self._instance = instance_directory(file)
        self._faults = faults
        self._folder = Path(file).parent.resolve()

    def resolve(self, root: etree._Element, file: Path, above: tuple[Path, ...]) -> None:
        """Resolve the includes below ``root``, the root element of ``file``. ``above``: the real paths of the including
        files and of ``file``.
        """
        for element in list(root.iter(f"{{{_XINCLUDE}}}*")):
            name, parent = etree.QName(element).localname, element.getparent()
            line = _line(element) if len(above) == 1 else Line(_line(element), str(file))
            if parent is None:
                self._faults.add(line, f"the root element is <xi:{name}>; it must be <{_ROOT}>")
                self._faults.raise_if_any()
                continue
            if name != "include":
                # inside of <xi:include> the fault is reported for that element
                if etree.QName(parent).namespace != _XINCLUDE:
                    self._faults.add(line, f"<xi:{name}> is not supported; only <xi:include> is")
                    parent.remove(element)
                continue
            try:
                included = self._included(element, file, above)
            except ValueError as error:
                self._faults.add(line, f"<xi:include>: {error}")
                included = None
            except ConfigurationError as error:
                for at, _, text in error.faults:
                    self._faults.add(Line(at or 1, error.file or str(file)), text)
                included = None
            if included is None:
                parent.remove(element)
            else:
                included.tail = element.tail
                parent.replace(element, included)

    def _included(self, element: etree._Element, file: Path, above: tuple[Path, ...]) -> etree._Element:
        """The root element of the file. Raises `ValueError`, or `ConfigurationError` for a fault in that file."""
        href = self._references.resolve(element.get("href", ""))
        if element.get("parse", "xml") != "xml" or element.get("xpointer") is not None:
            raise ValueError("only whole files of XML can be included; remove parse and xpointer")
        if len(element):
            raise ValueError("<xi:fallback> is not supported; remove it")
        if not href or "#" in href or "\0" in href:
            raise ValueError("href must be the path of a file, relative to the file that includes it")
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", href):
            raise ValueError(
                f"href is '{href}': it must be the path of a file, not a URL; nothing is fetched"
            )
        target = file.parent / href
        try:
            if not target.exists() and (self._instance / href).exists():
                target = self._instance / href
            real = target.resolve()
            if not real.is_relative_to(self._folder):
                raise ValueError(
                    f"{target} is outside of the directory of broker.xml, {self._folder}; only files below it can be "
                    "included"
                )
            if real in above:
                raise ValueError(f"{target} includes itself")
            if len(self.files) > MAX_INCLUDED:
                raise ValueError(f"more than {MAX_INCLUDED} files are included")
            self.files.append(str(target))
            data = real.read_bytes() if real.is_file() else None
        except (OSError, RuntimeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"{target} cannot be read: {reason}") from None
        if data is None:
            raise ValueError(f"{target} is not a file; create it, or remove the element")
        root = _parse_xml(data, str(target))
        self.resolve(root, target, (*above, real))
        root.set(INCLUDED, str(target))
        return root


@cache
def _schema() -> etree.XMLSchema:
    return etree.XMLSchema(etree.fromstring(schema_bytes()))


def _validate(root: etree._Element, faults: Faults) -> None:
    """Validate against the schema, as a second check after `_DocumentReader`."""
    schema = _schema()
    if not schema.validate(root.getroottree()):
        log: Any = schema.error_log
        for error in log:
            faults.add(error.line, f"schema validation: {error.message}")


class _DocumentReader:
    """Turns the parsed tree into `Node`s, and adds a fault for unknown names and invalid values.

    It also normalizes the tree for validation: no namespaces, no unknown names, values in canonical form.
    """

    def __init__(self, faults: Faults, references: References) -> None:
        self._faults = faults
        self._references = references
        self.ignored: list[IgnoredSetting] = []
        self.notified: set[str] = set()  # types of notifications that a plugin of Artemis enables
        self._file: str | None = None  # the included file that is being read

    def _line(self, element: etree._Element) -> int:
        return _line(element) if self._file is None else Line(_line(element), self._file)

    def document(self, root: etree._Element) -> Node:
        """The whole document. Raises `ConfigurationError` if the root element is wrong."""
        line = self._line(root)
        name = self._plain_name(root)
        if name != _ROOT:
            self._faults.add(
                line, f"the root element is <{root.tag}>; it must be <{_ROOT}> with a <core> element"
            )
            self._faults.raise_if_any()
        root.tag = _ROOT
        node = self._node(root, root_rules()[_ROOT])
        if not len(root):
            self._faults.add(line, f"<{_ROOT}> has no <core> element")
        return node

    def _node(self, element: etree._Element, rule: ElementRule) -> Node:
        name = str(element.tag)
        node = Node(name, self._line(element), is_leaf=rule.text is not None and not rule.attributes)
        self._read_attributes(element, rule, node)
        if name == "ha-policy":  # <replicated-log> and Artemis's HA policies exclude each other
            names = [etree.QName(each).localname for each in element]
            others = [each for each in names if each in SECTIONS[name]]
            if "replicated-log" in names and others:
                self._faults.add(
                    node.line,
                    f"<ha-policy> has <replicated-log> and Artemis's <{others[0]}>: keep <replicated-log> alone",
                )
        self._read_children(element, rule, node)
        if rule.text is None:
            for piece in (element.text, *(child.tail for child in element)):
                if piece and piece.strip():
                    what = f"unexpected text '{piece.strip()[:40]}' in <{name}>"
                    self._faults.add(node.line, f"{what}; only elements and attributes are allowed")
            if name == "filter":  # the selector of a filter is an attribute
                node.is_leaf, node.value = True, node.attributes.get("string")
        else:
            text = (element.text or "").strip()
            known, node.value, text = self._value(f"<{name}>", node.line, rule.text, text)
            element.text = _canonical(node.value, text)
            if not known:
                node.is_leaf = False  # excludes the invalid value from `leaves`
        return node

    def _read_children(self, element: etree._Element, rule: ElementRule, node: Node) -> None:
        first_lines: dict[str, int] = {}
        outer = self._file
        for child in list(element):
            self._file = child.get(INCLUDED, outer)
            child.attrib.pop(INCLUDED, "")
            name = self._plain_name(child)
            name = OLD_ELEMENT_NAMES.get((node.name, name or ""), name)
            line = self._line(child)
            child_rule = rule.children.get(name or "")
            if name is None or child_rule is None:
                inside = [etree.QName(each).localname for each in child.iterdescendants("*")]
                text = (child.text or "").strip()
                if name is not None and not self._is_ignored(name, node.name, line, text, inside):
                    self._faults.add(line, _unknown_element(name, node.name, rule))
                element.remove(child)
            elif name == "broker-plugin" and "class-name" in child.attrib:
                self._read_java_plugin(child)
                element.remove(child)
            else:
                child.tag = name
                if name in first_lines and not child_rule.repeated:
                    twice = f"<{name}> is given twice in <{node.name}>"
                    self._faults.add(line, f"{twice}; the first is at line {first_lines[name]}")
                first_lines.setdefault(name, line)
                node.children.append(self._node(child, child_rule))
        self._file = outer

    def _read_attributes(self, element: etree._Element, rule: ElementRule, node: Node) -> None:
        if len(element.attrib) > _MAX_ATTRIBUTES:
            self._faults.add(
                node.line,
                f"<{node.name}> has {len(element.attrib)} attributes; at most {_MAX_ATTRIBUTES} are allowed",
            )
            return
        for name, text in list(element.attrib.items()):
            name, text = str(name), str(text).strip()
            attribute = rule.attributes.get(name)
            if attribute is None:
                del element.attrib[name]
                if not name.startswith(_OF_XML) and not self._is_ignored(name, node.name, node.line, text):
                    self._faults.add(node.line, _unknown_attribute(name, node.name, rule))
                continue
            known, value, text = self._value(f"{name} of <{node.name}>", node.line, attribute.type, text)
            element.set(name, _canonical(value, text))
            if known:
                node.attributes[name] = value
        for name, attribute in rule.attributes.items():
            if attribute.required and name not in element.attrib:
                self._faults.add(node.line, f"<{node.name}> has no attribute '{name}'; it is required")

    def _read_java_plugin(self, element: etree._Element) -> None:
        """Read a plugin of Artemis: ignore one that only logs, apply one for notifications; any other is a fault."""
        line, parent = self._line(element), "broker-plugin"
        name = element.get("class-name", "").strip()
        if name == NOTIFICATION_PLUGIN:
            # the properties of this plugin enable the notifications of single messages
            for one in element.iterdescendants("*"):
                key, line = one.get("key", ""), self._line(one)
                if key not in NOTIFICATION_PROPERTIES:
                    text = f"unknown property '{key}' of {NOTIFICATION_PLUGIN}"
                    self._faults.add(line, with_suggestion(text, key, NOTIFICATION_PROPERTIES))
                    continue
                _, value, _ = self._value(f"property '{key}'", line, "boolean", one.get("value", ""))
                kind = NOTIFICATION_PROPERTIES[key]
                if value and kind is not None:
                    self.notified.add(kind)
        elif not self._is_ignored("class-name", parent, line, name):
            row = SECTIONS[parent]["class-name"]
            self._faults.add(line, not_supported(f"attribute 'class-name' of <{parent}>", row))

    def _is_ignored(self, name: str, parent: str, line: int, text: str, inside: Iterable[str] = ()) -> bool:
        """Return whether the setting of Artemis has no effect here, and add it to ``ignored`` in that case."""
        row = SECTIONS.get(parent, {}).get(name)
        if row is None:
            return False
        try:
            value = self._references.resolve(text)
        except ValueError:
            value = text
        if not row.has_no_effect(value, inside):
            return False
        shown = name if parent == "core" else f"{name} of {parent}"
        self.ignored.append(IgnoredSetting(line, shown, row.reason, row.is_warning))
        return True

    def _value(self, what: str, line: int, kind: str, text: str) -> tuple[bool, object, str]:
        """Whether the text is valid, its value, and the text with its references resolved."""
        # each parameter of a URL is resolved on its own: its value may contain ';'
        own = kind == "url" or (kind == "filter" and KNOWN_REFERENCE.search(text) is None)
        if own or REFERENCE_MARK not in text:
            return *self._read(what, line, kind, text, text), text
        try:
            resolved = self._references.resolve(text)
            if _NOT_IN_XML.search(resolved):
                raise ValueError("the value of the reference contains a control character")
        except ValueError as error:
            self._faults.add(line, f"{what}: {error}")
            return False, None, ""
        self._faults.hide(resolved, text)
        known, value = self._read(what, line, kind, resolved, text)
        return known, Secret(value) if kind == "secretText" and isinstance(value, str) else value, resolved

    def _read(self, what: str, line: int, kind: str, text: str, shown: str) -> tuple[bool, object]:
        try:
            return True, value_types.VALUE_TYPES[kind].read(text)
        except ValueError as error:
            if kind in ("logUrl", "monitorUrl"):
                shown = shown_url(shown)
            self._faults.add(line, f"{what} is '{shown}': {str(error).replace(text, shown)}")
            return False, None

    def _plain_name(self, element: etree._Element) -> str | None:
        """The element's name without its namespace; None, and a fault, for an unknown namespace."""
        name = etree.QName(element)
        if name.namespace in NAMESPACES or (name.namespace, name.localname) == (_JMS, "jms"):
            return name.localname
        text = f"<{name.localname}> has the unknown namespace '{name.namespace}'; use urn:activemq or none"
        self._faults.add(self._line(element), text)
        return None


def _unknown_element(name: str, parent: str, rule: ElementRule) -> str:
    if row := SECTIONS.get(parent, {}).get(name):
        return not_supported(f"<{name}> in <{parent}>", row)
    what = f"unknown element <{name}> in <{parent}>"
    if name in rule.attributes:
        return f'{what}; it is an attribute: <{parent} {name}="…">'
    if parents_of(name):
        return f"{what}; it belongs in {' or '.join(f'<{home}>' for home in parents_of(name))}"
    text = with_suggestion(what, name, (*rule.children, *rule.attributes))
    return text if text != what else f"{what}; 'stompring settings {parent}' lists those that exist"


def _unknown_attribute(name: str, parent: str, rule: ElementRule) -> str:
    if row := SECTIONS.get(parent, {}).get(name):
        return not_supported(f"attribute '{name}' of <{parent}>", row)
    what = f"unknown attribute '{name}' of <{parent}>"
    if name in rule.children:
        return f"{what}; it is an element: <{parent}><{name}>…</{name}></{parent}>"
    return with_suggestion(what, name, (*rule.attributes, *rule.children))


def _canonical(value: object, text: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.value if isinstance(value, StrEnum) else text


def _line(element: etree._Element) -> int:
    sourceline: Any = element.sourceline
    return int(sourceline or 1)


SECURITY_FILES: Mapping[str, str | None] = {
    "users_file": "users.properties",
    "roles_file": "roles.properties",
    "certificate_users_file": None,
}
"""The files of users, roles and certificates, with their default names."""

DEFAULTS = BrokerConfiguration()

QUEUE_SEPARATOR = "::"
"""Separator of address and queue in ``match``."""

#: Artemis's old name of ``max-sessions``, which it still accepts.
MAX_SESSIONS_OLD_NAME = "max-connections"

#: Attributes of ``<replicated-log>`` that are paths of files.
FILES = ("credentials", "ca", "certificate", "key")

#: Elements of core without which a RECEIPT would not mean that the message is in the log.
_NEEDED = ("persistence-enabled", "journal-sync-transactional", "journal-sync-non-transactional")


class _CoreReader:
    """Reads the sections of ``<core>``. Adds contradictions between elements to the faults.

    ``ignored`` lists the settings without effect found so far.
    """

    def __init__(
        self, core: Node, faults: Faults, references: References, ignored: list[IgnoredSetting]
    ) -> None:
        self._core = core
        self._plain = core.leaves()
        self._faults = faults
        self._folder = Path(faults.file).parent
        self._references = references
        self._ignored = ignored
        self._lines: dict[tuple[int, str], int] = {}  # line by (id of an element, name in it)
        self._plugins: dict[str, PluginConfiguration] = {}
        self._wildcard = WildcardSyntax()
        node = core.first("wildcard-addresses")
        if node is not None:
            self._wildcard = syntax = WildcardSyntax(**node.leaves())
            if len({syntax.delimiter, syntax.any_words, syntax.single_word}) < 3:
                self._fault(node, "delimiter, any-words and single-word must be three different characters")
        self._markers: str | None = self._plain.get("literal_match_markers")

    def configuration(self) -> BrokerConfiguration:
        """The whole configuration."""
        plain, ignored, faults = self._plain, self._ignored, self._faults
        persistent = plain.get("persistence_enabled", DEFAULTS.persistence_enabled)
        self._read_plugins()
        settings = tuple(self._address_settings(persistent))
        repository = SettingsRepository(settings, self._wildcard, self._markers, defaults_of(persistent))
        bridges = tuple(self._bridges())
        self._check_directories()
        self._check_management()
        memory = machine_memory()
        size = plain.setdefault("global_max_size", default_global_max_size(memory))
        share = default_dispatch_memory(size, memory)
        for name in ("transaction_size", "unfinished_size", "subscription_size"):
            plain.setdefault(f"global_max_{name}", share)
        plain.setdefault("dispatch_memory", share)
        plain["journal_retention_directory"] = self._retention()
        secure = plain.get("security_enabled", DEFAULTS.security_enabled)
        acceptors = list(self._acceptors(secure))
        warnings = (
            *self._address_limits(repository),
            *self._unused_retain(),
            *(
                f"{faults.place(each.line)}: {each.name}: {each.reason}"
                for each in ignored
                if each.is_warning
            ),
            *self._security_files(secure),
        )
        return BrokerConfiguration(
            **plain,
            file=faults.file,
            warnings=warnings,
            ignored=tuple(sorted(ignored, key=lambda each: each.line)),
            wildcard=self._wildcard,
            stomp_acceptors=tuple(found for found in acceptors if isinstance(found, StompAcceptor)),
            http_acceptors=tuple(found for found in acceptors if isinstance(found, HttpAcceptor)),
            plugins=tuple(self._plugins.values()),
            resource_limits=tuple(self._resource_limits()),
            bridges=bridges,
            security_settings=tuple(self._security_settings()),
            address_settings=settings,
            addresses=tuple(self._addresses(repository)),
            replicated_log=self._replicated_log(plain.get("name") or DEFAULTS.name),
            diverts=self._diverts(),
        )

    def _fault(self, node: Node, text: str) -> None:
        self._faults.add(node.line, text)

    def _is_new(self, what: str, node: Node, within: Node | None = None, advice: str = "") -> bool:
        """Return whether the name ``what`` is unique in the element ``within`` so far, else add a fault at ``node``."""
        key = (id(within), what)
        first = self._lines.get(key)
        if first is not None:
            self._fault(node, f"{what} is already defined at line {first}{advice}")
        self._lines.setdefault(key, node.line)
        return first is None

    def _matches(self, section: str) -> Iterator[tuple[str, Node]]:
        """Yield the elements of a section, each with its pattern of addresses."""
        for match, node in named(self._core.within(section), "match"):
            yield with_delimiter(match, self._markers, self._wildcard), node

    def _half_wildcards(self, address: str) -> Iterator[str]:
        """Yield a fault for each word of an address that contains a wildcard and other characters."""
        one, many = self._wildcard.single_word, self._wildcard.any_words
        for word in Pattern(address, self._wildcard).half_wildcards():
            yield f"'{one}' and '{many}' are wildcards only as whole words, not in '{word}'"

    def _check_match(self, match: str, address: str, node: Node) -> None:
        for text in self._half_wildcards(address):
            self._fault(
                node,
                f"match '{match}': {text}; to match such an address literally use <literal-match-markers>",
            )

    # ---- policies and transformers

    def _read_plugins(self) -> None:
        """The ``<broker-plugin>`` elements. Names must be unique, and not those of built-in policies."""
        for name, node in named(self._core.within("broker-plugins")):
            if not self._is_new(f"broker-plugin '{name}'", node):
                continue
            if name.upper() in list(FullPolicy):
                self._fault(
                    node,
                    f"broker-plugin '{name}': {name.upper()} is a built-in policy; use another name",
                )
                continue
            policy = node.attributes.get("policy", name)
            self._plugins[name] = PluginConfiguration(name, policy, self._properties(node), node.line)

    def _properties(self, node: Node) -> tuple[Property, ...]:
        """The ``<property>`` elements in ``node``. Keys must be unique."""
        return tuple(
            Property(key, one.attributes["value"], one.line)
            for key, one in named(node.all("property"), "key")
            if "value" in one.attributes and self._is_new(f"property '{key}'", one, node)
        )

    def _policies(self, setting: Node) -> Values:
        """The policies of an ``<address-setting>``, as values of `AddressSettings`."""
        full = setting.first("address-full-policy")
        known = [*FullPolicy, *self._plugins]
        if full is not None and full.value is not None and full.value not in known:
            names = ", ".join(FullPolicy)
            text = f"<address-full-policy> is '{full.value}': must be one of {names}, or a <broker-plugin>"
            self._fault(full, with_suggestion(text, full.value, known))
        uses = tuple(self._policy_uses(setting))
        return {"address_policy": uses} if uses else {}

    def _policy_uses(self, setting: Node) -> Iterator[PolicyUse]:
        """The ``<address-policy>`` elements in ``setting``, each of a broker-plugin."""
        lines: dict[str, int] = {}
        for name, node in named(setting.all("address-policy")):
            if name not in self._plugins:
                text = f'<address-policy name="{name}"> names no <broker-plugin>'
                if not self._plugins:
                    text += f'; declare it: <broker-plugins><broker-plugin name="{name}"/></broker-plugins>'
                self._fault(node, with_suggestion(text, name, self._plugins))
            elif name in lines:
                text = f'<address-policy name="{name}"> is given twice; the first is at line {lines[name]}'
                self._fault(
                    node,
                    text + "; to apply it twice declare a second <broker-plugin> with the same policy",
                )
            else:
                yield PolicyUse(name, self._properties(node), node.attributes.get("enabled", True), node.line)
            lines.setdefault(name, node.line)

    def _transformer(self, holder: Node) -> TransformerConfiguration | None:
        """The ``<transformer>`` of a divert or a bridge; None without one, or if it has no effect."""
        node = holder.first("transformer")
        if node is None:
            return None
        kind = node.first("class-name")
        if kind is not None and kind.value not in (None, ADD_HEADERS):
            self._fault(
                kind,
                f"<class-name> is '{kind.value}': transformers in Java are not supported. Set headers by "
                '<property key="…" value="…"/> and <remove-header name="…"/>, or name a Python policy: '
                '<address-policy name="…"/>',
            )
        added = self._properties(node)
        removed: dict[str, int] = {}
        for name, one in named(node.all("remove-header")):
            if name in removed:
                self._fault(one, f"remove-header '{name}' is already given at line {removed[name]}")
            else:
                removed[name] = one.line
        lines = {**removed, **{one.key: one.line or node.line for one in added}}
        for name, line in lines.items():
            reason = FIXED_HEADERS.get(name)
            if reason is None and name.startswith("_AMQ_ORIG_"):
                reason = "the broker sets it"
            if reason is not None:
                self._faults.add(line, f"<transformer> cannot change the header {name}: {reason}")
        used = tuple(self._policy_uses(node))
        policy = next((use for use in used if use.enabled), None)
        if policy is not None and lines:
            self._fault(
                node,
                "<transformer> has both an <address-policy> and headers: let the policy set the headers; its "
                "parameters are <property> elements in <address-policy>",
            )
        if policy is None and not lines:
            if kind is None and not used:
                self._fault(
                    node,
                    '<transformer> changes nothing: add <property key="…" value="…"/>, <remove-header name="…"/> or '
                    '<address-policy name="…"/>, or remove it',
                )
            return None
        return TransformerConfiguration(added, tuple(removed), policy)

    # ---- addresses and queues

    def _address_settings(self, persistent: bool) -> Iterator[AddressSettingEntry]:
        """The ``<address-setting>`` entries. A broker without a store cannot page: BLOCK replaces PAGE."""
        for match, node in self._matches("address-settings"):
            self._is_new(f"address-setting '{match}'", node)
            if literal_name(match, self._markers) is None:
                self._check_match(match, match, node)
            values = node.leaves() | self._policies(node)
            least, most = values.get("min_expiry_delay", -1), values.get("max_expiry_delay", -1)
            if -1 < most < least:
                self._fault(node, f"min-expiry-delay ({least}) is above max-expiry-delay ({most})")
            policy = node.first("address-full-policy")
            if not persistent and policy is not None and policy.value is FullPolicy.PAGE:
                values["address_full_policy"] = FullPolicy.BLOCK
                reason = (
                    "paging requires <persistence-enabled> to be true; producers of full addresses are blocked "
                    "(BLOCK)"
                )
                self._ignored.append(
                    IgnoredSetting(policy.line, "<address-full-policy> is 'PAGE'", reason, True)
                )
            yield AddressSettingEntry(match, values, node.line)

    def _address_limits(self, repository: SettingsRepository) -> Iterator[str]:
        """Yield a warning for each limit without effect, and add a fault for each limit that blocks all messages.

        Each address-setting is merged with the less specific ones before the check. As in Artemis, ``page-full-policy``
        and the limits of pages have no effect without each other.
        """
        for match, node in self._matches("address-settings"):
            in_force = repository.lookup(literal_name(match, self._markers) or match)
            policy = in_force.address_full_policy
            if policy in (FullPolicy.BLOCK, FullPolicy.DROP, FullPolicy.FAIL):
                for name in ("max-size-bytes", "max-size-messages"):
                    limit = node.first(name)
                    if limit is not None and limit.value == 0:
                        self._fault(
                            limit,
                            f"<{name}> is '0': with {policy} the address would accept no message; 0 requires PAGE",
                        )
            elements = map(node.first, ("page-limit-bytes", "page-limit-messages", "page-full-policy"))
            declared = next(filter(None, elements), None)
            limited = max(in_force.page_limit_bytes, in_force.page_limit_messages) >= 0
            if declared is not None and limited == (in_force.page_full_policy is None):
                text = "<page-full-policy> has no effect without <page-limit-bytes> or <page-limit-messages>"
                if limited:
                    text = "the page limit has no effect without <page-full-policy> (DROP or FAIL)"
                yield f"{self._faults.place(declared.line)}: {text}"

    def _addresses(self, repository: SettingsRepository) -> Iterator[AddressConfiguration]:
        for name, node in named(self._core.within("addresses")):
            self._is_new(f"address '{name}'", node)
            queues: list[QueueConfiguration] = []
            types: set[RoutingType] = set()
            for routing_type in RoutingType:
                holder = node.first(routing_type.lower())
                if holder is not None:
                    types.add(routing_type)
                    queues += self._queues(holder, name, routing_type)
            if not types:
                types.add(repository.lookup(name).default_address_routing_type)
            yield AddressConfiguration(name, frozenset(types), tuple(queues))

    def _queues(self, holder: Node, address: str, routing_type: RoutingType) -> Iterator[QueueConfiguration]:
        for node in holder.children:
            values, inside = node.given(), node.leaves()
            if "user" in values and "user" in inside:
                self._fault(node, "<queue> has both an attribute user and an element <user>; remove one")
            if "name" in values:
                self._is_new(f"queue '{values['name']}'", node)
                yield QueueConfiguration(**(values | inside), address=address, routing_type=routing_type)

    def _diverts(self) -> tuple[DivertConfiguration, ...]:
        """The ``<divert>`` elements. Names must be unique, and diverts must not form a loop."""
        diverts = [
            divert
            for name, node in named(self._core.within("diverts"))
            if (divert := self._divert(name, node)) is not None and self._is_new(f"divert '{name}'", node)
        ]
        for loop in DivertGraph(diverts, self._wildcard).loops():
            self._faults.add(loop.diverts[-1].line or 1, str(loop))
        return tuple(diverts)

    def _divert(self, name: str, node: Node) -> DivertConfiguration | None:
        values = node.leaves()
        for element in ("address", "forwarding-address"):
            if node.first(element) is None:
                self._fault(node, f"<divert> has no <{element}>; it is required")
        for text in self._half_wildcards(values.get("address", "")):
            self._fault(node, f"divert '{name}': {text}")
        for target in values.get("forwarding_address", ()):
            what = f"divert '{name}': the forwarding address '{target}'"
            if Pattern(target, self._wildcard).is_wildcard:
                self._fault(node, f"{what} has wildcards; copies need one address")
            if is_internal(target):
                self._fault(node, f"{what} is internal; {INTERNAL}")
        transformer = self._transformer(node)
        if "address" not in values or "forwarding_address" not in values:
            return None
        return DivertConfiguration(**values, name=name, transformer=transformer, line=node.line)

    # ---- bridges

    def _bridges(self) -> Iterator[BridgeConfiguration]:
        """The bridges. Connectors that no bridge names are ignored unparsed: Artemis has other uses for connectors."""
        nodes: dict[str, Node] = {}
        for name, node in named(self._core.within("connectors")):
            self._is_new(f"connector '{name}'", node)
            nodes.setdefault(name, node)
        parsed: dict[str, Connector | None] = {}
        for name, bridge in named(self._core.within("bridges")):
            self._is_new(f"bridge '{name}'", bridge)
            connectors: list[Connector] = []
            for reference in self._connector_names(bridge, name, nodes):
                if reference not in parsed:
                    parsed[reference] = self._connector(reference, nodes[reference])
                if (connector := parsed[reference]) is not None:
                    connectors.append(connector)
            yield from self._bridge(bridge, name, connectors)
        for name, node in nodes.items():
            if name not in parsed:
                self._ignored.append(IgnoredSetting(node.line, f"connector '{name}'", "no bridge names it"))

    def _connector_names(self, bridge: Node, name: str, nodes: dict[str, Node]) -> Iterator[str]:
        """The names of the existing connectors of a bridge."""
        references = bridge.within("static-connectors")
        if not references:
            self._fault(
                bridge,
                f"bridge '{name}' has no connector; write <static-connectors><connector-ref>NAME</connector-ref>"
                "</static-connectors>, NAME being that of a <connector> in <connectors>",
            )
        seen: set[str] = set()
        for node in references:
            if node.value is None:
                continue
            if node.value in seen:
                self._fault(node, f"<connector-ref> '{node.value}' is given twice")
            elif node.value not in nodes:
                text = f"<connector-ref> is '{node.value}': no <connector> has that name"
                self._fault(node, with_suggestion(text, node.value, nodes))
            else:
                yield node.value
            seen.add(node.value)

    def _connector(self, name: str, node: Node) -> Connector | None:
        if node.value is None:
            return None
        parameters: Ignored = []
        try:
            connector = parse_connector(name, node.value, self._references.resolve, parameters)
        except ValueError as error:
            self._add_faults(node, f"connector '{name}'", error)
            return None
        self._ignore(node, "connector", parameters)
        return with_absolute_paths(connector, self._folder)

    def _add_faults(self, node: Node, what: str, error: ValueError) -> None:
        for text in str(error).splitlines():
            self._fault(node, f"{what}: {text}")

    def _ignore(self, node: Node, what: str, parameters: Ignored) -> None:
        self._ignored += (IgnoredSetting(node.line, f"{key} of {what}", reason) for key, reason in parameters)

    def _bridge(self, bridge: Node, name: str, connectors: list[Connector]) -> Iterator[BridgeConfiguration]:
        """Yield the bridge, or nothing after a fault that prevents it."""
        values = bridge.leaves()
        if "queue_name" not in values and bridge.first("queue-name") is None:
            self._fault(bridge, f"bridge '{name}' has no <queue-name>, the queue whose messages it forwards")
        if is_internal(values.get("queue_name") or ""):
            self._fault(bridge, f"bridge '{name}': queue '{values['queue_name']}' is internal; {INTERNAL}")
        password = values.get("password")
        if password is not None:
            if revealed(password).startswith("ENC("):
                element = bridge.first("password")
                assert element is not None
                self._fault(element, f"<password> {ENCODED}")
            values["password"] = Secret(revealed(password))
            if "user" not in values:
                self._fault(bridge, f"bridge '{name}' has a <password> and no <user>")
        transformer = self._transformer(bridge)
        if "queue_name" in values:
            yield BridgeConfiguration(
                **values,
                name=name,
                connectors=tuple(connectors),
                transformer=transformer,
                line=bridge.line,
            )

    # ---- acceptors and users

    def _acceptors(self, secure: bool) -> Iterator[Acceptor]:
        skipped: list[Node] = []  # acceptors of other protocols
        speaks_stomp = False
        for name, node in named(self._core.within("acceptors")):
            if node.value is None:
                continue
            what = f"acceptor '{name}'"
            self._is_new(what, node)
            parameters: Ignored = []
            try:
                reason = skip_reason(node.value, self._references.resolve)
                if reason is not None:
                    if reason != IN_VM_ONLY:
                        skipped.append(node)
                    self._ignored.append(IgnoredSetting(node.line, f"{what} is skipped", reason, True))
                    continue
                acceptor = parse_acceptor(name, node.value, self._references.resolve, parameters)
            except ValueError as error:
                speaks_stomp = True  # assume STOMP, to report one fault of this acceptor and not two
                self._add_faults(node, what, error)
                continue
            speaks_stomp |= isinstance(acceptor, StompAcceptor)
            self._ignore(node, "acceptor", parameters)
            if acceptor.port:  # port 0 stands for any free port
                self._is_new(f"a listener on {acceptor.host}:{acceptor.port}", node)
            if not secure and not is_loopback(acceptor.host):
                self._fault(
                    node,
                    f"{what} listens on {acceptor.host}, reachable from other machines, while <security-enabled> is "
                    "false. Set <security-enabled> to true and add users with 'stompring user add', or listen on "
                    "127.0.0.1",
                )
            yield with_absolute_paths(acceptor, self._folder)
        if skipped and not speaks_stomp:
            self._fault(
                skipped[0],
                'no acceptor speaks STOMP: add one, for example <acceptor name="stomp">'
                "tcp://127.0.0.1:61613?protocols=STOMP</acceptor>, or add STOMP to the protocols of this one",
            )

    def _security_files(self, secure: bool) -> tuple[str, ...]:
        """Set the files of users, roles and certificates, and return warnings.

        If ``users-file`` and ``login-modules`` are not set, and the default users file does not exist, the users are
        those of Artemis (`find_logins`).
        """
        modules = self._plain["login_modules"] = tuple(self._login_modules())
        given = {name for name in SECURITY_FILES if self._plain.get(name)}
        for name, usual in SECURITY_FILES.items():
            path = self._plain.get(name) or (usual if secure else None)
            self._plain[name] = None if path is None else str(self._folder / path)
        if (
            secure
            and modules
            and "users_file" in given
            and not any(isinstance(each, LoginModule) and each.kind == "properties" for each in modules)
        ):
            return (
                "no user of <users-file> can log in by a password: <login-modules> is set and has no <properties/>",
            )
        if not secure or modules or "users_file" in given or Path(self._plain["users_file"]).exists():
            return ()
        try:
            logins = find_logins(self._folder, self._references.resolve)
        except ConfigurationError as error:
            self._faults.add(Line(error.line or 1, error.file or self._faults.file), error.text)
            return ()
        if logins is None:
            return ()
        self._plain |= {"guest": logins.guest, "login_modules": logins.modules}
        self._ignored += logins.ignored
        for name in SECURITY_FILES.keys() - given:
            path = getattr(logins, name.removesuffix("_file"))
            if path is not None:
                self._plain[name] = str(path)
        return logins.warnings

    def _login_modules(self) -> Iterator[AnyLogin]:
        """The elements of ``<login-modules>``."""
        for node in self._core.within("login-modules"):
            values = node.given()
            if node.name == "token":
                if {"issuer", "audience", "keys"} <= values.keys():
                    for each in ("keys", "trust_store_path"):
                        if "://" not in values.get(each, "://"):
                            values[each] = str(self._folder / values[each])
                    yield TokenLogin(**values)
            elif node.name != "ldap":
                if self._is_new(f"<{node.name}>", node):
                    yield LoginModule(node.name, **values)
            elif "connection_url" in values:  # a missing URL is already a fault
                try:
                    yield ldap_login(values, self._folder)
                except ValueError as error:
                    self._fault(node, f"<ldap>: {error}")

    def _security_settings(self) -> Iterator[SecuritySettingEntry]:
        """The ``<security-setting>`` elements. Matches, and the permissions of one match, must be unique."""
        for match, node in self._matches("security-settings"):
            is_new = self._is_new(f"security-setting '{match}'", node)
            if literal_name(match, self._markers) is None:
                address, qualified, queue = match.partition(QUEUE_SEPARATOR)
                if qualified and (not address or not queue or QUEUE_SEPARATOR in queue):
                    self._fault(node, f"match '{match}': a queue is written as address::queue")
                if qualified and Pattern(address, self._wildcard).is_wildcard:
                    self._fault(
                        node,
                        f"match '{match}': the address in address::queue must not contain wildcards",
                    )
                self._check_match(match, address, node)
            roles: dict[PermissionType, frozenset[str]] = {
                PermissionType(kind): frozenset(permission.attributes["roles"])
                for kind, permission in named(node.all("permission"), "type")
                if "roles" in permission.attributes
                and self._is_new(f"permission '{kind}'", permission, node, "; list all its roles there")
            }
            if is_new:
                yield SecuritySettingEntry(match, roles, node.line)

    def _resource_limits(self) -> Iterator[ResourceLimit]:
        """The ``<resource-limit-setting>`` elements, one per user."""
        for user, node in named(self._core.within("resource-limit-settings"), "match"):
            if not self._is_new(f"resource-limit-setting '{user}'", node):
                continue
            sessions, old = node.first("max-sessions"), node.first(MAX_SESSIONS_OLD_NAME)
            if sessions is not None and old is not None:
                self._fault(
                    old,
                    f"<{MAX_SESSIONS_OLD_NAME}> is the old name of <max-sessions>, already defined at line "
                    f"{sessions.line}",
                )
            values = node.leaves()
            old_value = values.pop(snake(MAX_SESSIONS_OLD_NAME), None)
            if old_value is not None:
                values.setdefault("max_sessions", old_value)
            yield ResourceLimit(user, **values)

    # ---- the store

    def _check_directories(self) -> None:
        journal, paging = self._core.first("journal-directory"), self._core.first("paging-directory")
        used = (
            DEFAULTS.journal_directory if journal is None else journal.value,
            DEFAULTS.paging_directory if paging is None else paging.value,
        )
        declared = paging or journal
        if declared is not None and None not in used and Path(used[0]) == Path(used[1]):
            self._fault(
                declared, "<journal-directory> and <paging-directory> must be two different directories"
            )

    def _retention(self) -> Retention | None:
        node = self._core.first("journal-retention-directory")
        if node is None or node.value is None:
            return None
        others = [self._core.first(name) for name in ("journal-directory", "paging-directory")]
        if any(other is not None and Path(other.value) == Path(node.value) for other in others):
            self._fault(
                node,
                "<journal-retention-directory> must differ from <journal-directory> and <paging-directory>",
            )
        if self._plain.get("persistence_enabled") is False:
            self._fault(node, "<journal-retention-directory> requires <persistence-enabled> to be true")
        retention = Retention(node.value, **node.given())
        factor = retention.unit.milliseconds if retention.period > 0 else 1
        return replace(retention, period=retention.period * factor)

    def _unused_retain(self) -> Iterator[str]:
        """Warnings for ``retain`` without a retention directory."""
        if self._plain["journal_retention_directory"] is not None:
            return
        for node in self._core.within("address-settings"):
            retain = node.first("retain")
            if retain is not None:
                place = self._faults.place(retain.line)
                yield f"{place}: <retain> has no effect without <journal-retention-directory>"

    def _replicated_log(self, name: str) -> ReplicatedLogSettings | None:
        """The replicated log of the broker ``name``; None if broker.xml has none, or its settings have a fault."""
        policy = self._core.first("ha-policy")
        node = None if policy is None else policy.first("replicated-log")
        if node is None:
            return None
        for needed in _NEEDED:
            element = self._core.first(needed)
            if element is not None and element.value is False:
                self._fault(
                    element,
                    f"<{needed}> is false: with <replicated-log> (line {int(node.line)}) it must be true, else a "
                    "message with a RECEIPT may be lost at a takeover",
                )
        values = node.given()
        for text in _contradictions(values):
            self._fault(node, f"<replicated-log>: {text}")
        if "url" not in values or "stream" not in values:
            return None  # the missing attribute is a fault already
        for each in FILES:
            if values.get(each) is not None:
                values[each] = str(self._folder / values[each])
        if values.get("password") is not None:
            values["password"] = Secret(revealed(values["password"]))
        member = re.sub(r"[^A-Za-z0-9_.@:-]+", "-", f"{name}@{socket.gethostname()}")[:200]
        return ReplicatedLogSettings(**{"broker": member, **values})

    # ---- management

    def _check_management(self) -> None:
        """Check that requests and notifications have different addresses, without wildcards."""
        names: dict[str, str] = {}
        for name in ("management-address", "management-notification-address"):
            node = self._core.first(name)
            value = self._plain.get(snake(name), getattr(DEFAULTS, snake(name)))
            declared = node or self._core.first("management-address")
            if node is not None and ("::" in value or Pattern(value, self._wildcard).is_wildcard):
                self._fault(
                    node, f"<{name}> is '{value}': must be one address, without wildcards and without ::"
                )
            elif value in names and declared is not None:
                self._fault(
                    declared,
                    f"<{name}> and <{names[value]}> are both '{value}': name two different addresses",
                )
            names[value] = name


def _contradictions(values: Values) -> Iterator[str]:
    """Contradictions between the attributes of ``<replicated-log>``."""
    password = values.get("password")
    if password is not None and "credentials" in values:
        yield "it has password and credentials: keep one of them"
    elif "user" in values and "credentials" in values:
        yield "it has user and credentials: keep one of them"
    if password is not None and "user" not in values and "credentials" not in values:
        yield "it has a password and no user"
    if password is not None and revealed(password).startswith("ENC("):
        yield f"password {ENCODED}"
    if "key" in values and "certificate" not in values:
        yield "it has a key and no certificate"
    scheme = scheme_of(values.get("url", ""))
    if scheme in POSTGRESQL:
        for each in ("credentials", "monitor"):
            if each in values:
                yield f"{each} is of NATS, and the url is of PostgreSQL; remove it"
    given = [each for each in ("ca", "certificate", "key") if each in values]
    if scheme in NATS and scheme != "tls" and given:
        yield f"{given[0]} has no effect without TLS: write tls:// in the url"


class Change(NamedTuple):
    """One changed value. ``before`` and ``after`` are JSON values, None for an unset value."""

    what: str  # broker, address-setting, security-setting, broker-plugin, divert or queue
    name: str | None  # the match or the name; None for the broker
    setting: str  # name of the setting in broker.xml
    before: object
    after: object
    restart: bool = False  # whether the change is in effect after a restart only


@dataclass
class Reload:
    """The outcome of a reload of broker.xml, or of its preview: texts for people, with the names in the file."""

    applied: list[str] = field(default_factory=list)  # changes in effect now
    restart_required: list[str] = field(default_factory=list)  # changes in effect after a restart
    failed: list[str] = field(default_factory=list)  # changes that the broker could not apply
    refused: str | None = None  # the reason why the broker changed nothing
    changes: list[Change] = field(default_factory=list)  # the changed values
    warnings: list[str] = field(default_factory=list)  # warnings about the file
    ignored: list[str] = field(default_factory=list)  # settings of Artemis without effect here
