"""What is wrong with a selector, said in one line."""

from __future__ import annotations

SHOWN_LENGTH = (
    40  # of the user's own text within a message: enough to recognise it, too little to flood a log
)


class InvalidSelector(ValueError):
    """The text is not a selector. ``str()`` is one line that names the column, what was found and what was expected.

    ``column`` counts characters from 1 in the stripped text, prefixes included; ``None`` where no one place is at
    fault.
    """

    def __init__(self, reason: str, column: int | None = None) -> None:
        super().__init__(reason if column is None else f"column {column}: {reason}")
        self.reason = reason
        self.column = column


def shown(text: str) -> str:
    """Text of the user's, quoted and cut so that it stays on one short line."""
    cut = text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
    return repr(cut)
