"""A checked broker.xml as a tree of plain data: known names only, every value already read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Node:
    """One element. ``value`` is its text, None where it holds none.

    Values are as the readers of `units` gave them. ``is_leaf`` says that the element may hold text and
    nothing else.
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
        """The values of the child elements that are leaves, under their names as Python writes them."""
        return {snake(child.name): child.value for child in self.children if child.is_leaf}


def snake(name: str) -> str:
    """``ring-size`` as Python writes it."""
    return name.replace("-", "_")
