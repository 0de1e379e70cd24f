"""Selectors over the lines of a message's headers give what they give over its properties."""

import pytest

from stompring.broker.message import SYSTEM_PROPERTIES
from stompring.selector import compile_selector
from tests.broker.broker_fixture import BrokerFixture
from tests.selector.message import LinesMessage

HEADERS = {
    "color": "red",
    "shade": "red-ish",
    "size": "5",
    "flag": "true",
    "empty": "",
    "path": "a\\cb",
    "a\\cb": "x",
    "back": "\\\\",
    "umlaut": "ü",
    "priority": "9",
    "AMQlike": "y",
}


@pytest.mark.parametrize(
    "text, holds, fails",
    [
        ("color = 'red'", True, False),
        ("shade = 'red'", False, True),
        ("olor = 'red'", False, False),
        ("missing IS NULL", True, False),
        ("empty = ''", True, False),
        ("shade LIKE 'red%'", True, False),
        ("shade LIKE 'ed%'", False, True),
        ("missing LIKE '%'", False, False),
        ("size = 5", True, False),
        ("path = 'a:b'", True, False),
        ("path = 'a\\cb'", False, True),
        ("path LIKE 'a:%'", True, False),
        ("\"a:b\" = 'x'", True, False),
        ("back = '\\'", True, False),
        ("umlaut = 'ü'", True, False),
        ("umlaut = '\ufffd'", False, True),
        ("raw = '\ufffd'", True, False),
        ("raw LIKE '\ufffd%'", True, False),
        ("raw IS NULL", False, True),
        ("AMQlike = 'y'", True, False),
        ("AMQPriority = 4", True, False),
        ("JMSType = 'order'", True, False),
        ("expires = '0'", True, False),
        ("inner = 'x'", False, False),
    ],
)
def test_a_message_matches(text, holds, fails):
    message = BrokerFixture().message("a", b"\ninner:x\n\n", headers={**HEADERS, "type": "order"})
    block = message.traits.block
    at = message.tail.index(block) + len(block)
    message.tail = message.tail[:at] + b"raw:\xff\n" + message.tail[at:]  # not UTF-8
    message.body_at += len(b"raw:\xff\n")
    selector, opposite = compile_selector(text), compile_selector(f"NOT ({text})")
    assert (selector.matches_lines(message), opposite.matches_lines(message)) == (holds, fails)
    assert (selector.matches(message), opposite.matches(message)) == (holds, fails)


def test_what_the_broker_adds_is_asked_of_the_message():
    for name in {*SYSTEM_PROPERTIES, "content-length", "timestamp", "expires", "color"}:
        message = LinesMessage({name: "x"})
        compile_selector(f"\"{name}\" = 'x'").matches_lines(message)
        assert message.asked == [name] * (name != "color")


def test_errors_mean_no_match():
    assert compile_selector("color = 'red'").matches_lines(object()) is False
