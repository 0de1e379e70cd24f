"""Moving, copying and retrying under random use, in memory and on disk, against a model: nothing is lost or doubled,
the order stays, and dead letters come back to where they came from as they were sent."""

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stompring.broker import publish, queue_browser
from stompring.broker.directory import allow_all
from stompring.broker.message import origin_of
from stompring.broker.publish import Mover, Target
from stompring.broker.queue_browser import PageRead
from stompring.broker.reference import PENDING, SCHEDULED

from ..broker.broker_fixture import Taker
from ..paging.stored_pages import StoredPages
from .profile import examples

NAMES = ["one", "two", "graves"]
NAME = st.sampled_from(NAMES)
COLOURS = ["red", "blue"]
FAR = 10**9  # ms: never due here


class Holder(Taker):
    """A consumer that shows what it has not settled, as management asks."""

    def unsettled_references(self):
        return self.unsettled


def plain(message):
    """What a sender has said of a message."""
    ours = ("timestamp", "expires", "content-length")
    return {
        name: value
        for name, value in message.headers().items()
        if name not in ours and not name.startswith("_AMQ_")
    }


class MoveMachine(RuleBasedStateMachine):
    """Three queues, one of them for dead letters; their messages are consumed, rejected, moved and retried."""

    @initialize(limit=st.sampled_from([2, 4, 1000]), page=st.sampled_from([600, 2000]))
    def begin(self, limit, page):
        self.world = StoredPages(
            limit=limit,
            settings={"max_delivery_attempts": 1, "dead_letter_address": "graves"},
            page_size=page,
            memory=3_000,
        )
        self.queues = {name: self.world.queue(name) for name in NAMES}
        self.pending = {name: [] for name in NAMES}  # priority and body
        self.scheduled = {name: [] for name in NAMES}
        self.home = {}  # of each dead letter, by its body
        self.sent = {}  # what the sender has said of each body
        self.holders = []
        self.count = 0

    # ---- what the queues have

    def walk(self, steps):
        found = []
        for one in steps:
            if isinstance(one, PageRead):
                self.world.settle_down()
                assert one.over
            else:
                found.append(one)
        return found

    def listed(self, queue, state):
        found = []
        for ref in queue_browser.browse(queue):
            if isinstance(ref, PageRead):
                self.world.settle_down()
            elif ref.state == state:  # now: it may go back to disk meanwhile
                found.append(ref)
        return found

    def expected(self, name):
        return [body for _, body in sorted(self.pending[name], key=lambda pair: -pair[0])]

    def arrive(self, name, priority, body):
        self.pending[name].append((priority, body))

    def leave(self, name, body):
        """Its priority; -1 of one that is scheduled."""
        if body in self.scheduled[name]:
            self.scheduled[name].remove(body)
            return -1
        (found,) = [pair for pair in self.pending[name] if pair[1] == body]
        self.pending[name].remove(found)
        return found[0]

    # ---- rules

    @rule(
        name=NAME,
        count=st.integers(1, 8),
        priority=st.sampled_from([4, 4, 1, 9]),
        colour=st.sampled_from(COLOURS),
        durable=st.booleans(),
        due=st.sampled_from([0, 0, 0, FAR]),
    )
    def send(self, name, count, priority, colour, durable, due):
        for _ in range(count):
            self.count += 1
            body = str(self.count)
            message = self.world.send(
                name,
                body.encode(),
                priority=priority,
                durable=durable,
                headers={"colour": colour},
                due=self.world.now + due if due else 0,
            )
            self.sent[body] = plain(message)
            if due:
                self.scheduled[name].append(body)
            else:
                self.arrive(name, priority, body)
        self.world.settle_down()

    @rule(name=NAME, credit=st.integers(1, 6))
    def take(self, name, credit):
        """A consumer takes some and keeps them."""
        holder = Holder(credit)
        self.queues[name].add_consumer(holder)
        self.world.settle_down()
        self.queues[name].dispatcher.pause_consumer(holder)
        for message in holder.got:
            self.leave(name, message.body.decode())
        self.holders.append(holder)

    @rule(accept=st.booleans())
    def answer(self, accept):
        """The consumer that has waited longest acknowledges all, or rejects all."""
        if not self.holders:
            return
        holder = self.holders.pop(0)
        name = holder.queue.name
        holder.credit = -1_000
        if accept or name == "graves":
            holder.ack()
        else:
            bodies = {ref.message.body.decode(): ref.message.traits.priority for ref in holder.unsettled}
            holder.nack()
            self.world.settle_down()
            letters = [ref.message.body.decode() for ref in self.listed(self.queues["graves"], PENDING)]
            assert bodies.keys() <= set(letters)
            for body in letters:  # in which order several come together is the queue's affair
                if body in bodies:
                    self.arrive("graves", bodies[body], body)
                    self.home[body] = name
        holder.close()
        self.world.settle_down()

    def each(self, name, wanted, act, limit):
        """What a task does, and the bodies of what it has changed, in order."""
        done = []
        for ref in queue_browser.messages_of(self.queues[name]):
            if isinstance(ref, PageRead):
                self.world.settle_down()
                continue
            if ref.state in (PENDING, SCHEDULED) and wanted(ref):
                if act(ref):
                    done.append(ref.message.body.decode())
                if len(done) == limit:
                    break
        self.world.settle_down()
        return done

    @rule(
        source=NAME,
        destination=NAME,
        colour=st.sampled_from([*COLOURS, None]),
        limit=st.sampled_from([-1, 1, 3]),
        remove=st.booleans(),
    )
    def move(self, source, destination, colour, limit, remove):
        if source == destination:
            return
        wanted_colour = None if colour is None else colour.encode()
        queue = self.queues[destination]
        mover, to = Mover(self.queues[source], remove=remove), Target(queue.address, queue)
        before = [*self.expected(source), *self.scheduled[source]]
        done = self.each(
            source,
            lambda ref: wanted_colour is None or ref.message.header(b"colour") == wanted_colour,
            lambda ref: mover.send(ref, to) is True,
            limit,
        )
        matching = [body for body in before if colour in (None, self.sent[body]["colour"])]
        assert Counter(done) == Counter(matching[: limit if limit > 0 else None])
        for body in done:
            if remove:
                priority = self.leave(source, body)
                new = body
            else:
                self.count += 1
                continue  # see `copied`
            if priority < 0:
                self.scheduled[destination].append(new)
            else:
                self.arrive(destination, priority, new)
        if not remove:
            self.copied(destination, done)

    def copied(self, target, done):
        """Remove the copies again: in the model each body is in one place."""
        for body in done:
            refs = [
                ref
                for ref in self.walk(queue_browser.browse(self.queues[target]))
                if ref.message.body.decode() == body
            ]
            assert len(refs) == 1
            assert plain(refs[0].message) == self.sent[body]
            assert publish.take(refs[0])
        self.world.settle_down()

    @rule(limit=st.sampled_from([-1, 2]), name=NAME)
    def retry(self, limit, name):
        mover = Mover(self.queues[name], remove=True)
        broker = self.world.broker

        def send(ref):
            origin = origin_of(ref.message)
            assert origin.queue == self.home[ref.message.body.decode()]
            target = publish.retry_target(broker, origin, allow_all, None)
            if target.queue is self.queues[name]:
                return False
            return mover.send(ref, target, origin) is True

        letters = [body for body in self.expected(name) if self.home.get(body, name) != name]
        letters += [body for body in self.scheduled[name] if self.home.get(body, name) != name]
        done = self.each(name, lambda ref: origin_of(ref.message) is not None, send, limit)
        assert Counter(done) == Counter(letters[: limit if limit > 0 else None])
        for body in done:
            self.arrive(self.home.pop(body), max(0, self.leave(name, body)), body)

    @rule(name=NAME, limit=st.sampled_from([1, 3]))
    def remove(self, name, limit):
        for body in self.each(name, lambda ref: True, publish.take, limit):
            self.leave(name, body)

    @rule(name=NAME, index=st.integers(0, 50))
    def remove_by_number(self, name, index):
        """One message by its number, wherever it is."""
        refs = self.walk(queue_browser.browse(self.queues[name]))
        if not refs:
            return
        wanted = refs[index % len(refs)]
        state, body = wanted.state, wanted.message.body.decode()
        numbers = {wanted.message.number}
        found = [ref for ref in self.walk(publish.numbered(self.queues[name], numbers)) if ref is not None]
        assert [ref.message.number for ref in found] == [wanted.message.number] and not numbers
        assert publish.take(found[0]) is (state in (PENDING, SCHEDULED))
        if state in (PENDING, SCHEDULED):
            self.leave(name, body)
        self.world.settle_down()

    # ---- what always holds

    @invariant()
    def queues_have_what_the_model_has(self):
        if not hasattr(self, "world"):
            return
        for name, queue in self.queues.items():
            refs = self.listed(queue, PENDING)
            assert [ref.message.body.decode() for ref in refs] == self.expected(name), name
            waiting = self.listed(queue, SCHEDULED)
            assert Counter(ref.message.body.decode() for ref in waiting) == Counter(self.scheduled[name])
            held = sum(len(holder.unsettled) for holder in self.holders if holder.queue is queue)
            assert queue.message_count == len(refs) + len(waiting) + held
            for ref in (*refs, *waiting):
                body = ref.message.body.decode()
                assert plain(ref.message) == self.sent[body]
                assert (origin_of(ref.message) is not None) == (body in self.home)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        for holder in self.holders:
            holder.credit = -1_000
            holder.ack()
            holder.close()
        for name in NAMES:
            self.each(name, lambda ref: True, publish.take, -1)
        assert all(queue.message_count == 0 for queue in self.queues.values())
        assert self.world.broker.memory.bytes == 0


MoveMachine.TestCase.settings = examples(40, 25)
TestMoves = MoveMachine.TestCase
