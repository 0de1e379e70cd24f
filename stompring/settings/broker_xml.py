"""broker.xml and the files that it includes, read into a `BrokerConfiguration`.

``<transformer>`` of a divert or a bridge, read into a `TransformerConfiguration`.

The policies that a broker.xml names: ``<broker-plugin>``, and its uses as ``<address-policy>``.

The ``<replicated-log>`` element in ``<ha-policy>``.

The ``<bridge>`` elements, with the ``<connector>`` elements that they name.

``<diverts>`` of broker.xml, and the search for loops of diverts.

broker.xml, read into a `BrokerConfiguration`.

Nothing in the file is passed over: a name that is not in the schema, a value out of its range, a contradiction is a
fault, and settings of Artemis without effect here are listed (`settings.artemis`). All faults of a file come
together in one `ConfigurationError`, each with its line. Entities and external files are off, and a document type
declaration is refused: no broker.xml needs one. XInclude includes files below the directory of broker.xml, and
nothing else (`Inclusion`).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from lxml import etree

from stompring.errors import ConfigurationError, Line

from . import value_types
from .artemis import (
    NOTIFICATION_PLUGIN,
    NOTIFICATION_PROPERTIES,
    OLD_ELEMENT_NAMES,
    SECTIONS,
    Row,
    find_logins,
    not_supported,
)
from .document import (
    ElementRule,
    Faults,
    Node,
    References,
    Secret,
    has_known_reference,
    has_reference,
    parents_of,
    predefined_properties,
    revealed,
    root_rules,
    schema_bytes,
    snake,
    with_suggestion,
)
from .machine import (
    default_dispatch_memory,
    default_global_max_size,
    default_transaction_memory,
    instance_directory,
    machine_memory,
)
from .match import (
    INTERNAL,
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
    AddressSettings,
    BridgeConfiguration,
    BrokerConfiguration,
    ComponentRoutingType,
    Connector,
    DivertConfiguration,
    FullPolicy,
    HttpAcceptor,
    IgnoredSetting,
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
    TimeUnit,
    TransformerConfiguration,
    WildcardSyntax,
)
from .network import NATS, POSTGRESQL, is_loopback, scheme_of, shown_url
from .urls import (
    IN_VM_ONLY,
    Acceptor,
    Ignored,
    connector_with_absolute_paths,
    parse_acceptor,
    parse_connector,
    skip_reason,
    with_absolute_paths,
)

#: Artemis's one transformer for headers. Its properties are the headers that it sets.
ADD_HEADERS = "org.apache.activemq.artemis.core.server.transformer.AddHeadersTransformer"

#: Headers that no transformer changes, with the reason.
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


def read_transformer(
    node: Node | None, plugins: Iterable[PluginConfiguration], faults: Faults
) -> TransformerConfiguration | None:
    """The transformer in ``node``; None without one, or where it changes nothing. Adds its faults to ``faults``."""
    if node is None:
        return None
    kind = node.first("class-name")
    if kind is not None and kind.value not in (None, ADD_HEADERS):
        faults.add(
            kind.line,
            f"<class-name> is '{kind.value}': transformers in Java are not supported. Set headers by "
            '<property key="…" value="…"/> and <remove-header name="…"/>, or name a Python policy: '
            '<address-policy name="…"/>',
        )
    added = read_properties(node, faults)
    removed: dict[str, int] = {}
    for one in node.all("remove-header"):
        name = one.attributes.get("name")
        if name in removed:
            faults.add(one.line, f"remove-header '{name}' is already given at line {removed[name]}")
        elif name is not None:
            removed[name] = one.line
    lines = {**removed, **{one.key: one.line or node.line for one in added}}
    for line, text in _fixed(lines):
        faults.add(line, text)
    used = tuple(policy_uses(node, [plugin.name for plugin in plugins], faults))
    policy = next((use for use in used if use.enabled), None)
    if policy is not None and lines:
        faults.add(
            node.line,
            "<transformer> has both an <address-policy> and headers: let the policy set the headers; its parameters "
            "are <property> elements in <address-policy>",
        )
    if policy is None and not lines:
        if kind is None and not used:
            faults.add(
                node.line,
                '<transformer> changes nothing: add <property key="…" value="…"/>, <remove-header name="…"/> or '
                '<address-policy name="…"/>, or remove it',
            )
        return None
    return TransformerConfiguration(added, tuple(removed), policy)


def _fixed(lines: dict[str, int]) -> Iterator[tuple[int, str]]:
    """Headers that cannot be changed, with their lines."""
    for name, line in lines.items():
        reason = FIXED_HEADERS.get(name)
        if reason is None and name.startswith("_AMQ_ORIG_"):
            reason = "the broker sets it"
        if reason is not None:
            yield line, f"<transformer> cannot change the header {name}: {reason}"


def read_plugins(core: Node, faults: Faults) -> tuple[PluginConfiguration, ...]:
    """The ``<broker-plugin>`` elements. Names must be unique, and not those of built-in policies."""
    plugins: dict[str, PluginConfiguration] = {}
    for node in core.within("broker-plugins"):
        name = node.attributes.get("name")
        if name is None:
            continue
        if name in plugins:
            faults.add(node.line, f"broker-plugin '{name}' is already defined at line {plugins[name].line}")
        elif name.upper() in list(FullPolicy):
            faults.add(
                node.line, f"broker-plugin '{name}': {name.upper()} is a built-in policy; use another name"
            )
        else:
            policy = node.attributes.get("policy", name)
            plugins[name] = PluginConfiguration(name, policy, read_properties(node, faults), node.line)
    return tuple(plugins.values())


def read_policy_uses(setting: Node, plugins: Iterable[PluginConfiguration], faults: Faults) -> dict[str, Any]:
    """The policies of an ``<address-setting>``, as values of `AddressSettings`."""
    known = [plugin.name for plugin in plugins]
    full = setting.first("address-full-policy")
    if full is not None and full.value is not None and full.value not in (*FullPolicy, *known):
        text = f"<address-full-policy> is '{full.value}': must be one of {', '.join(FullPolicy)}, or a <broker-plugin>"
        faults.add(full.line, with_suggestion(text, full.value, [*FullPolicy, *known]))
    uses = tuple(policy_uses(setting, known, faults))
    return {"address_policy": uses} if uses else {}


def policy_uses(setting: Node, known: list[str], faults: Faults) -> Iterator[PolicyUse]:
    """The ``<address-policy>`` elements in ``setting``, each of a broker-plugin among the ``known`` ones."""
    lines: dict[str, int] = {}
    for node in setting.all("address-policy"):
        name = node.attributes.get("name")
        if name is None:
            continue
        if name not in known:
            text = f'<address-policy name="{name}"> names no <broker-plugin>'
            if not known:
                text += f'; declare it: <broker-plugins><broker-plugin name="{name}"/></broker-plugins>'
            faults.add(node.line, with_suggestion(text, name, known))
        elif name in lines:
            text = f'<address-policy name="{name}"> is given twice; the first is at line {lines[name]}'
            faults.add(
                node.line, text + "; to apply it twice declare a second <broker-plugin> with the same policy"
            )
        else:
            yield PolicyUse(
                name, read_properties(node, faults), node.attributes.get("enabled", True), node.line
            )
        lines.setdefault(name, node.line)


def read_properties(node: Node, faults: Faults) -> tuple[Property, ...]:
    """The ``<property>`` elements in ``node``. Keys must be unique."""
    properties: dict[str, Property] = {}
    for one in node.all("property"):
        key, value = one.attributes.get("key"), one.attributes.get("value")
        if key is None or value is None:
            continue
        if key in properties:
            faults.add(one.line, f"property '{key}' is already defined at line {properties[key].line}")
        else:
            properties[key] = Property(key, value, one.line)
    return tuple(properties.values())


_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.@:-]+")

#: Attributes that are paths of files.
FILES = ("credentials", "ca", "certificate", "key")

#: Elements of core without which a RECEIPT would not mean that the message is in the log.
_NEEDED = ("persistence-enabled", "journal-sync-transactional", "journal-sync-non-transactional")


def read_replicated_log(core: Node, name: str, faults: Faults) -> ReplicatedLogSettings | None:
    """The settings of the log, of a broker called ``name``; None without a log, or with a fault in it."""
    policy = core.first("ha-policy")
    node = None if policy is None else policy.first("replicated-log")
    if node is None:
        return None
    for needed in _NEEDED:
        element = core.first(needed)
        if element is not None and element.value is False:
            faults.add(
                element.line,
                f"<{needed}> is false: with <replicated-log> (line {int(node.line)}) it must be true, else a message "
                "with a RECEIPT may be lost at a takeover",
            )
    values: dict[str, Any] = {snake(key): value for key, value in node.attributes.items()}
    for text in _contradictions(values):
        faults.add(node.line, f"<replicated-log>: {text}")
    if "url" not in values or "stream" not in values:
        return None  # there is a fault
    folder = Path(faults.file).parent
    for each in FILES:
        if values.get(each) is not None:
            values[each] = str(folder / values[each])
    if values.get("password") is not None:
        values["password"] = Secret(revealed(values["password"]))
    values.setdefault("broker", default_member(name))
    return ReplicatedLogSettings(**values)


def default_member(name: str) -> str:
    """The name of a broker in the log: its own, ``@`` and the name of the machine."""
    return _NOT_IN_A_NAME.sub("-", f"{name}@{socket.gethostname()}")[:200]


def _contradictions(values: dict[str, Any]) -> list[str]:
    found: list[str] = []
    password = values.get("password")
    if password is not None and "credentials" in values:
        found.append("it has password and credentials: keep one of them")
    elif "user" in values and "credentials" in values:
        found.append("it has user and credentials: keep one of them")
    if password is not None and "user" not in values and "credentials" not in values:
        found.append("it has a password and no user")
    if password is not None and revealed(password).startswith("ENC("):
        found.append(
            "password is encoded, and the key is Artemis's; write a reference, ${file:PATH} or ${env:NAME}"
        )
    if "key" in values and "certificate" not in values:
        found.append("it has a key and no certificate")
    scheme = scheme_of(values.get("url", ""))
    if scheme in POSTGRESQL:
        found += (
            f"{each} is of NATS, and the url is of PostgreSQL; remove it"
            for each in ("credentials", "monitor")
            if each in values
        )
    given = [each for each in ("ca", "certificate", "key") if each in values]
    if scheme in NATS and scheme != "tls" and given:
        found.append(f"{given[0]} has no effect without TLS: write tls:// in the url")
    return found


def read_bridges(
    core: Node,
    plugins: tuple[PluginConfiguration, ...],
    faults: Faults,
    references: References,
    ignored: list[IgnoredSetting],
) -> Iterator[BridgeConfiguration]:
    """The bridges. A connector that no bridge names is not looked at: Artemis has other uses for connectors. It is
    added to ``ignored``, as are parameters of Artemis without effect."""
    nodes = _connector_nodes(core, faults)
    parsed: dict[str, Connector | None] = {}
    lines: dict[str, int] = {}
    for bridge in core.within("bridges"):
        name = bridge.attributes.get("name")
        if name is None:
            continue
        if name in lines:
            faults.add(bridge.line, f"bridge '{name}' is already defined at line {lines[name]}")
        lines.setdefault(name, bridge.line)
        for connector in _names_of(bridge, name, nodes, faults):
            if connector not in parsed:
                parsed[connector] = _connector(connector, nodes[connector], faults, references, ignored)
        configuration = _bridge(bridge, name, parsed, plugins, faults)
        if configuration is not None:
            yield configuration
    for name, node in nodes.items():
        if name not in parsed:
            ignored.append(IgnoredSetting(node.line, f"connector '{name}'", "no bridge names it"))


def _connector_nodes(core: Node, faults: Faults) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for node in core.within("connectors"):
        name = node.attributes.get("name")
        if name is None:
            continue
        if name in nodes:
            faults.add(node.line, f"connector '{name}' is already defined at line {nodes[name].line}")
        nodes.setdefault(name, node)
    return nodes


def _names_of(bridge: Node, name: str, nodes: dict[str, Node], faults: Faults) -> Iterator[str]:
    """The names of the connectors of a bridge that exist."""
    references = bridge.within("static-connectors")
    if not references:
        faults.add(
            bridge.line,
            f"bridge '{name}' has no connector; write <static-connectors><connector-ref>NAME</connector-ref>"
            "</static-connectors>, NAME being that of a <connector> in <connectors>",
        )
    seen: set[str] = set()
    for node in references:
        if node.value is None:
            continue
        if node.value in seen:
            faults.add(node.line, f"<connector-ref> '{node.value}' is given twice")
        elif node.value not in nodes:
            text = f"<connector-ref> is '{node.value}': no <connector> has that name"
            faults.add(node.line, with_suggestion(text, node.value, nodes))
        else:
            yield node.value
        seen.add(node.value)


def _connector(
    name: str, node: Node, faults: Faults, references: References, ignored: list[IgnoredSetting]
) -> Connector | None:
    if node.value is None:
        return None
    parameters: Ignored = []
    try:
        connector = parse_connector(name, node.value, references.resolve, parameters)
    except ValueError as error:
        for text in str(error).splitlines():
            faults.add(node.line, f"connector '{name}': {text}")
        return None
    ignored += (IgnoredSetting(node.line, f"{key} of connector", reason) for key, reason in parameters)
    return connector_with_absolute_paths(connector, Path(faults.file).parent)


def _bridge(
    bridge: Node,
    name: str,
    parsed: dict[str, Connector | None],
    plugins: tuple[PluginConfiguration, ...],
    faults: Faults,
) -> BridgeConfiguration | None:
    values = bridge.leaves()
    if "queue_name" not in values and bridge.first("queue-name") is None:
        faults.add(bridge.line, f"bridge '{name}' has no <queue-name>, the queue whose messages it forwards")
    if is_internal(values.get("queue_name") or ""):
        faults.add(bridge.line, f"bridge '{name}': queue '{values['queue_name']}' is internal; {INTERNAL}")
    password = values.get("password")
    if password is not None:
        if revealed(password).startswith("ENC("):
            element = bridge.first("password")
            assert element is not None
            faults.add(
                element.line,
                "<password> is encoded, and the key is Artemis's; write a reference, ${file:PATH} or ${env:NAME}",
            )
        values["password"] = Secret(revealed(password))
        if "user" not in values:
            faults.add(bridge.line, f"bridge '{name}' has a <password> and no <user>")
    condition = bridge.first("filter")
    transformer = read_transformer(bridge.first("transformer"), plugins, faults)
    connectors = [
        parsed.get(node.value) for node in bridge.within("static-connectors") if node.value is not None
    ]
    if None in connectors or not connectors or "queue_name" not in values:
        return None  # there is a fault
    return BridgeConfiguration(
        **values,
        name=name,
        connectors=tuple(each for each in connectors if each is not None),
        filter=None if condition is None else condition.attributes.get("string"),
        transformer=transformer,
        line=bridge.line,
    )


def read_diverts(
    core: Node, wildcard: WildcardSyntax, plugins: Iterable[PluginConfiguration], faults: Faults
) -> tuple[DivertConfiguration, ...]:
    """The ``<divert>`` elements. Names must be unique, and no message may come back to its address."""
    diverts: dict[str, DivertConfiguration] = {}
    plugins = tuple(plugins)
    for node in core.within("diverts"):
        divert = _read_divert(node, wildcard, plugins, faults)
        if divert is None:
            continue
        if divert.name in diverts:
            first = diverts[divert.name].line
            faults.add(node.line, f"divert '{divert.name}' is already defined at line {first}")
        diverts.setdefault(divert.name, divert)
    for loop in find_loops(diverts.values(), wildcard):
        faults.add(loop.diverts[-1].line or 1, str(loop))
    return tuple(diverts.values())


def _read_divert(
    node: Node, wildcard: WildcardSyntax, plugins: Sequence[PluginConfiguration], faults: Faults
) -> DivertConfiguration | None:
    name = node.attributes.get("name")
    values = node.leaves()
    address, forwarding = values.get("address"), values.get("forwarding_address")
    for element in ("address", "forwarding-address"):
        if node.first(element) is None:
            faults.add(node.line, f"<divert> has no <{element}>; it is required")
    for word in Pattern(address or "", wildcard).half_wildcards():
        faults.add(
            node.line,
            f"divert '{name}': '{wildcard.single_word}' and '{wildcard.any_words}' are wildcards only as whole words, "
            f"not in '{word}'",
        )
    targets = tuple(forwarding or ())
    for target in targets:
        if Pattern(target, wildcard).is_wildcard:
            faults.add(
                node.line,
                f"divert '{name}': the forwarding address '{target}' has wildcards; copies need one address",
            )
        if is_internal(target):
            faults.add(
                node.line, f"divert '{name}': the forwarding address '{target}' is internal; {INTERNAL}"
            )
    transformer = read_transformer(node.first("transformer"), plugins, faults)
    holder = node.first("filter")
    if name is None or address is None or not targets:
        return None
    return DivertConfiguration(
        name=name,
        address=address,
        forwarding_address=targets,
        filter=None if holder is None else holder.attributes.get("string"),
        exclusive=bool(values.get("exclusive") or False),
        routing_name=values.get("routing_name"),
        routing_type=values.get("routing_type") or ComponentRoutingType.STRIP,
        transformer=transformer,
        line=node.line,
    )


Loop = Sequence[DivertConfiguration]


class _Following:
    """The diverts that apply to the copies of others."""

    def __init__(self, diverts: Iterable[DivertConfiguration], wildcard: WildcardSyntax) -> None:
        self._by_address: dict[str, list[DivertConfiguration]] = {}
        self._by_pattern: list[tuple[Pattern, DivertConfiguration]] = []
        for one in diverts:
            pattern = Pattern(one.address, wildcard)
            if pattern.is_wildcard and wildcard.routing_enabled:
                self._by_pattern.append((pattern, one))
            else:
                self._by_address.setdefault(one.address, []).append(one)

    def of(self, divert: DivertConfiguration) -> Iterator[tuple[str, DivertConfiguration]]:
        """Each with the forwarding address of ``divert`` that leads to it."""
        for target in divert.forwarding_address:
            for one in self._by_address.get(target, ()):
                yield target, one
            for pattern, one in self._by_pattern:
                if pattern.matches(target):
                    yield target, one


class DivertLoop(NamedTuple):
    """Diverts of which each applies to the copies of the one before, and the first to those of the last."""

    diverts: tuple[DivertConfiguration, ...]
    addresses: tuple[str, ...]  # where the copies of each come to

    def __str__(self) -> str:
        names = " and ".join(f"'{one.name}'" for one in self.diverts)
        path = " to ".join((self.addresses[-1], *self.addresses))
        what = f"divert {names} forms" if len(self.diverts) == 1 else f"diverts {names} form"
        return f"{what} a loop: {path}; a message would be copied without end. Remove one of the diverts"


def find_loops(diverts: Iterable[DivertConfiguration], wildcard: WildcardSyntax) -> Iterator[DivertLoop]:
    """The loops of diverts. Filters are not considered. Of the loops that one divert closes at least one is found."""
    given = list(diverts)
    following = _Following(given, wildcard)
    done: set[str] = set()
    for first in given:
        if first.name in done:
            continue
        path, addresses = [first], [""]
        positions = {first.name: 0}  # in the path
        branches = [following.of(first)]
        while branches:
            found = next(branches[-1], None)
            if found is None:
                branches.pop()
                addresses.pop()
                left = path.pop().name
                del positions[left]
                done.add(left)
                continue
            target, after = found
            start = positions.get(after.name)
            if start is not None:
                yield DivertLoop(tuple(path[start:]), (*addresses[start + 1 :], target))
            elif after.name not in done:
                positions[after.name] = len(path)
                path.append(after)
                addresses.append(target)
                branches.append(following.of(after))


NAMESPACES = ("urn:activemq", "urn:activemq:core", None)
_JMS = "urn:activemq:jms"
_XINCLUDE = "http://www.w3.org/2001/XInclude"
#: Attributes that XML or its schemas have on any element: they set nothing here.
_OF_XML = ("{http://www.w3.org/2001/XMLSchema-instance}", "{http://www.w3.org/XML/1998/namespace}")
_ROOT = "configuration"
_NOT_IN_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

#: More attributes than any element has in the schema. libxml2 searches them linearly: 100,000 would take minutes.
_MAX_ATTRIBUTES = 200


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
    folder = Path(file).parent
    references = References(
        folder, properties=predefined_properties(folder.absolute(), instance_directory(file))
    )
    inclusion = Inclusion(file, references, faults)
    try:
        root = _parse_xml(data, file)
        inclusion.resolve(root)
        reading = _DocumentReader(faults, references)
        document = reading.document(root)
        core = document.first("core")
        configuration = (
            build_configuration(core, faults, references, reading.ignored)
            if core is not None
            else BrokerConfiguration(file=file)
        )
        faults.raise_if_any()
        _validate(root, faults)
        faults.raise_if_any()
    except ConfigurationError as error:
        error.files = tuple(inclusion.files)
        raise
    return replace(configuration, files=tuple(inclusion.files), notified=frozenset(reading.notified))


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


#: Files that one broker.xml may include, directly or not. It stops files that include each other in growing numbers.
MAX_INCLUDED = 200

#: The name of the attribute that marks the root element of an included file, with the file.
_INCLUDED = "{urn:stompring:included}file"


class Inclusion:
    """Replaces each ``<xi:include href="…"/>`` by the root element of that file, which may include others.

    The path is relative to the including file or, as in Artemis, to the directory of the instance; it may have
    references. Files must be below the directory of broker.xml, symbolic links followed. Included are files of XML
    only, whole: ``parse="text"``, ``xpointer`` and ``<xi:fallback>`` are refused. ``files`` are all that were read.
    """

    def __init__(self, file: str, references: References, faults: Faults) -> None:
        self.files = [file]
        self._file = file
        self._references = references
        self._instance = instance_directory(file)
        self._faults = faults
        self._folder = Path(file).parent.resolve()

    def resolve(self, root: etree._Element) -> None:
        """Include in the tree below ``root``, the root element of broker.xml."""
        self._resolve(root, Path(self._file), (Path(self._file).resolve(),))

    def _resolve(self, root: etree._Element, file: Path, above: tuple[Path, ...]) -> None:
        for element in list(root.iter(f"{{{_XINCLUDE}}}*")):
            name, parent = etree.QName(element).localname, element.getparent()
            line = _line(element) if len(above) == 1 else Line(_line(element), str(file))
            if parent is None:
                self._faults.add(line, f"the root element is <xi:{name}>; it must be <{_ROOT}>")
                self._faults.raise_if_any()
                continue
            if name != "include":
                if etree.QName(parent).namespace != _XINCLUDE:  # else the fault is that of the include
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
        self._resolve(root, target, (*above, real))
        root.set(_INCLUDED, str(target))
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
        self.notified: set[str] = set()  # types of notifications that a plugin of Artemis asks for
        self._file: str | None = None  # the included file that is being read

    def _line(self, element: etree._Element) -> int:
        return _line(element) if self._file is None else Line(_line(element), self._file)

    def document(self, root: etree._Element) -> Node:
        """The whole document. Raises `ConfigurationError` where the root element is wrong."""
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
        if name == "ha-policy":
            self._refuse_mixed_policy(element, node)
        self._read_children(element, rule, node)
        if rule.text is None:
            self._refuse_text(element)
        else:
            text = (element.text or "").strip()
            known, node.value, text = self._value(f"<{name}>", node.line, rule.text, text)
            element.text = _canonical(node.value, text)
            if not known:
                node.is_leaf = False  # the value is invalid
        return node

    def _refuse_mixed_policy(self, element: etree._Element, node: Node) -> None:
        """A broker with a replicated log has no policy of Artemis's beside it."""
        names = [etree.QName(each).localname for each in element]
        others = [each for each in names if each in SECTIONS["ha-policy"]]
        if "replicated-log" in names and others:
            self._faults.add(
                node.line,
                f"<ha-policy> has <replicated-log> and Artemis's <{others[0]}>: keep <replicated-log> alone",
            )

    def _read_children(self, element: etree._Element, rule: ElementRule, node: Node) -> None:
        first_lines: dict[str, int] = {}
        for child in list(element):
            outer = self._file
            included = child.get(_INCLUDED)
            if included is not None:
                self._file = included
                del child.attrib[_INCLUDED]
            self._read_child(child, element, rule, node, first_lines)
            self._file = outer

    def _read_child(
        self,
        child: etree._Element,
        element: etree._Element,
        rule: ElementRule,
        node: Node,
        first_lines: dict[str, int],
    ) -> None:
        name = self._plain_name(child)
        name = OLD_ELEMENT_NAMES.get((node.name, name or ""), name)
        line = self._line(child)
        child_rule = rule.children.get(name or "")
        if name is None or child_rule is None:
            if name is not None and not self._is_ignored_element(child, name, node.name):
                self._faults.add(line, _unknown_element(name, node.name, rule))
            element.remove(child)
            return
        if name == "broker-plugin" and "class-name" in child.attrib:
            self._read_java_plugin(child)
            element.remove(child)
            return
        child.tag = name
        if name in first_lines and not child_rule.repeated:
            twice = f"<{name}> is given twice in <{node.name}>"
            self._faults.add(line, f"{twice}; the first is at line {first_lines[name]}")
        first_lines.setdefault(name, line)
        node.children.append(self._node(child, child_rule))

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

    def _is_ignored_element(self, element: etree._Element, name: str, parent: str) -> bool:
        inside = [etree.QName(each).localname for each in element.iterdescendants("*")]
        return self._is_ignored(name, parent, self._line(element), (element.text or "").strip(), inside)

    def _read_java_plugin(self, element: etree._Element) -> None:
        """A plugin of Artemis: ignored where it changes nothing but the log, else a fault."""
        line, parent = self._line(element), "broker-plugin"
        name = (element.get("class-name") or "").strip()
        if name == NOTIFICATION_PLUGIN:
            self._read_notification_plugin(element)
        elif not self._is_ignored("class-name", parent, line, name):
            row = SECTIONS[parent]["class-name"]
            self._faults.add(line, not_supported(f"attribute 'class-name' of <{parent}>", row))

    def _read_notification_plugin(self, element: etree._Element) -> None:
        """Artemis's plugin that chooses notifications: those per message are sent where it asks for them."""
        for one in element.iterdescendants("*"):
            key, text, line = one.get("key") or "", one.get("value") or "", self._line(one)
            if key not in NOTIFICATION_PROPERTIES:
                known = NOTIFICATION_PROPERTIES.keys()
                self._faults.add(
                    line, with_suggestion(f"unknown property '{key}' of {NOTIFICATION_PLUGIN}", key, known)
                )
                continue
            valid, value, _ = self._value(f"property '{key}'", line, "boolean", text)
            kind = NOTIFICATION_PROPERTIES[key]
            if valid and value and kind is not None:
                self.notified.add(kind)

    def _is_ignored(self, name: str, parent: str, line: int, text: str, inside: Iterable[str] = ()) -> bool:
        """Whether the setting of Artemis has no effect here; it is then added to `ignored`."""
        row = _artemis_row(name, parent)
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
        own = kind == "url" or (kind == "filter" and not has_known_reference(text))
        if own or not has_reference(text):
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

    def _refuse_text(self, element: etree._Element) -> None:
        pieces = [element.text, *(child.tail for child in element)]
        for piece in pieces:
            if piece and piece.strip():
                what = f"unexpected text '{piece.strip()[:40]}' in <{element.tag}>"
                self._faults.add(self._line(element), f"{what}; only elements and attributes are allowed")


def _unknown_element(name: str, parent: str, rule: ElementRule) -> str:
    known_to_artemis = _artemis(f"<{name}> in <{parent}>", name, parent)
    if known_to_artemis is not None:
        return known_to_artemis
    what = f"unknown element <{name}> in <{parent}>"
    if name in rule.attributes:
        return f'{what}; it is an attribute: <{parent} {name}="…">'
    if parents_of(name):
        return f"{what}; it belongs in {' or '.join(f'<{home}>' for home in parents_of(name))}"
    return with_suggestion(what, name, (*rule.children, *rule.attributes))


def _unknown_attribute(name: str, parent: str, rule: ElementRule) -> str:
    known_to_artemis = _artemis(f"attribute '{name}' of <{parent}>", name, parent)
    if known_to_artemis is not None:
        return known_to_artemis
    what = f"unknown attribute '{name}' of <{parent}>"
    if name in rule.children:
        return f"{what}; it is an element: <{parent}><{name}>…</{name}></{parent}>"
    return with_suggestion(what, name, (*rule.attributes, *rule.children))


def _artemis(what: str, name: str, parent: str) -> str | None:
    row = _artemis_row(name, parent)
    return None if row is None else not_supported(what, row)


def _artemis_row(name: str, parent: str) -> Row | None:
    return SECTIONS[parent].get(name) if parent in SECTIONS else None


def _canonical(value: object, text: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.value if isinstance(value, StrEnum) else text


def _line(element: etree._Element) -> int:
    sourceline: Any = element.sourceline
    return int(sourceline or 1)


SAMPLE_PERIOD = Retention("").sample_period

SECURITY_FILES: Mapping[str, str | None] = {
    "users_file": "users.properties",
    "roles_file": "roles.properties",
    "certificate_users_file": None,
}
"""The files of users, roles and certificates, with their default names."""


def _security_files(plain: Mapping[str, Any], faults: Faults) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The files of users, roles and certificates, and warnings.

    Without ``users-file``, and without a file of its default name, they are those of Artemis (`find_logins`).
    """
    folder = Path(faults.file).parent
    names = {name: plain.get(name) or usual for name, usual in SECURITY_FILES.items()}
    found: dict[str, Any] = {
        name: None if path is None else str(folder / path) for name, path in names.items()
    }
    if plain.get("users_file") or Path(found["users_file"]).exists():
        return found, ()
    try:
        logins = find_logins(folder)
    except ConfigurationError as error:
        faults.add(Line(error.line or 1, error.file or faults.file), error.text)
        return found, ()
    if logins is None:
        return found, ()
    found |= {"users_file": str(logins.users), "guest": logins.guest}
    if not plain.get("roles_file"):
        found["roles_file"] = str(logins.roles)
    if logins.certificate_users is not None and not plain.get("certificate_users_file"):
        found["certificate_users_file"] = str(logins.certificate_users)
    return found, logins.warnings


def build_configuration(
    core: Node, faults: Faults, references: References, ignored: list[IgnoredSetting]
) -> BrokerConfiguration:
    """The configuration in ``core``. Adds contradictions between elements to ``faults``.

    ``ignored`` are the settings without effect that were found so far.
    """
    plain = core.leaves()
    wildcard = _wildcard_syntax(core.first("wildcard-addresses"), faults)
    markers = plain.get("literal_match_markers")
    persistent = plain.get("persistence_enabled", BrokerConfiguration().persistence_enabled)
    plugins = read_plugins(core, faults)
    settings = tuple(_address_settings(core.within("address-settings"), wildcard, markers, plugins, faults))
    if not persistent:
        settings = tuple(map(_without_pages, settings))
        ignored += _pages_without_store(core)
    repository = SettingsRepository(settings, wildcard, markers, defaults_of(persistent))
    bridges = tuple(read_bridges(core, plugins, faults, references, ignored))
    _check_directories(core, faults)
    _check_management(core, wildcard, faults)
    _set_memory_defaults(plain)
    plain["journal_retention_directory"] = _retention(core.first("journal-retention-directory"), core, faults)
    secure = plain.get("security_enabled", BrokerConfiguration().security_enabled)
    acceptors = list(_acceptors(core.within("acceptors"), secure, faults, references, ignored))
    warnings = (
        *check_address_limits(core, persistent, markers, wildcard, repository, faults),
        *_unused_retain(core, faults),
        *(f"{faults.place(each.line)}: {each.name}: {each.reason}" for each in ignored if each.is_warning),
    )
    if secure:
        security_files, about_logins = _security_files(plain, faults)
        plain |= security_files
        warnings = (*warnings, *about_logins)
    else:
        plain |= {name: _beside_file(faults.file, plain.get(name)) for name in SECURITY_FILES}
    return BrokerConfiguration(
        **plain,
        file=faults.file,
        warnings=warnings,
        ignored=tuple(sorted(ignored, key=lambda each: each.line)),
        wildcard=wildcard,
        stomp_acceptors=tuple(found for found in acceptors if isinstance(found, StompAcceptor)),
        http_acceptors=tuple(found for found in acceptors if isinstance(found, HttpAcceptor)),
        plugins=plugins,
        resource_limits=read_resource_limits(core, faults),
        bridges=bridges,
        security_settings=read_security_settings(core, wildcard, markers, faults),
        address_settings=settings,
        addresses=tuple(_addresses(core.within("addresses"), repository, faults)),
        replicated_log=read_replicated_log(core, plain.get("name") or BrokerConfiguration().name, faults),
        diverts=read_diverts(core, wildcard, plugins, faults),
    )


def _check_directories(core: Node, faults: Faults) -> None:
    journal, paging = core.first("journal-directory"), core.first("paging-directory")
    default = BrokerConfiguration()
    used = (
        default.journal_directory if journal is None else journal.value,
        default.paging_directory if paging is None else paging.value,
    )
    declared = paging or journal
    if declared is not None and None not in used and Path(used[0]) == Path(used[1]):
        faults.add(
            declared.line, "<journal-directory> and <paging-directory> must be two different directories"
        )


def _check_management(core: Node, wildcard: WildcardSyntax, faults: Faults) -> None:
    """Requests and notifications have an address of their own each, which is no wildcard."""
    names: dict[str, str] = {}
    default = BrokerConfiguration()
    for name, usual in (
        ("management-address", default.management_address),
        ("management-notification-address", default.management_notification_address),
    ):
        node = core.first(name)
        value = usual if node is None or not isinstance(node.value, str) else node.value
        declared = node or core.first("management-address")
        if node is not None and ("::" in value or Pattern(value, wildcard).is_wildcard):
            faults.add(
                node.line, f"<{name}> is '{value}': must be one address, without wildcards and without ::"
            )
        elif value in names and declared is not None:
            faults.add(
                declared.line,
                f"<{name}> and <{names[value]}> are both '{value}': name two different addresses",
            )
        names[value] = name


def _retention(node: Node | None, core: Node, faults: Faults) -> Retention | None:
    if node is None or node.value is None:
        return None
    given = node.attributes
    period, unit = given.get("period", -1), given.get("unit", TimeUnit.DAYS)
    others = [core.first(name) for name in ("journal-directory", "paging-directory")]
    if any(other is not None and Path(other.value) == Path(node.value) for other in others):
        faults.add(
            node.line,
            "<journal-retention-directory> must differ from <journal-directory> and <paging-directory>",
        )
    persistent = core.first("persistence-enabled")
    if persistent is not None and persistent.value is False:
        faults.add(node.line, "<journal-retention-directory> requires <persistence-enabled> to be true")
    return Retention(
        directory=node.value,
        period=period if period < 0 else period * unit.milliseconds,
        unit=unit,
        storage_limit=given.get("storage-limit", -1),
        sample_period=given.get("sample-period", SAMPLE_PERIOD),
    )


def _unused_retain(core: Node, faults: Faults) -> Iterator[str]:
    """Warnings for ``retain`` without a retention directory."""
    directory = core.first("journal-retention-directory")
    if directory is not None and directory.value is not None:
        return
    for node in core.within("address-settings"):
        retain = node.first("retain")
        if retain is not None:
            yield f"{faults.place(retain.line)}: <retain> has no effect without <journal-retention-directory>"


def _set_memory_defaults(plain: dict[str, Any]) -> None:
    """The defaults of sizes that are shares of the machine's memory."""
    memory = machine_memory()
    size = plain.setdefault("global_max_size", default_global_max_size(memory))
    plain.setdefault("dispatch_memory", default_dispatch_memory(size, memory))
    for name in ("global_max_transaction_size", "global_max_unfinished_size", "global_max_subscription_size"):
        plain.setdefault(name, default_transaction_memory(size, memory))


def _beside_file(file: str, name: str | None) -> str | None:
    return None if name is None else str(Path(file).parent / name)


def _wildcard_syntax(node: Node | None, faults: Faults) -> WildcardSyntax:
    if node is None:
        return WildcardSyntax()
    syntax = WildcardSyntax(**node.leaves())
    if len({syntax.delimiter, syntax.any_words, syntax.single_word}) < 3:
        faults.add(node.line, "delimiter, any-words and single-word must be three different characters")
    return syntax


class _UniqueNames:
    """Names that must be unique, with the line of their first use."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._lines: dict[str, int] = {}

    def add(self, what: str, line: int) -> None:
        """Add a fault if ``what`` was added before."""
        if what in self._lines:
            self._faults.add(line, f"{what} is already defined at line {self._lines[what]}")
        self._lines.setdefault(what, line)


def _acceptors(
    nodes: Iterable[Node],
    secure: bool,
    faults: Faults,
    references: References,
    ignored: list[IgnoredSetting],
) -> Iterator[Acceptor]:
    names = _UniqueNames(faults)
    skipped: list[Node] = []  # of other protocols
    speaks_stomp = False
    for node in nodes:
        name, url = node.attributes.get("name"), node.value
        if name is None or url is None:
            continue
        names.add(f"acceptor '{name}'", node.line)
        parameters: Ignored = []
        try:
            reason = skip_reason(url, references.resolve)
            if reason is not None:
                if reason != IN_VM_ONLY:
                    skipped.append(node)
                ignored.append(IgnoredSetting(node.line, f"acceptor '{name}' is skipped", reason, True))
                continue
            acceptor = parse_acceptor(name, url, references.resolve, parameters)
        except ValueError as error:
            speaks_stomp = True  # or will, when it is corrected
            for text in str(error).splitlines():
                faults.add(node.line, f"acceptor '{name}': {text}")
            continue
        speaks_stomp |= isinstance(acceptor, StompAcceptor)
        ignored += (IgnoredSetting(node.line, f"{key} of acceptor", why) for key, why in parameters)
        if acceptor.port:  # port 0 is any free one
            names.add(f"a listener on {acceptor.host}:{acceptor.port}", node.line)
        if not secure and not is_loopback(acceptor.host):
            faults.add(node.line, _exposed_without_security(acceptor))
        yield with_absolute_paths(acceptor, Path(faults.file).parent)
    if skipped and not speaks_stomp:
        faults.add(skipped[0].line, NO_STOMP)


NO_STOMP = (
    "no acceptor speaks STOMP: add one, for example "
    '<acceptor name="stomp">tcp://127.0.0.1:61613?protocols=STOMP</acceptor>, or add STOMP to the protocols of this one'
)


def _exposed_without_security(acceptor: Acceptor) -> str:
    return (
        f"acceptor '{acceptor.name}' listens on {acceptor.host}, reachable from other machines, while "
        "<security-enabled> is false. Set <security-enabled> to true and add users with 'stompring user add', or "
        "listen on 127.0.0.1"
    )


def _address_settings(
    nodes: Iterable[Node],
    wildcard: WildcardSyntax,
    markers: str | None,
    plugins: tuple[PluginConfiguration, ...],
    faults: Faults,
) -> Iterator[AddressSettingEntry]:
    names = _UniqueNames(faults)
    for node in nodes:
        match = node.attributes.get("match")
        if match is None:
            continue
        match = with_delimiter(match, markers, wildcard)
        names.add(f"address-setting '{match}'", node.line)
        if literal_name(match, markers) is None:
            for word in Pattern(match, wildcard).half_wildcards():
                faults.add(node.line, _half_wildcard(match, word, wildcard))
        values = node.leaves() | read_policy_uses(node, plugins, faults)
        least, most = values.get("min_expiry_delay", -1), values.get("max_expiry_delay", -1)
        if -1 < most < least:
            faults.add(node.line, f"min-expiry-delay ({least}) is above max-expiry-delay ({most})")
        yield AddressSettingEntry(match, MappingProxyType(values), node.line)


def _half_wildcard(match: str, word: str, wildcard: WildcardSyntax) -> str:
    return (
        f"match '{match}': '{wildcard.single_word}' and '{wildcard.any_words}' are wildcards only as whole words, not "
        f"in '{word}'; to match such an address literally use <literal-match-markers>"
    )


def _addresses(
    nodes: Iterable[Node], repository: SettingsRepository, faults: Faults
) -> Iterator[AddressConfiguration]:
    names = _UniqueNames(faults)
    for node in nodes:
        name = node.attributes.get("name")
        if name is None:
            continue
        names.add(f"address '{name}'", node.line)
        queues: list[QueueConfiguration] = []
        types: set[RoutingType] = set()
        for routing_type in RoutingType:
            holder = node.first(routing_type.lower())
            if holder is not None:
                types.add(routing_type)
                queues += _queues(holder.children, name, routing_type, names, faults)
        if not types:
            types.add(repository.lookup(name).default_address_routing_type)
        yield AddressConfiguration(name, frozenset(types), tuple(queues))


def _queues(
    nodes: Iterable[Node], address: str, routing_type: RoutingType, names: _UniqueNames, faults: Faults
) -> Iterator[QueueConfiguration]:
    for node in nodes:
        values = {snake(key): value for key, value in node.attributes.items()}
        inside = node.leaves()
        if "user" in values and "user" in inside:
            faults.add(node.line, "<queue> has both an attribute user and an element <user>; remove one")
        if "name" in values:
            names.add(f"queue '{values['name']}'", node.line)
            holder = node.first("filter")
            condition = holder.attributes.get("string") if holder else None
            yield QueueConfiguration(
                **(values | inside), address=address, routing_type=routing_type, filter=condition
            )


PAGE_LIMIT_ELEMENTS = ("page-limit-bytes", "page-limit-messages", "page-full-policy")


def check_address_limits(
    core: Node,
    persistent: bool,
    markers: str | None,
    wildcard: WildcardSyntax,
    repository: SettingsRepository,
    faults: Faults,
) -> Iterator[str]:
    """Add contradictions to ``faults``; yield a warning for each setting without effect.

    Each entry is checked as merged with the less specific ones, at its own match.
    """
    for node in core.within("address-settings"):
        match = node.attributes.get("match")
        if match is None:
            continue
        match = with_delimiter(match, markers, wildcard)
        in_force = repository.lookup(literal_name(match, markers) or match)
        _check_zeros(node, in_force, faults)
        warning = _ineffective_page_limit(node, in_force)
        if warning is not None:
            line, text = warning
            yield f"{faults.place(line)}: {text}"


def _check_zeros(node: Node, in_force: AddressSettings, faults: Faults) -> None:
    if in_force.address_full_policy not in (FullPolicy.BLOCK, FullPolicy.DROP, FullPolicy.FAIL):
        return
    for name in ("max-size-bytes", "max-size-messages"):
        limit = node.first(name)
        if limit is not None and limit.value == 0:
            policy = in_force.address_full_policy
            faults.add(
                limit.line,
                f"<{name}> is '0': with {policy} the address would accept no message; 0 requires PAGE",
            )


def _ineffective_page_limit(node: Node, in_force: AddressSettings) -> tuple[int, str] | None:
    """``page-full-policy`` and the limits that it is for mean nothing without each other, as in Artemis."""
    declared = next((child for child in map(node.first, PAGE_LIMIT_ELEMENTS) if child is not None), None)
    if declared is None:
        return None
    limited = max(in_force.page_limit_bytes, in_force.page_limit_messages) >= 0
    if limited and in_force.page_full_policy is None:
        return declared.line, "the page limit has no effect without <page-full-policy> (DROP or FAIL)"
    if in_force.page_full_policy is not None and not limited:
        return (
            declared.line,
            "<page-full-policy> has no effect without <page-limit-bytes> or <page-limit-messages>",
        )
    return None


PAGE_NEEDS_STORE = (
    "paging requires <persistence-enabled> to be true; producers of full addresses are blocked (BLOCK)"
)


def _pages_without_store(core: Node) -> Iterator[IgnoredSetting]:
    for node in core.within("address-settings"):
        policy = node.first("address-full-policy")
        if policy is not None and policy.value is FullPolicy.PAGE:
            yield IgnoredSetting(policy.line, "<address-full-policy> is 'PAGE'", PAGE_NEEDS_STORE, True)


def _without_pages(entry: AddressSettingEntry) -> AddressSettingEntry:
    """The entry of a broker without a store: BLOCK in place of PAGE, as by default."""
    if entry.values.get("address_full_policy") is not FullPolicy.PAGE:
        return entry
    return replace(entry, values=MappingProxyType({**entry.values, "address_full_policy": FullPolicy.BLOCK}))


QUEUE_SEPARATOR = "::"
"""Separator of address and queue in ``match``."""


def read_security_settings(
    core: Node, wildcard: WildcardSyntax, markers: str | None, faults: Faults
) -> tuple[SecuritySettingEntry, ...]:
    """The ``<security-setting>`` elements. Matches, and the permissions of one match, must be unique."""
    entries: dict[str, SecuritySettingEntry] = {}
    for node in core.within("security-settings"):
        match = node.attributes.get("match")
        if match is None:
            continue
        match = with_delimiter(match, markers, wildcard)
        if match in entries:
            faults.add(
                node.line, f"security-setting '{match}' is already defined at line {entries[match].line}"
            )
        if literal_name(match, markers) is None:
            for text in _wrong_match(match, wildcard):
                faults.add(node.line, f"match '{match}': {text}")
        roles = MappingProxyType(dict(_permissions(node, faults)))
        entries.setdefault(match, SecuritySettingEntry(match, roles, node.line))
    return tuple(entries.values())


def _wrong_match(match: str, wildcard: WildcardSyntax) -> Iterator[str]:
    address, qualified, queue = match.partition(QUEUE_SEPARATOR)
    if qualified and (not address or not queue or QUEUE_SEPARATOR in queue):
        yield "a queue is written as address::queue"
    pattern = Pattern(address, wildcard)
    if qualified and pattern.is_wildcard:
        yield "the address in address::queue must not contain wildcards"
    for word in pattern.half_wildcards():
        yield (
            f"'{wildcard.single_word}' and '{wildcard.any_words}' are wildcards only as whole words, not in '{word}'; "
            "to match such an address literally use <literal-match-markers>"
        )


def _permissions(setting: Node, faults: Faults) -> Iterator[tuple[PermissionType, frozenset[str]]]:
    lines: dict[PermissionType, int] = {}
    for node in setting.all("permission"):
        kind, roles = node.attributes.get("type"), node.attributes.get("roles")
        if kind is None or roles is None:
            continue
        if kind in lines:
            faults.add(
                node.line,
                f"permission '{kind}' is already defined at line {lines[kind]}; list all its roles there",
            )
            continue
        lines[kind] = node.line
        yield kind, frozenset(roles)


#: Artemis's old name of ``max-sessions``, which it still accepts.
MAX_SESSIONS_OLD_NAME = "max-connections"


def read_resource_limits(core: Node, faults: Faults) -> tuple[ResourceLimit, ...]:
    """The ``<resource-limit-setting>`` elements, one per user."""
    limits: dict[str, ResourceLimit] = {}
    lines: dict[str, int] = {}
    for node in core.within("resource-limit-settings"):
        user = node.attributes.get("match")
        if user is None:
            continue
        if user in limits:
            faults.add(node.line, f"resource-limit-setting '{user}' is already defined at line {lines[user]}")
            continue
        sessions, old = node.first("max-sessions"), node.first(MAX_SESSIONS_OLD_NAME)
        if sessions is not None and old is not None:
            faults.add(
                old.line,
                f"<{MAX_SESSIONS_OLD_NAME}> is the old name of <max-sessions>, already defined at line {sessions.line}",
            )
        limit = sessions or old
        queues = node.first("max-queues")
        lines[user] = node.line
        limits[user] = ResourceLimit(
            user,
            -1 if limit is None or limit.value is None else limit.value,
            -1 if queues is None or queues.value is None else queues.value,
        )
    return tuple(limits.values())
