"""Short spellings of the pieces of Python's own syntax tree that a compiled selector is made of."""

from __future__ import annotations

import ast

Expression = ast.expr

# Where it all stands, told to every node: looking through the whole tree for nodes that lack it, as the standard
# library would do for us, takes as long as all the rest.
_AT = {"lineno": 1, "col_offset": 0}

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
    return ast.Name(identifier, ast.Load(), **_AT)


def constant(value: object) -> Expression:
    return ast.Constant(value, **_AT)  # type: ignore[arg-type]  # frozenset is allowed, the stubs do not say so


def assign(identifier: str, value: Expression) -> Expression:
    """``(identifier := value)``"""
    return ast.NamedExpr(ast.Name(identifier, ast.Store(), **_AT), value, **_AT)


def call(function: str, *arguments: Expression) -> Expression:
    return ast.Call(name(function), list(arguments), [], **_AT)


def method(target: Expression, function: str, *arguments: Expression) -> Expression:
    return ast.Call(ast.Attribute(target, function, ast.Load(), **_AT), list(arguments), [], **_AT)


def compare(left: Expression, operator: str, right: Expression) -> Expression:
    return ast.Compare(left, [_OPERATORS[operator]()], [right], **_AT)


def both(*parts: Expression) -> Expression:
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), list(parts), **_AT)


def either(*parts: Expression) -> Expression:
    return parts[0] if len(parts) == 1 else ast.BoolOp(ast.Or(), list(parts), **_AT)


def negated(part: Expression) -> Expression:
    return ast.UnaryOp(ast.Not(), part, **_AT)


def choice(test: Expression, then: Expression, otherwise: Expression) -> Expression:
    """``then if test else otherwise``"""
    return ast.IfExp(test, then, otherwise, **_AT)


def is_text(value: Expression) -> Expression:
    """``isinstance(value, str)``"""
    return call("isinstance", value, name("str"))
