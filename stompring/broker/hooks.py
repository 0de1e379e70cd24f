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
    from .queue import Queue
    from .reference import Reference


#: What a hook may raise without harm to anybody else. `sys.exit()` in a plugin is not meant for the broker.
HOOK_EXCEPTIONS = (Exception, SystemExit)


#: Seconds. A hook that takes longer is logged and counted: nobody else is served meanwhile.
SLOW_HOOK = 0.02


class AdmissionResult(NamedTuple):
    """What becomes of an offered message that is not just accepted. Who refuses it raises `Refused` instead."""

    drop: bool = False
    wait: int = (
        0  # milliseconds after which it is evaluated further; nothing of its producer is read meanwhile
    )
    address: str | None = None  # it goes to this one instead
    headers: Mapping[bytes, bytes | None] | None = (
        None  # these are as if sent so; None for one that is not there
    )


class Admission(Protocol):
    """The evaluation of one message by the policies of one address. Each policy decides once."""

    def evaluate(self, offer: Offer) -> AdmissionResult | None:
        """What becomes of it, None where it may enter. After ``wait`` it goes on with who has asked for that.

        Raises `Refused`.
        """

    def entered(self, offer: Offer) -> None:
        """Notify the policies that have let it pass that it has entered."""

    def refused(self, offer: Offer, reason: str) -> None:
        """Notify them that it has not, and will not."""


class _NotEvaluated:
    """Stands for the answer of a policy that was not asked."""


NOT_EVALUATED = _NotEvaluated()


class Subscriber(NamedTuple):
    """Who wants to consume from a queue."""

    queue: str  # name of the queue
    subscription: str  # ``id`` of the SUBSCRIBE
    user: str | None  # who is logged in, None where security is off
    client_id: str | None  # of CONNECT, None where none was sent
    connection: str  # its number, as in management
    peer: str  # host and port of the client
    selector: str | None  # the filter, None where there is none
    headers: Mapping[str, str]  # those of the SUBSCRIBE


#: How a full address answers a message: as that policy would, with a reason of its own, or not at all (it may enter).
FullAnswer = FullPolicy | Refused | None

Listener = Callable[["Reference"], None]


class Hooks:
    """The resolved policies of one address. ``answer`` is that of a full address where it is always the same."""

    __slots__ = (
        "admission",
        "admit",
        "answer",
        "dead_lettered",
        "deleted",
        "delivered",
        "enqueued",
        "evicted",
        "expired",
        "full",
        "killed",
        "overflow",
        "reports_entered",
        "reports_refused",
        "settled",
        "slow_admit",
        "subscribed",
    )

    def __init__(self, answer: FullPolicy | None, overflow: Callable[[Any, bool], None]) -> None:
        self.answer = answer
        self.overflow = (
            overflow  # of what stands for a queue (`Policies.view_of`), and whether one comes back
        )
        self.full: Callable[[Offer], FullAnswer] | None = None  # where ``answer`` is None
        # what it answers other than None, or raises, is for `admission`: no call stands between a SEND and a policy
        self.admit: Callable[[Offer], object] | None = None
        # of a message to which ``admit`` has answered this, or `NOT_EVALUATED`
        self.admission: Callable[[object], Admission] = _no_admission
        self.slow_admit: Callable[[float], None] = _not_slow  # ``admit`` took these seconds
        self.reports_entered = False  # some policy wants to know of each message that it has entered
        self.reports_refused = False  # … that it has not
        self.subscribed: Callable[[Subscriber], None] | None = None
        self.enqueued: Listener | None = None
        self.evicted: Listener | None = None
        self.expired: Listener | None = None
        self.killed: Listener | None = None
        self.dead_lettered: Listener | None = None
        self.delivered: Listener | None = None
        self.settled: Listener | None = None
        self.deleted: Callable[[], None] | None = None


def _no_admission(answer: object) -> Admission:
    """Nobody has answered."""
    raise AssertionError("nothing to evaluate where nobody is asked")


def _not_slow(seconds: float) -> None:
    """Several policies are timed one by one."""


class Policies(Protocol):
    """Who has the policies."""

    @property
    def errors(self) -> Mapping[tuple[str, str], int]:
        """How often policies have raised, by policy and hook."""

    @property
    def slow_hooks(self) -> Mapping[tuple[str, str], int]:
        """How often hooks took longer than `SLOW_HOOK`, by policy and hook."""

    def names_for(self, address: Address) -> list[str]:
        """The policies of an address that are not built in, in the order in which they are asked."""

    def hooks_for(self, address: Address) -> Hooks:
        """The hooks of an address with the settings that it has now."""

    def evicted(self, queue: Queue) -> Listener | None:
        """Who hears of what a ring gives up."""

    def view_of(self, queue: Queue) -> Any:
        """What stands for a queue in ``Hooks.overflow``."""

    def stop(self) -> None:
        """No timer is left behind."""
