"""Conversions and three-valued functions on their own."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.selector import values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("007", 7),
        ("+5", 5),
        ("5.", 5.0),
        (".5", 0.5),
        ("-.5E+1", -5.0),
        ("1e999", math.inf),
        ("9" * 100, 10**100 - 1),
    ],
)
def test_texts_that_are_numbers(text, expected):
    found = values.number(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "x",
        "5 ",
        " 5",
        "5\n",
        "1_0",
        "0x1F",
        "5L",
        "5f",
        "1,5",
        "--5",
        ".",
        "e5",
        "5e",
        "inf",
        "NaN",
        "٥",
        "²",
        "9" * 101,
    ],
)
def test_texts_that_are_none(text):
    assert values.number(text) is None


@settings(deadline=None)
@given(st.integers(-(10**98), 10**98) | st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_is_read_back(number):
    assert values.number(str(number)) == number


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", True),
        ("False", False),
        ("TRUE", True),
        ("yes", None),
        ("", None),
        (1, None),
        (None, None),
        (True, True),
    ],
)
def test_booleans(value, expected):
    assert values.boolean(value) is expected
    assert values.plain_boolean(value) is (expected if isinstance(value, bool) else None)


def test_numbers_that_are_booleans_are_none():
    assert values.number(True) is None
    assert values.plain_number(False) is None


def test_long_headers_are_not_kept():
    values.cached_number.cache_clear()
    values.number("1" * (values.CACHED_LENGTH + 1))
    assert values.cached_number.cache_info().currsize == 0
    values.number("1" * values.CACHED_LENGTH)
    assert values.cached_number.cache_info().currsize == 1


def test_beyond_64_bits_arithmetic_goes_on_in_doubles():
    most = 2**63 - 1
    assert values.add(most, 0) == most and isinstance(values.add(most, 0), int)
    assert values.add(most, 1) == float(2**63) and isinstance(values.add(most, 1), float)
    assert values.subtract(-most, 2) == -float(2**63)
    assert values.multiply(10**99, 10**99) == pytest.approx(1e198)
    assert values.multiply(1e308, 10) == math.inf


def test_joined_text_has_a_limit():
    half = "x" * (values.TEXT_LENGTH // 2)
    assert values.plus(half, half, True, True) == half * 2
    assert values.plus(half, half + "x", True, True) is None
