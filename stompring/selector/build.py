"""From grammar rules to nodes: one method per rule of the grammar, called by lark while it parses.

Each gets the rule's children, tokens and finished nodes, an absent optional part being None.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stompring.selector import checks
from stompring.selector.invalid import InvalidSelector, shown
from stompring.selector.tree import (
    And,
    Arithmetic,
    Boolean,
    Compare,
    In,
    IsNull,
    Like,
    Negative,
    Node,
    Not,
    Null,
    Number,
    Or,
    Positive,
    Property,
    Text,
    XPath,
)
from stompring.selector.values import NUMBER_LENGTH

if TYPE_CHECKING:
    from lark import Token

Children = list[Any]


class Builder:
    """Stateless: one serves all selectors."""

    def start(self, children: Children) -> Node:
        return checks.condition(children[0], "as the whole selector")

    # -- logic

    def disjunction(self, children: Children) -> Node:
        parts = [checks.condition(part, "beside OR") for part in children[::2]]
        return checks.nest(Or(parts[0].column, parts), *parts)

    def conjunction(self, children: Children) -> Node:
        parts = [checks.condition(part, "beside AND") for part in children[::2]]
        return checks.nest(And(parts[0].column, parts), *parts)

    def negation(self, children: Children) -> Node:
        word, operand = children
        return checks.nest(Not(_column(word), checks.condition(operand, "after NOT")), operand)

    # -- comparisons

    def equality(self, children: Children) -> Node:
        left, operator, right = children
        checks.comparable(left, right, operator)
        return checks.nest(Compare(left.column, str(operator), left, right), left, right)

    def order(self, children: Children) -> Node:
        left, operator, right = children
        checks.orderable(operator, left, right)
        return checks.nest(Compare(left.column, str(operator), left, right), left, right)

    def null_test(self, children: Children) -> Node:
        operand, _, negated, _ = children
        return _negated(negated, checks.nest(IsNull(operand.column, operand), operand))

    def like(self, children: Children) -> Node:
        operand, negated, _, pattern, _, escape = children
        checks.textual(operand)
        sign = None if escape is None else _unquoted(escape)
        if sign is not None and len(sign) != 1:
            raise InvalidSelector(f"ESCAPE takes one character, not {shown(sign)}", _column(escape))
        return _negated(
            negated, checks.nest(Like(operand.column, operand, _unquoted(pattern), sign), operand)
        )

    def between(self, children: Children) -> Node:
        """``x BETWEEN a AND b`` is ``x >= a AND x <= b``."""
        operand, negated, _, low, _, high = children
        checks.orderable("BETWEEN", operand, low, high)
        bounds = [
            checks.nest(Compare(operand.column, ">=", operand, low), operand, low),
            checks.nest(Compare(operand.column, "<=", operand, high), operand, high),
        ]
        return _negated(negated, checks.nest(And(operand.column, bounds), *bounds))

    def membership(self, children: Children) -> Node:
        operand, negated, _, _, *strings = children
        values = frozenset(map(_unquoted, strings))
        return _negated(negated, checks.nest(In(operand.column, checks.member(operand), values), operand))

    # -- arithmetic

    def sum(self, children: Children) -> Node:
        left, operator, right = children
        checks.calculable(operator, left, right)
        return checks.nest(Arithmetic(left.column, str(operator), left, right), left, right)

    product = sum

    def sign(self, children: Children) -> Node:
        operator, operand = children
        checks.calculable(operator, operand)
        if isinstance(operand, Number):
            value = -operand.value if operator == "-" else operand.value
            return checks.nest(Number(_column(operator), value), operand)
        kind = Negative if operator == "-" else Positive
        return checks.nest(kind(_column(operator), operand), operand)

    # -- leaves

    def parenthesis(self, children: Children) -> Node:
        node: Node = children[1]
        return checks.nest(node, node)

    def text(self, children: Children) -> Node:
        return Text(_column(children[0]), _unquoted(children[0]))

    def number(self, children: Children) -> Node:
        return Number(_column(children[0]), _numeric(children[0]))

    def true(self, children: Children) -> Node:
        return Boolean(_column(children[0]), True)

    def false(self, children: Children) -> Node:
        return Boolean(_column(children[0]), False)

    def null(self, children: Children) -> Node:
        return Null(_column(children[0]))

    def property(self, children: Children) -> Node:
        return Property(_column(children[0]), children[0].value)

    def quoted(self, children: Children) -> Node:
        return Property(_column(children[0]), sys.intern(_unquoted(children[0])))

    def xpath(self, children: Children) -> Node:
        from stompring.selector.xpath import compile_xpath

        word, expression = children
        evaluate = compile_xpath(_unquoted(expression), _column(expression))
        return XPath(_column(word), evaluate, size=checks.XPATH_SIZE)

    def xquery(self, children: Children) -> Node:
        raise InvalidSelector("XQUERY is not supported, use XPATH", _column(children[0]))


def _negated(word: Token | None, node: Node) -> Node:
    """The node, within NOT where the word was there."""
    return node if word is None else checks.nest(Not(node.column, node), node)


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _unquoted(token: Token) -> str:
    """What stands between the quotes, doubled quotes made single."""
    quote = token[0]
    return str(token[1:-1].replace(quote * 2, quote))


def _numeric(token: Token) -> int | float:
    """A literal's value; a leading 0 means octal, as in Java. The ``L`` says nothing here."""
    if len(token) > NUMBER_LENGTH:
        raise InvalidSelector(f"number longer than {NUMBER_LENGTH} digits", _column(token))
    text = token.lower()
    if text.startswith("0x"):
        return int(text.removesuffix("l"), 16)
    if not text.removesuffix("l").isdigit():
        return float(text)
    digits = text.removesuffix("l")
    if digits[0] != "0":
        return int(digits)
    if digits.strip("01234567"):
        raise InvalidSelector(f"{shown(str(token))} starts with 0 but is no octal number", _column(token))
    return int(digits, 8)
