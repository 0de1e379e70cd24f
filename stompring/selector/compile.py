"""Compiled selectors: one object for each text, cached and shared."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from stompring.selector.codegen import emit, emit_for_lines
from stompring.selector.grammar import parse
from stompring.selector.syntax_tree import InvalidSelector, Node

LENGTH_LIMIT = 8 * 1024  # characters: some thousand terms
CACHE_SIZE = 1024  # compiled selectors in the cache
LONG = 512  # characters; a compiled selector takes up to 150 times its length in memory,
LONG_CACHE_SIZE = 64  # so the cache for long ones is smaller

# Any number of these prefixes in any order; the last of contradicting ones applies (Artemis).
_PREFIXES = {
    "convert_string_expressions:": ("convert", True),
    "no_convert_string_expressions:": ("convert", False),
    "hyphenated_props:": ("hyphenated", True),
    "no_hyphenated_props:": ("hyphenated", False),
}


class Properties(Protocol):
    """The properties of a message for a selector."""

    def get_property(self, name: str) -> str | int | float | bool | None:
        """The header or system identifier of that name, None without one."""

    def get_body(self) -> bytes:
        """The body as sent; read only by XPATH."""


class HeaderLines(Properties, Protocol):
    """A message of the broker, whose headers are lines of bytes.

    ``tail`` up to ``body_at`` holds lines ``name:value`` with the escapes of STOMP 1.2, each between two line feeds.
    No name comes twice.
    """

    @property
    def tail(self) -> bytes: ...

    @property
    def body_at(self) -> int: ...

    def text_of_line(self, line: bytes) -> str | None:
        """The value of the header whose line begins with ``line``, a line feed in front; None without one."""


class Selector:
    """A filter that compiles to a Python function.

    ``text`` is the text without white space around it. ``matches`` returns whether the selector is true for a message;
    it returns False for unknown and for any error, and never raises. ``matches_lines`` is the same and faster, for
    messages of the broker. ``names`` are the properties that it reads; ``reads_body`` is whether it contains an XPATH.
    """

    __slots__ = ("_matches", "matches_lines", "names", "reads_body", "text")

    text: str
    matches_lines: Callable[[HeaderLines], bool]
    names: frozenset[str]
    reads_body: bool

    def __init__(self, text: str) -> None:
        self.text = text
        self.matches_lines, self.names, self.reads_body = emit_for_lines(*_parsed(text))
        self._matches: Callable[[Properties], bool] | None = None

    @property
    def matches(self) -> Callable[[Properties], bool]:
        """Generated when it is asked for first: the broker needs ``matches_lines`` only."""
        matches = self._matches
        if matches is None:
            matches, _, _ = emit(*_parsed(self.text))
            self._matches = matches
        return matches

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """The selector of a text; the same object for the same text.

    Raises:
        InvalidSelector: if the text is empty, too long or invalid. Its text is one line with the column.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidSelector("Selector cannot be empty")
    if len(stripped) > LENGTH_LIMIT:
        raise InvalidSelector(f"{len(stripped)} characters long, the maximum is {LENGTH_LIMIT}")
    return (_compiled if len(stripped) <= LONG else _compiled_long)(stripped)


_compiled = lru_cache(CACHE_SIZE)(Selector)
_compiled_long = lru_cache(LONG_CACHE_SIZE)(Selector)


def _parsed(text: str) -> tuple[Node, bool]:
    """The syntax tree, and whether text is converted."""
    blanked, options = _without_prefixes(text)
    return parse(blanked, options["hyphenated"]), options["convert"]


def _without_prefixes(text: str) -> tuple[str, dict[str, bool]]:
    """The text with its prefixes replaced by blanks, so that columns stay valid, and the options of the prefixes."""
    options = {"convert": True, "hyphenated": False}
    remaining = text
    while prefix := next((word for word in _PREFIXES if remaining.startswith(word)), None):
        option, value = _PREFIXES[prefix]
        options[option] = value
        remaining = remaining[len(prefix) :].lstrip()
    if not remaining:
        raise InvalidSelector("Selector cannot be empty")
    return remaining.rjust(len(text)), options
