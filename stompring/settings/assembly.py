"""From the checked document to the `BrokerConfiguration`; finds contradictions between elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from stompring.settings.acceptor import HttpAcceptor, StompAcceptor
from stompring.settings.acceptor_url import Acceptor, is_loopback, parse_acceptor
from stompring.settings.document import Node, snake
from stompring.settings.faults import Faults
from stompring.settings.full_addresses import check_limits
from stompring.settings.listener_parameters import resolved
from stompring.settings.machine_memory import (
    default_dispatch_memory,
    default_global_max_size,
    default_transaction_memory,
    machine_memory,
)
from stompring.settings.match import SettingsRepository, defaults_of, literal_name
from stompring.settings.model import (
    AddressConfiguration,
    AddressSettingEntry,
    BrokerConfiguration,
    PluginConfiguration,
    QueueConfiguration,
    Retention,
    RoutingType,
    TimeUnit,
    WildcardSyntax,
)
from stompring.settings.plugins import read_plugins, read_uses
from stompring.settings.references import References
from stompring.settings.resource_limits import read_resource_limits
from stompring.settings.security_settings import read_security_settings
from stompring.settings.wildcard import Pattern

SAMPLE_PERIOD = Retention("").sample_period

SECURITY_FILES: Mapping[str, str | None] = {
    "users_file": "users.properties",
    "roles_file": "roles.properties",
    "certificate_users_file": None,
}
"""What security is made of beside broker.xml, and what these files are called where it does not say."""


def assemble(core: Node, faults: Faults, references: References) -> BrokerConfiguration:
    """The configuration that ``core`` describes. Contradictions are noted in ``faults``."""
    plain = core.leaves()
    wildcard = _wildcard(core.first("wildcard-addresses"), faults)
    markers = plain.get("literal_match_markers")
    persistent = plain.get("persistence_enabled", BrokerConfiguration().persistence_enabled)
    plugins = read_plugins(core, faults)
    settings = tuple(_address_settings(core.within("address-settings"), wildcard, markers, plugins, faults))
    repository = SettingsRepository(settings, wildcard, markers, defaults_of(persistent))
    warnings = (*check_limits(core, persistent, markers, repository, faults), *_unused_retain(core, faults))
    _check_directories(core, faults)
    _fill_in_memory(plain)
    plain["journal_retention_directory"] = _retention(core.first("journal-retention-directory"), core, faults)
    secure = plain.get("security_enabled", BrokerConfiguration().security_enabled)
    acceptors = list(_acceptors(core.within("acceptors"), secure, faults, references))
    for name, usual in SECURITY_FILES.items():
        plain[name] = _beside(faults.file, plain.get(name) or (usual if secure else None))
    return BrokerConfiguration(
        **plain,
        file=faults.file,
        warnings=warnings,
        wildcard=wildcard,
        stomp_acceptors=tuple(found for found in acceptors if isinstance(found, StompAcceptor)),
        http_acceptors=tuple(found for found in acceptors if isinstance(found, HttpAcceptor)),
        plugins=plugins,
        resource_limits=read_resource_limits(core, faults),
        security_settings=read_security_settings(core, wildcard, markers, faults),
        address_settings=settings,
        addresses=tuple(_addresses(core.within("addresses"), repository, faults)),
    )


def _check_directories(core: Node, faults: Faults) -> None:
    journal, paging = core.first("journal-directory"), core.first("paging-directory")
    default = BrokerConfiguration()
    used = (
        default.journal_directory if journal is None else journal.value,
        default.paging_directory if paging is None else paging.value,
    )
    said = paging or journal
    if said is not None and None not in used and Path(used[0]) == Path(used[1]):
        faults.add(said.line, "<journal-directory> and <paging-directory> must be two different directories")


def _retention(node: Node | None, core: Node, faults: Faults) -> Retention | None:
    if node is None or node.value is None:
        return None
    given = node.attributes
    period, unit = given.get("period", -1), given.get("unit", TimeUnit.DAYS)
    others = [core.first(name) for name in ("journal-directory", "paging-directory")]
    if any(other is not None and Path(other.value) == Path(node.value) for other in others):
        faults.add(node.line, "<journal-retention-directory> must be a directory of its own")
    persistent = core.first("persistence-enabled")
    if persistent is not None and persistent.value is False:
        faults.add(
            node.line, "<journal-retention-directory> needs a store, and <persistence-enabled> is false"
        )
    return Retention(
        directory=node.value,
        period=period if period < 0 else period * unit.milliseconds,
        storage_limit=given.get("storage-limit", -1),
        sample_period=given.get("sample-period", SAMPLE_PERIOD),
    )


def _unused_retain(core: Node, faults: Faults) -> Iterator[str]:
    """Warnings where ``retain`` says what is retained, and nothing is."""
    directory = core.first("journal-retention-directory")
    if directory is not None and directory.value is not None:
        return
    for node in core.within("address-settings"):
        retain = node.first("retain")
        if retain is not None:
            yield f"{faults.file}:{retain.line}: <retain> has no effect without <journal-retention-directory>"


def _fill_in_memory(plain: dict[str, Any]) -> None:
    """Sizes whose defaults are shares of what there is."""
    memory = machine_memory()
    size = plain.setdefault("global_max_size", default_global_max_size(memory))
    plain.setdefault("dispatch_memory", default_dispatch_memory(size, memory))
    plain.setdefault("global_max_transaction_size", default_transaction_memory(size, memory))


def _beside(file: str, name: str | None) -> str | None:
    return None if name is None else str(Path(file).parent / name)


def _wildcard(node: Node | None, faults: Faults) -> WildcardSyntax:
    if node is None:
        return WildcardSyntax()
    syntax = WildcardSyntax(**node.leaves())
    if len({syntax.delimiter, syntax.any_words, syntax.single_word}) < 3:
        faults.add(node.line, "delimiter, any-words and single-word must be three different characters")
    return syntax


class _Once:
    """Names that may be given once, with the line that gave them."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._lines: dict[str, int] = {}

    def take(self, what: str, line: int) -> None:
        """Note a fault where ``what`` was taken before."""
        if what in self._lines:
            self._faults.add(line, f"{what} is already given at line {self._lines[what]}")
        self._lines.setdefault(what, line)


def _acceptors(
    nodes: Iterable[Node], secure: bool, faults: Faults, references: References
) -> Iterator[Acceptor]:
    once = _Once(faults)
    for node in nodes:
        name, url = node.attributes.get("name"), node.value
        if name is None or url is None:
            continue
        once.take(f"acceptor '{name}'", node.line)
        try:
            acceptor = parse_acceptor(name, url, references.resolve)
        except ValueError as error:
            for text in str(error).splitlines():
                faults.add(node.line, f"acceptor '{name}': {text}")
            continue
        if acceptor.port:  # port 0 is any free one
            once.take(f"a listener on {acceptor.host}:{acceptor.port}", node.line)
        if not secure and not is_loopback(acceptor.host):
            faults.add(node.line, _exposed(acceptor))
        yield resolved(acceptor, Path(faults.file).parent)


def _exposed(acceptor: Acceptor) -> str:
    return (
        f"acceptor '{acceptor.name}' listens on {acceptor.host}, beyond this machine, with security switched "
        "off: anybody could use it. To allow it set <security-enabled> to true and add users with "
        "'stompring user add'; or listen on 127.0.0.1"
    )


def _address_settings(
    nodes: Iterable[Node],
    wildcard: WildcardSyntax,
    markers: str | None,
    plugins: tuple[PluginConfiguration, ...],
    faults: Faults,
) -> Iterator[AddressSettingEntry]:
    once = _Once(faults)
    for node in nodes:
        match = node.attributes.get("match")
        if match is None:
            continue
        once.take(f"address-setting '{match}'", node.line)
        if literal_name(match, markers) is None:
            for word in Pattern(match, wildcard).half_wildcards():
                faults.add(node.line, _half_wildcard(match, word, wildcard))
        values = node.leaves() | read_uses(node, plugins, faults)
        least, most = values.get("min_expiry_delay", -1), values.get("max_expiry_delay", -1)
        if -1 < most < least:
            faults.add(node.line, f"min-expiry-delay ({least}) is above max-expiry-delay ({most})")
        yield AddressSettingEntry(match, MappingProxyType(values), node.line)


def _half_wildcard(match: str, word: str, wildcard: WildcardSyntax) -> str:
    return (
        f"match '{match}': '{wildcard.single_word}' and '{wildcard.any_words}' are wildcards only as whole "
        f"words, which '{word}' is not; to name such an address literally use <literal-match-markers>"
    )


def _addresses(
    nodes: Iterable[Node], repository: SettingsRepository, faults: Faults
) -> Iterator[AddressConfiguration]:
    once = _Once(faults)
    for node in nodes:
        name = node.attributes.get("name")
        if name is None:
            continue
        once.take(f"address '{name}'", node.line)
        queues: list[QueueConfiguration] = []
        types: set[RoutingType] = set()
        for routing_type in RoutingType:
            holder = node.first(routing_type.lower())
            if holder is not None:
                types.add(routing_type)
                queues += _queues(holder.children, name, routing_type, once, faults)
        if not types:
            types.add(repository.lookup(name).default_address_routing_type)
        yield AddressConfiguration(name, frozenset(types), tuple(queues))


def _queues(
    nodes: Iterable[Node], address: str, routing_type: RoutingType, once: _Once, faults: Faults
) -> Iterator[QueueConfiguration]:
    for node in nodes:
        values = {snake(key): value for key, value in node.attributes.items()}
        inside = node.leaves()
        if "user" in values and "user" in inside:
            faults.add(node.line, "<queue> gives its user twice, as an attribute and as an element")
        if "name" in values:
            once.take(f"queue '{values['name']}'", node.line)
            holder = node.first("filter")
            condition = holder.attributes.get("string") if holder else None
            yield QueueConfiguration(
                **(values | inside), address=address, routing_type=routing_type, filter=condition
            )
