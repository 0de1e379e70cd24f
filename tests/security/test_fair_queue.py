"""Hosts take turns."""

import pytest

from stompring.security.access import FairQueue


def line(*items, most=100):
    """Items are a host's letter and a number."""
    found = FairQueue(most)
    return found, [found.put(item[0], item) for item in items]


def taken(found):
    return [found.get() for _ in range(len(found))]


def test_several_take_turns():
    assert taken(line("a1", "a2", "a3", "a4", "b1", "b2", "c1")[0]) == [
        "a1",
        "b1",
        "c1",
        "a2",
        "b2",
        "a3",
        "a4",
    ]


def test_late_host_is_served_before_second_item_of_a_busy_host():
    found, _ = line("a1", "a2", "a3")
    assert found.get() == "a1"
    found.put("b", "b1")
    assert taken(found) == ["a2", "b1", "a3"]


def test_the_longest_gives_way():
    found, gone = line("a1", "a2", "a3", "b1", "b2", "c1", most=4)
    assert gone == [None, None, None, None, "a3", "a2"]
    assert len(found) == 4 and taken(found) == ["a1", "b1", "c1", "b2"]


def test_no_host_loses_an_item_to_one_with_as_many():
    found, gone = line("a1", "b1", "c1", most=2)
    assert gone == [None, None, "c1"] and taken(found) == ["a1", "b1"]


def test_empty():
    found, _ = line()
    with pytest.raises(KeyError):
        found.get()
    assert len(found) == 0 and not found._by_host
