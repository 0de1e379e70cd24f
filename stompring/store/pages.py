"""The pages of one address: appending to the last page, and deleting pages that no queue needs any more."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mypy_extensions import mypyc_attr

from stompring.broker.dispatcher import LAST_VALUE
from stompring.broker.message import EVERYWHERE, Message
from stompring.broker.paging import TIMED, Position

from .bindings import AddressBinding
from .cursor import Cursor, QueueRemoved, RetainingCursor
from .page_file import (
    DURABLE_BIT,
    SCHEDULED_BIT,
    PageColumns,
    PageFileRecord,
    describe_loss,
    durable_counts,
    page_path,
)
from .record import ADDRESS, NAME, QUEUE, Kind, encode_traits, framed, message_records
from .segment import PAGE, ReadFile, pack_header

if TYPE_CHECKING:
    from stompring.broker.address import Address
    from stompring.broker.message import Traits
    from stompring.broker.queue import Queue

    from .cursor import QueuePageState
    from .page_reader import Block
    from .paging import Paging
    from .writer import AppendOnlyFile


#: Messages of a page that are shared before those are dropped that no queue holds any more.
SHARED_AT_LEAST = 64


@mypyc_attr(native_class=False)  # for weak references
class BlockRecords:
    """The bytes of a block's records, and where in them the payloads begin. ``first`` is the index of the first."""

    def __init__(self, first: int, at: array[int], data: bytes) -> None:
        self.first = first
        self.at = at
        self.data = data


class Page:
    """A page of an address; see `broker.paging.Page`.

    ``page_states`` are those of all cursors that ever had something here, ``left`` counts those that still have.
    ``starts`` is None where it would have to be read from the footer first.
    """

    __slots__ = (
        "_most_shared",
        "blocks",
        "bytes",
        "contents",
        "count",
        "damage",
        "end",
        "ended",
        "file",
        "first_number",
        "gone",
        "left",
        "names",
        "number",
        "page_states",
        "path",
        "pending_reads",
        "plan",
        "retains",
        "sealed",
        "shared",
        "soonest_due",
        "soonest_expiry",
        "starts",
        "stream",
        "unreadable",
        "waiting_for_starts",
    )

    def __init__(self, number: int, path: Path, first_number: int) -> None:
        self.number = number
        self.path = path
        self.first_number = first_number
        self.count = 0
        self.end = 0  # bytes before the footer
        self.bytes = 0  # as the file counts
        self.soonest_expiry = 0
        self.soonest_due = 0
        self.contents: PageColumns | None = None  # while it is written
        self.starts: array[int] | None = None
        self.stream: AppendOnlyFile | None = None  # None for one of an earlier run
        self.sealed = False  # its footer is in the file, so that `starts` can be read again
        self.gone = False
        self.retains = (
            False  # all queues retain some message of it, also such as a restart does not bring back
        )
        self.unreadable: set[int] = set()
        self.damage: str | None = None  # it is set aside, and not deleted, when its time comes
        self.page_states: dict[
            QueuePageState, None
        ] = {}  # as an ordered set: a deleted queue removes its own
        self.ended: list[QueueRemoved] = []  # queues that had something here, and were deleted
        self.file: PageFileRecord | None = None  # as the journal keeps it
        self.left = 0
        self.plan: AppendPlan | None = None  # of the message written last
        self.names: set[int] = set()  # queues with a NAME record in it
        #: What was read of it, while anybody has a block of it.
        self.blocks: WeakValueDictionary[int, BlockRecords] = WeakValueDictionary()
        self.shared: dict[int, Message] = {}  # by index, messages that several queues may hold
        self._most_shared = SHARED_AT_LEAST
        self.pending_reads: dict[int, list[Any]] = {}  # by block, who waits for it to be read
        self.waiting_for_starts: list[Callable[[], None]] | None = None

    def __repr__(self) -> str:
        return f"<Page {self.number} with {self.count} messages>"

    def keeps(self, index: int) -> bool:
        """Whether the message at a position is durable, so that records about it may be written."""
        return self.contents is None or self.contents.kinds[index] & DURABLE_BIT != 0

    def share(self, index: int, message: Message) -> None:
        """This is the message at a position for all queues, while any of them holds it."""
        shared = self.shared
        if len(shared) >= self._most_shared:
            shared = self.shared = {at: each for at, each in shared.items() if each.holders}
            self._most_shared = max(2 * len(shared), SHARED_AT_LEAST)
        shared[index] = message


class AppendPlan:
    """``page_states`` are those of ``page``: another page needs others.

    ``rest`` is what the records of messages with ``traits`` have between their numbers and their tails.
    """

    __slots__ = ("cursors", "ids", "page", "page_states", "rest", "traits", "wants_sync")

    def __init__(self, cursors: list[Cursor], sync: bool) -> None:
        self.cursors = cursors
        self.ids = b"".join([cursor.queue.number.to_bytes(4, "little") for cursor in cursors])
        self.wants_sync = sync and any(cursor.durable for cursor in cursors)  # its durable messages
        self.page: Page | None = None
        self.page_states: list[QueuePageState] = []
        self.traits: Traits | None = None
        self.rest = b""

    def describe(self, traits: Traits) -> None:
        """Messages with other traits follow."""
        self.traits = traits
        self.rest = self.ids + (traits.record or encode_traits(traits))[2:]

    def enqueue(self, index: int, level: int, due: int) -> None:
        """A message was written, and is each queue's; timed where it has a due time."""
        for page_state in self.page_states:
            states, cursor = page_state.states, page_state.cursor
            gap = index - len(states)
            if gap:
                states.extend(bytes(gap))
            if not page_state.remaining:
                cursor.enlist(page_state)
            page_state.remaining += 1
            cursor.remaining += 1
            if due:
                states.append(TIMED)
                page_state.timed += 1
                cursor.timed += 1
            else:
                states.append(level + 1)
                page_state.levels[level] += 1
                cursor.levels[level] += 1
                cursor.waiting += 1

    def enqueue_many(self, index: int, level: int, number: int) -> None:
        """As many messages were written one behind the other."""
        for page_state in self.page_states:
            states, cursor = page_state.states, page_state.cursor
            states.extend(bytes(index - len(states)) + bytes((level + 1,)) * number)
            if not page_state.remaining:
                cursor.enlist(page_state)
            page_state.remaining += number
            page_state.levels[level] += number
            cursor.remaining += number
            cursor.levels[level] += number
            cursor.waiting += number


log = logging.getLogger(__name__)

#: Longest page file: positions of records in it are u32.
MAX_PAGE_FILE_SIZE = 1 << 31

#: Cached plans, one for each set of queues.
MAX_PLANS = 1000


class Pages:
    """See `broker.paging.Pages`. ``log`` is the journal, as far as pages need it."""

    def __init__(self, paging: Paging, address: Address, directory: Path) -> None:
        self.address = address
        self.directory = directory
        self.directories = [directory]  # and others of an earlier run
        self.paging = paging
        self.log = paging.log
        self.clock = paging.clock
        self.bytes = 0
        self.cursors: dict[Queue, Cursor] = {}
        self._pages: list[Page] = []
        self._by_number: dict[int, Page] = {}
        self._last: Page | None = None  # what is being written
        self._left = 0  # pages in which some queue has something
        self._plans: dict[object, AppendPlan] = {}
        self._settings: object = None
        self._file_bytes = 0
        self._gathered: list[Message] = []  # for one queue, of the same priority
        self._gathers_for: Queue | None = None
        self._gathers_like: Traits | None = None

    # ---- what there is

    @property
    def count(self) -> int:
        """Page files."""
        return len(self._pages)

    @property
    def empty(self) -> bool:
        """No queue has anything left here."""
        return not self._left

    @property
    def messages(self) -> int:
        """The most that any one queue has left (Artemis compares ``page-limit-messages`` with the largest queue)."""
        return max([cursor.remaining for cursor in self.cursors.values()], default=0)

    def in_order(self) -> Sequence[Page]:
        """All pages, ascending."""
        return self._pages

    def page(self, number: int) -> Page | None:
        """The page of that number, None when it is gone."""
        return self._by_number.get(number)

    def cursor(self, queue: Queue) -> Cursor:
        """The cursor of a queue, created on first use."""
        cursor = self.cursors.get(queue)
        if cursor is None:
            kind = Cursor if self.log.retention is None else RetainingCursor
            cursor = self.cursors[queue] = kind(self, queue)
            self.log.reserve_queue(queue.number)
        return cursor

    def forget(self, queue: Queue) -> None:
        """A queue is deleted: nothing here waits for it any more."""
        cursor = self.cursors.pop(queue, None)
        if cursor is None:
            return
        self._plans.clear()
        for page in self._pages:
            page_state = cursor.known_state(page)
            if page_state is not None and page_state in page.page_states:
                del page.page_states[page_state]
                page_state.gone = True
                self.log.forget(page_state)
                if cursor.durable:
                    self.end(page, QueueRemoved(self.address.number, queue.number, page))
            page.plan = None
        cursor.end()

    def end(self, page: Page, ended: QueueRemoved) -> None:
        """A queue that was deleted had something in a page."""
        page.ended.append(ended)
        self.log.update(ended)

    # ---- writing

    def append(self, message: Message, members: Sequence[Queue], due: int = 0) -> Position:
        """Write a message once for all ``members``; it waits for each of them (timed when ``due`` is given)."""
        if self._gathered:
            self.write_gathered()
        plan = self._plans.get(members[0] if len(members) == 1 else tuple(members))
        if plan is None:
            plan = self._make_plan(members)
        traits = message.traits
        transaction = self.log.transaction()
        if plan.traits is not traits:
            plan.describe(traits)
        queues = len(plan.cursors)
        (record,) = message_records(
            (message,), traits, self.address.number, plan.rest, queues, due, transaction
        )
        size = len(record)
        page = self._last
        if self.address.settings is not self._settings:
            self._apply_settings()
        if page is None or (page.end + size > self._file_bytes and page.count):
            page = self._open_page(message)
        if plan.page is not page:
            self._prepare(plan, page)
        contents, stream = page.contents, page.stream
        assert contents is not None and stream is not None
        if traits.retained == EVERYWHERE:
            page.retains = True
        index = page.count
        page.count = index + 1
        contents.starts.append(page.end)
        contents.numbers.append(message.number)
        contents.timestamps.append(message.timestamp)
        level = traits.priority
        contents.kinds.append(
            level + 1 | (DURABLE_BIT if traits.durable else 0) | (SCHEDULED_BIT if due else 0)
        )
        if page.plan is not plan:
            page.plan = plan
            contents.memberships.append((index, plan.ids))
        self._add_size(page, size)
        stream.append(record, plan.wants_sync and traits.durable)
        if message.expires or due or transaction:
            self._add_to_footer(page, contents, message.expires, due, transaction)
        plan.enqueue(index, level, due)
        return page, index

    def gather(self, message: Message, queue: Queue) -> bool:
        if self._gathered:
            if queue is self._gathers_for and not message.expires:
                like, traits = self._gathers_like, message.traits
                if traits is like or (
                    like is not None and traits.priority == like.priority and traits.retained == like.retained
                ):
                    self._gathered.append(message)
                    return True
            self.write_gathered()
        if message.expires or not self.paging.gathering or queue.ring_size >= 0:
            return False
        if queue.dispatcher.blocks & LAST_VALUE:
            return False  # it replaces another as it is paged
        if queue.ready and queue.dispatcher.selector_lists:
            return False  # a consumer may want this one, and none of those before it
        cursor = self.cursors.get(queue)
        if cursor is None or queue.paged is None or not cursor.levels[message.traits.priority]:
            return False
        if self.log.in_transaction:
            return False
        self._gathers_for, self._gathers_like = queue, message.traits
        self._gathered.append(message)
        self.paging.gathered.append(self)
        return True

    def write_gathered(self) -> None:
        """Append what was gathered, all at once while it fits into the page."""
        queue, traits = self._gathers_for, self._gathers_like
        if queue is None or traits is None:
            return
        messages, self._gathered = self._gathered, []
        self._gathers_for = self._gathers_like = None
        page, plan = self._last, self._plans.get(queue)
        if (
            page is None
            or plan is None
            or plan.page is not page
            or self.address.settings is not self._settings
            or not self._extend(page, plan, messages, traits)
        ):
            for message in messages:
                self.append(message, [queue])
        if queue.paged is not None:
            queue.paged.on_growth()

    def _extend(self, page: Page, plan: AppendPlan, messages: list[Message], traits: Traits) -> bool:
        """Append messages of one priority; False where the page has no space for all of them."""
        records = self._records(plan, messages)
        data = b"".join(records)
        if page.end + len(data) > self._file_bytes:
            return False
        contents, stream, number = page.contents, page.stream, len(records)
        assert contents is not None and stream is not None
        if traits.retained == EVERYWHERE:
            page.retains = True
        index, level = page.count, traits.priority
        page.count += number
        contents.starts.extend(accumulate(map(len, records[:-1]), initial=page.end))
        contents.numbers.extend([message.number for message in messages])
        contents.timestamps.extend([message.timestamp for message in messages])
        contents.kinds.extend(bytes((level + 1,)) * number)
        if page.plan is not plan:
            page.plan = plan
            contents.memberships.append((index, plan.ids))
        self._add_size(page, len(data))
        stream.append(data, sync=False)
        plan.enqueue_many(index, level, number)
        return True

    def _records(self, plan: AppendPlan, messages: list[Message]) -> list[bytes]:
        """The records of messages, made together for those with the same traits that follow one another."""
        records: list[bytes] = []
        begin, address = 0, self.address.number
        while begin < len(messages):
            traits, end = messages[begin].traits, begin + 1
            while end < len(messages) and messages[end].traits is traits:
                end += 1
            if plan.traits is not traits:
                plan.describe(traits)
            records += message_records(messages[begin:end], traits, address, plan.rest)
            begin = end
        return records

    @staticmethod
    def _add_to_footer(page: Page, contents: PageColumns, expires: int, due: int, transaction: int) -> None:
        if expires and not 0 < page.soonest_expiry <= expires:
            page.soonest_expiry = contents.soonest_expiry = expires
        if due and not 0 < page.soonest_due <= due:
            page.soonest_due = contents.soonest_due = due
        if transaction > contents.greatest_transaction:
            contents.greatest_transaction = transaction

    def _apply_settings(self) -> None:
        self._settings = self.address.settings
        self._file_bytes = min(self.address.settings.page_file_bytes, MAX_PAGE_FILE_SIZE)

    def _make_plan(self, members: Sequence[Queue]) -> AppendPlan:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        if not self.address.number:
            self.address.number = next(self.log.next_address)
        plan = AppendPlan([self.cursor(queue) for queue in members], self.paging.sync)
        self._plans[members[0] if len(members) == 1 else tuple(members)] = plan
        return plan

    def _prepare(self, plan: AppendPlan, page: Page) -> None:
        """Tell the names of the queues in this page, before the first message that is theirs."""
        plan.page = page
        plan.page_states = [cursor.page_state(page) for cursor in plan.cursors]
        for cursor in plan.cursors:
            number = cursor.queue.number
            if number not in page.names:
                page.names.add(number)
                if not cursor.durable and page.contents is not None:
                    page.contents.passing.add(number)
                name = cursor.queue.name.encode("utf-8", "surrogateescape")
                self._write(page, framed(NAME.pack(Kind.NAME, QUEUE, not cursor.durable, number) + name))
                if self.log.unwritten:
                    if cursor.queue.address is not self.address:
                        self._repeat_binding(page, cursor.queue.address)
                    self._repeat_binding(page, cursor.queue)

    def _repeat_binding(self, page: Page, subject: Queue | Address) -> None:
        """A page is written before the journal: it must not name what only the journal is about to describe."""
        binding = self.log.unwritten.get(subject)
        if binding is None:
            return
        if isinstance(binding, AddressBinding) and not binding.address.number:
            binding.address.number = next(self.log.next_address)
        self._write(page, framed(binding.record()))

    def _write(self, page: Page, data: bytes) -> None:
        assert page.stream is not None
        page.stream.append(data, sync=False)  # it is synced with the first message that wants it
        self._add_size(page, len(data))

    def _add_size(self, page: Page, size: int) -> None:
        page.end += size
        page.bytes += size
        self.bytes += size

    # ---- page files

    def _open_page(self, message: Message) -> Page:
        self.roll()
        paging, address = self.paging, self.address
        number = paging.next_page()
        page = self._last = Page(number, page_path(self.directory, number), message.number)
        page.stream = paging.writer.open(page.path)
        page.contents = PageColumns()
        page.starts = page.contents.starts
        header = pack_header(PAGE, message.number, self.clock.now, number, self.log.identity, address.number)
        self._write(page, header)
        page.file = PageFileRecord(self.log, address.number, number)
        self.log.update(page.file)
        name = address.name.encode("utf-8", "surrogateescape")
        self._write(page, framed(NAME.pack(Kind.NAME, ADDRESS, 0, address.number) + name))
        self._repeat_binding(page, address)
        self.add(page)
        return page

    def add(self, page: Page) -> None:
        """A page, behind all others."""
        self._pages.append(page)
        self._by_number[page.number] = page

    def recount(self, page: Page) -> None:
        """The bytes of a page of an earlier run are known."""
        self.bytes += page.bytes

    def roll(self) -> None:
        """Begin a new page file with the next message."""
        page, self._last = self._last, None
        if page is None:
            return
        if not page.left:
            self._retire(page)
            return
        contents, page.contents = page.contents, None
        assert contents is not None and page.stream is not None
        seal_page(page, contents, self.address.number, self.paging)
        for page_state in page.page_states:
            page_state.cursor.complete(page_state)

    def queue_entered(self, page: Page) -> None:
        """One more queue has something in a page."""
        if not page.left:
            self._left += 1
        page.left += 1

    def queue_left(self, page: Page) -> None:
        """A queue has nothing left in a page: when it was the last, the file goes, also from the middle."""
        page.left -= 1
        if not page.left:
            self._left -= 1
            if page is not self._last:
                self._retire(page)

    def _retire(self, page: Page) -> None:
        """Nothing is left in a page. Its file goes once that is safe."""
        page.gone = True
        page.plan = None  # which refers to it
        contents, page.contents = page.contents, None
        if contents is not None and self.paging.retention is not None:
            seal_page(page, contents, self.address.number, self.paging)  # it is retained, complete
        del self._pages[bisect_left(self._pages, page.number, key=_number)]
        del self._by_number[page.number]
        self.bytes -= page.bytes
        for page_state in page.page_states:
            page_state.cursor.drop(page)
        self.paging.remove(page)

    def discard(self, page: Page) -> None:
        """A page of an earlier run in which nothing is left."""
        self._retire(page)

    def close(self) -> None:
        """Nothing is left here: the last page goes too."""
        self._last = None
        for page in list(self._pages):
            self._retire(page)
        self.cursors, self._plans = {}, {}  # which refer to it

    # ---- reading

    def fetch(self, page: Page, index: int, done: Callable[[Block | None], None]) -> None:
        """Read the block with a position. ``done`` is called later, never within; with None for what is unreadable.

        What is unreadable has been reported, and is settled as lost for all queues before ``done`` is called.
        """
        self.paging.reads.fetch(self, page, index, done)

    def lose(self, page: Page, indexes: Iterable[int], reason: str) -> None:
        """Positions of a page cannot be read. Said once for each file that is damaged."""
        first_time, page.damage = page.damage is None, page.damage or reason
        indexes = sorted(indexes)
        page.unreadable.update(indexes)
        lost: dict[str, int] = {}
        for page_state in list(page.page_states):
            count = page_state.cursor.lose(page, indexes)
            if count:
                lost[page_state.cursor.queue.name] = count
        if lost or first_time:
            report_loss(page.path, reason, lost)
            self.paging.count_loss(sum(lost.values()), first_time)


def report_loss(path: Path, reason: str, lost: dict[str, int] | None, *, more: bool = False) -> None:
    """Log the messages lost by damage to a page file; None: unknown, ``more``: there may be others."""
    level = logging.WARNING if lost == {} and not more else logging.ERROR
    log.log(level, "%s is damaged: %s; messages lost: %s", path, reason, describe_loss(lost, more=more))


def seal_page(page: Page, contents: PageColumns, address: int, paging: Paging) -> None:
    """A page is complete: its footer is written with the next batch, and then it is known where to read of it again."""
    stream, file = page.stream, page.file
    assert stream is not None
    shares: dict[int, int] = {}

    def ending(read: ReadFile, size: int) -> bytes:
        shares.update(durable_counts(contents))  # in the disk thread: a page may have many queues
        return contents.footer(address).ending_of(read, size)

    stream.close(ending)

    def sealed() -> None:
        if file is not None and not file.gone:
            file.messages, file.shares = len(contents.kinds), shares
            paging.log.update(file)
        stream.seal = None  # it holds all of the contents
        if not page.gone and page.damage is None:
            page.sealed = True
            paging.reads.know_starts(page, contents.starts)

    paging.writer.after_next_batch(sealed)


def _number(page: Page) -> int:
    return page.number
