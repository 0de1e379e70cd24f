"""Suggestions."""

import pytest

from stompring.settings.document import closest_match, with_suggestion

KNOWN = ("ring-size", "ring-policy", "max-consumers")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("ring-sise", "ring-size"),
        ("RINGSIZE", "ring-size"),
        ("ringPolicy", "ring-policy"),
        ("wibble", None),
        ("", None),
    ],
)
def test_nearest(name, expected):
    assert closest_match(name, KNOWN) == expected


def test_unknown_lists_the_few():
    assert with_suggestion("what", "ring-sise", KNOWN) == "what; did you mean 'ring-size'?"
    assert with_suggestion("what", "wibble", KNOWN) == "what; known: max-consumers, ring-policy, ring-size"
    assert with_suggestion("what", "wibble", [f"name{n}" for n in range(9)]) == "what"
    assert with_suggestion("what", "wibble", []) == "what"
