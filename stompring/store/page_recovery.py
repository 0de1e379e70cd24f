"""Page recovery: at start, the messages in the page files and their state by the records of the journal.

A complete page is restored from its footer alone. The page that was being written is read, truncated behind its last
complete record, and sealed; new messages go to a new page. Only durable messages of durable queues survive a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from stompring.broker.address import Address
from stompring.broker.broker import Broker
from stompring.broker.ports import TIMED, Reason
from stompring.broker.queue import Queue
from stompring.errors import StoreError
from stompring.settings.model import RoutingType

from .page_file import (
    ADDRESS_FILE,
    DIRECTORY_NAME,
    DURABLE_BIT,
    PAGE_NAME,
    Gap,
    PageScan,
    PageSummary,
    directory_number,
    page_path,
    set_aside,
    transactions_at,
)
from .pages import Cursor, Page, PageFileRecord, Pages, Paging, QueuePageState, QueueRemoved, seal_page
from .record import ADDRESS, DURABLE, MESSAGE, PREFIX, QUEUE, StoredMessage
from .recovery import Recovery
from .replay import PageRecords
from .segment import FORMAT, HEADER, MAGIC, PAGE, Header, read_footer

log = logging.getLogger(__name__)


def _queues_in(scan: PageScan, gap: Gap) -> tuple[int, ...]:
    """Return the ids of the queues in the damaged record of a durable message; empty if they are unreadable."""
    begin, data = gap.at + PREFIX.size, scan.data
    if gap.stop - begin < MESSAGE.size:
        return ()
    stored = StoredMessage(data, begin)
    if not stored.flags & DURABLE or MESSAGE.size + 4 * stored.queues > gap.stop - begin:
        return ()
    return stored.queue_ids()


#: Bytes to read at the beginning of a page, for its header, the name of its address, and the binding of a new address.
FRONT_BYTES: Final = 16_384


class PageRecovery:
    """The recovery of the pages at one start. The queues and addresses in the journal were restored before."""

    def __init__(self, paging: Paging, recovery: Recovery, broker: Broker) -> None:
        replay = recovery.replay
        self._last_address = 0  # the highest number in the names of directories
        self._paging = paging
        self._files = paging.writer.files
        self._broker = broker
        self._recovery = recovery
        self._queues = recovery.queues  # durable queues by number
        self._facts = facts = PageRecords(replay.page_records)
        # Transactions with smaller numbers are complete. Without a journal all are complete.
        self._sure_before = replay.complete_transaction if replay.segments else 1 << 64
        self._replay = replay
        self._seen_files: set[int] = set()  # numbers of pages that have a file, even a damaged one
        self.last_page = max([replay.next_page - 1, *[page for _, page in facts.segments]])
        self._found: dict[Address, tuple[list[Path], list[tuple[int, Path]]]] = {}
        self._undescribed: set[Address] = set()  # addresses that are known only by the name of a directory

    def run(self) -> None:
        """Restore all pages into `Paging.recovered`. Raises `StoreError` if the paging directory cannot be used."""
        paging, journal = self._paging, self._recovery.journal
        paging.clock = paging.reads.clock = self._broker.clock
        directory = paging.directory
        try:
            self._files.make_directory(directory)
            names = self._files.names(directory)
        except OSError as fault:
            raise StoreError(fault.strerror or str(fault), directory) from None
        for name in names:
            if DIRECTORY_NAME.fullmatch(name):
                self._directory(directory / name)
        for address, (directories, files) in self._found.items():
            self._bring_back(address, directories, sorted(files))
        for number in sorted(self._replay.page_files.keys() - self._seen_files):
            missing = page_path(directory / f"{self._replay.page_files[number].address:09d}", number)
            self._report_all(number, missing, "the file is missing")
            self._forget_file(number)
        last = max(self.last_page, 0 if paging.retention is None else paging.retention.last_page)
        paging.next_page = count(last + 1).__next__
        journal.pages_recovered(last)
        while self._last_address and next(journal.next_address) <= self._last_address:
            pass

    def _directory(self, directory: Path) -> None:
        try:
            names = self._files.names(directory)
        except OSError as fault:
            log.error("cannot read %s: %s; its messages are lost", directory, fault.strerror or fault)
            self._paging.damaged_pages += 1
            return
        files = []
        for match in filter(None, map(PAGE_NAME.fullmatch, names)):
            number = int(match[1])
            self.last_page = max(self.last_page, number)
            if match[2] is None:
                files.append((number, directory / match[0]))
        if not files:
            self._paging.release(directory)
            return
        self._last_address = max(self._last_address, directory_number(directory))
        address = self._address(directory, sorted(files))
        directories, known = self._found.setdefault(address, ([], []))
        directories.append(directory)
        known += files

    def _bring_back(self, address: Address, directories: list[Path], files: list[tuple[int, Path]]) -> None:
        pages = Pages(self._paging, address, directories[0])
        pages.directories = directories
        for number, path in files:
            page, twice = Page(pages, number, path, 0), number in self._seen_files
            try:
                self._page(page, last=path is files[-1][1])
            except OSError as fault:
                self._seen_files.add(number)
                if page.file is None and not twice:
                    self._keep_file(page)  # keep the file: the next start may be able to read it
                self._report_all(number, path, fault.strerror or str(fault))
        if pages.empty:
            for directory in directories:
                self._paging.release(directory)
            if address in self._undescribed and not address.queues:
                self._broker.directory.delete_address(address.name)
            return
        self._paging.adopt(pages)
        log.info(
            "address %s: restored %d pages with up to %d messages",
            address.name,
            pages.count,
            pages.messages,
            extra={"address": address.name},
        )

    # ---- the address of a directory

    def _address(self, directory: Path, files: list[tuple[int, Path]]) -> Address:
        name = self._name(directory, files)
        address = self._broker.directory.addresses.get(name)
        if address is not None:
            return address
        # look for the description of the address: the first page of a new address contains it
        for _, path in files:
            for (what, number), description in self._front(path).bindings.items():
                if what == ADDRESS and description.get("name") == name:
                    address = self._recovery.address_in_page(number, description, path)
                    if address is not None:
                        return address
        address = self._broker.directory.create_address(name, frozenset(RoutingType), auto_created=True)
        self._undescribed.add(address)
        return address

    def _front(self, path: Path) -> PageScan:
        """Scan the beginning of a page. The scan is empty if the file cannot be read."""
        try:
            return PageScan(self._files.read(path, 0, FRONT_BYTES))
        except OSError:
            return PageScan(b"")

    def _name(self, directory: Path, files: list[tuple[int, Path]]) -> str:
        """Return the name of a directory's address: from the file `ADDRESS_FILE`, else from a page, else from the
        journal by the number in the name of the directory.
        """
        try:
            name = self._files.read(directory / ADDRESS_FILE).decode("utf-8", "surrogateescape").strip()
        except OSError:
            name = ""
        if name:
            return name
        for _, path in files:
            found = self._front(path).name
            if found:
                return found
        number = directory_number(directory)
        addresses = self._broker.directory.addresses.values()
        return next((address.name for address in addresses if address.number == number), directory.name)

    # ---- one page

    def _page(self, page: Page, *, last: bool) -> None:
        files, number, path, address = self._files, page.number, page.path, page.pages.address.name
        size = page.bytes = files.size(path)
        header = Header.read(files.read(path, 0, HEADER.size))
        header.refuse_older(path)
        misplaced = self._replay.misplaced_page(
            number,
            path,
            header,
            address,
            lambda: self._front(path).name,
            number in self._seen_files,
            not self._recovery.damaged,
        )
        if misplaced:
            log.error(
                "%s is not page %d of address %s: %s; set aside",
                path,
                number,
                address,
                misplaced,
                extra={"address": address},
            )
            self._paging.damaged_pages += 1
            set_aside(self._paging.writer, path)
            return
        self._seen_files.add(number)
        if header.fault is None and (header.kind != PAGE or header.format > FORMAT):
            self._unreadable(page, f"unsupported segment kind {header.kind}, format {header.format}")
            return
        footer = read_footer(partial(files.read, path), size)
        summary = None if footer is None else PageSummary.of(footer)
        if summary is None or footer is None:
            scan = PageScan(files.read(path))
            if header.fault is not None and not scan.contents.numbers:
                self._not_a_page(page, header.fault, last)
                return
            file = self._keep_file(page)
            self._repair(page, file, scan, last)
            summary, transactions = scan.contents.summary(), scan.transactions
        else:
            file = self._keep_file(page)
            page.end = footer.size
            page.sealed = True
            transactions = []
            if summary.greatest_transaction >= self._sure_before:
                transactions = transactions_at(files.read(path), footer.starts)
            if 0 in summary.kinds and page.damage is None:
                page.damage = "damage was reported when the page was read"
        if header.fault is not None and page.damage is None:
            page.damage = header.fault
            self._paging.report_loss(path, header.fault, {}, new_file=False)
        journal = self._recovery.journal
        page.first_number = summary.least_number or header.next_number
        page.count = summary.count
        page.soonest_expiry, page.soonest_due = summary.soonest_expiry, summary.soonest_due
        if page.sealed and file.shares is None:
            file.messages, file.shares = summary.count, summary.durable_counts()
            journal.update(file)
        journal.next_message = max(journal.next_message, summary.greatest_number + 1)
        journal.next_queue = max(journal.next_queue, max(summary.members, default=0) + 1)
        journal.next_transaction = max(journal.next_transaction, summary.greatest_transaction + 1)
        # indexes of messages whose transactions have no commit
        unsure = [
            index
            for index, transaction in transactions
            if transaction >= self._sure_before and transaction not in self._replay.transactions
        ]
        self._page_states(page, summary, unsure)

    def _not_a_page(self, page: Page, fault: str, last: bool) -> None:
        path, writer = page.path, self._paging.writer
        begun = page.bytes < HEADER.size and MAGIC.startswith(self._files.read(path)[: len(MAGIC)])
        nobodys = page.number in self._replay.removed_pages  # the broker ended before it deleted the file
        if begun and (nobodys or (last and page.number not in self._facts.ends)):
            log.warning("%s: removed incomplete page file", path)
            self._give_up(page.number, lambda: writer.run_task(lambda files: files.remove(path)))
        else:
            self._unreadable(page, fault)

    def _unreadable(self, page: Page, fault: str) -> None:
        self._report_all(page.number, page.path, fault)
        self._give_up(page.number, lambda: set_aside(self._paging.writer, page.path))

    def _give_up(self, number: int, call: Callable[[], None]) -> None:
        """Call ``call``, which removes or renames a page file, when the journal has no live record of the file.

        If the journal has a record, ``call`` waits until the record of the removal is synced. If it has none, ``call``
        runs now: after the next write of the journal, a start could no longer recognise a file that was created just
        before a crash.
        """
        if number in self._replay.page_files:
            self._forget_file(number)
            self._paging.writer.when_synced(call, None)
        else:
            call()

    # ---- records of page files

    def _keep_file(self, page: Page) -> PageFileRecord:
        """Adopt the record of a page file in the journal, or add one."""
        known, journal = self._replay.page_files.get(page.number), self._recovery.journal
        address = directory_number(page.path.parent) if known is None else known.address
        page.file = file = PageFileRecord(journal, address, page.number)
        if known is not None:
            file.messages, file.shares = known.messages, known.shares
            self._recovery.adopt(file, known.segment)
        elif page.number not in self._replay.removed_pages:
            journal.update(file)
        return file

    def _forget_file(self, number: int) -> None:
        """Remove the record of a page file from the journal."""
        known, journal = self._replay.page_files.get(number), self._recovery.journal
        if known is not None:
            file = PageFileRecord(journal, known.address, number)
            file.gone = True
            journal.update(file)

    def _report_all(self, number: int, path: Path, reason: str) -> None:
        """Report that all unsettled messages of a page are lost."""
        known = self._replay.page_files.get(number)
        lost: dict[str, int] | None = None
        if known is not None and known.shares is not None:
            queues = self._queues
            lost = {
                queues[queue].name: count
                for queue, count in self._facts.lost_with(number, known.shares).items()
                if queue in queues
            }
        elif number in self._replay.removed_pages:
            lost = {}  # no message is lost: all messages of the page were settled
        self._paging.report_loss(path, reason, lost)

    def _page_states(self, page: Page, summary: PageSummary, unsure: list[int]) -> None:
        pages = page.pages
        pages.add(page)
        pages.bytes += page.bytes
        removed = page.number in self._replay.removed_pages  # the broker ended before it deleted the file
        for number in () if removed else summary.members:
            states = summary.states(number)
            for first, length in self._facts.settled.get((number, page.number), ()):
                stop = min(first + length, len(states))
                if first < stop:
                    states[first:stop] = bytes(stop - first)
            queue = self._queues.get(number)
            if queue is None:
                # a copy: `_restore_states` settles the uncommitted messages that it finds in ``states``
                committed = bytearray(states)
                for index in unsure:
                    committed[index] = 0
                if any(committed):  # a deleted queue is not recreated for uncommitted messages
                    queue = self._lost_queue(page, number)
                if queue is None:
                    self._end(page, number, committed)
            if queue is not None and queue.durable:
                self._restore_states(pages.cursor(queue), page, states, summary, unsure)
        if unsure:
            log.info("%s: dropped %d messages of uncommitted transactions", page.path, len(unsure))
        if not page.left:
            pages.retire(page)

    def _restore_states(
        self, cursor: Cursor, page: Page, states: bytearray, summary: PageSummary, unsure: list[int]
    ) -> None:
        key = cursor.queue.number, page.number
        page_state = QueuePageState(cursor, page, states)
        for index, (deliveries, attempts, due) in self._facts.states.get(key, {}).items():
            if index >= len(states) or not states[index]:
                continue
            page_state.set_counts(index, deliveries, attempts)
            if due:
                page_state.set_due(index, due)
                states[index] = TIMED
                page.soonest_due = min(page.soonest_due or due, due)
            else:
                states[index] = summary.kinds[index if len(summary.kinds) > 1 else 0] & 0x0F
        dead = [index for index in unsure if states[index]]
        for index in dead:
            states[index] = 0
        page_state.count_up()
        segment = self._facts.segments.get(key)
        if segment is not None:
            self._recovery.adopt(page_state, segment)
        cursor.adopt(page_state)
        if dead:
            page_state.pending_updates().settled[Reason.KILLED] += dead
        page_state.compress_states()

    def _end(self, page: Page, number: int, states: bytearray) -> None:
        """Record that a deleted queue has no message in a page. The record stays as long as the page."""
        left = len(states) - states.count(0)
        if left and (QUEUE, number) not in self._replay.ended:
            log.warning(
                "%s: skipped %d messages of queue number %d, which no longer exists", page.path, left, number
            )
        ended = QueueRemoved(page.pages.address.number, number, page)
        segment = self._facts.segments.get((number, page.number))
        if segment is None:
            page.pages.end(page, ended)
        else:
            page.ended.append(ended)
            self._recovery.adopt(ended, segment)

    def _lost_queue(self, page: Page, number: int) -> Queue | None:
        """Restore a queue whose definition the journal has lost or never had. Returns None if the queue was deleted, or
        its name is unknown.
        """
        recovery = self._recovery
        scan = PageScan(self._files.read(page.path))
        for each, name in scan.queues.items():
            self._replay.names.setdefault((QUEUE, each), name)
        description = scan.bindings.get((QUEUE, number))
        if description is not None:
            for (what, each), address in scan.bindings.items():
                if what == ADDRESS and str(address.get("name")) not in self._broker.directory.addresses:
                    recovery.address_in_page(each, address, page.path)
            queue = recovery.queue_in_page(number, description, page.path)
            if queue is not None:
                return queue
        return recovery.queue_of(number, page.pages.address, wanted=True)

    # ---- pages without a footer

    def _repair(self, page: Page, file: PageFileRecord, scan: PageScan, last: bool) -> None:
        """Keep the readable messages of a page, and report the unreadable messages. ``file``: record of the page file.
        ``last``: whether the page is the last one of its address, which may end in an incomplete write.
        """
        if last:
            self._cut(page, scan)
        page.starts, page.end = scan.contents.starts, scan.end
        faults = self._faults(page, scan, last, file.messages)
        if faults:
            page.damage = faults[0]
            lost = self._lost(page, scan)
            self._forget_uncertain(page, scan, lost)
            more = not all(gap.sure for gap in scan.gaps) or len(faults) > len(scan.gaps)
            if more and file.shares is not None:
                lost, more = self._lost_shares(page, scan, file.shares), False
            self._paging.report_loss(page.path, "; ".join(faults), lost, more=more)
        if scan.tail and faults:
            return  # keep the bytes after the last valid record, which are unreadable
        if page.bytes > scan.end and not scan.footer_begun:
            log.warning(
                "%s: the last %d bytes of an incomplete write are truncated",
                page.path,
                page.bytes - scan.end,
            )
        if scan.contents.kinds:
            self._complete(page, scan)

    def _cut(self, page: Page, scan: PageScan) -> None:
        """Drop the first gap without later durable messages, and everything after the gap. A crash left the gap in
        bytes that were not synced.
        """
        if not scan.gaps:
            return
        contents = scan.contents
        safe = self._facts.ends.get(page.number, 0)
        for number, mask in contents.masks().items():
            if number in self._queues:
                for index in range(safe, len(mask)):
                    if mask[index] and contents.kinds[index] & DURABLE_BIT:
                        safe = index + 1
        for gap in scan.gaps:
            if gap.before >= safe:
                scan.cut(gap)
                return

    def _faults(self, page: Page, scan: PageScan, last: bool, known: int) -> list[str]:
        """Return the faults of a page. An incomplete record at the end, as a crash may leave it, is not a fault."""
        count, known = len(scan.contents.kinds), max(known, self._facts.ends.get(page.number, 0))
        faults = [f"{gap.reason} at byte {gap.at}" for gap in scan.gaps]
        if known > count:
            faults.append(f"the journal has records of {known} messages, the page has {count}")
        if scan.tail and (faults or not last):
            faults.append(f"unreadable from byte {scan.end} on: {scan.tail}")
        return faults

    def _lost(self, page: Page, scan: PageScan) -> dict[str, int]:
        """Return the number of unreadable messages that each queue had not settled, as far as the number is known."""
        lost: dict[str, int] = {}
        for gap in scan.gaps:
            if gap.keeps_place:
                for number in _queues_in(scan, gap):
                    self._count(page, gap.before, number, lost)
        return lost

    def _lost_shares(self, page: Page, scan: PageScan, shares: Mapping[int, int]) -> dict[str, int]:
        """Return for each queue the number of messages in a complete page that are neither settled nor readable."""
        summary, lost = scan.contents.summary(), {}
        for number, total in shares.items():
            queue = self._queues.get(number)
            if queue is None:
                continue
            runs = self._facts.settled.get((number, page.number), ())
            states = summary.states(number) if number in summary.members else bytearray()
            for first, length in runs:
                states.extend(bytes(max(0, first + length - len(states))))
                states[first : first + length] = b"\1" * length
            missing = total - len(states) + states.count(0)
            if missing > 0:
                lost[queue.name] = missing
        return lost

    def _count(self, page: Page, index: int, number: int, lost: dict[str, int]) -> None:
        queue = self._queues.get(number)
        runs = self._facts.settled.get((number, page.number), ())
        if queue is not None and not any(first <= index < first + count for first, count in runs):
            lost[queue.name] = lost.get(queue.name, 0) + 1

    def _forget_uncertain(self, page: Page, scan: PageScan, lost: dict[str, int]) -> None:
        """Drop messages after a gap with an unknown number of messages: in the journal they may have other indexes."""
        contents, known = scan.contents, self._facts.reach.get(page.number, 0)
        first = next((gap.before for gap in scan.gaps if not gap.sure), len(contents.kinds))
        if known <= first:
            return
        for number, mask in contents.masks().items():
            for index in range(first, len(mask)):
                if mask[index] and contents.kinds[index]:
                    self._count(page, index, number, lost)
        contents.kinds[first:] = bytes(len(contents.kinds) - first)

    def _complete(self, page: Page, scan: PageScan) -> None:
        """Write the footer, so that the next start need not read the whole page."""
        path, end, writer = page.path, scan.end, self._paging.writer
        if page.bytes > end:
            writer.run_task(
                lambda files: files.truncate(path, end) if path.name in files.names(path.parent) else None
            )
        page.stream = writer.open(path, end)
        page.bytes = end
        seal_page(page, scan.contents, page.pages.address.number or scan.address)
