"""A checked broker.xml as a tree of plain data, and the faults found in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stompring.errors import ConfigurationError, Line


@dataclass(slots=True)
class Node:
    """One element. ``value`` is its text, None where it holds none.

    Values are those of the readers in `value_types`. ``is_leaf``: the element may contain text only.
    """

    name: str
    line: int
    is_leaf: bool = False
    value: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)

    def all(self, name: str) -> Iterator[Node]:
        """The child elements called ``name``."""
        return (child for child in self.children if child.name == name)

    def first(self, name: str) -> Node | None:
        """The child element called ``name``, or None."""
        return next(self.all(name), None)

    def within(self, name: str) -> tuple[Node, ...]:
        """The children of the child element called ``name``; none where there is no such child."""
        child = self.first(name)
        return tuple(child.children) if child else ()

    def leaves(self) -> dict[str, Any]:
        """The values of the child elements that are leaves, by name in snake case."""
        return {snake(child.name): child.value for child in self.children if child.is_leaf}


def snake(name: str) -> str:
    """``ring-size`` as ``ring_size``."""
    return name.replace("-", "_")


SHORTEST_HIDDEN = 4
"""Characters of a hidden value: a shorter one would be found in other words by chance."""
#: Faults after which the check of a file ends: suggestions for many unknown names take time.
MAX_FAULTS = 200


class Faults:
    """The faults of ``file`` and of those that it includes, collected so that one run reports all of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[tuple[int, str]] = []
        self._places: set[tuple[str, int, str]] = set()
        self._hidden: dict[str, str] = {}
        self._added = 0

    def add(self, line: int, text: str) -> None:
        """Add a fault at ``line``, once.

        Raises `ConfigurationError` at the 200th.
        """
        for value, reference in self._hidden.items():
            text = text.replace(value, reference)
        self._add(line, text)
        self._added += 1
        if self._added >= MAX_FAULTS:
            self._add(line, f"{MAX_FAULTS} faults found; the remainder was not checked")
            self.raise_if_any()

    def _add(self, line: int, text: str) -> None:
        position = self._position((line, text))
        if position not in self._places:
            self._places.add(position)
            self._found.append((line, text))

    def hide(self, value: str, reference: str) -> None:
        """Show ``reference`` instead of ``value`` in all texts added later."""
        if len(value) >= SHORTEST_HIDDEN:
            self._hidden[value] = reference

    def raise_if_any(self) -> None:
        """Raise one `ConfigurationError` with all faults, one per line."""
        if not self._found:
            return
        faults = sorted(self._found, key=self._position)
        (line, first), *others = faults
        more = "".join(f"\n{self.place(line)}: {text}" for line, text in others)
        raise ConfigurationError(first + more, self.file, line, faults=faults)

    def place(self, line: int) -> str:
        """``file:line``, for a text about that line."""
        return f"{line.file if isinstance(line, Line) else self.file}:{int(line)}"

    def _position(self, fault: tuple[int, str]) -> tuple[str, int, str]:
        line, text = fault
        return (line.file if isinstance(line, Line) else "", int(line), text)
