"""Which patterns match which addresses (Artemis, wildcard routing)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.wildcards import WildcardAddresses
from stompring.settings.model import WildcardSyntax

TABLE = [
    (
        "news.europe.#",
        ["news.europe", "news.europe.sport", "news.europe.a.b"],
        ["news", "news.usa", "news.europes"],
    ),
    ("news.*", ["news.europe", "news.usa"], ["news", "news.europe.sport", "new.europe"]),
    ("#", ["a", "a.b", "a.b.c"], []),
    ("*", ["a", "b"], ["a.b"]),
    ("a.#.c.*", ["a.c.d", "a.b.c.d", "a.x.y.c.z", "a.c.c.d"], ["a.c", "a.b.d", "b.c.d"]),
    ("#.b.#", ["b", "a.b", "b.c", "a.b.c", "x.y.b.z.b"], ["a", "a.c", "ab"]),
    ("*.stock.#", ["usd.stock", "usd.stock.orcl"], ["stock.orcl", "a.b.stock"]),
    ("a.b.#.d", ["a.b.d", "a.b.c.d", "a.b.c.c.d"], ["a.b", "a.d", "a.b.d.c"]),
    ("a.*.b", ["a.x.b"], ["a.b", "a.x.y.b"]),
]


@pytest.mark.parametrize(("pattern", "matched", "unmatched"), TABLE)
def test_routing_table(pattern: str, matched: list[str], unmatched: list[str]) -> None:
    wildcards = WildcardAddresses(WildcardSyntax())
    assert wildcards.is_wildcard(pattern)
    wildcards.add(pattern)
    for name in matched:
        assert wildcards.matching(name) == {pattern}, name
    for name in unmatched:
        assert wildcards.matching(name) == set(), name


@pytest.mark.parametrize("name", ["a.b.c*", "#a.b.c", "*a.b", "a.b#", "a", "a**"])
def test_only_whole_words_are_wildcards(name: str) -> None:
    assert not WildcardAddresses(WildcardSyntax()).is_wildcard(name)


def test_other_syntax() -> None:
    syntax = WildcardSyntax(delimiter="/", any_words="**", single_word="+")
    wildcards = WildcardAddresses(syntax)
    assert wildcards.is_wildcard("a/+") and not wildcards.is_wildcard("a/*")
    wildcards.add("a/**")
    assert wildcards.matching("a/b/c") == {"a/**"}


def test_switched_off() -> None:
    assert not WildcardAddresses(WildcardSyntax(routing_enabled=False)).is_wildcard("a.#")


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5)


def matches(pattern: list[str], name: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "#":
        return any(matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and matches(pattern[1:], name[1:])


@given(st.lists(WORDS, max_size=6), NAMES, st.lists(st.integers(0, 5), max_size=6))
def test_a_tree_of_patterns_agrees_with_trying_each(
    patterns: list[list[str]], name: list[str], removed: list[int]
) -> None:
    wildcards = WildcardAddresses(WildcardSyntax())
    names = list({".".join(pattern) for pattern in patterns})
    for pattern in names:
        wildcards.add(pattern)
    for at in removed:
        if at < len(names):
            wildcards.remove(names.pop(at))
    assert len(wildcards) == len(names)
    assert wildcards.matching(".".join(name)) == {p for p in names if matches(p.split("."), name)}


def test_a_name_of_a_thousand_words() -> None:
    wildcards = WildcardAddresses(WildcardSyntax())
    name = ".".join(["a"] * 1024)
    wildcards.add(name + ".#")
    wildcards.add("#.a.#.a.#.b.#")
    assert wildcards.matching(name) == {name + ".#"}
