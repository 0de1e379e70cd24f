"""elementpath restricted to XPath 1.0, with a deadline.

The import of elementpath takes a quarter of a second: `xpath` imports this module at the first XPATH.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from copy import copy
from math import nan
from time import perf_counter
from typing import Any
from xml.etree.ElementTree import ElementTree  # nosec B405

from elementpath import XPath1Parser, XPathContext

#: Maximum number of characters of a concatenation.
CONCATENATION = 128 * 1024

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class LimitExceeded(Exception):
    """The evaluation exceeded its time or memory limit."""


class Dialect(XPath1Parser):
    """XPath 1.0 with the comparisons of its section 3.4 (``@num = 1``), which the library lacks.

    It limits the length of ``concat()``, and has no ``id()``: without a DTD there are no ids.
    """

    symbol_table: dict[str, Any] = dict(XPath1Parser.symbol_table)


def _compare(token: Any, context: XPathContext | None = None) -> bool:
    """Compare by XPath 1.0 section 3.4: as booleans if one operand is a boolean, else as numbers if one is a number,
    else as strings; ``<`` and the other orders always compare numbers.
    """
    symbol = token.symbol
    left, right = (list(side.atomization(copy(context))) for side in token)
    if any(len(side) == 1 and isinstance(side[0], bool) for side in (left, right)):
        left, right = ([token.boolean_value(list(side.select(copy(context))))] for side in token)
    if symbol in _ORDERS or any(_is_number(item) for item in (*left, *right)):
        left, right = [_number(item) for item in left], [_number(item) for item in right]
    return bool(left and right) and _any_pair(symbol, left, right)


def _any_pair(symbol: str, left: list[Any], right: list[Any]) -> bool:
    """Return whether a comparison is true for any pair of two non-empty lists, in linear time."""
    if symbol == "!=":
        return left[0] != left[0] or right[0] != right[0] or len({*left, *right}) > 1
    left, right = [item for item in left if item == item], [item for item in right if item == item]  # no NaN
    if symbol == "=":
        return not set(left).isdisjoint(right)
    if not left or not right:
        return False
    ends = (min(left), max(right)) if symbol[0] == "<" else (max(left), min(right))
    return _ORDERS[symbol](*ends)


def _concat(token: Any, context: XPathContext | None = None) -> str:
    """Concatenate strings (XPath 1.0 section 4.2), up to a limit: an expression may contain the document many times."""
    parts: list[str] = []
    length = 0
    for index in range(len(token)):
        part = token.string_value(token.get_argument(context, index=index))
        length += len(part)
        if length > CONCATENATION:
            raise LimitExceeded(f"a concatenation is longer than {CONCATENATION} characters")
        parts.append(part)
    return "".join(parts)


def _is_number(item: object) -> bool:
    return not isinstance(item, (str, bool))


def _number(item: Any) -> float:
    """XPath's ``number()``: NaN if it is not a number."""
    try:
        return float(item)
    except ValueError:
        return nan


for _symbol, _evaluate in {**dict.fromkeys(("=", "!=", *_ORDERS), _compare), "concat": _concat}.items():
    _base = XPath1Parser.symbol_table[_symbol]
    Dialect.symbol_table[_symbol] = type(_base.__name__, (_base,), {"evaluate": _evaluate})
del Dialect.symbol_table["id"]


_dialect = Dialect()


def compile_expression(expression: str) -> Any:
    """Return the root token of an expression. Raises an exception of the library if the expression is invalid."""
    token = _dialect.parse(expression)
    for part in token.iter():
        if part.symbol == "$":
            raise ValueError("variables are not supported")
    return token


def _timed(method: Callable[..., Iterator[Any]]) -> Any:
    """Wrap an iterator of the library so that it checks the deadline."""

    def iterate(context: Evaluation, *arguments: Any, **named: Any) -> Iterator[Any]:
        for node in method(context, *arguments, **named):
            if perf_counter() > context.deadline:
                raise LimitExceeded
            yield node
        if perf_counter() > context.deadline:
            raise LimitExceeded

    return iterate


class Evaluation(XPathContext):
    """An evaluation on one document. Every iterator of the library checks the deadline."""

    def __init__(self, document: ElementTree, deadline: float) -> None:
        super().__init__(document)
        self.deadline = deadline


for _axis in ("matching_nodes", "children_or_self", "descendants", "siblings", "preceding", "followings"):
    setattr(Evaluation, f"iter_{_axis}", _timed(getattr(XPathContext, f"iter_{_axis}")))
