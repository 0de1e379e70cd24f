"""The front door: selectors as objects, prefixes, limits, and that nothing but InvalidSelector ever comes out."""

import subprocess
import sys
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.selector import InvalidSelector, Selector, compile_selector
from tests.property.profile import examples
from tests.selector.message import Message, outcome


def test_a_selector_knows_its_text_and_what_it_reads():
    selector = compile_selector("  color = 'red' OR \"x.y\" > other ")
    assert selector.text == "color = 'red' OR \"x.y\" > other"
    assert selector.names == {"color", "x.y", "other"}
    assert selector.reads_body is False
    assert compile_selector("XPATH 'a'").reads_body is True
    assert repr(selector) == f"Selector({selector.text!r})"


def test_one_text_is_one_object():
    assert compile_selector("shared = 1") is compile_selector(" shared = 1\n")
    assert isinstance(compile_selector("shared = 1"), Selector)


@pytest.mark.parametrize("text", ["", " ", "\t\r\n\f", "hyphenated_props:", " convert_string_expressions: "])
def test_an_empty_selector_is_refused(text):
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(text)
    assert str(caught.value) == "Selector cannot be empty"
    assert caught.value.column is None


NO_CONVERT = [
    ("age > 18", {"age": "21"}, "U"),
    ("age > 18", {"age": 21}, "T"),
    ("age = '21'", {"age": "21"}, "T"),
    ("age = '21'", {"age": 21}, "U"),
    ("age <> '21'", {"age": "22"}, "T"),
    ("a = b", {"a": "1", "b": "1.0"}, "F"),
    ("a < b", {"a": "10", "b": "9"}, "T"),
    ("a = b", {"a": "1", "b": 1}, "U"),
    ("flag = TRUE", {"flag": "true"}, "U"),
    ("flag = TRUE", {"flag": True}, "T"),
    ("flag", {"flag": "true"}, "U"),
    ("flag", {"flag": True}, "T"),
    ("a + b = '12'", {"a": "1", "b": "2"}, "T"),
    ("a + 1 = 2", {"a": "1"}, "U"),
    ("a + 1 = 2", {"a": 1}, "T"),
    ("-a = -1", {"a": "1"}, "U"),
    ("'1' * 1 IS NULL", {}, "T"),
    ("color LIKE 'r%'", {"color": "red"}, "T"),
]


@pytest.mark.parametrize("text, properties, expected", NO_CONVERT)
def test_without_conversion_headers_stay_text(text, properties, expected):
    assert outcome(f"no_convert_string_expressions:{text}", properties) == expected


@pytest.mark.parametrize(
    "prefixes, converts",
    [
        ("", True),
        ("convert_string_expressions:", True),
        ("no_convert_string_expressions:", False),
        ("no_convert_string_expressions:convert_string_expressions:", True),
        ("convert_string_expressions: no_convert_string_expressions:", False),
        ("hyphenated_props:no_convert_string_expressions:no_hyphenated_props:", False),
    ],
)
def test_the_last_of_contradicting_prefixes_counts(prefixes, converts):
    assert compile_selector(f"{prefixes}age > 18").matches(Message({"age": "21"})) is converts


def test_hyphenated_names():
    message = Message({"content-type": "x", "a": "5", "b": "3", "a-b": "x", "a--b": "y"})
    assert compile_selector("hyphenated_props:content-type = 'x'").matches(message)
    assert compile_selector("hyphenated_props:a-b = 'x' AND a--b = 'y' AND a - b = 2").matches(message)
    assert compile_selector("hyphenated_props:no_hyphenated_props:a-b = 2").matches(message)
    assert compile_selector("a-b = 2 AND \"a-b\" = 'x'").matches(message)


def test_columns_count_the_prefix():
    with pytest.raises(InvalidSelector, match=r"^column 21: found the end") as caught:
        compile_selector(" hyphenated_props:a =")
    assert caught.value.column == 21


def test_prefixes_are_exact_and_first():
    for text in ("Hyphenated_props:a = 1", "a = 1 hyphenated_props:", "(hyphenated_props:a = 1)"):
        with pytest.raises(InvalidSelector):
            compile_selector(text)


def test_length_limit():
    fitting = "a IN ('" + "x" * (8192 - len("a IN ('')")) + "')"
    assert len(fitting) == 8192
    assert compile_selector(fitting).matches(Message({"a": fitting[7:-2]}))
    with pytest.raises(InvalidSelector, match=r"^8193 characters long, the maximum is 8192$"):
        compile_selector(fitting + "-")


BOMBS = {
    "parentheses": "(" * 8000,
    "closed parentheses": "(" * 4000 + "a" + ")" * 4000,
    "NOT": "NOT " * 2000 + "a",
    "minus": "- " * 4000 + "1 = a",
    "sum": "1" + "+1" * 4000 + " = a",
    "equality": "a" + "=a" * 4000,
    "conditions within": "(" * 700 + "a = b" + ") = (c = d)" * 700,
    "comments": "/*" * 4000,
    "digits": "9" * 8000 + " = a",
    "comparisons": " OR ".join(["p=1"] * 900),
    "conditions compared": " OR ".join(["(p=1)=(q=2)"] * 500),
    "XPATHs": " OR ".join(["XPATH 'a'"] * 600),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(bomb):
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(BOMBS[bomb])
    assert len(str(caught.value)) < 200


def test_few_long_selectors_are_kept():
    texts = [f"a = 'x{number}' AND b IN ('{'y' * 512}')" for number in range(65)]
    first = compile_selector(texts[0])
    assert compile_selector(texts[0]) is first, "the same text is the same object"
    for text in texts[1:]:
        compile_selector(text)
    assert compile_selector(texts[0]) is not first


def test_wide_selectors_are_fine():
    wide = " OR ".join(f"p{number} = {number}" for number in range(500))
    assert compile_selector(wide).matches(Message({"p499": "499"}))
    assert not compile_selector(wide).matches(Message({"p499": "498"}))
    many = "a IN (" + ", ".join(f"'{number}'" for number in range(900)) + ")"
    assert compile_selector(many).matches(Message({"a": "899"}))


@pytest.mark.parametrize(
    "start, end",
    [
        ("(", ")"),
        ("NOT (", ")"),
        ("(1 = 1) = (", ")"),
        ("a = 1 AND (b = 2 OR ", ")"),
        ("a = 1 OR NOT (b = 2 AND ", ")"),
    ],
)
def test_the_deepest_allowed_nesting_compiles(start, end):
    """At half the depth at least, for each construct nests more than one level; and from deep in someone's stack."""

    def from_depth(depth):
        return (
            from_depth(depth - 1) if depth else compile_selector(text).matches(Message({"a": "1", "b": "2"}))
        )

    levels = 24
    text = start * levels + "a = 1" + end * levels
    assert from_depth(200) is True


def test_compiling_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in ("1 IS NULL", "TRUE = TRUE", "'a' = 'b' OR 1 = 'x'", "'a' LIKE 'b%' AND NULL IS NULL"):
            compile_selector(text)


def test_importing_is_cheap():
    """Neither the grammar nor an XML library is loaded before there is a use for it."""
    code = (
        "import sys, stompring.selector as s; heavy = {'lark', 'elementpath', 'xml'};"
        "assert not heavy & set(sys.modules); s.compile_selector('a = 1');"
        "assert 'lark' in sys.modules and 'elementpath' not in sys.modules;"
        "s.compile_selector(\"XPATH 'a'\"); assert 'elementpath' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


WORDS = st.sampled_from(
    "a b x.y 'x' '' 'a%' 5 08 1.5e3 0x1F ( ) , = <> < <= > >= + - * / % AND OR NOT LIKE ESCAPE IN IS NULL TRUE FALSE "
    'BETWEEN XQUERY "q" " \' -- /* */ != \\ \x00 é ٣ hyphenated_props: convert_string_expressions:'.split(" ")
)


@examples(400, quick=100)
@given(text=st.text(max_size=60) | st.lists(WORDS, max_size=14).map(" ".join))
def test_any_text_compiles_or_is_refused_in_one_line(text):
    try:
        selector = compile_selector(text)
    except InvalidSelector as error:
        assert "\n" not in str(error) and len(str(error)) < 300
        assert error.column is None or 1 <= error.column <= len(text.strip()) + 1
    else:
        for properties in ({}, {"a": "5", "b": "x", "q": "true"}, {"a": 5, "b": 2.5, "q": True}):
            assert selector.matches(Message(properties)) in (True, False)
