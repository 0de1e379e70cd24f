"""Suggestions."""

from __future__ import annotations

import pytest

from stompring.settings.nearest import nearest, unknown

KNOWN = ("ring-size", "ring-policy", "max-consumers")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ring-sise", "ring-size"),
        ("RINGSIZE", "ring-size"),
        ("ringPolicy", "ring-policy"),
        ("wibble", None),
        ("", None),
    ],
)
def test_nearest(name: str, expected: str | None) -> None:
    assert nearest(name, KNOWN) == expected


def test_unknown_lists_the_few() -> None:
    assert unknown("what", "ring-sise", KNOWN) == "what; did you mean 'ring-size'?"
    assert unknown("what", "wibble", KNOWN) == "what; known here: max-consumers, ring-policy, ring-size"
    assert unknown("what", "wibble", [f"name{n}" for n in range(9)]) == "what"
    assert unknown("what", "wibble", []) == "what"
