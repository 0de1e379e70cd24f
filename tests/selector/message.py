"""What the tests of selectors test them on."""

from __future__ import annotations

from collections.abc import Mapping

from stompring.selector import compile_selector

Value = str | int | float | bool | None


class Message:
    """Properties and a body, and a count of how often each was asked for."""

    def __init__(self, properties: Mapping[str, Value], body: bytes = b"") -> None:
        self._properties = properties
        self._body = body
        self.asked: list[str] = []

    def get_property(self, name: str) -> Value:
        self.asked.append(name)
        return self._properties.get(name)

    def get_body(self) -> bytes:
        self.asked.append("BODY")
        return self._body


def outcome(text: str, properties: Mapping[str, Value], body: bytes = b"") -> str:
    """T, F or U: what the text is for the message, found out by asking for it and for its negation."""
    prefix, _, condition = text.rpartition(":") if "_expressions:" in text else ("", "", text)
    start = f"{prefix}:" if prefix else ""
    holds = compile_selector(start + condition).matches(Message(properties, body))
    fails = compile_selector(f"{start}NOT ({condition})").matches(Message(properties, body))
    assert type(holds) is bool and type(fails) is bool
    assert not (holds and fails), f"{text} is true and false"
    return "T" if holds else "F" if fails else "U"
