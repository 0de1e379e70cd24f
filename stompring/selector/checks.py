"""What can be refused before any message is seen (spec: JMS 3.8.1.1, Artemis's ComparisonExpression and others)."""

from __future__ import annotations

from stompring.selector.invalid import InvalidSelector, shown
from stompring.selector.tree import Boolean, Kind, Node, Null, Number, Property, Text

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
