"""What is shown of a queue, and what may be said about one."""

from __future__ import annotations

from typing import Any

from stompring.broker.attributes import LEAST
from stompring.broker.queue import Queue
from stompring.settings.model import RingPolicy, RoutingType

from .api import Fields, Reader, choice, flag, number, text_or_none, view
from .counters import QUEUE, readers

FIELDS: Fields[Queue] = {
    "name": lambda q: q.name,
    "address": lambda q: q.address.name,
    "routingType": lambda q: q.attributes.routing_type,
    **readers(QUEUE),
    "durable": lambda q: q.attributes.durable,
    "paused": lambda q: q.paused,
    "enabled": lambda q: q.attributes.enabled,
    "filter": lambda q: q.attributes.filter,
    "ringPolicy": lambda q: q.attributes.ring_policy,
    "ringCountsPaged": lambda q: q.attributes.ring_counts_paged,
    "lastValue": lambda q: False,  # this version has no last-value queues
    "maxConsumers": lambda q: q.attributes.max_consumers,
    "exclusive": lambda q: q.attributes.exclusive,
    "nonDestructive": lambda q: q.attributes.non_destructive,
    "purgeOnNoConsumers": lambda q: q.attributes.purge_on_no_consumers,
    "consumersBeforeDispatch": lambda q: q.attributes.consumers_before_dispatch,
    "delayBeforeDispatch": lambda q: q.attributes.delay_before_dispatch,
    "user": lambda q: q.attributes.user,
    "autoCreated": lambda q: q.attributes.auto_created,
    "autoDelete": lambda q: q.attributes.auto_delete,
    "temporary": lambda q: q.attributes.temporary,
    "configured": lambda q: q.attributes.configured,
}

#: What may be changed while the queue lives: the name in JSON, ours, and how it is read.
CHANGEABLE: dict[str, tuple[str, Reader]] = {
    "filter": ("filter", text_or_none),
    "ringSize": ("ring_size", number(LEAST["ring_size"])),
    "ringPolicy": ("ring_policy", choice(RingPolicy)),
    "ringCountsPaged": ("ring_counts_paged", flag),
    "maxConsumers": ("max_consumers", number(LEAST["max_consumers"])),
    "exclusive": ("exclusive", flag),
    "purgeOnNoConsumers": ("purge_on_no_consumers", flag),
    "consumersBeforeDispatch": ("consumers_before_dispatch", number(LEAST["consumers_before_dispatch"])),
    "delayBeforeDispatch": ("delay_before_dispatch", number(LEAST["delay_before_dispatch"])),
    "enabled": ("enabled", flag),
    "user": ("user", text_or_none),
}

#: What only a new queue can be told; a PATCH may repeat it, but not change it.
FIXED: dict[str, tuple[str, Reader]] = {
    "routingType": ("routing_type", choice(RoutingType)),
    "durable": ("durable", flag),
    "nonDestructive": ("non_destructive", flag),
}

ATTRIBUTES = {**FIXED, **CHANGEABLE}


def detailed(queue: Queue) -> dict[str, Any]:
    """All fields, and the queue's consumers."""
    return {**view(queue, FIELDS), "consumers": [consumer.describe() for consumer in queue.consumers]}
