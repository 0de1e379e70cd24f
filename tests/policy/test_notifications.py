"""The hooks that are notified: each of what happens to messages, once, with the message as it then is."""

import pytest

from stompring.policy import AddressPolicy
from stompring.policy.testing import START_TIME, PolicyHarness
from stompring.settings.model import RingPolicy

HOOKS = ("enqueued", "evicted", "expired", "killed", "dead_lettered", "delivered", "settled")


class Recorder(AddressPolicy):
    """Writes down what it is notified."""

    def created(self):
        """See AddressPolicy."""
        self.notified = []

    def _tell(self, hook, message):
        self.notified.append((hook, message.body))


def _telling(hook):
    def notify(self, message):
        self._tell(hook, message)

    return notify


for _hook in HOOKS:
    setattr(Recorder, _hook, _telling(_hook))


def only(*hooks):
    """A policy with these hooks alone."""
    made = type("Only", (AddressPolicy,), {"created": Recorder.created, "_tell": Recorder._tell})
    for hook in hooks:
        setattr(made, hook, _telling(hook))
    return made


def notified(harness):
    """What was notified since the last time."""
    found, harness.policy.notified = harness.policy.notified, []
    return found


def test_waiting_message_is_enqueued_delivered_and_settled():
    harness = PolicyHarness(Recorder)
    harness.send(b"m")
    assert notified(harness) == [("enqueued", b"m")]
    (message,) = harness.deliver()
    assert notified(harness) == [("delivered", b"m")]
    harness.settle(message)
    assert notified(harness) == [("settled", b"m")]


def test_message_delivered_directly_is_not_enqueued():
    harness = PolicyHarness(Recorder)
    assert harness.subscribe() == ""
    harness.send(b"m")
    assert notified(harness) == [("delivered", b"m"), ("settled", b"m")]
    assert harness.broker.directory.queues["address"].messages_acknowledged == 1


@pytest.mark.parametrize("hook", ["delivered", "settled"])
def test_a_policy_with_one_of_them_only(hook):
    harness = PolicyHarness(only(hook))
    harness.subscribe()
    harness.send(b"m")
    assert notified(harness) == [(hook, b"m")]


def test_other_addresses_keep_the_short_way():
    harness = PolicyHarness(Recorder)
    harness.queue_of("other")
    assert harness.broker.directory.queues["address"].dispatcher.blocks
    assert not harness.broker.directory.queues["other"].dispatcher.blocks
    without = PolicyHarness(only("enqueued", "evicted", "expired", "killed", "dead_lettered"))
    assert not without.broker.directory.queues["address"].dispatcher.blocks


def test_returned_message_is_enqueued():
    harness = PolicyHarness(Recorder, settings={"redelivery_delay": 1000})
    harness.send(b"m")
    (message,) = harness.deliver()
    notified(harness)
    harness.reject(message)
    assert notified(harness) == []
    harness.advance(1000)
    assert notified(harness) == [("enqueued", b"m")]
    (message,) = harness.deliver()
    assert notified(harness) == [("delivered", b"m")] and message.deliveries == 2


def test_a_message_that_falls_due():
    harness = PolicyHarness(Recorder)
    harness.send(b"m", {"AMQ_SCHEDULED_DELAY": "1000"})
    assert notified(harness) == []
    harness.advance(1000)
    assert notified(harness) == [("enqueued", b"m")]


def test_evicted_is_called_for_an_eviction():
    harness = PolicyHarness(only("evicted"), settings={"default_ring_size": 1})
    for body in (b"1", b"2", b"3"):
        harness.send(body)
    assert notified(harness) == [("evicted", b"1"), ("evicted", b"2")]


def test_message_returned_to_a_full_ring_is_evicted():
    harness = PolicyHarness(only("evicted"), settings={"default_ring_size": 1})
    harness.send(b"1")
    (message,) = harness.deliver()
    harness.send(b"2")
    harness.reject(message)
    assert notified(harness) == [("evicted", b"1")] and harness.waiting() == [b"2"]


def test_ring_with_dead_letters_notifies_too():
    settings = {"default_ring_size": 1, "ring_policy": RingPolicy.DEAD_LETTER, "dead_letter_address": "dead"}
    harness = PolicyHarness(only("evicted"), settings=settings)
    harness.queue_of("dead")
    harness.send(b"1")
    harness.send(b"2")
    assert notified(harness) == [("evicted", b"1")] and harness.waiting("dead") == [b"1"]


def test_expired_is_called_for_an_expired_message():
    harness = PolicyHarness(only("expired"))
    harness.send(b"m", {"expires": str(harness.policy.address.now + 1000)})
    assert notified(harness) == []
    harness.advance(1000)
    assert notified(harness) == [("expired", b"m")]


def test_a_message_that_failed_too_often():
    for dead, hook in (("dead", "dead_lettered"), (None, "killed")):
        settings = {"max_delivery_attempts": 2, "dead_letter_address": dead}
        harness = PolicyHarness(only("dead_lettered", "killed"), settings=settings)
        harness.queue_of("dead")
        harness.send(b"m")
        for _ in range(2):
            assert notified(harness) == []
            (message,) = harness.deliver()
            harness.reject(message)
        assert notified(harness) == [(hook, b"m")]
        assert harness.waiting("dead") == ([b"m"] if dead else [])


def test_messages_that_are_purged_or_go_with_their_queue():
    harness = PolicyHarness(only("killed"))
    harness.send(b"1")
    assert harness.purge() == 1
    assert notified(harness) == [("killed", b"1")]
    harness.send(b"2")
    policy = harness.policy
    harness.delete()
    assert policy.notified == [("killed", b"2")]


def test_copy_is_written_with_the_removal_of_the_message():
    class Spill(AddressPolicy):
        """Copies what the ring gives up."""

        def evicted(self, message):
            assert message.copy_to("second")

    harness = PolicyHarness(Spill, settings={"default_ring_size": 1})
    for body in (b"1", b"2", b"3"):
        harness.send(body, {"x": "y"})
    assert harness.waiting() == [b"3"] and harness.waiting("second") == [b"1", b"2"]
    first = harness.messages("second")[0]
    assert first.header("x") == "y" and first.header("_AMQ_ORIG_QUEUE") == "address"


@pytest.mark.parametrize("keep", [False, True])
def test_a_copy_keeps_its_expiry_where_that_is_wanted(keep):
    class Spill(AddressPolicy):
        """Copies what the ring gives up."""

        def evicted(self, message):
            assert message.copy_to("second", keep_expiry=keep)

    harness = PolicyHarness(Spill, settings={"default_ring_size": 1})
    harness.send(b"1", {"expires": str(START_TIME + 5000)})
    harness.send(b"2")
    assert harness.messages("second")[0].expires == (START_TIME + 5000 if keep else 0)


def test_copies_in_a_circle_come_to_an_end():
    class Spill(AddressPolicy):
        """Copies what the ring gives up to the next ring."""

        def evicted(self, message):
            message.copy_to({"address": "second", "second": "address"}[self.address.name])

    harness = PolicyHarness(Spill, settings={"default_ring_size": 1})
    for body in (b"1", b"2", b"3"):
        harness.send(body)
    assert harness.waiting() == [b"3"]


def test_copy_without_a_queue_is_lost():
    taken = []

    class Spill(AddressPolicy):
        """Tries to copy."""

        def evicted(self, message):
            taken.append(message.copy_to("closed"))

    harness = PolicyHarness(
        Spill, settings={"default_ring_size": 1}, others={"closed": {"auto_create_addresses": False}}
    )
    harness.send(b"1")
    assert harness.send(b"2").accepted
    assert taken == [False] and harness.errors == {}


@pytest.mark.parametrize("hook", HOOKS)
def test_exception_in_a_notification_has_no_effect(hook):
    def boom(self, message):
        raise ValueError(hook)

    failing = type("Failing", (AddressPolicy,), {hook: boom})
    settings = {"default_ring_size": 2, "max_delivery_attempts": 1, "dead_letter_address": "dead"}
    harness = PolicyHarness(failing, settings=settings)
    harness.queue_of("dead")
    if hook == "killed":
        harness.send(b"p")
        harness.purge()
    assert harness.send(b"e", {"expires": str(harness.policy.address.now + 10)}).accepted
    harness.advance(10)
    for body in (b"0", b"1", b"2"):
        assert harness.send(body).accepted
    first, second = harness.deliver(2)
    harness.settle(first)
    harness.reject(second)
    assert harness.waiting() == [] and harness.waiting("dead") == [b"2"]
    queue = harness.broker.directory.queues["address"]
    counts = (
        queue.messages_acknowledged,
        queue.messages_replaced,
        queue.messages_expired,
        queue.messages_killed,
    )
    assert counts == (1, 1, 1, 2 if hook == "killed" else 1)
    assert list(harness.errors) == [hook]


def test_properties_of_a_message_view():
    harness = PolicyHarness(Recorder)
    headers = {"priority": "7", "x": "é", "expires": str(harness.policy.address.now + 5000)}
    harness.send(b"body", headers, user="ann")
    harness.advance(250)
    (message,) = harness.messages()
    assert (message.queue, message.address, message.body, message.priority) == (
        "address",
        "address",
        b"body",
        7,
    )
    assert (message.header("x"), message.header("none"), message.headers["x"]) == ("é", None, "é")
    assert message.waiting and not message.durable and message.user == "ann" and message.deliveries == 0
    assert message.age == 250 and message.expires == message.timestamp + 5000 and message.size > 400
    assert message.number > 0 and str(message.number) in repr(message)
    (again,) = harness.deliver()
    assert not message.waiting and again.number == message.number and again.deliveries == 1
    assert not message.give_up(), "it is its consumer's"


def test_properties_of_queue_and_address_views():
    harness = PolicyHarness(
        Recorder,
        settings={"default_ring_size": 3, "max_size_messages": 4},
        others={"#": {"ring_counts_paged": True}},
    )
    for body, priority in ((b"1", "4"), (b"2", "1"), (b"3", "1")):
        harness.send(body, {"priority": priority})
    harness.send(b"later", {"AMQ_SCHEDULED_DELAY": "1000"})
    harness.deliver()
    queue, address = harness.queue, harness.policy.address
    assert (queue.name, queue.multicast, queue.durable, queue.ring_size) == ("address", False, True, 3)
    assert (queue.waiting, queue.delivering, queue.scheduled, queue.paged, queue.message_count) == (
        2,
        1,
        1,
        0,
        4,
    )
    assert queue.oldest.body == b"2"
    assert queue.lowest.body == b"2"
    assert queue.consumers == 1 and queue.over_size == 0 and queue.has_room(True) and "address" in repr(queue)
    assert (address.name, address.messages, address.message_count) == ("address", 4, 4)
    assert (
        address.full and address.limit_percent == 100 and address.broker_percent == 0 and not address.paging
    )
    assert address.size > 1600 and address.queues == [queue] and address.queue("address") is queue
    assert address.queue("other") is None
    assert queue.give_up_oldest() and queue.give_up_oldest() and not queue.give_up_oldest()
    assert queue.oldest is None and queue.lowest is None and list(queue.messages()) == []
