"""From the names in a broker.xml to classes and their parameters: all that is loaded is loaded here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from stompring.broker.hooks import FAULTS
from stompring.settings.document import Faults
from stompring.settings.model import BrokerConfiguration, PluginConfiguration, PolicyUse, Property
from stompring.settings.references import revealed
from stompring.settings.suggestions import with_suggestion

from .address_policy import AddressPolicy
from .source import NotLoaded


@dataclass(frozen=True, slots=True)
class Chosen:
    """A policy with the values of its parameters. Equal ones behave alike."""

    name: str  # as broker.xml calls it
    kind: type[AddressPolicy]
    values: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)  # digests of those among the values
    place: str = field(default="", compare=False)  # FILE:LINE where it is named

    def make(self) -> AddressPolicy:
        """A new object."""
        policy = self.kind()
        for name, value in self.values.items():
            setattr(policy, name, value)
        return policy


class Plugins:
    """The policies that one broker.xml names, each loaded and with its parameters read."""

    def __init__(self, chosen: Mapping[PolicyUse, Chosen]) -> None:
        self._chosen = chosen

    def chosen(self, use: PolicyUse) -> Chosen:
        """What an address-setting names."""
        return self._chosen[use]


class Loads(Protocol):
    """Where policies come from."""

    def load(self, name: str) -> type[AddressPolicy]:
        """The policy of that name. Raises `NotLoaded`."""


def load(configuration: BrokerConfiguration, sources: Loads) -> Plugins:
    """Load what a broker.xml names; nothing is in use yet.

    Raises `ConfigurationError` with all that is wrong, by line.
    """
    file = configuration.file or "broker.xml"
    faults = Faults(file)
    kinds: dict[str, type[AddressPolicy]] = {}
    plugins = {plugin.name: plugin for plugin in configuration.plugins}
    for plugin in configuration.plugins:
        try:
            kinds[plugin.name] = sources.load(plugin.policy)
        except NotLoaded as reason:
            faults.add(plugin.line, f"broker-plugin '{plugin.name}': {reason}")
    reading = _Reading(file, faults)
    chosen: dict[PolicyUse, Chosen] = {}
    for name, kind in kinds.items():
        reading.values(kind, plugins[name].properties, f"broker-plugin '{name}'")
    for use in _uses(configuration, plugins):
        if use.name in kinds:
            found = reading.chosen(use, kinds[use.name], plugins[use.name])
            if found is not None:
                chosen[use] = found
    faults.raise_if_any()
    return Plugins(chosen)


def _uses(
    configuration: BrokerConfiguration, plugins: Mapping[str, PluginConfiguration]
) -> Iterator[PolicyUse]:
    """Where address-settings name a plugin."""
    for entry in configuration.address_settings:
        policies: Any = entry.values.get("address_policy", ())
        yield from (use for use in policies if use.enabled)
        full = entry.values.get("address_full_policy")
        if full in plugins:
            yield PolicyUse(str(full), line=entry.line)


class _Reading:
    """Reads properties, and notes what is wrong with them."""

    def __init__(self, file: str, faults: Faults) -> None:
        self._file = file
        self._folder = Path(file).parent
        self._faults = faults

    def chosen(self, use: PolicyUse, kind: type[AddressPolicy], plugin: PluginConfiguration) -> Chosen | None:
        """What ``use`` means: the properties of the plugin and over them its own. None where that is wrong."""
        what = f"policy '{use.name}'"
        line = use.line or plugin.line
        values = self.values(kind, (*plugin.properties, *use.properties), what)
        if values is None:
            return None
        lacking = [one.key for name, one in kind.parameters.items() if name not in values and one.required]
        if lacking:
            self._faults.add(line, f"{what} lacks its parameter '{lacking[0]}'")
            return None
        defaults = {name: one.default for name, one in kind.parameters.items() if name not in values}
        chosen = Chosen(use.name, kind, defaults | values, _digests(values), f"{self._file}:{line}")
        try:
            chosen.make().check()
        except ValueError as error:
            self._faults.add(line, f"{what}: {error}")
        except FAULTS as error:
            self._faults.add(line, f"{what} failed in check: {type(error).__name__}: {error}")
        else:
            return chosen
        return None

    def values(
        self, kind: type[AddressPolicy], properties: Iterable[Property], what: str
    ) -> dict[str, Any] | None:
        """The values of properties, by the names of their attributes; None where something is wrong with one."""
        known = {one.key: name for name, one in kind.parameters.items()}
        values: dict[str, Any] = {}
        right = True
        for given in properties:
            name = known.get(given.key)
            if name is None:
                self._faults.add(
                    given.line or 1,
                    with_suggestion(f"{what} has no parameter '{given.key}'", given.key, known),
                )
                right = False
                continue
            try:
                values[name] = kind.parameters[name].read(revealed(given.value), self._folder)
            except ValueError as error:
                self._faults.add(given.line or 1, f"{what}: {given.key} is '{given.value}': {error}")
                right = False
        return values if right else None


def _digests(values: Mapping[str, Any]) -> dict[str, bytes]:
    """What the files among some values hold: a policy is another one when one of them has changed."""
    files = {name: value for name, value in values.items() if isinstance(value, Path)}
    return {name: sha256(file.read_bytes()).digest() for name, file in files.items() if file.is_file()}
