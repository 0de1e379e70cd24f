"""LIKE: each shape of pattern, escapes, and that no pattern takes for ever."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stompring.selector.codegen import Check, Shape, like_test
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


@pytest.mark.parametrize(
    ("text", "pattern", "escape", "expected"),
    [
        ("'In God We Trust'", "'In G_d We Trust'", None, True),
        ("'In God We Trust'", "'In Gd_ We Trust'", None, False),
        ("_foo", "!_%", "!", True),
        ("'In", "!_%", "!", False),
        ("!#$&()*+,-./:;<=>?@[\\]^`{|}~", "!#$&()*+,-./:;<=>?@[\\]^`{|}~", None, True),
        ("a.c", "a.c_", None, False),
        ("a\nc", "a_c", None, True),
        ("a\nb\n", "a%_", None, True),
        ("ac\n", "_c", None, False),
        ("_foo", "%_%", "%", True),
        ("XD7xlJIQn_", "_D7xlJIQn$_", "$", True),
        ("XD7xlJIQn_", "_D7xlJIQn__", "_", True),
        ("XD7xlJIQn_", "%D7xlJIQn%_", "%", True),
        ("XD7xlJIQn_", "%D7xlJIQn%", "%", True),
        ("XD7xlJIQn_", "%D7xlJIQn%%", "%", False),
        ("XD7xlJIQn_", "%D7xlJIQn\\_", "\\", True),
        ("a!b", "a!b", "!", True),
        ("a!b", "a!!b", "!", True),
        ("ab!", "ab!", "!", True),
        ("aXbXcXd", "a%X%X%d", None, True),
        ("aXbXd", "a%X%X%Xd", None, False),
    ],
)
def test_patterns(text, pattern, escape, expected):
    assert matches(like_test(pattern, escape), text) is expected


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
