"""The counters of the store and of the disks it is on; None throughout where everything is in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .counters import COUNTER, GAUGE, Counter
from .served import Dispatch, Paging, Reading, Retention, Served, Store


def of_store(read: Callable[[Store], Any]) -> Callable[[Served], Any]:
    """A number of the store."""
    return lambda served: None if served.store is None else read(served.store)


def of_retention(read: Callable[[Retention], Any]) -> Callable[[Served], Any]:
    """A number of what is retained."""
    return of_store(lambda store: None if store.retention is None else read(store.retention))


def of_disk(read: Callable[[Reading], Any]) -> Callable[[Served], Any]:
    """A number of the fuller of the disks of journal and pages."""

    def reader(served: Served) -> Any:
        reading = None if served.disk_monitor is None else served.disk_monitor.reading
        return None if reading is None else read(reading)

    return reader


def of_paging(read: Callable[[Paging], Any]) -> Callable[[Served], Any]:
    """A number of all pages."""
    return lambda served: None if served.paging is None else read(served.paging)


def of_dispatch(read: Callable[[Dispatch], Any]) -> Callable[[Served], Any]:
    """A number of dispatch."""
    return lambda served: None if served.dispatch is None else read(served.dispatch)


DISK: tuple[Counter[Served], ...] = (
    Counter(
        "diskUsage",
        "stompring_disk_usage_ratio",
        GAUGE,
        "Share of the disk of journal and pages that is in use, of two disks the fuller one; 0 to 1.",
        of_disk(lambda disk: round(disk.usage, 4)),
    ),
    Counter(
        "diskFree",
        "stompring_disk_free_bytes",
        GAUGE,
        "Bytes free there.",
        of_disk(lambda disk: disk.free),
    ),
    Counter(
        "diskFull",
        "stompring_disk_full",
        GAUGE,
        "1 while it counts as full (max-disk-usage, min-disk-free).",
        lambda served: None if served.disk_monitor is None else served.broker.disk.full,
    ),
)

STORE: tuple[Counter[Served], ...] = (
    Counter(
        "storeFailing",
        "stompring_store_failing",
        GAUGE,
        "1 while the disk refuses to take what is written.",
        of_store(lambda store: store.writer.failing is not None),
    ),
    Counter(
        "storeFailures",
        "stompring_store_failures_total",
        COUNTER,
        "Writes that the disk refused; each is tried again.",
        of_store(lambda store: store.writer.failures),
    ),
    Counter(
        "storeWaitingSize",
        "stompring_store_waiting_bytes",
        GAUGE,
        "Bytes that are to be written and are not yet.",
        of_store(lambda store: store.writer.waiting_bytes),
    ),
    Counter(
        "storeBatches",
        "stompring_store_batches_total",
        COUNTER,
        "Batches written and synced, to journal and pages.",
        of_store(lambda store: store.writer.batches),
    ),
    Counter(
        "storeBytesWritten",
        "stompring_store_written_bytes_total",
        COUNTER,
        "Bytes written to journal and pages.",
        of_store(lambda store: store.writer.bytes_written),
    ),
    Counter(
        "storeTime",
        "stompring_store_disk_seconds_total",
        COUNTER,
        "Time that the disk took to write and sync them.",
        of_store(lambda store: store.writer.disk_seconds * 1000),
        scale=0.001,
    ),
    Counter(
        "journalFiles",
        "stompring_journal_segments",
        GAUGE,
        "Files of the journal.",
        of_store(lambda store: len(store.journal.segments)),
    ),
    Counter(
        "journalSize",
        "stompring_journal_size_bytes",
        GAUGE,
        "Bytes that they take.",
        of_store(lambda store: store.journal.bytes),
    ),
    Counter(
        "journalLiveSize",
        "stompring_journal_live_bytes",
        GAUGE,
        "Bytes in them that still count; the rest goes when the journal is compacted.",
        of_store(lambda store: store.journal.live_bytes),
    ),
    Counter(
        "journalCompactions",
        "stompring_journal_compactions_total",
        COUNTER,
        "Files of the journal whose rest was written again, so that they could go.",
        of_store(lambda store: store.compaction.segments),
    ),
    Counter(
        "journalRewritten",
        "stompring_journal_rewritten_bytes_total",
        COUNTER,
        "Bytes written again for that.",
        of_store(lambda store: store.compaction.rewritten),
    ),
    Counter(
        "journalLost",
        "stompring_journal_lost_bytes_total",
        COUNTER,
        "Bytes of the journal that could not be read at the start.",
        of_store(lambda store: 0 if store.recovery is None else store.recovery.lost_bytes),
    ),
    Counter(
        "retentionFiles",
        "stompring_retention_files",
        GAUGE,
        "Files that are kept although nothing in them counts (journal-retention-directory).",
        of_retention(lambda retention: retention.files),
    ),
    Counter(
        "retentionSize",
        "stompring_retention_bytes",
        GAUGE,
        "Bytes that they take.",
        of_retention(lambda retention: retention.bytes),
    ),
    Counter(
        "retentionDeleted",
        "stompring_retention_deleted_files_total",
        COUNTER,
        "Files of them that were deleted: their period was over, or the storage-limit reached.",
        of_retention(lambda retention: retention.deleted),
    ),
    Counter(
        "retentionDeletedNotIngested",
        "stompring_retention_deleted_not_ingested_files_total",
        COUNTER,
        "Those of them that had not been ingested into every lake that is known (ingested.json).",
        of_retention(lambda retention: retention.deleted_not_ingested),
    ),
    Counter(
        "pageBytesRead",
        "stompring_pages_read_bytes_total",
        COUNTER,
        "Bytes read from pages.",
        of_paging(lambda paging: paging.reads.bytes_read),
    ),
    Counter(
        "damagedPages",
        "stompring_pages_damaged_total",
        COUNTER,
        "Page files of which something could not be read, now or at the start.",
        of_paging(lambda paging: paging.damaged_pages),
    ),
    Counter(
        "lostMessageCount",
        "stompring_messages_lost_total",
        COUNTER,
        "Messages that were in pages and cannot be read any more.",
        of_paging(lambda paging: paging.lost_messages),
    ),
)

DISPATCH: tuple[Counter[Served], ...] = (
    Counter(
        "dispatchBudget",
        "stompring_dispatch_budget_bytes",
        GAUGE,
        "Memory for what was read back from pages (dispatch-memory).",
        of_dispatch(lambda dispatch: dispatch.budget.limit),
    ),
    Counter(
        "dispatchUsed",
        "stompring_dispatch_used_bytes",
        GAUGE,
        "How much of that is used.",
        of_dispatch(lambda dispatch: dispatch.budget.used),
    ),
    Counter(
        "dispatchPendingCacheSize",
        "stompring_dispatch_pending_cache_bytes",
        GAUGE,
        "Memory of the blocks of pages that are kept because they may be wanted again.",
        of_dispatch(lambda dispatch: dispatch.pending_cache_bytes),
    ),
    Counter(
        "dispatchHeadCacheSize",
        "stompring_dispatch_head_cache_bytes",
        GAUGE,
        "Memory of what was loaded from the heads of queues for consumers that may come.",
        of_dispatch(lambda dispatch: dispatch.head_cache_bytes),
    ),
    Counter(
        "dispatchDirectReferences",
        "stompring_dispatch_target_entries",
        GAUGE,
        "Entries of target lists: messages in memory (direct), or known to match and on disk (reference).",
        of_dispatch(lambda dispatch: dispatch.direct_entries),
        labels={"kind": "direct"},
    ),
    Counter(
        "dispatchCacheReferences",
        "stompring_dispatch_target_entries",
        GAUGE,
        "Entries of target lists: messages in memory (direct), or known to match and on disk (reference).",
        of_dispatch(lambda dispatch: dispatch.reference_entries),
        labels={"kind": "reference"},
    ),
    Counter(
        "dispatchWatermarkLag",
        "stompring_dispatch_watermark_lag",
        GAUGE,
        "Messages on disk only, of queues that have consumers.",
        of_dispatch(lambda dispatch: dispatch.watermark_lag),
    ),
    Counter(
        "dispatchBlocksRead",
        "stompring_dispatch_blocks_read_total",
        COUNTER,
        "Blocks of pages that were read.",
        of_dispatch(lambda dispatch: dispatch.blocks_read),
    ),
)

OF_STORE = DISK + STORE + DISPATCH
