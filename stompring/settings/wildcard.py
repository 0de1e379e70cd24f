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

    __slots__ = (
        "is_wildcard",
        "specificity",
        "text",
        "_any",
        "_begin",
        "_delimiter",
        "_end",
        "_middle",
        "_single",
        "_words",
    )

    def __init__(self, text: str, syntax: WildcardSyntax = DEFAULT_SYNTAX) -> None:
        self.text = text
        self._delimiter = syntax.delimiter
        self._any = syntax.any_words
        self._single = syntax.single_word
        self._words = tuple(text.split(syntax.delimiter))
        self.is_wildcard = self._any in self._words or self._single in self._words
        self.specificity = self._specificity()
        parts = self._between_any_words()
        self._begin, self._end = parts[0], parts[-1]
        self._middle = None if len(parts) == 1 else parts[1:-1]

    def _between_any_words(self) -> list[list[str]]:
        """The words before, between and after the any-words; one list alone where there is none of these."""
        parts: list[list[str]] = [[]]
        for word in self._words:
            if word == self._any:
                parts.append([])
            else:
                parts[-1].append(word)
        return parts

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
        return self.matches_words(address.split(self._delimiter))

    def matches_words(self, address: list[str]) -> bool:
        """`matches` for an address that is split into its words already."""
        begin, end, middle = self._begin, self._end, self._middle
        if middle is None:
            return len(address) == len(begin) and self._fits(begin, address, 0)
        stop = len(address) - len(end)
        at = len(begin)
        if stop < at or not self._fits(begin, address, 0) or not self._fits(end, address, stop):
            return False
        # The leftmost place for what stands between two any-words leaves the most for the rest.
        for part in middle:
            while at + len(part) <= stop and not self._fits(part, address, at):
                at += 1
            at += len(part)
            if at > stop:
                return False
        return True

    def _fits(self, part: list[str], address: list[str], at: int) -> bool:
        """Whether words without an any-words stand in the address from the place ``at`` on."""
        single = self._single
        return all(
            word in (single, there) for word, there in zip(part, address[at : at + len(part)], strict=True)
        )

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
