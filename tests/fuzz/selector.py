"""The selector grammar: a selector or an error of one line; tested on a message it says yes or no and never raises.

An input is the selector in UTF-8, then after bytes of 0xFF the values of the properties a, b and c, and a body.
"""

from stompring.selector import InvalidSelector, compile_selector

from ..selector.message import Message
from .oracle import expect

LONGEST = 2048
MODULES = ["stompring.selector"]
TOKENS = [
    b" AND ",
    b" OR ",
    b"NOT ",
    b" BETWEEN 1 AND 2",
    b" LIKE '",
    b"%'",
    b"_%'",
    b" ESCAPE '!'",
    b" IN ('",
    b"','",
    b" IS NULL",
    b" IS NOT NULL",
    b"TRUE",
    b"FALSE",
    b"NULL",
    b"XPATH '",
    b"//a[",
    b"count(",
    b"XQUERY '",
    b"convert_string_expressions:",
    b"no_convert_string_expressions:",
    b"hyphenated_props:",
    b"--",
    b"/*",
    b"*/",
    b"0x1F",
    b"1e999",
    b"9223372036854775807",
    b"''",
    b'"a b"',
    b"<>",
    b"<=",
    b">=",
    b"a",
    b"b",
    b"(",
    b")",
    b"\xff",
]

ERROR = 400

#: Characters of a selector, at most.
LENGTH_LIMIT = 8192


def check(data):
    """See the module."""
    parts = data.split(b"\xff", 4)
    text = parts[0].decode("utf-8", "ignore")
    selector = compiled(text)
    if selector is None:
        return
    values = [part.decode("utf-8", "replace") for part in parts[1:4]]
    body = parts[4] if len(parts) > 4 else b"<a><b>1</b></a>"
    properties = dict(zip("abc", values, strict=False))
    for message in (Message({}), Message(properties, body), Message({"a": 5, "b": -0.5, "c": True}, b"<")):
        holds = selector.matches(message)
        expect(type(holds) is bool, f"{text!r} gives {holds!r}")
        expect(set(message.asked) <= selector.names | {"BODY"}, f"{text!r} reads {message.asked}")
        if holds:
            fails = compiled(f"NOT ({text}\n)") if ":" not in text else None
            expect(fails is None or not fails.matches(message), f"{text!r} is true and false")


def compiled(text):
    """The selector, None where it was refused as the documents say."""
    try:
        return compile_selector(text)
    except InvalidSelector as refusal:
        said = str(refusal)
        expect(bool(said) and said.isprintable() and len(said) <= ERROR, f"{text!r} is refused with {said!r}")
        column, length = refusal.column, len(text.strip())
        expect(length > LENGTH_LIMIT or column is None or 1 <= column <= length + 1, f"{text!r}: {said}")
        return None
