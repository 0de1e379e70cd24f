"""The nodes of a parsed selector, before they become code.

A *value* node gives a string, a number, a boolean or nothing (``None``: missing or unknown). A *condition* node is
true, false or unknown. ``TRUE`` and ``FALSE`` are both; a property is a value that may stand as a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class Kind(Enum):
    """What is known of a node's value before a message is seen."""

    ANY = auto()  # a property: whatever the message holds
    TEXT = auto()  # a string constant, or a concatenation with one: its strings are never read as numbers
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()


@dataclass(slots=True)
class Node:
    """``column`` is where it begins, ``depth`` how deeply it is nested (a leaf is 1), ``size`` how many nodes it is."""

    column: int
    depth: int = field(default=1, kw_only=True)
    size: int = field(default=1, kw_only=True)

    @property
    def kind(self) -> Kind:
        return Kind.BOOLEAN


@dataclass(slots=True)
class Text(Node):
    """A string constant, quotes removed."""

    value: str

    @property
    def kind(self) -> Kind:
        return Kind.TEXT


@dataclass(slots=True)
class Number(Node):
    """A numeric constant, its sign included."""

    value: int | float

    @property
    def kind(self) -> Kind:
        return Kind.NUMBER


@dataclass(slots=True)
class Boolean(Node):
    """``TRUE`` or ``FALSE``."""

    value: bool


@dataclass(slots=True)
class Null(Node):
    """The word ``NULL`` where a value could stand."""

    @property
    def kind(self) -> Kind:
        return Kind.NULL


@dataclass(slots=True)
class Property(Node):
    """A header or system identifier, read from the message."""

    name: str

    @property
    def kind(self) -> Kind:
        return Kind.ANY


@dataclass(slots=True)
class Negative(Node):
    """Unary minus."""

    operand: Node

    @property
    def kind(self) -> Kind:
        return Kind.NUMBER


@dataclass(slots=True)
class Positive(Node):
    """Unary plus: reads its operand as a number."""

    operand: Node

    @property
    def kind(self) -> Kind:
        return Kind.NUMBER


@dataclass(slots=True)
class Arithmetic(Node):
    """``+ - * / %``; plus also joins strings."""

    operator: str
    left: Node
    right: Node

    @property
    def kind(self) -> Kind:
        kinds = (self.left.kind, self.right.kind)
        if self.operator != "+" or Kind.NUMBER in kinds:
            return Kind.NUMBER
        return Kind.TEXT if Kind.TEXT in kinds else Kind.ANY


@dataclass(slots=True)
class And(Node):
    """All parts of one chain: a long chain is wide, not deep."""

    parts: list[Node]


@dataclass(slots=True)
class Or(Node):
    """All parts of one chain."""

    parts: list[Node]


@dataclass(slots=True)
class Not(Node):
    """``NOT``, also that of ``NOT LIKE``, ``NOT IN``, ``NOT BETWEEN`` and ``IS NOT NULL``."""

    operand: Node


@dataclass(slots=True)
class Compare(Node):
    """``= <> < <= > >=``."""

    operator: str
    left: Node
    right: Node


@dataclass(slots=True)
class IsNull(Node):
    """True when the operand is missing or unknown, else false; never unknown itself."""

    operand: Node


@dataclass(slots=True)
class Like(Node):
    """A pattern with ``%`` and ``_``; ``escape`` takes their meaning away."""

    operand: Node
    pattern: str
    escape: str | None


@dataclass(slots=True)
class In(Node):
    """Membership of a list of string constants."""

    operand: Property
    values: frozenset[str]


@dataclass(slots=True)
class XPath(Node):
    """An XPath 1.0 expression on the body; ``evaluate`` takes the parsed body."""

    evaluate: Callable[[Any], bool | None]
