"""A second, slow and plain reading of docs/selectors.md, to hold the compiled predicates against.

It walks trees of tuples, computes three-valued results directly, and shares no code with what it checks.
"""

import math
from typing import Any


class Model:
    """Evaluates a tree on a dictionary of properties."""

    def __init__(self, properties, convert):
        self.properties = properties
        self.convert = convert

    # -- conditions: True, False, None

    def condition(self, tree):
        return getattr(self, "_" + tree[0])(*tree[1:])

    def _and(self, *parts):
        results = [self.condition(part) for part in parts]
        if any(result is False for result in results):
            return False
        return None if any(result is None for result in results) else True

    def _or(self, *parts):
        results = [self.condition(part) for part in parts]
        if any(result is True for result in results):
            return True
        return None if any(result is None for result in results) else False

    def _not(self, part):
        result = self.condition(part)
        return None if result is None else not result

    def _truth(self, value):
        return value

    def _flag(self, name):
        return self.as_boolean(self.properties.get(name))

    def _null(self, value):
        return self.value(value) is None

    def _in(self, name, strings):
        value = self.properties.get(name)
        return any(value == string for string in strings) if isinstance(value, str) else None

    def _like(self, value, pattern, escape):
        found = self.value(value)
        if found is None:
            return None
        return isinstance(found, str) and like(found, pattern, escape)

    def _between(self, value, low, high):
        return self._and(("compare", ">=", value, low), ("compare", "<=", value, high))

    def _compare(self, operator, left, right):
        first, second = self.value(left), self.value(right)
        pair = self.alike(first, second, is_text(left) or is_text(right))
        if pair is None:
            return None
        first, second = pair
        if isinstance(first, bool) and operator not in ("=", "<>"):
            return None
        tests = {
            "=": first == second,
            "<>": first != second,
            "<": first < second,
            ">": first > second,
            "<=": first <= second,
            ">=": first >= second,
        }
        return bool(tests[operator])

    # -- values: None is missing or unknown

    def value(self, tree):
        match tree:
            case ("property", name):
                return self.properties.get(name)
            case ("number", value) | ("string", value):
                return value
            case ("negative", operand):
                number = self.as_number(self.value(operand))
                if isinstance(number, float):
                    return -number  # the negative of 0.0 is -0.0, which 0 - 0.0 is not
                return self.calculate("-", 0, number)
            case ("arithmetic", "+", left, right):
                pair = self.alike(self.value(left), self.value(right), is_text(left) or is_text(right))
                if is_number(left) or is_number(right):
                    pair = (self.as_number(self.value(left)), self.as_number(self.value(right)))
                if pair is None or isinstance(pair[0], bool):
                    return None
                return pair[0] + pair[1] if isinstance(pair[0], str) else self.calculate("+", *pair)
            case ("arithmetic", operator, left, right):
                return self.calculate(
                    operator, self.as_number(self.value(left)), self.as_number(self.value(right))
                )
        return self.condition(tree)

    def calculate(self, operator, left, right):
        if left is None or right is None:
            return None
        if operator in ("/", "%"):
            return self.divide(operator, float(left), float(right))
        result = {"+": left + right, "-": left - right, "*": left * right}[operator]
        if isinstance(result, int) and not -(2**63) <= result < 2**63:
            return float(result)
        return None if isinstance(result, float) and math.isnan(result) else result

    def divide(self, operator, left, right):
        try:
            result = left / right if operator == "/" else math.fmod(left, right)
        except (ZeroDivisionError, ValueError):
            if operator == "%" or left == 0:
                return None
            same_sign = math.copysign(1, left) == math.copysign(1, right)
            result = math.inf if same_sign else -math.inf
        return None if math.isnan(result) else result

    # -- types

    def alike(self, first, second, text):
        pair: tuple[Any, Any]
        if first is None or second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            numbers = (self.as_number(first), self.as_number(second))
            return (first, second) if text or None in numbers else numbers
        if isinstance(first, bool) or isinstance(second, bool):
            pair = (self.as_boolean(first), self.as_boolean(second))
        else:
            pair = (self.as_number(first), self.as_number(second))
        return None if None in pair else pair

    def as_number(self, value):
        if isinstance(value, str):
            return looks_like(value) if self.convert else None
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def as_boolean(self, value):
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value.lower()) if self.convert else None
        return value if isinstance(value, bool) else None


def looks_like(text):
    """The number a text is, spelled out instead of by a regular expression."""
    body = text[1:] if text[:1] in ("+", "-") else text
    mantissa, mark, exponent = body.replace("E", "e").partition("e")
    digits = exponent[1:] if exponent[:1] in ("+", "-") else exponent
    if mark and not (digits.isascii() and digits.isdigit()):
        return None
    whole, _, fraction = mantissa.partition(".")
    if not (whole + fraction).isascii() or not (whole + fraction).isdigit():
        return None
    return int(text) if mantissa.isdigit() and not mark else float(text)


def like(text, pattern, escape):
    """LIKE by trying every way there is."""
    if not pattern:
        return not text
    if pattern[0] == escape and pattern[1:2] and pattern[1] in ("%", "_", escape):
        return text[:1] == pattern[1] and like(text[1:], pattern[2:], escape)
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:], escape) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:], escape)


def is_number(tree):
    """Whether the value is a number whatever the message says."""
    match tree:
        case ("arithmetic", "+", left, right):
            return is_number(left) or is_number(right)
    return bool(tree[0] in ("number", "negative", "arithmetic"))


def is_text(tree):
    """Whether a string constant takes part, so that text stays text."""
    match tree:
        case ("arithmetic", "+", left, right):
            return not is_number(tree) and (is_text(left) or is_text(right))
    return bool(tree[0] == "string")


def written(tree):
    """The tree as a selector, every part in parentheses."""
    match tree:
        case ("and" | "or" as word, *parts):
            return f" {word} ".join(f"({written(part)})" for part in parts)
        case ("not", part):
            return f"NOT ({written(part)})"
        case ("truth", value):
            return str(value)
        case ("flag" | "property", name):
            return str(name)
        case ("null", value):
            return f"({written(value)}) IS NULL"
        case ("in", name, strings):
            return f"{name} IN ({', '.join(map(quoted, strings))})"
        case ("like", value, pattern, escape):
            tail = "" if escape is None else f" ESCAPE {quoted(escape)}"
            return f"({written(value)}) LIKE {quoted(pattern)}{tail}"
        case ("between", value, low, high):
            return f"({written(value)}) BETWEEN ({written(low)}) AND ({written(high)})"
        case ("compare", operator, left, right) | ("arithmetic", operator, left, right):
            return f"({written(left)}) {operator} ({written(right)})"
        case ("number", value):
            return str(value)
        case ("string", value):
            return quoted(value)
        case ("negative", operand):
            return f"-({written(operand)})"
    raise TypeError(tree)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"
