"""Names of queues, addresses, users and consumers as a page shows them: those that programs made are shortened."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

#: What nobody reads: UUIDs, and long numbers in base 16.
GENERATED = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{16,}(?![0-9a-z])", re.I
)

#: Letters of a name that are shown, and of what was generated.
LONGEST, LEFT = 40, 6

MORE = "\u2026"


def short(name: str) -> str:
    """The name, shorter if it is long or was generated; the page has the whole of it in an attribute ``title``."""
    text = GENERATED.sub(lambda found: found[0][:LEFT] + MORE, name)
    if len(text) <= LONGEST:
        return text
    end = LONGEST // 3
    return text[: LONGEST - end - 1].rstrip(MORE) + MORE + text[-end:].lstrip(MORE)


def labels(names: Sequence[str]) -> list[str]:
    """The same for the names of one legend: two that would look the same get numbers."""
    found = [short(name) for name in names]
    twice = {text for text, count in Counter(found).items() if count > 1}
    seen: Counter[str] = Counter()
    for at, text in enumerate(found):
        if text in twice:
            seen[text] += 1
            found[at] = f"{text} ({seen[text]})"
    return found
