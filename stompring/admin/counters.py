"""Every counter of queues, addresses and the broker, with its name in JSON and in Prometheus.

All are read when they are asked for, from integers that the broker keeps anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from stompring.broker.address import Address
from stompring.broker.queue import Queue

Thing = TypeVar("Thing")

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True, slots=True)
class Counter(Generic[Thing]):
    """One number of a thing. ``read`` gives it as JSON shows it; Prometheus gets ``scale`` times as much.

    ``None`` is what is not known, or not there: null in JSON, and left out for Prometheus. ``labels`` are those of
    one of several counters with the same metric, which follow each other.
    """

    json: str
    metric: str
    kind: str
    help: str
    read: Callable[[Thing], Any]
    scale: float = 1
    labels: Mapping[str, str] = field(default_factory=dict)


def oldest_message_age(queue: Queue) -> int | None:
    """Milliseconds since the next message to be delivered was sent; ``None`` when nothing is pending.

    Of a message on disk that is not known before something was read from there.
    """
    head = queue.first() if queue.count else None
    oldest = None if head is None else head.message.timestamp
    if queue.area is not None and queue.area.leads(head) is not None:
        oldest = queue.area.oldest
    return None if oldest is None else max(0, queue.broker.clock.now - oldest)


QUEUE: tuple[Counter[Queue], ...] = (
    Counter(
        "messageCount",
        "stompring_queue_message_count",
        GAUGE,
        "Messages in the queue: pending, scheduled, in delivery and paged.",
        lambda q: q.message_count,
    ),
    Counter(
        "deliveringCount",
        "stompring_queue_delivering_count",
        GAUGE,
        "Messages given to a consumer and not settled yet.",
        lambda q: q.delivering,
    ),
    Counter(
        "scheduledCount",
        "stompring_queue_scheduled_count",
        GAUGE,
        "Messages that wait for their time.",
        lambda q: q.scheduled_count,
    ),
    Counter(
        "consumerCount",
        "stompring_queue_consumer_count",
        GAUGE,
        "Consumers of the queue.",
        lambda q: len(q.consumers),
    ),
    Counter(
        "ringSize",
        "stompring_queue_ring_size",
        GAUGE,
        "Pending messages that the queue keeps at most; -1 when it is not a ring.",
        lambda q: q.ring_size,
    ),
    Counter(
        "messagesAdded",
        "stompring_queue_messages_added_total",
        COUNTER,
        "Messages that entered the queue.",
        lambda q: q.messages_added,
    ),
    Counter(
        "messagesAcknowledged",
        "stompring_queue_messages_acknowledged_total",
        COUNTER,
        "Messages acknowledged by consumers, or removed one by one by management.",
        lambda q: q.messages_acknowledged,
    ),
    Counter(
        "messagesExpired",
        "stompring_queue_messages_expired_total",
        COUNTER,
        "Messages whose time was over.",
        lambda q: q.messages_expired,
    ),
    Counter(
        "messagesKilled",
        "stompring_queue_messages_killed_total",
        COUNTER,
        "Messages given up after too many deliveries, purged, or deleted with the queue.",
        lambda q: q.messages_killed,
    ),
    Counter(
        "messagesReplaced",
        "stompring_queue_messages_replaced_total",
        COUNTER,
        "Messages that a full ring gave up.",
        lambda q: q.messages_replaced,
    ),
    Counter(
        "persistentSize",
        "stompring_queue_persistent_size_bytes",
        GAUGE,
        "Memory of the messages in the queue; one in several queues counts in each.",
        lambda q: q.persistent_size,
    ),
    Counter(
        "pagedCount",
        "stompring_queue_paged_count",
        GAUGE,
        "Messages that are to be delivered and are on disk only, in pages.",
        lambda q: q.paged_count,
    ),
    Counter(
        "oldestMessageAge",
        "stompring_queue_oldest_message_age_seconds",
        GAUGE,
        "Time since the next message to be delivered was sent; 0 when nothing is pending.",
        oldest_message_age,
        scale=0.001,
    ),
)

ADDRESS: tuple[Counter[Address], ...] = (
    Counter(
        "addressSize",
        "stompring_address_size_bytes",
        GAUGE,
        "Memory of the messages sent to the address that some queue still holds.",
        lambda a: a.room.bytes,
    ),
    Counter(
        "numberOfPages",
        "stompring_address_pages",
        GAUGE,
        "Page files on disk.",
        lambda a: 0 if a.pages is None else a.pages.count,
    ),
    Counter(
        "pagesSize",
        "stompring_address_pages_bytes",
        GAUGE,
        "Bytes that the page files take.",
        lambda a: 0 if a.pages is None else a.pages.bytes,
    ),
    Counter(
        "paging",
        "stompring_address_paging",
        GAUGE,
        "1 while new messages go to disk because memory is full.",
        lambda a: a.room.paging,
    ),
    Counter(
        "timesPaged",
        "stompring_address_times_paged_total",
        COUNTER,
        "Times that the address began to page.",
        lambda a: a.times_paged,
    ),
    Counter(
        "blockedProducers",
        "stompring_address_blocked_producers",
        GAUGE,
        "Connections that are not read because the address, the disk or the store is full.",
        lambda a: a.blocked_producers,
    ),
    Counter(
        "limitPercent",
        "stompring_address_limit_percent",
        GAUGE,
        "How far max-size-bytes or max-size-messages is used, the nearer of them; 0 without a limit.",
        lambda a: a.room.percent,
    ),
    Counter(
        "routedMessageCount",
        "stompring_address_routed_messages_total",
        COUNTER,
        "Messages sent to the address that entered a queue.",
        lambda a: a.routed_messages,
    ),
    Counter(
        "unRoutedMessageCount",
        "stompring_address_unrouted_messages_total",
        COUNTER,
        "Messages sent to the address that no queue took.",
        lambda a: a.unrouted_messages,
    ),
    Counter(
        "droppedMessageCount",
        "stompring_address_dropped_messages_total",
        COUNTER,
        "Messages thrown away because the address, its pages or the disk were full (policy DROP), or by a plugin.",
        lambda a: a.dropped_messages,
    ),
    Counter(
        "duplicateMessageCount",
        "stompring_address_duplicate_messages_total",
        COUNTER,
        "Messages not routed because one with the same _AMQ_DUPL_ID was before.",
        lambda a: a.duplicate_messages,
    ),
)


def readers(counters: tuple[Counter[Thing], ...]) -> dict[str, Callable[[Thing], Any]]:
    """The counters as fields of a JSON object."""
    return {counter.json: counter.read for counter in counters}
