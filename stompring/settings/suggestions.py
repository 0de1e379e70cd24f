"""Suggestions for unknown names: the known name that is most similar, or all of a few."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_LISTED = 8


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to ``name``, or None if none is similar."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def with_suggestion(what: str, name: str, known: Iterable[str]) -> str:
    """``what``, then the nearest of ``known``, or all of them where they are few and none is near."""
    known = tuple(known)
    near = closest_match(name, known)
    if near is not None:
        return f"{what}; did you mean '{near}'?"
    if known and len(known) <= MAX_LISTED:
        return f"{what}; known: {', '.join(sorted(known))}"
    return what
