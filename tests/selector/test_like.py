"""LIKE: each shape of pattern, escapes, and that no pattern takes for ever."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompring.selector.compile import Check, Shape, like_test
from tests.selector.model import like


def matches(test, text):
    """What the generated code does with a test."""
    match test.shape:
        case Shape.EQUALS:
            return text == test.text
        case Shape.STARTS:
            return text.startswith(test.text)
        case Shape.ENDS:
            return text.endswith(test.text)
        case Shape.CONTAINS:
            return test.text in text
        case Shape.PATTERN:
            return re.fullmatch(test.text, text) is not None


@pytest.mark.parametrize(
    ("pattern", "escape", "shape", "text"),
    [
        ("", None, Shape.EQUALS, ""),
        ("abc", None, Shape.EQUALS, "abc"),
        ("a!%", "!", Shape.EQUALS, "a%"),
        ("abc%", None, Shape.STARTS, "abc"),
        ("abc%%", None, Shape.STARTS, "abc"),
        ("%abc", None, Shape.ENDS, "abc"),
        ("%abc%", None, Shape.CONTAINS, "abc"),
        ("%", None, Shape.CONTAINS, ""),
    ],
)
def test_simple_patterns_are_string_methods(pattern, escape, shape, text):
    assert like_test(pattern, escape) == Check(shape, text)


@settings(deadline=None)
@given(
    text=st.text("ab%_!\n.", max_size=8),
    pattern=st.text("ab%_!\n.", max_size=7),
    escape=st.none() | st.sampled_from("!%_a"),
)
@example(text="abab", pattern="%ab_%b", escape=None)
def test_every_pattern_agrees_with_trying_all_ways(text, pattern, escape):
    assert matches(like_test(pattern, escape), text) is like(text, pattern, escape)


def test_many_wildcards_do_not_multiply():
    """Backtracking over each % would take longer than the universe has."""
    test = like_test("%a_" * 50 + "%b", None)
    assert matches(test, "a" * 5000) is False
