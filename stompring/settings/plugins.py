"""What a broker.xml says about plugins: ``<broker-plugins>``, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stompring.settings.document import Node
from stompring.settings.faults import Faults
from stompring.settings.model import FullPolicy, PluginConfiguration, PolicyUse, Property
from stompring.settings.nearest import unknown


def read_plugins(core: Node, faults: Faults) -> tuple[PluginConfiguration, ...]:
    """The ``<broker-plugin>`` elements. Names are for one each, and none of them is built in."""
    plugins: dict[str, PluginConfiguration] = {}
    for node in core.within("broker-plugins"):
        name = node.attributes.get("name")
        if name is None:
            continue
        if name in plugins:
            faults.add(node.line, f"broker-plugin '{name}' is already given at line {plugins[name].line}")
        elif name.upper() in list(FullPolicy):
            faults.add(node.line, f"broker-plugin '{name}': {name.upper()} is built in; give it another name")
        else:
            policy = node.attributes.get("policy", name)
            plugins[name] = PluginConfiguration(name, policy, _properties(node, faults), node.line)
    return tuple(plugins.values())


def read_uses(setting: Node, plugins: Iterable[PluginConfiguration], faults: Faults) -> dict[str, Any]:
    """What an ``<address-setting>`` says about policies, as values of `AddressSettings`."""
    known = [plugin.name for plugin in plugins]
    full = setting.first("address-full-policy")
    if full is not None and full.value is not None and full.value not in (*FullPolicy, *known):
        text = f"<address-full-policy> is '{full.value}': must be one of {', '.join(FullPolicy)}, or a <broker-plugin>"
        faults.add(full.line, unknown(text, full.value, [*FullPolicy, *known]))
    uses = tuple(_uses(setting, known, faults))
    return {"address_policy": uses} if uses else {}


def _uses(setting: Node, known: list[str], faults: Faults) -> Iterator[PolicyUse]:
    lines: dict[str, int] = {}
    for node in setting.all("address-policy"):
        name = node.attributes.get("name")
        if name is None:
            continue
        if name not in known:
            text = f'<address-policy name="{name}"> is no <broker-plugin>'
            if not known:
                text += f'; declare it: <broker-plugins><broker-plugin name="{name}"/></broker-plugins>'
            faults.add(node.line, unknown(text, name, known))
        elif name in lines:
            text = f'<address-policy name="{name}"> is given twice; the first is at line {lines[name]}'
            faults.add(
                node.line, text + "; to have it twice declare a second <broker-plugin> with its policy"
            )
        else:
            yield PolicyUse(name, _properties(node, faults), node.attributes.get("enabled", True), node.line)
        lines.setdefault(name, node.line)


def _properties(node: Node, faults: Faults) -> tuple[Property, ...]:
    properties: dict[str, Property] = {}
    for one in node.all("property"):
        key, value = one.attributes.get("key"), one.attributes.get("value")
        if key is None or value is None:
            continue
        if key in properties:
            faults.add(one.line, f"property '{key}' is already given at line {properties[key].line}")
        else:
            properties[key] = Property(key, value, one.line)
    return tuple(properties.values())
