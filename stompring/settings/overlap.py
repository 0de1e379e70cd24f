"""Two addresses with wildcards: whether some address is matched by both, or all that one matches by the other.

Both take addresses apart as `Pattern` does. They are asked when somebody subscribes to a wildcard address, of each
security-setting, and so answer in time that is the product of the words, however they are chosen.
"""

from __future__ import annotations

from stompring.settings.model import WildcardSyntax


def overlaps(one: str, other: str, syntax: WildcardSyntax) -> bool:
    """Whether there may be an address that both match."""
    left, right = _words(one, syntax), _words(other, syntax)
    many, single = syntax.any_words, syntax.single_word
    for word, opposite in zip(left, right, strict=False):  # most that differ do so before any wildcard
        if many in (word, opposite):
            break
        if word != opposite and single not in (word, opposite):
            return False
    # row[j]: whether what is left of both from here on can match the same words
    row = [False] * (len(right) + 1)
    for i in range(len(left), -1, -1):
        below, row = row, [False] * (len(right) + 1)
        for j in range(len(right), -1, -1):
            a = left[i] if i < len(left) else None
            b = right[j] if j < len(right) else None
            if a is None and b is None:
                row[j] = True
            elif a == many or b == many:
                row[j] = (a is not None and below[j] and (a == many or b == many)) or (
                    b is not None and row[j + 1]
                )
            elif a is not None and b is not None and (a == b or single in (a, b)):
                row[j] = below[j + 1]
    return row[0]


def covers(wide: str, narrow: str, syntax: WildcardSyntax) -> bool:
    """Whether ``wide`` matches every address that ``narrow`` does. What it says is so; it may miss odd cases."""
    left, right = _words(wide, syntax), _words(narrow, syntax)
    many, single = syntax.any_words, syntax.single_word
    row = [False] * (len(right) + 1)
    for i in range(len(left), -1, -1):
        below, row = row, [False] * (len(right) + 1)
        for j in range(len(right), -1, -1):
            a = left[i] if i < len(left) else None
            b = right[j] if j < len(right) else None
            if a is None:
                row[j] = b is None
            elif a == many:
                row[j] = below[j] or (b is not None and row[j + 1])
            elif b is not None and b != many and (a == single or a == b):
                row[j] = below[j + 1]
    return row[0]


def _words(address: str, syntax: WildcardSyntax) -> list[str]:
    """The words, those that come to the same written in one way: ``#.*`` as ``*.#``, ``#.#`` as ``#``."""
    words: list[str] = []
    waiting = False
    for word in address.split(syntax.delimiter):
        if word == syntax.any_words:
            waiting = True
            continue
        if waiting and word != syntax.single_word:
            words.append(syntax.any_words)
            waiting = False
        words.append(word)
    return [*words, syntax.any_words] if waiting else words
