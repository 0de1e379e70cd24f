"""Paging: the page directories of all addresses, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from stompring.broker.clock import Clock

from .files import Disk, Files
from .page_file import ADDRESS_FILE, set_aside
from .page_recovery import PageRecovery
from .pages import Page, PageReader, Pages
from .retention import Retention
from .writer import Writer

if TYPE_CHECKING:
    from stompring.broker.address import Address
    from stompring.broker.broker import Broker

    from .journal import Journal
    from .recovery import Recovery


class Paging:
    """See `broker.paging.Paging`.

    ``directory`` is where the addresses have theirs; ``purge`` removes those of addresses that page no more
    (``purge-page-folders``). ``reader`` is the thread that reads. ``sync`` False leaves it to the operating system
    when messages reach the disk.
    """

    def __init__(
        self,
        log: Journal,
        writer: Writer,
        reader: Disk,
        clock: Clock,
        directory: Path,
        *,
        purge: bool = True,
        sync: bool = True,
    ) -> None:
        self.log = log
        self.writer = writer
        self.clock = clock
        self.directory = directory
        self.purge = purge
        self.sync = sync
        self.files: Files = writer.files
        self.reads = PageReader(reader, writer.files, clock)
        self.next_page: Callable[[], int] = count(1).__next__
        self.retention: Retention | None = None
        self.recovered: list[Pages] = []
        self.gathering = False
        self.gathered: list[Pages] = []
        self.lost_messages = 0  # counted for each queue that would have had them
        self.damaged_pages = 0
        self._of_directory: dict[Path, Pages | None] = {}  # None: unused

    # ---- addresses

    def open(self, address: Address) -> Pages:
        """Pages for an address that has none."""
        if not address.number:
            address.number = next(self.log.next_address)
        directory = self._free_directory(address)
        pages = self._of_directory[directory] = Pages(self, address, directory)
        name = address.name.encode("utf-8", "surrogateescape")
        self.writer.run_task(lambda files: files.replace(directory / ADDRESS_FILE, name))
        return pages

    def _free_directory(self, address: Address) -> Path:
        base = f"{address.number:09d}"
        directory = self.directory / base
        for place in count(2):
            if self._of_directory.get(directory) is None:
                break
            directory = self.directory / f"{base}-{place}"
        return directory

    def recover(self, recovery: Recovery, broker: Broker) -> None:
        """Bring back the pages that are there; addresses and queues that the journal knows are in ``broker`` already.

        They are in ``recovered`` then. Raises `StoreError` where the paging directory cannot be used.
        """
        self.clock = self.reads.clock = broker.clock
        pages = PageRecovery(self, recovery, broker)
        seen = pages.run()
        last = max(pages.last_page, 0 if self.retention is None else self.retention.last_page)
        self.next_page = count(last + 1).__next__
        self.log.pages_recovered(seen.transaction, seen.message, seen.queue, last)
        while seen.address and next(self.log.next_address) <= seen.address:
            pass

    def hold(self, directory: Path) -> None:
        """A directory that recovery found."""
        self._of_directory[directory] = None

    def release(self, directory: Path) -> None:
        """A directory in which nothing is left."""
        self._of_directory[directory] = None
        if self.purge:
            self.log.when_synced(lambda: self.sweep(directory))

    def adopt(self, pages: Pages) -> None:
        """A directory that recovery found, with something left in it."""
        for directory in pages.directories:
            self._of_directory[directory] = pages
        self.recovered.append(pages)

    def close(self, pages: Pages) -> None:
        """Nothing is left there: remove what is on disk."""
        pages.close()
        for directory in pages.directories:
            self.release(directory)

    def sweep(self, directory: Path) -> None:
        """Remove an unused directory, unless a file was set aside in it."""

        def tidy(files: Files) -> None:
            if self._of_directory.get(directory) is None and set(files.names(directory)) <= {ADDRESS_FILE}:
                files.remove_directory(directory)

        self.writer.run_task(tidy)

    # ---- pages

    def remove(self, page: Page) -> None:
        """Delete the file of a page that is no longer needed, once all records about it are synced."""
        retention, directory = self.retention, page.path.parent

        def keep() -> None:
            assert retention is not None
            retention.retain_page(page.path, page.bytes)
            if self.purge:
                self.sweep(directory)

        def remove() -> None:
            if page.damage is not None and page.stream is not None:
                if not page.stream.closed:
                    page.stream.close()
                self.writer.after_next_batch(lambda: set_aside(self.writer, page.path))
            elif page.damage is not None:
                set_aside(self.writer, page.path)
            elif retention is not None:
                self.writer.after_next_batch(keep)  # its end may be on its way
            elif page.stream is not None:
                page.stream.delete()
            else:
                self.writer.run_task(lambda files: files.remove(page.path))
            for record in (*page.page_states, *page.ended):
                record.gone = True
                self.log.forget(record)
            page.page_states, page.ended = {}, []  # which refer to it

        self.reads.forget(page)
        if page.file is not None:
            page.file.gone = True
            self.log.update(page.file)
        self.log.when_synced(remove)

    def write_gathered(self) -> None:
        gathered, self.gathered = self.gathered, []
        for pages in gathered:
            pages.write_gathered()

    def count_loss(self, messages: int, new_file: bool = True) -> None:
        """Messages are lost, in a file that was whole before or not."""
        self.lost_messages += messages
        self.damaged_pages += new_file

    # ---- the end

    def stop(self) -> None:
        """A clean stop: pages that are being written get their footers."""
        for pages in set(self._of_directory.values()):
            if pages is not None:
                pages.roll()
