"""Text to nodes, and what lark has against a text said in a user's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from stompring.selector.grammar import parser
from stompring.selector.invalid import InvalidSelector, shown
from stompring.selector.tree import Node

if TYPE_CHECKING:
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

# Terminals in the words of a message, in the order in which they are listed there.
_WORDS = {
    "NAME": "a property, constant or '('",
    "STRING": "a string",
    "NUMBER": None,  # the first line speaks for these too
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
_STANDING_IN = {"NAME": ("STRING", "NULL", "NOT", "OPEN"), "EQUALITY": ("NOT",)}
_OPENED = {"'": "string is not closed", '"': "quoted property is not closed or empty"}
_HINTS = {"!=": "use <>", "==": "use =", "&&": "use AND", "||": "use OR"}


def parse(text: str, hyphenated: bool) -> Node:
    """The root condition of the text.

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
        return InvalidSelector("found ')' without its '('", at + 1)
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
    return InvalidSelector(f"found {shown(character)}, which no selector contains outside a string", at + 1)


def _expected(accepted: set[str]) -> str:
    """The acceptable terminals as a list in words: ``an operator, AND, OR or the end``."""
    for speaker, others in _STANDING_IN.items():
        if speaker in accepted:
            accepted = accepted.difference(others)
    words = [word for terminal, word in _WORDS.items() if word and terminal in accepted]
    *most, last = words or ["something else"]
    return f"{', '.join(most)} or {last}" if most else last
