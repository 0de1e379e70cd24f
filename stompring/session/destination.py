"""What a ``destination`` header names, and what a client may do there.

Permissions of a client: the one rule that STOMP, WebSocket, HTTP and management by messages ask.

An `Authorizer` asks the access control what roles may do, and adds what belongs to connections: a temporary queue or
topic is its own connection's. Other users with the permission may send to it, to reply, and see its figures.

Answers are cached per connection. A client is checked when a SEND is planned or a subscription begins, never for a
single message.

What a ``destination`` header names: prefixes, fully qualified queue names, temporary queues.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from stompring.errors import Refused
from stompring.settings.match import TEMPORARY_QUEUE, TEMPORARY_TOPIC, connection_of
from stompring.settings.model import PermissionType, RoutingType, StompAcceptor

#: A queue is created with the permission on the address of its own name too.
CREATE_QUEUE = (PermissionType.CREATE_DURABLE_QUEUE, PermissionType.CREATE_NON_DURABLE_QUEUE)

#: Operations on a temporary queue or topic that are open to other connections.
FOR_OTHERS = frozenset((PermissionType.SEND, PermissionType.VIEW))

#: Answers that are cached; beyond these the cache is emptied.
CACHED_ANSWERS = 1000

#: Characters of a name in an ERROR.
SHOWN = 200


class PermissionSource(Protocol):
    """Decides about permissions: the access control of the broker."""

    rejections: Counter[PermissionType]

    @property
    def generation(self) -> object:
        """Changes when an answer may have changed."""

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Whether ``user`` has a permission on an address, or on that queue of it."""


class PermissionRejected(Refused):
    """A user lacks a permission on an address."""

    def __init__(self, reason: str, permission: str, address: str) -> None:
        super().__init__(reason, status=403)
        self.permission = permission
        self.address = address


def name_of_others(
    permission: PermissionType, address: str, queue: str | None, connection: str | None
) -> str | None:
    """The name of a temporary queue or topic of another connection to which this operation is not open, else None.

    ``connection`` is None for a user without one, as over HTTP. A new queue must not have such a name either: it would
    receive the messages to the temporary queue.
    """
    if permission not in FOR_OTHERS:
        for name in (address, queue if permission in CREATE_QUEUE else None):
            owner = None if name is None else connection_of(name)
            if owner is not None and owner != connection:
                return name
    return None


class Authorizer:
    """The permissions of one user on one connection; ``connection`` is None for HTTP.

    Caches the answers of a `PermissionSource` until they may have changed.
    """

    __slots__ = ("_answers", "_generation", "_source", "connection", "user")

    allows_all = False  # whether security is off

    def __init__(self, user: str, source: PermissionSource, connection: str | None = None) -> None:
        self.user = user
        self.connection = connection
        self._source = source
        self._generation = source.generation
        self._answers: dict[tuple[PermissionType, str, str | None], bool] = {}

    def on_connection(self, connection: str) -> Authorizer:
        """An authorizer of this user for a connection, which owns its temporary queues and topics."""
        return Authorizer(self.user, self._source, connection)

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Whether the user has a permission on an address, or on that queue of it."""
        source, answers = self._source, self._answers
        if source.generation != self._generation or len(answers) > CACHED_ANSWERS:
            self._generation = source.generation
            answers.clear()
        key = (permission, address, queue)
        answer = answers.get(key)
        if answer is None:
            others = name_of_others(permission, address, queue, self.connection)
            answer = others is None and source.allows(self.user, permission, address, queue)
            answers[key] = answer
        return answer

    def check(self, permission: PermissionType, address: str, queue: str | None = None, /) -> None:
        """Raise `Refused` where the user lacks a permission."""
        if not self.allows(permission, address, queue):
            self._source.rejections[permission] += 1
            user, name = self.user[:SHOWN], permission.name
            others = name_of_others(permission, address, queue, self.connection)
            if others is not None:
                kind = "queue" if others.startswith(TEMPORARY_QUEUE) else "topic"
                raise PermissionRejected(
                    f"Temporary {kind} {others[:SHOWN]} belongs to another connection", name, address
                )
            on = address[:SHOWN]
            if queue is None or queue == address:
                raise PermissionRejected(
                    f"User {user} does not have permission='{name}' on address {on}", name, address
                )
            shown = queue[:SHOWN]
            if permission in CREATE_QUEUE:
                raise PermissionRejected(
                    f"User {user} does not have permission='{name}' for queue {shown} on address {on} "
                    f"(also required on address {shown})",
                    name,
                    address,
                )
            raise PermissionRejected(
                f"User {user} does not have permission='{name}' for queue {shown} on address {on}",
                name,
                address,
            )

    def check_consume(self, queue: str | None, address: str, *, browse: bool = False) -> None:
        """Raise `Refused` if the user may not consume from (or browse) a queue; None for one to be created."""
        self.check(PermissionType.BROWSE if browse else PermissionType.CONSUME, address, queue)


class AllowAll(Authorizer):
    """The authorizer while security is off."""

    __slots__ = ()

    allows_all = True

    def __init__(self) -> None:
        self.user = ""
        self.connection = None

    def on_connection(self, connection: str) -> Authorizer:
        return self

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        return True


ALLOW_ALL = AllowAll()


#: What a client has for itself: its own name of it, that of others, the address that both lead to.
TEMPORARY = (
    ("/temp-queue/", "/remote-temp-queue/", TEMPORARY_QUEUE, RoutingType.ANYCAST),
    ("/temp-topic/", "/remote-temp-topic/", TEMPORARY_TOPIC, RoutingType.MULTICAST),
)

#: How destinations begin that a client has for itself.
OWN = tuple(own.encode() for own, _, _, _ in TEMPORARY)
SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class Destination:
    """An address, or with ``queue`` one queue of it. ``routing_type`` is None where the client did not say."""

    address: str
    queue: str | None = None
    routing_type: RoutingType | None = None
    temporary: bool = False


class Destinations:
    """Reads destinations with the prefixes of one acceptor."""

    def __init__(self, acceptor: StompAcceptor) -> None:
        prefixes = [(prefix, RoutingType.ANYCAST) for prefix in acceptor.anycast_prefix]
        prefixes += [(prefix, RoutingType.MULTICAST) for prefix in acceptor.multicast_prefix]
        # the longest first: `/queue/vip/` must win over `/queue/`
        self._prefixes = sorted(prefixes, key=lambda pair: -len(pair[0]))

    def parse(self, text: str, requested: str | None, session: str) -> Destination:
        """Read a destination; ``requested`` is the type header, which wins over a prefix. Raises `Refused`."""
        for own, remote, address, kind in TEMPORARY:
            for prefix, owner in ((own, f"{session}."), (remote, "")):
                if text.startswith(prefix):
                    name = f"{address}{owner}{_rest(text, prefix)}"
                    queue = name if kind is RoutingType.ANYCAST else None
                    return Destination(name, queue, kind, temporary=True)
        routing_type = None
        name = text
        for prefix, kind in self._prefixes:
            if text.startswith(prefix):
                name, routing_type = text[len(prefix) :], kind
                break
        if requested is not None:
            try:
                routing_type = RoutingType(requested)
            except ValueError:
                raise Refused(f"A routing type is ANYCAST or MULTICAST, not '{requested}'") from None
        address, qualified, queue = name.partition(SEPARATOR)
        if qualified and (not queue or SEPARATOR in queue):
            raise Refused(f"Destination '{text}' has no queue name after '{SEPARATOR}'")
        if not address and not qualified:
            raise Refused(f"Destination '{text}' has no address")
        return Destination(address, queue if qualified else None, routing_type)


def remote_form(text: str, session: str) -> str:
    """The destination by which other connections reach what is temporary of this one; others are left alone."""
    for own, remote, _, _ in TEMPORARY:
        if text.startswith(own):
            return f"{remote}{session}.{_rest(text, own)}"
    return text


def _rest(text: str, prefix: str) -> str:
    rest = text[len(prefix) :]
    if not rest:
        kind = "queue" if "queue" in prefix else "topic"
        raise Refused(f"Destination '{text}' has no temporary {kind} name")
    return rest
