"""Destinations, and the permissions of a client on them.

STOMP, WebSocket, HTTP and management messages share these checks. An `Authorizer` applies the permissions of the user's
roles, and the rule for temporary queues and topics: each belongs to its connection. Other users with the permission may
send replies to it and see its figures.

An authorizer caches its answers for one connection. The session checks permissions when it plans a SEND or begins a
subscription, not for each message.

A ``destination`` header has an optional prefix, and names an address, a queue (``address::queue``), or a temporary one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from stompring.errors import Refused
from stompring.settings.match import TEMPORARY_QUEUE, TEMPORARY_TOPIC, connection_of
from stompring.settings.model import PermissionType, RoutingType, StompAcceptor

#: Permissions to create a queue. A client needs them on the address of the queue, and on the address with the queue's
#: name.
CREATE_QUEUE = (PermissionType.CREATE_DURABLE_QUEUE, PermissionType.CREATE_NON_DURABLE_QUEUE)

#: Permissions that other connections may use on a temporary queue or topic.
FOR_OTHERS: Final = frozenset((PermissionType.SEND, PermissionType.VIEW))

#: Maximum number of cached permissions; an authorizer with more of them empties its cache.
CACHED_ANSWERS: Final = 1000

#: Maximum characters of a name in an ERROR.
SHOWN: Final = 200


class PermissionSource(Protocol):
    """The access control of the broker, which decides about permissions."""

    rejections: Counter[PermissionType]

    @property
    def generation(self) -> object:
        """A value that changes whenever a result of `allows` may have changed: results can be cached until then."""

    def roles_of(self, user: str) -> frozenset[str]:
        """Return the roles of ``user``."""

    def allows(self, user: str, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Return whether ``user`` has a permission on an address, or on ``queue`` of the address."""


class PermissionRejected(Refused):
    """A user lacks a permission on an address."""

    def __init__(self, reason: str, permission: str, address: str) -> None:
        super().__init__(reason, status=403)
        self.permission = permission
        self.address = address


def name_of_others(
    permission: PermissionType, address: str, queue: str | None, connection: str | None
) -> str | None:
    """Return the temporary queue or topic that forbids the operation because another connection owns it, else None.

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
    """The permissions of one user on one connection; ``connection`` is None for HTTP. Caches results of
    `PermissionSource.allows` until they may have changed.
    """

    __slots__ = ("_answers", "_generation", "_source", "connection", "user")

    allows_all = False  # whether security is off

    def __init__(self, user: str, source: PermissionSource, connection: str | None = None) -> None:
        self.user = user
        self.connection = connection
        self._source = source
        self._generation = source.generation
        self._answers: dict[tuple[PermissionType, str, str | None], bool] = {}

    @property
    def roles(self) -> frozenset[str]:
        """The roles of the user."""
        return self._source.roles_of(self.user)

    def on_connection(self, connection: str) -> Authorizer:
        """Return an authorizer of this user for a connection, which owns its temporary queues and topics."""
        return Authorizer(self.user, self._source, connection)

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        """Return whether the user has a permission on an address, or on ``queue`` of the address."""
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
        """Raise `PermissionRejected` if the user lacks a permission."""
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
        """Raise `PermissionRejected` if the user may not consume from (or browse) ``queue``; None: a new queue."""
        self.check(PermissionType.BROWSE if browse else PermissionType.CONSUME, address, queue)


class AllowAll(Authorizer):
    """The authorizer if security is off."""

    __slots__ = ()

    allows_all = True

    def __init__(self) -> None:
        self.user = ""
        self.connection = None

    @property
    def roles(self) -> frozenset[str]:
        return frozenset()

    def on_connection(self, connection: str) -> Authorizer:
        return self

    def allows(self, permission: PermissionType, address: str, queue: str | None = None) -> bool:
        return True


ALLOW_ALL = AllowAll()


#: For each kind of temporary destination: the prefix that its own connection uses, the prefix that other connections
#: use, the prefix of its address, and the routing type.
TEMPORARY = (
    ("/temp-queue/", "/remote-temp-queue/", TEMPORARY_QUEUE, RoutingType.ANYCAST),
    ("/temp-topic/", "/remote-temp-topic/", TEMPORARY_TOPIC, RoutingType.MULTICAST),
)

#: Prefixes of the temporary destinations of a connection itself.
OWN = tuple(own.encode() for own, _, _, _ in TEMPORARY)
SEPARATOR: Final = "::"


@dataclass(frozen=True, slots=True)
class Destination:
    """An address, or with ``queue`` one queue of the address. ``routing_type`` is None if the client requests none."""

    address: str
    queue: str | None = None
    routing_type: RoutingType | None = None
    temporary: bool = False


class Destinations:
    """Parses destinations with the prefixes of one acceptor."""

    def __init__(self, acceptor: StompAcceptor) -> None:
        prefixes = [(prefix, RoutingType.ANYCAST) for prefix in acceptor.anycast_prefix]
        prefixes += [(prefix, RoutingType.MULTICAST) for prefix in acceptor.multicast_prefix]
        # the longest first: `/queue/vip/` must win over `/queue/`
        self._prefixes = sorted(prefixes, key=lambda pair: -len(pair[0]))

    def parse(self, text: str, requested: str | None, session: str) -> Destination:
        """Parse a destination; ``requested`` is the type header, which overrides a prefix. Raises `Refused`."""
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
    """Return a temporary destination of ``session`` in the form for other connections; any other text unchanged."""
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
