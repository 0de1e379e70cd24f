"""What policies hear of a message that they have let pass: once that it has entered, or that it was refused."""

import pytest

from stompring.policy import (
    ACCEPT,
    DROP,
    AddressPolicy,
    ChangeHeaders,
    Redirect,
    Refuse,
    Wait,
)
from stompring.policy.testing import ADDRESS, PolicyHarness

ANSWERS = {
    "accept": ACCEPT,
    "drop": DROP,
    "refuse": Refuse("no"),
    "change": ChangeHeaders({"changed": "yes"}),
    "redirect": Redirect("other"),
    "both": Redirect("other", {"changed": "yes", "do": None, "priority": "9"}),
}


class Counts(AddressPolicy):
    """Records all calls; returns the verdict that the header ``do`` says, or waits once."""

    def created(self):
        """See AddressPolicy."""
        self.evaluated = []
        self.came = []
        self.gone = []
        self.waits = 1

    def admit(self, offer):
        """See AddressPolicy."""
        self.evaluated.append(offer.body)
        if offer.header("do") == "wait" and self.waits:
            self.waits -= 1
            return Wait(1000)
        return ANSWERS.get(offer.header("do") or "")

    def entered(self, offer):
        """See AddressPolicy."""
        self.came.append((offer.address, offer.body, offer.header("changed")))

    def refused(self, offer, reason):
        """See AddressPolicy."""
        self.gone.append((offer.body, reason))


class OnlyRefused(Counts):
    """Does not want to know what enters."""

    entered = AddressPolicy.entered


class Later(AddressPolicy):
    """Asked after the one under test."""

    def admit(self, offer):
        """See AddressPolicy."""
        if offer.header("later") == "wait" and self.address.now % 2000 < 1000:
            return Wait(1000)
        return ANSWERS.get(offer.header("later") or "")


KINDS = pytest.mark.parametrize("kind", [Counts, OnlyRefused])
RECEIPTS = pytest.mark.parametrize("receipt", [{}, {"receipt": "r"}])
BLOCKING = {"max_size_messages": 1, "address_full_policy": "BLOCK"}


def say(harness, body, to=ADDRESS, command=b"SEND", **headers):
    """One SEND, or another frame; the answer to it."""
    client = harness._client("producer", None)
    client.send_frame(command, [("destination", to), *headers.items()], body)
    answer = client.last_reply() or b""
    if answer.startswith(b"ERROR"):
        del harness._clients["producer"]
    return answer


@RECEIPTS
def test_entered_is_called_once(receipt):
    harness = PolicyHarness(Counts)
    for do in ("accept", "plain", "change", "redirect", "both"):
        say(harness, do.encode(), do=do, **receipt)
    seen = harness.policy
    assert seen.came == [
        (ADDRESS, b"accept", None),
        (ADDRESS, b"plain", None),
        (ADDRESS, b"change", "yes"),
        ("other", b"redirect", None),
        ("other", b"both", "yes"),
    ]
    assert seen.evaluated == [b"accept", b"plain", b"change", b"redirect", b"both"]
    assert not seen.gone and not harness.errors
    message = harness.messages("other")[0]
    assert (message.body, message.priority, message.header("do")) == (b"both", 9, None)


class Taps(Counts):
    """Copies what enters, and tries to copy before."""

    def admit(self, offer):
        """See AddressPolicy."""
        if offer.header("early"):
            offer.copy_to("seen")
        return super().admit(offer)

    def entered(self, offer):
        """See AddressPolicy."""
        self.came.append((offer.address, offer.body, offer.copy_to("seen", keep_expiry=True)))


def test_a_message_that_has_entered_is_copied_once():
    harness = PolicyHarness(Taps, after=Later)
    for do in ("plain", "both"):
        say(harness, do.encode(), do=do, persistent="true", expires="1800000000000", receipt="r")
    say(harness, b"later", later="refuse")
    say(harness, b"dropped", do="drop")
    for command, body in [(b"BEGIN", b""), (b"SEND", b"in a transaction"), (b"COMMIT", b"")]:
        say(harness, body, command=command, transaction="t")
    copies = sorted(harness.messages("seen"), key=lambda copy: copy.number)
    assert [copy.body for copy in copies] == [b"plain", b"both", b"in a transaction"]
    assert [copy.header("_AMQ_ORIG_ADDRESS") for copy in copies] == [ADDRESS, "other", ADDRESS]
    both = copies[1]
    assert (both.priority, both.durable, both.expires) == (9, True, 1_800_000_000_000)
    assert both.header("changed") == "yes" and both.header("_AMQ_ORIG_MESSAGE_ID") is None
    assert "failed in admit" in harness.send(b"m", {"early": "yes"}).refused
    assert harness.errors == {"admit": 1}


def test_a_copy_that_nobody_gets_is_reported():
    harness = PolicyHarness(Taps, others={"seen": {"auto_create_addresses": False}})
    assert harness.send(b"m").accepted
    assert harness.policy.came == [(ADDRESS, b"m", False)] and not harness.errors


@pytest.mark.parametrize("do", ["drop", "refuse"])
def test_a_policy_does_not_hear_of_its_own_refusal(do):
    harness = PolicyHarness(Counts)
    say(harness, b"m", do=do)
    assert harness.policy.evaluated == [b"m"] and not harness.policy.gone and not harness.policy.came


@KINDS
@RECEIPTS
def test_admit_is_called_once_for_a_blocked_message(kind, receipt):
    harness = PolicyHarness(kind, settings=BLOCKING)
    bodies = [b"%d" % number for number in range(5)]
    client = harness._client("producer", None)
    for body in bodies:
        client.send_frame(b"SEND", [("destination", ADDRESS), *receipt.items()], body)
    for place, body in enumerate(bodies):
        assert harness.policy.evaluated == bodies[: place + 2]
        for _ in range(3):
            harness.broker.directory.addresses[
                ADDRESS
            ].memory_limit.retry_all()  # as a reload does; nothing is free
            harness.advance(1)
        (message,) = harness.deliver(1)
        assert message.body == body
        harness.settle(message)
        harness.advance(1)
    assert harness.policy.evaluated == bodies and not harness.policy.gone
    assert client.session.messages_in == 5


@KINDS
def test_a_changed_message_that_is_blocked_keeps_its_changes(kind):
    harness = PolicyHarness(kind, settings=BLOCKING)
    say(harness, b"1")
    say(harness, b"2", do="change")
    harness.queue_of("another")
    harness.broker.directory.addresses[ADDRESS].changed()  # its plan is stale
    harness.settle(*harness.deliver(1))
    harness.advance(1)
    (message,) = harness.messages()
    assert (message.body, message.header("changed")) == (b"2", "yes")
    assert harness.policy.evaluated == [b"1", b"2"]


@KINDS
def test_redirected_message_is_blocked_by_its_new_address(kind):
    harness = PolicyHarness(kind, others={"other": BLOCKING})
    say(harness, b"1", do="redirect")
    say(harness, b"2", do="redirect")
    assert harness.waiting("other") == [b"1"]
    harness.broker.directory.queues["other"].purge()
    harness.advance(1)
    assert harness.waiting("other") == [b"2"] and harness.policy.evaluated == [b"1", b"2"]


@KINDS
@RECEIPTS
def test_a_full_address_that_fails_or_drops(kind, receipt):
    for policy in ("FAIL", "DROP"):
        harness = PolicyHarness(kind, settings={"max_size_messages": 1, "address_full_policy": policy})
        say(harness, b"1", **receipt)
        say(harness, b"2", **receipt)
        ((body, reason),) = harness.policy.gone
        assert body == b"2" and "max-size-messages" in reason


@KINDS
def test_a_transaction(kind):
    harness = PolicyHarness(kind)
    client = harness._client("producer", None)

    def begin(name, *bodies):
        client.send_frame(b"BEGIN", [("transaction", name)])
        for body in bodies:
            client.send_frame(b"SEND", [("destination", ADDRESS), ("transaction", name)], body)

    begin("committed", b"1", b"2")
    assert harness.policy.evaluated == [b"1", b"2"] and not harness.policy.came
    client.send_frame(b"COMMIT", [("transaction", "committed")])
    begin("aborted", b"3")
    assert not harness.policy.gone
    client.send_frame(b"ABORT", [("transaction", "aborted")])
    assert harness.policy.gone == [(b"3", "ABORT")]
    begin("lost", b"4", b"5")
    harness.disconnect("producer")
    reason = "the connection was closed before COMMIT"
    assert harness.policy.gone[1:] == [(b"4", reason), (b"5", reason)]
    expected = [] if kind is OnlyRefused else [(ADDRESS, b"1", None), (ADDRESS, b"2", None)]
    assert harness.policy.came == expected
    assert harness.policy.evaluated == [b"1", b"2", b"3", b"4", b"5"]


@KINDS
@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_a_transaction_that_is_not_committed_or_dropped(kind, policy):
    harness = PolicyHarness(kind, settings={"max_size_messages": 1, "address_full_policy": policy})
    say(harness, b"1")
    client = harness._client("producer", None)
    client.send_frame(b"BEGIN", [("transaction", "t")])
    client.send_frame(b"SEND", [("destination", ADDRESS), ("transaction", "t")], b"2")
    client.send_frame(b"COMMIT", [("transaction", "t")])
    assert [body for body, _ in harness.policy.gone] == [b"2"] and harness.waiting() == [b"1"]


@KINDS
def test_connection_closed_while_its_message_waits(kind):
    harness = PolicyHarness(kind, settings=BLOCKING)
    say(harness, b"1")
    say(harness, b"2")
    harness.disconnect("producer")
    assert harness.policy.gone == [(b"2", "the connection was closed")]


@KINDS
def test_a_duplicate(kind):
    harness = PolicyHarness(kind)
    for body in (b"1", b"2"):
        say(harness, body, _AMQ_DUPL_ID="x")
    assert [body for body, _ in harness.policy.gone] == [b"2"]


@KINDS
def test_no_queue_of_that_name(kind):
    harness = PolicyHarness(kind, settings={"auto_create_queues": False})
    assert b"ERROR" in say(harness, b"m", to=f"{ADDRESS}::none")
    assert len(harness.policy.gone) == len(harness.policy.evaluated)


@KINDS
def test_admit_is_called_again_after_wait_unless_the_connection_closes(kind):
    harness = PolicyHarness(kind)
    say(harness, b"1", do="wait")
    assert harness.policy.evaluated == [b"1"]
    harness.advance(1000)
    assert harness.policy.evaluated == [b"1", b"1"] and harness.waiting() == [b"1"]
    harness.policy.waits = 1
    say(harness, b"2", do="wait")
    harness.disconnect("producer")
    assert not harness.policy.gone, "it had not let it pass"


def with_later(kind):
    return PolicyHarness(kind, after=Later)


@KINDS
def test_policies_before_one_that_refuses_drops_or_waits(kind):
    harness = with_later(kind)
    say(harness, b"1", later="drop")
    say(harness, b"2", later="refuse")
    assert [body for body, _ in harness.policy.gone] == [b"1", b"2"]
    say(harness, b"3", later="wait", do="change")
    assert not harness.waiting()
    harness.advance(1000)
    (message,) = harness.messages()
    assert message.body == b"3" and message.header("changed") == "yes"
    assert harness.policy.evaluated == [b"1", b"2", b"3"], "it has decided, and is not called again"


def test_policy_after_accept_is_not_called_or_notified():
    class First(AddressPolicy):
        """Accepts all."""

        def admit(self, offer):
            """See AddressPolicy."""
            return ACCEPT

    harness = PolicyHarness(First, after=Counts)
    say(harness, b"m")
    counts = harness._policies.policies_for(harness.broker.directory.addresses[ADDRESS])[1]
    assert isinstance(counts, Counts) and not counts.evaluated and not counts.came
    assert harness.waiting() == [b"m"]


def test_exceptions_in_entered_and_refused_have_no_effect():
    class Faulty(Counts):
        """Fails whatever it hears."""

        def entered(self, offer):
            """See AddressPolicy."""
            raise OSError

        def refused(self, offer, reason):
            """See AddressPolicy."""
            raise OSError

    harness = PolicyHarness(Faulty, settings={"max_size_messages": 1, "address_full_policy": "DROP"})
    say(harness, b"1")
    say(harness, b"2")
    assert harness.waiting() == [b"1"] and harness.errors == {"entered": 1, "refused": 1}


def test_a_reload_that_replaces_the_policy_while_a_message_waits():
    class Newer(Counts):
        """Another version."""

    harness = PolicyHarness(Counts)
    before = harness.policy
    say(harness, b"1", do="wait")
    harness.reload(Newer)
    harness.policy.waits = 0
    harness.advance(1000)
    assert before.evaluated == [b"1"] and not before.came
    assert harness.policy.evaluated == [b"1"] and harness.policy.came == [(ADDRESS, b"1", None)]
