"""What the broker asks of address policies: `Hooks` has one call for each decision and notification, made once for
each address, and None where no policy takes part. `Offer` is a message as a policy sees it before it is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stompring.errors import Refused
from stompring.settings.model import FullPolicy, PolicyUse

if TYPE_CHECKING:
    from .address import Address
    from .message import Traits
    from .queue import Queue
    from .reference import Reference
    from .transformer import Transformer

#: Headers of the SEND frame itself, which are not headers of the message.
OF_THE_FRAME = frozenset((b"content-length", b"receipt", b"transaction"))


class Offer:
    """A message offered to an address.

    Messages of one connection with the same headers share one object, with ``body`` of the present one: policies must
    not store it, only copies of its values.
    """

    __slots__ = ("_headers", "_text", "address", "body", "client_id", "connection", "peer", "traits")

    def __init__(
        self,
        address: str,
        traits: Traits,
        headers: Mapping[bytes, bytes],
        connection: str = "",
        client_id: str | None = None,
        peer: str = "",
    ) -> None:
        self.address = address  # name of the address
        self.traits = traits
        self.body = b""  # the body of the message
        self.connection = connection  # number of the connection, as in management
        self.client_id = client_id  # client-id of CONNECT, None without one
        self.peer = peer  # host and port of the client
        self._headers = headers
        self._text: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the SEND, without those of the frame itself (``receipt``, ``transaction``)."""
        if self._text is None:
            self._text = {
                name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
                for name, value in self._headers.items()
                if name not in OF_THE_FRAME
            }
        return self._text

    def changed(self, changes: Mapping[bytes, bytes | None]) -> Offer:
        """The same offer with other headers, for the next policy."""
        headers = {**self._headers, **changes}
        merged = {name: value for name, value in headers.items() if value is not None}
        offer = Offer(self.address, self.traits, merged, self.connection, self.client_id, self.peer)
        offer.body = self.body
        return offer

    def header(self, name: str) -> str | None:
        """Value of one header, None without such a header."""
        return self.headers.get(name)

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    @property
    def priority(self) -> int:
        """Priority, 0 to 9; 4 by default."""
        return self.traits.priority

    @property
    def durable(self) -> bool:
        """Whether it was sent with ``persistent:true``."""
        return self.traits.durable

    @property
    def user(self) -> str | None:
        """Name of the user, None where security is off."""
        return self.traits.user


#: Exceptions of hooks that are caught. `sys.exit()` in a plugin must not end the broker.
HOOK_EXCEPTIONS = (Exception, SystemExit)


#: Seconds. A hook that takes longer is logged and counted: it blocks the broker.
SLOW_HOOK = 0.02


class AdmissionResult(NamedTuple):
    """The result of an admission, None for a message that is accepted unchanged; `Refused` is raised for a refusal."""

    drop: bool = False
    wait: int = 0  # milliseconds until the evaluation continues; the producer is not read meanwhile
    address: str | None = None  # the address to route it to instead
    headers: Mapping[bytes, bytes | None] | None = None  # headers to set; None removes one


class Admission(Protocol):
    """The admission of one message by the policies of one address. Each policy decides once."""

    def evaluate(self, offer: Offer) -> AdmissionResult | None:
        """The result, None if the message may enter. A call after ``wait`` continues with the policy that waited.

        Raises `Refused`.
        """

    def entered(self, offer: Offer) -> None:
        """Notify the policies that accepted the message that it has entered."""

    def refused(self, offer: Offer, reason: str) -> None:
        """Notify the policies that accepted the message that it does not enter."""


class _NotEvaluated:
    """The type of `NOT_EVALUATED`: no policy has evaluated the message yet."""


NOT_EVALUATED = _NotEvaluated()


class Subscriber(NamedTuple):
    """A client that subscribes to a queue."""

    queue: str  # name of the queue
    subscription: str  # ``id`` of the SUBSCRIBE
    user: str | None  # name of the user, None where security is off
    client_id: str | None  # client-id of CONNECT, None without one
    connection: str  # number of the connection, as in management
    peer: str  # host and port of the client
    selector: str | None  # the filter, None without one
    headers: Mapping[str, str]  # headers of the SUBSCRIBE


#: Verdict for a message to a full address: a policy to apply, a refusal with its reason, or None to let it enter.
FullAnswer = FullPolicy | Refused | None

#: A notification hook: called with each reference that was enqueued, delivered, evicted ….
Listener = Callable[["Reference"], None]


class Hooks:
    """The composed hooks of one address. ``answer`` is the verdict of a full address where it is always the same."""

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
        self.overflow = overflow  # called with the view of a queue, and whether a message returns to it
        self.full: Callable[[Offer], FullAnswer] | None = None  # where ``answer`` is None
        # called directly by SEND; a result other than None, or an exception, is passed to `admission`
        self.admit: Callable[[Offer], object] | None = None
        # called with the result of ``admit``, or `NOT_EVALUATED`
        self.admission: Callable[[object], Admission] = _no_admission
        self.slow_admit: Callable[[float], None] = _not_slow  # called with the seconds that ``admit`` took
        self.reports_entered = False  # a policy overrides `AddressPolicy.entered`
        self.reports_refused = False  # a policy overrides `AddressPolicy.refused`
        self.subscribed: Callable[[Subscriber], None] | None = None
        self.enqueued: Listener | None = None
        self.evicted: Listener | None = None
        self.expired: Listener | None = None
        self.killed: Listener | None = None
        self.dead_lettered: Listener | None = None
        self.delivered: Listener | None = None
        self.settled: Listener | None = None
        self.deleted: Callable[[], None] | None = None

    def copied(self) -> Hooks:
        """Hooks of their own with the same values."""
        own = Hooks(self.answer, self.overflow)
        own.full = self.full
        own.admit = self.admit
        own.admission = self.admission
        own.slow_admit = self.slow_admit
        own.reports_entered = self.reports_entered
        own.reports_refused = self.reports_refused
        own.subscribed = self.subscribed
        own.enqueued = self.enqueued
        own.evicted = self.evicted
        own.expired = self.expired
        own.killed = self.killed
        own.dead_lettered = self.dead_lettered
        own.delivered = self.delivered
        own.settled = self.settled
        own.deleted = self.deleted
        return own


def hooks_with_settled(hooks: Hooks, settled: Listener) -> Hooks:
    """The same hooks for one queue, which also call ``settled`` after each message that is settled."""
    own = hooks.copied()
    own.settled = _both(hooks.settled, settled)
    return own


def hooks_with_notifications(hooks: Hooks, delivered: Listener | None, expired: Listener | None) -> Hooks:
    """The same hooks for one address, which also call these listeners."""
    own = hooks.copied()
    own.delivered = _both(hooks.delivered, delivered)
    own.expired = _both(hooks.expired, expired)
    return own


def _both(first: Listener | None, second: Listener | None) -> Listener | None:
    if first is None or second is None:
        return first or second

    def notify(ref: Reference) -> None:
        first(ref)
        second(ref)

    return notify


def _no_admission(answer: object) -> Admission:
    """The default of ``Hooks.admission``."""
    raise AssertionError("no policy of this address overrides admit")


def _not_slow(seconds: float) -> None:
    """No effect: several policies are timed one by one."""


class Policies(Protocol):
    """The policies of all addresses."""

    @property
    def errors(self) -> Mapping[tuple[str, str], int]:
        """Number of exceptions of policies, by policy and hook."""

    @property
    def slow_hooks(self) -> Mapping[tuple[str, str], int]:
        """Number of calls longer than `SLOW_HOOK`, by policy and hook."""

    def names_for(self, address: Address) -> list[str]:
        """Names of the policies of an address that are not built in, in the order of their calls."""

    def hooks_for(self, address: Address) -> Hooks:
        """The hooks of an address for its present settings."""

    def evicted(self, queue: Queue) -> Listener | None:
        """The listener for evictions of a ring, None without one."""

    def view_of(self, queue: Queue) -> Any:
        """The view of a queue for ``Hooks.overflow``."""

    def transformer(self, use: PolicyUse, address: Address) -> Transformer:
        """A policy as the transformer of copies of messages of an address."""

    def stop(self) -> None:
        """Stop all policies and cancel their timers."""
