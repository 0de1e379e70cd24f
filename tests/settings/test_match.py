"""Address-settings by specificity: order, merge, literal matches, memory."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.settings.match import CACHED_ADDRESSES, Pattern, SettingsRepository, with_delimiter
from stompring.settings.model import AddressSettingEntry, AddressSettings, FullPolicy, WildcardSyntax


def entry(match, **values):
    return AddressSettingEntry(match, values)


def order(address, *matches):
    """The matches that count for ``address``, the most specific first, whatever order they were given in."""
    orders = set()
    for seed in range(5):
        shuffled = random.Random(seed).sample(matches, len(matches))
        repository = SettingsRepository(entry(match) for match in shuffled)
        orders.add(tuple(found.match for found in repository.entries_for(address)))
    assert len(orders) == 1
    return list(orders.pop())


# Asserted by Artemis's RepositoryTest and AddressSettingsTest, in the order of specificity.
ORDERS = [
    ("a.b.c.d", ["a.b.c.*", "a.b.*.d", "a.b.c.#", "a.b.#", "a.#", "#"]),
    ("a.b.c.d", ["a.b.c.d", "a.b.c.*", "#"]),
    ("a.x.c.d", ["a.*.*.d", "a.#", "#"]),
    ("a.d.d.g", ["a.*.d.#", "a.#", "#"]),
    ("x.b.c.d.e.f", ["*.b.c.d.*.f", "*.b.*.d.*.f"]),
    ("a.b", ["a.b.#", "a.#", "#"]),
    # Left open by Artemis, settled here: of two with "#" and of one length a name goes before "*".
    ("a.b.c", ["a.b.#", "a.*.#", "#"]),
    # "#" in the middle, which Artemis refuses in settings.
    ("orders.eu.urgent", ["orders.#.urgent", "orders.#", "#"]),
]


@pytest.mark.parametrize("address, expected", ORDERS)
def test_order_of_specificity(address, expected):
    others = ["zzz", "a.b.c.d.e.f.g", "q.*", "a.c.#", "*.*.*.*.*.*.*.*"]
    assert order(address, *expected, *others) == expected


def test_not_a_part_of_a_word():
    assert order("a.babc", "a.b.#", "a.b") == []


def test_of_two_entries_with_one_match_the_later_counts():
    for match, address in [("#", "x"), ("x", "x"), ("(x)", "x")]:
        entries = [entry(match, redelivery_delay=1, expiry_delay=5), entry(match, redelivery_delay=2)]
        settings = SettingsRepository(entries, literal_match_markers="()").lookup(address)
        assert (settings.redelivery_delay, settings.expiry_delay) == (2, -1)


def test_literal_matches_are_for_the_address_of_that_name():
    entries = [
        entry("#", redelivery_delay=1),
        entry("orders.#", redelivery_delay=2),
        entry("(orders.#)", expiry_delay=9),
    ]
    repository = SettingsRepository(entries, literal_match_markers="()")
    assert repository.lookup("orders.#") == AddressSettings(redelivery_delay=2, expiry_delay=9)
    assert repository.lookup("orders.x") == AddressSettings(redelivery_delay=2)
    # Without markers it is a name that happens to begin with a bracket.
    assert SettingsRepository(entries).lookup("orders.#") == AddressSettings(redelivery_delay=2)


@pytest.mark.parametrize(
    "match, same",
    [
        ("activemq.management#", "activemq.management.#"),
        ("activemq.management.#", "activemq.management.#"),
        ("#", "#"),
        ("*#", "*#"),
        ("a*", "a*"),
        ("(a#)", "(a#)"),
        ("a#b", "a#b"),
        ("", ""),
    ],
)
def test_a_final_any_words_may_follow_a_word_without_a_delimiter(match, same):
    assert with_delimiter(match, "()", WildcardSyntax()) == same
    assert with_delimiter(match.replace("#", ">").replace(".", "/"), "()", WildcardSyntax("/", ">", "*")) == (
        same.replace("#", ">").replace(".", "/")
    )


def test_an_exact_name_goes_before_a_literal_one():
    entries = [entry("(a.b)", redelivery_delay=1, expiry_delay=1), entry("a.b", redelivery_delay=2)]
    settings = SettingsRepository(entries, literal_match_markers="()").lookup("a.b")
    assert (settings.redelivery_delay, settings.expiry_delay) == (2, 1)


def test_another_syntax():
    syntax = WildcardSyntax(delimiter="/", any_words=">", single_word="+")
    repository = SettingsRepository(
        [entry("a/>", redelivery_delay=1), entry("a/+/c", redelivery_delay=2)], syntax
    )
    assert repository.lookup("a/b/c").redelivery_delay == 2
    assert repository.lookup("a/b").redelivery_delay == 1
    assert repository.lookup("a.b").redelivery_delay == 0


def test_addresses_under_the_same_entries_share_their_settings():
    repository = SettingsRepository([entry("#", redelivery_delay=1), entry("a.#", expiry_delay=1)])
    assert repository.lookup("a.1") is repository.lookup("a.2")
    assert repository.lookup("a.1") is not repository.lookup("b.1")


def test_lookup_cache_is_bounded_and_avoids_pattern_matching(monkeypatch):
    tried = []
    matches = Pattern.matches_words

    def counting(pattern, address):
        tried.append(".".join(address))
        return matches(pattern, address)

    monkeypatch.setattr(Pattern, "matches_words", counting)
    repository = SettingsRepository(
        [entry("#", redelivery_delay=1), *(entry(f"exact.{n}") for n in range(1_000))]
    )
    for _ in range(3):
        repository.lookup("a")
    assert tried == ["a"]  # one wildcard entry tried once; exact ones are not walked
    for number in range(CACHED_ADDRESSES):
        repository.lookup(f"b.{number}")
    del tried[:]
    repository.lookup("a")  # the oldest was forgotten, and is found again
    assert tried == ["a"]


WORDS = st.lists(st.sampled_from("ab*#"), min_size=1, max_size=4).map(".".join)
ENTRIES = st.dictionaries(
    WORDS,
    st.fixed_dictionaries(
        {},
        optional={
            "redelivery_delay": st.integers(0, 5),
            "dead_letter_address": st.sampled_from(["DLQ", None]),
            "address_full_policy": st.sampled_from(FullPolicy),
            "default_ring_size": st.sampled_from([-1, 1, 2]),
        },
    ),
    max_size=8,
)
ADDRESSES = st.lists(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join), min_size=1, max_size=8
)


@given(ENTRIES, ADDRESSES, st.randoms(use_true_random=False))
def test_merging_does_not_depend_on_any_order(given_entries, addresses, shuffle):
    """Whatever order entries are given in, and addresses are asked for in, and however often."""
    entries = [AddressSettingEntry(match, values) for match, values in given_entries.items()]
    once = SettingsRepository(entries)
    expected = {address: once.lookup(address) for address in addresses}
    shuffle.shuffle(entries)
    shuffle.shuffle(addresses)
    again = SettingsRepository(entries)
    assert {address: again.lookup(address) for address in addresses + addresses} == expected
    assert {address: once.lookup(address) for address in addresses} == expected


@given(ENTRIES, ADDRESSES)
def test_every_value_is_that_of_the_first_entry_that_sets_it(given_entries, addresses):
    repository = SettingsRepository(
        AddressSettingEntry(match, values) for match, values in given_entries.items()
    )
    for address in addresses:
        found = repository.entries_for(address)
        assert {one.match for one in found} == {
            match for match in given_entries if Pattern(match).matches(address)
        }
        settings = repository.lookup(address)
        for name in AddressSettings.__dataclass_fields__:
            expected = next(
                (one.values[name] for one in found if name in one.values), getattr(AddressSettings(), name)
            )
            assert getattr(settings, name) == expected
