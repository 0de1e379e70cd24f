"""LIKE: each shape of pattern, escapes, and that no pattern takes for ever."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.selector.message import outcome
from tests.selector.model import like


def matches(pattern, escape, text):
    escaping = "" if escape is None else f" ESCAPE '{escape}'"
    return outcome(f"a LIKE '{pattern}'{escaping}", {"a": text}) == "T"


@settings(deadline=None)
@given(
    text=st.text("ab%_!\n.", max_size=8),
    pattern=st.text("ab%_!\n.", max_size=7),
    escape=st.none() | st.sampled_from("!%_a"),
)
@example(text="abab", pattern="%ab_%b", escape=None)
@example(text="", pattern="%", escape=None)
@example(text="a%", pattern="a!%", escape="!")
@example(text="ab.a", pattern="ab%%", escape=None)
@example(text="bab", pattern="%ab", escape=None)
@example(text="bab", pattern="%a%", escape=None)
def test_every_pattern_agrees_with_trying_all_ways(text, pattern, escape):
    assert matches(pattern, escape, text) is like(text, pattern, escape)


def test_many_wildcards_do_not_multiply():
    """Backtracking over each % would take longer than the universe has."""
    assert not matches("%a_" * 50 + "%b", None, "a" * 5000)
