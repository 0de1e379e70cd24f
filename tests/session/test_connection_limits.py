"""Who may connect, and how many connections there are file descriptors and memory for."""

import resource

import pytest

from stompring.errors import LimitReached
from stompring.server.protocol import (
    CONNECTION_MEMORY_SHARE,
    MEMORY_PER_CONNECTION,
    RESERVED_FILES,
    connections_for_files,
    default_connections,
    max_connections,
    open_file_limit,
    raise_open_file_limit,
)
from stompring.session.outbox import ConnectionCounter, ConnectionLimit, GlobalConnectionLimit
from stompring.settings.model import StompAcceptor

GB = 1024**3


def door(overall=None, **acceptor):
    return ConnectionLimit(
        StompAcceptor("stomp", "127.0.0.1", 0, **acceptor), overall or GlobalConnectionLimit()
    )


def limit(door, host):
    """By which limit somebody is turned away."""
    with pytest.raises(LimitReached) as caught:
        door.acquire(host)
    assert str(caught.value).endswith(f"({caught.value.limit})")
    return caught.value.limit


@pytest.mark.parametrize(
    "host, place",
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("somewhere", "somewhere"),
    ],
)
def test_what_counts_as_one_peer(host, place):
    one = door(connections_allowed_per_host=1)
    one.acquire(host)
    one.acquire("2001:db8::")
    assert limit(one, place) == "connectionsAllowedPerHost"


@pytest.mark.parametrize(
    "host, here",
    [
        ("127.0.0.1", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("203.0.113.9", False),
        ("2001:db8::1", False),
        ("", False),
    ],
)
def test_this_machine(host, here):
    one = door(GlobalConnectionLimit(3))
    one.acquire(host)
    if here:
        one.acquire(host)
    else:
        assert limit(one, host) == "connectionsAllowedPerHost"


def test_a_crowd_forgets_places_that_are_empty():
    counter = ConnectionCounter()
    for _ in range(2):
        counter.add("a")
    counter.add("b")
    counter.remove("a")
    assert (counter.total, dict(counter.by_network)) == (2, {"a": 1, "b": 1})
    counter.remove("a")
    assert (counter.total, dict(counter.by_network)) == (1, {"b": 1})


def test_all_acceptors_together():
    overall = GlobalConnectionLimit(2)
    one, other = door(overall), door(overall)
    place = one.acquire("127.0.0.1")
    other.acquire("127.0.0.1")
    assert limit(one, "127.0.0.1") == limit(other, "127.0.0.1") == "global-max-connections"
    one.release(place)
    assert overall.count == 1
    other.acquire("127.0.0.1")
    assert limit(other, "127.0.0.1") == "global-max-connections"


def test_one_host():
    one = door(connections_allowed_per_host=2)
    places = [one.acquire(host) for host in ("2001:db8::1", "2001:db8::2")]
    assert limit(one, "2001:db8::3") == "connectionsAllowedPerHost"
    one.acquire("2001:db8:0:1::1")  # another network
    one.release(places[0])
    one.acquire("2001:db8::3")
    for _ in range(2):
        one.acquire("127.0.0.1")
    assert limit(one, "127.0.0.1") == "connectionsAllowedPerHost", (
        "where it is said it holds for this machine too"
    )


def test_where_nobody_says_one_host_may_have_half():
    one = door(GlobalConnectionLimit(10))
    for _ in range(5):
        one.acquire("203.0.113.9")
    assert limit(one, "203.0.113.9") == "connectionsAllowedPerHost"
    for _ in range(5):
        one.acquire("127.0.0.1")
    assert limit(one, "198.51.100.1") == "global-max-connections"


def test_one_host_may_have_any_number_where_that_is_said():
    one = door(GlobalConnectionLimit(10), connections_allowed_per_host=-1)
    for _ in range(10):
        one.acquire("203.0.113.9")


def test_who_was_turned_away_takes_nobodys_place():
    overall = GlobalConnectionLimit(3)
    one = door(overall, connections_allowed_per_host=1)
    one.acquire("203.0.113.9")
    for _ in range(9):
        limit(one, "203.0.113.9")
    assert overall.count == 1


# ---- descriptors


def test_what_is_left_for_files():
    assert connections_for_files(20_000) == 20_000 - RESERVED_FILES
    assert connections_for_files(1024) == 512
    assert connections_for_files(1) == 1


def test_the_default_goes_by_descriptors_and_memory():
    assert default_connections(20_000, 64 * GB) == 20_000 - RESERVED_FILES
    assert default_connections(1_048_576, GB) == GB // CONNECTION_MEMORY_SHARE // MEMORY_PER_CONNECTION
    assert default_connections(10, 1) == 1


def test_what_is_said_is_in_force(caplog):
    assert max_connections(7, GB) == 7
    assert max_connections(None, GB) == default_connections(open_file_limit(), GB)
    assert not caplog.records
    assert max_connections(-1, GB) == -1
    assert max_connections(10**9, GB) == 10**9
    assert [record.getMessage().startswith("global-max-connections is ") for record in caplog.records] == [
        True
    ] * 2


def test_the_soft_limit_of_files_becomes_the_hard_one():
    assert raise_open_file_limit() == open_file_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard or hard == resource.RLIM_INFINITY
