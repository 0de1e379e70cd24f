"""The syntax tree of a selector, and its static type checks (JMS 3.8.1.1, Artemis's comparisons).

A *value* node is a string, a number, a boolean or ``None`` (missing or unknown). A *condition* node is true, false or
unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

SHOWN_LENGTH = 40  # maximum number of characters of the selector in an error message


class InvalidSelector(ValueError):
    """The text is not a valid selector. ``str()`` is one line with the column, the token found there, and the expected
    tokens.

    ``column`` counts characters from 1 in the stripped text, prefixes included; ``None`` for errors without a column.
    """

    def __init__(self, reason: str, column: int | None = None) -> None:
        super().__init__(reason if column is None else f"column {column}: {reason}")
        self.column = column


def shown(text: str) -> str:
    """Return a part of the selector, quoted and cut to `SHOWN_LENGTH`."""
    cut = text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
    return repr(cut)


class Kind(Enum):
    """The static type of a node."""

    ANY = auto()  # a property, of any type
    # a string constant, or a concatenation with one: operators never read such a string as a number
    TEXT = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()


@dataclass
class Node:
    """A node. ``column``: where it begins. ``depth``: number of levels, 1 for a leaf. ``size``: number of nodes."""

    column: int
    depth: int = field(default=1, kw_only=True)
    size: int = field(default=1, kw_only=True)

    @property
    def kind(self) -> Kind:
        return _KINDS.get(type(self), Kind.BOOLEAN)


@dataclass
class Text(Node):
    """A string constant, quotes removed."""

    value: str


@dataclass
class Number(Node):
    """A numeric constant, its sign included."""

    value: int | float


@dataclass
class Boolean(Node):
    """``TRUE`` or ``FALSE``."""

    value: bool


@dataclass
class Null(Node):
    """``NULL`` in the place of a value."""


@dataclass
class Property(Node):
    """A header or system identifier, read from the message."""

    name: str


@dataclass
class Unary(Node):
    """A node with one operand."""

    operand: Node


class Negative(Unary):
    """Unary minus."""


class Positive(Unary):
    """Unary plus, which reads its operand as a number."""


@dataclass
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


@dataclass
class Chain(Node):
    """Conditions with one operator between them: a long chain is wide, not deep."""

    parts: list[Node]


class And(Chain):
    """A chain of ANDs."""


class Or(Chain):
    """A chain of ORs."""


class Not(Unary):
    """``NOT``, also that of ``NOT LIKE``, ``NOT IN``, ``NOT BETWEEN`` and ``IS NOT NULL``."""


@dataclass
class Compare(Node):
    """``= <> < <= > >=``."""

    operator: str
    left: Node
    right: Node


class IsNull(Unary):
    """True if the operand is missing or unknown, else false."""


@dataclass
class Like(Node):
    """LIKE: a pattern with ``%`` and ``_``. After the character ``escape``, these two stand for themselves."""

    operand: Node
    pattern: str
    escape: str | None


@dataclass
class In(Node):
    """Membership of a list of string constants."""

    operand: Property
    values: frozenset[str]


@dataclass
class XPath(Node):
    """An XPath 1.0 expression on the body; ``evaluate`` takes the parsed body."""

    evaluate: Callable[[Any], bool | None]


#: The kinds of the nodes that are not conditions. `Arithmetic` computes its kind.
_KINDS: dict[type[Node], Kind] = {
    Text: Kind.TEXT,
    Number: Kind.NUMBER,
    Null: Kind.NULL,
    Property: Kind.ANY,
    Negative: Kind.NUMBER,
    Positive: Kind.NUMBER,
}

NESTING_LIMIT = 100  # maximum levels of nodes: far below the recursion limits of the compilers
# maximum nodes, some 600 comparisons; there is a limit because compiling blocks the broker
SIZE_LIMIT = 2000
XPATH_SIZE = 20  # number of nodes that an XPATH counts as


def nest(node: Node, *children: Node) -> Node:
    """Set depth and size of a node from its children. Raises `InvalidSelector` above the limits."""
    node.depth = 1 + max(child.depth for child in children)
    if node.depth > NESTING_LIMIT:
        raise InvalidSelector(f"nested deeper than {NESTING_LIMIT} levels", node.column)
    node.size = 1 + sum(child.size for child in children)
    if node.size > SIZE_LIMIT:
        raise InvalidSelector(f"more than {SIZE_LIMIT} conditions, operators and operands", node.column)
    return node


def condition(node: Node, position: str) -> Node:
    """Return the node if it is a condition or a property; else raise `InvalidSelector`."""
    if node.kind is Kind.BOOLEAN or isinstance(node, Property):
        return node
    raise InvalidSelector(f"found {description(node)}, expected a condition {position}", node.column)


def comparable(left: Node, right: Node, operator: str) -> None:
    """Check the operands of ``=`` and ``<>``: NULL is invalid, and so is a boolean constant with a constant of another
    kind."""
    for node in (left, right):
        if isinstance(node, Null):
            raise InvalidSelector(f"NULL cannot be compared with {operator}, use IS NULL", node.column)
    for node, other in ((left, right), (right, left)):
        if isinstance(node, Boolean) and isinstance(other, (Text, Number)):
            raise InvalidSelector(
                f"{description(node)} cannot be compared with {description(other)}", node.column
            )


def valued(use: str, *nodes: Node, no_text: bool = False) -> None:
    """Reject booleans, conditions and NULL as operands of arithmetic and comparisons. ``use``: what the operand
    cannot be, for the error (``compared with <``).

    ``no_text``: reject string constants, too, as operands of ``< <= > >=`` and BETWEEN.
    """
    for node in nodes:
        if node.kind in (Kind.BOOLEAN, Kind.NULL) or (no_text and isinstance(node, Text)):
            raise InvalidSelector(f"{description(node)} cannot be {use}", node.column)


def description(node: Node) -> str:
    """Describe the node in an error message."""
    match node:
        case Text():
            return f"string {shown(node.value)}"
        case Number():
            return f"number {node.value}"
        case Boolean():
            return str(node.value).upper()
        case Null():
            return "NULL"
        case Property():
            return f"property {shown(node.name)}"
    return "a condition" if node.kind is Kind.BOOLEAN else "a calculation"
