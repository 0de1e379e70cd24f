"""Which settings are in force for an address: all entries that match it, merged by specificity.

The most specific entry that sets a value decides it; what none sets has its default (`AddressSettings`). Of
``address-policy`` each name is a value of its own: an address has the policies of all entries, the least specific
first. A literal match, as ``(orders.#)`` with ``literal-match-markers`` ``()``, stands for the one address of that
very name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from stompring.settings.model import (
    AddressSettingEntry,
    AddressSettings,
    BrokerConfiguration,
    FullPolicy,
    PolicyUse,
    WildcardSyntax,
)
from stompring.settings.wildcard import DEFAULT_SYNTAX, Pattern

DEFAULTS = AddressSettings()
DEFAULTS_IN_MEMORY = AddressSettings(address_full_policy=FullPolicy.BLOCK)

REMEMBERED = 16_384
"""Addresses whose settings are remembered. One beyond them costs a walk over the wildcard entries."""


class SettingsRepository:
    """The ``<address-setting>`` entries of one configuration. Immutable: a reload makes a new one.

    Of two entries with the same match the later one counts.
    """

    def __init__(
        self,
        entries: Iterable[AddressSettingEntry] = (),
        wildcard: WildcardSyntax = DEFAULT_SYNTAX,
        literal_match_markers: str | None = None,
        defaults: AddressSettings = DEFAULTS,
    ) -> None:
        self._defaults = defaults
        self._delimiter = wildcard.delimiter
        self._entries = tuple(entries)
        # Below, an entry is its place in the tuple above.
        self._exact: dict[str, int] = {}
        self._literal: dict[str, int] = {}
        patterns: dict[str, tuple[Pattern, int]] = {}
        for place, entry in enumerate(self._entries):
            literal = literal_name(entry.match, literal_match_markers)
            pattern = Pattern(entry.match, wildcard)
            if literal is not None:
                self._literal[literal] = place
            elif pattern.is_wildcard:
                patterns[entry.match] = (pattern, place)
            else:
                self._exact[entry.match] = place
        self._patterns = sorted(patterns.values(), key=lambda pair: pair[0].specificity)
        self._remembered = lru_cache(REMEMBERED)(self._look_up)
        # Ten thousand addresses under the same entries share one object.
        self._merged = lru_cache(REMEMBERED)(self._merge)

    @classmethod
    def of(cls, configuration: BrokerConfiguration) -> SettingsRepository:
        """The entries of a whole broker.xml. Without a store a full address cannot page: BLOCK is its default."""
        return cls(
            configuration.address_settings,
            configuration.wildcard,
            configuration.literal_match_markers,
            defaults_of(configuration.persistence_enabled),
        )

    def lookup(self, address: str) -> AddressSettings:
        """The settings in force for ``address``."""
        return self._remembered(address)

    def entries_for(self, address: str) -> tuple[AddressSettingEntry, ...]:
        """The entries that match ``address``, the most specific first."""
        return tuple(self._entries[place] for place in self._places(address))

    def _places(self, address: str) -> tuple[int, ...]:
        named = (self._exact.get(address), self._literal.get(address))
        found = [place for place in named if place is not None]
        words = address.split(self._delimiter)
        found += [place for pattern, place in self._patterns if pattern.matches_words(words)]
        return tuple(found)

    def _look_up(self, address: str) -> AddressSettings:
        return self._merged(self._places(address))

    def _merge(self, places: tuple[int, ...]) -> AddressSettings:
        values: dict[str, Any] = {}
        policies: dict[str, PolicyUse] = {}
        for place in reversed(places):
            entry = self._entries[place].values
            values.update(entry)
            uses: Any = entry.get("address_policy", ())
            policies.update((use.name, use) for use in uses)
        if policies:
            values["address_policy"] = tuple(policies.values())
        return replace(self._defaults, **values)


def defaults_of(persistence_enabled: bool) -> AddressSettings:
    """The settings of an address that no entry is for."""
    return DEFAULTS if persistence_enabled else DEFAULTS_IN_MEMORY


def literal_name(match: str, markers: str | None) -> str | None:
    """The one address that ``match`` names between ``markers``; None where it is not so written."""
    if markers is None or len(match) < 2 or (match[0], match[-1]) != (markers[0], markers[1]):
        return None
    return match[1:-1]
