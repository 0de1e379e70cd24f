"""The policies that a broker.xml names: ``<broker-plugin>``, and its uses as ``<address-policy>``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stompring.settings.document import Faults, Node
from stompring.settings.model import FullPolicy, PluginConfiguration, PolicyUse, Property
from stompring.settings.schema import with_suggestion


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
