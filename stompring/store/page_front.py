"""Pages that are read from their front at the start: what is lost in them, and making them complete."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompring.broker.queue import Queue

from .page import Page
from .page_facts import PageFacts
from .page_footer import LASTING
from .page_scan import Gap, Scan
from .pages import report_loss, seal_page
from .record import DURABLE, MESSAGE, PREFIX, StoredMessage

if TYPE_CHECKING:
    from .paging import Paging
    from .replay import PageFile

log = logging.getLogger(__name__)


class FrontReading:
    """``queues`` are the durable ones, by number."""

    def __init__(self, paging: Paging, queues: Mapping[int, Queue], facts: PageFacts) -> None:
        self._paging = paging
        self._queues = queues
        self._facts = facts

    def take(self, page: Page, scan: Scan, address: int, last: bool, known: PageFile | None = None) -> None:
        """Go on with what could be read of a page. ``last`` says that it was being written.

        ``known`` is what the journal knows of its file.
        """
        contents = scan.contents
        if last:
            self._cut(page, scan)
        page.starts, page.end = contents.starts, scan.end
        shares = None if known is None else known.shares
        count = 0 if known is None else known.messages
        faults = self._faults(page, scan, last, count)
        if faults:
            page.damage = faults[0]
            lost = self._lost(page, scan)
            self._forget_uncertain(page, scan, lost)
            more = not all(gap.sure for gap in scan.gaps) or len(faults) > len(scan.gaps)
            if more and shares is not None:
                lost, more = self._lost_shares(page, scan, shares), False
            report_loss(page.path, "; ".join(faults), lost, more=more)
            self._paging.count_loss(sum(lost.values()))
        if scan.tail and faults:
            return  # what is behind the last good record is kept as it is
        if page.bytes > scan.end and not scan.footer_begun:
            log.warning(
                "%s: the last %d bytes were not written completely and are cut off",
                page.path,
                page.bytes - scan.end,
            )
        if contents.kinds:
            self._complete(page, scan, address)

    def _cut(self, page: Page, scan: Scan) -> None:
        """What follows a gap was never safe, where nothing of it is durable: a crash has left holes in it."""
        if not scan.gaps:
            return
        contents = scan.contents
        safe = self._facts.ends.get(page.number, 0)
        for number, mask in contents.masks().items():
            if number in self._queues:
                for index in range(safe, len(mask)):
                    if mask[index] and contents.kinds[index] & LASTING:
                        safe = index + 1
        for gap in scan.gaps:
            if gap.before >= safe:
                scan.cut(gap)
                return

    def _faults(self, page: Page, scan: Scan, last: bool, known: int) -> list[str]:
        """What is wrong, beyond what a crash leaves behind: one record at the end that is not complete."""
        count, known = len(scan.contents.kinds), max(known, self._facts.ends.get(page.number, 0))
        faults = [f"at byte {gap.at} {gap.reason}" for gap in scan.gaps]
        if known > count:
            faults.append(f"the journal tells of {known} messages, and {count} are there")
        if scan.tail and (faults or not last):
            faults.append(f"from byte {scan.end} on nothing can be read: {scan.tail}")
        return faults

    def _lost(self, page: Page, scan: Scan) -> dict[str, int]:
        """Messages that cannot be read, by the queues that still had them, as far as one can tell."""
        lost: dict[str, int] = {}
        for gap in scan.gaps:
            if gap.keeps_place:
                for number in _queues_in(scan, gap):
                    self._count(page, gap.before, number, lost)
        return lost

    def _lost_shares(self, page: Page, scan: Scan, shares: Mapping[int, int]) -> dict[str, int]:
        """The same of a page that was complete: what each queue had in it, less what it has given up or can read."""
        summary, lost = scan.contents.summary(), {}
        for number, total in shares.items():
            queue = self._queues.get(number)
            if queue is None:
                continue
            runs = self._facts.settled.get((number, page.number), ())
            states = summary.states(number) if number in summary.members else bytearray()
            there = len(states) - states.count(0)
            gone = sum(
                1
                for first, count in runs
                for at in range(first, first + count)
                if not any(states[at : at + 1])
            )
            if total > there + gone:
                lost[queue.name] = total - there - gone
        return lost

    def _count(self, page: Page, index: int, number: int, lost: dict[str, int]) -> None:
        queue = self._queues.get(number)
        runs = self._facts.settled.get((number, page.number), ())
        if queue is not None and not any(first <= index < first + count for first, count in runs):
            lost[queue.name] = lost.get(queue.name, 0) + 1

    def _forget_uncertain(self, page: Page, scan: Scan, lost: dict[str, int]) -> None:
        """Behind a gap of unknown length nobody knows which messages the journal means: if any, they are lost."""
        contents, known = scan.contents, self._facts.reach.get(page.number, 0)
        first = next((gap.before for gap in scan.gaps if not gap.sure), len(contents.kinds))
        if known <= first:
            return
        for number, mask in contents.masks().items():
            for index in range(first, len(mask)):
                if mask[index] and contents.kinds[index]:
                    self._count(page, index, number, lost)
        contents.kinds[first:] = bytes(len(contents.kinds) - first)

    def _complete(self, page: Page, scan: Scan, address: int) -> None:
        """Write the footer, so that the next start need not read all of it."""
        path, end, writer = page.path, scan.end, self._paging.writer
        if page.bytes > end:
            writer.chore(
                lambda files: files.truncate(path, end) if path.name in files.names(path.parent) else None
            )
        page.stream = writer.open(path, end)
        page.bytes = end
        seal_page(page, scan.contents, address or scan.address, self._paging)


def _queues_in(scan: Scan, gap: Gap) -> tuple[int, ...]:
    """The queues of a damaged message, where they can be made out."""
    begin, data = gap.at + PREFIX.size, scan.data
    if gap.stop - begin < MESSAGE.size:
        return ()
    stored = StoredMessage(data, begin)
    if not stored.flags & DURABLE or MESSAGE.size + 4 * stored.queues > gap.stop - begin:
        return ()
    return stored.queue_ids()
