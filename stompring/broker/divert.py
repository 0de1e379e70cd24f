"""Diverts: messages sent to one address are copied to others, or go there instead (Artemis, "Diverting and Splitting
Message Flows").

`Divert` is one of broker.xml with its counters; an address has a `BoundDivert` for each that applies to it. Whoever
routes a message calls `divert` first. A copy is a message of its own, with headers of its origin, and is routed as a
message sent to its address: with that address's pages, diverts and dead letters. Producers wait for the limits of
forwarding addresses too, or are refused by them: `rejection`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stompring.errors import Refused
from stompring.selector import compile_selector
from stompring.settings.match import Pattern
from stompring.settings.model import ComponentRoutingType, DivertConfiguration, FullPolicy, RoutingType
from stompring.stomp.frames import header_line

from . import admission, publish, transformer
from .auto_create import allow_all
from .clock import Due
from .expiry import expiry_time
from .message import Message, Traits
from .policy_hooks import Offer
from .transfer import (
    ANYCAST_ORIGIN,
    DIVERT,
    MULTICAST_ORIGIN,
    ORIGIN_HEADERS,
    CopiedTraits,
    Transfer,
    without_headers,
)
from .transformer import NO_CHANGES, HeaderChanges, sent_headers

if TYPE_CHECKING:
    from .address import Address
    from .admission import Rejection
    from .broker import Broker
    from .consumer import Matches
    from .recurrence import Recurrence
    from .transformer import Transformer

log = logging.getLogger(__name__)

_ROUTING_TYPES = {
    ComponentRoutingType.ANYCAST: RoutingType.ANYCAST,
    ComponentRoutingType.MULTICAST: RoutingType.MULTICAST,
}


class Divert:
    """One divert. Counters are plain integers, named as in management."""

    __slots__ = (
        "accepts",
        "broker",
        "configuration",
        "copied_messages",
        "dropped_messages",
        "exclusive",
        "logged",
        "loops",
        "name",
        "pattern",
        "unrouted_messages",
    )

    def __init__(self, broker: Broker, configuration: DivertConfiguration) -> None:
        self.broker = broker
        self.name = configuration.name
        self.copied_messages = 0  # copies that entered a queue, or were sent on by another divert
        self.unrouted_messages = 0  # copies that no queue accepted
        self.dropped_messages = 0  # copies that a full address or a policy dropped
        self.loops = 0  # copies that would have come back to an address that they came from
        self.logged: set[str] = set()  # forwarding addresses about which something was logged
        self.configure(configuration)

    def configure(self, configuration: DivertConfiguration) -> None:
        """Set or change what it does."""
        self.configuration = configuration
        self.exclusive = configuration.exclusive
        self.pattern = Pattern(configuration.address, self.broker.configuration.wildcard)
        text = configuration.filter
        self.accepts: Matches | None = None if text is None else compile_selector(text).matches_lines
        self.logged.clear()

    def applies_to(self, address: str) -> bool:
        """Whether it copies messages of the address of that name."""
        if self.broker.configuration.wildcard.routing_enabled:
            return self.pattern.matches(address)
        return self.pattern.text == address

    def warn(self, target: str, text: str, *values: object) -> None:
        """Log a warning about a forwarding address, once until the divert is changed."""
        if target not in self.logged:
            self.logged.add(target)
            log.warning(text, *values, extra={"divert": self.name, "address": target})


class BoundDivert:
    """A divert for one of the addresses that it applies to, with its transformer for that address."""

    __slots__ = ("configuration", "divert", "targets", "transformer")

    def __init__(self, divert: Divert, address: Address) -> None:
        self.divert = divert
        self.configuration = divert.configuration  # that it was made for
        self.transformer: Transformer | None = transformer.bind(divert.configuration.transformer, address)
        self.targets = [ForwardingAddress(self, name) for name in divert.configuration.forwarding_address]

    def accepts(self, message: Message) -> bool:
        """Whether the message matches its filter."""
        matches = self.divert.accepts
        return matches is None or matches(message)

    def changes(self, message: Message) -> HeaderChanges | None:
        """What is different in the copies of a message; None where there is to be none."""
        return NO_CHANGES if self.transformer is None else self.transformer.changes(message)

    def stop(self) -> None:
        """It does not apply to the address any more, or the address is deleted."""
        if self.transformer is not None:
            self.transformer.stop()


class ForwardingAddress:
    """One of the addresses that a divert copies messages to."""

    __slots__ = ("_address", "_cached", "_divert", "_stamp", "name")

    def __init__(self, bound: BoundDivert, name: str) -> None:
        self.name = name
        self._divert = bound.divert
        self._address: Address | None = None
        self._stamp = -1
        self._cached: tuple[Traits, HeaderChanges, Traits] | None = (
            None  # the last ones: mostly the next as well
        )

    def existing(self) -> Address | None:
        """The address, None where there is none yet."""
        return self._divert.broker.directory.addresses.get(self.name)

    def address(self, routing_type: RoutingType | None) -> Address | None:
        """The address, created as for a SEND; None where it cannot be, which is logged."""
        address = self._address
        if address is not None and address.stamp == self._stamp and not address.deleted:
            return address
        divert = self._divert
        self._cached = None
        try:
            address = divert.broker.auto_create.address_for_send(self.name, routing_type, allow_all)
        except Refused as reason:
            divert.warn(self.name, "divert %s: no copy to address %s: %s", divert.name, self.name, reason)
            return None
        self._address, self._stamp = address, address.stamp
        return address

    def send(self, message: Message, changes: HeaderChanges, due: Due, recurrence: Recurrence | None) -> bool:
        """Send a copy. False where no queue accepts it."""
        divert = self._divert
        broker = divert.broker
        if self.name in broker.copying_to:
            divert.loops += 1
            divert.warn(
                self.name,
                "divert %s: no copy to address %s: the message came from there (by way of %s)",
                divert.name,
                self.name,
                ", ".join(broker.copying_to),
            )
            return False
        kind = divert.configuration.routing_type
        passed = (
            message.traits.routing_type if kind is ComponentRoutingType.PASS else _ROUTING_TYPES.get(kind)
        )
        address = self.address(passed)
        if address is None:
            divert.unrouted_messages += 1
            return False
        traits = self._traits(message, address, passed, changes)
        body = message.body
        refused = admission.check(address, traits.durable, offer_of(address, traits, message), body)
        if refused is not None and refused.policy is FullPolicy.DROP:
            admission.drop(refused)
            divert.dropped_messages += 1
            return False
        requested = traits.requested_expiry if b"expires" in changes else message.expires
        expires = expiry_time(address.settings, broker.clock.now, requested)
        copy = Message(broker.next_message_number(), address, traits, body, message.timestamp, expires)
        broker.copying_to.append(self.name)
        try:
            if not publish.send(copy, due, recurrence):
                divert.unrouted_messages += 1
                return False
        finally:
            broker.copying_to.pop()
        divert.copied_messages += 1
        return True

    def _traits(
        self, message: Message, address: Address, routing_type: RoutingType | None, changes: HeaderChanges
    ) -> Traits:
        """The traits of one copy. What copies of messages with the same traits share is made once."""
        traits, cached = message.traits, self._cached
        if cached is not None and cached[0] is traits and cached[1] is changes:
            shared = cached[2]
        else:
            shared = self._make_traits(traits, message.address.name, routing_type, changes)
            self._cached = traits, changes, address.mark(shared)
        return shared.with_block(shared.block + b"_AMQ_ORIG_MESSAGE_ID:%d\n" % message.number)

    def _make_traits(
        self, traits: Traits, origin: str, routing_type: RoutingType | None, changes: HeaderChanges
    ) -> Traits:
        changed = transformer.copied_traits(traits, self.name.encode(), routing_type, changes)
        kind = self._divert.configuration.routing_type
        names = (
            ORIGIN_HEADERS if kind is ComponentRoutingType.PASS else (*ORIGIN_HEADERS, b"destination-type")
        )
        added = [
            (b"_AMQ_ORIG_ADDRESS", origin.encode()),
            (b"_AMQ_ORIG_QUEUE", self._divert.name.encode()),
            (b"_AMQ_ORIG_REASON", DIVERT.encode()),
        ]
        if traits.routing_type is not None:
            anycast = traits.routing_type is RoutingType.ANYCAST
            added.append((b"_AMQ_ORIG_ROUTING_TYPE", ANYCAST_ORIGIN if anycast else MULTICAST_ORIGIN))
        if kind in _ROUTING_TYPES:
            added.append((b"destination-type", kind.encode()))
        copied = CopiedTraits(
            without_headers(changed.block, names) + b"".join(header_line(*line) for line in added),
            changed.destination,
            changed.routing_type,
            changed.priority,
            changed.durable,
            changed.requested_expiry,
            changed.group,
            changed.group_sequence,
            changed.origin,
            changed.user,
        )
        copied.transfer = Transfer.POLICY
        return copied


def offer_of(address: Address, traits: Traits, message: Message) -> Offer | None:
    """A copy as the policies see it that decide what a full address does; None without such a policy."""
    return None if address.hooks.full is None else Offer(address.name, traits, sent_headers(message))


def matching(diverts: Iterable[BoundDivert], message: Message) -> list[BoundDivert]:
    """The diverts that copy a message: exclusive ones before all others, which copy nothing then."""
    found = [bound for bound in diverts if bound.accepts(message)]
    exclusive = [bound for bound in found if bound.divert.exclusive]
    return exclusive or found


def divert(message: Message, due: Due = 0, recurrence: Recurrence | None = None) -> bool | None:
    """Make the copies of a message of an address with diverts or retroactive messages, scheduled as the message is.

    Returns True where an exclusive divert has taken the message, else whether there was a copy (False or None).
    """
    address = message.address
    bound = matching(address.diverts, message)
    exclusive = bool(bound) and bound[0].divert.exclusive
    if address.retroactive is not None and not exclusive:
        address.retroactive.add(message, due, recurrence)
    if not bound:
        return None if address.retroactive is None else False
    copying_to = address.directory.broker.copying_to
    copying_to.append(address.name)
    try:
        for one in bound:
            changes = one.changes(message)
            if changes is None:
                one.divert.dropped_messages += len(one.targets)
                continue
            for target in one.targets:
                target.send(message, changes, due, recurrence)
    finally:
        copying_to.pop()
    return exclusive


# ---- limits of the forwarding addresses


def rejection(address: Address, traits: Traits, body: bytes) -> Rejection | None:
    """Why a producer may not send a message to ``address`` now, by a limit of an address that gets a copy of it.

    Only BLOCK and FAIL reject the message itself. Filters are evaluated with the headers of this message, also those of
    diverts that apply to its copies.
    """
    if next(_rejections(address, traits, None), None) is None:
        return None
    broker = address.directory.broker
    message = Message(0, address, traits, body, broker.clock.now, traits.requested_expiry)
    return next(_rejections(address, traits, message), None)


def forwarding_addresses(address: Address, message: Message | None) -> Iterator[Address]:
    """The existing addresses that get a copy of a message; without one all that may get one."""
    seen = {address}
    waiting = [address]
    while waiting:
        source = waiting.pop()
        for bound in source.diverts if message is None else matching(source.diverts, message):
            for target in bound.targets:
                found = target.existing()
                if found is not None and found not in seen:
                    seen.add(found)
                    waiting.append(found)
                    yield found


def depends_on_message(address: Address) -> bool:
    """Whether messages sent to ``address`` differ in the addresses that get a copy."""
    return any(
        bound.divert.accepts is not None or bound.divert.exclusive
        for source in (address, *forwarding_addresses(address, None))
        for bound in source.diverts
    )


def _rejections(address: Address, traits: Traits, message: Message | None) -> Iterator[Rejection]:
    for target in forwarding_addresses(address, message):
        if target.hooks.full is not None and message is None:
            if target.full is not None:
                yield admission.Rejection(target, FullPolicy.BLOCK, target.full)
            continue
        offer = None if message is None else offer_of(target, traits, message)
        found = admission.check(target, traits.durable, offer, b"" if message is None else message.body)
        if found is not None and found.policy is not FullPolicy.DROP:
            yield found


# ---- the diverts of a broker


class Diverts:
    """The diverts of a broker, by name."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.by_name: dict[str, Divert] = {}

    def bind(self, address: Address) -> None:
        """Give an address the diverts that apply to it. Those that have not changed are as before."""
        before = {bound.divert: bound for bound in address.diverts}
        found: list[BoundDivert] = []
        for one in self.by_name.values():
            if one.applies_to(address.name):
                former = before.get(one)
                if former is not None and former.configuration is one.configuration:
                    found.append(before.pop(one))
                else:
                    found.append(BoundDivert(one, address))
        if before or len(found) != len(address.diverts):
            address.set_diverts(tuple(found))
        for bound in before.values():
            bound.stop()

    def add(self, configuration: DivertConfiguration) -> None:
        """A new divert. `bind_all` follows."""
        self.by_name[configuration.name] = Divert(self._broker, configuration)

    def remove(self, name: str) -> None:
        """A divert is deleted. `bind_all` follows."""
        del self.by_name[name]

    def bind_all(self) -> None:
        """Diverts, or the policies that are their transformers, have changed."""
        for address in self._broker.directory.addresses.values():
            self.bind(address)
