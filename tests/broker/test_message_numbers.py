"""Numbers of messages: no run gives one that an earlier run has given, whenever the leases come to disk."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import FIRST_OF_CLOCK, LATE_STEP, STEP, MessageNumbers, clock_number

from ..property.profile import examples

NOW = 1_700_000_000_000
LEASE = 4 * STEP


class Desk:
    """Takes requests for leases; ``written`` is what a start finds on disk."""

    def __init__(self, written=1):
        self.written = written
        self.now = NOW
        self.requests = []

    def start(self):
        self.requests.clear()
        numbers = MessageNumbers(self.written, LEASE, lambda: self.now, self.requests.append)
        self.requests.append(self.written + LEASE)
        return numbers

    def write(self, numbers):
        """The last request comes to disk."""
        if self.requests:
            self.written = max(self.written, self.requests[-1])
            numbers.granted(self.written)


def test_they_begin_behind_the_last_lease():
    desk = Desk(100)
    numbers = desk.start()
    desk.write(numbers)
    assert [numbers.next() for _ in range(3)] == [100, 101, 102]
    again = desk.start()
    desk.write(again)
    assert again.next() == 100 + LEASE


def test_the_next_lease_is_requested_when_half_is_used(caplog):
    desk = Desk()
    numbers = desk.start()
    desk.write(numbers)
    for number in range(1, 10 * LEASE):
        assert numbers.next() == number
        assert desk.written - number > LEASE // 2 - 2 * STEP or desk.requests[-1] > desk.written
        desk.write(numbers)
    assert len(desk.requests) < 25 and not caplog.records


def test_without_a_lease_they_go_on_from_the_clock(caplog):
    desk = Desk()
    numbers = desk.start()
    desk.write(numbers)
    given_out = [numbers.next() for _ in range(LEASE)]
    late = [numbers.next() for _ in range(3 * LATE_STEP)]
    assert given_out[-1] == LEASE and late[0] == clock_number(NOW)
    assert late == sorted(set(late))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    desk.write(numbers)
    after = [numbers.next() for _ in range(3 * STEP)]
    assert after[0] > late[-1] and after == sorted(set(after))
    desk.now += 60_000
    assert desk.start().next() > after[-1]


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(0, 3 * LEASE // STEP), st.booleans(), st.integers(0, 5)),
        min_size=1,
        max_size=12,
    )
)
def test_no_number_is_given_twice(runs):
    """Runs that end at any time; of each the leases come to disk or do not."""
    desk = Desk()
    seen = []
    for steps, writes, seconds in runs:
        desk.now += 1000 * seconds + 1000
        numbers = desk.start()
        for _ in range(steps):
            first = numbers.next()
            for _ in range(LATE_STEP - 1):
                last = numbers.next()
            seen.append(range(first, last + 1))
            desk.now += 1
            if writes:
                desk.write(numbers)
    seen.sort(key=lambda each: each.start)
    for before, after in zip(seen, seen[1:], strict=False):
        assert before.stop <= after.start


def test_the_clock_is_far_above_leases():
    assert clock_number(NOW) > FIRST_OF_CLOCK > 1_000_000 * 10_000_000
    assert clock_number(NOW + 1) - clock_number(NOW) == 1000
    assert clock_number(NOW * 2) < 1 << 53, "what reads JSON can have them exactly"
