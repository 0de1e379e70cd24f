"""What a policy may say to a message: the answers of the hooks ``admit``, ``full`` and ``subscribed``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Refuse:
    """The message, or the subscription, is refused: its client gets an ERROR with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The connection is not read for so many milliseconds; then this policy is asked again. Nothing is lost."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Redirect:
    """The message goes to another address, whose policies are asked as well; with other headers, as `ChangeHeaders`."""

    address: str
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeHeaders:
    """The message goes on as if it had been sent with these headers; None removes one.

    Headers with a meaning keep it (``priority``, ``expires``, ``persistent``, ``AMQ_SCHEDULED_DELAY``). Not allowed
    are ``destination`` (`Redirect` is for that) and those of the frame: ``receipt``, ``transaction``,
    ``content-length``.
    """

    headers: Mapping[str, str | None]


class Word(Enum):
    """Answers without anything else to say."""

    ACCEPT = "ACCEPT"
    DROP = "DROP"
    PAGE = "PAGE"
    BLOCK = "BLOCK"
    FAIL = "FAIL"
    DROP_OLDEST = "DROP_OLDEST"


#: In `admit`: the message may enter, and no later policy is asked. In `full`: it enters all the same.
ACCEPT = Word.ACCEPT
#: The message is thrown away and counts in droppedMessageCount; its producer is not told.
DROP = Word.DROP
#: It goes to disk, and what comes after it, until all of that is consumed. As BLOCK where there is no store.
PAGE = Word.PAGE
#: Its producer is not read until there is room.
BLOCK = Word.BLOCK
#: Its producer gets an ERROR that names the limit.
FAIL = Word.FAIL
#: The address gives up its oldest messages until there is room; where there are none, the message itself.
DROP_OLDEST = Word.DROP_OLDEST

Verdict = Refuse | Wait | Redirect | ChangeHeaders | Word
FullVerdict = Refuse | Word
