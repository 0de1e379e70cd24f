"""What the tests of selectors test them on."""

from stompring.selector import compile_selector


class Message:
    """Properties and a body, and a count of how often each was asked for."""

    def __init__(self, properties, body=b""):
        self._properties = properties
        self._body = body
        self.asked = []

    def get_property(self, name):
        self.asked.append(name)
        return self._properties.get(name)

    def get_body(self):
        self.asked.append("BODY")
        return self._body


class LinesMessage:
    """Properties that are all text, as lines; and a count of how often it was asked for others than lines."""

    def __init__(self, properties):
        self.asked = []
        self._properties = properties
        lines = [b"1\ncontent-length:1\n"]
        for name, value in properties.items():
            lines.append(_escaped(name) + b":" + _escaped(value) + b"\n")
        head = b"".join([*lines, b"\n"])
        self.body_at = len(head)
        self.tail = head + b"\na:x\nb:x\n\n\0\n"  # the body has what looks like headers

    def get_property(self, name):
        self.asked.append(name)
        return self._properties.get(name)

    def get_body(self):
        raise AssertionError("no selector here reads the body")

    def text_of_line(self, line):
        assert line.startswith(b"\n") and line.endswith(b":")
        return self._properties.get(line[1:-1].decode())


def _escaped(text):
    pairs = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), (":", "\\c"))
    for sign, written in pairs:
        text = text.replace(sign, written)
    return text.encode()


def outcome(text, properties, body=b""):
    """T, F or U: what the text is for the message, found out by asking for it and for its negation."""
    prefix, _, condition = text.rpartition(":") if "_expressions:" in text else ("", "", text)
    start = f"{prefix}:" if prefix else ""
    holds = compile_selector(start + condition).matches(Message(properties, body))
    fails = compile_selector(f"{start}NOT ({condition})").matches(Message(properties, body))
    assert type(holds) is bool and type(fails) is bool
    assert not (holds and fails), f"{text} is true and false"
    return "T" if holds else "F" if fails else "U"
