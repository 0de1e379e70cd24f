"""Selectors: compiled to Python functions, cached by text, and applied to messages.

The code of a condition tests either whether it is true, or whether it is false. NOT swaps the two tests, so that
three-valued logic costs nothing at run time.

Names, texts and numbers of a selector are default values of parameters: no text of a client is part of the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, Protocol

from . import values
from .grammar import parse
from .syntax_tree import (
    And,
    Arithmetic,
    Boolean,
    Compare,
    In,
    InvalidSelector,
    IsNull,
    Kind,
    Like,
    Negative,
    Node,
    Not,
    Number,
    Or,
    Positive,
    Property,
    Text,
    XPath,
)


class Constant(str):
    """The name of a constant in generated code: a parameter of the function, or True, False or None."""

    __slots__ = ()


UNKNOWN = Constant(None)


def both(*parts: str) -> str:
    return parts[0] if len(parts) == 1 else f"({' and '.join(parts)})"


def is_text(value: str) -> str:
    return f"isinstance({value}, str)"


def like_test(pattern: str, escape: str | None) -> tuple[str, str]:
    """Return the test for a pattern: a method of str and its argument, or ``fullmatch`` and a regular expression.

    ``escape`` is one character or None. The regular expression never backtracks over more than one ``%``: each run of
    characters between two ``%`` matches at its first position, in an atomic group; only the last run backtracks. So
    the time is at most proportional to the length of the text times that of the pattern, even with many ``%``.
    """
    escaped = "" if escape is None else f"{re.escape(escape)}[%_{re.escape(escape)}]|"
    runs: list[list[str]] = [[]]  # runs of characters between two %; the empty text stands for any character
    for piece in re.findall(f"{escaped}.", pattern, re.DOTALL):
        if piece == "%":
            runs.append([])
        else:
            runs[-1].append("" if piece == "_" else piece[-1])
    runs[1:-1] = filter(None, runs[1:-1])  # adjacent % are one
    if not any("" in run for run in runs):
        match ["".join(run) for run in runs]:
            case [text]:
                return "__eq__", text
            case ["", ""]:
                return "__contains__", ""
            case [text, ""]:
                return "startswith", text
            case ["", text]:
                return "endswith", text
            case ["", text, ""]:
                return "__contains__", text
    first, *others = ("".join(re.escape(character) or "." for character in run) for run in runs)
    middle = "".join(f"(?>.*?{run})" for run in others[:-1])
    return "fullmatch", f"(?s:{first}{middle}{''.join(f'.*{run}' for run in others[-1:])})"


Known = frozenset[str]
Valued = tuple[str, Known]  # code of a value, and the local variables that are bound after its evaluation
# code of a test; local variables bound if it is true; those bound if it is false
Tested = tuple[str, Known, Known]

_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_ORDERS = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder"}
_RUN_TIME = """
    add subtract multiply divide remainder negative plus equal order all3 any3 not3 cached_number
""".split()

#: The generated function, and its first statement if the test reads the header lines of the message.
_FRAME = """
def matches(message{constants}):
    try:
        {lines}return {test}
    except Exception:
        return False
"""
_LINES = "tail, stop = message.tail, message.body_at; "

#: Code that binds a value to a local variable.
_BINDING = re.compile(r"\((\w+) := ")

#: Prefixes of names that may be the broker's own. Other names are headers.
SYSTEM_PREFIXES = ("AMQ", "JMS", "_AMQ")

#: Header lines that a broker writes for each message. A selector reads them with ``get_property``.
MESSAGE_LINES = frozenset({"content-length", "expires", "timestamp"})

#: Characters that a header line escapes.
_ESCAPED = frozenset("\\\n\r:")

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def line_of(name: str) -> bytes | None:
    """Return the start of a header's line, with the line feed before it. None if the name may be one of the broker's
    own, or if a header line would escape it.
    """
    if name.startswith(SYSTEM_PREFIXES) or name in MESSAGE_LINES:
        return None
    text = _plain(name)
    return None if text is None else b"\n%b:" % text


def _plain(text: str) -> bytes | None:
    """Encode a text as in a header line. None if a header line would escape the text, or if other bytes decode to the
    same text.
    """
    if _REPLACEMENT in text or not _ESCAPED.isdisjoint(text):
        return None
    try:
        return text.encode()
    except UnicodeEncodeError:  # the text has half of a surrogate pair
        return None


class _Emitter:
    """The state of one function under construction."""

    def __init__(self, convert: bool, lines: bool) -> None:
        self.convert = convert
        self._reads_lines = False
        self._lines = lines
        # property -> number at the end of the names of its local variables
        self.properties: dict[str, int] = {}
        self.reads_body = False
        self._temporaries = 0
        # parameter of the generated function -> default value: a constant of the selector
        self._constants: dict[str, object] = {}
        self._globals: dict[str, Any] = {word: getattr(values, word) for word in _RUN_TIME}
        self._globals["number"] = values.number if convert else values.plain_number
        self._globals["boolean"] = values.boolean if convert else values.plain_boolean

    def function(self, test: str) -> Callable[[Any], bool]:
        """Compile a function that returns ``test``, the code of the selector's test of a message."""
        constants = "".join(f", {word}" for word in self._constants)
        source = _FRAME.format(constants=constants, lines=_LINES if self._reads_lines else "", test=test)
        exec(compile(source, "<selector>", "exec"), self._globals)  # nosec B102
        matches: FunctionType = self._globals["matches"]
        matches.__defaults__ = tuple(self._constants.values())
        return matches

    # -- conditions

    def test(self, node: Node, sense: bool, known: Known) -> Tested:
        """Return code that is true if the condition is ``sense`` (True or False). It is false if the condition has the
        other value, or is unknown.
        """
        match node:
            case And() | Or():
                return self._chain(node.parts, isinstance(node, And) is sense, sense, known)
            case Not():
                return self.test(node.operand, not sense, known)
            case Compare():
                return self._compared(node, sense, known)
            case Boolean():
                return Constant(node.value is sense), known, known
            case Property():
                value, known = self._property(node, known)
                return f"boolean({value}) is {sense}", known, known
            case IsNull():
                if isinstance(node.operand, Property):
                    present = self._found(node.operand, b"", known)
                    if present is not None:
                        return f"not {present}" if sense else present, known, known
                value, known = self.value(node.operand, known)
                if isinstance(value, Constant):
                    return Constant((value == UNKNOWN) is sense), known, known
                return f"{value} {'is' if sense else 'is not'} None", known, known
            case Like():
                return self._like(node, sense, known)
            case In():
                value, known = self._property(node.operand, known)
                texts = self._constant(node.values)
                if sense:
                    return f"{value} in {texts}", known, known
                outside = f"{self._local(node.operand)} not in {texts}"
                return both(is_text(value), outside), known, known
            case XPath():
                return self._xpath(node, sense, known)
        raise TypeError(f"not a condition: {node}")

    def _chain(self, parts: list[Node], all_of: bool, sense: bool, known: Known) -> Tested:
        """Return code for a chain of ANDs or ORs. Later parts can use the variables that earlier parts bind."""
        tests: list[str] = []
        # for each part: the variables that are bound if the evaluation ends at this part
        ends: list[Known] = []
        for part in parts:
            test, held, failed = self.test(part, sense, known)
            tests.append(test)
            known = held if all_of else failed
            ends.append(failed if all_of else held)
        early = frozenset.intersection(*ends)
        return (both(*tests), known, early) if all_of else (f"({' or '.join(tests)})", early, known)

    def _compared(self, node: Compare, sense: bool, known: Known) -> Tested:
        left, right, operator = node.left, node.right, node.operator
        if isinstance(left, (Number, Text, Boolean)):  # swap the operands: a constant must be on the right
            left, right, operator = right, left, _MIRRORED[operator]
        if not sense:
            operator = _OPPOSITE[operator]
        kinds = (left.kind, right.kind)
        if Kind.NUMBER in kinds and Kind.BOOLEAN not in kinds:
            return self._numbers(left, operator, right, known)
        if isinstance(right, Text) and isinstance(left, Property):
            return self._property_and_text(left, operator, right.value, known)
        if isinstance(right, Boolean) and isinstance(left, Property):
            value, known = self._property(left, known)
            wanted = right.value is (operator == "=")
            return f"boolean({value}) is {wanted}", known, known
        first, known = self.value(left, known)
        second, known = self.value(right, known)
        text = Kind.TEXT in kinds
        if operator in ("=", "<>"):
            test = f"{self._generic('equal', first, second, text)} is {operator == '='}"
        else:
            test = f"{self._generic('order', first, second, text)} in {_ORDERS[operator]}"
        return test, known, known

    def _numbers(self, left: Node, operator: str, right: Node, known: Known) -> Tested:
        """Return code ``(a := left) is not None and (b := right) is not None and a < b``, without redundant parts."""
        first, after_first = self.number(left, known)
        second, after_both = self.number(right, after_first)
        if operator == "=" and isinstance(right, Number):
            return f"{first} == {second}", after_both, after_both
        tests: list[str] = []
        first = self._present(first, tests)
        second = self._present(second, tests)
        early = after_first if len(tests) == 2 else after_both
        return both(*tests, f"{first} {_PYTHON[operator]} {second}"), after_both, early

    def _present(self, value: str, tests: list[str]) -> str:
        """Return a name (or constant) for the value. Adds to ``tests`` the test that the value is not None."""
        if isinstance(value, Constant):
            if value == UNKNOWN:
                tests.append("False")
            return value
        value, local = self._named(value)
        tests.append(f"{value} is not None")
        return local

    def _found(self, node: Property, rest: bytes | None, known: Known) -> str | None:
        """Return code that tests whether a message has the header with a value that begins with ``rest``. None if a
        search for the line cannot decide that, or if a local variable has the value already.
        """
        line = line_of(node.name) if self._lines and rest is not None else None
        number = self.properties.setdefault(node.name, len(self.properties))
        if line is None or rest is None or f"value{number}" in known:
            return None
        self._reads_lines = True
        return f"tail.find({self._constant(line + rest)}, 0, stop) >= 0"

    def _line(
        self, node: Property, text: str, sense: bool, known: Known, *, prefix: bool = False
    ) -> str | None:
        """Return code that tests whether a header equals a text, or with ``prefix`` begins with it. ``sense`` False:
        that the message has the header with another value. None if a search for the line cannot decide that.
        """
        value = _plain(text)
        if value is not None and not prefix:
            value += b"\n"
        found = self._found(node, value, known)
        present = None if sense else self._found(node, b"", known)
        return found if found is None or present is None else both(present, f"not {found}")

    def _property_and_text(self, node: Property, operator: str, text: str, known: Known) -> Tested:
        same = operator == "="
        line = self._line(node, text, same, known)
        if line is not None:
            return line, known, known
        value, known = self._property(node, known)
        local, wanted = self._local(node), self._constant(text)
        test = f"{local} {_PYTHON[operator]} {wanted}"
        if self.convert and (values.number(text) is not None or values.boolean(text) is not None):
            converted = f"{self._generic('equal', local, wanted, True)} is {same}"
            return f"({test} if {is_text(value)} else {converted})", known, known
        if same:
            return f"{value} == {wanted}", known, known
        return both(is_text(value), test), known, known

    def _generic(self, function: str, first: str, second: str, text: bool) -> str:
        return f"{function}({first}, {second}, {text}, {self.convert})"

    def _like(self, node: Like, sense: bool, known: Known) -> Tested:
        """Return code for LIKE. If a value is not text, LIKE is false and NOT LIKE is true, as in Artemis."""
        function, text = like_test(node.pattern, node.escape)
        if isinstance(node.operand, Property) and function in ("__eq__", "startswith"):
            line = self._line(node.operand, text, sense, known, prefix=function == "startswith")
            if line is not None:
                return line, known, known
        value, known = self.value(node.operand, known)
        value, local = self._named(value)
        wanted = self._constant(re.compile(text).fullmatch if function == "fullmatch" else text)
        match function:
            case "__eq__":
                test = f"{local} == {wanted}"
            case "__contains__":
                test = f"{wanted} in {local}"
            case "fullmatch":
                test = f"{wanted}({local}) is not None"
            case _:
                test = f"{local}.{function}({wanted})"
        test = both(is_text(value), test)
        if not sense:
            test = both(f"not {test}", f"{local} is not None")
        return test, known, known

    def _xpath(self, node: XPath, sense: bool, known: Known) -> Tested:
        from .xpath import parse_body

        self.reads_body = True
        self._globals["parse_body"] = parse_body
        document = "document" if "document" in known else "(document := parse_body(message.get_body()))"
        known |= {"document"}
        return f"{self._constant(node.evaluate)}({document}) is {sense}", known, known

    # -- values

    def value(self, node: Node, known: Known) -> Valued:
        """Return code for a value of any type. At run time, a missing or unknown value is None."""
        match node:
            case Property():
                return self._property(node, known)
            case Boolean():
                return Constant(node.value), known
            case Text() | Number():
                return self._constant(node.value), known
            case Arithmetic(operator="+") if node.kind is not Kind.NUMBER:
                first, known = self.value(node.left, known)
                second, known = self.value(node.right, known)
                return self._generic("plus", first, second, node.kind is Kind.TEXT), known
        if node.kind is Kind.NUMBER:
            return self.number(node, known)
        if node.kind is Kind.BOOLEAN:
            return self._three_valued(node, known)
        return UNKNOWN, known

    def number(self, node: Node, known: Known) -> Valued:
        """Return code that reads a value as a number. At run time, the result is None if the value is not a number."""
        match node:
            case Number():
                return self._constant(node.value), known
            case Text():
                read = values.number(node.value) if self.convert else None
                return UNKNOWN if read is None else self._constant(read), known
            case Property():
                return self._number_of_property(node, known)
            case Negative():
                operand, known = self.number(node.operand, known)
                return f"negative({operand})", known
            case Positive():
                return self.number(node.operand, known)
            case Arithmetic() if node.kind is Kind.NUMBER:
                first, known = self.number(node.left, known)
                second, known = self.number(node.right, known)
                return f"{_ARITHMETIC[node.operator]}({first}, {second})", known
        operand, known = self.value(node, known)
        return f"number({operand})", known

    def _three_valued(self, node: Node, known: Known) -> Valued:
        """Return code for the three-valued result of a condition, as the operands of ``(a = 1) = (b = 2)`` need it.

        Each part is generated once, so that the code does not double with each level of nested conditions.
        """
        match node:
            case And() | Or():
                parts = [self._three_valued(part, known)[0] for part in node.parts]
                return f"{'all3' if isinstance(node, And) else 'any3'}({', '.join(parts)})", known
            case Not():
                return f"not3({self._three_valued(node.operand, known)[0]})", known
            case Compare() if Kind.BOOLEAN in (node.left.kind, node.right.kind):
                first, known = self.value(node.left, known)
                second, known = self.value(node.right, known)
                test = self._generic("equal", first, second, Kind.TEXT in (node.left.kind, node.right.kind))
                return (test if node.operator == "=" else f"not3({test})"), known
            case IsNull():
                return f"({self.test(node, True, known)[0]})", known
        holds, _, _ = self.test(node, True, known)
        fails, _, _ = self.test(node, False, known)
        return f"(True if {holds} else False if {fails} else None)", known

    # -- properties and names

    def _local(self, node: Property) -> str:
        return f"value{self.properties[node.name]}"

    def _property(self, node: Property, known: Known) -> Valued:
        local = f"value{self.properties.setdefault(node.name, len(self.properties))}"
        if local in known:
            return local, known
        line = line_of(node.name) if self._lines else None
        read = "get_property" if line is None else "text_of_line"
        return f"({local} := message.{read}({self._constant(line or node.name)}))", known | {local}

    def _number_of_property(self, node: Property, known: Known) -> Valued:
        """Return code ``(numberN := cached_number(v) if isinstance(v, str) and len(v) <= CACHED_LENGTH else
        number(v))``.
        """
        local = f"number{self.properties.setdefault(node.name, len(self.properties))}"
        if local in known:
            return local, known
        value, known = self._property(node, known)
        if not self.convert:
            return f"({local} := number({value}))", known | {local}
        same = self._local(node)
        short = f"{is_text(value)} and len({same}) <= {values.CACHED_LENGTH}"
        return f"({local} := cached_number({same}) if {short} else number({same}))", known | {local}

    def _named(self, value: str) -> tuple[str, str]:
        """Return code that binds a value to a local variable, and the name of this variable for the second use."""
        if value.isidentifier():
            return value, value
        bound = _BINDING.match(value)
        if bound is not None:
            return value, bound[1]
        self._temporaries += 1
        local = f"temporary{self._temporaries}"
        return f"({local} := {value})", local

    def _constant(self, value: object) -> Constant:
        """Add a constant to the parameters of the generated function."""
        word = Constant(f"constant{len(self._constants)}")
        self._constants[word] = value
        return word


LENGTH_LIMIT = 8 * 1024  # maximum characters of a selector: enough for some thousand terms
CACHE_SIZE = 1024  # number of cached selectors with at most ``LONG`` characters
LONG = 512  # characters of a selector, each of which takes up to 150 bytes of memory after compilation
LONG_CACHE_SIZE = 64  # number of cached selectors with more than ``LONG`` characters

# A selector may have several prefixes in any order; the last of contradicting ones applies (Artemis).
_PREFIX = re.compile(r"(no_)?(convert_string_expressions|hyphenated_props):\s*")


class Properties(Protocol):
    """The properties of a message for a selector."""

    def get_property(self, name: str) -> str | int | float | bool | None:
        """Return the header or system identifier of that name, None without one."""

    def get_body(self) -> bytes:
        """Return the body as sent; only XPATH reads it."""


class HeaderLines(Properties, Protocol):
    """A message of the broker, whose headers are lines of bytes.

    ``tail`` up to ``body_at`` holds lines ``name:value`` with the escapes of STOMP 1.2, each between two line feeds.
    No name comes twice.
    """

    @property
    def tail(self) -> bytes: ...

    @property
    def body_at(self) -> int: ...

    def text_of_line(self, line: bytes) -> str | None:
        """Return the value of the header whose line begins with ``line``, a line feed first; None without one."""


class Selector:
    """A filter that compiles to a Python function.

    ``text`` is the text without white space around it. ``matches`` returns whether the selector is true for a message;
    it returns False for unknown and for any error, and never raises. ``matches_lines`` is a faster function for
    messages of the broker. ``names`` are the properties that it reads; ``reads_body`` is whether it contains an XPATH.
    """

    __slots__ = ("_matches", "matches_lines", "names", "reads_body", "text")

    text: str
    matches_lines: Callable[[HeaderLines], bool]
    names: frozenset[str]
    reads_body: bool

    def __init__(self, text: str) -> None:
        self.text = text
        self.matches_lines, self.names, self.reads_body = _emit(text, lines=True)
        self._matches: Callable[[Properties], bool] | None = None

    @property
    def matches(self) -> Callable[[Properties], bool]:
        """The function for any `Properties`. Compiled at the first access: the broker needs only ``matches_lines``."""
        if self._matches is None:
            self._matches, _, _ = _emit(self.text, lines=False)
        return self._matches

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"


def compile_selector(text: str) -> Selector:
    """Compile a selector. The cache returns the same object for the same text.

    Raises:
        InvalidSelector: if the text is empty, too long or invalid. Its text is one line with the column.
    """
    stripped = text.strip()
    if not stripped:
        raise InvalidSelector("Selector cannot be empty")
    if len(stripped) > LENGTH_LIMIT:
        raise InvalidSelector(f"{len(stripped)} characters long, the maximum is {LENGTH_LIMIT}")
    return (_compiled if len(stripped) <= LONG else _compiled_long)(stripped)


_compiled = lru_cache(CACHE_SIZE)(Selector)
_compiled_long = lru_cache(LONG_CACHE_SIZE)(Selector)


def _emit(text: str, lines: bool) -> tuple[Callable[[Any], bool], frozenset[str], bool]:
    """Return the predicate, the properties it reads, and whether it reads the body.

    The predicate is True only if the condition is true; any error in it means no match. With ``lines`` it is for
    messages whose headers are lines of bytes: most conditions are then a search for a line.
    """
    options = {"convert_string_expressions": True, "hyphenated_props": False}
    start = 0
    while prefix := _PREFIX.match(text, start):
        options[prefix[2]] = prefix[1] is None
        start = prefix.end()
    if start == len(text):
        raise InvalidSelector("Selector cannot be empty")
    # blanks replace the prefixes, so that columns in error messages stay valid
    tree = parse(text[start:].rjust(len(text)), options["hyphenated_props"])
    emitter = _Emitter(options["convert_string_expressions"], lines)
    test, _, _ = emitter.test(tree, True, frozenset())
    return emitter.function(test), frozenset(emitter.properties), emitter.reads_body
