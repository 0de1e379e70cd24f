"""Short spellings of the pieces of Python's own syntax tree that a compiled selector is made of."""

from __future__ import annotations

import ast

Expression = ast.expr

_OPERATORS: dict[str, type[ast.cmpop]] = {
    "=": ast.Eq,
    "<>": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
    "is": ast.Is,
    "is not": ast.IsNot,
    "in": ast.In,
    "not in": ast.NotIn,
}


def name(identifier: str) -> Expression:
    return ast.Name(identifier, ast.Load())


def constant(value: object) -> Expression:
    return ast.Constant(value)  # type: ignore[arg-type]  # frozenset is allowed, the stubs do not say so


def assign(identifier: str, value: Expression) -> Expression:
    """``(identifier := value)``"""
    return ast.NamedExpr(ast.Name(identifier, ast.Store()), value)


def call(function: str, *arguments: Expression) -> Expression:
    return ast.Call(name(function), list(arguments), [])


def method(target: Expression, function: str, *arguments: Expression) -> Expression:
    return ast.Call(ast.Attribute(target, function, ast.Load()), list(arguments), [])


def compare(left: Expression, operator: str, right: Expression) -> Expression:
    return ast.Compare(left, [_OPERATORS[operator]()], [right])


def both(*parts: Expression) -> Expression:
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), list(parts))


def either(*parts: Expression) -> Expression:
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.Or(), list(parts))


def negated(part: Expression) -> Expression:
    return ast.UnaryOp(ast.Not(), part)


def choice(test: Expression, then: Expression, otherwise: Expression) -> Expression:
    """``then if test else otherwise``"""
    return ast.IfExp(test, then, otherwise)


def is_text(value: Expression) -> Expression:
    """``isinstance(value, str)``"""
    return call("isinstance", value, name("str"))
