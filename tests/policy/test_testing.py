"""The test kit: what cannot be meant is refused with a clear error; and hooks that are slow."""

import time
from typing import Any

import pytest

from stompring.policy import AddressPolicy, Refuse, Wait, parameter
from stompring.policy import hooks as faults_module
from stompring.policy.testing import HarnessError, PolicyHarness


class Waits(AddressPolicy):
    """Answers what it has, and sets timers."""

    answer: Any = None

    def admit(self, offer):
        """See AddressPolicy."""
        return type(self).answer


@pytest.mark.parametrize(
    "milliseconds, words",
    [
        (0.5, "whole milliseconds: 0.5 looks like seconds"),
        (30.0, "looks like seconds"),
        (1_700_000_000_000, "looks like a point in time"),
        (-1, "0 or more"),
        ("5", "0 or more"),
    ],
)
def test_times_that_are_no_milliseconds(milliseconds, words, monkeypatch):
    harness = PolicyHarness(Waits)
    with pytest.raises(HarnessError, match=f"advance .*{words}"):
        harness.advance(milliseconds)
    monkeypatch.setattr(Waits, "answer", Wait(milliseconds))
    with pytest.raises(HarnessError, match=f"Wait .*{words}"):
        harness.send(b"m")


def test_times_that_are_no_seconds():
    harness = PolicyHarness(Waits)
    words = "takes seconds: 600000 would be 6.9 days, and looks like milliseconds"
    with pytest.raises(HarnessError, match=f"clock.advance {words}"):
        harness.clock.advance(600_000)
    with pytest.raises(HarnessError, match=f"call_later {words}"):
        harness.policy.address.call_later(600_000, print)
    with pytest.raises(HarnessError, match="call_later takes seconds, 0 or more"):
        harness.policy.address.call_later(-1, print)


def test_a_wrong_unit_in_a_hook_is_not_taken_for_a_fault_of_the_policy():
    class Late(AddressPolicy):
        """Sets a timer in milliseconds."""

        def admit(self, offer):
            """See AddressPolicy."""
            self.address.call_later(90_000, print)

    harness = PolicyHarness(Late)
    with pytest.raises(HarnessError, match="call_later"):
        harness.send(b"m")


def test_usual_times_are_taken():
    harness = PolicyHarness(Waits)
    rang = []
    harness.policy.address.call_later(86_400, rang.append, 1)
    harness.policy.address.call_later(0.25, rang.append, 2)
    harness.advance(250)
    assert rang == [2]
    harness.advance(86_400_000)
    assert rang == [2, 1]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            {"settings": {"max_size_mesages": 1}},
            "unknown 'max_size_mesages'; did you mean 'max_size_messages'",
        ),
        (
            {"settings": {"max-size-messages": 1}},
            "unknown 'max-size-messages'; did you mean 'max_size_messages'",
        ),
        ({"settings": {"max_size_messages": "1"}}, "max_size_messages must be a whole number, not '1'"),
        ({"others": {"b": {"expiry_delay": 0.5}}}, "settings of b: expiry_delay must be a whole number"),
        ({"after": Refuse}, "takes a class of AddressPolicy, not <class .*Refuse"),
    ],
)
def test_settings_that_do_not_exist(arguments, words):
    with pytest.raises(HarnessError, match=words):
        PolicyHarness(Waits, **arguments)


def test_attributes_bodies_and_headers_that_cannot_be():
    harness = PolicyHarness(Waits)
    with pytest.raises(HarnessError, match="queue_of: unknown 'ring_sise'; did you mean 'ring_size'"):
        harness.queue_of("q", ring_sise=3)
    with pytest.raises(HarnessError, match="body of bytes, not 'text'"):
        harness.send("text")
    with pytest.raises(HarnessError, match="headers of strings, not 'n': 1"):
        harness.send(b"", {"n": 1})
    with pytest.raises(HarnessError, match="no connection called 'nobody'"):
        harness.disconnect("nobody")


# ---- stop and restart


class Lives(AddressPolicy):
    """Counts its lives and its messages, and remembers what waits."""

    def created(self):
        """See AddressPolicy."""
        self.waiting = []
        self.address.state["lives"] = self.address.state.get("lives", 0) + 1

    def enqueued(self, message):
        """See AddressPolicy."""
        self.waiting.append(message.body)

    def closed(self):
        """See AddressPolicy."""
        self.address.state["closed"] = self.address.now


def test_a_restart_keeps_durable_messages_and_the_state():
    settings = {"max_delivery_attempts": -1, "redelivery_delay": 1000, "default_ring_size": 4}
    harness = PolicyHarness(Lives, settings=settings)
    harness.queue_of("passing", durable=False)
    for number in range(6):
        harness.send(b"%d" % number, {"persistent": "true"})
    harness.send(b"gone", to="passing")
    harness.send(b"later", {"persistent": "true", "AMQ_SCHEDULED_DELAY": "5000"})
    before = [message.number for message in harness.messages()]
    for message in harness.deliver(2):
        harness.reject(message)
    assert harness.deliver(1)[0].body == b"4"
    former = harness.policy
    harness.stop()
    assert dict(former.address.state) == {"lives": 1, "closed": harness.clock.seconds() * 1000 // 1}
    for act in (harness.send, harness.waiting, harness.deliver, harness.subscribe):
        with pytest.raises(HarnessError, match="the broker is stopped: call restart"):
            act()
    harness.advance(999)
    harness.restart()
    assert harness.policy is not former and harness.policy.address.state["lives"] == 2
    assert harness.waiting() == harness.policy.waiting == [b"4", b"5"] and harness.waiting("passing") == []
    assert harness.messages()[0].deliveries == 1
    harness.advance(1)
    assert [message.number for message in harness.messages()] == before
    harness.settle(*harness.deliver(1))
    harness.advance(4000)
    assert harness.waiting() == [b"later", b"3", b"4", b"5"]
    assert harness.send(b"6", producer="new").accepted and harness.messages()[-1].number > before[-1]
    assert harness.waiting() == [b"3", b"4", b"5", b"6"]
    harness.restart()
    assert harness.policy.address.state["lives"] == 3 and not harness.errors
    assert harness.waiting() == [b"3", b"4", b"5"], "the last message was not durable"
    harness.delete()
    assert not former.address.state


def test_state_takes_what_json_has_and_no_more_than_its_limit():
    class Other(AddressPolicy):
        """Shows its state."""

        def created(self):
            """See AddressPolicy."""
            others.append(self.address.state)

    others = []
    harness = PolicyHarness(Lives, after=Other)
    state, other = harness.policy.address.state, others[0]
    state["list"] = given = [1, {"a": None}, "ü\ud800", 0.5, True]
    given.append(2)
    state["list"].append(3)
    assert state["list"] == [1, {"a": None}, "ü\ud800", 0.5, True] and "lives" in state and not other
    for value, words in [
        (b"x", "bytes is not JSON serializable"),
        (float("nan"), "not JSON compliant"),
        ("x" * 16384, "would have 164.. bytes of JSON, the maximum is 16384"),
        ([given.append(given), given][1], "Circular reference"),
    ]:
        before = dict(state)
        with pytest.raises(
            ValueError, match=f"state of policy policy-under-test of address address.*{words}"
        ):
            state["bad"] = value
        assert dict(state) == before
    with pytest.raises(ValueError, match="must be a str, not 1"):
        state[1] = 1
    with pytest.raises(KeyError):
        del state["unknown"]
    other["list"] = 1
    del state["list"]
    harness.restart()
    assert others[1]["list"] == 1 and "list" not in harness.policy.address.state
    harness.delete()
    harness.queue_of("address")
    assert list(harness.policy.address.state) == ["lives"] and harness.policy.address.state["lives"] == 1


# ---- slow hooks


class Slow(AddressPolicy):
    """Takes its time in one hook."""

    where: str = parameter("The hook.")

    def _sleep(self, hook):
        if self.where == hook:
            time.sleep(0.03)

    def created(self):
        """See AddressPolicy."""
        self._sleep("created")

    def admit(self, offer):
        """See AddressPolicy."""
        self._sleep("admit")

    def full(self, offer):
        """See AddressPolicy."""
        self._sleep("full")

    def enqueued(self, message):
        """See AddressPolicy."""
        self._sleep("enqueued")

    def subscribed(self, subscriber):
        """See AddressPolicy."""
        self._sleep("subscribed")


class SlowInTheEnd(Slow):
    """With the hooks about outcomes."""

    def entered(self, offer):
        """See AddressPolicy."""
        self._sleep("entered")


@pytest.mark.parametrize(
    "kind, hook",
    [
        *[(Slow, hook) for hook in ("admit", "full", "enqueued", "subscribed")],
        *[(SlowInTheEnd, hook) for hook in ("admit", "entered")],
    ],
)
@pytest.mark.parametrize("after", [None, Waits])
def test_a_slow_hook_is_counted_and_logged_once_in_a_while(kind, hook, after, caplog, monkeypatch):
    monkeypatch.setattr(Waits, "answer", None)
    full = {"max_size_messages": 1, "address_full_policy": "DROP"} if hook == "full" else {}
    harness = PolicyHarness(kind, settings=full, after=after, where=hook)
    for number in range(3):
        assert not harness.subscribe(client=f"consumer-{number}")
        harness.send(b"goes to the consumer")
        harness.disconnect(f"consumer-{number}")
        harness.send(b"waits, and is dropped where the address is full")
        harness.send(b"the same")
    name = ("policy-under-test", hook)
    assert harness._policies.slow_hooks[name] >= 3
    logged = [
        record for record in caplog.records if f"address: {hook} blocked the broker" in record.getMessage()
    ]
    assert len(logged) == 1 and "(limit 20 ms)" in logged[0].getMessage()
    assert {"address": "address", "policy": name[0], "hook": hook}.items() <= logged[0].__dict__.items()
    assert not harness.errors


def test_further_slow_calls_are_summed_up(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(faults_module, "monotonic", lambda: now[0])
    found = faults_module.PolicyErrors()
    for _ in range(5):
        found.slow_hook("p", "a", "admit", 0.03)
    now[0] = faults_module.SLOW_LOG_INTERVAL
    found.slow_hook("p", "a", "admit", 0.04)
    first, second = caplog.messages
    assert first == "policy p of address a: admit blocked the broker for 30 ms (limit 20 ms)"
    assert second.endswith("; 4 more since the last log line") and found.slow == {("p", "admit"): 6}


def test_creation_may_take_longer(caplog):
    harness = PolicyHarness(Slow, where="created")
    assert ("policy-under-test", "created") not in harness._policies.slow_hooks
