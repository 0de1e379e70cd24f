"""What a ``destination`` header names: prefixes, fully qualified queue names, temporary queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompring.broker.address import Address
from stompring.broker.queue import Queue
from stompring.errors import NotFound, Refused
from stompring.settings.acceptor import StompAcceptor
from stompring.settings.match import TEMPORARY_QUEUE
from stompring.settings.match import TEMPORARY_TOPIC as TEMPORARY_TOPIC_ADDRESS
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType

if TYPE_CHECKING:
    from .session import Session

TEMPORARY = "/temp-queue/"
REMOTE_TEMPORARY = "/remote-temp-queue/"
TEMPORARY_TOPIC, REMOTE_TEMPORARY_TOPIC = "/temp-topic/", "/remote-temp-topic/"

#: Destinations that a client has for itself, and that others know by another name.
OWN = (TEMPORARY.encode(), TEMPORARY_TOPIC.encode())
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
        if text.startswith(TEMPORARY):
            return _temporary(f"{TEMPORARY_QUEUE}{session}.{_rest(text, TEMPORARY)}")
        if text.startswith(REMOTE_TEMPORARY):
            return _temporary(f"{TEMPORARY_QUEUE}{_rest(text, REMOTE_TEMPORARY)}")
        if text.startswith(TEMPORARY_TOPIC):
            return _topic(f"{TEMPORARY_TOPIC_ADDRESS}{session}.{_rest(text, TEMPORARY_TOPIC)}")
        if text.startswith(REMOTE_TEMPORARY_TOPIC):
            return _topic(f"{TEMPORARY_TOPIC_ADDRESS}{_rest(text, REMOTE_TEMPORARY_TOPIC)}")
        routing_type = None
        name = text
        for prefix, kind in self._prefixes:
            if text.startswith(prefix):
                name, routing_type = text[len(prefix) :], kind
                break
        if requested is not None:
            routing_type = routing_type_of(requested)
        address, qualified, queue = name.partition(SEPARATOR)
        if qualified and (not queue or SEPARATOR in queue):
            raise Refused(f"Destination '{text}' has no queue name after '{SEPARATOR}'")
        if not address and not qualified:
            raise Refused(f"Destination '{text}' has no address")
        return Destination(address, queue if qualified else None, routing_type)


def routing_type_of(text: str) -> RoutingType:
    """ANYCAST or MULTICAST, spelled exactly so. Raises `Refused`."""
    try:
        return RoutingType(text)
    except ValueError:
        raise Refused(f"A routing type is ANYCAST or MULTICAST, not '{text}'") from None


def remote_form(text: str, session: str) -> str:
    """The destination by which other connections reach what is temporary of this one; others are left alone."""
    if text.startswith(TEMPORARY):
        return f"{REMOTE_TEMPORARY}{session}.{_rest(text, TEMPORARY)}"
    if text.startswith(TEMPORARY_TOPIC):
        return f"{REMOTE_TEMPORARY_TOPIC}{session}.{_rest(text, TEMPORARY_TOPIC)}"
    return text


def _rest(text: str, prefix: str) -> str:
    rest = text[len(prefix) :]
    if not rest:
        kind = "queue" if "queue" in prefix else "topic"
        raise Refused(f"Destination '{text}' has no temporary {kind} name")
    return rest


def _temporary(name: str) -> Destination:
    return Destination(name, name, RoutingType.ANYCAST, temporary=True)


def _topic(name: str) -> Destination:
    return Destination(name, None, RoutingType.MULTICAST, temporary=True)


def temporary_topic(session: Session, target: Destination) -> Address:
    """A temporary topic: made for its own connection, found for others. Raises `NotFound` when it is gone."""
    name, directory = target.address, session.broker.directory
    address = directory.addresses.get(name)
    if address is not None:
        return address
    if not name.startswith(f"{TEMPORARY_TOPIC_ADDRESS}{session.number}."):
        raise NotFound(f"Temporary topic {name} does not exist: its connection is closed")
    session.login.authorizer.check(PermissionType.CREATE_ADDRESS, name)
    directory.resource_limits.check_address(name)
    address = directory.create_address(name, frozenset({RoutingType.MULTICAST}), auto_created=True)
    address.temporary = True
    session.temporary_topics.append(name)
    return address


def temporary_queue(session: Session, target: Destination) -> Queue:
    """A temporary queue: made for its own connection, found for others. Raises `NotFound` when it is gone."""
    name = target.address
    queue = session.broker.directory.queues.get(name)
    if queue is not None:
        return queue
    if not name.startswith(f"{TEMPORARY_QUEUE}{session.number}."):
        raise NotFound(f"Temporary queue {name} does not exist: its connection is closed")
    session.login.authorizer.check(PermissionType.CREATE_ADDRESS, name)
    session.login.authorizer.check(PermissionType.CREATE_NON_DURABLE_QUEUE, name)
    directory = session.broker.directory
    directory.resource_limits.check_address(name)
    directory.resource_limits.check_queue(session.login.user)
    queue = directory.create_queue(
        QueueConfiguration(
            name=name,
            address=name,
            routing_type=RoutingType.ANYCAST,
            durable=False,
            user=session.login.user,
            auto_created=True,
            temporary=True,
        )
    )
    session.temporary_queues.append(name)
    return queue
