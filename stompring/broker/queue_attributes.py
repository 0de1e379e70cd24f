"""The attributes of a queue, its filter compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from stompring.errors import Refused
from stompring.selector import InvalidSelector, compile_selector
from stompring.settings.model import AddressSettings, QueueConfiguration, RingPolicy, RoutingType, options_of
from stompring.settings.value_types import VALUE_TYPES, message_header

from .message import Matches


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """A `QueueConfiguration` without open ends, its filter compiled."""

    routing_type: RoutingType
    durable: bool = True
    filter: str | None = None
    accepts: Matches | None = None
    ring_size: int = -1
    ring_policy: RingPolicy = RingPolicy.DISCARD
    ring_counts_paged: bool = False
    max_consumers: int = -1
    purge_on_no_consumers: bool = False
    exclusive: bool = False
    non_destructive: bool = False
    last_value: bool = False
    last_value_key: str | None = None
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    group_buckets: int = -1
    group_rebalance: bool = False
    group_rebalance_pause_dispatch: bool = False
    group_first_key: str | None = None
    enabled: bool = True
    user: str | None = None
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False

    @classmethod
    def of(cls, configuration: QueueConfiguration, settings: AddressSettings) -> QueueAttributes:
        """Fill in the ``default-…`` settings. Raises `Refused` where a value cannot be."""
        values = {name: getattr(configuration, name) for name in _FROM_CONFIGURATION}
        if configuration.configured and configuration.purge_on_no_consumers is None:
            values["purge_on_no_consumers"] = (
                False  # Artemis: the default is for queues that a file does not declare
            )
        for name, setting in _INHERITED:
            if values[name] is None:
                values[name] = getattr(settings, setting)
        if configuration.last_value is False and configuration.last_value_key is None:
            values["last_value_key"] = None  # an ordinary queue, whatever default-last-value-key says
        changes = {name: values.pop(name) for name in ("filter", "group_first_key")}
        return cls(**values).changed(changes)

    def changed(self, changes: Mapping[str, Any]) -> QueueAttributes:
        """A copy with some attributes changed, checked. Raises `Refused` naming the attribute and the value."""
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(changes) - known):
            raise Refused(f"a queue has no attribute {unknown[0]}", status=400)
        changed = replace(self, **changes)
        for name, lowest in LEAST.items():
            value = getattr(changed, name)
            if isinstance(value, bool) or not isinstance(value, int) or (value < lowest and value != -1):
                raise Refused(
                    f"{name.replace('_', '-')} must be -1 or at least {lowest}, not {value!r}", status=400
                )
        if "filter" in changes:
            text = (changed.filter or "").strip() or None
            try:
                accepts = None if text is None else compile_selector(text).matches_lines
            except InvalidSelector as fault:
                raise Refused(f"filter: {fault}", status=400) from None
            changed = replace(changed, filter=text, accepts=accepts)
        if changed.last_value_key is not None and not changed.last_value:
            changed = replace(changed, last_value=True)
        if "group_first_key" in changes:
            changed = replace(changed, group_first_key=_header_name(changed.group_first_key))
        return changed


def _header_name(given: str | None) -> str | None:
    """The value of ``group-first-key``; None where it is empty. Raises `Refused`."""
    try:
        return message_header((given or "").strip())
    except ValueError as fault:
        raise Refused(f"group-first-key {fault}", status=400) from None


_FROM_CONFIGURATION = [
    each.name for each in fields(QueueAttributes) if each.name in QueueConfiguration.__dataclass_fields__
]
_INHERITED = [(row.name, row.inherits) for row in options_of(QueueConfiguration) if row.inherits]

#: The least value of each number, which may also be -1 for "none". A ring of 0 could never hold a message.
LEAST = {
    row.name: VALUE_TYPES[row.type].least
    for row in options_of(QueueConfiguration)
    if VALUE_TYPES[row.type].kind is int
}
