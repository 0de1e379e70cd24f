"""The counters of queues, addresses and the broker: names in JSON and Prometheus, meaning, and how they are read.

They are read on request, from integers that the broker maintains anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from stompring.broker.address import Address
from stompring.broker.bridge import Bridge, BridgeState
from stompring.broker.publish import Divert
from stompring.broker.queue import Queue
from stompring.session.subscription import AcknowledgedSubscription
from stompring.settings.model import PermissionType

from .context import AdminContext, Dispatch, Paging, Reading, Retention, Store
from .json_schema import Field, Fields, Schema, typed

Thing = TypeVar("Thing")

GAUGE, COUNTER = "gauge", "counter"


@dataclass(frozen=True, slots=True)
class Counter(Generic[Thing]):
    """One number of a thing. ``read`` returns the JSON value; Prometheus gets ``scale`` times as much.

    A value of ``None`` is null in JSON, and absent from Prometheus; ``null`` says when that is. ``labels`` distinguish
    counters of one metric, which follow each other. ``description`` is the meaning in JSON where HELP does not fit.
    """

    json: str
    metric: str
    kind: str
    help: str
    read: Callable[[Thing], Any]
    scale: float = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    type: str = "integer"  # in JSON
    minimum: int = 0
    null: str = ""
    description: str = ""

    @property
    def schema(self) -> Schema:
        """The JSON schema of the number."""
        text = self.description or self.help.replace("1 while", "True while")
        unit = "Milliseconds." if self.scale == 0.001 else ""
        description = " ".join(part for part in (text, unit, self.null) if part)
        bounds = {} if self.type == "boolean" else {"minimum": self.minimum}
        return typed(self.type, description, bool(self.null), bounds)


def oldest_message_age(queue: Queue) -> int | None:
    """Milliseconds since the next message to be delivered was sent.

    ``None`` without a pending message, and if it is on disk and has not been read yet.
    """
    head = queue.dispatcher.first() if queue.count else None
    oldest = None if head is None else head.message.timestamp
    if queue.paged is not None and queue.paged.position_before(head) is not None:
        oldest = queue.paged.oldest
    return None if oldest is None else max(0, queue.broker.clock.now - oldest)


def oldest_age(queue: Queue) -> int | None:
    """Milliseconds since the oldest pending message was sent, of any priority.

    ``None`` without a pending message, and if there are only messages on disk that have not been read yet.
    """
    times = [ref.message.timestamp for pending in queue.dispatcher.lists() for ref in pending.heads()]
    if queue.paged is not None and queue.paged.oldest is not None:
        times.append(queue.paged.oldest)
    return max(0, queue.broker.clock.now - min(times)) if times else None


QUEUE: tuple[Counter[Queue], ...] = (
    Counter(
        "messageCount",
        "stompring_queue_messages",
        GAUGE,
        "Messages in the queue: pending, scheduled, delivering and paged.",
        lambda q: q.message_count,
    ),
    Counter(
        "deliveringCount",
        "stompring_queue_delivering_messages",
        GAUGE,
        "Messages delivered to a consumer and not yet acknowledged.",
        lambda q: q.delivering,
    ),
    Counter(
        "scheduledCount",
        "stompring_queue_scheduled_messages",
        GAUGE,
        "Scheduled messages that are not due yet, including delayed redeliveries.",
        lambda q: q.scheduled_count,
    ),
    Counter(
        "consumerCount",
        "stompring_queue_consumers",
        GAUGE,
        "Consumers of the queue.",
        lambda q: len(q.consumers),
    ),
    Counter(
        "ringSize",
        "stompring_queue_ring_size",
        GAUGE,
        "Maximum number of pending messages (ring-size); -1: not a ring queue.",
        lambda q: q.ring_size,
        minimum=-1,
    ),
    Counter(
        "messagesAdded",
        "stompring_queue_messages_added_total",
        COUNTER,
        "Messages added to the queue.",
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
        "Messages expired in the queue.",
        lambda q: q.messages_expired,
    ),
    Counter(
        "messagesKilled",
        "stompring_queue_messages_killed_total",
        COUNTER,
        "Messages removed after max-delivery-attempts, by a purge, or with the queue.",
        lambda q: q.messages_killed,
    ),
    Counter(
        "messagesReplaced",
        "stompring_queue_messages_replaced_total",
        COUNTER,
        "Messages evicted because the ring was full, or replaced by a newer one with their key.",
        lambda q: q.messages_replaced,
    ),
    Counter(
        "keyCount",
        "stompring_queue_keys",
        GAUGE,
        "Keys in the index of a last-value queue; 0: not a last-value queue.",
        lambda q: q.keys,
    ),
    Counter(
        "groupCount",
        "stompring_queue_groups",
        GAUGE,
        "Message groups pinned to a consumer; with group-buckets above 0, buckets of them.",
        lambda q: q.dispatcher.group_count,
    ),
    Counter(
        "persistentSize",
        "stompring_queue_persistent_size_bytes",
        GAUGE,
        "Memory of the messages in the queue, in bytes. A message in several queues counts in each.",
        lambda q: q.persistent_size,
    ),
    Counter(
        "pagedCount",
        "stompring_queue_paged_messages",
        GAUGE,
        "Pending messages that are only on disk, in page files.",
        lambda q: q.paged_count,
    ),
    Counter(
        "oldestMessageAge",
        "stompring_queue_oldest_message_age_seconds",
        GAUGE,
        "Age of the next message to be delivered; 0: no pending message.",
        oldest_message_age,
        scale=0.001,
        null="Null without a pending message, or if it is on disk and was not read yet.",
        description="Age of the next message to be delivered.",
    ),
)

ADDRESS: tuple[Counter[Address], ...] = (
    Counter(
        "addressSize",
        "stompring_address_size_bytes",
        GAUGE,
        "Memory of the messages sent to the address and still in a queue, in bytes.",
        lambda a: a.memory_limit.bytes,
    ),
    Counter(
        "retroactiveMessages",
        "stompring_address_retroactive_messages",
        GAUGE,
        "Messages kept for queues that are created later (retroactive-message-count).",
        lambda a: 0 if a.retroactive is None else a.retroactive.count,
    ),
    Counter(
        "numberOfPages",
        "stompring_address_pages",
        GAUGE,
        "Page files of the address.",
        lambda a: 0 if a.pages is None else a.pages.count,
    ),
    Counter(
        "pagesSize",
        "stompring_address_pages_bytes",
        GAUGE,
        "Size of the page files of the address, in bytes.",
        lambda a: 0 if a.pages is None else a.pages.bytes,
    ),
    Counter(
        "paging",
        "stompring_address_paging",
        GAUGE,
        "1 while the address is paging: new messages are written to page files.",
        lambda a: a.memory_limit.paging,
        type="boolean",
    ),
    Counter(
        "timesPaged",
        "stompring_address_times_paged_total",
        COUNTER,
        "Number of times the address started paging.",
        lambda a: a.times_paged,
    ),
    Counter(
        "blockedProducers",
        "stompring_address_blocked_producers",
        GAUGE,
        "Connections blocked because the address, the disk or the store is full.",
        lambda a: a.blocked_producers,
    ),
    Counter(
        "limitPercent",
        "stompring_address_limit_percent",
        GAUGE,
        "Usage of max-size-bytes or max-size-messages in percent, whichever is higher; 0: no limit.",
        lambda a: a.memory_limit.percent,
    ),
    Counter(
        "routedMessageCount",
        "stompring_address_routed_messages_total",
        COUNTER,
        "Messages sent to the address and routed to at least one queue.",
        lambda a: a.routed_messages,
    ),
    Counter(
        "unRoutedMessageCount",
        "stompring_address_unrouted_messages_total",
        COUNTER,
        "Messages sent to the address and routed to no queue.",
        lambda a: a.unrouted_messages,
    ),
    Counter(
        "droppedMessageCount",
        "stompring_address_dropped_messages_total",
        COUNTER,
        "Messages dropped because the address, its pages or the disk were full (DROP), or by a plugin.",
        lambda a: a.dropped_messages,
    ),
    Counter(
        "duplicateMessageCount",
        "stompring_address_duplicate_messages_total",
        COUNTER,
        "Messages discarded as duplicates: their _AMQ_DUPL_ID is already known.",
        lambda a: a.duplicate_messages,
    ),
)


BRIDGE: tuple[Counter[Bridge], ...] = (
    Counter(
        "connected",
        "stompring_bridge_connected",
        GAUGE,
        "1 while the bridge is connected to the remote broker.",
        lambda b: b.state is BridgeState.CONNECTED,
        type="boolean",
    ),
    Counter(
        "inFlight",
        "stompring_bridge_in_flight_messages",
        GAUGE,
        "Messages sent to the remote broker and not yet confirmed.",
        lambda b: b.in_flight,
    ),
    Counter(
        "messagesForwarded",
        "stompring_bridge_messages_forwarded_total",
        COUNTER,
        "Messages that the remote broker has confirmed.",
        lambda b: b.messages_forwarded,
    ),
    Counter(
        "bytesForwarded",
        "stompring_bridge_forwarded_bytes_total",
        COUNTER,
        "Bytes of these messages.",
        lambda b: b.bytes_forwarded,
    ),
    Counter(
        "messagesDiscarded",
        "stompring_bridge_messages_discarded_total",
        COUNTER,
        "Messages that the transformer did not send.",
        lambda b: b.messages_discarded,
    ),
    Counter(
        "errors",
        "stompring_bridge_errors_total",
        COUNTER,
        "ERROR frames of the remote broker.",
        lambda b: b.errors,
    ),
    Counter(
        "connections",
        "stompring_bridge_connections_total",
        COUNTER,
        "Connections to remote brokers that worked.",
        lambda b: b.connections,
    ),
)


def fields_of(counters: Iterable[Counter[Thing]]) -> Fields[Thing]:
    """The counters as fields of a JSON object."""
    return {counter.json: Field(counter.read, counter.schema) for counter in counters}


def consumers_without_credit(context: AdminContext) -> int:
    """Number of consumers without credit."""
    return sum(
        isinstance(subscription, AcknowledgedSubscription) and subscription.exhausted
        for session in context.connections
        for subscription in session.subscriptions.values()
    )


LIMITS: tuple[Counter[AdminContext], ...] = (
    Counter(
        "globalMaxConnections",
        "stompring_connections_limit",
        GAUGE,
        "Limit on open STOMP connections (global-max-connections); -1: no limit.",
        lambda s: s.connections.global_limit.limit,
        minimum=-1,
    ),
    Counter(
        "globalMaxAddresses",
        "stompring_addresses_limit",
        GAUGE,
        "Limit on the number of addresses (global-max-addresses); -1: no limit.",
        lambda s: s.broker.configuration.global_max_addresses,
        minimum=-1,
    ),
    Counter(
        "globalMaxQueues",
        "stompring_queues_limit",
        GAUGE,
        "Limit on the number of queues (global-max-queues); -1: no limit.",
        lambda s: s.broker.configuration.global_max_queues,
        minimum=-1,
    ),
    Counter(
        "transactionSize",
        "stompring_transactions_bytes",
        GAUGE,
        "Memory of the messages sent in open transactions, in bytes.",
        lambda s: s.broker.transaction_bytes.bytes,
    ),
    Counter(
        "globalMaxTransactionSize",
        "stompring_transactions_limit_bytes",
        GAUGE,
        "Limit on the memory of open transactions (global-max-transaction-size), in bytes; -1: no limit.",
        lambda s: s.broker.transaction_bytes.limit,
        minimum=-1,
    ),
    Counter(
        "subscriptionSize",
        "stompring_subscriptions_bytes",
        GAUGE,
        "Memory that subscriptions count for, with their selectors, in bytes.",
        lambda s: s.broker.subscription_memory.bytes,
    ),
    Counter(
        "globalMaxSubscriptionSize",
        "stompring_subscriptions_limit_bytes",
        GAUGE,
        "Limit on the memory of subscriptions (global-max-subscription-size), in bytes; -1: no limit.",
        lambda s: s.broker.subscription_memory.limit,
        minimum=-1,
    ),
    Counter(
        "unfinishedSize",
        "stompring_unfinished_bytes",
        GAUGE,
        "Memory of unfinished frames, of connections with more than 64 KiB of one, in bytes.",
        lambda s: s.broker.unfinished.bytes,
    ),
    Counter(
        "globalMaxUnfinishedSize",
        "stompring_unfinished_limit_bytes",
        GAUGE,
        "Limit on the memory of unfinished frames (global-max-unfinished-size), in bytes; -1: no limit.",
        lambda s: s.broker.unfinished.limit,
        minimum=-1,
    ),
    Counter(
        "slowConnections",
        "stompring_slow_connections",
        GAUGE,
        "Connections whose client has read nothing for 10 seconds while the outbox was full.",
        lambda s: s.outgoing.slow.count,
    ),
    Counter(
        "exhaustedConsumers",
        "stompring_exhausted_consumers",
        GAUGE,
        "Consumers without credit: they receive nothing until they acknowledge.",
        consumers_without_credit,
    ),
    Counter(
        "slowConsumers",
        "stompring_slow_consumers",
        GAUGE,
        "Consumers below slow-consumer-threshold at the last check.",
        lambda s: s.broker.slow_consumers.slow,
    ),
    Counter(
        "stalledConsumers",
        "stompring_stalled_consumers",
        GAUGE,
        "Consumers that have held a message unacknowledged for a minute while more wait.",
        lambda s: len(s.sampler.stalled()),
    ),
    Counter(
        "notificationsSent",
        "stompring_notifications_sent_total",
        COUNTER,
        "Messages about events that a queue of the management-notification-address accepted.",
        lambda s: s.broker.notifications.sent,
    ),
    Counter(
        "notificationsDropped",
        "stompring_notifications_dropped_total",
        COUNTER,
        "Messages about events that were not sent because more than 1000 waited.",
        lambda s: s.broker.notifications.dropped,
    ),
    Counter(
        "managementRequestCount",
        "stompring_management_requests_total",
        COUNTER,
        "Requests to the management-address that succeeded.",
        lambda s: s.management.succeeded,
    ),
    Counter(
        "managementFailureCount",
        "stompring_management_requests_failed_total",
        COUNTER,
        "Requests to the management-address that failed.",
        lambda s: s.management.failed,
    ),
    Counter(
        "slowConsumersNotified",
        "stompring_slow_consumers_notified_total",
        COUNTER,
        "Slow consumers logged and left connected (slow-consumer-policy NOTIFY).",
        lambda s: s.broker.slow_consumers.notified,
    ),
    Counter(
        "slowConsumersKilled",
        "stompring_slow_consumers_killed_total",
        COUNTER,
        "Slow consumers disconnected (slow-consumer-policy KILL).",
        lambda s: s.broker.slow_consumers.killed,
    ),
)


def read_store(read: Callable[[Store], Any]) -> Callable[[AdminContext], Any]:
    """A number of the store."""
    return lambda context: None if context.store is None else read(context.store)


def read_retention(read: Callable[[Retention], Any]) -> Callable[[AdminContext], Any]:
    """A number of what is retained."""
    return read_store(lambda store: None if store.retention is None else read(store.retention))


def read_disk(read: Callable[[Reading], Any]) -> Callable[[AdminContext], Any]:
    """A number of the fuller of the disks of journal and pages."""

    def reader(context: AdminContext) -> Any:
        reading = None if context.disk_monitor is None else context.disk_monitor.reading
        return None if reading is None else read(reading)

    return reader


def read_paging(read: Callable[[Paging], Any]) -> Callable[[AdminContext], Any]:
    """A number of all pages."""
    return lambda context: None if context.paging is None else read(context.paging)


def read_dispatch(read: Callable[[Dispatch], Any]) -> Callable[[AdminContext], Any]:
    """A number of dispatch."""
    return lambda context: None if context.dispatch is None else read(context.dispatch)


NO_RETENTION = "Null without journal-retention-directory."

DISK: tuple[Counter[AdminContext], ...] = (
    Counter(
        "diskUsage",
        "stompring_disk_usage_ratio",
        GAUGE,
        "Used share of the disk of journal and pages, 0 to 1; of two disks the fuller one.",
        read_disk(lambda disk: round(disk.usage, 4)),
        type="number",
    ),
    Counter(
        "diskFree",
        "stompring_disk_free_bytes",
        GAUGE,
        "Free space on the disk of journal and pages, in bytes; of two disks the fuller one.",
        read_disk(lambda disk: disk.free),
    ),
    Counter(
        "diskFull",
        "stompring_disk_full",
        GAUGE,
        "1 while the disk counts as full (max-disk-usage, min-disk-free).",
        lambda context: None if context.disk_monitor is None else context.broker.disk.full,
        type="boolean",
    ),
)

STORE: tuple[Counter[AdminContext], ...] = (
    Counter(
        "storeFailing",
        "stompring_store_failing",
        GAUGE,
        "1 while writes to the store fail.",
        read_store(lambda store: store.writer.failing is not None),
        type="boolean",
    ),
    Counter(
        "storeFailures",
        "stompring_store_failures_total",
        COUNTER,
        "Failed writes to journal and pages. Each write is retried.",
        read_store(lambda store: store.writer.failures),
    ),
    Counter(
        "storeWaitingSize",
        "stompring_store_waiting_bytes",
        GAUGE,
        "Bytes queued for the store and not yet written.",
        read_store(lambda store: store.writer.waiting_bytes),
    ),
    Counter(
        "storeBatches",
        "stompring_store_batches_total",
        COUNTER,
        "Batches written and synced to journal and pages.",
        read_store(lambda store: store.writer.batches),
    ),
    Counter(
        "storeBytesWritten",
        "stompring_store_written_bytes_total",
        COUNTER,
        "Bytes written to journal and pages.",
        read_store(lambda store: store.writer.bytes_written),
    ),
    Counter(
        "storeTime",
        "stompring_store_disk_seconds_total",
        COUNTER,
        "Time spent writing and syncing batches.",
        read_store(lambda store: store.writer.disk_seconds * 1000),
        scale=0.001,
        type="number",
    ),
    Counter(
        "journalFiles",
        "stompring_journal_segments",
        GAUGE,
        "Segments (files) of the journal.",
        read_store(lambda store: len(store.journal.segments)),
    ),
    Counter(
        "journalSize",
        "stompring_journal_size_bytes",
        GAUGE,
        "Size of the journal, in bytes.",
        read_store(lambda store: store.journal.bytes),
    ),
    Counter(
        "journalLiveSize",
        "stompring_journal_live_bytes",
        GAUGE,
        "Bytes of the journal that are still needed; compaction frees the others.",
        read_store(lambda store: store.journal.live_bytes),
    ),
    Counter(
        "journalCompactions",
        "stompring_journal_compactions_total",
        COUNTER,
        "Journal segments compacted: the needed records rewritten, the file released.",
        read_store(lambda store: store.compaction.segments),
    ),
    Counter(
        "journalRewritten",
        "stompring_journal_rewritten_bytes_total",
        COUNTER,
        "Bytes rewritten by compaction.",
        read_store(lambda store: store.compaction.rewritten),
    ),
    Counter(
        "journalLost",
        "stompring_journal_lost_bytes_total",
        COUNTER,
        "Bytes of the journal that recovery could not read.",
        read_store(lambda store: 0 if store.recovery is None else store.recovery.lost_bytes),
    ),
    Counter(
        "retentionFiles",
        "stompring_retention_files",
        GAUGE,
        "Retained journal and page files (journal-retention-directory).",
        read_retention(lambda retention: retention.files),
        null=NO_RETENTION,
    ),
    Counter(
        "retentionSize",
        "stompring_retention_bytes",
        GAUGE,
        "Size of the retained files, in bytes.",
        read_retention(lambda retention: retention.bytes),
        null=NO_RETENTION,
    ),
    Counter(
        "retentionDeleted",
        "stompring_retention_deleted_files_total",
        COUNTER,
        "Retained files deleted after their period or because of the storage-limit.",
        read_retention(lambda retention: retention.deleted),
        null=NO_RETENTION,
    ),
    Counter(
        "retentionDeletedNotIngested",
        "stompring_retention_deleted_not_ingested_files_total",
        COUNTER,
        "Retained files deleted before every known lake (ingested.json) had ingested them.",
        read_retention(lambda retention: retention.deleted_not_ingested),
        null=NO_RETENTION,
    ),
    Counter(
        "pageBytesRead",
        "stompring_pages_read_bytes_total",
        COUNTER,
        "Bytes read from page files.",
        read_paging(lambda paging: paging.reads.bytes_read),
    ),
    Counter(
        "damagedPages",
        "stompring_pages_damaged_total",
        COUNTER,
        "Page files with unreadable parts.",
        read_paging(lambda paging: paging.damaged_pages),
    ),
    Counter(
        "lostMessageCount",
        "stompring_messages_lost_total",
        COUNTER,
        "Messages lost in unreadable parts of page files.",
        read_paging(lambda paging: paging.lost_messages),
    ),
)

DISPATCH: tuple[Counter[AdminContext], ...] = (
    Counter(
        "dispatchBudget",
        "stompring_dispatch_budget_bytes",
        GAUGE,
        "Limit on the memory of messages read back from pages (dispatch-memory), in bytes.",
        read_dispatch(lambda dispatch: dispatch.budget.limit),
    ),
    Counter(
        "dispatchUsed",
        "stompring_dispatch_used_bytes",
        GAUGE,
        "Memory of messages read back from pages, in bytes.",
        read_dispatch(lambda dispatch: dispatch.budget.used),
    ),
    Counter(
        "dispatchPendingCacheSize",
        "stompring_dispatch_pending_cache_bytes",
        GAUGE,
        "Memory of the pending cache (page blocks that may be read again), in bytes.",
        read_dispatch(lambda dispatch: dispatch.pending_cache_bytes),
    ),
    Counter(
        "dispatchHeadCacheSize",
        "stompring_dispatch_head_cache_bytes",
        GAUGE,
        "Memory of the head cache (heads of queues loaded for future consumers), in bytes.",
        read_dispatch(lambda dispatch: dispatch.head_cache_bytes),
    ),
    Counter(
        "dispatchDirectReferences",
        "stompring_dispatch_target_entries",
        GAUGE,
        "Entries of target lists, by kind: direct (in memory) or reference (matching, on disk).",
        read_dispatch(lambda dispatch: dispatch.direct_entries),
        labels={"kind": "direct"},
        description="Entries of target lists whose message is in memory.",
    ),
    Counter(
        "dispatchCacheReferences",
        "stompring_dispatch_target_entries",
        GAUGE,
        "Entries of target lists, by kind: direct (in memory) or reference (matching, on disk).",
        read_dispatch(lambda dispatch: dispatch.reference_entries),
        labels={"kind": "reference"},
        description="Entries of target lists that match and are on disk.",
    ),
    Counter(
        "dispatchWatermarkLag",
        "stompring_dispatch_watermark_lag",
        GAUGE,
        "Paged messages of queues that have consumers.",
        read_dispatch(lambda dispatch: dispatch.watermark_lag),
    ),
    Counter(
        "dispatchBlocksRead",
        "stompring_dispatch_blocks_read_total",
        COUNTER,
        "Blocks read from page files.",
        read_dispatch(lambda dispatch: dispatch.blocks_read),
    ),
)

DIVERT: tuple[Counter[Divert], ...] = (
    Counter(
        "copiedMessageCount",
        "stompring_divert_messages_total",
        COUNTER,
        "Copies that a divert has sent and that were routed to a queue or by another divert.",
        lambda d: d.copied_messages,
    ),
    Counter(
        "unroutedMessageCount",
        "stompring_divert_unrouted_messages_total",
        COUNTER,
        "Copies of a divert that no queue accepted.",
        lambda d: d.unrouted_messages,
    ),
    Counter(
        "droppedMessageCount",
        "stompring_divert_dropped_messages_total",
        COUNTER,
        "Copies of a divert that a full address or a policy dropped.",
        lambda d: d.dropped_messages,
    ),
    Counter(
        "loopCount",
        "stompring_divert_loops_total",
        COUNTER,
        "Copies that a divert did not send because the message came from there.",
        lambda d: d.loops,
    ),
)


PERSISTENCE = tuple(
    replace(counter, null=counter.null or "Null without persistence.") for counter in DISK + STORE + DISPATCH
)


#: Outcomes of a login.
OUTCOMES = ("accepted", "refused", "throttled", "overloaded", "failed")

LOGINS_HELP = "Logins over STOMP and HTTP, by outcome."
REFUSALS_HELP = "Requests denied for lack of a permission, by permission."


NO_SECURITY = "Null without security."


def _logins(outcome: str) -> Counter[AdminContext]:
    return Counter(
        f"{outcome}LoginCount",
        "stompring_logins_total",
        COUNTER,
        LOGINS_HELP,
        lambda s: None if s.security is None else s.security.logins.outcomes[outcome],
        labels={"outcome": outcome},
        null=NO_SECURITY,
        description=f"Logins over STOMP and HTTP with the outcome {outcome!r}.",
    )


def _refusals(permission: PermissionType) -> Counter[AdminContext]:
    return Counter(
        f"{permission}RefusalCount",
        "stompring_permission_refusals_total",
        COUNTER,
        REFUSALS_HELP,
        lambda s: None if s.security is None else s.security.authority.rejections[permission],
        labels={"permission": permission.value},
        null=NO_SECURITY,
        description=f"Requests denied for lack of the permission {permission.value}.",
    )


SECURITY: tuple[Counter[AdminContext], ...] = (
    *(_logins(outcome) for outcome in OUTCOMES),
    *(_refusals(permission) for permission in PermissionType),
)


def memory_percentage(context: AdminContext) -> float:
    """Used share of global-max-size in percent, 0 without a limit."""
    memory = context.broker.memory
    return round(100 * memory.bytes / memory.max_bytes, 2) if memory.max_bytes > 0 else 0.0


BROKER: tuple[Counter[AdminContext], ...] = (
    Counter(
        "uptime",
        "stompring_uptime_seconds",
        GAUGE,
        "Time since the broker started.",
        lambda s: s.broker.clock.steady.now - s.broker.begun,
        scale=0.001,
    ),
    Counter(
        "connectionCount",
        "stompring_connections",
        GAUGE,
        "Open STOMP connections.",
        lambda s: len(s.connections),
    ),
    Counter(
        "totalConnectionCount",
        "stompring_connections_opened_total",
        COUNTER,
        "STOMP connections opened.",
        lambda s: s.connections.total,
    ),
    Counter(
        "addressCount",
        "stompring_addresses",
        GAUGE,
        "Addresses of the broker.",
        lambda s: len(s.broker.directory.addresses) - len(s.broker.retroactive),
    ),
    Counter(
        "queueCount",
        "stompring_queues",
        GAUGE,
        "Queues of the broker.",
        lambda s: len(s.broker.directory.queues) - 2 * len(s.broker.retroactive),
    ),
    Counter(
        "heldMessageCount",
        "stompring_messages",
        GAUGE,
        "Messages in memory. A message in several queues counts once.",
        lambda s: s.broker.memory.messages,
    ),
    Counter(
        "addressMemoryUsage",
        "stompring_address_memory_usage_bytes",
        GAUGE,
        "Memory of all messages, in bytes. A message in several queues counts once.",
        lambda s: s.broker.memory.bytes,
    ),
    Counter(
        "globalMaxSize",
        "stompring_address_memory_limit_bytes",
        GAUGE,
        "Limit on the memory of all messages (global-max-size), in bytes; -1: no limit.",
        lambda s: s.broker.memory.max_bytes,
        minimum=-1,
    ),
    Counter(
        "globalMaxMessages",
        "stompring_messages_limit",
        GAUGE,
        "Limit on the number of messages in memory (global-max-messages); -1: no limit.",
        lambda s: s.broker.memory.max_messages,
        minimum=-1,
    ),
    *LIMITS,
    *PERSISTENCE,
    *SECURITY,
)
