"""The policy API: the class `AddressPolicy` with its hooks, and the verdicts that hooks return.

A policy declares typed parameters on its class; broker.xml sets them with ``<property key="…" value="…"/>``.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import get_annotations
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NewType, Self, Union, get_args, get_origin

from stompring.settings import value_types
from stompring.settings.model import frozen

if TYPE_CHECKING:
    from stompring.broker.ports import Offer, Subscriber

    from .views import AddressView, MessageView, QueueView


#: A duration in milliseconds. In broker.xml it is a plain number, as all durations are.
Milliseconds = NewType("Milliseconds", int)

#: A size in bytes. In broker.xml it has the form of all sizes: 1048576, 100K, 10MB.
Bytes = NewType("Bytes", int)

#: Value of ``Parameter.default`` for a parameter without a default.
REQUIRED: Any = object()


def as_text(value: Any) -> str:
    """Return the value of a parameter as text, in the form in which broker.xml would contain it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple | list) else str(value)


@dataclass
class Parameter:
    """One parameter of a policy. Its declaration gives ``help``, default and bounds; ``key``, ``kind`` and ``reader``
    are set when the class of the policy is created.
    """

    help: str
    default: Any = REQUIRED
    least: float = -math.inf
    most: float = math.inf
    key: str = ""
    kind: str = ""
    reader: Callable[[str], Any] = str

    def read(self, text: str, folder: Path) -> Any:
        """Convert the text of the parameter in broker.xml to its value. ``folder``: base of a relative path. Raises
        `ValueError`.
        """
        value = self.reader(text)
        return folder / value if isinstance(value, Path) else value

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is REQUIRED

    @property
    def shown_default(self) -> str:
        """The parameter's default as text, in the form in which broker.xml would contain it."""
        if self.required:
            return "required"
        if self.default is None:
            return "none"
        return as_text(self.default)

    @property
    def takes(self) -> str:
        """The type of the parameter's values, with their bounds: ``whole number, at least 1``."""
        if (self.least, self.most) == (-math.inf, math.inf):
            return self.kind
        return f"{self.kind}, {value_types.range_text(self.least, self.most)}"


def parameter(help: str, default: Any = REQUIRED, *, least: float = -math.inf, most: float = math.inf) -> Any:
    """Declare a parameter: ``burst: int = parameter("Messages accepted at once.", 10, least=1)``.

    The annotation is its type: ``str``, ``int``, ``float``, ``bool``, `Milliseconds`, `Bytes`,
    ``pathlib.Path`` (relative to broker.xml), ``Literal[…]`` of strings, ``tuple[str, …]`` (a comma list), each also
    ``| None`` with None as the default. In broker.xml the name has dashes in place of underscores.
    """
    return Parameter(help, default, least, most)


def declared_parameters(owner: type) -> dict[str, Parameter]:
    """Return the parameters of a class by name of the attribute, those of base classes first. Raises `TypeError` for an
    invalid declaration.
    """
    found: dict[str, Parameter] = {}
    for base in reversed(owner.__mro__):
        for name, value in vars(base).items():
            if isinstance(value, Parameter):
                found[name] = value
                if not value.key:
                    _complete(value, base, name)
    return found


def _complete(one: Parameter, owner: type, name: str) -> None:
    """Set key, kind and reader of a parameter. Raises `TypeError` for an invalid declaration."""
    where = f"{owner.__name__}.{name}"
    taken = next((base for base in owner.__mro__[1:] if name in vars(base)), None)
    if name == "address" or (taken is not None and not isinstance(vars(taken)[name], Parameter)):
        raise TypeError(f"{where}: the name is reserved, AddressPolicy has an attribute of that name")
    hint = get_annotations(owner).get(name)
    if hint is None:
        raise TypeError(f"parameter {name} of {owner.__name__} has no type annotation")
    # a loop, because an annotation may be quoted twice; typing.get_type_hints would evaluate all annotations
    while isinstance(hint, str):
        try:
            hint = eval(hint, vars(sys.modules[owner.__module__]))  # nosec B307
        except Exception as error:
            raise TypeError(f"annotation of {where} cannot be evaluated: {error}") from error
    one.kind, read = _reader(hint, where)
    if (one.least, one.most) != (-math.inf, math.inf):
        if one.kind not in NUMERIC:
            raise TypeError(f"{where}: least and most apply to numbers only, not to {one.kind}")
        if not (one.required or one.default is None or one.least <= one.default <= one.most):
            raise TypeError(f"{where}: default {one.default} is out of bounds")
        read = value_types.bounded(read, one.least, one.most)
    one.key, one.reader = name.replace("_", "-"), read


#: Kinds that may have bounds.
NUMERIC = frozenset(("whole number", "number", "milliseconds", "bytes"))

Reader = Callable[[str], Any]


_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _decimal(text: str) -> float:
    # float() would also accept "1_0" and the digits of other scripts
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return number


def _comma_list(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError("must be a comma-separated list without empty items")
    return words


READERS: Mapping[Any, tuple[str, Reader]] = {
    str: ("text", value_types.name),
    int: ("whole number", value_types.whole_number),
    float: ("number", _decimal),
    bool: ("true or false", value_types.boolean),
    Milliseconds: ("milliseconds", value_types.milliseconds),
    Bytes: ("bytes", value_types.byte_size),
    Path: ("file", lambda text: Path(value_types.name(text))),
    tuple[str, ...]: ("comma list", _comma_list),
}


def _reader(hint: Any, where: str) -> tuple[str, Reader]:
    if get_origin(hint) in (Union, UnionType):
        inner = [one for one in get_args(hint) if one is not NoneType]
        if len(inner) == 1:
            return _reader(inner[0], where)
    if get_origin(hint) is Literal:
        words = get_args(hint)
        if all(isinstance(word, str) for word in words):
            return ", ".join(words), _one_of(words)
    try:
        return READERS[hint]
    except (KeyError, TypeError):
        raise TypeError(f"{where}: a parameter cannot be of type {hint}") from None


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text

    return read


@frozen
class Refuse:
    """Refuses the message or the subscription: its client gets an ERROR with the reason."""

    reason: str


@frozen
class Wait:
    """Stops reading the connection for this time in ms, then calls `admit` again. Nothing is lost."""

    milliseconds: int


@frozen
class Redirect:
    """Routes the message to another address, whose policies are called as well; ``headers`` as in `ChangeHeaders`."""

    address: str
    headers: Mapping[str, str | None] = field(default_factory=dict)


@frozen
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
#: Pages the message to disk, and all later ones until the pages are consumed. Acts as BLOCK without a store.
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

    #: The verdict on every message to a full address. A policy sets it if a method `full` would always return it.
    full_answer: ClassVar[Word | None] = None

    #: The parameters by their names in Python. Set for every subclass.
    parameters: ClassVar[dict[str, Parameter]] = {}

    #: The address of the policy. Set before `created` is called.
    address: AddressView

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.parameters = declared_parameters(cls)

    # ---- lifecycle

    def check(self) -> None:
        """Checks whether the values of the parameters fit together. Raise `ValueError` to reject broker.xml.

        Called on an object without an address.
        """

    def created(self) -> None:
        """Called when the address was created, the broker started, or a reload gave the address this policy.

        If this hook raises an exception, the address accepts no messages and no subscribers until a reload replaces
        the policy. The text of a `ValueError` is sent to clients.
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
        """Called when a message accepted by this policy entered this address, or one to which a policy redirected it.

        Hot: called for every message. In a transaction at COMMIT. For each message that `admit` accepts either this
        or `refused` is called, once.
        """

    def refused(self, offer: Offer, reason: str) -> None:
        """Called when a message accepted by this policy enters no address: undo what `admit` has recorded.

        Reasons are: a later policy refused or dropped it, the address or the disk was full (FAIL, DROP), it was a
        duplicate, its transaction was aborted or could not be committed, or its connection closed while it waited.
        ``reason`` is a text for people.
        """

    def full(self, offer: Offer) -> FullVerdict | None:
        """Decides about a message for a full address. Called for every SEND while the address is full.

        Verdicts are PAGE, BLOCK, DROP, DROP_OLDEST, FAIL, `Refuse`, and ACCEPT, which adds the message to the full
        address (the policy may have evicted others); None leaves the decision to the next policy, and in the end to the
        ``address-full-policy``. In a transaction called for all its messages at COMMIT, before any of them enters.
        """
        return self.full_answer

    # ---- rings

    def overflow(self, queue: QueueView, returning: bool) -> None:
        """Evicts messages of a ring over its size, or of a full ring to which a message returns (``returning``).

        Policies are called in turn until the ring is within its size, the built-in ring last: it evicts the oldest
        message for a new one. It evicts none for a returning message, which is then dropped itself.
        """

    # ---- messages in queues

    def enqueued(self, message: MessageView) -> None:
        """Called when a message waits in a queue, in memory: no consumer was ready, it was requeued, or it is due.

        Also called for messages that were in memory when the broker stopped. Hot if consumers are slow.
        """

    def evicted(self, message: MessageView) -> None:
        """Called when a ring evicts a message. The queue counts the message in messagesReplaced.

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
        """Called when a message was acknowledged. Hot, and disables direct delivery, as `delivered` does."""
