"""The grammar of selectors, for lark's LALR parser.

Artemis's grammar with the precedence of SQL-92: NOT binds less than any comparison, so ``NOT a = 'x'`` is
``NOT (a = 'x')``. lark is imported, and its tables built, at the first selector: importing this module is cheap.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Lark, Token

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "LIKE", "ESCAPE", "IN", "IS", "TRUE", "FALSE", "NULL", "XPATH", "XQUERY")
)

# One regular expression for all numbers: lark tries terminals one after another and does not look for the longest.
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
_unary: sign | xpath | xquery | _primary
sign: SIGN _unary
xpath: XPATH STRING
xquery: XQUERY STRING

_primary: text | number | true | false | null | property | quoted | parenthesis
text: STRING
number: NUMBER
true: TRUE
false: FALSE
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
    """The parser for one of the two lexes: with ``hyphenated`` a minus inside a name belongs to it (Artemis)."""
    from lark import Lark

    from stompring.selector.build import Builder

    first = r"(?:[^\W\d]|[$])"
    rest = r"[\w$-]*" if hyphenated else r"[\w$]*"
    text = GRAMMAR.replace("@NUMBER@", _NUMBER).replace("@NAME@", first + rest)
    text = text.replace("@KEYWORDS@", " ".join(sorted(KEYWORDS)))
    return Lark(text, parser="lalr", lexer="basic", transformer=Builder(), lexer_callbacks={"NAME": _keyword})


def _keyword(token: Token) -> Token:
    """A name that is a keyword, in any case, becomes that keyword's token; other names are interned."""
    from lark import Token

    word = token.upper()
    if word in KEYWORDS:
        return Token.new_borrow_pos(word, token, token)
    return Token.new_borrow_pos("NAME", sys.intern(str(token)), token)
