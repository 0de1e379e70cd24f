"""Lexis, and the words in which a text that is no selector is refused."""

import pytest

from stompring.selector import InvalidSelector, compile_selector
from tests.selector.message import Message

LITERALS = [
    ("0", 0),
    ("5", 5),
    ("5L", 5),
    ("5l", 5),
    ("0L", 0),
    ("017", 15),
    ("00", 0),
    ("0x1F", 31),
    ("0X1f", 31),
    ("0x1FL", 31),
    ("5.", 5.0),
    (".5", 0.5),
    ("5.5", 5.5),
    ("05.5", 5.5),
    ("5E2", 500.0),
    ("5e+2", 500.0),
    ("5.5E-3", 0.0055),
    (".5e1", 5.0),
    ("1.E1", 10.0),
    ("4E10", 4e10),
    ("9223372036854775808", 2**63),
    ("-9223372036854775808", -(2**63)),
    ("- 5", -5),
    ("+5", 5),
    ("-(5)", -5),
    ("'5'", "5"),
    ("''", ""),
    ("'it''s'", "it's"),
    ("'''In God We Trust'''", "'In God We Trust'"),
    ("'a\nb -- /* \"'", 'a\nb -- /* "'),
    ("'é∞'", "é∞"),
    ("TRUE", True),
    ("tRuE", True),
    ("false", False),
]


@pytest.mark.parametrize("literal, value", LITERALS)
def test_literals(literal, value):
    selector = compile_selector(f"no_convert_string_expressions:a = {literal}")
    assert selector.matches(Message({"a": value}))
    assert not selector.matches(Message({"a": "other"}))


@pytest.mark.parametrize(
    "name",
    ["a", "A", "_", "$", "a1$_", "ANDROID", "nothing", "isnt", "in_", "größe", "страна", "色", "ñ2", "nulls"],
)
def test_names(name):
    selector = compile_selector(f"{name} = 'x'")
    assert selector.names == {name}
    assert selector.matches(Message({name: "x"}))


@pytest.mark.parametrize(
    "quoted, name",
    [
        ('"x.y"', "x.y"),
        ('"two words"', "two words"),
        ('"a""b"', 'a"b'),
        ('"AND"', "AND"),
        ('"5"', "5"),
        ('"é-\'"', "é-'"),
    ],
)
def test_quoted_names(quoted, name):
    assert compile_selector(f"{quoted} = 'x'").matches(Message({name: "x"}))


def test_names_heed_case_and_keywords_do_not():
    assert compile_selector("Color = 'x' aNd color = 'y' OR FALSE").matches(
        Message({"Color": "x", "color": "y"})
    )


@pytest.mark.parametrize(
    "text",
    [
        "a\t=\r\n\f 1",
        "a=1",
        "(a=1)AND(a=1)",
        "a = 1 -- all of it",
        "-- first\na = 1",
        "a /* here */ = /**/ /***/ 1 /* ** / */",
        "a = /* -- \n */ 1",
        "a = 1 -- /*",
        "a=1-- no blank needed",
        "a = 1AND a = 1",
    ],
)
def test_blanks_and_comments(text):
    assert compile_selector(text).matches(Message({"a": "1"}))
    assert not compile_selector(text).matches(Message({"a": "2"}))


OPERAND = "a property, constant or '('"
REFUSED = [
    # grammar
    ("a = 1 AMD b = 2", "column 7: found 'AMD', expected an operator, AND, OR or the end"),
    ("prop1 = prop2 foo AND b = 1", "column 15: found 'foo', expected an operator, AND, OR or the end"),
    ("=TEST 'test'", f"column 1: found '=', expected {OPERAND}"),
    ("a =", f"column 4: found the end, expected {OPERAND}"),
    ("a = ,", f"column 5: found ',', expected {OPERAND}"),
    ("a AND", f"column 6: found the end, expected {OPERAND}"),
    ("AND a", f"column 1: found 'AND', expected {OPERAND}"),
    ("(a = 1", "column 7: found the end, expected ')'"),
    ("a = 1)", "column 6: found ')' without a matching '('"),
    ("()", f"column 2: found ')', expected {OPERAND}"),
    ("a LIKE b", "column 8: found 'b', expected a string"),
    ("a LIKE 'b' ESCAPE 5", "column 19: found '5', expected a string"),
    ("a IN 'b'", "column 6: found \"'b'\", expected '('"),
    ("a IN ()", "column 7: found ')', expected a string"),
    ("a IN ('b'", "column 10: found the end, expected ',' or ')'"),
    ("a IN ('b' 'c')", "column 11: found \"'c'\", expected ',' or ')'"),
    ("a IN (5)", "column 7: found '5', expected a string"),
    ("a IS 5", "column 6: found '5', expected NOT or NULL"),
    ("a IS NOT 5", "column 10: found '5', expected NULL"),
    ("a BETWEEN 1 OR 2", "column 13: found 'OR', expected AND"),
    ("a = NOT b", f"column 5: found 'NOT', expected {OPERAND} (NOT here needs parentheses)"),
    ("XPATH a", "column 7: found 'a', expected a string"),
    ("a = 'x' 'y'", "column 9: found \"'y'\", expected an operator, AND, OR or the end"),
    # characters
    ("a != 1", "column 3: found '!=', use <>"),
    ("a == 1", "column 3: found '==', use ="),
    ("a = 1 && b = 1", "column 7: found '&&', use AND"),
    ("a = 1 || b = 1", "column 7: found '||', use OR"),
    ("a = ?", "column 5: found '?', not allowed outside a string"),
    ("a.b = 1", "column 2: found '.', not allowed outside a string"),
    ("a = 1;\n", "column 6: found ';', not allowed outside a string"),
    ("a = 'x", "column 5: string is not closed"),
    ("a = 'it''s", "column 5: string is not closed"),
    ('"a = 1', "column 1: quoted property is not closed or empty"),
    ('"" = 1', "column 1: quoted property is not closed or empty"),
    ("a = 1 /* x", "column 7: comment is not closed"),
    ("/* x", "column 1: comment is not closed"),
    ("a = 08", "column 5: '08' starts with 0 but is not an octal number"),
    ("a = " + "1" * 101, "column 5: number longer than 100 digits"),
    # static checks
    ("3 + 5", "column 1: found a calculation, expected a condition as the whole selector"),
    ("5", "column 1: found number 5, expected a condition as the whole selector"),
    ("'x'", "column 1: found string 'x', expected a condition as the whole selector"),
    ("NULL", "column 1: found NULL, expected a condition as the whole selector"),
    ("True AND 3 + 5", "column 10: found a calculation, expected a condition beside AND"),
    ("a + b OR c", "column 1: found a calculation, expected a condition beside OR"),
    ("NOT 5", "column 5: found number 5, expected a condition after NOT"),
    ("a < 'x'", "column 5: string 'x' cannot be compared with <"),
    ("'x' >= a", "column 1: string 'x' cannot be compared with >="),
    ("a > TRUE", "column 5: TRUE cannot be compared with >"),
    ("a > (b = 1)", "column 6: a condition cannot be compared with >"),
    ("a < b < c", "column 1: a condition cannot be compared with <"),
    ("a > NULL", "column 5: NULL cannot be compared with >"),
    ("a BETWEEN 'a' AND 'b'", "column 11: string 'a' cannot be compared with BETWEEN"),
    ("a BETWEEN 1 AND FALSE", "column 17: FALSE cannot be compared with BETWEEN"),
    ("a = NULL", "column 5: NULL cannot be compared with =, use IS NULL"),
    ("NULL <> a", "column 1: NULL cannot be compared with <>, use IS NULL"),
    ("TRUE = 5", "column 1: TRUE cannot be compared with number 5"),
    ("'x' <> FALSE", "column 8: FALSE cannot be compared with string 'x'"),
    ("5 IN ('a')", "column 1: found number 5 before IN, expected a property"),
    ("a + b IN ('a')", "column 1: found a calculation before IN, expected a property"),
    ("a LIKE 'x' ESCAPE '!!'", "column 19: ESCAPE requires exactly one character, not '!!'"),
    ("a LIKE 'x' ESCAPE ''", "column 19: ESCAPE requires exactly one character, not ''"),
    ("TRUE LIKE 'x'", "column 1: TRUE cannot be compared with LIKE"),
    ("a + TRUE = 1", "column 5: TRUE cannot be an operand of +"),
    ("-(a = 1) = 1", "column 3: a condition cannot be an operand of -"),
    ("NULL * 1 = 1", "column 1: NULL cannot be an operand of *"),
    ("XQUERY '//a'", "column 1: XQUERY is not supported, use XPATH"),
    ("a = 1 AND XQUERY 'x'", "column 11: XQUERY is not supported, use XPATH"),
    ("(" * 101 + "a" + ")" * 101, "column 102: nested deeper than 100 levels"),
    # the user's text is cut and stays on one line
    ("a = 1 " + "b" * 50, f"column 7: found '{'b' * 40}...', expected an operator, AND, OR or the end"),
    ("a = 1 '\n'", "column 7: found \"'\\n'\", expected an operator, AND, OR or the end"),
]


@pytest.mark.parametrize("text, message", REFUSED)
def test_refusals(text, message):
    with pytest.raises(InvalidSelector) as caught:
        compile_selector(text)
    assert str(caught.value) == message


def test_an_invalid_selector_does_not_harm_the_next():
    with pytest.raises(InvalidSelector):
        compile_selector("a = (b")
    assert compile_selector("a = 1").matches(Message({"a": "1"}))
