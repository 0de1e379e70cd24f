"""Address patterns: what they match, whether two overlap, whether one covers the other."""

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.settings.match import DEFAULT_SYNTAX, Pattern, covers, matches, overlaps
from stompring.settings.model import WildcardSyntax

MATCHES = [
    ("news.europe.#", ["news.europe", "news.europe.sport", "news.europe.sport.football"], ["news", "news.europeans"]),
    ("*.stock.#", ["nyse.stock", "nyse.stock.ibm"], ["stock", "nyse.europe.stock"]),
    ("#", ["a", "a.b", ""], []),
    ("#.a.#.a.#.b", ["a.a.b", "x.a.y.a.z.b", "a.a.a.b"], ["a.b", "a.a", "a.a.b.c"]),
    ("a.b.c*", ["a.b.c*"], ["a.b.cd", "a.b.c"]),
    ("#a.b.c", ["#a.b.c"], ["a.b.c", "x.a.b.c"]),
    ("*a.b", ["*a.b"], ["xa.b", "a.b"]),
    ("a[bc].d+", ["a[bc].d+"], ["ab.d", "ab.dd"]),
    ("a.(x|y).$", ["a.(x|y).$"], ["a.x.$", "a.x."]),
    ("a?c.*", ["a?c.d"], ["abc.d", "ac.d"]),
    ("plain.name", ["plain.name"], ["plainXname", "plain.name.x", "plain"]),
]  # fmt: skip


@pytest.mark.parametrize("pattern, yes, no", MATCHES, ids=[row[0] for row in MATCHES])
def test_matches(pattern, yes, no):
    assert [address for address in yes if not matches(pattern, address)] == []
    assert [address for address in no if matches(pattern, address)] == []


def test_match_with_another_syntax():
    syntax = WildcardSyntax(delimiter="/", any_words=">", single_word="+")
    assert matches("news/+/>", "news/europe", syntax)
    assert matches("news/+/>", "news/europe/sport/1.0", syntax)
    assert not matches("news/+/>", "news.europe", syntax)
    assert not matches("news/#", "news/europe", syntax)


def test_is_wildcard_only_with_a_whole_word():
    assert Pattern("a.*").is_wildcard and Pattern("#.a").is_wildcard
    assert not Pattern("a.b*").is_wildcard and not Pattern("a.b").is_wildcard
    assert Pattern("a.b*.#c.*").half_wildcards() == ("b*", "#c")


def test_many_any_words_do_not_explode():
    # Backtracking into every "#" would take longer than the age of the universe.
    pattern = ".".join(["#", "a"] * 20 + ["b"])
    assert not matches(pattern, ".".join(["a"] * 2_000))


def model(words, address):
    """The rule as documented, without regard to speed."""
    if not words:
        return not address
    if words[0] == "#":
        return any(model(words[1:], address[taken:]) for taken in range(len(address) + 1))
    return bool(address) and words[0] in ("*", address[0]) and model(words[1:], address[1:])


@given(
    st.lists(st.sampled_from("ab*#"), min_size=1, max_size=8),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=9),
)
def test_matches_as_the_model_does(words, address):
    assert matches(".".join(words), ".".join(address)) == model(words, address)


#: Every address of up to six words, as two patterns of four can need. ``z`` stands for words that no pattern names.
ADDRESSES = [".".join(words) for length in range(1, 7) for words in product("abz", repeat=length)]

PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)


@cache
def matched(pattern):
    read = Pattern(pattern)
    return {address for address in ADDRESSES if read.matches(address)}


@settings(max_examples=300, deadline=None)
@given(PATTERNS, PATTERNS)
def test_against_all_addresses(one, other):
    assert overlaps(one, other, DEFAULT_SYNTAX) == overlaps(other, one, DEFAULT_SYNTAX)
    assert overlaps(one, other, DEFAULT_SYNTAX) == bool(matched(one) & matched(other))
    if covers(one, other, DEFAULT_SYNTAX):
        assert matched(one) >= matched(other)


@pytest.mark.parametrize(
    "wide, narrow, covered",
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
def test_covers(wide, narrow, covered):
    assert covers(wide, narrow, DEFAULT_SYNTAX) is covered


def test_overlap_with_another_syntax():
    syntax = WildcardSyntax(delimiter="/", any_words=">", single_word="+")
    assert overlaps("a/+", "a/>", syntax) and covers("a/>", "a/+/b", syntax)
    assert not overlaps("a.#", "a.b", syntax)


def test_long_addresses_take_their_time_and_no_more():
    words = ".".join(["#", "*", "a"] * 300)
    assert overlaps(words, words, DEFAULT_SYNTAX)
    assert covers("#", words, DEFAULT_SYNTAX)
