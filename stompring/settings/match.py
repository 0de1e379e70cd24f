"""Address patterns (Artemis, wildcard syntax), and the address-settings in force for an address.

``*`` stands for exactly one word and ``#`` for any number of words, including none. The delimiter is ``.``;
``<wildcard-addresses>`` changes all three. A wildcard is a whole word: in ``a.b*`` the star is an ordinary
character. ``#`` may stand anywhere, in address-settings too, where Artemis takes it only at the end. At the end of
a match it may follow a word without a delimiter (`with_delimiter`).

All entries that match an address are merged by specificity: the most specific entry that sets a value decides it, and
the defaults of `AddressSettings` apply to the other values. An address has the policies (``address-policy``) of all
entries, the least specific first. A literal match, as ``(orders.#)`` with ``literal-match-markers`` ``()``, matches
only the address ``orders.#``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from .model import (
    AddressSettingEntry,
    AddressSettings,
    BrokerConfiguration,
    DivertConfiguration,
    FullPolicy,
    PolicyUse,
    WildcardSyntax,
)

DEFAULT_SYNTAX = WildcardSyntax()


class Pattern:
    """An address that may contain wildcards, split into words once."""

    __slots__ = ("_any", "_delimiter", "_single", "_words", "is_wildcard", "specificity", "text")

    def __init__(self, text: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self.text = text
        self._delimiter = syntax.delimiter
        self._any = syntax.any_words
        self._single = syntax.single_word
        self._words = tuple(text.split(syntax.delimiter))
        kinds = tuple(2 if word == self._any else word == self._single for word in self._words)
        self.is_wildcard = any(kinds)
        # A sort key: the most specific pattern is first. Plain names are first, then patterns with only ``*``, then
        # patterns with ``#``. Of two patterns with ``#`` the longer one is first. Otherwise the first word of another
        # kind decides (a name is before ``*``, and ``*`` before ``#``), then the text. Artemis does not order two
        # patterns with ``#`` of the same length.
        self.specificity = (max(kinds), -len(text) if 2 in kinds else 0, kinds, text)

    def matches(self, address: str) -> bool:
        """Whether this pattern matches ``address``. Wildcards in ``address`` are ordinary words."""
        if not self.is_wildcard:
            return address == self.text
        return self.matches_words(address.split(self._delimiter))

    def matches_words(self, address: list[str]) -> bool:
        """Match an address that is already split into words."""
        words, many, single = self._words, self._any, self._single
        at = here = 0  # positions in the pattern and in the address
        behind = begin = -1  # positions in pattern and address after the last any-words wildcard
        while here < len(address):
            word = words[at] if at < len(words) else None
            if word == many:
                at += 1
                behind, begin = at, here
            elif word in (single, address[here]):
                at += 1
                here += 1
            elif behind < 0:
                return False
            # extend the last any-words wildcard by a word; earlier wildcards match as few words as possible
            else:
                begin += 1
                at, here = behind, begin
        return all(word == many for word in words[at:])

    def half_wildcards(self) -> tuple[str, ...]:
        """The words with a wildcard and other characters. In such a word the wildcard is an ordinary character."""
        marks = (self._any, self._single)
        others = (word for word in self._words if word not in marks)
        return tuple(word for word in others if any(mark in word for mark in marks))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def matches(pattern: str, address: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> bool:
    """Whether ``pattern`` matches ``address``. Create one `Pattern` to match several addresses."""
    return Pattern(pattern, syntax).matches(address)


DEFAULTS = AddressSettings()
DEFAULTS_IN_MEMORY = AddressSettings(address_full_policy=FullPolicy.BLOCK)

CACHED_ADDRESSES = 16_384
"""Number of addresses whose settings are cached. Without the cache a lookup visits all wildcard entries."""


#: Prefix of the names of internal addresses and queues (Artemis, ``internal-naming-prefix``).
INTERNAL_PREFIX = "$.artemis.internal."


#: Suffixes of the internal address and queues of a retroactive address.
INTERNAL_SUFFIXES = (".address.retro", ".queue.anycast.retro", ".queue.multicast.retro")


def is_internal(name: str) -> bool:
    """Whether an address or a queue is for the broker's own use."""
    return name.startswith(INTERNAL_PREFIX)


#: The reason for which broker.xml must not have an internal name.
INTERNAL = "it is for messages of a retroactive address"


def owner_of(name: str) -> str:
    """The address whose messages an internal address or queue stores; any other name is returned unchanged.

    An internal name without a known suffix is returned unchanged, too.
    """
    while is_internal(name):
        suffix = next((each for each in INTERNAL_SUFFIXES if name.endswith(each)), None)
        if suffix is None:
            return name
        name = name[len(INTERNAL_PREFIX) : -len(suffix)]
    return name


#: Prefixes of the names of temporary queues and topics; the id of their connection follows.
TEMPORARY_QUEUE, TEMPORARY_TOPIC = "temp-queue.", "temp-topic."


def connection_of(name: str) -> str | None:
    """The id of the connection that a temporary queue or topic belongs to; None for any other address."""
    name = owner_of(name)
    for prefix in (TEMPORARY_QUEUE, TEMPORARY_TOPIC):
        if name.startswith(prefix):
            return name[len(prefix) :].partition(".")[0]
    return None


#: The settings of internal addresses: the address-settings of broker.xml, such as one for ``#``, do not apply to them.
INTERNAL_SETTINGS = AddressSettings(enable_metrics=False)


class SettingsRepository:
    """The ``<address-setting>`` entries of one configuration. Immutable: a reload creates a new repository.

    The later of two entries with the same match applies.
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
        # The next lines refer to an entry by its index in ``_entries``, so that the keys of `_merged` are integers.
        self._exact: dict[str, int] = {}
        self._literal: dict[str, int] = {}
        patterns: dict[str, tuple[Pattern, int]] = {}
        for index, entry in enumerate(self._entries):
            literal = literal_name(entry.match, literal_match_markers)
            pattern = Pattern(entry.match, wildcard)
            if literal is not None:
                self._literal[literal] = index
            elif pattern.is_wildcard:
                patterns[entry.match] = (pattern, index)
            else:
                self._exact[entry.match] = index
        self._patterns = sorted(patterns.values(), key=lambda pair: pair[0].specificity)
        self._cached = lru_cache(CACHED_ADDRESSES)(self._look_up)
        # All addresses that match the same address-settings share one object.
        self._merged = lru_cache(CACHED_ADDRESSES)(self._merge)

    @classmethod
    def of(cls, configuration: BrokerConfiguration) -> SettingsRepository:
        """The repository of a broker.xml. Without a store addresses cannot page: the default full policy is BLOCK."""
        return cls(
            configuration.address_settings,
            configuration.wildcard,
            configuration.literal_match_markers,
            defaults_of(configuration.persistence_enabled),
        )

    def lookup(self, address: str) -> AddressSettings:
        """The settings in force for ``address``."""
        return self._cached(address)

    def entries_for(self, address: str) -> tuple[AddressSettingEntry, ...]:
        """The address-settings that match ``address``, the most specific first."""
        return tuple(self._entries[index] for index in self._indexes(address))

    def _indexes(self, address: str) -> tuple[int, ...]:
        named = (self._exact.get(address), self._literal.get(address))
        found = [index for index in named if index is not None]
        words = address.split(self._delimiter)
        found += [index for pattern, index in self._patterns if pattern.matches_words(words)]
        return tuple(found)

    def _look_up(self, address: str) -> AddressSettings:
        if is_internal(address):
            return INTERNAL_SETTINGS
        return self._merged(self._indexes(address))

    def _merge(self, indexes: tuple[int, ...]) -> AddressSettings:
        values: dict[str, Any] = {}
        policies: dict[str, PolicyUse] = {}
        for index in reversed(indexes):
            entry = self._entries[index].values
            values.update(entry)
            uses: Any = entry.get("address_policy", ())
            policies.update((use.name, use) for use in uses)
        if policies:
            values["address_policy"] = tuple(policies.values())
        return replace(self._defaults, **values)


def defaults_of(persistence_enabled: bool) -> AddressSettings:
    """The settings of an address that no address-setting matches."""
    return DEFAULTS if persistence_enabled else DEFAULTS_IN_MEMORY


def literal_name(match: str, markers: str | None) -> str | None:
    """The address between ``markers`` in ``match``; None if ``match`` is not a literal match."""
    if markers is None or len(match) < 2 or (match[0], match[-1]) != (markers[0], markers[1]):
        return None
    return match[1:-1]


def with_delimiter(match: str, markers: str | None, syntax: WildcardSyntax) -> str:
    """``match`` with a delimiter before a final any-words: ``orders#`` is ``orders.#``, as in Artemis."""
    if len(match) < 2 or match[-1] != syntax.any_words or literal_name(match, markers) is not None:
        return match
    wildcards = (syntax.delimiter, syntax.any_words, syntax.single_word)
    return match if match[-2] in wildcards else f"{match[:-1]}{syntax.delimiter}{match[-1]}"


#: The first character of the name of a divert that stands for a bridge to this broker: no divert has it in its name.
BRIDGE = "\0"


class DivertLoop(NamedTuple):
    """A loop of diverts: each applies to the copies of the previous divert, and the first to those of the last."""

    diverts: tuple[DivertConfiguration, ...]
    addresses: tuple[str, ...]  # forwarding address of each divert in the loop

    def __str__(self) -> str:
        names = " and ".join(f"divert '{one.name}'" for one in self.diverts).replace(
            f"divert '{BRIDGE}", "bridge '"
        )
        path = " to ".join((self.addresses[-1], *self.addresses))
        form, some = ("forms", "it") if len(self.diverts) == 1 else ("form", "one of them")
        return f"{names} {form} a loop: {path}; a message would be copied without end. Remove {some}"


class DivertGraph:
    """Diverts by the addresses that they apply to."""

    def __init__(self, diverts: Iterable[DivertConfiguration], wildcard: WildcardSyntax) -> None:
        self._wildcard = wildcard
        self._diverts: dict[str, DivertConfiguration] = {}
        self._by_address: dict[str, dict[str, DivertConfiguration]] = {}
        self._by_pattern: dict[str, tuple[Pattern, DivertConfiguration]] = {}
        for one in diverts:
            self.put(one)

    def put(self, divert: DivertConfiguration) -> None:
        """Add a divert. It replaces a divert of the same name."""
        self.remove(divert.name)
        self._diverts[divert.name] = divert
        pattern = self.pattern_of(divert)
        if pattern is not None:
            self._by_pattern[divert.name] = pattern, divert
        else:
            self._by_address.setdefault(divert.address, {})[divert.name] = divert

    def remove(self, name: str) -> None:
        """Remove a divert, if it exists."""
        divert = self._diverts.pop(name, None)
        if divert is not None and self._by_pattern.pop(name, None) is None:
            named = self._by_address[divert.address]
            del named[name]
            if not named:
                del self._by_address[divert.address]

    def pattern_of(self, divert: DivertConfiguration) -> Pattern | None:
        """The wildcard address of a divert; None if its address has no wildcard in effect."""
        pattern = Pattern(divert.address, self._wildcard)
        return pattern if pattern.is_wildcard and self._wildcard.routing_enabled else None

    def of(self, address: str) -> Iterator[DivertConfiguration]:
        """The diverts that apply to an address."""
        yield from self._by_address.get(address, {}).values()
        for pattern, one in self._by_pattern.values():
            if pattern.matches(address):
                yield one

    def loops(self, starts: Iterable[DivertConfiguration] | None = None) -> Iterator[DivertLoop]:
        """Find loops, only those that can be reached from ``starts`` if given; ignores filters.

        Finds at least one of several loops that share a divert.
        """

        def following(divert: DivertConfiguration) -> Iterator[tuple[str, DivertConfiguration]]:
            """The diverts that apply to copies of ``divert``, each with the forwarding address that leads to it."""
            for target in divert.forwarding_address:
                for one in self.of(target):
                    yield target, one

        done: set[str] = set()
        for first in self._diverts.values() if starts is None else starts:
            if first.name in done:
                continue
            path = {first.name: ("", first)}  # diverts by name, each with the address that leads to it
            branches = [following(first)]
            while branches:
                found = next(branches[-1], None)
                if found is None:
                    branches.pop()
                    done.add(path.popitem()[0])
                    continue
                target, after = found
                if after.name in path:
                    addresses, loop = zip(*list(path.values())[list(path).index(after.name) :], strict=True)
                    yield DivertLoop(loop, (*addresses[1:], target))
                elif after.name not in done:
                    path[after.name] = found
                    branches.append(following(after))


def overlaps(one: str, other: str, syntax: WildcardSyntax) -> bool:
    """Whether both patterns match some address."""
    left, right = _normalized_words(one, syntax), _normalized_words(other, syntax)
    many, single = syntax.any_words, syntax.single_word
    # a short cut: the patterns usually differ before the first wildcard
    for word, opposite in zip(left, right, strict=False):
        if many in (word, opposite):
            break
        if word != opposite and single not in (word, opposite):
            return False
    return _match(left, right, syntax, wildcards_in_right=True)


def covers(wide: str, narrow: str, syntax: WildcardSyntax) -> bool:
    """Whether ``wide`` matches every address that ``narrow`` matches. False may be wrong in rare cases, True never."""
    left, right = _normalized_words(wide, syntax), _normalized_words(narrow, syntax)
    return _match(left, right, syntax, wildcards_in_right=False)


def _match(left: list[str], right: list[str], syntax: WildcardSyntax, *, wildcards_in_right: bool) -> bool:
    """Whether the left words match the right ones. Without ``wildcards_in_right`` all right words are ordinary."""
    many, single = syntax.any_words, syntax.single_word
    # row[j]: whether the left words from ``a`` on match the right words from j on
    row = [False] * (len(right) + 2)
    for a in (None, *reversed(left)):
        below, row = row, [False] * (len(right) + 2)
        for j in range(len(right), -1, -1):
            b = right[j] if j < len(right) else None
            if a is None and b is None:
                row[j] = True
            elif a == many or (wildcards_in_right and b == many):
                row[j] = below[j] or row[j + 1]
            elif a is not None and b not in (None, many):
                row[j] = below[j + 1] and (a in (b, single) or (wildcards_in_right and b == single))
    return row[0]


def _normalized_words(address: str, syntax: WildcardSyntax) -> list[str]:
    """The words of a pattern in the normal form of equivalent patterns: ``#.*`` as ``*.#``, ``#.#`` as ``#``."""
    words: list[str] = []
    waiting = False
    for word in address.split(syntax.delimiter):
        if word == syntax.any_words:
            waiting = True
            continue
        if waiting and word != syntax.single_word:
            words.append(syntax.any_words)
            waiting = False
        words.append(word)
    return [*words, syntax.any_words] if waiting else words
