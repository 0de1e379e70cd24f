"""The policy API: the class `AddressPolicy` with its hooks, and the verdicts that hooks return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Self

from .parameters import Parameter, declared_parameters

if TYPE_CHECKING:
    from stompring.broker.hooks import Subscriber
    from stompring.broker.offer import Offer

    from .views import AddressView, MessageView, QueueView


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


class AddressPolicy:
    """Base of all policies. Each address that has the policy has an object of its own.

    A hook is looked for once for each address: one that is not overridden costs nothing. *Hot* hooks are called for
    every message, on the reactor's thread, and so must be quick and must never wait. A hook that raises refuses the
    one operation that it was asked about, where there is one to refuse (`admit`, `full`, `subscribed`); what has
    happened already goes on as if it had said nothing. Either is logged once and counted
    (``stompring_policy_errors_total``).
    """

    #: What `full` answers where that is always the same: no call is made then.
    full_answer: ClassVar[Word | None] = None

    #: By their names in Python. Filled in for every class.
    parameters: ClassVar[dict[str, Parameter]] = {}

    #: The address it is for. Set before `created` is called.
    address: AddressView

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.parameters = declared_parameters(cls)

    # ---- its life

    def check(self) -> None:
        """The parameters are set. Raise `ValueError` for what they cannot be together; broker.xml is refused then.

        Called on an object of its own, which no address has.
        """

    def created(self) -> None:
        """Its address exists: it was made, or the broker started, or a reload gave it this policy.

        An address whose policy raises here takes no messages and no subscribers before that is mended. The text of a
        `ValueError` is told to them.
        """

    def replaces(self, former: Self) -> None:
        """A reload has put this object in the place of ``former``: take over what it remembers. After `created`.

        Called where parameters or the policy's code have changed; else the object stays. ``former`` may be of an older
        version of the class.
        """

    def deleted(self) -> None:
        """The address was deleted. `closed` follows."""

    def closed(self) -> None:
        """The policy is done with: its address was deleted, a reload took it away, or the broker stops."""

    # ---- messages come

    def admit(self, offer: Offer) -> Verdict | None:
        """Whether a message may enter. Hot: called for every SEND to the address.

        None accepts it, as does ACCEPT, which also keeps later policies from being asked. `ChangeHeaders`, `Redirect`,
        `Refuse`, `Wait` and DROP are the other answers. A policy is asked once about a message, however long that
        waits for room afterwards; again only after a `Wait` of its own. A SEND in a transaction is asked about when it
        comes. Not asked about is what the broker itself sends: dead letters, expired messages, copies.
        """
        return None

    def entered(self, offer: Offer) -> None:
        """A message that this policy has let pass has entered an address: this one, or where it was redirected to.

        Hot: called for every message. In a transaction at COMMIT. Of a message that `admit` has let pass either this
        or `refused` is called, once.
        """

    def refused(self, offer: Offer, reason: str) -> None:
        """A message that this policy has let pass does not enter: undo what `admit` has noted of it.

        A later policy has refused or dropped it, the address or the disk was full (FAIL, DROP), it was a duplicate, its
        transaction was aborted or could not be committed, or its connection ended while it waited. ``reason`` is a
        text for people.
        """

    def full(self, offer: Offer) -> FullVerdict | None:
        """What a full address does with a message. Called for every SEND while it is full.

        PAGE, BLOCK, DROP, DROP_OLDEST, FAIL, `Refuse`, or ACCEPT for a message that enters all the same (the policy
        may have made room); None leaves the answer to the next policy, at last to the ``address-full-policy``. In a
        transaction all its messages are asked about at COMMIT, before any of them enters.
        """
        return self.full_answer

    # ---- rings

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """A ring is over its size, or is full while a message comes back (``returning``): give something up.

        The policies are called in turn until there is room; the last is the built-in ring, which gives up the
        oldest for a new message, and nothing for a returning one, which so is lost itself.
        """

    # ---- messages wait, and leave

    def enqueued(self, message: MessageView) -> None:
        """A message waits in a queue now, in memory: it came and nobody was ready, came back, or fell due.

        Also called for what was in memory when the broker stopped. Hot where consumers are slow.
        """

    def evicted(self, message: MessageView) -> None:
        """A ring gives up a message (messagesReplaced). Makes a ring that counts paged messages read them first."""

    def expired(self, message: MessageView) -> None:
        """The time of a message is over; it went to the expiry-address, if there is one."""

    def killed(self, message: MessageView) -> None:
        """A message was purged, went with its queue, or failed too often without a dead-letter address.

        Messages on disk that are purged are not read for it.
        """

    def dead_lettered(self, message: MessageView) -> None:
        """A message failed too often and went to the dead-letter-address."""

    # ---- consumers

    def subscribed(self, subscriber: Subscriber) -> Refuse | None:
        """Somebody wants to consume from a queue of the address. `Refuse` gives them an ERROR."""
        return None

    def delivered(self, message: MessageView) -> None:
        """A message is given to a consumer. Hot; and the short way from a SEND to a waiting consumer is closed."""

    def settled(self, message: MessageView) -> None:
        """A message was acknowledged. Hot, as `delivered`."""
