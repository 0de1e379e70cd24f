"""The ``<bridge>`` elements, with the ``<connector>`` elements that they name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stompring.settings.acceptor_url import Ignored
from stompring.settings.connector import Connector
from stompring.settings.connector_url import parse_connector, with_absolute_paths
from stompring.settings.document import Faults, Node
from stompring.settings.match import INTERNAL, is_internal
from stompring.settings.model import BridgeConfiguration, IgnoredSetting, PluginConfiguration
from stompring.settings.references import References, Secret, revealed
from stompring.settings.schema import with_suggestion
from stompring.settings.transformer import read_transformer


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
    return with_absolute_paths(connector, Path(faults.file).parent)


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
