"""Temporary queues: made by a connection for itself, reachable by all, gone with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.queue import Queue
from stompring.errors import NotFound
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType

from .destination import TEMPORARY_QUEUE, Destination

if TYPE_CHECKING:
    from .session import Session


def temporary_queue(session: Session, target: Destination) -> Queue:
    """A temporary queue: made for its own connection, found for others. Raises `NotFound` when it is gone."""
    name = target.address
    queue = session.broker.directory.queues.get(name)
    if queue is not None:
        return queue
    if not name.startswith(f"{TEMPORARY_QUEUE}{session.number}."):
        raise NotFound(f"Temporary queue {name} does not exist: its connection is gone")
    session.login.permit.check(PermissionType.CREATE_ADDRESS, name)
    session.login.permit.check(PermissionType.CREATE_NON_DURABLE_QUEUE, name)
    directory = session.broker.directory
    directory.allowance.check_address(name)
    directory.allowance.check_queue(session.login.user)
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
