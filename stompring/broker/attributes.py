"""What a queue is, once address-settings have filled in what its configuration left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from stompring.errors import Refused
from stompring.selector import InvalidSelector, compile_selector
from stompring.settings.model import AddressSettings, QueueConfiguration, RingPolicy, RoutingType

if TYPE_CHECKING:
    from .consumer import Matches


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
    consumers_before_dispatch: int = 0
    delay_before_dispatch: int = -1
    enabled: bool = True
    user: str | None = None
    auto_created: bool = False
    auto_delete: bool = False
    temporary: bool = False
    configured: bool = False

    @classmethod
    def of(cls, configuration: QueueConfiguration, settings: AddressSettings) -> QueueAttributes:
        """Fill in the ``default-…`` settings. Raises `Refused` where a value cannot be."""

        def given(value: Any, default: Any) -> Any:
            return default if value is None else value

        c = configuration
        attributes = cls(
            routing_type=c.routing_type,
            durable=c.durable,
            ring_size=given(c.ring_size, settings.default_ring_size),
            ring_policy=given(c.ring_policy, settings.ring_policy),
            ring_counts_paged=given(c.ring_counts_paged, settings.ring_counts_paged),
            max_consumers=given(c.max_consumers, settings.default_max_consumers),
            purge_on_no_consumers=given(c.purge_on_no_consumers, settings.default_purge_on_no_consumers),
            exclusive=given(c.exclusive, settings.default_exclusive_queue),
            non_destructive=given(c.non_destructive, settings.default_non_destructive),
            consumers_before_dispatch=given(
                c.consumers_before_dispatch, settings.default_consumers_before_dispatch
            ),
            delay_before_dispatch=given(c.delay_before_dispatch, settings.default_delay_before_dispatch),
            enabled=c.enabled,
            user=c.user,
            auto_created=c.auto_created,
            auto_delete=c.auto_delete,
            temporary=c.temporary,
            configured=c.configured,
        )
        return attributes.changed({"filter": c.filter})

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
                accepts = None if text is None else compile_selector(text).matches
            except InvalidSelector as fault:
                raise Refused(f"filter: {fault}", status=400) from None
            changed = replace(changed, filter=text, accepts=accepts)
        return changed


#: The least value of a number that may also be -1 for "none". A ring of 0 could never hold a message.
LEAST = {"ring_size": 1, "max_consumers": 0, "consumers_before_dispatch": 0, "delay_before_dispatch": 0}
