"""Policies under random use, held to what they promise after every single step."""

import random

import pytest

from stompring.policy.testing import PolicyHarness

from . import policy, remembered, timers

SEEDS = range(12)


class Use:
    """Somebody who sends, takes, acknowledges, gives back and waits, at random."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self._held = []

    def step(self, harness, sends, pauses):
        """Do one thing; ``sends`` is how much of all is sending."""
        pick, held = self.random, self._held
        if pick.random() < sends:
            harness.send(b"x", {"k": pick.choice("aabcdef"), "priority": pick.choice("44419")})
            return
        what = pick.randrange(4)
        if what == 0:
            held += harness.deliver(pick.randrange(1, 4))
        elif what == 1:
            harness.advance(pick.choice(pauses))
        elif held:
            (harness.settle if what == 2 else harness.reject)(held.pop(pick.randrange(len(held))))


def house(name, settings, **arguments):
    return PolicyHarness(policy(name), settings={"max_delivery_attempts": -1, **settings}, **arguments)


@pytest.mark.parametrize("seed", SEEDS)
def test_newest_per_key(seed):
    use = Use(seed)
    keep, ring = use.random.choice((1, 1, 2, 3)), use.random.choice((-1, -1, 4, 8))
    harness = house("newest-per-key", {"default_ring_size": ring}, key="k", keep=keep)
    for step in range(400):
        use.step(harness, 0.5, (1, 500, 1000))
        keys = [message.header("k") for message in harness.messages()]
        assert max(map(keys.count, keys), default=0) <= keep
        assert ring < 0 or len(keys) <= ring
        assert remembered(harness.policy) <= 2 * (2 * len(keys) + 34) + 10
        assert timers(harness) <= 1
        if step % 100 == 99:
            keep = use.random.choice((1, 2))
            harness.reload(key="k", keep=keep)
    for message in harness.deliver(400):
        harness.settle(message)
    harness.advance(1000)
    assert not timers(harness) and not harness.errors


@pytest.mark.parametrize("seed", SEEDS)
def test_timed_ring(seed):
    use = Use(seed)
    age, size = use.random.choice((20, 200, 3000)), use.random.choice((3, 10, 1000))
    ring = use.random.choice((-1, 6))
    harness = house("timed-ring", {"default_ring_size": ring}, max_age=age, size=size)
    for _ in range(400):
        use.step(harness, 0.45, (1, 7, 50, 500))
        assert all(message.age < age + 7 for message in harness.messages())
        assert harness.queue.waiting <= size
        assert remembered(harness.policy) <= 2 * harness.queue.waiting + 40
        assert timers(harness) == 1 or (timers(harness) == 0 and not harness.queue.waiting)
    harness.advance(age + 1010)
    assert not harness.waiting() and not timers(harness)
    assert not harness.errors


@pytest.mark.parametrize(
    "name, arguments", [("newest-per-key", {"key": "k"}), ("timed-ring", {"max_age": 3_600_000})]
)
def test_consumed_messages_are_forgotten(name, arguments):
    harness = house(name, {}, **arguments)
    for number in range(700):
        assert harness.send(b"x", {"k": str(number)}).accepted
        if number < 200:
            harness.settle(*harness.deliver())
            assert remembered(harness.policy) <= 80
    for message in harness.deliver(490):
        harness.settle(message)
    harness.advance(1000)
    assert remembered(harness.policy) <= 110


@pytest.mark.parametrize("seed", SEEDS)
def test_evict_lowest_priority(seed):
    use = Use(seed)
    equal = seed % 2 == 1
    settings = {"max_size_messages": 8}
    harness = house("evict-lowest-priority", settings, full=True, equal=equal, otherwise="DROP")
    for _ in range(300):
        use.step(harness, 0.3, (1,))
        before = sorted((message.priority, message.number) for message in harness.messages())
        full, priority = harness.policy.address.full, use.random.randrange(10)
        sent = harness.send(b"x", {"priority": str(priority)})
        after = sorted((message.priority, message.number) for message in harness.messages())
        if not full:
            assert sent.accepted and set(before) < set(after)
        elif before and before[0][0] < priority + equal:
            assert sent.accepted and set(before) - set(after) == {before[0]}
        else:
            assert sent.dropped and before == after
        assert harness.policy.address.messages <= 8
    assert not harness.errors
