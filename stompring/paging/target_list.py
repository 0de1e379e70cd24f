"""Target lists: what consumers are offered next, within the memory of ``dispatch-memory``.

The memory budget of paged queues (``dispatch-memory``), and how it is used.

A target list: what the consumers with one selector will be offered next.

Its direct references are in a `Pending` list of the queue. Its cache references, and how far it has been searched,
are positions in the pages of each address.

The two caches that share the memory budget of paged queues: blocks of pages (pending cache) and messages
at the head of queues without consumers (head cache).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter

from stompring.broker.address import as_address
from stompring.broker.message import SYSTEM_PROPERTIES, Account, Matches, Message, Traits
from stompring.broker.ports import Block, Cursor, Done, Pages, waiting_from
from stompring.broker.reference import Page, PendingList, Position, Reference

#: Bytes of an answer of a selector for certain headers: its place in a dictionary, and a part of the headers.
ANSWER_SIZE = 256

#: The part of the budget that such answers may use: 1/16.
ANSWERS_SHARE = 16


class MemoryBudget(Account):
    """Bytes used and the limit they share. It is the `Account` of every message that came from a page.

    The limit is soft: a consumer without any messages may always have a few, so that each consumer makes progress.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages = 0  # bytes of messages that a queue holds, wherever its references stand
        self.blocks = 0  # bytes of blocks in the pending cache
        self.answers = 0  # bytes of answers that selectors remember for headers

    def occupy(self, size: int, messages: int = 1) -> None:
        self.messages += size

    def release(self, size: int, messages: int = 1) -> None:
        self.messages -= size

    @property
    def used(self) -> int:
        """Bytes in use."""
        return self.messages + self.blocks + self.answers

    @property
    def has_room_for_answers(self) -> bool:
        """Whether a selector may remember one more answer."""
        return self.answers + ANSWER_SIZE <= self.limit // ANSWERS_SHARE


#: Used-up references at the front that are worth a copy of the rest.
SLACK = 1024


def key_of(page: Page, index: int) -> int:
    """A position as one number; positions of one address sort as they follow each other."""
    return page.number << 32 | index


def position_of(cursor: Cursor, key: int) -> Position | None:
    """The position of a key, None if its page is gone."""
    page = cursor.pages.page(key >> 32)
    return None if page is None else (page, key & 0xFFFFFFFF)


def waiting_at(cursor: Cursor, key: int) -> Position | None:
    """The position of a key, None if it is not waiting on disk."""
    position = position_of(cursor, key)
    return position if position is not None and cursor.is_waiting(*position) else None


class References:
    """Positions in ascending order, each once."""

    def __init__(self) -> None:
        self._keys = array("Q")
        self._start = 0

    def __len__(self) -> int:
        return len(self._keys) - self._start

    def add(self, key: int) -> None:
        """Add a position; nothing happens where it is known."""
        keys = self._keys
        if not len(self) or keys[-1] < key:
            keys.append(key)
            return
        at = bisect_left(keys, key, self._start)
        if keys[at] != key:
            keys.insert(at, key)

    @property
    def first(self) -> int:
        """The first position. Raises `IndexError` where there is none."""
        return self._keys[self._start]

    def drop_first(self) -> None:
        """Forget the first position."""
        self._start += 1
        if self._start > SLACK and self._start * 2 > len(self._keys):
            del self._keys[: self._start]
            self._start = 0


#: Answers that one test remembers.
REMEMBERED = 4096

#: Different headers after which a test that met few of them twice stops remembering.
TRIED = 256

#: System properties that are the same for all messages with the same traits.
SHARED = frozenset(
    {
        "AMQPriority",
        "AMQDurable",
        "AMQGroupID",
        "AMQUserID",
        "_AMQ_INGRESS_TIMESTAMP",
        "_AMQ_VALIDATED_USER",
        "JMSPriority",
        "JMSDeliveryMode",
        "JMSCorrelationID",
        "JMSType",
        "JMSReplyTo",
    }
)

#: Header lines that are written for each message.
OWN_LINES = frozenset({b"content-length", b"timestamp", b"expires"})


class HeaderView(Message):
    """A message of which only the headers are known. It notes when it is asked for anything else."""

    __slots__ = ("beyond",)

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.tail = b"\n" + traits.block
        self.body_at = len(self.tail)
        self.beyond = False  # the answer may be another one for another message

    def header(self, name: bytes) -> bytes | None:
        if name in OWN_LINES:
            self.beyond = True
        return super().header(name)

    def headers(self) -> dict[str, str]:
        self.beyond = True
        return super().headers()

    def get_property(self, name: str) -> str | int | float | bool | None:
        if name in SYSTEM_PROPERTIES and name not in SHARED:
            self.beyond = True
            return None
        return super().get_property(name)

    @property
    def body(self) -> bytes:
        self.beyond = True
        return b""

    def get_body(self) -> bytes:
        return self.body

    def __getattr__(self, name: str) -> object:
        self.beyond = True  # a slot that is empty here
        raise AttributeError(name)


class HeaderTest:
    """Asks a predicate, and asks it once only for equal headers where these alone decide.

    It remembers nothing if each message has headers of its own, or if all tests together have no memory left.
    """

    def __init__(self, matches: Matches, budget: MemoryBudget) -> None:
        self.matches = matches
        self._budget = budget
        self._known: dict[Traits, bool | None] = {}  # None: every message has to be asked
        self._hits = 0
        self._remembers = True

    def __call__(self, block: Block, index: int) -> bool:
        """Whether the message at a position of a block matches."""
        if not self._remembers:
            return bool(self.matches(block.message(index)))
        traits = block.traits(index)
        known = self._known.get(traits, self)
        if known is self:
            known = self._judge(traits)
        else:
            self._hits += 1
        if known is None:
            return bool(self.matches(block.message(index)))
        return known is True

    def _judge(self, traits: Traits) -> bool | None:
        view = HeaderView(traits)
        try:
            answer: bool | None = bool(self.matches(view))
        except AttributeError:
            answer = None
        if view.beyond:
            answer = None
        known = self._known
        if len(known) >= TRIED and self._hits < len(known):
            self._remembers = False
            self.forget()
            return answer
        budget = self._budget
        if len(known) >= REMEMBERED or not budget.has_room_for_answers:
            self.forget()
            self._hits = 0
        if budget.has_room_for_answers:
            known[traits] = answer
            budget.answers += ANSWER_SIZE
        return answer

    def forget(self) -> None:
        """Forget all answers, and return their memory to the budget."""
        self._budget.answers -= ANSWER_SIZE * len(self._known)
        self._known.clear()


LEVELS = range(9, -1, -1)  # priorities, the highest first

#: Whether there is time for more work before others have their turn.
InTime = Callable[[], bool]

#: Evaluations of a selector between two readings of the clock.
SCANNED_AT_ONCE = 8


class Track:
    """What a selector is known to match, and from where on nothing is known yet; both for each priority.

    Without a test everything matches, and nothing has to be known: what waits is what matches. Only what was parked
    for somebody else is then passed over, as if it were scanned.
    """

    def __init__(self, cursor: Cursor, test: HeaderTest | None) -> None:
        self.cursor = cursor
        self.test = test
        self.references: list[References | None] = [None] * 10
        self.scanned: list[Position | None] = [None] * 10  # the first position that was not looked at

    # ---- what comes next

    def next(self, level: int) -> tuple[Position, bool] | None:
        """The first position on disk that may be wanted, and whether it is known to match."""
        if not self.cursor.levels[level]:
            return None
        known, unknown = self.next_reference(level), self.next_unscanned(level)
        if known is None:
            return None if unknown is None else (unknown, False)
        if unknown is None or key_of(*known) <= key_of(*unknown):
            return known, True
        return unknown, False

    def next_reference(self, level: int) -> Position | None:
        """The first position that is known to match; those that are no longer on disk only are forgotten."""
        references = self.references[level]
        while references is not None and len(references):  # mypyc takes no length for a truth value here
            position = waiting_at(self.cursor, references.first)
            if position is not None:
                return position
            references.drop_first()
        return None

    def next_unscanned(self, level: int) -> Position | None:
        """The first waiting position that was not looked at."""
        return waiting_from(self.cursor, level, self.scanned[level])

    def use_reference(self, level: int) -> None:
        """The first position that is known to match is loaded: should it wait again, that is said anew."""
        references = self.references[level]
        assert references
        references.drop_first()

    # ---- what becomes known

    def refer(self, level: int, key: int) -> None:
        """A position is known to match."""
        references = self.references[level]
        if references is None:
            references = self.references[level] = References()
        references.add(key)

    def before_scan(self, level: int, key: int) -> bool:
        """Whether a position was looked at, or would have been had it waited then."""
        scanned = self.scanned[level]
        return scanned is not None and key < key_of(*scanned)

    def skip(self, level: int, page: Page, index: int) -> None:
        """A position is somebody else's, as all before it that still wait are."""
        if not self.before_scan(level, key_of(page, index)):
            self.scanned[level] = (page, index + 1)

    def rescan(self, level: int, page: Page, index: int) -> None:
        """A position that was passed over may be wanted after all."""
        if self.before_scan(level, key_of(page, index)):
            if self.test is None:
                self.refer(level, key_of(page, index))
            else:
                self.scanned[level] = (page, index)

    def scan(self, block: Block, in_time: InTime) -> None:
        """Test the messages of a block that this track has not tested, while there is time; some of them at least.

        Includes each priority that has no untested message before the block.
        """
        assert self.test is not None
        cursor, page, test = self.cursor, block.page, self.test
        starts = self._starts(block)
        first, stop = min(starts), block.stop
        states = cursor.states(page, first, stop)
        at, asked = first - 1, 0
        for state in states:
            at += 1
            if 0 < state <= 10 and starts[state] <= at:
                if test(block, at):
                    self.refer(state - 1, key_of(page, at))
                asked += 1
                if asked % SCANNED_AT_ONCE == 0 and not in_time():
                    stop = at + 1
                    break
        for level in LEVELS:
            if starts[level + 1] < stop:
                self.scanned[level] = (page, stop)

    def _starts(self, block: Block) -> list[int]:
        """By state: from which index on a block was not looked at; its end where it is not the next to look at."""
        starts = [block.stop] * 11
        for level in LEVELS:
            position = self.next_unscanned(level)
            if position is not None and position[0] is block.page and block.first <= position[1] < block.stop:
                starts[level + 1] = position[1]
        return starts

    # ---- gauges

    def __len__(self) -> int:
        return sum(len(references) for references in self.references if references is not None)


NOTHING = -1  # in `TargetList.top`: nothing on disk comes before anything


def was_straight(ref: Reference) -> bool:
    """Whether a message was handed over while its address paged, without being written, and came back."""
    return ref.position is None and ref.message.account is not ref.message.address


class TargetList:
    """One selector's list, or that of all consumers without one (``matches`` is None)."""

    def __init__(self, matches: Matches | None, budget: MemoryBudget) -> None:
        self.matches = matches
        self.test = None if matches is None else HeaderTest(matches, budget)
        self.tracks: dict[Cursor, Track] = {}
        self.pending: PendingList | None = None  # direct references, while there are consumers
        self.version = -1  # of the area, when the watermark was found
        self.top = NOTHING  # the highest priority that may be on disk
        self.firsts: dict[Cursor, int] = {}  # where its first may be, by cursor
        self.numbered: dict[
            Cursor, tuple[int, int]
        ] = {}  # such a position and its message's number, where known

    def forget_answers(self) -> None:
        """Return the memory of remembered answers before the list is dropped."""
        if self.test is not None:
            self.test.forget()

    def track(self, cursor: Cursor) -> Track:
        """How far it has got in the pages of one address."""
        track = self.tracks.get(cursor)
        if track is None:
            track = self.tracks[cursor] = Track(cursor, self.test)
        return track

    def find_watermark(self, cursors: list[Cursor], version: int) -> None:
        """Look for the first message on disk that may be wanted, where something has changed since the last time."""
        if version == self.version:
            return
        self.version = version
        self.top, self.firsts = NOTHING, {}
        for cursor in cursors:
            track = self.track(cursor)
            for level in LEVELS:
                if level < self.top:
                    break
                found = track.next(level)
                if found is not None:
                    if level > self.top:
                        self.top, self.firsts = level, {}
                    self.firsts[cursor] = key_of(*found[0])
                    break

    def below_watermark(self, ref: Reference, cursor: Cursor | None) -> bool:
        """Whether a message in memory comes before all that is on disk. ``cursor`` is that of its own address."""
        message = ref.message
        level = message.traits.priority
        if level != self.top:
            return level > self.top
        first = None if cursor is None or ref.sequence <= 0 else self.firsts.get(cursor)
        if first is None:
            return True
        if ref.position is not None:
            return key_of(*ref.position) < first
        if not was_straight(ref):
            return True
        assert cursor is not None
        key, number = self.numbered.get(cursor, (-1, 0))
        return key == first and message.number < number

    def learn(self, cursor: Cursor, key: int, number: int) -> bool:
        """The message number of a position; whether that is new, and what is in memory must be compared with it."""
        head = None if self.pending is None else self.pending.head()
        if head is None or not was_straight(head) or self.numbered.get(cursor, (-1, 0))[0] == key:
            return False
        self.numbered[cursor] = key, number
        return True

    def next(self, numbered: dict[Cursor, int]) -> tuple[Track, Position, bool] | None:
        """The first message on disk that may be wanted: where it is, and whether it is known to match.

        With several addresses at one priority the smallest message number decides; ``numbered`` has those known.
        """
        if not self.firsts:
            return None
        cursor = min(self.firsts, key=lambda one: numbered.get(one, -1))
        track = self.track(cursor)
        found = track.next(self.top)
        return None if found is None else (track, *found)

    def on_returned(self, cursor: Cursor, page: Page, index: int, message: Message) -> None:
        """A message is on disk only again, perhaps where this list had been already."""
        track, level, key = self.track(cursor), message.traits.priority, key_of(page, index)
        if track.before_scan(level, key) and (self.matches is None or self.matches(message)):
            track.refer(level, key)

    @property
    def references(self) -> int:
        """Cache references."""
        return sum(map(len, self.tracks.values()))


by_first = attrgetter("first")


class PendingCache:
    """Blocks by page and index. One block of a page is read at a time; who asks meanwhile waits for that one first.

    ``free_memory`` is asked to free bytes for a block that comes; ``lost`` is told of pages that had something
    unreadable.
    """

    def __init__(
        self, budget: MemoryBudget, free_memory: Callable[[int], bool], lost: Callable[[Pages], None]
    ) -> None:
        self.blocks_read = 0
        self._budget = budget
        self._free_memory = free_memory
        self._lost = lost
        self._used: OrderedDict[Block, Pages] = OrderedDict()  # the least recently used first
        self._of_page: dict[Page, list[Block]] = {}  # ascending
        self._of_address: dict[Pages, int] = {}  # bytes
        self._asking: dict[Page, list[tuple[int, Done]]] = {}

    def __len__(self) -> int:
        return len(self._used)

    def get(self, page: Page, index: int) -> Block | None:
        """The block with a position, if it is here."""
        blocks = self._of_page.get(page)
        if blocks is None:
            return None
        at = bisect_right(blocks, index, key=by_first) - 1
        if at < 0 or blocks[at].stop <= index:
            return None
        self._used.move_to_end(blocks[at])
        return blocks[at]

    def fetch(self, pages: Pages, page: Page, index: int, done: Done) -> None:
        """Have a block read. ``done`` is called later, with None for what is unreadable."""
        asking = self._asking.get(page)
        if asking is not None:
            asking.append((index, done))
            return
        self._asking[page] = [(index, done)]
        self._read(pages, page, index)

    def is_reading(self, page: Page) -> bool:
        """Whether something of a page is on its way."""
        return page in self._asking

    def _read(self, pages: Pages, page: Page, index: int) -> None:
        self.blocks_read += 1
        pages.fetch(page, index, lambda block: self._on_block(pages, page, index, block))

    def _on_block(self, pages: Pages, page: Page, index: int, block: Block | None) -> None:
        asking = self._asking.pop(page)
        if block is None:
            self._lost(pages)
        else:
            self._insert(pages, block)
        for at, done in asking:
            if at == index or (block is not None and block.first <= at < block.stop):
                done(block)
            elif (other := self.get(page, at)) is not None:
                done(other)
            else:
                self.fetch(pages, page, at, done)

    def _insert(self, pages: Pages, block: Block) -> None:
        settings = pages.address.settings
        limit = settings.page_max_cache_size * settings.page_size_bytes
        if as_address(pages.address).pages is not pages:
            return  # it was left while the block was read
        if block.size > limit or not self._free_memory(block.size):
            return
        while self._of_address.get(pages, 0) + block.size > limit:
            self._evict(next(other for other, whose in self._used.items() if whose is pages))
        blocks = self._of_page.setdefault(block.page, [])
        for other in [other for other in blocks if block.first <= other.first < block.stop]:
            self._evict(other)  # of the page's end, which has grown since
        insort(self._of_page.setdefault(block.page, []), block, key=by_first)
        self._used[block] = pages
        self._of_address[pages] = self._of_address.get(pages, 0) + block.size
        self._budget.blocks += block.size

    def _evict(self, block: Block) -> None:
        pages = self._used.pop(block)
        blocks = self._of_page[block.page]
        blocks.remove(block)
        if not blocks:
            del self._of_page[block.page]
        self._of_address[pages] -= block.size
        self._budget.blocks -= block.size

    def shrink(self, size: int) -> None:
        """Give up blocks of together ``size`` bytes or more."""
        end = self._budget.blocks - size
        while self._used and self._budget.blocks > end:
            self._evict(next(iter(self._used)))

    def forget(self, pages: Pages) -> None:
        """An address pages no more."""
        for block in [block for block, whose in self._used.items() if whose is pages]:
            self._evict(block)
        self._of_address.pop(pages, None)
