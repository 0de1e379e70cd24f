"""Text that must not be shown."""

from __future__ import annotations

HIDDEN = "***"


class Secret(str):
    """A text that came from outside of broker.xml, as a password.

    It is that text for whoever uses it (``encode``, ``==``, as a key), and stars for whoever shows it: ``str``,
    ``repr``, ``format``, log lines.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return HIDDEN

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, form: str) -> str:
        return HIDDEN


def revealed(text: str) -> str:
    """The text itself, for those who use it."""
    return str.__str__(text)


def hidden(value: object) -> object:
    """``value`` with stars for each secret in it, for those who show it: texts, dicts, lists and tuples."""
    if isinstance(value, Secret):
        return HIDDEN
    if isinstance(value, dict):
        return {name: hidden(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [hidden(one) for one in value]
    return value
