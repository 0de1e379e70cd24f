"""What the journal keeps of each page file: that it is there, and once it is complete whose messages are in it.

So a file that is missing is noticed, and it is known what is lost with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .kept import Kept
from .page_footer import Contents, Summary
from .record import BEGUN, COMPLETE, PAGE_FILE, PAGE_SHARE, REMOVED, Kind
from .tail import Tail

if TYPE_CHECKING:
    from .journal import Journal


class PageFile(Kept):
    """A page file. ``shares`` has how many of its durable messages entered each durable queue, by number.

    It is None until the page is complete; ``messages`` counts all of them then.
    """

    __slots__ = ("_address", "_log", "_number", "messages", "shares")

    def __init__(self, log: Journal, address: int, number: int) -> None:
        super().__init__()
        self.messages = 0
        self.shares: Mapping[int, int] | None = None
        self._log = log
        self._address = address
        self._number = number

    def tell(self, tail: Tail) -> None:
        """See `Kept.tell`."""
        shares = {} if self.gone or self.shares is None else self.shares
        operation = REMOVED if self.gone else BEGUN if self.shares is None else COMPLETE
        messages = self.messages if operation == COMPLETE else 0
        log, number = self._log, self._number
        if log.next_page:
            log.next_page = max(log.next_page, number + 1)
        head = PAGE_FILE.pack(Kind.PAGE_FILE, operation, 0, self._address, number, messages, len(shares))
        tail.add(head + b"".join([PAGE_SHARE.pack(*share) for share in shares.items()]))


def shares_of(contents: Contents | Summary) -> dict[int, int]:
    """How many durable messages of a page entered each durable queue."""
    if isinstance(contents, Contents):
        contents = contents.summary()
    return {queue: count for queue in contents.members if (count := _count(contents, queue))}


def _count(summary: Summary, queue: int) -> int:
    states = summary.states(queue)
    return len(states) - states.count(0)


def describe_loss(lost: Mapping[str, int] | None, *, more: bool = False) -> str:
    """Messages that are lost, by queue; None where nobody can tell, ``more`` where those may not be all."""
    if lost is None:
        return "all that were in it, their number is not known"
    each = ", ".join(f"{count} of queue {name}" for name, count in sorted(lost.items()))
    if more:
        return f"at least {each}, the whole number is not known" if each else "their number is not known"
    return each or "none"
