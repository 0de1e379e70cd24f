"""``<diverts>`` of broker.xml, and the search for loops of diverts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stompring.settings.document import Faults, Node
from stompring.settings.match import INTERNAL, Pattern, is_internal
from stompring.settings.model import (
    ComponentRoutingType,
    DivertConfiguration,
    PluginConfiguration,
    WildcardSyntax,
)
from stompring.settings.transformer import read_transformer


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
