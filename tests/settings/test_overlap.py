"""Wildcard addresses that overlap, or cover one another, against all addresses of a few words."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.settings.model import WildcardSyntax
from stompring.settings.overlap import covers, overlaps
from stompring.settings.wildcard import DEFAULT_SYNTAX, Pattern

#: Every address of up to five words. ``z`` stands for all words that no pattern names.
ADDRESSES = [".".join(words) for length in range(1, 6) for words in product("abz", repeat=length)]

PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)


def matched(pattern: str) -> set[str]:
    read = Pattern(pattern)
    return {address for address in ADDRESSES if read.matches(address)}


@settings(max_examples=300, deadline=None)
@given(PATTERNS, PATTERNS)
def test_against_all_addresses(one: str, other: str) -> None:
    assert overlaps(one, other, DEFAULT_SYNTAX) == overlaps(other, one, DEFAULT_SYNTAX)
    assert overlaps(one, other, DEFAULT_SYNTAX) == bool(matched(one) & matched(other))
    if covers(one, other, DEFAULT_SYNTAX):
        assert matched(one) >= matched(other)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("#", "#", True),
        ("#", "a.*.#", True),
        ("a.#", "a", True),
        ("a.#", "a.*", True),
        ("a.#", "a.#.b", True),
        ("a.*", "a.b", True),
        ("*.#", "#.*", True),  # the same
        ("#.#", "#", True),
        ("a.*", "a.#", False),
        ("a.*", "*.a", False),
        ("*", "#", False),
        ("a", "*", False),
        ("a.b", "a", False),
        ("a.#.b", "a.#", False),
        ("a.#.b", "a.*.c.b", True),
    ],
)
def test_covers(wide: str, narrow: str, covered: bool) -> None:
    assert covers(wide, narrow, DEFAULT_SYNTAX) is covered


def test_another_syntax() -> None:
    syntax = WildcardSyntax(delimiter="/", any_words=">", single_word="+")
    assert overlaps("a/+", "a/>", syntax) and covers("a/>", "a/+/b", syntax)
    assert not overlaps("a.#", "a.b", syntax)


def test_long_addresses_take_their_time_and_no_more() -> None:
    words = ".".join(["#", "*", "a"] * 300)
    assert overlaps(words, words, DEFAULT_SYNTAX)
    assert covers("#", words, DEFAULT_SYNTAX)
