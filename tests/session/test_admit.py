"""SEND to an address with policies: on the short way too, without a receipt, and in one read with others."""

import pytest

from stompring.policy import (
    ACCEPT,
    DROP,
    DROP_OLDEST,
    FAIL,
    AddressPolicy,
    ChangeHeaders,
    Redirect,
    Refuse,
    Wait,
)
from stompring.policy.testing import PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

from .session_fixture import frame


class Door(AddressPolicy):
    """Does what the header ``do`` says."""

    def created(self):
        """See AddressPolicy."""
        self.asked = []
        self.waits = True

    def admit(self, offer):
        """See AddressPolicy."""
        self.asked.append(offer.body)
        do = offer.header("do")
        if do == "wait" and self.waits:
            self.waits = False
            return Wait(1000)
        return {
            "accept": ACCEPT,
            "drop": DROP,
            "refuse": Refuse("no"),
            "redirect": Redirect("other"),
            "change": ChangeHeaders({"priority": "9", "do": None}),
        }.get(do or "")

    def full(self, offer):
        """See AddressPolicy."""
        return {"oldest": DROP_OLDEST, "drop-full": DROP, "fail": FAIL}.get(offer.header("do") or "", ACCEPT)


def send(do, body, **more):
    return frame("SEND", body, destination="address", do=do, **more)


def written(harness, data):
    """One read of the producer's socket."""
    client = harness._client("producer", None)
    harness.broker.clock.refresh()
    client.session.receive(data)
    harness._outgoing.flush()


def test_a_duplicate_is_one_of_the_address_that_it_goes_to_in_the_end():
    harness = PolicyHarness(Door)
    for do, body in (
        ("redirect", b"1"),
        ("accept", b"2"),
        ("redirect", b"3"),
        ("drop", b"4"),
        ("accept", b"5"),
    ):
        written(harness, send(do, body, _AMQ_DUPL_ID="x"))
    assert harness.waiting("other") == [b"1"] and harness.waiting() == [b"2"]
    assert harness.policy.asked == [b"1", b"2", b"3", b"4", b"5"]
    addresses = harness.broker.directory.addresses
    assert [addresses[name].duplicate_messages for name in ("other", "address")] == [1, 1]


def test_every_answer_without_a_receipt():
    harness = PolicyHarness(Door)
    written(
        harness,
        b"".join(send(do, do.encode()) for do in ("accept", "drop", "redirect", "change", "plain", "change")),
    )
    assert harness.waiting() == [b"change", b"change", b"accept", b"plain"]
    assert harness.waiting("other") == [b"redirect"]
    assert harness._dropped() == 1
    assert harness.messages()[0].priority == 9 and harness.messages()[0].header("do") is None


def test_what_comes_after_a_refusal_is_not_taken():
    harness = PolicyHarness(Door)
    written(harness, send("plain", b"1") + send("refuse", b"2") + send("plain", b"3"))
    assert harness.waiting() == [b"1"]
    assert b"no (policy policy-under-test" in harness._clients["producer"]._written


def test_what_comes_after_a_wait_keeps_its_order():
    harness = PolicyHarness(Door)
    written(harness, send("plain", b"1") + send("wait", b"2") + send("plain", b"3"))
    written(harness, send("plain", b"4"))
    assert harness.waiting() == [b"1"]
    harness.advance(1000)
    assert harness.waiting() == [b"1", b"2", b"3", b"4"]
    assert harness.policy.asked == [b"1", b"2", b"2", b"3", b"4"], "what had to wait is offered again"
    assert harness._clients["producer"].session.messages_in == 4


def test_a_full_address_is_asked_without_a_receipt():
    harness = PolicyHarness(Door, settings={"max_size_messages": 2})
    written(harness, b"".join(send("plain", body) for body in (b"1", b"2")))
    written(
        harness, send("oldest", b"3") + send("drop-full", b"4") + send("accept", b"5") + send("fail", b"6")
    )
    assert harness.waiting() == [b"2", b"3", b"5"]
    assert b"Address address is full" in harness._clients["producer"]._written.replace(b"\\c", b":")


@pytest.mark.parametrize("receipts", [False, True])
def test_headers_that_repeat_find_their_plan_again(receipts):
    """Also those that are the same but for their receipt."""
    harness = PolicyHarness(Door)
    for number in range(3):
        more = {"receipt": str(number)} if receipts else {}
        written(harness, send("change", b"%d" % number, **more))
    assert [(message.body, message.priority) for message in harness.messages()] == [
        (b"0", 9), (b"1", 9), (b"2", 9),
    ]  # fmt: skip
    assert harness._clients["producer"]._written.count(b"RECEIPT") == 3 * receipts


def test_a_queue_that_is_named_is_kept_through_changes():
    harness = PolicyHarness(Door)
    harness.broker.directory.create_queue(QueueConfiguration("second", "address", RoutingType.MULTICAST))
    written(harness, frame("SEND", b"m", destination="address::second", do="change"))
    assert harness.waiting() == [] and harness.waiting("second") == [b"m"]


def test_a_transaction_goes_where_its_policies_sent_it_also_after_a_reload():
    harness = PolicyHarness(Door)
    written(harness, frame("BEGIN", transaction="t"))
    for do in ("redirect", "change", "drop", "plain"):
        written(harness, send(do, do.encode(), transaction="t"))
    harness.reload()
    for address in harness.broker.directory.addresses.values():
        address.changed()
    assert harness.waiting() == []
    written(harness, frame("COMMIT", transaction="t"))
    assert harness.waiting() == [b"change", b"plain"] and harness.waiting("other") == [b"redirect"]


def test_a_transaction_with_a_refused_message_is_not_begun_to_be_committed():
    harness = PolicyHarness(Door)
    written(harness, frame("BEGIN", transaction="t") + send("plain", b"1", transaction="t"))
    written(harness, send("refuse", b"2", transaction="t") + frame("COMMIT", transaction="t"))
    assert harness.waiting() == []


def test_the_time_to_wait_ends_with_the_connection():
    harness = PolicyHarness(Door)
    written(harness, send("wait", b"1"))
    session = harness._clients["producer"].session
    assert session.blocked and session.heartbeat.suspended
    harness.disconnect()
    assert not session.blocked and session.closed
    harness.advance(2000)
    assert harness.waiting() == []
