"""Delays for those who fail, with a clock that stands still."""

import pytest

from stompring.security import access
from stompring.security.access import (
    FIRST_DELAY,
    FORGET_AFTER,
    FREE_FAILURES,
    LONGEST_DELAY,
    MAX_DELAYED,
    MAX_HOSTS,
    LoginThrottle,
)


class Time:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


def test_delays_double_up_to_the_longest(time):
    one = LoginThrottle(time)
    for _ in range(FREE_FAILURES - 1):
        assert not one.failed("192.0.2.1") and one.delay("192.0.2.1") == 0
    assert one.failed("192.0.2.1"), "reported once"
    assert one.delay("192.0.2.2") == 0
    delays = []
    for _ in range(7):
        delays.append(one.delay("192.0.2.1"))
        assert not one.failed("192.0.2.1")
    assert delays == [*(FIRST_DELAY * 2**at for at in range(5)), LONGEST_DELAY, LONGEST_DELAY]
    assert LONGEST_DELAY < 10, "the usual handshake-timeout"


def test_thousands_of_failures_are_no_larger_number(time):
    one = LoginThrottle(time)
    for _ in range(5000):
        one.failed("192.0.2.1")
    assert one.delay("192.0.2.1") == LONGEST_DELAY


def test_failures_are_forgotten_after_a_while(time):
    one = LoginThrottle(time)
    for _ in range(2 * FREE_FAILURES):
        one.failed("192.0.2.1")
    time.now += FORGET_AFTER - 1
    assert one.delay("192.0.2.1")
    time.now += 1
    assert one.delay("192.0.2.1") == 0
    assert not one.failed("192.0.2.1")


def test_number_of_hosts_is_limited(time, monkeypatch):
    monkeypatch.setattr(access, "MAX_HOSTS", 50)
    one = LoginThrottle(time)
    for _ in range(FREE_FAILURES):
        one.failed("192.0.2.1")
    for number in range(49):
        one.failed(f"198.51.100.{number}")
    assert one.delay("192.0.2.1")
    one.failed("203.0.113.1")
    assert one.delay("192.0.2.1") == 0, "whose last failure is oldest goes"
    assert MAX_HOSTS == 10_000


@pytest.mark.parametrize(
    "host, stands_for",
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::7", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("/run/socket", "/run/socket"),
    ],
)
def test_ipv6_hosts_are_counted_by_their_network(time, host, stands_for):
    one = LoginThrottle(time)
    for _ in range(FREE_FAILURES + 1):
        one.failed(host)
    assert one.delay(stands_for) > 0 == one.delay("203.0.113.1") == one.delay("2001:db8:1:4::7")


def test_number_of_delayed_logins_of_a_host_is_limited(time):
    one = LoginThrottle(time)
    assert all(one.begin_delay("2001:db8::1") for _ in range(MAX_DELAYED))
    assert not one.begin_delay("2001:db8::2") and one.begin_delay("192.0.2.1")
    one.end_delay("2001:db8::3")
    assert one.begin_delay("2001:db8::4")
    one.end_delay("192.0.2.1")
    assert all(one.begin_delay("192.0.2.1") for _ in range(MAX_DELAYED)), "none is left over"
