"""Pages and cursors under random use, beside a model that is a plain list for each queue."""

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stompring.broker.ports import Reason
from stompring.broker.reference import PENDING, SCHEDULED

from ..property.profile import examples
from .paged_broker import PagedBroker, refer

Key = tuple[int, int]  # page and index

WAITING, LOADED, TIMED = "waiting", "loaded", "timed"
NAMES = ("q", "r", "s", "passing")  # the last is not durable
PICK = st.integers(min_value=0, max_value=1000)
PRIORITIES = st.sampled_from([4, 4, 4, 0, 9])


@dataclass
class Item:
    """What one queue has at a position."""

    body: bytes
    level: int
    state: str
    durable: bool
    due: int = 0  # as it was sent
    counts: tuple[int, int] = (0, 0)
    now_due: int = 0  # as it came back
    told: tuple[int, int, int] | None = None  # counts and due time that a restart remembers

    def restart(self):
        """The broker begins anew: what was in memory is on disk only."""
        deliveries, attempts, due = self.told or (0, 0, self.due)
        self.counts = (deliveries, attempts)
        self.state = TIMED if due else WAITING
        self.now_due = due if self.told else 0


@dataclass
class Model:
    """What each queue has, by position."""

    queues: dict[str, dict[Key, Item]] = field(default_factory=lambda: {name: {} for name in NAMES})

    def restart(self):
        for name, items in self.queues.items():
            for key in [key for key, item in items.items() if not item.durable or name == "passing"]:
                del items[key]
            for item in items.values():
                item.restart()

    def of(self, name, *states):
        return sorted(key for key, item in self.queues[name].items() if item.state in states)

    def pages(self):
        return {page for items in self.queues.values() for page, _ in items}


class PagesMachine(RuleBasedStateMachine):
    """See the module. What was done since the last turn is lost in a crash; nothing else is."""

    def __init__(self):
        super().__init__()
        self.model = Model()
        self.safe = deepcopy(self.model)
        self.loaded = {}
        self.bodies = 0
        self.transaction = False

    @initialize(page_size=st.sampled_from([1024, 1500, 4000]))
    def begin(self, page_size):
        settings = {"#": {"page_size_bytes": page_size, "auto_delete_queues": False}}
        self.attach(PagedBroker(settings=settings, journal_file_size=4096))
        for level in (4, 9, 4):
            self.append({"q", "r"}, level, True, 0, 100, 4)
        for name in ("q", "q", "r"):
            self.take_first(name, 4)

    def attach(self, world):
        self.world = world
        for name in NAMES:
            if name not in world.directory.queues:
                world.queues(name, durable=name != "passing")
        self.loaded.clear()
        self.turn()

    # ---- helping

    @property
    def queues(self):
        return self.world.directory.queues

    def position(self, key):
        page = self.world.pages.page(key[0])
        assert page is not None, f"page {key[0]} is gone"
        return page, key[1]

    def pick(self, pick, *states):
        """Something of some queue."""
        found = [(name, key) for name in NAMES for key in self.model.of(name, *states)]
        if not found:
            return None
        name, key = found[pick % len(found)]
        return name, key, self.model.queues[name][key]

    def turn(self):
        """Everything that was said is on disk."""
        if self.transaction:
            self.world.store.commit()
            self.transaction = False
        self.world.turn()
        self.safe = deepcopy(self.model)
        there = {page.number for page in self.world.pages.in_order()}
        files = {int(name[:9]) for name in self.world.page_files() if name.endswith(".page")}
        assert self.model.pages() <= files <= there

    def take(self, name, key, item):
        page, index = self.position(key)
        self.turn()  # a block is read
        block = self.world.read(page, index)
        assert block.first <= index < block.stop
        shared = page.left > 1  # between queues, while one of them holds it
        message = block.message(index)
        assert message.body == item.body
        assert (block.number_of(index), block.expires(index)) == (message.number, 0)
        assert block.traits(index) is message.traits
        cursor = self.world.cursor(self.queues[name])
        if item.state == TIMED:
            assert cursor.due(block, index) == (item.now_due or item.due)
        assert cursor.counts(page, index) == item.counts
        ref = refer(self.queues[name], cursor, message, page, index)
        if shared:
            message.holders += 1  # as a queue does that has it in memory
            assert block.message(index) is message
            message.holders -= 1
        assert (ref.deliveries, ref.attempts) == item.counts
        item.state = LOADED
        self.loaded[name, key] = ref

    # ---- what dispatch does

    @rule(
        members=st.sets(st.sampled_from(NAMES), min_size=1),
        level=PRIORITIES,
        durable=st.booleans(),
        later=st.sampled_from([0, 0, 0, 10_000]),
        size=st.sampled_from([0, 100, 2000]),
        times=st.sampled_from([1, 1, 5]),
    )
    def append(self, members, level, durable, later, size, times):
        for _ in range(times):
            self.bodies += 1
            body = b"%d " % self.bodies + bytes(size)
            queues = [self.queues[name] for name in sorted(members)]
            due = self.world.now + later if later else 0
            page, index = self.world.page(queues, body, due=due, priority=level, durable=durable)
            for name in members:
                item = Item(body, level, TIMED if due else WAITING, durable, due)
                self.model.queues[name][page.number, index] = item

    @rule(name=st.sampled_from(NAMES), level=PRIORITIES)
    def take_first(self, name, level):
        keys = [key for key in self.model.of(name, WAITING) if self.model.queues[name][key].level == level]
        if keys:
            self.take(name, keys[0], self.model.queues[name][keys[0]])

    @rule(pick=PICK)
    @precondition(lambda self: self.pick(0, WAITING, TIMED))
    def take_any(self, pick):
        picked = self.pick(pick, WAITING, TIMED)
        if picked:
            self.take(*picked)

    @rule(pick=PICK, deliveries=st.integers(0, 2), later=st.sampled_from([0, 0, 5000]))
    @precondition(lambda self: self.loaded)
    def put_back(self, pick, deliveries, later):
        picked = self.pick(pick, LOADED)
        if picked:
            name, key, item = picked
            ref = self.loaded.pop((name, key))
            ref.deliveries += deliveries
            ref.state = SCHEDULED if later else PENDING
            ref.due = self.world.now + later
            self.world.cursor(self.queues[name]).put_back(ref)
            item.counts = (ref.deliveries, ref.attempts)
            item.state = TIMED if later else WAITING
            item.now_due = ref.due if later else 0

    @rule(pick=PICK, later=st.sampled_from([0, 0, 5000]))
    @precondition(lambda self: self.loaded)
    def returned(self, pick, later):
        picked = self.pick(pick, LOADED)
        if picked:
            name, key, item = picked
            ref = self.loaded[name, key]
            ref.deliveries += 1
            ref.attempts += 1
            ref.state = SCHEDULED if later else PENDING
            ref.due = self.world.now + later if later else 0
            self.world.cursor(self.queues[name]).returned(ref)
            item.counts = (ref.deliveries, ref.attempts)
            if item.durable and name != "passing":
                item.told = (ref.deliveries, ref.attempts, ref.due)

    @rule(pick=PICK, reason=st.sampled_from(list(Reason)), times=st.sampled_from([1, 4]))
    @precondition(lambda self: self.loaded)
    def settle(self, pick, reason, times):
        for _ in range(times):
            picked = self.pick(pick, LOADED)
            if picked:
                name, key, _ = picked
                cursor = self.world.cursor(self.queues[name])
                ref = self.loaded.pop((name, key))
                cursor.settle(ref, reason)
                cursor.settle(ref, reason)  # once is as good as twice
                del self.model.queues[name][key]

    @rule(pick=PICK)
    @precondition(lambda self: self.pick(0, WAITING))
    def settle_waiting(self, pick):
        picked = self.pick(pick, WAITING)
        if picked:
            name, key, _ = picked
            self.world.cursor(self.queues[name]).settle_waiting(*self.position(key), Reason.REPLACED)
            del self.model.queues[name][key]

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name):
        gone = self.model.of(name, WAITING, TIMED)
        assert sum(self.world.cursor(self.queues[name]).purge(Reason.KILLED)) == len(gone)
        for key in gone:
            del self.model.queues[name][key]

    @rule(name=st.sampled_from(NAMES))
    def delete_queue(self, name):
        self.turn()
        self.world.pages.forget(self.queues[name])
        self.world.directory.delete_queue(name)
        for each, key in [held for held in self.loaded if held[0] == name]:
            del self.loaded[each, key]
        self.model.queues[name] = {}
        self.turn()
        self.world.queues(name, durable=name != "passing")
        self.turn()

    @rule()
    def roll(self):
        self.world.pages.roll()

    @rule()
    def begin_transaction(self):
        self.turn()
        self.world.store.begin()
        self.transaction = True

    @rule()
    def a_turn_ends(self):
        self.turn()

    @rule()
    @precondition(lambda self: not self.model.pages())
    def close(self):
        self.turn()
        address = self.world.address("a")
        if address.pages is not None:
            assert address.pages.empty
            self.world.paging.close(address.pages)
            address.pages = None
            self.turn()
            assert self.world.page_files() == []

    # ---- what befalls the broker

    @rule(seed=st.integers(-2, 1 << 16))
    def end_and_start(self, seed):
        """A clean stop, a kill, or else a crash."""
        if seed < 0:
            self.turn()
            if seed == -2:
                self.world.stop()
            self.restart(self.world.memory.kill())
        else:
            self.model = self.safe
            self.restart(self.world.memory.crash(Random(seed)))

    @rule()
    def compact(self):
        self.turn()
        journal = self.world.journal
        for _ in range(20):
            if len(journal.segments) < 2:
                break
            journal.compact_step(10, 1 << 20)
            self.turn()

    def restart(self, files):
        self.transaction = False
        self.model.restart()
        self.attach(self.world.again(files))
        assert self.world.paging.damaged_pages == 0
        assert {page.number for page in self.world.pages.in_order()} == self.model.pages()

    # ---- what must be so

    @invariant()
    def counts_are_right(self):
        pages = self.world.pages
        assert pages.empty is not bool(self.model.pages())
        for name, queue in self.queues.items():
            items, cursor = self.model.queues[name], pages.cursor(queue)
            waiting = self.model.of(name, WAITING)
            levels = [0] * 10
            for key in waiting:
                levels[items[key].level] += 1
            assert cursor.levels == levels
            assert (cursor.remaining, cursor.waiting) == (len(items), len(waiting))
            assert cursor.timed == len(self.model.of(name, TIMED))
            for level in range(10):
                first = next((key for key in waiting if items[key].level == level), None)
                found = cursor.first(level)
                assert (found and (found[0].number, found[1])) == first

    @invariant()
    def positions_are_right(self):
        for name, queue in self.queues.items():
            cursor, items = self.world.pages.cursor(queue), self.model.queues[name]
            for page in self.world.pages.in_order():
                waiting = [key[1] for key in self.model.of(name, WAITING) if key[0] == page.number]
                assert cursor.waiting_of(page) == waiting
                timed = [key[1] for key in self.model.of(name, TIMED) if key[0] == page.number]
                assert cursor.timed_of(page) == timed
                due = [items[page.number, index].now_due or items[page.number, index].due for index in timed]
                assert not due or 0 < page.soonest_due <= min(due)
                states = cursor.states(page, 0, page.count)
                for index in range(page.count):
                    item = items.get((page.number, index))
                    assert cursor.is_waiting(page, index) == (item is not None and item.state == WAITING)
                    expected = (
                        0 if item is None else {WAITING: item.level + 1, LOADED: 11, TIMED: 12}[item.state]
                    )
                    assert states[index] == expected
                following = cursor.following(4, page, 1)
                keys = [
                    key
                    for key in self.model.of(name, WAITING)
                    if items[key].level == 4 and key >= (page.number, 1)
                ]
                assert (following and (following[0].number, following[1])) == (keys[0] if keys else None)

    @invariant()
    def files_are_right(self):
        """A page goes when nobody has anything left in it, but for the last."""
        pages = self.world.pages
        there = {page.number for page in pages.in_order()}
        needed = self.model.pages()
        assert needed <= there
        assert len(there - needed) <= 1
        assert sum(page.bytes for page in pages.in_order()) == pages.bytes


PagesMachine.TestCase.settings = examples(80, 50, quick=40)
TestPages = PagesMachine.TestCase
