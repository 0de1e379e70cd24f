"""The pictures of rings and of last values in docs/queues.md: each line is done, and what it shows is compared."""

import re

import pytest

from ..broker.broker_fixture import BrokerFixture, bodies, join
from .pages import text_of
from .test_protocol import section

RING = {"ring_size": 3}
LAST_VALUE = {"last_value_key": "code"}
PICTURES = [
    (picture, attributes)
    for title, attributes in (("Rings", RING), ("Last values", LAST_VALUE))
    for picture in re.findall(
        r"^```\n(.*?)^```$", section(title, text_of("docs/queues.md")), re.MULTILINE | re.DOTALL
    )
]
LINE = re.compile(
    r"(?P<action>.+?) {2,}waiting (?P<waiting>[A-Z0-9 ]+?|-)"
    r"(?: {2,}consumer has (?P<held>[A-Z0-9 ]+?))?"
    r"(?: {2,}scheduled (?P<scheduled>[A-Z0-9 ]+?))?"
    r"(?: {2,}(?P<replaced>[A-Z0-9 ]+?) is replaced)?"
)


def letters(text):
    """The messages of a column."""
    return [] if text in (None, "-") else text.split()


class Scene:
    """A ring, at most one consumer, and what a line says is done."""

    def __init__(self, attributes):
        self.world = BrokerFixture()
        self.queue = self.world.queue(**attributes)
        self.taker = None

    def act(self, action):
        """Do what the first column says."""
        if later := re.fullmatch(r"send ([A-Z][0-9]?) in (\d+) s", action):
            self._send(later[1], due=self.world.now + int(later[2]) * 1000)
        elif sent := re.fullmatch(r"send ([A-Z0-9 ]+)", action):
            for letter in letters(sent[1]):
                self._send(letter)
        elif passed := re.fullmatch(r"(\d+) s later", action):
            self.world.pass_time(int(passed[1]) * 1000)
        elif action in ("a consumer comes", "one at a time"):
            self.taker = join(self.queue, 1 if action == "one at a time" else None)
        elif refused := re.fullmatch(r"NACK ([A-Z][0-9]?)", action):
            assert self.taker is not None
            self.taker.nack(*(ref for ref in self.taker.unsettled if ref.message.body == refused[1].encode()))
        elif action == "it goes away":
            self.taker.close()
            self.taker = None
        else:
            raise AssertionError(f"what is {action!r}?")

    def _send(self, message, due=0):
        """The letter is the key of a last value."""
        self.world.send(body=message.encode(), headers={"code": message[0]}, due=due)

    @property
    def waiting(self):
        """The messages that wait, the head first."""
        return [body.decode() for body in bodies(self.queue)]

    @property
    def held(self):
        """What the consumer has."""
        return [] if self.taker is None else [ref.message.body.decode() for ref in self.taker.unsettled]

    @property
    def scheduled(self):
        """What is to come."""
        return [ref.message.body.decode() for ref in self.queue.scheduled.values()]


def test_there_are_pictures():
    assert len(PICTURES) >= 9
    assert sum(picture.count("is replaced") for picture, _ in PICTURES) >= 8


@pytest.mark.parametrize("picture, attributes", PICTURES)
def test_picture(picture, attributes):
    scene = Scene(attributes)
    there = set()
    for line in picture.splitlines():
        shown = LINE.fullmatch(line)
        assert shown, line
        replaced = scene.queue.messages_replaced
        scene.act(shown["action"])
        assert scene.waiting == letters(shown["waiting"]), line
        assert scene.held == letters(shown["held"]), line
        assert scene.scheduled == letters(shown["scheduled"]), line
        there |= {*re.findall(r"\b[A-Z][0-9]?\b", line)}
        there -= {*letters(shown["replaced"])}
        assert scene.queue.messages_replaced - replaced == len(letters(shown["replaced"])), line
        assert {*scene.waiting, *scene.held, *scene.scheduled} == there, line
