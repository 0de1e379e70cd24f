"""What operators give, for every kind of operand, missing ones included."""

from itertools import product

import pytest

from stompring.selector import compile_selector
from tests.selector.message import Message, outcome

# A condition that is true, false or unknown on the message below.
LOGIC = {"T": "n = 1", "F": "n = 2", "U": "missing = 1"}
PROPERTIES = {"n": "1", "text": "abc", "flag": "true", "number": 5, "yes": True}

AND = {"TT": "T", "TF": "F", "TU": "U", "FT": "F", "FF": "F", "FU": "F", "UT": "U", "UF": "F", "UU": "U"}
OR = {"TT": "T", "TF": "T", "TU": "T", "FT": "T", "FF": "F", "FU": "U", "UT": "T", "UF": "U", "UU": "U"}
NOT = {"T": "F", "F": "T", "U": "U"}


@pytest.mark.parametrize("states", list(product("TFU", repeat=3)), ids="".join)
def test_logic_of_three_and_its_value_inside_a_comparison(states):
    """The value of a condition comes from other code than its truth: hold one against the other."""
    first, second, third = (LOGIC[state] for state in states)
    for text, expected in (
        (f"{first} AND {second} OR NOT ({third})", OR[AND[states[0] + states[1]] + NOT[states[2]]]),
        (f"({first} OR {second}) AND {third}", AND[OR[states[0] + states[1]] + states[2]]),
    ):
        assert outcome(text, PROPERTIES) == expected
        assert outcome(f"({text}) = (n = 1)", PROPERTIES) == expected
        assert outcome(f"({text}) <> (n = 1)", PROPERTIES) == NOT[expected]
        assert outcome(f"({text}) IS NULL", PROPERTIES) == ("T" if expected == "U" else "F")


@pytest.mark.parametrize("left", "TFU")
@pytest.mark.parametrize("right", "TFU")
def test_equality_of_conditions(left, right):
    expected = "U" if "U" in left + right else "T" if left == right else "F"
    assert outcome(f"({LOGIC[left]}) = ({LOGIC[right]})", PROPERTIES) == expected
    assert outcome(f"({LOGIC[left]}) <> ({LOGIC[right]})", PROPERTIES) == NOT[expected]


# "=", "<>", "<", "<=", ">", ">=" of each pair. "." is refused when compiling.
COMPARISONS = [
    # header and number
    ("age", "18", {"age": "18"}, "TFFTFT"),
    ("age", "18", {"age": "18.0"}, "TFFTFT"),
    ("age", "18", {"age": "+1.8e1"}, "TFFTFT"),
    ("age", "18", {"age": "9"}, "FTTTFF"),
    ("age", "18", {"age": "100"}, "FTFFTT"),
    ("age", "18", {"age": "eighteen"}, "UUUUUU"),
    ("age", "18", {}, "UUUUUU"),
    ("age", "18", {"age": 18}, "TFFTFT"),
    ("age", "18", {"age": float("nan")}, "UUUUUU"),
    ("age", "1", {"age": True}, "UUUUUU"),
    ("18", "age", {"age": "9"}, "FTFFTT"),
    ("18", "age", {}, "UUUUUU"),
    ("id", "9223372036854775807", {"id": "9223372036854775806"}, "FTTTFF"),
    ("id", "99999999999999999999", {"id": "99999999999999999998"}, "FTTTFF"),
    # header and string: no order with a string constant
    ("color", "'red'", {"color": "red"}, "TF...."),
    ("color", "'red'", {}, "UU...."),
    ("'red'", "color", {"color": "red"}, "TF...."),
    ("'red'", "color", {}, "UU...."),
    ("size", "'5'", {"size": "5"}, "TF...."),
    ("size", "'5'", {"size": "5.0"}, "FT...."),
    ("size", "'5'", {"size": 5}, "TF...."),
    ("size", "'5'", {"size": 6}, "FT...."),
    ("size", "'5'", {"size": True}, "UU...."),
    ("flag", "'true'", {"flag": True}, "TF...."),
    ("flag", "'true'", {"flag": False}, "FT...."),
    ("flag", "'true'", {"flag": "true"}, "TF...."),
    ("flag", "'true'", {"flag": 1}, "UU...."),
    # header and boolean
    ("flag", "TRUE", {"flag": "true"}, "TF...."),
    ("flag", "TRUE", {"flag": "False"}, "FT...."),
    ("flag", "FALSE", {"flag": "False"}, "TF...."),
    ("flag", "TRUE", {"flag": "yes"}, "UU...."),
    ("flag", "TRUE", {"flag": 1}, "UU...."),
    ("flag", "TRUE", {"flag": True}, "TF...."),
    ("flag", "TRUE", {}, "UU...."),
    ("TRUE", "flag", {"flag": "false"}, "FT...."),
    ("TRUE", "FALSE", {}, "FT...."),
    # header and header
    ("a", "b", {"a": "10", "b": "9"}, "FTFFTT"),
    ("a", "b", {"a": "10", "b": "9x"}, "FTTTFF"),
    ("a", "b", {"a": "abc", "b": "abd"}, "FTTTFF"),
    ("a", "b", {"a": "5", "b": 5}, "TFFTFT"),
    ("a", "b", {"a": "x", "b": 5}, "UUUUUU"),
    ("a", "b", {"a": "true", "b": True}, "TFUUUU"),
    ("a", "b", {"a": False, "b": True}, "FTUUUU"),
    ("a", "b", {"a": 1, "b": True}, "UUUUUU"),
    ("a", "b", {"a": "x"}, "UUUUUU"),
    ("a", "b", {"b": "x"}, "UUUUUU"),
    ("a", "b", {}, "UUUUUU"),
    # constants and calculations
    ("1", "'1'", {}, "TF...."),
    ("1", "'x'", {}, "UU...."),
    ("'a'", "'b'", {}, "FT...."),
    ("a + 1", "3", {"a": "2"}, "TFFTFT"),
    ("a + 1", "b * 2", {"a": "2", "b": "1"}, "FTFFTT"),
    ("a + 1", "b", {"a": "2"}, "UUUUUU"),
    ("a + 1", "b", {"a": "1", "b": "x"}, "UUUUUU"),
    ("a + ''", "5", {"a": "5.0"}, "TFFTFT"),
    ("a + ''", "b", {"a": "5.0", "b": "5"}, "FTFFTT"),
    ("-a", "-5", {"a": "5"}, "TFFTFT"),
    ("+a", "5", {"a": "05"}, "TFFTFT"),
]


@pytest.mark.parametrize("left, right, properties, expected", COMPARISONS)
def test_comparisons(left, right, properties, expected):
    for operator, result in zip(("=", "<>", "<", "<=", ">", ">="), expected, strict=True):
        if result == ".":
            with pytest.raises(ValueError, match="cannot be compared with"):
                compile_selector(f"{left} {operator} {right}")
        else:
            assert outcome(f"{left} {operator} {right}", properties) == result, operator


ARITHMETIC = [
    ("a + b = 5", {"a": "2", "b": "3"}, "T"),
    ("a + b = '5'", {"a": "2", "b": "3"}, "T"),  # the sum beside text that reads as a number
    ("a + b = '23'", {"a": "2", "b": "3"}, "F"),
    ("a + b = 'xy'", {"a": "x", "b": "y"}, "T"),
    ("a + b = 'x3'", {"a": "x", "b": "3"}, "T"),
    ("name + '!' = 'James!'", {"name": "James"}, "T"),
    ("name + 2 = 'James2'", {"name": "James"}, "U"),
    ("a + b = 'x'", {"a": "x", "b": 5}, "U"),
    ("a + b = 1", {"a": True, "b": 5}, "U"),
    ("a + b IS NULL", {"a": True, "b": False}, "T"),
    ("a - 1 = 1", {"a": "2"}, "T"),
    ("a * 2 = 5", {"a": "2.5"}, "T"),
    ("rank / version = 61.5", {"rank": "123", "version": "2"}, "T"),
    ("a % 3 = 1", {"a": "7"}, "T"),
    ("a % 3 = -1", {"a": "-7"}, "T"),
    ("a % 2.5 = 0.5", {"a": "3"}, "T"),
    ("1 / a > 1000", {"a": "0"}, "T"),
    ("1 / a < -1000", {"a": "-0.0"}, "T"),
    ("0 / a IS NULL", {"a": "0"}, "T"),
    ("5 % a IS NULL", {"a": "0"}, "T"),
    ("1 / a % 5 IS NULL", {"a": "0"}, "T"),
    ("5 % (1 / a) = 5", {"a": "0"}, "T"),
    ("1 / a - 1 / a IS NULL", {"a": "0"}, "T"),
    ("2 + 3 * 4 = 14", {}, "T"),
    ("(2 + 3) * 4 = 20", {}, "T"),
    ("10 - 4 - 3 = 3", {}, "T"),
    ("- - 5 = 5", {}, "T"),
    ("2 - -3 = 5", {}, "T"),
    ("-a = 5", {"a": "x"}, "U"),
    ("a + 1 > 9223372036854775807", {"a": "9223372036854775807"}, "T"),  # no wrap-around
    ("'5' * 2 = 10", {}, "T"),
    ("'x' * 2 IS NULL", {}, "T"),
    ("1e999 > a", {"a": "5"}, "T"),
]


@pytest.mark.parametrize("text, properties, expected", ARITHMETIC)
def test_arithmetic(text, properties, expected):
    assert outcome(text, properties) == expected


OTHERS = [
    # BETWEEN takes its bounds in
    ("price BETWEEN 1 AND 5", {"price": "1"}, "T"),
    ("price BETWEEN 1 AND 5", {"price": "5.0"}, "T"),
    ("price BETWEEN 1 AND 5", {"price": "5.01"}, "F"),
    ("price BETWEEN 1 AND 5", {}, "U"),
    ("price NOT BETWEEN 1 AND 5", {"price": "0"}, "T"),
    ("price BETWEEN 5 AND 1", {"price": "3"}, "F"),
    ("5 BETWEEN low AND high", {"low": "4"}, "U"),
    ("5 BETWEEN low AND high", {"low": "6"}, "F"),  # false whatever high is
    ("5 BETWEEN low AND high", {"low": "4", "high": "6"}, "T"),
    ("word BETWEEN low AND high", {"word": "bee", "low": "ant", "high": "cat"}, "T"),
    ("a + 1 BETWEEN b - 1 AND b + 1", {"a": "1", "b": "2"}, "T"),
    # IN
    ("color IN ('red', 'blue')", {"color": "blue"}, "T"),
    ("color IN ('red', 'blue')", {"color": "green"}, "F"),
    ("size IN ('5')", {"size": 5}, "U"),
    ("size IN ('5')", {"size": "5"}, "T"),
    ("size IN ('5')", {"size": "5.0"}, "F"),
    ("color NOT IN ('red')", {"color": "green"}, "T"),
    ("color NOT IN ('red')", {}, "U"),
    # IS NULL
    ("color IS NULL", {}, "T"),
    ("color IS NULL", {"color": ""}, "F"),
    ("color IS NOT NULL", {"color": ""}, "T"),
    ("color + 1 IS NULL", {"color": "red"}, "T"),
    ("5 IS NULL", {}, "F"),
    ("NULL IS NULL", {}, "T"),
    # LIKE
    ("color LIKE 'r%'", {"color": "red"}, "T"),
    ("color LIKE 'r%'", {}, "U"),
    ("color LIKE '%'", {"color": 5}, "F"),
    ("color NOT LIKE '%'", {"color": 5}, "T"),
    ("color NOT LIKE 'r%'", {"color": "blue"}, "T"),
    ("color + 'x' LIKE '%dx'", {"color": "red"}, "T"),
    ("'abc' LIKE 'a_c'", {}, "T"),
    ("5 LIKE '5'", {}, "F"),
    # a bare property
    ("flag", {"flag": "true"}, "T"),
    ("flag", {"flag": "FALSE"}, "F"),
    ("flag", {"flag": True}, "T"),
    ("flag", {"flag": 1}, "U"),
    ("flag", {}, "U"),
    ("(flag) AND NOT other", {"flag": "true", "other": "false"}, "T"),
    ("TRUE", {}, "T"),
    ("FALSE", {}, "F"),
    # precedence: NOT below comparisons, AND above OR
    ("NOT a = 'x'", {"a": "y"}, "T"),
    ("NOT a = 'x' AND b = 'y'", {"a": "z", "b": "y"}, "T"),
    ("NOT a = 'x' AND b = 'y'", {"a": "x", "b": "z"}, "F"),
    ("NOT a BETWEEN 1 AND 2 AND b = 1", {"a": "3", "b": "1"}, "T"),
    ("a = 1 OR b = 1 AND c = 1", {"a": "1", "b": "2", "c": "2"}, "T"),
    ("(a = 1 OR b = 1) AND c = 1", {"a": "1", "b": "2", "c": "2"}, "F"),
    ("a = 1 = TRUE", {"a": "1"}, "T"),
    ("a > 1 = b > 1", {"a": "0", "b": "0"}, "T"),
    ("(a = 1) = b", {"a": "1", "b": "true"}, "T"),
    ("(a = 1) = 'false'", {"a": "2"}, "T"),
    ("(a = 1) = 5", {"a": "1"}, "U"),
    ("(XPATH 'r/a') = (n = 1)", {"n": "1"}, "T"),
]


@pytest.mark.parametrize("text, properties, expected", OTHERS)
def test_other_operators(text, properties, expected):
    assert outcome(text, properties, b"<r><a/></r>") == expected


@pytest.mark.parametrize(
    "text, properties, asked",
    [
        ("price > 1 AND price < 5 AND price <> 3", {"price": "4"}, ["price"]),
        ("NOT (a = 1 OR b = 1) AND a = 2 AND b = 2", {"a": "2", "b": "2"}, ["a", "b"]),
        (
            "color LIKE 'r%' AND (color = 'red' OR color IN ('x')) AND color IS NOT NULL",
            {"color": "red"},
            ["color"],
        ),
        ("a = 'x' AND b = 'y'", {"b": "y"}, ["a"]),
        ("a = 'x' OR b = 'y'", {"a": "x"}, ["a"]),
        ("XPATH 'r' AND XPATH 'r/a'", {}, ["BODY"]),
        ("a = 'x' AND XPATH 'r'", {}, ["a"]),
    ],
)
def test_nothing_is_fetched_twice_or_needlessly(text, properties, asked):
    message = Message(properties, b"<r><a/></r>")
    compile_selector(text).matches(message)
    assert message.asked == asked


def test_whatever_a_message_raises_is_no_match():
    class Broken(Message):
        def get_property(self, name):
            raise KeyError(name)

    assert compile_selector("a = 'x'").matches(Broken({})) is False
    assert compile_selector("NOT a = 'x'").matches(Broken({})) is False
