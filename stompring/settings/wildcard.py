"""Addresses with wildcards in them, and the addresses that they match (Artemis, wildcard syntax).

``*`` stands for exactly one word and ``#`` for any number of words, none included; the delimiter between
words is ``.``, and all three can be changed by ``<wildcard-addresses>``. A wildcard is a whole word: in
``a.b*`` the star is a letter like any other. Words are compared as they are, so that no other character has
a meaning. ``#`` may stand anywhere, in address-settings too, where Artemis takes it only at the end.
"""

from __future__ import annotations

from stompring.settings.model import WildcardSyntax

DEFAULT_SYNTAX = WildcardSyntax()


class Pattern:
    """An address that may hold wildcards, taken apart once."""

    __slots__ = ("is_wildcard", "specificity", "text", "_any", "_delimiter", "_single", "_words")

    def __init__(self, text: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self.text = text
        self._delimiter = syntax.delimiter
        self._any = syntax.any_words
        self._single = syntax.single_word
        self._words = tuple(text.split(syntax.delimiter))
        self.is_wildcard = self._any in self._words or self._single in self._words
        self.specificity = self._specificity()

    def _specificity(self) -> tuple[object, ...]:
        """A sort key: of the patterns that match one address, the most specific sorts first.

        Plain names; then patterns with ``*`` alone, the one whose first differing word is a name before the
        others; then those with ``#``, the longer before the shorter. What Artemis leaves open (two of one
        length) is settled by the first differing word, a name before ``*`` before ``#``, then by the text.
        """
        kinds = tuple(2 if word == self._any else word == self._single for word in self._words)
        length = len(self.text) if 2 in kinds else 0
        return (max(kinds), -length, kinds, self.text)

    def matches(self, address: str) -> bool:
        """Whether ``address``, taken literally, is one that this pattern stands for."""
        if not self.is_wildcard:
            return address == self.text
        return self._matches_words(address.split(self._delimiter))

    def _matches_words(self, address: list[str]) -> bool:
        # The classical glob match: on a mismatch, let the last any-words swallow one word more. It never goes
        # back to an earlier one, so the work is bounded by words times words.
        words, count = self._words, len(self._words)
        at = 0
        place = 0
        last_any = -1
        swallowed_to = 0
        while at < len(address):
            word = words[place] if place < count else None
            if word == self._any:
                last_any, swallowed_to = place, at
                place += 1
            elif word is not None and (word == self._single or word == address[at]):
                place += 1
                at += 1
            elif last_any >= 0:
                swallowed_to += 1
                place, at = last_any + 1, swallowed_to
            else:
                return False
        return all(word == self._any for word in words[place:])

    def half_wildcards(self) -> tuple[str, ...]:
        """The words that hold a wildcard's character among others, where it has no meaning."""
        marks = (self._any, self._single)
        others = (word for word in self._words if word not in marks)
        return tuple(word for word in others if any(mark in word for mark in marks))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def matches(pattern: str, address: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> bool:
    """Whether ``address`` is one that ``pattern`` stands for. To ask more than once, keep a `Pattern`."""
    return Pattern(pattern, syntax).matches(address)
