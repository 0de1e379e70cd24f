"""elementpath, held to XPath 1.0 and to a deadline. Importing this takes a quarter of a second: see ``xpath``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from copy import copy
from math import nan
from time import perf_counter
from typing import Any
from xml.etree.ElementTree import ElementTree  # nosec B405

from elementpath import XPath1Parser, XPathContext

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class OutOfTime(Exception):
    """The evaluation took longer than it may."""


class Dialect(XPath1Parser):
    """XPath 1.0 with the comparisons of its section 3.4, which the library does not make: ``@num = 1``.

    ``id()`` is left out: without a DTD there are no ids.
    """

    symbol_table: dict[str, Any] = dict(XPath1Parser.symbol_table)


def _compare(token: Any, context: XPathContext | None = None) -> bool:
    """XPath 1.0 section 3.4: booleans before numbers before strings; ``<`` and the like always numbers."""
    compare = _COMPARISONS[token.symbol]
    left, right = (list(side.atomization(copy(context))) for side in token)
    if any(len(side) == 1 and isinstance(side[0], bool) for side in (left, right)):
        left, right = ([token.boolean_value(list(side.select(copy(context))))] for side in token)
    numeric = token.symbol not in ("=", "!=") or any(_is_number(item) for item in (*left, *right))
    if numeric:
        left, right = [_number(item) for item in left], [_number(item) for item in right]
    return any(compare(one, other) for one in left for other in right)


def _is_number(item: object) -> bool:
    return not isinstance(item, (str, bool))


def _number(item: Any) -> float:
    """XPath's ``number()``: what is no number is NaN, which no comparison holds for."""
    try:
        return float(item)
    except ValueError:
        return nan


for _symbol in _COMPARISONS:
    _base = XPath1Parser.symbol_table[_symbol]
    Dialect.symbol_table[_symbol] = type(_base.__name__, (_base,), {"evaluate": _compare})
del Dialect.symbol_table["id"]


def compile_expression(dialect: Dialect, expression: str) -> Any:
    """The root token of an expression, which evaluates and tells the truth value of what came out."""
    token = dialect.parse(expression)
    for part in token.iter():
        if part.symbol == "$":
            raise ValueError("variables are not known here")
    return token


class Evaluation(XPathContext):
    """A walk over one document. The library's iterators are what every evaluation passes through, so each asks."""

    def __init__(self, document: ElementTree, deadline: float) -> None:
        super().__init__(document)
        self._deadline = deadline

    def _timed(self, nodes: Iterator[Any]) -> Iterator[Any]:
        for node in nodes:
            if perf_counter() > self._deadline:
                raise OutOfTime
            yield node
        if perf_counter() > self._deadline:
            raise OutOfTime

    def iter_matching_nodes(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        return self._timed(super().iter_matching_nodes(*arguments, **named))

    def iter_children_or_self(self) -> Iterator[Any]:
        return self._timed(super().iter_children_or_self())

    def iter_descendants(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        return self._timed(super().iter_descendants(*arguments, **named))

    def iter_siblings(self, *arguments: Any, **named: Any) -> Iterator[Any]:
        return self._timed(super().iter_siblings(*arguments, **named))

    def iter_preceding(self) -> Iterator[Any]:
        return self._timed(super().iter_preceding())

    def iter_followings(self) -> Iterator[Any]:
        return self._timed(super().iter_followings())
