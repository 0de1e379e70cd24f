"""Changes of diverts, bridges, address-settings and security-settings while the broker runs.

The store has one value for each changed element (`NamedValues`), by its kind and name. The configuration in use is that
of broker.xml with these elements (`stompring.settings.run_time`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from stompring.broker.broker import Broker
from stompring.broker.reference import QueueAttributes
from stompring.errors import ConfigurationError, Refused
from stompring.settings.match import BRIDGE, is_internal
from stompring.settings.model import (
    BridgeConfiguration,
    BrokerConfiguration,
    DivertConfiguration,
    QueueConfiguration,
    options_of,
)
from stompring.settings.network import is_local
from stompring.settings.run_time import (
    KINDS,
    RUN_TIME,
    RunTimeElement,
    Values,
    export,
    key_of,
    literal,
    merged,
    of_file,
    read_section,
    source_of,
    unchanged,
)

log = logging.getLogger(__name__)

QUEUE_ROWS = [row for row in options_of(QueueConfiguration) if row.name != "name"]

#: Applies a configuration that differs in one element, by kind and name. Raises `ConfigurationError` before any change.
Use = Callable[[BrokerConfiguration, str, str], None]


class RunTimeChanges:
    """The changed elements of one broker."""

    def __init__(self, broker: Broker, reactor: Any, use: Use, ports: Callable[[], Container[int]]) -> None:
        """``ports``: those on which the broker accepts STOMP, to find bridges to itself."""
        self._broker = broker
        self._reactor = reactor
        self._use = use
        self._ports = ports
        self._values = broker.storage.values
        self.durable = self._values.durable  # False: a restart loses the changes

    def elements(self, *kinds: str, without: Container[str] = ()) -> list[RunTimeElement]:
        """Return the changed elements of these kinds, or of all kinds. ``without``: names of diverts to leave out."""
        return [
            RunTimeElement(kind, name, **value)
            for kind in kinds or KINDS
            for name, value in self._values.of(kind).items()
            if kind != "divert" or name not in without
        ]

    # ---- start and reload

    def _kept(
        self, configuration: BrokerConfiguration
    ) -> tuple[list[DivertConfiguration], list[RunTimeElement]]:
        """Return the live diverts that a reload leaves as they are, and the changed elements without these diverts.

        Such a divert was created at run time, is not in broker.xml, and has no transformer. There may be many.
        """
        present, of_file = self._broker.configuration, {one.name for one in configuration.diverts}
        kept = [
            one
            for one in present.diverts
            if configuration.wildcard == present.wildcard
            and one.transformer is None
            and source_of(one.line) is RUN_TIME
            and one.name not in of_file
        ]
        return kept, self.elements(*KINDS, without={one.name for one in kept})

    def merge(self, configuration: BrokerConfiguration) -> BrokerConfiguration:
        """Return a configuration of broker.xml with the changed elements. Raises `ConfigurationError`.

        The caller checks the diverts for loops.
        """
        kept, elements = self._kept(configuration)
        if not kept and not elements:
            return configuration
        found = merged(configuration, unchanged(configuration, elements))
        return replace(found, diverts=(*found.diverts, *kept))

    def replaced(self, configuration: BrokerConfiguration) -> dict[str, RunTimeElement]:
        """Return the elements that were edited in broker.xml after their change at run time, by a text about each."""
        _, elements = self._kept(configuration)
        applying = {each.place for each in unchanged(configuration, elements)}
        return {
            f"{each.kind} {each.name}: broker.xml has changed since the {each.kind} was "
            f"{'deleted' if each.element is None else 'changed'} at run time; broker.xml applies": each
            for each in elements
            if each.place not in applying
        }

    def drop(self, configuration: BrokerConfiguration) -> list[str]:
        """Forget the elements that `replaced` returns, log a text about each, and return the texts."""
        replaced = self.replaced(configuration)
        for text, each in replaced.items():
            self._values.put(each.kind, each.name, None)
            log.warning("%s", text)
        return list(replaced)

    def start(
        self, configuration: BrokerConfiguration, check: Callable[[BrokerConfiguration], object]
    ) -> BrokerConfiguration:
        """Return the configuration for the start.

        An element with a fault does not apply: the broker logs the fault and starts. ``check`` raises
        `ConfigurationError` for faults that the reader of broker.xml does not find.
        """
        if not self.elements():
            return configuration
        self.drop(configuration)
        left = self.elements()
        while True:
            try:
                found = merged(configuration, left)
                check(found)
                break
            except ConfigurationError as fault:
                if not left:
                    raise
                places = {getattr(line, "file", None) for line, _, _ in fault.faults}
                faulty = [each for each in left if each.place in places] or left
                for each in faulty:
                    log.error("%s does not apply: %s", each.place, "; ".join(fault.lines()))
                left = [each for each in left if each not in faulty]
        for each in left:  # do not bind addresses here: the caller binds all of them
            if each.kind == "divert" and each.element is None and each.name in self._broker.diverts.by_name:
                self._broker.diverts.remove(each.name)
        for divert in found.diverts:  # so that `apply` does not log each as a change: there may be many
            self._broker.diverts.put(divert)
        return found

    # ---- changes

    def present(self, kind: str, name: str) -> Values | None:
        """Return the values of an element by their names in broker.xml; None if the element does not exist."""
        configuration = self._broker.configuration
        name = key_of(kind, name, configuration)
        value = self._values.of(kind).get(name)
        if value is not None:
            element: Mapping[str, Any] | None = value.get("element")
            return element
        return of_file(kind, name, configuration)[0]

    def put(
        self,
        kind: str,
        name: str,
        element: Values | None,
        check: Callable[[BrokerConfiguration], object] = lambda new: None,
    ) -> None:
        """Create or replace an element; None deletes it. The change is in effect, and in the store with the next sync.

        ``check`` gets the configuration before it is applied, and may raise an exception.
        Raises `ConfigurationError` for an invalid element, `Refused` without a broker.xml. Then nothing is changed.
        """
        configuration = self._broker.configuration
        if configuration.document is None:
            raise Refused("The broker has no broker.xml: its configuration cannot be changed")
        name = key_of(kind, name, configuration)
        each = RunTimeElement(kind, name, element, of_file(kind, name, configuration)[1])
        if kind == "divert":
            new = self._with_divert(configuration, each)
        else:
            others = [one for one in self.elements(kind) if one.name != name]
            part = read_section(configuration, kind, [*others, each])
            field = f"{kind.replace('-', '_')}s"
            section = getattr(part, field)
            _check_name(each, [getattr(one, KINDS[kind]) for one in section])
            if kind == "bridge":
                own = [one for one in section if one.name == name]
                self._check_loops(list(self._to_itself(own)), section)
            new = replace(configuration, warnings=part.warnings, **{field: section})
        check(new)
        self._use(new, kind, name)
        needed = element is not None or each.base is not None
        self._values.put(kind, name, {"element": element, "base": each.base} if needed else None)

    def _with_divert(self, configuration: BrokerConfiguration, each: RunTimeElement) -> BrokerConfiguration:
        """Return the configuration with one changed divert. The other diverts are not read again: there may be many."""
        diverts = {one.name: one for one in configuration.diverts}
        if each.element is None:
            diverts.pop(each.name, None)
        else:
            part = read_section(configuration, "divert", [each], alone=True).diverts
            _check_name(each, [one.name for one in part])
            self._check_loops(part, configuration.bridges)
            diverts[each.name] = part[0]
        return replace(configuration, diverts=tuple(diverts.values()))

    def _to_itself(self, bridges: Iterable[BridgeConfiguration]) -> Iterator[DivertConfiguration]:
        """Yield a divert for each bridge to this broker: with the address of its queue, and its forwarding address."""
        ports, queues = self._ports(), self._broker.directory.queues
        for one in bridges:
            if any(each.port in ports and is_local(each.host) for each in one.connectors):
                queue = queues.get(one.queue_name)
                address = one.queue_name if queue is None else queue.address.name
                target = one.forwarding_address or address
                yield DivertConfiguration(f"{BRIDGE}{one.name}", address, (target,))

    def _check_loops(
        self, changed: Sequence[DivertConfiguration], bridges: Iterable[BridgeConfiguration]
    ) -> None:
        """Raise `ConfigurationError` if a message would pass one of the changed diverts again and again."""
        loop = self._broker.diverts.find_loop([*changed, *self._to_itself(bridges)])
        if loop is not None:
            raise ConfigurationError(str(loop))

    def addresses(self, found: dict[str, Any]) -> Iterator[None]:
        """Add the addresses and queues that were not created automatically to ``found``, for `export`. Yields after
        each queue.

        Queues have the values that differ from defaults.
        """
        directory = self._broker.directory
        for address in list(directory.addresses.values()):
            homes: dict[str, dict[str, list[Values]]] = {kind.lower(): {} for kind in address.routing_types}
            queues = [
                queue
                for queue in address.queues.values()
                if not (queue.attributes.auto_created or queue.attributes.temporary)
            ]
            for queue in queues:
                own = queue.attributes
                new = QueueConfiguration(queue.name, address.name, own.routing_type, configured=True)
                usual = QueueAttributes.of(new, directory.settings.lookup(address.name))
                values = {
                    row.xml_name: getattr(own, row.name)
                    for row in QUEUE_ROWS
                    if getattr(own, row.name) not in (None, getattr(usual, row.name))
                }
                home = homes.setdefault(own.routing_type.lower(), {}).setdefault("queue", [])
                home.append(literal({"name": queue.name, **values}))
                yield
            if queues or not (address.auto_created or address.temporary or is_internal(address.name)):
                found[literal(address.name)] = homes

    def export(self, addresses: Values, secrets: bool) -> Deferred[str]:
        """Return a Deferred with a broker.xml that contains all changes, and these addresses. A thread makes the text.

        Without ``secrets``, references replace passwords.
        """
        configuration, elements = self._broker.configuration, self.elements()
        if configuration.document is None:
            raise Refused("The broker has no broker.xml")
        return deferToThreadPool(
            self._reactor,
            self._reactor.getThreadPool(),
            lambda: export(configuration, unchanged(configuration, elements), addresses, secrets),
        )


def _check_name(each: RunTimeElement, names: list[str]) -> None:
    """Raise `ConfigurationError` if the element's name is not in ``names``, the names that the reader of broker.xml has
    read: the reader removes white space at the ends of a name.
    """
    if each.element is not None and each.name not in names:
        raise ConfigurationError(f"{each.kind} {each.name!r}: a name must not begin or end with white space")
