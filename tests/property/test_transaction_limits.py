"""Transactions into addresses with limits: cases measured on Artemis 2.44, and histories beside a plain count."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ..broker.broker_fixture import assert_nothing_held
from ..session.session_fixture import Server
from .profile import examples

LIMIT = 10

#: Policy, messages before, messages of the transaction, whether COMMIT gets its RECEIPT, messages afterwards. Artemis
#: 2.44 does the same but for the last row: there BLOCK has no effect for STOMP clients.
MEASURED = [
    ("FAIL", 0, 5, True, 5),
    ("FAIL", 0, 50, False, 0),
    ("FAIL", 8, 5, False, 8),
    ("FAIL", 8, 1, True, 9),
    ("FAIL", 10, 1, False, 10),
    ("DROP", 0, 5, True, 5),
    ("DROP", 0, 50, True, 10),
    ("DROP", 8, 5, True, 10),
    ("DROP", 8, 1, True, 9),
    ("DROP", 10, 1, True, 10),
    ("BLOCK", 0, 5, True, 5),
    ("BLOCK", 0, 50, True, 50),
    ("BLOCK", 8, 5, True, 13),
    ("BLOCK", 10, 1, False, 10),
]


def server(policy, **settings):
    made = Server({"#": {"auto_delete_queues": False}, "q": {"address_full_policy": policy, **settings}})
    made.world.queue("q")
    return made


def send_all(client, count, begin=0, **headers):
    for number in range(begin, begin + count):
        client.say("SEND", b"%d" % number, destination="/queue/q", **headers)


def commit(client):
    """What COMMIT is answered with; nothing while it waits."""
    client.say("COMMIT", transaction="t", receipt="c")
    answers = [got for got in client.read() if got.command in ("RECEIPT", "ERROR")]
    if not answers:
        return ""
    (got,) = answers
    assert got.command == "RECEIPT" or "Transaction t is not committed: Address q" in got["message"]
    return got.command


@pytest.mark.parametrize("policy, before, count, receipt, after", MEASURED)
def test_a_transaction_at_a_limit_on_messages(policy, before, count, receipt, after):
    made = server(policy, max_size_messages=LIMIT)
    send_all(made.client(), before)
    client = made.client()
    client.say("BEGIN", transaction="t")
    send_all(client, count, before, transaction="t")
    assert (commit(client) == "RECEIPT") == receipt
    bodies = [int(ref.message.body) for ref in made.queue().dispatcher.pending]
    assert bodies == list(range(after))  # of a transaction that is dropped in part the first ones stay


class LimitMachine(RuleBasedStateMachine):
    """Sends and acknowledgements, alone and in transactions, into one address with a limit."""

    @initialize(policy=st.sampled_from(["FAIL", "DROP"]), limit=st.integers(1, 8))
    def begin_with(self, policy, limit):
        self.server = server(policy, max_size_messages=limit, max_delivery_attempts=-1)
        self.policy, self.limit = policy, limit
        self.stored = []  # numbers of the messages that the queue must have
        self.unsettled = []  # of these, what the consumer has, with its ack header
        self.sent = 0
        self.connect()

    def connect(self):
        self.consumer = self.server.client()
        self.consumer.say(
            "SUBSCRIBE", destination="/queue/q", id="s", ack="client-individual", prefetch_count=3
        )
        self.listen()

    def listen(self):
        """Take what the consumer was sent; returns the last answer to one of its frames."""
        answer = ""
        for got in self.consumer.read():
            if got.command == "MESSAGE":
                self.unsettled.append((int(got.body), got["ack"]))
            else:
                answer = got.command
        return answer

    @rule()
    def send(self):
        client = self.server.client()
        client.say("SEND", b"%d" % self.sent, destination="/queue/q", receipt="r")
        full = len(self.stored) >= self.limit
        (answer,) = client.read()
        assert answer.command == ("ERROR" if full and self.policy == "FAIL" else "RECEIPT")
        if not full:
            self.stored.append(self.sent)
        self.sent += 1
        self.listen()
        self.check()

    @precondition(lambda self: self.unsettled)
    @rule(which=st.integers(0, 100))
    def acknowledge(self, which):
        number, reference = self.unsettled.pop(which % len(self.unsettled))
        self.consumer.say("ACK", id=reference)
        self.stored.remove(number)
        self.listen()
        self.check()

    @rule(count=st.integers(1, 12), acknowledged=st.integers(0, 3))
    def transaction(self, count, acknowledged):
        """Sends and acknowledgements together: what is acknowledged frees its space first."""
        client = self.consumer
        client.say("BEGIN", transaction="t")
        settled = self.unsettled[:acknowledged]
        for _, reference in settled:
            client.say("ACK", id=reference, transaction="t")
        send_all(client, count, self.sent, transaction="t")
        numbers = list(range(self.sent, self.sent + count))
        self.sent += count
        client.say("COMMIT", transaction="t", receipt="c")
        left = len(self.stored) - len(settled)
        fits = left + count <= self.limit
        answer = self.listen()
        if self.policy == "FAIL" and not fits:
            assert answer == "ERROR", "a part of the transaction would not fit, so nothing of it may happen"
            self.unsettled = []
            self.reconnect()
        else:
            assert answer == "RECEIPT"
            gone = {number for number, _ in settled}
            self.stored = [number for number in self.stored if number not in gone]
            self.unsettled = [each for each in self.unsettled if each[0] not in gone]
            self.stored += numbers[: max(0, self.limit - left)]
        self.check()

    def reconnect(self):
        """An ERROR ends a connection; its messages are back."""
        self.consumer.lose()
        self.connect()

    def check(self):
        queue = self.server.queue()
        assert queue.message_count == len(self.stored) <= self.limit
        waiting = [int(ref.message.body) for ref in queue.dispatcher.pending]
        delivered = {number for number, _ in self.unsettled}
        assert sorted([*waiting, *delivered]) == self.stored

    def teardown(self):
        if hasattr(self, "server"):
            self.consumer.lose()
            self.server.queue().purge()
            assert_nothing_held(self.server.world)


LimitMachine.TestCase.settings = examples(30, steps=25)
test_histories = LimitMachine.TestCase
