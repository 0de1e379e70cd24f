"""What a broker.xml says about permissions: ``<security-settings>``."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from stompring.settings.document import Node
from stompring.settings.faults import Faults
from stompring.settings.match import literal_name
from stompring.settings.model import WildcardSyntax
from stompring.settings.security_setting import PermissionType, SecuritySettingEntry
from stompring.settings.wildcard import Pattern

QUALIFIED = "::"
"""Stands between an address and a queue."""


def read_security_settings(
    core: Node, wildcard: WildcardSyntax, markers: str | None, faults: Faults
) -> tuple[SecuritySettingEntry, ...]:
    """The ``<security-setting>`` elements. Each match and each permission of it is for one each."""
    entries: dict[str, SecuritySettingEntry] = {}
    for node in core.within("security-settings"):
        match = node.attributes.get("match")
        if match is None:
            continue
        if match in entries:
            faults.add(
                node.line, f"security-setting '{match}' is already given at line {entries[match].line}"
            )
        if literal_name(match, markers) is None:
            for text in _wrong_match(match, wildcard):
                faults.add(node.line, f"match '{match}': {text}")
        roles = MappingProxyType(dict(_permissions(node, faults)))
        entries.setdefault(match, SecuritySettingEntry(match, roles, node.line))
    return tuple(entries.values())


def _wrong_match(match: str, wildcard: WildcardSyntax) -> Iterator[str]:
    address, qualified, queue = match.partition(QUALIFIED)
    if qualified and (not address or not queue or QUALIFIED in queue):
        yield "a queue is named as address::queue"
    pattern = Pattern(address, wildcard)
    if qualified and pattern.is_wildcard:
        yield "the address of a queue is taken as it is, without wildcards"
    for word in pattern.half_wildcards():
        yield (
            f"'{wildcard.single_word}' and '{wildcard.any_words}' are wildcards only as whole words, which "
            f"'{word}' is not; to name such an address literally use <literal-match-markers>"
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
                f"permission '{kind}' is already given at line {lines[kind]}; write all its roles there",
            )
            continue
        lines[kind] = node.line
        yield kind, frozenset(roles)
