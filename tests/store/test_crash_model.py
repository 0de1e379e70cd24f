"""Random use of a broker with a store, and crashes at any moment: what comes back is what was there."""

from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stompring.broker import publish
from stompring.broker.clock import Recurrence
from stompring.broker.publish import Transaction
from stompring.settings.model import Retention, RingPolicy
from stompring.store.replay import Replay

from ..broker.broker_fixture import MULTICAST, join
from ..property.profile import examples
from .disk import ManualDisk
from .journal_history import JournalHistory, at_time, snapshot
from .memory_files import MemoryFiles, broken, out_of_space
from .stored_broker import StoredBroker

SETTINGS = {
    "#": {
        "auto_delete_queues": False,
        "auto_delete_addresses": False,
        "dead_letter_address": "DLQ",
        "expiry_address": "EXP",
        "max_delivery_attempts": 3,
    },
    "slow": {"redelivery_delay": 500},
}

CHOICE = st.integers(min_value=0, max_value=1000)
ADDRESSES = st.sampled_from(["q", "q", "ring", "t", "slow", "kept"])


def enforced(held):
    """What a start makes of it: what was in delivery is pending, and so a ring may have too much."""
    if "ring" not in held:
        return held
    look, messages = held["ring"]
    size = look[1]
    pending = sorted(number for number, (_, _, due, _) in messages.items() if not due)
    gone = pending[:-size]
    return held | {"ring": (look, {n: each for n, each in messages.items() if n not in gone})}


def without_moved(found, chronicle):
    """Without the copies that rings gave up just now: their numbers are new."""
    known = {number for _, held in chronicle.entries for _, messages in held.values() for number in messages}
    if "DLQ" not in found:
        return found
    look, messages = found["DLQ"]
    return found | {"DLQ": (look, {n: each for n, each in messages.items() if n in known})}


def conserved(broker):
    """The counters of each queue say where every message has gone."""
    for queue in broker.directory.queues.values():
        gone = queue.messages_acknowledged + queue.messages_expired
        gone += queue.messages_killed + queue.messages_replaced
        if not queue.attributes.non_destructive:
            assert queue.messages_added - gone == queue.message_count, queue.name


class Crashes(RuleBasedStateMachine):
    """Small segments, so that the journal rolls and is compacted all the time."""

    retention: Retention | None = None

    def __init__(self):
        super().__init__()
        self.files = MemoryFiles()
        self.start(self.files)
        self.chronicle = JournalHistory(self.world)
        self.chronicle.entries.insert(0, ((0, 0), {}))
        self.make_queues()

    def start(self, files, after=0):
        self.hand = ManualDisk()
        self.world = StoredBroker(
            files,
            SETTINGS,
            self.hand,
            after=after,
            prefill_from=500,
            journal_file_size=3000,
            journal_compact_min_files=2,
            journal_compact_percentage=60,
            journal_retention_directory=self.retention,
        )
        self.takers = []
        self.transactions = []
        self.random = Random(0)

    def make_queues(self):
        """Those that are not there, because there were none, or the crash came before they were written."""
        wanted = {name: {} for name in ("q", "slow", "DLQ", "EXP")}
        wanted["ring"] = {"ring_size": 2, "ring_policy": RingPolicy.DEAD_LETTER}
        wanted["kept"] = {"non_destructive": True}
        wanted["t1"] = wanted["t2"] = {"address": "t", "routing_type": MULTICAST}
        wanted["t3"] = wanted["t1"] | {"durable": False}
        wanted["t4"] = wanted["t1"] | {"filter": "n = 1"}
        wanted["t5"] = wanted["t1"] | {"last_value_key": "n"}
        for name, attributes in wanted.items():
            if name not in self.world.directory.queues:
                self.world.queue(name, **attributes)
        self.turn()
        for address in ("q", "q", "q", "t", "slow"):
            self.world.send(address, b"x", durable=True)
        self.takers += [join(self.world.directory.queue(name), 2) for name in ("q", "t1", "slow")]

    @property
    def busy(self):
        """Those who have something to settle."""
        return [taker for taker in self.takers if taker.unsettled]

    def pick(self, choice, things):
        return things[choice % len(things)] if things else None

    # ---- what clients do

    @rule(
        address=ADDRESSES,
        size=st.integers(0, 400),
        durable=st.sampled_from([True, True, True, False]),
        n=CHOICE,
    )
    def send(self, address, size, durable, n):
        headers = {"n": str(n % 3)}
        expires = self.world.now + 625 if n % 7 == 0 else 0
        priority = 4 if address == "ring" else n % 10
        self.world.send(
            address, b"x" * size, durable=durable, headers=headers, priority=priority, expires=expires
        )

    @rule(
        address=ADDRESSES.filter(lambda name: name != "ring"),
        delay=st.integers(1, 8),
        repeat=st.integers(-1, 2),
    )
    def schedule(self, address, delay, repeat):
        recurrence = None if repeat < 0 else Recurrence(period=500, repeat=repeat)
        self.world.send(address, due=self.world.now + delay * 250, recurrence=recurrence, durable=True)

    @rule(choice=CHOICE, credit=st.integers(1, 3), auto=st.booleans())
    def subscribe(self, choice, credit, auto):
        queue = self.pick(choice, list(self.world.directory.queues.values()))
        if len(self.takers) < 4 and queue is not None:
            self.takers.append(join(queue, credit, auto=auto))

    @rule(choice=CHOICE)
    @precondition(lambda self: self.busy)
    def acknowledge(self, choice):
        taker = self.pick(choice, self.busy)
        taker.ack(taker.unsettled[0])

    @rule(choice=CHOICE)
    @precondition(lambda self: self.busy)
    def refuse(self, choice):
        taker = self.pick(choice, self.busy)
        taker.nack(taker.unsettled[0])

    @rule(choice=CHOICE, failed=st.booleans())
    @precondition(lambda self: self.takers)
    def leave(self, choice, failed):
        taker = self.pick(choice, self.takers)
        self.takers.remove(taker)
        taker.close(failed=failed)

    @rule(choice=CHOICE, sends=st.lists(ADDRESSES, max_size=3), credit=CHOICE)
    def commit(self, choice, sends, credit):
        """All in one: what is taken and what is sent."""
        transaction = Transaction(self.world.broker)
        taker = self.pick(choice, self.busy)
        if taker is not None and not taker.queue.attributes.non_destructive:
            taker.ack_in(transaction, taker.unsettled[:2])
        for address in sends:
            message = self.world.message(address, b"in a transaction", durable=True)
            transaction.send(
                0, lambda: self.world.address("q"), lambda m=message: publish.send(m), durable=True
            )
        transaction.commit()
        if taker is not None:
            taker.give_credit(0)

    # ---- what administrators do

    @rule(choice=CHOICE, size=st.integers(1, 4))
    def resize(self, choice, size):
        self.world.directory.update_queue(self.world.directory.queue("ring"), {"ring_size": size})

    @rule(choice=CHOICE)
    def purge_or_pause(self, choice):
        queue = self.pick(choice, list(self.world.directory.queues.values()))
        if choice % 5 == 0:
            queue.purge()
        elif queue.paused:
            queue.resume()
        else:
            queue.pause()

    @rule()
    def remake(self):
        """Delete a queue, or make it anew: under the same name it is another one."""
        if "t2" in self.world.directory.queues:
            self.takers = [taker for taker in self.takers if taker.queue.name != "t2"]
            self.world.directory.delete_queue("t2", force=True)
        else:
            self.world.queue("t2", "t", MULTICAST)

    # ---- time and disk

    @rule()
    def turn(self):
        """The end of a turn of the reactor."""
        self.world.turn()

    @rule(steps=st.integers(1, 5))
    def pass_time(self, steps):
        self.world.turn()
        self.world.pass_time(steps * 250)

    @rule()
    @precondition(lambda self: self.hand.jobs)
    def write(self):
        self.hand.step()
        assert self.world.writer.failing is None

    @rule(broken_disk=st.booleans())
    @precondition(lambda self: self.hand.jobs)
    def fail_to_write(self, broken_disk):
        """One write or sync fails; the batch is tried again later."""
        left = [self.random.randrange(3)]

        def fault(operation, path):
            if operation in ("write", "sync", "open"):
                left[0] -= 1
                if left[0] < 0:
                    raise broken(path) if broken_disk else out_of_space(path)

        self.world.memory.fault = fault
        self.hand.step()
        self.world.memory.heal()

    @rule()
    def promise(self):
        self.chronicle.promise()

    # ---- the end, and the beginning

    @rule(in_the_middle=st.booleans())
    def kill(self, in_the_middle):
        """The process dies, perhaps right after it has written something."""
        if in_the_middle and self.hand.jobs:
            self.hand.do()
        self.begin_again(self.world.memory.kill(), torn=False)

    @rule(seed=CHOICE, in_the_middle=st.booleans())
    def crash(self, seed, in_the_middle):
        """The computer dies: anything may be missing that was not synced."""
        if in_the_middle and self.hand.jobs:
            files = self.world.memory
            count = Random(seed).randrange(4)
            operations = [count]

            def fault(operation, path):
                operations[0] -= 1
                if operations[0] < 0:
                    raise broken(path)

            files.fault = fault
            self.hand.do()
        self.begin_again(self.world.memory.crash(Random(seed)), torn=True)

    @rule()
    def stop(self):
        """A clean stop: everything is there."""
        self.world.journal.gather()
        self.world.broker.stop()
        assert self.world.writer.idle
        self.chronicle.safe = len(self.chronicle.entries) - 1
        self.begin_again(self.world.memory.kill(), torn=False)

    def begin_again(self, files, *, torn):
        chronicle, clock = self.chronicle, self.world.clock.seconds()
        replay = Replay(files, self.world.journal.directory)
        replay.read()
        newest = replay.segments[-1] if replay.segments else None
        self.start(files, after=clock - 1_700_000_000)
        position = (0, 0) if newest is None else (newest.number, newest.good)
        before, after = chronicle.between(max(position, chronicle.entries[0][0]))
        now = self.world.broker.clock.now
        before, after = enforced(at_time(before, now)), enforced(at_time(after, now))
        self.compare(before, after, without_moved(snapshot(self.world.broker, now), chronicle))
        for text in self.world.store.damaged:
            assert torn, text
        conserved(self.world.broker)
        self.chronicle = JournalHistory(self.world)
        self.make_queues()

    @staticmethod
    def compare(before, after, found):
        """Where the journal was cut off within a turn each thing is as it was before that turn or after it."""
        if before == after:
            assert found == before
            return
        for name in before.keys() | after.keys() | found.keys():
            nothing = (None, {})
            old, new = before.get(name, nothing), after.get(name, nothing)
            look, messages = found.get(name, nothing)
            remade = None not in (old[0], new[0]) and old[0][0] != new[0][0]
            assert look in (old[0], new[0]) or (remade and look is None)
            # what was sent to a queue before it was deleted in the same turn may be there with the queue
            deleted = look is not None and (new[0] is None or look[0] != new[0][0])
            for number in old[1].keys() | new[1].keys() | messages.keys():
                seen = messages.get(number)
                possible = (old[1].get(number), new[1].get(number))
                assert seen in possible or (seen is not None and (deleted or None not in possible)), (
                    name,
                    number,
                    seen,
                    possible,
                )

    @invariant()
    def counters_agree(self):
        conserved(self.world.broker)

    def teardown(self):
        self.begin_again(self.world.memory.kill(), torn=False)


TestCrashes = Crashes.TestCase
TestCrashes.settings = examples(60, steps=60, quick=30)


class CrashesWithRetention(Crashes):
    """What is written although it is done with changes nothing about what comes back."""

    retention = Retention("/data/retention", storage_limit=20_000)


TestCrashesWithRetention = CrashesWithRetention.TestCase
TestCrashesWithRetention.settings = examples(30, steps=60, quick=15)
