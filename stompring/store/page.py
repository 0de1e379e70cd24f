"""One page file: where its messages are, and who still has some of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from stompring.broker.message import Message

from .page_footer import LASTING, Contents

if TYPE_CHECKING:
    from .block import Block
    from .ended import Ended
    from .holding import Holding
    from .page_file import PageFile
    from .plan import Plan
    from .stream import Stream


class MadeMessage(ref[Message]):
    """A message that was made of a position, while somebody holds it."""

    __slots__ = ("index",)

    index: int


class Page:
    """A page of an address; see `broker.paging.Page`.

    ``holdings`` are those of all cursors that ever had something here, ``left`` counts those that still have.
    ``starts`` is None where it would have to be read from the footer first.
    """

    __slots__ = (
        "asking",
        "blocks",
        "bytes",
        "contents",
        "count",
        "damage",
        "end",
        "ended",
        "file",
        "first_number",
        "forget_message",
        "gone",
        "holdings",
        "left",
        "made",
        "names",
        "number",
        "path",
        "plan",
        "retains",
        "sealed",
        "soonest_due",
        "soonest_expiry",
        "starts",
        "stream",
        "unreadable",
        "waiting_for_starts",
    )

    def __init__(self, number: int, path: Path, first_number: int) -> None:
        self.number = number
        self.path = path
        self.first_number = first_number
        self.count = 0
        self.end = 0  # bytes before the footer
        self.bytes = 0  # as the file counts
        self.soonest_expiry = 0
        self.soonest_due = 0
        self.contents: Contents | None = None  # while it is written
        self.starts: array[int] | None = None
        self.stream: Stream | None = None  # None for one of an earlier run
        self.sealed = False  # its footer is in the file, so that `starts` can be read again
        self.gone = False
        self.retains = (
            False  # all queues retain some message of it, also such as a restart does not bring back
        )
        self.unreadable: set[int] = set()
        self.damage: str | None = None  # it is set aside, and not deleted, when its time comes
        self.holdings: list[Holding] = []
        self.ended: list[Ended] = []  # queues that had something here, and were deleted
        self.file: PageFile | None = None  # as the journal keeps it
        self.left = 0
        self.plan: Plan | None = None  # of the message written last
        self.names: set[int] = set()  # queues whose names were told in it
        self.blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()
        self.made: dict[int, MadeMessage] = {}
        self.asking: dict[int, list[Any]] = {}  # by block, who waits for it to be read
        self.waiting_for_starts: list[Callable[[], None]] | None = None
        made = self.made

        def forget_message(gone: MadeMessage) -> None:
            if made.get(gone.index) is gone:
                del made[gone.index]

        self.forget_message = forget_message

    def __repr__(self) -> str:
        return f"<Page {self.number} with {self.count} messages>"

    def keeps(self, index: int) -> bool:
        """Whether the message at a position is safe, or will be, so that facts about it may be told."""
        return self.contents is None or self.contents.kinds[index] & LASTING != 0

    def share(self, index: int, message: Message) -> None:
        """This is the message at a position for all who ask, while anybody holds it."""
        made = MadeMessage(message, self.forget_message)
        made.index = index
        self.made[index] = made
