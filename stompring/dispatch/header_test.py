"""Selectors that are decided by headers alone: one answer for all messages that were sent with the same ones."""

from __future__ import annotations

from stompring.broker.consumer import Matches
from stompring.broker.message import SYSTEM_PROPERTIES, Message, Traits
from stompring.broker.paging import Block

#: Answers that one test remembers.
REMEMBERED = 4096

#: System properties that are the same for all messages with the same traits.
SHARED = frozenset(
    {
        "AMQPriority",
        "AMQDurable",
        "AMQGroupID",
        "AMQUserID",
        "JMSPriority",
        "JMSDeliveryMode",
        "JMSCorrelationID",
        "JMSType",
        "JMSReplyTo",
    }
)

#: Header lines that are written for each message.
OWN_LINES = frozenset({b"content-length", b"timestamp", b"expires"})


class HeaderView(Message):
    """A message of which only the headers are known. It notes when it is asked for anything else."""

    __slots__ = ("beyond",)

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self.tail = b"\n" + traits.block
        self.body_at = len(self.tail)
        self.beyond = False  # the answer may be another one for another message

    def header(self, name: bytes) -> bytes | None:
        """See `Message.header`."""
        if name in OWN_LINES:
            self.beyond = True
        return super().header(name)

    def headers(self) -> dict[str, str]:
        """See `Message.headers`."""
        self.beyond = True
        return super().headers()

    def get_property(self, name: str) -> str | int | float | bool | None:
        """See `Message.get_property`."""
        if name in SYSTEM_PROPERTIES and name not in SHARED:
            self.beyond = True
            return None
        return super().get_property(name)

    @property
    def body(self) -> bytes:
        """See `Message.body`."""
        self.beyond = True
        return b""

    def get_body(self) -> bytes:
        """See `Message.get_body`."""
        return self.body

    def __getattr__(self, name: str) -> object:
        self.beyond = True  # a slot that is empty here
        raise AttributeError(name)


class HeaderTest:
    """Asks a predicate, and asks it once only for equal headers where these alone decide."""

    __slots__ = ("_known", "matches")

    def __init__(self, matches: Matches) -> None:
        self.matches = matches
        self._known: dict[Traits, bool | None] = {}  # None: every message has to be asked

    def __call__(self, block: Block, index: int) -> bool:
        """Whether the message at a position of a block matches."""
        traits = block.traits(index)
        known = self._known.get(traits, self)
        if known is self:
            known = self._judge(traits)
        if known is None:
            return bool(self.matches(block.message(index)))
        return known is True

    def _judge(self, traits: Traits) -> bool | None:
        view = HeaderView(traits)
        try:
            answer: bool | None = bool(self.matches(view))
        except AttributeError:
            answer = None
        if view.beyond:
            answer = None
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[traits] = answer
        return answer
