"""A selector, compiled once and shared by all who use the same text."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from stompring.selector.codegen import emit
from stompring.selector.grammar import parse
from stompring.selector.syntax_tree import InvalidSelector

LENGTH_LIMIT = (
    8 * 1024
)  # characters: some thousand terms; a selector is tested on every message, and this is long
CACHE_SIZE = 1024  # selectors kept compiled, whoever uses them
LONG = 512  # characters; a compiled one takes up to 150 times its length in memory,
LONG_CACHE_SIZE = 64  # and so of long ones fewer are kept

# Any number of these may come first, in any order; of contradicting ones the last counts (Artemis).
_PREFIXES = {
    "convert_string_expressions:": ("convert", True),
    "no_convert_string_expressions:": ("convert", False),
    "hyphenated_props:": ("hyphenated", True),
    "no_hyphenated_props:": ("hyphenated", False),
}


class Properties(Protocol):
    """What a message offers to a selector."""

    def get_property(self, name: str) -> str | int | float | bool | None:
        """The header or system identifier of that name; None where the message has none."""

    def get_body(self) -> bytes:
        """The body as sent; only asked for by XPATH."""


class Selector:
    """A filter that compiles to one Python function.

    ``text`` is what was written, blanks around it removed. ``matches`` tells whether the selector is true for a
    message; unknown, and whatever goes wrong, is False: it never raises. ``names`` are the properties it reads, and
    ``reads_body`` says whether it contains an XPATH.
    """

    __slots__ = ("matches", "names", "reads_body", "text")

    text: str
    matches: Callable[[Properties], bool]
    names: frozenset[str]
    reads_body: bool

    def __init__(self, text: str) -> None:
        blanked, options = _without_prefixes(text)
        root = parse(blanked, options["hyphenated"])
        self.text = text
        self.matches, self.names, self.reads_body = emit(root, options["convert"])

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """The selector that the text says; the same object for the same text.

    Raises:
        InvalidSelector: when the text is empty, too long or no selector. Its text is one line that names the column.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidSelector("Selector cannot be empty")
    if len(stripped) > LENGTH_LIMIT:
        raise InvalidSelector(f"{len(stripped)} characters long, at most {LENGTH_LIMIT} are allowed")
    return (_compiled if len(stripped) <= LONG else _compiled_long)(stripped)


_compiled = lru_cache(CACHE_SIZE)(Selector)
_compiled_long = lru_cache(LONG_CACHE_SIZE)(Selector)


def _without_prefixes(text: str) -> tuple[str, dict[str, bool]]:
    """The text with its prefixes blanked out, so that columns stay true, and what they ask for."""
    options = {"convert": True, "hyphenated": False}
    rest = text
    while prefix := next((word for word in _PREFIXES if rest.startswith(word)), None):
        option, value = _PREFIXES[prefix]
        options[option] = value
        rest = rest[len(prefix) :].lstrip()
    if not rest:
        raise InvalidSelector("Selector cannot be empty")
    return rest.rjust(len(text)), options
