"""XPATH 'expr': XPath 1.0 on a body that is XML, as Artemis has it.

The standard library parses the body, elementpath (loaded at the first XPATH) evaluates the expression. Bodies come
from strangers and run on the broker's only thread, so they are bounded: no DTD and with it no entities, a size, a
depth, and a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ElementTree, ParseError, TreeBuilder, XMLParser  # nosec B405

from stompring.selector.syntax_tree import InvalidSelector, shown

if TYPE_CHECKING:
    from stompring.selector.xpath_dialect import Dialect

BODY_LENGTH = (
    100 * 1024
)  # bytes; what Artemis calls a large message, whose body its filters do not see either
BODY_DEPTH = 100  # elements within elements: the text of one is gathered from all below it
EXPRESSION_NESTING = 50  # brackets within brackets: elementpath's parser recurses
EVALUATION_TIME = 0.5  # seconds, after which a body does not match: "//*[//*[//*]]" would take hours
OVERRUNS = 10  # bodies on which an XPATH may take that long; then it is not evaluated any more


class Document(ElementTree):
    """A body, for one test of one selector: what all its XPATHs take together counts."""

    def __init__(self, root: Element) -> None:
        super().__init__(root)
        self.deadline = perf_counter() + EVALUATION_TIME


class _BoundedBuilder(TreeBuilder):
    """Builds the tree of a body unless the body asks for more than it may."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def doctype(self, *_: object) -> None:
        """Called before any of a DTD is read."""
        raise ParseError("a DTD is not allowed")

    def start(self, *arguments: Any) -> Element:
        self._depth += 1
        if self._depth > BODY_DEPTH:
            raise ParseError(f"elements deeper than {BODY_DEPTH}")
        return super().start(*arguments)

    def end(self, *arguments: Any) -> Element:
        self._depth -= 1
        return super().end(*arguments)


def parse_body(body: bytes) -> Document | None:
    """The document that the body is, or None where it is too large or no well-formed XML without a DTD."""
    if len(body) > BODY_LENGTH:
        return None
    parser = XMLParser(target=_BoundedBuilder())  # nosec B314
    try:
        parser.feed(body)
        root: Element = parser.close()
    except (ParseError, ValueError, LookupError):  # the latter two: an encoding that Python does not know
        return None
    return Document(root)


@cache
def _dialect() -> Dialect:
    from stompring.selector.xpath_dialect import Dialect

    return Dialect()


def compile_xpath(expression: str, column: int) -> Callable[[Document | None], bool | None]:
    """A function that says whether the expression holds for a document; None (unknown) for what is no document.

    The result is a boolean as XPath's ``boolean()`` makes it: a node-set is true when it is not empty, a string when
    it has a character, a number when it is neither zero nor NaN.

    Raises:
        InvalidSelector: when the expression is no XPath 1.0, or reads a variable.
    """
    if _bracket_depth(expression) > EXPRESSION_NESTING:
        raise InvalidSelector(f"XPATH nested deeper than {EXPRESSION_NESTING} levels", column)
    from stompring.selector.xpath_dialect import Evaluation, compile_expression

    try:
        token = compile_expression(_dialect(), expression)
    except Exception as error:  # the library's errors share no base but this one
        reason = "nested too deeply" if isinstance(error, RecursionError) else _one_line(error)
        raise InvalidSelector(f"XPATH {shown(expression)}: {reason}", column) from None

    overruns = 0

    def evaluate(document: Document | None) -> bool | None:
        nonlocal overruns
        if document is None or overruns >= OVERRUNS or perf_counter() > document.deadline:
            return None
        try:
            return bool(token.boolean_value(token.evaluate(Evaluation(document, document.deadline))))
        except Exception:  # the library has many for what cannot be evaluated on this body; all mean unknown
            overruns += perf_counter() > document.deadline
            return None

    return evaluate


def _bracket_depth(expression: str) -> int:
    """An upper bound of how deeply brackets nest; those within strings count too."""
    depth = deepest = 0
    for character in expression:
        if character in "([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]":
            depth -= 1
    return deepest


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
