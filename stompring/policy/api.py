"""The policy API: the class `AddressPolicy` with its hooks, and the verdicts that hooks return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Self

from .parameters import Parameter, declared_parameters

if TYPE_CHECKING:
    from stompring.broker.policy_hooks import Offer, Subscriber

    from .views import AddressView, MessageView, QueueView


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuses the message or the subscription: its client gets an ERROR with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Stops reading the connection for so many milliseconds, then calls `admit` again. Nothing is lost."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Redirect:
    """Routes the message to another address, whose policies are called as well; ``headers`` as in `ChangeHeaders`."""

    address: str
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangeHeaders:
    """Sets headers of the message, as if it had been sent with them; None removes a header.

    Headers with a meaning keep it (``priority``, ``expires``, ``persistent``, ``AMQ_SCHEDULED_DELAY``). Not allowed
    are ``destination`` (see `Redirect`) and the headers of the frame: ``receipt``, ``transaction``, ``content-length``.
    """

    headers: Mapping[str, str | None]


class Word(Enum):
    """Verdicts without a value."""

    ACCEPT = "ACCEPT"
    DROP = "DROP"
    PAGE = "PAGE"
    BLOCK = "BLOCK"
    FAIL = "FAIL"
    DROP_OLDEST = "DROP_OLDEST"


#: In `admit`: accepts the message without calling later policies. In `full`: accepts it although the address is full.
ACCEPT = Word.ACCEPT
#: Discards the message and counts it in droppedMessageCount. The producer gets no ERROR.
DROP = Word.DROP
#: Pages the message to disk, and all later ones until the pages are consumed. Without a store as BLOCK.
PAGE = Word.PAGE
#: Stops reading the producer until the address is below its limit.
BLOCK = Word.BLOCK
#: Refuses the message: its producer gets an ERROR that names the limit.
FAIL = Word.FAIL
#: Evicts the oldest messages of the address until it is below its limit; discards the new one if none can be evicted.
DROP_OLDEST = Word.DROP_OLDEST

Verdict = Refuse | Wait | Redirect | ChangeHeaders | Word
FullVerdict = Refuse | Word


class AddressPolicy:
    """Base of all policies. Every address that has the policy has its own object of the class.

    The broker looks up hooks once for each address: a hook that is not overridden costs nothing. *Hot* hooks are
    called for every message, on the reactor's thread: they must be quick and must never block. An exception in a hook
    refuses the one operation that the hook decides about (`admit`, `full`, `subscribed`); after an exception in any
    other hook the broker continues as if it had returned None. Exceptions are logged once and counted
    (``stompring_policy_errors_total``).
    """

    #: The verdict of `full` where it is always the same: `full` is not called then.
    full_answer: ClassVar[Word | None] = None

    #: By their names in Python. Filled in for every class.
    parameters: ClassVar[dict[str, Parameter]] = {}

    #: The address of the policy. Set before `created` is called.
    address: AddressView

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.parameters = declared_parameters(cls)

    # ---- lifecycle

    def check(self) -> None:
        """Checks the parameters together. Raise `ValueError` to reject broker.xml.

        Called on an object without an address.
        """

    def created(self) -> None:
        """Called when the address was created, the broker started, or a reload gave the address this policy.

        If it raises, the address accepts no messages and no subscribers until a reload replaces the policy. The
        text of a `ValueError` is sent to clients.
        """

    def replaces(self, former: Self) -> None:
        """Called after `created` when a reload replaced ``former`` by this object: take over its state here.

        A reload replaces an object whose parameters or code have changed. ``former`` may be of an older version of
        the class.
        """

    def deleted(self) -> None:
        """Called when the address was deleted. `closed` follows."""

    def closed(self) -> None:
        """Called last: the address was deleted, a reload removed the policy, or the broker stops."""

    # ---- incoming messages

    def admit(self, offer: Offer) -> Verdict | None:
        """Decides whether a message may enter. Hot: called for every SEND to the address.

        None accepts the message and lets later policies decide; ACCEPT accepts it without calling them. The other
        verdicts are `ChangeHeaders`, `Redirect`, `Refuse`, `Wait` and DROP. Called once for a message, however long
        the message waits for memory afterwards, and again only after a `Wait` of this policy. In a transaction called
        at SEND. Not called for messages that the broker sends itself: dead letters, expired messages, copies.
        """
        return None

    def entered(self, offer: Offer) -> None:
        """Called when a message accepted by this policy has entered an address: this one, or one redirected to.

        Hot: called for every message. In a transaction at COMMIT. For each message that `admit` accepts either this
        or `refused` is called, once.
        """

    def refused(self, offer: Offer, reason: str) -> None:
        """Called when a message accepted by this policy does not enter: undo what `admit` has recorded.

        Reasons are: a later policy refused or dropped it, the address or the disk was full (FAIL, DROP), it was a
        duplicate, its transaction was aborted or could not be committed, or its connection closed while it waited.
        ``reason`` is a text for people.
        """

    def full(self, offer: Offer) -> FullVerdict | None:
        """Decides about a message for a full address. Called for every SEND while the address is full.

        Verdicts are PAGE, BLOCK, DROP, DROP_OLDEST, FAIL, `Refuse`, and ACCEPT, which lets the message enter all the
        same (the policy may have evicted others); None leaves the decision to the next policy, and in the end to the
        ``address-full-policy``. In a transaction called for all its messages at COMMIT, before any of them enters.
        """
        return self.full_answer

    # ---- rings

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """Evicts messages of a ring over its size, or of a full one to which a message returns (``returning``).

        Policies are called in turn until the ring has its size; the last one is the built-in ring, which evicts the
        oldest message for a new one, and none for a returning one, which is then lost itself.
        """

    # ---- messages in queues

    def enqueued(self, message: MessageView) -> None:
        """Called when a message waits in a queue, in memory: no consumer was ready, it returned, or it fell due.

        Also called for messages that were in memory when the broker stopped. Hot where consumers are slow.
        """

    def evicted(self, message: MessageView) -> None:
        """Called when a ring evicts a message (messagesReplaced).

        A ring that counts paged messages reads them from disk for this hook.
        """

    def expired(self, message: MessageView) -> None:
        """Called when a message has expired; it was sent to the expiry-address, if there is one."""

    def killed(self, message: MessageView) -> None:
        """Called when a message was purged, deleted with its queue, or failed without a dead-letter address.

        Not called for messages on disk that are purged.
        """

    def dead_lettered(self, message: MessageView) -> None:
        """Called when a message was sent to the dead-letter-address after its last delivery attempt."""

    # ---- consumers

    def subscribed(self, subscriber: Subscriber) -> Refuse | None:
        """Decides whether a client may consume from a queue of the address. `Refuse` sends it an ERROR."""
        return None

    def delivered(self, message: MessageView) -> None:
        """Called when a message is delivered to a consumer. Hot, and disables direct delivery from SEND to consumer."""

    def settled(self, message: MessageView) -> None:
        """Called when a message was acknowledged. Hot, as `delivered`."""
