"""Transformers: changes of headers for the copies that a divert makes, and for what a bridge sends on.

`bind` makes the transformer of a ``<transformer>`` for the messages of one address. `Transformer.changes` says what is
different in the copy of one message; `copied_traits` makes traits with these changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from stompring.settings.model import RoutingType, TransformerConfiguration
from stompring.stomp.frames import escape, header_line, unescape

from .message import BACKSLASH, Message, Traits

if TYPE_CHECKING:
    from .address import Address

#: Changed headers: a value to set, or None for a header that is removed.
HeaderChanges = Mapping[bytes, bytes | None]

NO_CHANGES: HeaderChanges = {}


class Transformer(Protocol):
    """Decides for each message what is different in its copy."""

    def changes(self, message: Message) -> HeaderChanges | None:
        """The headers to change; None where no copy of this message is to be sent."""

    def stop(self) -> None:
        """It is not needed any more."""


class HeaderTransformer:
    """Sets and removes the same headers on every message."""

    __slots__ = ("_changes",)

    def __init__(self, configuration: TransformerConfiguration) -> None:
        changes: dict[bytes, bytes | None] = {name.encode(): None for name in configuration.remove_headers}
        changes.update((one.key.encode(), one.value.encode()) for one in configuration.add_headers)
        self._changes: HeaderChanges = changes

    def changes(self, message: Message) -> HeaderChanges | None:
        """Implements `Transformer.changes`."""
        return self._changes

    def stop(self) -> None:
        """Implements `Transformer.stop`."""


def bind(configuration: TransformerConfiguration | None, address: Address) -> Transformer | None:
    """The transformer for messages of ``address``; None where nothing is configured."""
    if configuration is None:
        return None
    if configuration.policy is not None:
        return address.directory.broker.policies.transformer(configuration.policy, address)
    return HeaderTransformer(configuration)


def sent_headers(message: Message) -> dict[bytes, bytes]:
    """The headers of a message in its traits, decoded: those of its sender, ``priority`` and ``persistent``."""
    lines = message.traits.block.split(b"\n")[:-1]
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        if BACKSLASH in line:
            name, value = unescape(name, b"1.2"), unescape(value, b"1.2")
        headers.setdefault(name, value)
    return headers


def changed_headers(headers: Mapping[bytes, bytes], changes: HeaderChanges) -> dict[bytes, bytes]:
    """Headers with these changes."""
    merged: dict[bytes, bytes | None] = {**headers, **changes}
    return {name: value for name, value in merged.items() if value is not None}


#: Headers of a copy that have a meaning, and so are more than lines of its block.
MEANINGFUL = frozenset(
    {
        b"priority",
        b"persistent",
        b"expires",
        b"JMSXGroupID",
        b"_AMQ_GROUP_ID",
        b"JMSXGroupSeq",
        b"_AMQ_GROUP_SEQUENCE",
    }
)


def copied_traits(
    traits: Traits, destination: bytes, routing_type: RoutingType | None, changes: HeaderChanges
) -> Traits:
    """Traits with changed headers, for another destination. ``expires`` is in ``requested_expiry`` (epoch ms).

    A changed header keeps its meaning: ``priority`` 0 to 9, ``persistent``, ``expires``, and the group. A value that
    is none is ignored.
    """
    priority, durable, expires = traits.priority, traits.durable, traits.requested_expiry
    group, sequence = traits.group, traits.group_sequence
    if not MEANINGFUL.isdisjoint(changes):
        priority = _number(changes, b"priority", priority, 4, 9)
        expires = _number(changes, b"expires", expires, 0)
        if b"persistent" in changes:
            durable = (changes[b"persistent"] or b"").lower() == b"true"
        for name in (b"JMSXGroupID", b"_AMQ_GROUP_ID"):
            if name in changes:
                group = changes[name] or None
        for name in (b"JMSXGroupSeq", b"_AMQ_GROUP_SEQUENCE"):
            if name in changes:
                sequence = -1 if (changes[name] or b"").strip() == b"-1" else 0
    return Traits(
        _changed_block(traits.block, priority, durable, changes),
        destination,
        routing_type,
        priority,
        durable,
        expires,
        group,
        sequence,
        traits.origin,
        traits.user,
    )


def _changed_block(block: bytes, priority: int, durable: bool, changes: HeaderChanges) -> bytes:
    """A header block that begins with priority and persistent, with other headers."""
    replaced = {escape(name) for name in changes} | {b"priority", b"persistent"}
    kept = [line for line in block.split(b"\n")[:-1] if line.partition(b":")[0] not in replaced]
    own = {b"priority", b"persistent", b"expires"}
    return b"".join(
        (
            b"priority:%d\npersistent:%b\n" % (priority, b"true" if durable else b"false"),
            *(line + b"\n" for line in kept),
            *(
                header_line(name, value)
                for name, value in changes.items()
                if value is not None and name not in own
            ),
        )
    )


def _number(changes: HeaderChanges, name: bytes, present: int, removed: int, most: int = 10**15) -> int:
    """The number in a changed header; ``removed`` where it is removed, ``present`` where it is none."""
    if name not in changes:
        return present
    value = changes[name]
    if value is None:
        return removed
    text = value.strip()
    return int(text) if text.isdigit() and len(text) < 20 and int(text) <= most else present
