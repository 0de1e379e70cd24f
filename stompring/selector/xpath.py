"""XPATH 'expr': XPath 1.0 on an XML body, as in Artemis.

The standard library parses the body; elementpath, loaded at the first XPATH, evaluates the expression. Bodies are
untrusted and evaluated on the broker's only thread, so there are limits: no DTD and so no entities, size, depth, time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from time import perf_counter
from typing import Any
from xml.etree.ElementTree import Element, ElementTree, ParseError, TreeBuilder, XMLParser  # nosec B405

from .syntax_tree import InvalidSelector, shown

BODY_LENGTH = 100 * 1024  # maximum bytes; in Artemis, too, selectors cannot read the bodies of large messages
BODY_DEPTH = 100  # maximum levels of nested elements
# maximum levels of nested brackets in an expression; there is a limit because elementpath's parser is recursive
EXPRESSION_NESTING = 50
# maximum seconds; a body that takes longer does not match: "//*[//*[//*]]" would take hours
EVALUATION_TIME = 0.5
OVERRUNS = 10  # number of timeouts of an XPATH after which the broker evaluates it no longer


class Document(ElementTree):
    """A parsed body for one test of one selector, with one deadline for all its XPATHs."""

    def __init__(self, root: Element) -> None:
        super().__init__(root)
        self.deadline = perf_counter() + EVALUATION_TIME


class _BoundedBuilder(TreeBuilder):
    """Builds the tree of a body within the limits."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def doctype(self, *_: object) -> None:
        """Reject the body: it has a DTD. The parser calls this before it reads the DTD."""
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
    """Parse a body. None if it is too large or too deep, not well-formed XML, or has a DTD."""
    if len(body) > BODY_LENGTH:
        return None
    parser = XMLParser(target=_BoundedBuilder())  # nosec B314
    try:
        parser.feed(body)
        root: Element = parser.close()
    except (ParseError, ValueError, LookupError):  # ValueError, LookupError: unknown encoding
        return None
    return Document(root)


def compile_xpath(expression: str, column: int) -> Callable[[Document | None], bool | None]:
    """Compile an expression to a function of a document that returns true, false, or None (unknown).

    The result is a boolean as XPath's ``boolean()`` makes it: a node-set is true when it is not empty, a string when
    it has a character, a number when it is neither zero nor NaN.

    Raises:
        InvalidSelector: if the expression is not XPath 1.0, or reads a variable.
    """
    # an upper bound, because brackets in strings count, too
    depths = accumulate((character in "([") - (character in ")]") for character in expression)
    if max(depths, default=0) > EXPRESSION_NESTING:
        raise InvalidSelector(f"XPATH nested deeper than {EXPRESSION_NESTING} levels", column)
    from .xpath_dialect import Evaluation, compile_expression

    try:
        token = compile_expression(expression)
    except Exception as error:  # the errors of the library have no other common base
        reason = "nested too deeply" if isinstance(error, RecursionError) else _one_line(error)
        raise InvalidSelector(f"XPATH {shown(expression)}: {reason}", column) from None

    overruns = 0

    def evaluate(document: Document | None) -> bool | None:
        nonlocal overruns
        if document is None or overruns >= OVERRUNS or perf_counter() > document.deadline:
            return None
        try:
            return bool(token.boolean_value(token.evaluate(Evaluation(document, document.deadline))))
        except Exception:  # any error of the library means unknown
            overruns += perf_counter() > document.deadline
            return None

    return evaluate


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
