"""plugins/rate_limit.py"""

import pytest

from stompring.policy.testing import PolicyHarness

from . import fault, policy, remembered

KIND = policy("rate-limit")


def accepted(harness, most, producer="producer"):
    """How many messages come through until one does not."""
    for number in range(most):
        if not harness.send(b"x", producer=producer).accepted:
            return number
    return most


def test_a_burst_and_then_the_rate():
    harness = PolicyHarness(KIND, messages_per_second=10, burst=3, when_exceeded="drop")
    assert accepted(harness, 10) == 3
    harness.advance(99)
    assert harness.send(b"x").dropped
    harness.advance(1)
    assert harness.send(b"x").accepted
    assert harness.send(b"x").dropped
    harness.advance(10_000)
    assert accepted(harness, 10) == 3  # never more than the burst


def test_without_a_burst_that_of_one_second_counts():
    harness = PolicyHarness(KIND, messages_per_second=5, when_exceeded="drop")
    assert accepted(harness, 10) == 5
    harness = PolicyHarness(KIND, messages_per_second=0.5, when_exceeded="drop")
    assert accepted(harness, 10) == 1
    harness.advance(1999)
    assert accepted(harness, 10) == 0
    harness.advance(1)
    assert accepted(harness, 10) == 1


@pytest.mark.parametrize("rate", [0.7, 3, 7, 333, 999, 1000])
def test_the_rate_is_kept_in_the_long_run(rate):
    harness = PolicyHarness(KIND, messages_per_second=rate, burst=1, when_exceeded="drop")
    step = max(1, int(1000 / rate) // 7)
    sent = 0
    for _ in range(0, 10_000, step):
        sent += harness.send(b"x").accepted
        harness.advance(step)
    possible = min(rate, 1000 / (-(-1000 // rate // step) * step))  # one message a look
    assert possible * 10 * 0.9 - 1 <= sent <= rate * 10 + 1


def test_refusal_has_the_time_of_the_next_token():
    harness = PolicyHarness(KIND, messages_per_second=4, burst=2, when_exceeded="refuse")
    assert accepted(harness, 2) == 2
    text = harness.send(b"x").refused
    assert "Rate of this address exceeded: 4 messages per second, 2 at once; retry in 250 ms" in text
    harness.advance(100)
    assert "150 ms" in harness.send(b"x").refused


@pytest.mark.parametrize("milliseconds, there", [(124, False), (125, True)])
def test_delayed_to_the_millisecond_at_which_a_token_is_there(milliseconds, there):
    harness = PolicyHarness(KIND, messages_per_second=8, burst=1)
    assert harness.send(b"1").accepted
    assert harness.send(b"2").waits
    harness.advance(milliseconds)
    assert harness.sends_on() is there
    assert harness.waiting() == [b"1", b"2"][: 1 + there]


def test_waiting_producers_are_served_one_after_the_other():
    harness = PolicyHarness(KIND, messages_per_second=8, burst=1)
    producers = ["a", "b", "c"]
    assert [harness.send(b"x", producer=one).waits for one in producers] == [False, True, True]
    harness.advance(125)
    assert len(harness.waiting()) == 2
    harness.advance(125)
    assert len(harness.waiting()) == 3
    assert not harness.errors


def test_each_connection_by_itself():
    harness = PolicyHarness(
        KIND, messages_per_second_per_connection=2, burst_per_connection=2, when_exceeded="refuse"
    )
    assert accepted(harness, 2, "a") == accepted(harness, 2, "b") == 2
    assert "Rate of this connection" in harness.send(b"x", producer="a").refused
    assert accepted(harness, 2, "c") == 2


def test_both_and_a_token_is_taken_of_both_or_of_none():
    harness = PolicyHarness(
        KIND,
        messages_per_second=1,
        burst=4,
        messages_per_second_per_connection=1,
        burst_per_connection=2,
        when_exceeded="drop",
    )
    assert accepted(harness, 9, "a") == 2
    for _ in range(5):
        assert harness.send(b"x", producer="a").dropped  # costs the others nothing
    assert accepted(harness, 9, "b") == 2
    assert harness.send(b"x", producer="c").dropped
    harness.advance(1000)
    assert harness.send(b"x", producer="c").accepted
    assert harness.send(b"x", producer="c").dropped  # of the address; this connection had one more
    harness.advance(1000)
    assert harness.send(b"x", producer="c").accepted


def test_refusal_names_the_longer_limit():
    harness = PolicyHarness(
        KIND,
        messages_per_second=1,
        burst=1,
        messages_per_second_per_connection=10,
        burst_per_connection=1,
        when_exceeded="refuse",
    )
    assert accepted(harness, 1) == 1
    assert "Rate of this address exceeded: 1 messages per second, 1 at once; retry in 1000 ms" in (
        harness.send(b"x").refused
    )


def test_connections_are_forgotten():
    harness = PolicyHarness(KIND, messages_per_second_per_connection=100, burst_per_connection=2)
    for number in range(500):
        assert harness.send(b"x", producer=str(number)).accepted
        harness.disconnect(str(number))
        harness.advance(10)
    assert remembered(harness.policy) <= 65


def test_a_connection_that_is_not_forgotten_keeps_its_count():
    harness = PolicyHarness(
        KIND, messages_per_second_per_connection=0.1, burst_per_connection=1, when_exceeded="drop"
    )
    assert harness.send(b"x", producer="first").accepted
    for number in range(300):
        assert harness.send(b"x", producer=str(number)).accepted
    assert harness.send(b"x", producer="first").dropped


def test_clock_set_back_does_not_delay_producers_for_long():
    harness = PolicyHarness(KIND, messages_per_second=8, burst=5)
    assert accepted(harness, 5) == 5
    harness.policy._full_at += 3_600_000_000_000  # as if an hour had been taken back
    assert accepted(harness, 1) == 1
    assert harness.send(b"x").waits
    harness.advance(125)
    assert harness.sends_on()


def test_a_reload_is_no_gift():
    harness = PolicyHarness(
        KIND, messages_per_second=1, burst=3, messages_per_second_per_connection=1, when_exceeded="drop"
    )
    assert accepted(harness, 9) == 1
    harness.reload(messages_per_second=1, burst=2, messages_per_second_per_connection=1, when_exceeded="drop")
    assert harness.send(b"x").dropped
    assert harness.send(b"x", producer="other").accepted
    harness.advance(1000)
    assert harness.send(b"x").accepted
    assert not harness.errors


def test_a_restart_does_not_refill_the_bucket():
    harness = PolicyHarness(KIND, messages_per_second=2, burst=4, when_exceeded="drop")
    assert accepted(harness, 3) == 3
    harness.restart()
    assert accepted(harness, 9) == 1
    harness.stop()
    harness.advance(1000)
    harness.restart()
    assert accepted(harness, 9) == 2
    harness.reload(messages_per_second=2, burst=3, when_exceeded="drop")
    harness.advance(1000)
    assert accepted(harness, 9) == 1
    harness.restart()
    assert accepted(harness, 9) == 0 and not harness.errors


@pytest.mark.parametrize("exceeded", ["delay", "refuse", "drop"])
def test_blocked_message_takes_one_token(exceeded):
    settings = {"max_size_messages": 1, "address_full_policy": "BLOCK"}
    limits = {"messages_per_second": 0.01, "burst": 4, "when_exceeded": exceeded}
    harness = PolicyHarness(KIND, settings=settings, **limits)
    bodies = [b"1", b"2", b"3", b"4"]
    assert [harness.send(body, producer=body.decode()).waits for body in bodies] == [False, True, True, True]
    for body in bodies:
        (message,) = harness.deliver()
        assert message.body == body
        for _ in range(3):
            harness.queue_of("other")  # the address is looked at again for another reason
            harness.advance(1)
        harness.settle(message)
        harness.advance(1)
    assert not harness.errors


def test_message_refused_by_a_full_address_takes_no_token():
    harness = PolicyHarness(
        KIND,
        settings={"max_size_messages": 1, "address_full_policy": "FAIL"},
        when_exceeded="refuse",
        messages_per_second=0.01,
        burst=2,
    )
    assert harness.send(b"1").accepted
    for _ in range(5):
        assert "max-size-messages" in harness.send(b"x").refused
    harness.settle(*harness.deliver(1))
    assert harness.send(b"2").accepted
    harness.settle(*harness.deliver(1))
    assert "messages per second" in harness.send(b"3").refused


def test_parameters():
    assert "messages-per-second or messages-per-second-per-connection is required" in fault(KIND)
    assert "burst requires messages-per-second" in fault(KIND, messages_per_second_per_connection=1, burst=2)
    assert "burst-per-connection requires" in fault(KIND, messages_per_second=1, burst_per_connection=2)
    assert "must be from 0.001 to 1000000" in fault(KIND, messages_per_second=0)
    assert "burst is '0': must be at least 1" in fault(KIND, messages_per_second=1, burst=0)
    assert "must be one of delay, refuse, drop" in fault(KIND, messages_per_second=1, when_exceeded="wait")
