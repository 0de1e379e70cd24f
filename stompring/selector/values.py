"""Comparison and arithmetic of values at run time.

``None`` is SQL's unknown: a missing property, text that is not a number although a number is needed, or operands of
different types. Header values are text: with conversion (the default), an operator reads text as a number if its other
operand is a number, and as a boolean if its other operand is a boolean.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

Numeric = int | float
Value = str | int | float | bool | None

NUMBER_LENGTH = (
    100  # characters; longer text is not read as a number: int() of long text takes quadratic time
)
CACHED_LENGTH = 32  # characters; longer text is not cached
CACHED_NUMBERS = 4096
TEXT_LENGTH = 128 * 1024  # maximum characters of a concatenation: twice the longest header

_LEAST_LONG, _GREATEST_LONG = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?").fullmatch
_BOOLEANS = {"true": True, "false": False}


def parse_number(text: str) -> Numeric | None:
    """Return the number in a text, or None. Plain decimal notation only: no blanks, underscores, ``inf``, ``0x``."""
    if len(text) > NUMBER_LENGTH:
        return None
    found = _NUMBER(text)
    if found is None:
        return None
    whole = found.lastindex is None
    return int(text) if whole else float(text)


cached_number = lru_cache(CACHED_NUMBERS)(parse_number)


def number(value: Value) -> Numeric | None:
    """Return the value as a number, converted from text if necessary; None if it is not a number."""
    if isinstance(value, str):
        return cached_number(value) if len(value) <= CACHED_LENGTH else parse_number(value)
    return plain_number(value)


def plain_number(value: Value) -> Numeric | None:
    """Return the value if it is a number; None for text, booleans and NaN."""
    if value is None or isinstance(value, (str, bool)) or value != value:
        return None
    return value


def boolean(value: Value) -> bool | None:
    """Return a boolean, or the boolean that the text ``true`` or ``false`` (ignoring case) stands for; else None."""
    if isinstance(value, str):
        return _BOOLEANS.get(value.lower()) if len(value) <= 5 else None
    return plain_boolean(value)


def plain_boolean(value: Value) -> bool | None:
    """Return the value if it is a boolean, else None."""
    return value if value is True or value is False else None


def _alike(left: Value, right: Value, text: bool, convert: bool) -> tuple[Value, Value] | None:
    """Convert two values to a common type. Return None if there is no common type, or if a value is unknown."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        if text or not convert:
            return left, right
        left_number, right_number = number(left), number(right)
        return (left, right) if left_number is None or right_number is None else (left_number, right_number)
    read: Callable[[Value], Value]
    if isinstance(left, bool) or isinstance(right, bool):
        read = boolean if convert else plain_boolean
    else:
        read = number if convert else plain_number
    left, right = read(left), read(right)
    return None if left is None or right is None else (left, right)


def equal(left: Value, right: Value, text: bool, convert: bool) -> bool | None:
    """Evaluate ``left = right``. ``text``: one side is a string constant, so that strings compare as strings."""
    pair = _alike(left, right, text, convert)
    return None if pair is None else pair[0] == pair[1]


def order(left: Value, right: Value, text: bool, convert: bool) -> int | None:
    """Return -1, 0 or 1 if left is less than, equal to or greater than right. Booleans have no order: None."""
    pair = _alike(left, right, text, convert)
    if pair is None or isinstance(pair[0], bool):
        return None
    first, second = pair
    return int(first > second) - int(first < second)  # type: ignore[operator]  # _alike gives one type


def plus(left: Value, right: Value, text: bool, convert: bool) -> str | Numeric | None:
    """Evaluate ``+`` of values whose types are not known statically: add two numbers, else concatenate two texts."""
    pair = _alike(left, right, text, convert)
    if pair is None or isinstance(pair[0], bool):
        return None
    first, second = pair
    if isinstance(first, str) and isinstance(second, str):
        return first + second if len(first) + len(second) <= TEXT_LENGTH else None
    return add(first, second)  # type: ignore[arg-type]


def _bounded(result: Numeric) -> Numeric | None:
    """Convert an integer beyond 64 bits to a double instead of wrapping around. NaN becomes None (unknown)."""
    if isinstance(result, int):
        return result if _LEAST_LONG <= result <= _GREATEST_LONG else float(result)
    return result if result == result else None


def add(left: Numeric | None, right: Numeric | None) -> Numeric | None:
    return None if left is None or right is None else _bounded(left + right)


def subtract(left: Numeric | None, right: Numeric | None) -> Numeric | None:
    return None if left is None or right is None else _bounded(left - right)


def multiply(left: Numeric | None, right: Numeric | None) -> Numeric | None:
    return None if left is None or right is None else _bounded(left * right)


def divide(left: Numeric | None, right: Numeric | None) -> float | None:
    """Divide as doubles, as in Artemis; a division by zero is infinite (0/0 is unknown)."""
    if left is None or right is None:
        return None
    if right == 0:
        if left == 0:
            return None
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    quotient = left / right
    return quotient if quotient == quotient else None


def remainder(left: Numeric | None, right: Numeric | None) -> float | None:
    """Return the remainder as a double with the sign of the dividend, as in Java; unknown for a division by zero."""
    if left is None or right is None or right == 0 or math.isinf(left):
        return None
    return math.fmod(left, right)


def negative(value: Numeric | None) -> Numeric | None:
    return None if value is None else _bounded(-value)


def all3(*parts: bool | None) -> bool | None:
    """AND in SQL-92's three-valued logic."""
    if False in parts:
        return False
    return None if None in parts else True


def any3(*parts: bool | None) -> bool | None:
    """OR in SQL-92's three-valued logic."""
    if True in parts:
        return True
    return None if None in parts else False


def not3(part: bool | None) -> bool | None:
    """NOT in SQL-92's three-valued logic."""
    return None if part is None else not part
