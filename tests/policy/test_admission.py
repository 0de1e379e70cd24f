"""The deciding hooks: `admit`, `full`, `overflow`, `subscribed`, and every verdict."""

import logging

import pytest

from stompring.policy import (
    ACCEPT,
    BLOCK,
    DROP,
    DROP_OLDEST,
    FAIL,
    PAGE,
    AddressPolicy,
    ChangeHeaders,
    Redirect,
    Refuse,
    Wait,
)
from stompring.policy.testing import PolicyHarness
from stompring.settings.model import QueueConfiguration, RoutingType

NAME = "(policy policy-under-test of address address)"


def admits(answer, **more):
    """A harness whose policy admits as ``answer`` says."""

    class Asked(AddressPolicy):
        """Returns the given verdict."""

        def admit(self, offer):
            return answer(offer)

    return PolicyHarness(Asked, **more)


def full_with(answer, **settings):
    """A harness with room for two messages, whose full address answers so: a value, or what a function gives."""

    class Asked(AddressPolicy):
        """Returns the given verdict."""

        def full(self, offer):
            return answer(self, offer) if callable(answer) else answer

    return PolicyHarness(Asked, full=True, settings={"max_size_messages": 2, **settings})


# ---- admit


@pytest.mark.parametrize("answer", [None, ACCEPT])
def test_a_message_is_accepted(answer):
    harness = admits(lambda offer: answer)
    assert harness.send(b"m").accepted
    assert harness.waiting() == [b"m"]


def test_a_message_is_refused_for_a_reason():
    harness = admits(lambda offer: Refuse("Not today: é"))
    assert harness.send(b"m").refused == f"Not today: é {NAME}"
    assert harness.waiting() == [] and harness.errors == {}


def test_a_message_is_dropped_and_counted():
    harness = admits(lambda offer: DROP if offer.body == b"bad" else None)
    assert harness.send(b"bad").dropped
    assert harness.send(b"good").accepted
    assert harness.waiting() == [b"good"]
    assert harness.broker.directory.addresses["address"].dropped_messages == 1


def test_content_of_an_offer():
    shown = []

    def look(offer):
        shown.append(
            (
                offer.address,
                dict(offer.headers),
                offer.header("kind"),
                offer.header("none"),
                offer.body,
                offer.size,
            )
        )
        shown.append(
            (offer.priority, offer.durable, offer.user, offer.connection, offer.client_id, offer.peer)
        )

    harness = admits(look)
    headers = {"kind": "a\nb", "priority": "7", "persistent": "true"}
    assert harness.send(b"body", headers, user="ann", producer="till").accepted
    assert shown == [
        ("address", {"destination": "address", **headers}, "a\nb", None, b"body", 4),
        (7, True, "ann", "till", None, "till:1"),
    ]


def test_nothing_of_the_body_is_kept():
    kept = []
    admits(kept.append).send(b"large")
    assert kept[0].body == b""


@pytest.mark.parametrize("headers", [{}, {"receipt-not": "x"}])
def test_headers_are_changed(headers):
    harness = admits(
        lambda offer: ChangeHeaders({"x-user": offer.user, "gone": None, "new": "a:b\n", "kept": "other"})
    )
    sent = {"gone": "1", "kept": "2", "same": "3", "x-user": "forged", **headers}
    assert harness.send(b"1", sent).accepted
    assert harness.send(b"2", sent, user="ann").accepted
    first, second = harness.messages()
    for message, user in ((first, None), (second, "ann")):
        assert message.header("gone") is None and message.header("new") == "a:b\n"
        assert message.header("kept") == "other" and message.header("same") == "3"
        assert message.header("x-user") == user
        assert message.header("destination") is None


def test_changed_headers_have_their_meaning():
    harness = admits(lambda offer: ChangeHeaders({"priority": "9", "persistent": "true"}))
    harness.send(b"m", {"priority": "1"})
    (message,) = harness.messages()
    assert message.priority == 9 and message.durable


def test_the_same_changes_are_planned_once_and_others_anew():
    harness = admits(lambda offer: ChangeHeaders({"body": offer.body.decode()}))
    for body in (b"a", b"a", b"b", b"a"):
        assert harness.send(body).accepted
    assert [(m.body, m.header("body")) for m in harness.messages()] == [
        (b"a", "a"), (b"a", "a"), (b"b", "b"), (b"a", "a"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["destination", "receipt", "transaction", "content-length"])
def test_immutable_headers_are_an_error(name):
    harness = admits(lambda offer: ChangeHeaders({name: "x"}))
    assert harness.send(b"m").refused.startswith(
        "Policy policy-under-test of address address failed in admit"
    )
    assert harness.errors == {"admit": 1}


@pytest.mark.parametrize("headers", [{"": "x"}, {"x": 3}, {"x": b"y"}])
def test_headers_that_are_no_texts(headers):
    harness = admits(lambda offer: ChangeHeaders(headers))
    assert "failed in admit" in harness.send(b"m").refused


def test_a_value_that_the_broker_cannot_read_is_refused_as_from_a_client():
    harness = admits(lambda offer: ChangeHeaders({"priority": "high"}))
    assert "priority must be a whole number" in harness.send(b"m").refused


def test_message_is_redirected():
    harness = admits(lambda offer: Redirect("other"))
    assert harness.send(b"m", {"x": "y"}).accepted
    assert harness.waiting() == [] and harness.waiting("other") == [b"m"]
    assert harness.messages("other")[0].header("x") == "y"


def test_redirect_needs_the_permission_to_create_the_address():
    harness = admits(lambda offer: Redirect("closed"), others={"closed": {"auto_create_addresses": False}})
    assert "Destination closed does not exist" in harness.send(b"m").refused


def test_wait_blocks_the_producer():
    passed = []

    def admit(offer):
        if offer.body == b"early" and not passed:
            passed.append(offer.body)
            return Wait(500)
        return None

    harness = admits(admit)
    assert harness.send(b"early").waits
    assert harness.broker.directory.addresses["address"].blocked_producers == 1
    assert harness.send(b"other", producer="second").accepted, "nobody else waits"
    harness.advance(499)
    assert not harness.sends_on() and harness.waiting() == [b"other"]
    harness.advance(1)
    assert harness.sends_on() and harness.waiting() == [b"other", b"early"]
    assert harness.broker.directory.addresses["address"].blocked_producers == 0


def test_waiting_producer_disconnects():
    harness = admits(lambda offer: Wait(500))
    assert harness.send(b"m").waits
    harness.disconnect()
    assert harness.broker.directory.addresses["address"].blocked_producers == 0
    harness.advance(1000)
    assert harness.waiting() == []


@pytest.mark.parametrize("answer", [True, PAGE, "no", 3, Redirect(""), Redirect(3)])
def test_invalid_verdict_is_an_error(answer, caplog):
    harness = admits(lambda offer: answer)
    assert "failed in admit: see the broker's log" in harness.send(b"m").refused
    assert "is not a verdict of admit" in caplog.text
    assert harness.waiting() == [] and harness.errors == {"admit": 1}


def test_a_fault_refuses_one_message_and_is_logged_once(caplog):
    def admit(offer):
        if offer.body == b"bad":
            raise KeyError("the fault")
        if offer.body == b"worse":
            raise OSError("another fault")

    harness = admits(admit)
    with caplog.at_level(logging.ERROR):
        for body in (b"bad", b"good", b"bad", b"worse"):
            sent = harness.send(body)
            assert sent.accepted == (body == b"good")
            assert "fault" not in sent.refused, "clients get no details"
    assert harness.waiting() == [b"good"]
    assert harness.errors == {"admit": 3}
    assert caplog.text.count("KeyError: 'the fault'") == 1
    assert caplog.text.count("OSError: another fault") == 1
    assert caplog.text.count("Traceback") == 2


def test_a_policy_that_wants_to_end_the_process_ends_nothing():
    def admit(offer):
        raise SystemExit(1)

    harness = admits(admit)
    assert "failed in admit" in harness.send(b"m").refused
    assert harness.send(b"m", to="other").accepted


def test_messages_of_a_transaction_are_evaluated_at_send():
    offered = []

    def admit(offer):
        offered.append(offer.body)
        return ChangeHeaders({"seen": "yes"})

    harness = admits(admit)
    client = harness._client("producer", None)
    client.send_frame(b"BEGIN", [("transaction", "t")])
    client.send_frame(b"SEND", [("destination", "address"), ("transaction", "t"), ("receipt", "1")], b"m")
    assert offered == [b"m"] and harness.waiting() == []
    client.send_frame(b"COMMIT", [("transaction", "t")])
    assert offered == [b"m"] and harness.waiting() == [b"m"]
    assert harness.messages()[0].header("seen") == "yes"


# ---- full


def fill(harness):
    assert harness.send(b"1").accepted and harness.send(b"2").accepted


def test_a_full_address_refuses_with_a_reason():
    harness = full_with(Refuse("Come back tomorrow"))
    fill(harness)
    assert harness.send(b"3").refused == f"Come back tomorrow {NAME}"
    (message,) = harness.deliver()
    harness.settle(message)
    assert harness.send(b"3").accepted


@pytest.mark.parametrize(
    "answer, refused, dropped",
    [
        (FAIL, "Address address is full: max-size-messages 2", False),
        (DROP, "", True),
        (ACCEPT, "", False),
        (Wait(3), "failed in full", False),
        (lambda policy, offer: 1 / 0, "failed in full", False),
    ],
)
def test_answers_of_a_full_address(answer, refused, dropped):
    harness = full_with(answer)
    fill(harness)
    sent = harness.send(b"3")
    assert refused in sent.refused and sent.dropped is dropped
    assert harness.waiting() == [b"1", b"2", b"3"][: 2 + sent.accepted]
    assert harness.errors == ({"full": 1} if "failed" in refused else {})


@pytest.mark.parametrize("answer", [BLOCK, PAGE])
def test_full_address_blocks_its_producer(answer):
    """Also for PAGE: there is no store here."""
    harness = full_with(answer)
    fill(harness)
    assert harness.send(b"3").waits
    (message,) = harness.deliver()
    harness.settle(message)
    harness.advance(0)
    assert harness.sends_on() and harness.waiting() == [b"2", b"3"]


def test_full_address_evicts_its_oldest_messages():
    harness = full_with(DROP_OLDEST)
    fill(harness)
    assert harness.send(b"3").accepted
    assert harness.waiting() == [b"2", b"3"]
    assert harness.broker.directory.queues["address"].messages_replaced == 1


def test_a_message_in_several_queues_is_given_up_by_all():
    harness = full_with(DROP_OLDEST)
    for name in ("one", "two"):
        harness.broker.directory.create_queue(QueueConfiguration(name, "address", RoutingType.MULTICAST))
    fill(harness)
    assert harness.send(b"3").accepted
    assert [harness.waiting(name) for name in ("one", "two")] == [[b"2", b"3"]] * 2
    assert harness.broker.directory.addresses["address"].memory_limit.messages == 2


def test_nothing_is_given_up_in_vain():
    """What a consumer has of one queue stays in memory, whatever the other queue gives up."""
    harness = full_with(DROP_OLDEST)
    harness.broker.directory.create_queue(QueueConfiguration("copy", "address", RoutingType.MULTICAST))
    fill(harness)
    assert len(harness.deliver(2)) == 2
    assert harness.send(b"3").dropped
    assert harness.waiting("copy") == [b"1", b"2"]


def test_none_leaves_it_to_page_or_to_the_address_full_policy():
    harness = full_with(None)
    fill(harness)
    assert harness.send(b"3").waits, "PAGE, which is BLOCK where there is no store"

    class Silent(AddressPolicy):
        """Has nothing to say."""

        def full(self, offer):
            return None

    harness = PolicyHarness(Silent, settings={"max_size_messages": 2, "address_full_policy": "FAIL"})
    fill(harness)
    assert harness.send(b"3").refused == "Address address is full: max-size-messages 2"


def test_constant_verdict_makes_no_call():
    class Constant(AddressPolicy):
        """Always drops."""

        full_answer = DROP

    harness = PolicyHarness(Constant, full=True, settings={"max_size_messages": 2})
    assert harness.broker.directory.addresses["address"].hooks.full is None
    fill(harness)
    assert harness.send(b"3").dropped


def test_commit_evaluates_all_messages_before_any_enters():
    harness = full_with(lambda policy, offer: FAIL if offer.body == b"bad" else ACCEPT)
    fill(harness)
    client = harness._client("producer", None)
    for name, bodies in (("first", (b"a", b"bad")), ("second", (b"b", b"c"))):
        client = harness._client("producer", None)
        client.send_frame(b"BEGIN", [("transaction", name)])
        for body in bodies:
            client.send_frame(b"SEND", [("destination", "address"), ("transaction", name)], body)
        client.send_frame(b"COMMIT", [("transaction", name), ("receipt", name)])
        answer = client.last_reply() or b""
        if name == "first":
            assert b"Transaction first is not committed: Address address is full" in answer.replace(
                b"\\c", b":"
            )
            assert harness.waiting() == [b"1", b"2"]
            del harness._clients["producer"]
        else:
            assert answer.startswith(b"RECEIPT")
    assert harness.waiting() == [b"1", b"2", b"b", b"c"]


# ---- overflow


def ring_with(overflow):
    class Ring(AddressPolicy):
        """Evicts the given messages."""

        def overflow(self, queue, returning):
            return overflow(queue, returning)

    return PolicyHarness(Ring, settings={"default_ring_size": 2})


def test_policy_selects_the_evicted_message():
    def newest(queue, returning):
        assert not returning and queue.over_size == 1 and not queue.has_room()
        list(queue.messages())[-1].give_up()

    harness = ring_with(newest)
    for body in (b"1", b"2", b"3"):
        assert harness.send(body).accepted
    assert harness.waiting() == [b"1", b"2"]
    assert harness.broker.directory.queues["address"].messages_replaced == 1


@pytest.mark.parametrize("fails", [False, True])
def test_ring_has_its_size_whatever_its_policy_does(fails):
    def nothing(queue, returning):
        if fails:
            raise ValueError("cannot decide")

    harness = ring_with(nothing)
    for body in (b"1", b"2", b"3"):
        assert harness.send(body).accepted
    assert harness.waiting() == [b"2", b"3"]
    assert harness.errors == ({"overflow": 1} if fails else {})


@pytest.mark.parametrize("makes_way", [False, True])
def test_policy_may_evict_for_a_message_returned_to_a_full_ring(makes_way):
    def overflow(queue, returning):
        if returning and makes_way:
            assert queue.give_up_oldest()

    harness = ring_with(overflow)
    harness.send(b"1")
    (message,) = harness.deliver()
    harness.send(b"2")
    harness.send(b"3")
    harness.reject(message)
    assert harness.waiting() == ([b"1", b"3"] if makes_way else [b"2", b"3"])


# ---- subscribed


def test_a_subscriber_is_refused():
    seen = []

    class Door(AddressPolicy):
        """Lets only Ann in."""

        def subscribed(self, subscriber):
            seen.append(subscriber)
            return None if subscriber.user == "ann" else Refuse("Only Ann")

    harness = PolicyHarness(Door)
    assert harness.subscribe() == f"Only Ann {NAME}"
    assert harness.queue.consumers == 0
    assert harness.subscribe({"selector": "a = 1", "color": "red"}, client="c", user="ann") == ""
    assert harness.queue.consumers == 1
    last = seen[-1]
    assert (last.queue, last.subscription, last.user, last.connection, last.peer, last.selector) == (
        "address", "c", "ann", "c", "c:1", "a = 1",
    )  # fmt: skip
    assert last.headers["color"] == "red"


@pytest.mark.parametrize("answer", [DROP, RuntimeError("no")])
def test_a_door_that_fails_is_closed(answer):
    class Door(AddressPolicy):
        """Fails."""

        def subscribed(self, subscriber):
            if isinstance(answer, Exception):
                raise answer
            return answer

    harness = PolicyHarness(Door)
    assert "failed in subscribed" in harness.subscribe()
    assert harness.queue.consumers == 0 and harness.errors == {"subscribed": 1}
