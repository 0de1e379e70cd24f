"""The value of an expression that says what it is: literals, and arithmetic with them."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .static_module import Scope, StaticModules

#: Bits of a whole number, characters of a text. Who writes 9**9**9 gets to see what they wrote, and nobody waits.
LONGEST = 4096

#: Parts of an expression that are looked at.
MOST_STEPS = 1000

BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}

#: What may be called: all of them take a literal and are plain data.
CALLS: Mapping[str, Callable[[Any], Any]] = {
    "stompring.policy.Bytes": lambda value: value,
    "stompring.policy.Milliseconds": lambda value: value,
    "pathlib.Path": Path,
}


class NotLiteral(Exception):
    """Only running it would tell."""


def value_of(modules: StaticModules, scope: Scope, node: ast.expr) -> Any:
    """The value. Raises `NotLiteral`."""
    return _Evaluation(modules).value(scope, node, 0)


class _Evaluation:
    """Of one expression. Its steps are counted: constants that are made of constants may be of any number."""

    def __init__(self, modules: StaticModules) -> None:
        self._modules = modules
        self._steps = 0

    def value(self, scope: Scope, node: ast.expr, depth: int) -> Any:
        """The value of a part."""
        self._steps += 1
        if self._steps > MOST_STEPS or depth > StaticModules.DEEPEST:
            raise NotLiteral

        def inner(part: ast.expr) -> Any:
            return self.value(scope, part, depth + 1)

        match node:
            case ast.Constant(value=value):
                return _short(value)
            case ast.Tuple(elts=parts):
                return tuple(map(inner, parts))
            case ast.UnaryOp(op=sign, operand=operand):
                return _calculated(UNARY.get(type(sign)), inner(operand))
            case ast.BinOp(left=left, op=sign, right=right):
                return _binary(sign, inner(left), inner(right))
            case ast.Call(func=function, args=[only], keywords=[]):
                called = self._modules.resolve(scope, function)
                return _calculated(CALLS.get(called) if isinstance(called, str) else None, inner(only))
            case ast.Name() | ast.Attribute():
                found = self._modules.resolve(scope, node)
                if found == "math.inf":
                    return math.inf
                if isinstance(found, tuple):
                    return self.value(*found, depth + 1)
        raise NotLiteral


def _binary(sign: ast.operator, left: Any, right: Any) -> Any:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if not numbers and not (isinstance(sign, ast.Add) and type(left) is type(right)):
        raise NotLiteral
    if isinstance(left, int) and isinstance(right, int):
        if isinstance(sign, ast.LShift) and right > LONGEST:
            raise NotLiteral
        if isinstance(sign, ast.Pow) and left.bit_length() * right > LONGEST:
            raise NotLiteral
    return _calculated(BINARY.get(type(sign)), left, right)


def _calculated(call: Callable[..., Any] | None, *arguments: Any) -> Any:
    if call is None:
        raise NotLiteral
    try:
        return _short(call(*arguments))
    except (ArithmeticError, TypeError, ValueError):
        raise NotLiteral from None


def _short(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > LONGEST:
        raise NotLiteral
    if isinstance(value, str | bytes | tuple) and len(value) > LONGEST:
        raise NotLiteral
    return value
