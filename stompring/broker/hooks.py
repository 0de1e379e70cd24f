"""The seam to policies: what of an address may be decided by others, and who wants to hear of what happens there.

`Hooks` has one call for each such point, made once for each address (`Policies.hooks_for`), and None where no policy
wants it: nothing is ever looked up for a message. Who made the calls has taken care of what may go wrong in them: of
`Refused` alone the broker must know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stompring.errors import Refused
from stompring.settings.model import FullPolicy

if TYPE_CHECKING:
    from .address import Address
    from .offer import Offer
    from .reference import Reference
    from .ring import Ring


#: What a hook may raise without harm to anybody else. `sys.exit()` in a plugin is not meant for the broker.
FAULTS = (Exception, SystemExit)


class Ruling(NamedTuple):
    """What becomes of an offered message that is not just accepted. Who refuses it raises `Refused` instead."""

    drop: bool = False
    wait: int = 0  # milliseconds after which its producer may offer it again; nothing of it is read meanwhile
    address: str | None = None  # it goes to this one instead
    headers: Mapping[bytes, bytes | None] | None = (
        None  # these are as if sent so; None for one that is not there
    )


class Subscriber(NamedTuple):
    """Who wants to consume from a queue."""

    queue: str
    subscription: str
    user: str | None
    client_id: str | None
    connection: str
    peer: str
    selector: str | None
    headers: Mapping[str, str]


#: How a full address answers a message: as that policy would, with a reason of its own, or not at all (it may enter).
FullAnswer = FullPolicy | Refused | None

Told = Callable[["Reference"], None]


class Hooks:
    """The resolved policies of one address. ``answer`` is that of a full address where it is always the same."""

    __slots__ = (
        "admit",
        "answer",
        "dead_lettered",
        "deleted",
        "delivered",
        "enqueued",
        "evicted",
        "expired",
        "full",
        "judge",
        "killed",
        "overflow",
        "settled",
        "subscribed",
    )

    def __init__(self, answer: FullPolicy | None, overflow: Callable[[Any, bool], None]) -> None:
        self.answer = answer
        self.overflow = (
            overflow  # of what stands for a queue (`Policies.view_of`), and whether one comes back
        )
        self.full: Callable[[Offer], FullAnswer] | None = None  # where ``answer`` is None
        # what it answers other than None, or raises, is for `judge`: between a SEND and a policy stands no other call
        self.admit: Callable[[Offer], object] | None = None
        self.judge: Callable[[object], Ruling | None] = _no_judge
        self.subscribed: Callable[[Subscriber], None] | None = None
        self.enqueued: Told | None = None
        self.evicted: Told | None = None
        self.expired: Told | None = None
        self.killed: Told | None = None
        self.dead_lettered: Told | None = None
        self.delivered: Told | None = None
        self.settled: Told | None = None
        self.deleted: Callable[[], None] | None = None


def _no_judge(answer: object) -> Ruling | None:
    """Nobody has answered."""
    raise AssertionError("nothing to judge where nobody is asked")


class Policies(Protocol):
    """Who has the policies."""

    @property
    def errors(self) -> Mapping[tuple[str, str], int]:
        """How often policies have raised, by policy and hook."""

    def names_for(self, address: Address) -> list[str]:
        """The policies of an address that are not built in, in the order in which they are asked."""

    def hooks_for(self, address: Address) -> Hooks:
        """The hooks of an address with the settings that it has now."""

    def evicted(self, queue: Ring) -> Told | None:
        """Who hears of what a ring gives up."""

    def view_of(self, queue: Ring) -> Any:
        """What stands for a queue in ``Hooks.overflow``."""

    def stop(self) -> None:
        """No timer is left behind."""
