"""The nodes of a parsed selector, and what is refused before any message is seen (JMS 3.8.1.1, Artemis's comparisons).

A *value* node gives a string, a number, a boolean or nothing (``None``: missing or unknown). A *condition* node is
true, false or unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

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


NESTING_LIMIT = 100  # nobody writes it, and neither Python's compiler nor ours gets near its recursion limit
SIZE_LIMIT = (
    2000  # conditions, operators and operands: some 600 comparisons; to compile them stops everybody else
)
XPATH_SIZE = 20  # what an XPATH counts as


def nest(node: Node, *children: Node) -> Node:
    """The node with its depth set to one more than its deepest child's, and its size; too much of them is refused."""
    node.depth = 1 + max(child.depth for child in children)
    if node.depth > NESTING_LIMIT:
        raise InvalidSelector(f"nested deeper than {NESTING_LIMIT} levels", node.column)
    node.size = 1 + sum(child.size for child in children)
    if node.size > SIZE_LIMIT:
        raise InvalidSelector(f"more than {SIZE_LIMIT} conditions, operators and operands", node.column)
    return node


def condition(node: Node, place: str) -> Node:
    """The node, if it can be true or false: a condition or a property."""
    if node.kind in (Kind.BOOLEAN, Kind.ANY) and (node.kind is Kind.BOOLEAN or isinstance(node, Property)):
        return node
    raise InvalidSelector(f"found {description(node)}, expected a condition {place}", node.column)


def comparable(left: Node, right: Node, operator: str) -> None:
    """``=`` and ``<>``: not with NULL, and not a boolean constant with a constant of another kind."""
    for node in (left, right):
        if isinstance(node, Null):
            raise InvalidSelector(f"NULL cannot be compared with {operator}, use IS NULL", node.column)
    for node, other in ((left, right), (right, left)):
        if isinstance(node, Boolean) and isinstance(other, (Text, Number)):
            raise InvalidSelector(
                f"{description(node)} cannot be compared with {description(other)}", node.column
            )


def orderable(operator: str, *nodes: Node) -> None:
    """``< <= > >=`` and BETWEEN: numbers, properties and calculations; no string or boolean constant, no condition."""
    for node in nodes:
        if isinstance(node, Text) or node.kind in (Kind.BOOLEAN, Kind.NULL):
            raise InvalidSelector(f"{description(node)} cannot be compared with {operator}", node.column)


def calculable(operator: str, *nodes: Node) -> None:
    """Arithmetic: no boolean, no condition, no NULL."""
    for node in nodes:
        if node.kind in (Kind.BOOLEAN, Kind.NULL):
            raise InvalidSelector(f"{description(node)} cannot be an operand of {operator}", node.column)


def textual(node: Node) -> None:
    """LIKE: anything that may be a string."""
    if node.kind in (Kind.BOOLEAN, Kind.NULL):
        raise InvalidSelector(f"{description(node)} cannot be compared with LIKE", node.column)


def member(node: Node) -> Property:
    """IN: a property."""
    if isinstance(node, Property):
        return node
    raise InvalidSelector(f"found {description(node)} before IN, expected a property", node.column)


def description(node: Node) -> str:
    """The node in a user's words."""
    if isinstance(node, Text):
        return f"the string {shown(node.value)}"
    if isinstance(node, Number):
        return f"the number {node.value}"
    if isinstance(node, Boolean):
        return "TRUE" if node.value else "FALSE"
    if isinstance(node, Null):
        return "NULL"
    if isinstance(node, Property):
        return f"the property {shown(node.name)}"
    return "a condition" if node.kind is Kind.BOOLEAN else "a calculation"
