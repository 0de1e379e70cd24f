"""What elements about full addresses say together."""

import pytest

from stompring.settings.model import FullPolicy

from .documents import FILE, QUIET, faults, parse

IN_MEMORY = "<persistence-enabled>false</persistence-enabled>"


def settings(*entries):
    """An address-setting for each pair of a match and what is in it."""
    inside = "".join(
        f'\n<address-setting match="{match}">\n{text}\n</address-setting>' for match, text in entries
    )
    return f"<address-settings>{inside}\n</address-settings>"


def test_page_without_a_store_becomes_block_with_a_warning():
    page = settings(
        ("a.#", "<max-size-bytes>1MB</max-size-bytes>\n<address-full-policy>page</address-full-policy>")
    )
    found = parse(QUIET, IN_MEMORY, page)
    assert found.warnings == (
        "etc/broker.xml:8: <address-full-policy> is 'PAGE': paging requires <persistence-enabled> to be true; "
        "producers of full addresses are blocked (BLOCK)",
    )
    assert [entry.values["address_full_policy"] for entry in found.address_settings] == [FullPolicy.BLOCK]
    with_a_store = parse(QUIET, page)
    assert with_a_store.warnings == ()
    assert with_a_store.address_settings[0].values["address_full_policy"] is FullPolicy.PAGE


ZEROS = [
    (IN_MEMORY, "<max-size-bytes>0</max-size-bytes>", "BLOCK"),
    ("", "<max-size-bytes>0</max-size-bytes><address-full-policy>DROP</address-full-policy>", "DROP"),
    ("", "<max-size-messages>0</max-size-messages><address-full-policy>FAIL</address-full-policy>", "FAIL"),
]


@pytest.mark.parametrize("core, inside, policy", ZEROS)
def test_a_limit_of_0_is_for_page_alone(core, inside, policy):
    (fault,) = faults(QUIET, core, settings(("a", inside)))
    assert (
        fault.startswith("7: <max-size-")
        and f"is '0': with {policy} the address would accept no message" in fault
    )


def test_a_limit_of_0_with_page():
    for name in ("max-size-bytes", "max-size-messages"):
        (entry,) = parse(QUIET, settings(("a", f"<{name}>0</{name}>"))).address_settings
        assert list(entry.values.values()) == [0]


def test_limit_of_0_is_checked_with_the_policy_in_force():
    block, zero = "<address-full-policy>BLOCK</address-full-policy>", "<max-size-bytes>0</max-size-bytes>"
    (fault,) = faults(QUIET, settings(("#", block), ("a.b", zero)))
    assert fault.startswith("9: ")
    parse(QUIET, settings(("a.#", block), ("b.c", zero)))


BYTES = "<page-limit-bytes>1MB</page-limit-bytes>"
MESSAGES = "<page-limit-messages>5</page-limit-messages>"
POLICY = "<page-full-policy>DROP</page-full-policy>"
NO_POLICY = "the page limit has no effect without <page-full-policy> (DROP or FAIL)"
NO_LIMIT = "<page-full-policy> has no effect without <page-limit-bytes> or <page-limit-messages>"

HALVES = [
    ([("#", BYTES)], [f"6: {NO_POLICY}"]),
    ([("#", MESSAGES)], [f"6: {NO_POLICY}"]),
    ([("#", POLICY)], [f"6: {NO_LIMIT}"]),
    ([("#", BYTES + POLICY)], []),
    ([("#", MESSAGES + POLICY)], []),
    ([("#", POLICY), ("a.#", BYTES)], [f"6: {NO_LIMIT}"]),
    ([("#", BYTES + POLICY), ("a.#", MESSAGES)], []),
    ([("a.#", BYTES), ("b.#", POLICY)], [f"6: {NO_POLICY}", f"9: {NO_LIMIT}"]),
    ([("#", BYTES + POLICY), ("a", "<page-limit-bytes>-1</page-limit-bytes>")], [f"9: {NO_LIMIT}"]),
]


@pytest.mark.parametrize("entries, expected", HALVES)
def test_one_half_of_a_page_limit_is_a_warning(entries, expected):
    warnings = parse(QUIET, settings(*entries)).warnings
    assert warnings == tuple(f"{FILE}:{warning}" for warning in expected)


def test_literal_match_is_checked_as_its_address():
    markers = "<literal-match-markers>()</literal-match-markers>"
    entries = settings(("(a.#)", MESSAGES), ("a.#", POLICY + BYTES))
    assert parse(QUIET, markers, entries).warnings == ()
    assert len(parse(QUIET, markers, settings(("(a.#)", MESSAGES))).warnings) == 1


def test_journal_and_pages_are_two_directories():
    same = "<journal-directory>data/x</journal-directory>", "<paging-directory>data/./x/</paging-directory>"
    assert faults(QUIET, *same) == [
        "5: <journal-directory> and <paging-directory> must be two different directories"
    ]
    assert len(faults(QUIET, "<journal-directory>data/paging</journal-directory>")) == 1
    parse(QUIET, "<journal-directory>data/j</journal-directory>")
