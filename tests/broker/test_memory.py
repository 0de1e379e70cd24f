"""Room: limits, and the producers that wait for it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompring.broker.limits import (
    CHECKS_BETWEEN_SCANS,
    OVERDRAFT,
    GlobalMemoryLimit,
    MemoryLimit,
)


def fill(limit, messages, size=100):
    for _ in range(abs(messages)):
        limit.bytes += size if messages > 0 else -size
        limit.messages += 1 if messages > 0 else -1
        limit.review()


@pytest.mark.parametrize(
    "max_bytes, max_messages, messages, full",
    [
        (-1, -1, 1000, False),
        (0, -1, 0, True),
        (-1, 0, 0, True),
        (1000, -1, 9, False),
        (1000, -1, 10, True),
        (-1, 3, 2, False),
        (-1, 3, 3, True),
        (1000, 3, 3, True),
        (200, 3, 2, True),
    ],
)
def test_a_limit_is_reached_not_passed(max_bytes, max_messages, messages, full):
    limit = MemoryLimit(max_bytes, max_messages)
    fill(limit, messages)
    assert limit.full is full


def test_those_who_wait_are_called_one_at_a_time_in_order():
    limit = MemoryLimit(max_messages=2)
    fill(limit, 2)
    called = []
    for name in "abc":
        limit.waiting.append(lambda name=name: called.append(name))
    fill(limit, -1)
    assert called == ["a"]
    fill(limit, -1)
    assert called == ["a"], "b must wait until a has used the room"
    limit.resumed()
    assert called == ["a", "b"]
    fill(limit, 2)
    limit.resumed()
    assert called == ["a", "b"], "full again"
    fill(limit, -1)
    assert called == ["a", "b", "c"]
    limit.resumed()
    assert not limit.waiting


def test_raising_the_limit_makes_room():
    limit = MemoryLimit(max_messages=1)
    fill(limit, 1)
    called = []
    limit.waiting.append(lambda: called.append(1))
    limit.set_limits(-1, 5)
    assert called == [1] and not limit.full


def test_percent_is_of_the_nearer_limit():
    limit = MemoryLimit()
    fill(limit, 5)
    assert limit.percent == 0
    limit.set_limits(1000, 20)
    assert limit.percent == 50
    limit.set_limits(10_000, 5)
    assert limit.percent == 100


def test_a_fault_shuts_it_whatever_the_counts():
    limit = MemoryLimit()
    called = []
    limit.set_fault("the roof leaks")
    assert limit.full and limit.slow_path and limit.fault == "the roof leaks"
    limit.waiting.append(lambda: called.append(1))
    limit.set_limits(1000)
    assert limit.full and not called
    limit.set_fault(None)
    assert not limit.full and called == [1]
    limit.bytes = 1000
    limit.set_fault("again")
    limit.set_fault(None)
    assert limit.full, "there was another reason"


def test_a_paging_address_takes_the_long_way_and_is_not_full():
    limit = MemoryLimit(max_messages=1)
    limit.set_paging(True)
    assert limit.slow_path and not limit.full
    fill(limit, 1)
    fill(limit, -1)
    assert limit.slow_path and not limit.full
    limit.set_paging(False)
    assert not limit.slow_path
    fill(limit, 1)
    limit.set_paging(False)
    assert limit.slow_path, "full"


@dataclass
class Part:
    """What stands for an address."""

    memory_limit: MemoryLimit = field(default_factory=MemoryLimit)


class Shares:
    """Parts of one shared limit, which grow while they should not page."""

    def __init__(self, parts, max_bytes=-1, max_messages=-1):
        self.parts = [Part() for _ in range(parts)]
        self.shared = GlobalMemoryLimit(max_bytes, max_messages, lambda: self.parts)

    def take(self, part, size=1):
        """A message comes; False when it should be paged."""
        if self.shared.should_page(self.parts[part].memory_limit):
            return False
        for limit in (self.parts[part].memory_limit, self.shared):
            limit.bytes += size
            limit.messages += 1
            limit.review()
        return True

    def grow(self, part, messages):
        """How many of so many messages stay in memory."""
        return sum(self.take(part) for _ in range(messages))

    def shrink(self, part, messages):
        for limit in (self.parts[part].memory_limit, self.shared):
            limit.bytes -= messages
            limit.messages -= messages
            limit.review()


@pytest.mark.parametrize("limits", [(50, -1), (-1, 50), (50, 10_000), (10_000, 50), (50, 50)])
def test_one_address_pages_when_the_limit_is_reached(limits):
    shares = Shares(1, *limits)
    assert shares.grow(0, 60) == 50
    assert shares.grow(0, 1) == 0
    shares.shrink(0, 1)
    assert shares.grow(0, 2) == 1


def test_its_own_limit_counts_as_well():
    shares = Shares(1, 1000)
    shares.parts[0].memory_limit.set_limits(-1, 3)
    assert shares.grow(0, 5) == 3


def test_no_limit_no_paging():
    assert Shares(1).grow(0, 1000) == 1000


@pytest.mark.parametrize("limits", [(800, -1), (-1, 800)])
def test_the_largest_pages_first_not_the_unlucky_one(limits):
    shares = Shares(3, *limits)
    large, small, late = range(3)
    assert shares.grow(large, 700) == 700
    assert shares.grow(small, 100) == 100
    assert shares.grow(large, 1) == 0, "at the limit the largest pages"
    assert shares.grow(late, 20) == 20, "and small ones go on"
    assert shares.grow(large, 1) == 0
    for _ in range(10_000):  # traffic that comes and goes, as of a queue whose consumer keeps up
        assert shares.take(late)
        shares.shrink(late, 1)


def test_the_more_is_passed_the_smaller_they_must_be():
    shares = Shares(101, 800)
    shares.grow(0, 600)
    shares.grow(1, 200)
    kept = shares.grow(1, 1000)
    assert 0 < kept < 100, "the second largest pages before the eighth beyond the limit is used up"
    assert shares.grow(2, 1) == 1, "a small one does not yet"
    for part in range(2, 101):
        shares.grow(part, 10)
    assert 880 <= shares.shared.bytes <= 900
    assert shares.grow(100, 5) == 0 or shares.shared.bytes == 900


def test_who_has_shrunk_is_the_largest_no_more():
    shares = Shares(3, 800)
    shares.grow(0, 600)
    shares.grow(1, 200)
    assert shares.grow(0, 1) == 0
    shares.shrink(0, 590)
    assert shares.grow(1, 590) == 590
    assert shares.grow(0, 5) == 5, "it is small now"
    assert shares.grow(1, 1) == 0


def test_who_grew_while_nobody_asked_is_found():
    shares = Shares(2, 800)
    shares.grow(0, 500)
    shares.grow(1, 301)
    for limit in (shares.parts[1].memory_limit, shares.shared):  # as by dead letters, which nobody asks for
        limit.bytes += 300
        limit.messages += 300
    for limit in (shares.parts[0].memory_limit, shares.shared):
        limit.bytes -= 300
        limit.messages -= 300
    answers = [
        shares.shared.should_page(shares.parts[0].memory_limit) for _ in range(CHECKS_BETWEEN_SCANS + 2)
    ]
    assert answers[-1] is False


class Watched(list[Part]):
    """Counts how often all parts are looked at."""

    looks = 0

    def __iter__(self):
        self.looks += 1
        return super().__iter__()


def test_asking_is_cheap_with_many_addresses():
    """Even where the largest shrinks with every ask, not all addresses are looked at each time."""
    parts = Watched(Part() for _ in range(10_000))
    shared = GlobalMemoryLimit(1000, -1, lambda: parts)
    shared.bytes = 1010
    shared.review()
    for part in list(parts):
        part.memory_limit.bytes = 1
        shared.should_page(part.memory_limit)
        part.memory_limit.bytes = 0
    assert 2 <= parts.looks <= 18


@example(
    58,
    [
        (0, 1, False),
        (0, 1, False),
        (0, 1, False),
        (0, 1, True),
        (0, 4, False),
        (1, 20, False),
        (2, 19, False),
        (3, 20, False),
        (1, 7, True),
    ],
)  # the largest shrinks below the others that have not asked since
@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20), st.booleans()), max_size=200),
)
def test_memory_is_bounded_and_small_is_never_worse_than_large(limit, steps):
    shares = Shares(5, limit)
    for part, size, goes in steps:
        used = shares.parts[part].memory_limit.bytes
        if goes and used:
            shares.shrink(part, min(size, used))
        else:
            shares.take(part, size)
        assert shares.shared.bytes <= limit + limit / OVERDRAFT + 20, (
            "but for the message that reached the limit"
        )
        for one in shares.parts:  # an address that grew is known once it has asked
            shares.shared.should_page(one.memory_limit)
        answers = [
            (one.memory_limit.bytes, shares.shared.should_page(one.memory_limit)) for one in shares.parts
        ]
        paging = [size for size, pages in answers if pages]
        going_on = [size for size, pages in answers if not pages]
        assert not paging or not going_on or min(paging) >= max(going_on)
