"""The counters of queues, addresses and the broker: names in JSON and Prometheus, meanings, and functions to read them.

The broker maintains the integers behind them even if no request reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic

from stompring.broker.address import Address
from stompring.broker.bridge import Bridge, BridgeState
from stompring.broker.publish import Divert
from stompring.broker.queue import Queue
from stompring.session.subscription import AcknowledgedSubscription
from stompring.settings.model import PermissionType

from .context import AdminContext, Security
from .json_schema import Field, Fields, Schema, Source, Thing, reader, typed

if TYPE_CHECKING:
    from prometheus_client.core import Metric


@dataclass(frozen=True)
class Counter(Generic[Thing]):
    """One number of a queue, an address or the broker. ``source`` reads its value in JSON (see `Field`).

    A value of None is null in JSON and absent from Prometheus; ``null`` describes in which case. ``labels`` distinguish
    the counters of one metric; these counters must be adjacent. ``description``: meaning in JSON; empty: as in HELP.
    """

    json: str
    metric: str
    help: str
    source: Source[Thing]
    labels: Mapping[str, str] = field(default_factory=dict)
    type: str = "integer"  # type of the value in JSON
    minimum: int = 0
    null: str = ""
    description: str = ""

    @cached_property
    def read(self) -> Callable[[Thing], Any]:
        """The function that reads the JSON value of this counter from a queue, an address or another object."""
        return reader(self.source)

    @property
    def scale(self) -> float:
        """Factor from the value in JSON to the metric: 0.001 for times (milliseconds in JSON, seconds in metrics)."""
        return 0.001 if "_seconds" in self.metric else 1

    @property
    def schema(self) -> Schema:
        """The JSON schema of the number."""
        text = self.description or self.help.replace("1 while", "True while")
        unit = "Milliseconds." if self.scale == 0.001 else ""
        description = " ".join(part for part in (text, unit, self.null) if part)
        bounds = {} if self.type == "boolean" else {"minimum": self.minimum}
        return typed(self.type, description, "", bool(self.null), bounds)


Counters = tuple[Counter[Thing], ...]


def of_part(part: str, null: str, *counters: Counter[Any]) -> Counters[Any]:
    """Return ``counters`` that read from the attribute ``part`` of an object (see `reader`).

    If the attribute is None, the counters are null; ``null`` describes this case.
    """
    find: Callable[[Any], Any] = reader(part)

    def read(own: Callable[[Any], Any], whole: object) -> Any:
        found = find(whole)
        return None if found is None else own(found)

    return tuple(replace(each, source=partial(read, each.read), null=each.null or null) for each in counters)


def help_text(*counters: Counter[Any]) -> str:
    """The text of HELP for a metric with these counters: its meaning, and the names of the counters in JSON."""
    return f"{counters[0].help} JSON: {', '.join(counter.json for counter in counters)}."


def families_of(thing: Thing, counters: Iterable[Counter[Thing]]) -> Iterator[Metric]:
    """Yield the metrics of one thing, without counters that have no value."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for metric, alike in groupby(counters, key=attrgetter("metric")):
        group = list(alike)
        kind = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
        family: Metric = kind(metric, help_text(*group))
        for counter in group:
            value = counter.read(thing)
            if value is not None:
                family.add_sample(metric, dict(counter.labels), value * counter.scale)
        if family.samples:
            yield family


def labelled_families(
    name: str, text: str, labels: str, samples: Iterable[tuple[str | Sequence[str], float]]
) -> Iterator[Metric]:
    """Yield a family with ``samples``: pairs of label value (or values) and number. Without samples, yield nothing.

    ``labels`` are the names of the labels, separated by spaces.
    """
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, text, labels=labels.split())
    for values, number in samples:
        family.add_metric((values,) if isinstance(values, str) else values, number)
    if family.samples:
        yield family


def oldest_message_age(queue: Queue) -> int | None:
    """Milliseconds since the next message to be delivered was sent.

    None if no message is pending, or if the next message is on disk and was not read yet.
    """
    head = queue.dispatcher.first() if queue.count else None
    oldest = None if head is None else head.message.timestamp
    if queue.paged is not None and queue.paged.position_before(head) is not None:
        oldest = queue.paged.oldest
    return None if oldest is None else max(0, queue.broker.clock.now - oldest)


def oldest_age(queue: Queue) -> int | None:
    """Milliseconds since the oldest pending message of any priority was sent.

    None if no message is pending, or if all pending messages are on disk and were not read yet.
    """
    times = [ref.message.timestamp for pending in queue.dispatcher.lists() for ref in pending.heads()]
    if queue.paged is not None and queue.paged.oldest is not None:
        times.append(queue.paged.oldest)
    return max(0, queue.broker.clock.now - min(times)) if times else None


QUEUE: Counters[Queue] = (
    Counter(
        "messageCount",
        "stompring_queue_messages",
        "Messages in the queue: pending, scheduled, delivering and paged.",
        "message_count",
    ),
    Counter(
        "deliveringCount",
        "stompring_queue_delivering_messages",
        "Messages delivered to a consumer and not yet acknowledged.",
        "delivering",
    ),
    Counter(
        "scheduledCount",
        "stompring_queue_scheduled_messages",
        "Scheduled messages that are not due yet, including delayed redeliveries.",
        "scheduled_count",
    ),
    Counter(
        "consumerCount",
        "stompring_queue_consumers",
        "Consumers of the queue.",
        lambda q: len(q.consumers),
    ),
    Counter(
        "ringSize",
        "stompring_queue_ring_size",
        "Maximum number of pending messages (ring-size); -1: not a ring queue.",
        "ring_size",
        minimum=-1,
    ),
    Counter(
        "messagesAdded",
        "stompring_queue_messages_added_total",
        "Messages added to the queue.",
        "messages_added",
    ),
    Counter(
        "messagesAcknowledged",
        "stompring_queue_messages_acknowledged_total",
        "Messages acknowledged by consumers, or removed one by one by management.",
        "messages_acknowledged",
    ),
    Counter(
        "messagesExpired",
        "stompring_queue_messages_expired_total",
        "Messages expired in the queue.",
        "messages_expired",
    ),
    Counter(
        "messagesKilled",
        "stompring_queue_messages_killed_total",
        "Messages removed after max-delivery-attempts, by a purge, or with the queue.",
        "messages_killed",
    ),
    Counter(
        "messagesReplaced",
        "stompring_queue_messages_replaced_total",
        "Messages evicted because the ring was full, or replaced by a newer one with their key.",
        "messages_replaced",
    ),
    Counter(
        "keyCount",
        "stompring_queue_keys",
        "Keys in the index of a last-value queue; 0: not a last-value queue.",
        "keys",
    ),
    Counter(
        "groupCount",
        "stompring_queue_groups",
        "Message groups pinned to a consumer; with group-buckets above 0, buckets of them.",
        "dispatcher.group_count",
    ),
    Counter(
        "persistentSize",
        "stompring_queue_persistent_size_bytes",
        "Memory of the messages in the queue, in bytes. A message in several queues counts in each.",
        "persistent_size",
    ),
    Counter(
        "pagedCount",
        "stompring_queue_paged_messages",
        "Pending messages that are only on disk, in page files.",
        "paged_count",
    ),
    Counter(
        "oldestMessageAge",
        "stompring_queue_oldest_message_age_seconds",
        "Age of the next message to be delivered; 0: no pending message.",
        oldest_message_age,
        null="Null without a pending message, or if it is on disk and was not read yet.",
        description="Age of the next message to be delivered.",
    ),
)

ADDRESS: Counters[Address] = (
    Counter(
        "addressSize",
        "stompring_address_size_bytes",
        "Memory of the messages sent to the address and still in a queue, in bytes.",
        "memory_limit.bytes",
    ),
    Counter(
        "retroactiveMessages",
        "stompring_address_retroactive_messages",
        "Messages kept for queues that are created later (retroactive-message-count).",
        lambda a: 0 if a.retroactive is None else a.retroactive.count,
    ),
    Counter(
        "numberOfPages",
        "stompring_address_pages",
        "Page files of the address.",
        lambda a: 0 if a.pages is None else a.pages.count,
    ),
    Counter(
        "pagesSize",
        "stompring_address_pages_bytes",
        "Size of the page files of the address, in bytes.",
        lambda a: 0 if a.pages is None else a.pages.bytes,
    ),
    Counter(
        "paging",
        "stompring_address_paging",
        "1 while the address is paging: new messages are written to page files.",
        "memory_limit.paging",
        type="boolean",
    ),
    Counter(
        "timesPaged",
        "stompring_address_times_paged_total",
        "Number of times the address started paging.",
        "times_paged",
    ),
    Counter(
        "blockedProducers",
        "stompring_address_blocked_producers",
        "Connections blocked because the address, the disk or the store is full.",
        "blocked_producers",
    ),
    Counter(
        "limitPercent",
        "stompring_address_limit_percent",
        "Usage of max-size-bytes or max-size-messages in percent, whichever is higher; 0: no limit.",
        "memory_limit.percent",
    ),
    Counter(
        "routedMessageCount",
        "stompring_address_routed_messages_total",
        "Messages sent to the address and routed to at least one queue.",
        "routed_messages",
    ),
    Counter(
        "unRoutedMessageCount",
        "stompring_address_unrouted_messages_total",
        "Messages sent to the address and routed to no queue.",
        "unrouted_messages",
    ),
    Counter(
        "droppedMessageCount",
        "stompring_address_dropped_messages_total",
        "Messages dropped because the address, its pages or the disk were full (DROP), or by a plugin.",
        "dropped_messages",
    ),
    Counter(
        "duplicateMessageCount",
        "stompring_address_duplicate_messages_total",
        "Messages discarded as duplicates: their _AMQ_DUPL_ID is already known.",
        "duplicate_messages",
    ),
)


BRIDGE: Counters[Bridge] = (
    Counter(
        "connected",
        "stompring_bridge_connected",
        "1 while the bridge is connected to the remote broker.",
        lambda b: b.state is BridgeState.CONNECTED,
        type="boolean",
    ),
    Counter(
        "inFlight",
        "stompring_bridge_in_flight_messages",
        "Messages sent to the remote broker and not yet confirmed.",
        "in_flight",
    ),
    Counter(
        "messagesForwarded",
        "stompring_bridge_messages_forwarded_total",
        "Messages that the remote broker has confirmed.",
        "messages_forwarded",
    ),
    Counter(
        "bytesForwarded",
        "stompring_bridge_forwarded_bytes_total",
        "Bytes of these messages.",
        "bytes_forwarded",
    ),
    Counter(
        "messagesDiscarded",
        "stompring_bridge_messages_discarded_total",
        "Messages that the transformer did not send.",
        "messages_discarded",
    ),
    Counter(
        "errors",
        "stompring_bridge_errors_total",
        "ERROR frames of the remote broker.",
        "errors",
    ),
    Counter(
        "connections",
        "stompring_bridge_connections_total",
        "Connections to remote brokers that worked.",
        "connections",
    ),
)


def fields_of(counters: Iterable[Counter[Thing]]) -> Fields[Thing]:
    """The counters as fields of a JSON object."""
    return {counter.json: Field(counter.schema, counter.read) for counter in counters}


def consumers_without_credit(context: AdminContext) -> int:
    """Number of consumers without credit."""
    return sum(
        isinstance(subscription, AcknowledgedSubscription) and subscription.exhausted
        for session in context.connections
        for subscription in session.subscriptions.values()
    )


LIMITS: Counters[AdminContext] = (
    Counter(
        "globalMaxConnections",
        "stompring_connections_limit",
        "Limit on open STOMP connections (global-max-connections); -1: no limit.",
        "connections.global_limit.limit",
        minimum=-1,
    ),
    Counter(
        "globalMaxAddresses",
        "stompring_addresses_limit",
        "Limit on the number of addresses (global-max-addresses); -1: no limit.",
        "broker.configuration.global_max_addresses",
        minimum=-1,
    ),
    Counter(
        "globalMaxQueues",
        "stompring_queues_limit",
        "Limit on the number of queues (global-max-queues); -1: no limit.",
        "broker.configuration.global_max_queues",
        minimum=-1,
    ),
    Counter(
        "transactionSize",
        "stompring_transactions_bytes",
        "Memory of the messages sent in open transactions, in bytes.",
        "broker.transaction_bytes.bytes",
    ),
    Counter(
        "globalMaxTransactionSize",
        "stompring_transactions_limit_bytes",
        "Limit on the memory of open transactions (global-max-transaction-size), in bytes; -1: no limit.",
        "broker.transaction_bytes.limit",
        minimum=-1,
    ),
    Counter(
        "subscriptionSize",
        "stompring_subscriptions_bytes",
        "Memory that subscriptions count for, with their selectors, in bytes.",
        "broker.subscription_memory.bytes",
    ),
    Counter(
        "globalMaxSubscriptionSize",
        "stompring_subscriptions_limit_bytes",
        "Limit on the memory of subscriptions (global-max-subscription-size), in bytes; -1: no limit.",
        "broker.subscription_memory.limit",
        minimum=-1,
    ),
    Counter(
        "unfinishedSize",
        "stompring_unfinished_bytes",
        "Memory of unfinished frames, of connections with more than 64 KiB of one, in bytes.",
        "broker.unfinished.bytes",
    ),
    Counter(
        "globalMaxUnfinishedSize",
        "stompring_unfinished_limit_bytes",
        "Limit on the memory of unfinished frames (global-max-unfinished-size), in bytes; -1: no limit.",
        "broker.unfinished.limit",
        minimum=-1,
    ),
    Counter(
        "slowConnections",
        "stompring_slow_connections",
        "Connections whose client has read nothing for 10 seconds while the outbox was full.",
        "outgoing.slow.count",
    ),
    Counter(
        "exhaustedConsumers",
        "stompring_exhausted_consumers",
        "Consumers without credit: they receive nothing until they acknowledge.",
        consumers_without_credit,
    ),
    Counter(
        "slowConsumers",
        "stompring_slow_consumers",
        "Consumers below slow-consumer-threshold at the last check.",
        "broker.slow_consumers.slow",
    ),
    Counter(
        "stalledConsumers",
        "stompring_stalled_consumers",
        "Consumers that have held a message unacknowledged for a minute while more wait.",
        lambda s: len(s.sampler.stalled()),
    ),
    Counter(
        "notificationsSent",
        "stompring_notifications_sent_total",
        "Messages about events that a queue of the management-notification-address accepted.",
        "broker.notifications.sent",
    ),
    Counter(
        "notificationsDropped",
        "stompring_notifications_dropped_total",
        "Messages about events that were not sent because more than 1000 waited.",
        "broker.notifications.dropped",
    ),
    Counter(
        "managementRequestCount",
        "stompring_management_requests_total",
        "Requests to the management-address that succeeded.",
        "management.succeeded",
    ),
    Counter(
        "managementFailureCount",
        "stompring_management_requests_failed_total",
        "Requests to the management-address that failed.",
        "management.failed",
    ),
    Counter(
        "slowConsumersNotified",
        "stompring_slow_consumers_notified_total",
        "Slow consumers logged and left connected (slow-consumer-policy NOTIFY).",
        "broker.slow_consumers.notified",
    ),
    Counter(
        "slowConsumersKilled",
        "stompring_slow_consumers_killed_total",
        "Slow consumers disconnected (slow-consumer-policy KILL).",
        "broker.slow_consumers.killed",
    ),
)


NO_PERSISTENCE = "Null without persistence."

PERSISTENCE: Counters[AdminContext] = (
    *of_part(
        "disk_monitor.reading",
        NO_PERSISTENCE,
        Counter(
            "diskUsage",
            "stompring_disk_usage_ratio",
            "Used share of the disk of journal and pages, 0 to 1; of two disks the fuller one.",
            lambda disk: round(disk.usage, 4),
            type="number",
        ),
        Counter(
            "diskFree",
            "stompring_disk_free_bytes",
            "Free space on the disk of journal and pages, in bytes; of two disks the fuller one.",
            "free",
        ),
    ),
    Counter(
        "diskFull",
        "stompring_disk_full",
        "1 while the disk counts as full (max-disk-usage, min-disk-free).",
        lambda context: None if context.disk_monitor is None else context.broker.disk.full,
        type="boolean",
        null=NO_PERSISTENCE,
    ),
    *of_part(
        "store",
        NO_PERSISTENCE,
        Counter(
            "storeFailing",
            "stompring_store_failing",
            "1 while writes to the store fail.",
            lambda store: store.writer.failing is not None,
            type="boolean",
        ),
        Counter(
            "storeFailures",
            "stompring_store_failures_total",
            "Failed writes to journal and pages. Each write is retried.",
            "writer.failures",
        ),
        Counter(
            "storeWaitingSize",
            "stompring_store_waiting_bytes",
            "Bytes queued for the store and not yet written.",
            "writer.waiting_bytes",
        ),
        Counter(
            "storeBatches",
            "stompring_store_batches_total",
            "Batches written and synced to journal and pages.",
            "writer.batches",
        ),
        Counter(
            "storeBytesWritten",
            "stompring_store_written_bytes_total",
            "Bytes written to journal and pages.",
            "writer.bytes_written",
        ),
        Counter(
            "storeTime",
            "stompring_store_disk_seconds_total",
            "Time spent writing and syncing batches.",
            lambda store: store.writer.disk_seconds * 1000,
            type="number",
        ),
        Counter(
            "journalFiles",
            "stompring_journal_segments",
            "Segments (files) of the journal.",
            lambda store: len(store.journal.segments),
        ),
        Counter(
            "journalSize",
            "stompring_journal_size_bytes",
            "Size of the journal, in bytes.",
            "journal.bytes",
        ),
        Counter(
            "journalLiveSize",
            "stompring_journal_live_bytes",
            "Bytes of the journal that are still needed; compaction frees the others.",
            "journal.live_bytes",
        ),
        Counter(
            "journalCompactions",
            "stompring_journal_compactions_total",
            "Journal segments compacted: the needed records rewritten, the file released.",
            "compaction.segments",
        ),
        Counter(
            "journalRewritten",
            "stompring_journal_rewritten_bytes_total",
            "Bytes rewritten by compaction.",
            "compaction.rewritten",
        ),
        Counter(
            "journalLost",
            "stompring_journal_lost_bytes_total",
            "Bytes of the journal that recovery could not read.",
            "lost_bytes",
        ),
    ),
    *of_part(
        "store.retention",
        "Null without journal-retention-directory.",
        Counter(
            "retentionFiles",
            "stompring_retention_files",
            "Retained journal and page files (journal-retention-directory).",
            "files",
        ),
        Counter(
            "retentionSize",
            "stompring_retention_bytes",
            "Size of the retained files, in bytes.",
            "bytes",
        ),
        Counter(
            "retentionDeleted",
            "stompring_retention_deleted_files_total",
            "Retained files deleted after their period or because of the storage-limit.",
            "deleted",
        ),
        Counter(
            "retentionDeletedNotIngested",
            "stompring_retention_deleted_not_ingested_files_total",
            "Retained files deleted before every known lake (ingested.json) had ingested them.",
            "deleted_not_ingested",
        ),
    ),
    *of_part(
        "paging",
        NO_PERSISTENCE,
        Counter(
            "pageBytesRead",
            "stompring_pages_read_bytes_total",
            "Bytes read from page files.",
            "reads.bytes_read",
        ),
        Counter(
            "damagedPages",
            "stompring_pages_damaged_total",
            "Page files with unreadable parts.",
            "damaged_pages",
        ),
        Counter(
            "lostMessageCount",
            "stompring_messages_lost_total",
            "Messages lost in unreadable parts of page files.",
            "lost_messages",
        ),
    ),
    *of_part(
        "dispatch",
        NO_PERSISTENCE,
        Counter(
            "dispatchBudget",
            "stompring_dispatch_budget_bytes",
            "Limit on the memory of messages read back from pages (dispatch-memory), in bytes.",
            "budget.limit",
        ),
        Counter(
            "dispatchUsed",
            "stompring_dispatch_used_bytes",
            "Memory of messages read back from pages, in bytes.",
            "budget.used",
        ),
        Counter(
            "dispatchPendingCacheSize",
            "stompring_dispatch_pending_cache_bytes",
            "Memory of the pending cache (page blocks that may be read again), in bytes.",
            "pending_cache_bytes",
        ),
        Counter(
            "dispatchHeadCacheSize",
            "stompring_dispatch_head_cache_bytes",
            "Memory of the head cache (heads of queues loaded for future consumers), in bytes.",
            "head_cache_bytes",
        ),
        Counter(
            "dispatchDirectReferences",
            "stompring_dispatch_target_entries",
            "Entries of target lists, by kind: direct (in memory) or reference (matching, on disk).",
            "direct_entries",
            labels={"kind": "direct"},
            description="Entries of target lists whose message is in memory.",
        ),
        Counter(
            "dispatchCacheReferences",
            "stompring_dispatch_target_entries",
            "Entries of target lists, by kind: direct (in memory) or reference (matching, on disk).",
            "reference_entries",
            labels={"kind": "reference"},
            description="Entries of target lists that match and are on disk.",
        ),
        Counter(
            "dispatchWatermarkLag",
            "stompring_dispatch_watermark_lag",
            "Paged messages of queues that have consumers.",
            "watermark_lag",
        ),
        Counter(
            "dispatchBlocksRead",
            "stompring_dispatch_blocks_read_total",
            "Blocks read from page files.",
            "blocks_read",
        ),
    ),
)

DIVERT: Counters[Divert] = (
    Counter(
        "copiedMessageCount",
        "stompring_divert_messages_total",
        "Copies that a divert has sent and that were routed to a queue or by another divert.",
        "copied_messages",
    ),
    Counter(
        "unroutedMessageCount",
        "stompring_divert_unrouted_messages_total",
        "Copies of a divert that no queue accepted.",
        "unrouted_messages",
    ),
    Counter(
        "droppedMessageCount",
        "stompring_divert_dropped_messages_total",
        "Copies of a divert that a full address or a policy dropped.",
        "dropped_messages",
    ),
    Counter(
        "loopCount",
        "stompring_divert_loops_total",
        "Copies that a divert did not send because the message came from there.",
        "loops",
    ),
)


#: Outcomes of a login.
OUTCOMES = ("accepted", "refused", "throttled", "overloaded", "failed")


def _logins(outcome: str) -> Counter[Security]:
    return Counter(
        f"{outcome}LoginCount",
        "stompring_logins_total",
        "Logins over STOMP and HTTP, by outcome.",
        lambda security: security.logins.outcomes[outcome],
        labels={"outcome": outcome},
        description=f"Logins over STOMP and HTTP with the outcome {outcome!r}.",
    )


def _refusals(permission: PermissionType) -> Counter[Security]:
    return Counter(
        f"{permission}RefusalCount",
        "stompring_permission_refusals_total",
        "Requests denied for lack of a permission, by permission.",
        lambda security: security.authority.rejections[permission],
        labels={"permission": permission.value},
        description=f"Requests denied for lack of the permission {permission.value}.",
    )


SECURITY: Counters[AdminContext] = of_part(
    "security", "Null without security.", *map(_logins, OUTCOMES), *map(_refusals, PermissionType)
)


def memory_percentage(context: AdminContext) -> float:
    """Used share of global-max-size in percent, 0 without a limit."""
    memory = context.broker.memory
    return round(100 * memory.bytes / memory.max_bytes, 2) if memory.max_bytes > 0 else 0.0


BROKER: Counters[AdminContext] = (
    Counter(
        "uptime",
        "stompring_uptime_seconds",
        "Time since the broker started.",
        lambda s: s.broker.clock.steady.now - s.broker.begun,
    ),
    Counter(
        "connectionCount",
        "stompring_connections",
        "Open STOMP connections.",
        lambda s: len(s.connections),
    ),
    Counter(
        "totalConnectionCount",
        "stompring_connections_opened_total",
        "STOMP connections opened.",
        "connections.total",
    ),
    Counter(
        "addressCount",
        "stompring_addresses",
        "Addresses of the broker.",
        lambda s: len(s.broker.directory.addresses) - len(s.broker.retroactive),
    ),
    Counter(
        "queueCount",
        "stompring_queues",
        "Queues of the broker.",
        lambda s: len(s.broker.directory.queues) - 2 * len(s.broker.retroactive),
    ),
    Counter(
        "heldMessageCount",
        "stompring_messages",
        "Messages in memory. A message in several queues counts once.",
        "broker.memory.messages",
    ),
    Counter(
        "addressMemoryUsage",
        "stompring_address_memory_usage_bytes",
        "Memory of all messages, in bytes. A message in several queues counts once.",
        "broker.memory.bytes",
    ),
    Counter(
        "globalMaxSize",
        "stompring_address_memory_limit_bytes",
        "Limit on the memory of all messages (global-max-size), in bytes; -1: no limit.",
        "broker.memory.max_bytes",
        minimum=-1,
    ),
    Counter(
        "globalMaxMessages",
        "stompring_messages_limit",
        "Limit on the number of messages in memory (global-max-messages); -1: no limit.",
        "broker.memory.max_messages",
        minimum=-1,
    ),
    *LIMITS,
    *PERSISTENCE,
    *SECURITY,
)
