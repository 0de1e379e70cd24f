"""LIKE patterns, turned once into the cheapest test that does the work.

``%`` is any run of characters, ``_`` exactly one, line ends included. The ESCAPE character has its meaning only
before ``%``, ``_`` or itself (Artemis, SelectorTest#testSpecialEscapeLiteral).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto


class Shape(Enum):
    """Which test a pattern needs; all but the last are a string method."""

    EQUALS = auto()
    STARTS = auto()
    ENDS = auto()
    CONTAINS = auto()
    PATTERN = auto()


class Wild(Enum):
    """The two characters that stand for others."""

    ONE = "_"
    ANY = "%"


@dataclass(frozen=True, slots=True)
class Check:
    """``text`` is what the string method looks for, or a regular expression for ``fullmatch``."""

    shape: Shape
    text: str


def like_test(pattern: str, escape: str | None) -> Check:
    """The test for a pattern; ``escape`` is one character or None."""
    pieces = _pieces(pattern, escape)
    if Wild.ONE not in pieces:
        ends = (bool(pieces) and pieces[0] is Wild.ANY, bool(pieces) and pieces[-1] is Wild.ANY)
        inner = pieces[ends[0] : len(pieces) - ends[1]]
        if Wild.ANY not in inner:
            return Check(_SHAPES[ends], "".join(piece for piece in inner if isinstance(piece, str)))
    return Check(Shape.PATTERN, _regular_expression(pieces))


_SHAPES = {
    (False, False): Shape.EQUALS,
    (False, True): Shape.STARTS,
    (True, False): Shape.ENDS,
    (True, True): Shape.CONTAINS,
}


def _pieces(pattern: str, escape: str | None) -> list[str | Wild]:
    """Characters and wildcards in order; runs of ``%`` are one."""
    pieces: list[str | Wild] = []
    characters = iter(range(len(pattern)))
    for at in characters:
        character = pattern[at]
        following = pattern[at + 1 : at + 2]
        if character == escape and following and following in ("%", "_", escape):
            pieces.append(following)
            next(characters)
        elif character == "%":
            if not pieces or pieces[-1] is not Wild.ANY:
                pieces.append(Wild.ANY)
        else:
            pieces.append(Wild.ONE if character == "_" else character)
    return pieces


def _regular_expression(pieces: list[str | Wild]) -> str:
    """A regular expression that never backtracks over more than one ``%``.

    Each run between two ``%`` is taken at its first place and held there by an atomic group; only the last run has
    to look for the end. So a pattern of many ``%`` costs length times pattern, not a power of it.
    """
    runs: list[str] = [""]
    for piece in pieces:
        if piece is Wild.ANY:
            runs.append("")
        else:
            runs[-1] += "." if piece is Wild.ONE else re.escape(str(piece))
    first, *middle, last = runs if len(runs) > 1 else (runs[0], None)
    if last is None:
        return f"(?s:{first})"
    return f"(?s:{first}{''.join(f'(?>.*?{run})' for run in middle)}.*{last})"
