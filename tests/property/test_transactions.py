"""Deliveries that are acknowledged and refused in transactions of one connection, beside a plain model of them."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ..broker.broker_fixture import assert_nothing_held
from ..session.session_fixture import Server
from .profile import examples

CHOICE = st.integers(min_value=0, max_value=1000)


@dataclass
class Delivered:
    """A message that the client has had, and may have again."""

    body: bytes
    id: str
    transaction: str | None = None  # the open one that settles it
    verb: str = "ACK"


@dataclass
class Model:
    """What the client has not settled for good, in the order of delivery."""

    cumulative: bool
    has: list[Delivered] = field(default_factory=list)

    def answerable(self):
        return [message for message in self.has if message.transaction is None]

    def spoken_of(self, message):
        if not self.cumulative:
            return [message]
        waiting = self.answerable()
        return waiting[: waiting.index(message) + 1]


class TransactionMachine(RuleBasedStateMachine):
    """One subscription and up to three transactions that overlap; now and then the subscription ends."""

    @initialize(cumulative=st.booleans(), window=st.integers(1, 6))
    def begin_with(self, cumulative, window):
        self.server = Server({"#": {"auto_delete_queues": False}, "q": {"max_delivery_attempts": -1}})
        self.client = self.server.client()
        self.window = window
        self.model = Model(cumulative)
        self.open = []
        self.names = 0
        self.sent = self.acknowledged = 0
        self.subscribe()

    def subscribe(self):
        ack = "client" if self.model.cumulative else "client-individual"
        self.client.say("SUBSCRIBE", destination="/queue/q", id="s", ack=ack, prefetch_count=self.window)
        self.listen()

    def listen(self):
        for got in self.client.read():
            assert got.command == "MESSAGE", got
            assert got["ack"] not in [message.id for message in self.model.has], "it was delivered twice"
            self.model.has.append(Delivered(got.body, got["ack"]))

    @rule()
    def send(self):
        self.client.say("SEND", b"%d" % self.sent, destination="/queue/q")
        self.sent += 1
        self.listen()

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def begin(self):
        self.names += 1
        self.open.append(f"t{self.names}")
        self.client.say("BEGIN", transaction=self.open[-1])

    @precondition(lambda self: self.model.answerable())
    @rule(choice=CHOICE, verb=st.sampled_from(["ACK", "ACK", "NACK"]), where=CHOICE)
    def answer(self, choice, verb, where):
        waiting = self.model.answerable()
        message = waiting[choice % len(waiting)]
        transaction = (None, *self.open)[where % (1 + len(self.open))]
        for spoken_of in self.model.spoken_of(message):
            spoken_of.transaction, spoken_of.verb = transaction, verb
            if transaction is None:
                self.settle(spoken_of)
        more = {} if transaction is None else {"transaction": transaction}
        self.client.say(verb, id=message.id, **more)
        self.listen()

    def settle(self, message):
        self.model.has.remove(message)
        self.acknowledged += message.verb == "ACK"

    @precondition(lambda self: self.open)
    @rule(choice=CHOICE, end=st.sampled_from(["COMMIT", "ABORT", "ABORT"]))
    def end_transaction(self, choice, end):
        name = self.open.pop(choice % len(self.open))
        for message in [message for message in self.model.has if message.transaction == name]:
            message.transaction = None
            if end == "COMMIT":
                self.settle(message)
            elif message.id in self.orphans:
                self.model.has.remove(message)
        self.orphans &= {message.id for message in self.model.has}
        self.client.say(end, transaction=name)
        self.listen()

    orphans: frozenset[str] = (
        frozenset()
    )  # what a subscription had that has ended, in transactions still open

    @rule()
    def subscribe_anew(self):
        self.client.say("UNSUBSCRIBE", id="s")
        self.model.has = [message for message in self.model.has if message.transaction is not None]
        self.orphans = frozenset(message.id for message in self.model.has)
        self.subscribe()

    @invariant()
    def agree(self):
        if not hasattr(self, "server"):
            return
        (subscription,) = self.client.session.subscriptions.values()
        waiting = [message.id.encode() for message in self.model.answerable()]
        there = [
            b"%b%d" % (ref.queue.id_prefix, ref.message.number) for ref in subscription.unsettled_references()
        ]
        assert there == waiting if self.model.cumulative else sorted(there) == sorted(waiting)
        assert subscription.credit_messages == self.window - len(waiting)
        size = sum(len(ref.message.tail) for ref in subscription.unsettled.values())
        assert subscription.credit_bytes == subscription.terms.window_bytes - size
        queue = self.server.queue()
        assert queue.delivering == len(self.model.has)
        assert queue.messages_acknowledged == self.acknowledged
        assert queue.message_count == self.sent - self.acknowledged
        assert not (queue.count and subscription.credit_messages > 0), "a message waits, and there is credit"

    def teardown(self):
        if not hasattr(self, "server"):
            return
        self.client.lose()
        left = [int(ref.message.body) for ref in self.server.queue().dispatcher.in_order()]
        assert left == sorted(left) and len(left) == self.sent - self.acknowledged
        self.server.queue().purge()
        assert_nothing_held(self.server.world)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = examples(100, steps=50)
