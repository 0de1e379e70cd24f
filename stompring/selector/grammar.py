"""The grammar of selectors for lark's LALR parser, the builder of the syntax tree, and error messages.

Artemis's grammar with the precedence of SQL-92: NOT binds less than any comparison, so ``NOT a = 'x'`` is
``NOT (a = 'x')``.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from .syntax_tree import (
    XPATH_SIZE,
    And,
    Arithmetic,
    Boolean,
    Compare,
    In,
    InvalidSelector,
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
    comparable,
    condition,
    description,
    nest,
    shown,
    valued,
)
from .values import NUMBER_LENGTH

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "TRUE", "FALSE", "NULL", "XPATH", "XQUERY")
)

# One regular expression for all numbers: lark takes the first terminal that matches, not the longest match.
_NUMBER = (
    r"0[xX][0-9a-fA-F]+[lL]?"
    r"|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
    r"|[0-9]+[eE][+-]?[0-9]+"
    r"|[0-9]+[lL]?"
)

GRAMMAR = r"""
start: _or

_or: disjunction | _and
disjunction: _and (OR _and)+
_and: conjunction | _not
conjunction: _not (AND _not)+
_not: negation | _equality
negation: NOT _not

_equality: equality | null_test | _comparison
equality: _equality EQUALITY _comparison
null_test: _equality IS [NOT] NULL

_comparison: order | like | between | membership | _sum
order: _comparison ORDER _sum
like: _comparison [NOT] LIKE STRING [ESCAPE STRING]
between: _comparison [NOT] BETWEEN _sum AND _sum
membership: _comparison [NOT] IN OPEN STRING ("," STRING)* ")"

_sum: sum | _product
sum: _sum SIGN _product
_product: product | _unary
product: _product FACTOR _unary
_unary: sign | xpath | _primary
sign: SIGN _unary
xpath: (XPATH | XQUERY) STRING

_primary: text | number | boolean | null | property | quoted | parenthesis
text: STRING
number: NUMBER
boolean: TRUE | FALSE
null: NULL
property: NAME
quoted: QUOTED
parenthesis: OPEN _or ")"

EQUALITY: "=" | "<>"
ORDER: /<=|>=|<(?!>)|>/
SIGN: "+" | "-"
FACTOR: "*" | "/" | "%"
OPEN: "("
STRING: /'(?:[^']|'')*'(?!')/
QUOTED: /"(?:[^"]|"")+"(?!")/
NUMBER: /@NUMBER@/
NAME: /@NAME@/

LINE_COMMENT.2: /--[^\r\n]*/
BLOCK_COMMENT.2: /\/\*(?:[^*]|\*(?!\/))*\*\//
BLANK: /[ \t\r\n\f]+/

%declare @KEYWORDS@
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore BLANK
"""


@cache
def parser(hyphenated: bool) -> Lark:
    """Return the parser; with ``hyphenated`` names may contain a minus (Artemis, ``hyphenated_props:``)."""
    from lark import Lark

    first = r"(?:[^\W\d]|[$])"
    following = r"[\w$-]*" if hyphenated else r"[\w$]*"
    text = GRAMMAR.replace("@NUMBER@", _NUMBER).replace("@NAME@", first + following)
    text = text.replace("@KEYWORDS@", " ".join(sorted(KEYWORDS)))
    return Lark(text, parser="lalr", lexer="basic", transformer=Builder(), lexer_callbacks={"NAME": _keyword})


def _keyword(token: Token) -> Token:
    """Convert a name that is a keyword, in upper or lower case, to the keyword's token; intern other names."""
    from lark import Token

    word = token.upper()
    if word in KEYWORDS:
        return Token.new_borrow_pos(word, token, token)
    return Token.new_borrow_pos("NAME", sys.intern(str(token)), token)


Children = list[Any]


class Builder:
    """Builds nodes from the productions of the grammar. Stateless."""

    def start(self, children: Children) -> Node:
        return condition(children[0], "as the whole selector")

    # -- logic

    def disjunction(self, children: Children) -> Node:
        return _chain(Or, children)

    def conjunction(self, children: Children) -> Node:
        return _chain(And, children)

    def negation(self, children: Children) -> Node:
        word, operand = children
        return nest(Not(_column(word), condition(operand, "after NOT")), operand)

    # -- comparisons

    def equality(self, children: Children) -> Node:
        left, operator, right = children
        comparable(left, right, operator)
        return _compared(left, operator, right)

    def order(self, children: Children) -> Node:
        left, operator, right = children
        valued(f"compared with {operator}", left, right, no_text=True)
        return _compared(left, operator, right)

    def null_test(self, children: Children) -> Node:
        operand, _, negated, _ = children
        return _negated(negated, nest(IsNull(operand.column, operand), operand))

    def like(self, children: Children) -> Node:
        operand, negated, _, pattern, _, escape = children
        valued("compared with LIKE", operand)
        sign = None if escape is None else _unquoted(escape)
        if sign is not None and len(sign) != 1:
            raise InvalidSelector(
                f"ESCAPE requires exactly one character, not {shown(sign)}", _column(escape)
            )
        return _negated(negated, nest(Like(operand.column, operand, _unquoted(pattern), sign), operand))

    def between(self, children: Children) -> Node:
        """Build ``x >= a AND x <= b`` from ``x BETWEEN a AND b``."""
        operand, negated, _, low, _, high = children
        valued("compared with BETWEEN", operand, low, high, no_text=True)
        bounds = [_compared(operand, ">=", low), _compared(operand, "<=", high)]
        return _negated(negated, nest(And(operand.column, bounds), *bounds))

    def membership(self, children: Children) -> Node:
        operand, negated, _, _, *strings = children
        if not isinstance(operand, Property):
            raise InvalidSelector(
                f"found {description(operand)} before IN, expected a property", operand.column
            )
        values = frozenset(map(_unquoted, strings))
        return _negated(negated, nest(In(operand.column, operand, values), operand))

    # -- arithmetic

    def sum(self, children: Children) -> Node:
        left, operator, right = children
        valued(f"an operand of {operator}", left, right)
        return nest(Arithmetic(left.column, str(operator), left, right), left, right)

    product = sum

    def sign(self, children: Children) -> Node:
        operator, operand = children
        valued(f"an operand of {operator}", operand)
        if isinstance(operand, Number):
            value = -operand.value if operator == "-" else operand.value
            return nest(Number(_column(operator), value), operand)
        kind = Negative if operator == "-" else Positive
        return nest(kind(_column(operator), operand), operand)

    # -- leaves

    def parenthesis(self, children: Children) -> Node:
        node: Node = children[1]
        return nest(node, node)

    def text(self, children: Children) -> Node:
        return Text(_column(children[0]), _unquoted(children[0]))

    def number(self, children: Children) -> Node:
        return Number(_column(children[0]), _numeric(children[0]))

    def boolean(self, children: Children) -> Node:
        return Boolean(_column(children[0]), children[0].type == "TRUE")

    def null(self, children: Children) -> Node:
        return Null(_column(children[0]))

    def property(self, children: Children) -> Node:
        return Property(_column(children[0]), children[0].value)

    def quoted(self, children: Children) -> Node:
        return Property(_column(children[0]), sys.intern(_unquoted(children[0])))

    def xpath(self, children: Children) -> Node:
        from .xpath import compile_xpath

        word, expression = children
        if word.type == "XQUERY":
            raise InvalidSelector("XQUERY is not supported, use XPATH", _column(word))
        evaluate = compile_xpath(_unquoted(expression), _column(expression))
        return XPath(_column(word), evaluate, size=XPATH_SIZE)


def _chain(kind: type[And | Or], children: Children) -> Node:
    parts = [condition(part, f"beside {kind.__name__.upper()}") for part in children[::2]]
    return nest(kind(parts[0].column, parts), *parts)


def _compared(left: Node, operator: str, right: Node) -> Node:
    return nest(Compare(left.column, str(operator), left, right), left, right)


def _negated(word: Token | None, node: Node) -> Node:
    """Return the node; inside a `Not` if ``word`` is given (the token NOT)."""
    return node if word is None else nest(Not(node.column, node), node)


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _unquoted(token: Token) -> str:
    """Return the text between the quotes, with doubled quotes replaced."""
    quote = token[0]
    return str(token[1:-1].replace(quote * 2, quote))


def _numeric(token: Token) -> int | float:
    """Return the value of a numeric literal; a leading 0 means octal, as in Java, and a final ``L`` has no effect."""
    if len(token) > NUMBER_LENGTH:
        raise InvalidSelector(f"number longer than {NUMBER_LENGTH} digits", _column(token))
    text = token.lower().removesuffix("l")
    if text.startswith("0x"):
        return int(text, 16)
    if not text.isdigit():
        return float(text)
    if text[0] != "0":
        return int(text)
    if text.strip("01234567"):
        raise InvalidSelector(f"{shown(str(token))} starts with 0 but is not an octal number", _column(token))
    return int(text, 8)


# Terminals as shown in error messages, in this order.
_WORDS = {
    "NAME": "a property, constant or '('",
    "STRING": "a string",
    "NUMBER": None,  # not shown: the text for NAME includes constants
    "EQUALITY": "an operator",
    "NOT": "NOT",
    "NULL": "NULL",
    "AND": "AND",
    "OR": "OR",
    "COMMA": "','",
    "RPAR": "')'",
    "OPEN": "'('",
    "$END": "the end",
}
_COVERED_BY = {"NAME": ("STRING", "NULL", "NOT", "OPEN"), "EQUALITY": ("NOT",)}
_OPENED = {"'": "string is not closed", '"': "quoted property is not closed or empty"}
_HINTS = {"!=": "use <>", "==": "use =", "&&": "use AND", "||": "use OR"}


def parse(text: str, hyphenated: bool) -> Node:
    """Parse the text of a selector. Returns the root of its syntax tree, a condition.

    Raises:
        InvalidSelector: with the column in ``text``.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    try:
        return cast(Node, parser(hyphenated).parse(text))
    except UnexpectedToken as error:
        raise _unexpected_token(error, text) from None
    except UnexpectedCharacters as error:
        raise _unexpected_character(error, text) from None


def _unexpected_token(error: UnexpectedToken, text: str) -> InvalidSelector:
    expected = _expected(set(error.accepts or ()))
    if error.token.type == "$END":
        return InvalidSelector(f"found the end, expected {expected}", len(text) + 1)
    at = error.token.start_pos or 0
    if (comment := text.find("/*", max(at - 1, 0), at + 2)) >= 0:
        return InvalidSelector("comment is not closed", comment + 1)
    if error.token.type == "RPAR" and "$END" in (error.accepts or ()):
        return InvalidSelector("found ')' without a matching '('", at + 1)
    if text[max(at - 1, 0) : at + 1] == "==":
        return InvalidSelector(f"found '==', {_HINTS['==']}", at)
    hint = " (NOT here needs parentheses)" if error.token.type == "NOT" else ""
    return InvalidSelector(f"found {shown(str(error.token))}, expected {expected}{hint}", at + 1)


def _unexpected_character(error: UnexpectedCharacters, text: str) -> InvalidSelector:
    at = error.pos_in_stream or 0
    character = text[at]
    if character in _OPENED:
        return InvalidSelector(_OPENED[character], at + 1)
    pair = text[at : at + 2]
    if pair in _HINTS:
        return InvalidSelector(f"found '{pair}', {_HINTS[pair]}", at + 1)
    return InvalidSelector(f"found {shown(character)}, not allowed outside a string", at + 1)


def _expected(accepted: set[str]) -> str:
    """Return the accepted terminals as text: ``an operator, AND, OR or the end``."""
    for terminal, others in _COVERED_BY.items():
        if terminal in accepted:
            accepted = accepted.difference(others)
    words = [word for token, word in _WORDS.items() if word and token in accepted]
    *most, last = words or ["something else"]
    return f"{', '.join(most)} or {last}" if most else last
