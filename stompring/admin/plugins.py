"""``/api/v1/plugins``: the address policies that broker.xml names, their parameters, uses, errors and slow calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stompring.policy.api import AddressPolicy
from stompring.settings.model import AddressSettingEntry, PluginConfiguration, PolicyUse, Property
from stompring.settings.references import hidden

from .access import view_broker
from .api import Answer, Call, Response, Route, json_answer
from .context import AdminContext
from .json_schema import Component, array, boolean, integer, keyword, number, string, structure, timestamp

#: The hooks that a policy may override, in the order of `AddressPolicy`.
HOOKS = [
    name
    for name, value in vars(AddressPolicy).items()
    if inspect.isfunction(value) and not name.startswith("_") and name != "check"
]


def plugins(call: Call) -> Answer:
    return json_answer({"data": list(entries(call.context))})


def entries(context: AdminContext) -> Iterator[dict[str, Any]]:
    """The broker-plugins in the order of broker.xml."""
    policies = context.policies
    counts = policies.address_counts()
    for plugin in context.configuration.plugins:
        kind = policies.kinds.get(plugin.name)
        uses = list(uses_of(plugin, context.configuration.address_settings))
        last = policies.recorded.last.get(plugin.name)
        yield {
            "name": plugin.name,
            "plugin": plugin.policy,
            "class": "" if kind is None else kind.__qualname__,
            "description": "" if kind is None else first_line(kind),
            "parameters": [] if kind is None else list(parameters_of(kind, plugin)),
            "matches": [use.match for use in uses if use.enabled],
            "uses": [
                {
                    "match": use.match,
                    "line": use.line,
                    "element": use.element,
                    "enabled": use.enabled,
                    "parameters": {one.key: shown(one) for one in use.properties},
                }
                for use in uses
            ],
            "addresses": counts[plugin.name],
            "hooks": list(hooks_of(context, plugin.name, kind)),
            "lastError": None
            if last is None
            else {"time": last.time, "address": last.address, "hook": last.hook, "text": last.text},
        }


def first_line(kind: type[AddressPolicy]) -> str:
    """The first line of the docstring of a class, or of its module."""
    text = kind.__doc__ or getattr(inspect.getmodule(kind), "__doc__", None) or ""
    return text.strip().partition("\n")[0].strip()


def shown(one: Property) -> object:
    """The value of a property, stars for a secret."""
    return hidden(one.value)


def parameters_of(kind: type[AddressPolicy], plugin: PluginConfiguration) -> Iterator[dict[str, Any]]:
    """The parameters of a policy with the values of the broker-plugin."""
    given = {one.key: one for one in plugin.properties}
    for parameter in kind.parameters.values():
        own = given.get(parameter.key)
        default = None if parameter.required or parameter.default is None else parameter.shown_default
        yield {
            "name": parameter.key,
            "value": default if own is None else shown(own),
            "default": default,
            "required": parameter.required,
            "type": parameter.takes,
            "source": "default" if own is None else "broker-plugin",
            "meaning": parameter.help,
        }


@dataclass(frozen=True, slots=True)
class Use:
    """One address-setting that names a policy."""

    match: str
    line: int | None
    element: str
    enabled: bool
    properties: tuple[Property, ...]


def uses_of(plugin: PluginConfiguration, settings: tuple[AddressSettingEntry, ...]) -> Iterator[Use]:
    """The address-settings that name a policy."""
    for entry in settings:
        named: Any = entry.values.get("address_policy", ())
        policy: PolicyUse
        for policy in named:
            if policy.name == plugin.name:
                line = policy.line or entry.line
                yield Use(entry.match, line, "address-policy", policy.enabled, policy.properties)
        if entry.values.get("address_full_policy") == plugin.name:
            yield Use(entry.match, entry.line, "address-full-policy", True, ())


def hooks_of(context: AdminContext, name: str, kind: type[AddressPolicy] | None) -> Iterator[dict[str, Any]]:
    """The hooks that a policy overrides, and others with an error, as ``timer``."""
    recorded = context.policies.recorded
    overridden = [
        hook for hook in HOOKS if kind is not None and getattr(kind, hook) is not getattr(AddressPolicy, hook)
    ]
    others = [hook for policy, hook in (*recorded.counts, *recorded.slow) if policy == name]
    for hook in dict.fromkeys((*overridden, *others)):
        key = (name, hook)
        yield {
            "hook": hook,
            "errors": recorded.counts.get(key, 0),
            "slow": recorded.slow.get(key, 0),
            "longest": round(recorded.longest.get(key, 0.0) * 1000, 3),
        }


TEXT = {"type": "string"}
PARAMETER = structure(
    {
        "name": string("Key of the property."),
        "value": string("Value for the addresses without own properties; *** for a secret.", null=True),
        "default": string("Default.", null=True),
        "required": boolean("Whether it has no default."),
        "type": string("Type and bounds of its values."),
        "source": keyword(("broker-plugin", "default"), "Where the value comes from."),
        "meaning": string("Meaning."),
    }
)
USE = structure(
    {
        "match": string("match of the address-setting."),
        "line": integer("Line in broker.xml.", 1, null=True),
        "element": keyword(("address-policy", "address-full-policy"), "Element that names the policy."),
        "enabled": boolean("Whether it applies; false removes the policy of a less specific entry."),
        "parameters": {
            "type": "object",
            "description": "Own properties: values for these addresses.",
            "additionalProperties": TEXT,
        },
    }
)
HOOK = structure(
    {
        "hook": string("Name of the hook."),
        "errors": integer("Exceptions since the broker started."),
        "slow": integer("Calls longer than 20 ms since the broker started."),
        "longest": number("Longest of these calls, in milliseconds."),
    }
)
LAST_ERROR = structure(
    {
        "time": timestamp("Time of the last exception."),
        "address": string("Address."),
        "hook": string("Hook."),
        "text": string("Type and text of the exception."),
    }
)
PLUGIN = Component(
    "Plugin",
    structure(
        {
            "name": string("Name of the broker-plugin."),
            "plugin": string("Name of the policy: of its module or entry point."),
            "class": string("Name of its class."),
            "description": string("First line of its docstring."),
            "parameters": array(PARAMETER, "Parameters."),
            "matches": array(TEXT, "match of each address-setting that applies it."),
            "uses": array(USE, "Address-settings that name it, with their own properties."),
            "addresses": integer("Number of addresses with the policy."),
            "hooks": array(HOOK, "Hooks that it overrides."),
            "lastError": {
                "description": "Last exception; null: none.",
                "anyOf": [LAST_ERROR, {"type": "null"}],
            },
        }
    ),
)

ROUTES = (
    Route(
        "GET",
        "/api/v1/plugins",
        plugins,
        view_broker,
        "plugins",
        "Show the address policies that broker.xml names.",
        {200: Response("The policies.", structure({"data": array(PLUGIN, "Policies.")}))},
    ),
)
