"""Which patterns match which addresses (Artemis, wildcard routing)."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.directory import MAX_WORDS, WildcardAddresses
from stompring.settings.model import BrokerConfiguration, WildcardSyntax

MOST = BrokerConfiguration().global_max_wildcard_words

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


@pytest.mark.parametrize("pattern, matched, unmatched", TABLE)
def test_routing_table(pattern, matched, unmatched):
    wildcards = WildcardAddresses(WildcardSyntax())
    assert wildcards.is_wildcard(pattern)
    wildcards.add(pattern)
    for name in matched:
        assert wildcards.matching(name) == {pattern}, name
    for name in unmatched:
        assert wildcards.matching(name) == set(), name


@pytest.mark.parametrize("name", ["a.b.c*", "#a.b.c", "*a.b", "a.b#", "a", "a**"])
def test_only_whole_words_are_wildcards(name):
    assert not WildcardAddresses(WildcardSyntax()).is_wildcard(name)


def test_other_syntax():
    syntax = WildcardSyntax(delimiter="/", any_words="**", single_word="+")
    wildcards = WildcardAddresses(syntax)
    assert wildcards.is_wildcard("a/+") and not wildcards.is_wildcard("a/*")
    wildcards.add("a/**")
    assert wildcards.matching("a/b/c") == {"a/**"}


def test_switched_off():
    assert not WildcardAddresses(WildcardSyntax(routing_enabled=False)).is_wildcard("a.#")


WORDS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5)


def matches(pattern, name):
    if not pattern:
        return not name
    if pattern[0] == "#":
        return any(matches(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("*", name[0]) and matches(pattern[1:], name[1:])


def words_after(patterns):
    """Words below a wildcard, those that patterns begin with in common once."""
    begins = {tuple(p.split(".")[:end]) for p in patterns for end in range(1, p.count(".") + 2)}
    return sum(not {"*", "#"}.isdisjoint(begin[:-1]) for begin in begins)


@given(st.lists(WORDS, max_size=6), NAMES, st.lists(st.integers(0, 5), max_size=6))
def test_a_tree_of_patterns_agrees_with_trying_each(patterns, name, removed):
    wildcards = WildcardAddresses(WildcardSyntax())
    names = list({".".join(pattern) for pattern in patterns})
    for pattern in names:
        wildcards.add(pattern)
    for at in removed:
        if at < len(names):
            wildcards.remove(names.pop(at))
    assert len(wildcards) == len(names)
    assert wildcards.words_after == words_after(names)
    assert wildcards.matching(".".join(name)) == {p for p in names if matches(p.split("."), name)}


def test_a_name_of_a_thousand_words():
    wildcards = WildcardAddresses(WildcardSyntax())
    name = ".".join(["a"] * 1024)
    wildcards.add(name + ".#")
    wildcards.add("#.a.#.a.#.b.#")
    assert wildcards.matching(name) == {name + ".#"}


@given(st.lists(WORDS, max_size=30), st.lists(st.sampled_from("ab"), min_size=1, max_size=40))
def test_each_node_is_visited_once_at_most(patterns, name):
    wildcards = WildcardAddresses(WildcardSyntax())
    for pattern in {".".join(pattern) for pattern in patterns}:
        wildcards.add(pattern)
    wildcards.matching(".".join(name))
    assert wildcards.visited <= wildcards.words_after + 3 * (len(name) + 1)


def evil(alphabet, words):
    """Addresses that nearly match `a.a.a…`, with that many words after their first wildcards."""
    chance = random.Random(12)
    wildcards = WildcardAddresses(WildcardSyntax())
    while wildcards.words_after < words:
        pattern = ".".join(["#", *chance.choices(alphabet, k=chance.choice((10, 30, 100))), "z"])
        if wildcards.growth(pattern) > 1:
            wildcards.add(pattern)
    return wildcards


@pytest.mark.parametrize("alphabet", ["a#", "a*#", "a*", "ab*#"])
def test_patterns_made_to_be_slow_take_a_few_milliseconds(alphabet):
    wildcards = evil(alphabet, MOST)
    for name in ("a", "ab"):
        seconds = []
        for _ in range(5):
            begun = time.thread_time()
            wildcards.matching(".".join((name * MAX_WORDS)[:MAX_WORDS]))
            seconds.append(time.thread_time() - begun)
        assert min(seconds) < 0.05, (alphabet, name, seconds)


def test_five_hundred_any_words():
    wildcards = WildcardAddresses(WildcardSyntax())
    wildcards.add(".".join("#" * 1000))
    wildcards.matching(".".join("a" * 1000))
    assert wildcards.visited == 1001


def test_patterns_that_begin_with_names_are_as_many_as_you_like():
    """A subscriber for each of many devices: only what is below a wildcard counts, and a name finds its own alone."""
    wildcards = WildcardAddresses(WildcardSyntax())
    for device in range(20_000):
        wildcards.add(f"devices.{device}.#")
    assert wildcards.words_after == 0
    assert wildcards.matching("devices.77.on") == {"devices.77.#"}
    assert wildcards.visited < 10
