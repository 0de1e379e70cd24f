"""Auto-creation: addresses and queues that are created because a client sends or subscribes.

The type of an address is what the client asks for (header or prefix), else what the address has, else
``default-address-routing-type``. A client that asks for none never changes an address (Artemis turns an anycast
address into a mixed one there); one that does may add a type where ``auto-create-addresses`` is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stompring.errors import NotFound, Refused
from stompring.settings.match import is_internal
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType

if TYPE_CHECKING:
    from .address import Address
    from .broker import Broker
    from .directory import Directory
    from .queue import Queue


class PermissionCheck(Protocol):
    """Raises `Refused` where a user lacks a permission on an address, or on one queue of it."""

    def __call__(self, permission: PermissionType, address: str, queue: str | None = None, /) -> None: ...


def allow_all(permission: PermissionType, address: str, queue: str | None = None, /) -> None:
    """The `PermissionCheck` of the broker itself: what it does without a client needs no permission."""


def check_not_internal(name: str) -> None:
    """Raises `Refused` for the name of an internal address or queue."""
    if is_internal(name):
        raise Refused(f"{name[:200]} is internal: it is for messages of a retroactive address", status=400)


ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


class AutoCreate:
    """Finds the address or queue that a destination names, and creates it where that is allowed.

    Each method calls its permission check for everything that it would create before it creates anything.
    """

    def __init__(self, broker: Broker, directory: Directory) -> None:
        self._broker = broker
        self._directory = directory

    def type_for(self, name: str, requested: RoutingType | None) -> RoutingType:
        """The routing type of a SEND or SUBSCRIBE. Without one, on an address with both types, it is ANYCAST."""
        if requested is not None:
            return requested
        address = self._directory.addresses.get(name)
        if address is not None and address.routing_types:
            return ANYCAST if ANYCAST in address.routing_types else MULTICAST
        if name == self._broker.notifications.address:
            return MULTICAST  # notifications are for whoever subscribes, and no queue collects them
        return self._directory.settings.lookup(name).default_address_routing_type

    def address_for_send(
        self, name: str, requested: RoutingType | None, check: PermissionCheck, user: str | None = None
    ) -> Address:
        """The address to send to, with its anycast queue. Raises `Refused`, `NotFound`."""
        self._directory.check_concrete(name)
        routing_type = self.type_for(name, requested)
        self._check_address(name, routing_type, check)
        lacks_queue = (
            routing_type is ANYCAST
            and self.anycast_queue(name) is None
            and self._directory.settings.lookup(name).auto_create_queues
        )
        if lacks_queue:
            check(PermissionType.CREATE_DURABLE_QUEUE, name)
        address = self._address(name, routing_type, user, with_queue=routing_type is ANYCAST)
        if lacks_queue:
            self._create_queue(address, name, ANYCAST, user)
        elif not address.queues:
            self._broker.auto_delete.watch_unread(address, coming=1)
        return address

    def address_of(self, address_name: str, queue_name: str) -> str:
        """The address in ``address::queue``, which may be left out where the queue is there. Raises `NotFound`."""
        return address_name or self._directory.queue(queue_name).address.name

    def queue_for(
        self,
        address_name: str,
        queue_name: str,
        requested: RoutingType | None,
        check: PermissionCheck,
        user: str | None = None,
    ) -> Queue:
        """The queue that ``address::queue`` names. Raises `Refused`, `NotFound`."""
        check_not_internal(queue_name)
        queue = self._directory.queues.get(queue_name)
        if queue is not None:
            if address_name and queue.address.name != address_name:
                raise Refused(
                    f"Queue {queue_name} is bound to address {queue.address.name}, not to {address_name}"
                )
            if requested is not None and requested is not queue.attributes.routing_type:
                raise Refused(f"Queue {queue_name} is {queue.attributes.routing_type}, not {requested}")
            return queue
        if not address_name:
            raise NotFound(f"Queue {queue_name} does not exist")
        routing_type = self.type_for(address_name, requested)
        self._check_address(address_name, routing_type, check)
        if self._directory.settings.lookup(address_name).auto_create_queues:
            check(PermissionType.CREATE_DURABLE_QUEUE, address_name, queue_name)
        address = self._address(address_name, routing_type, user)
        if not address.settings.auto_create_queues:
            self._broker.auto_delete.watch_unread(address)
            raise NotFound(
                f"Queue {queue_name} does not exist, and auto-create-queues is off for {address_name}"
            )
        return self._create_queue(address, queue_name, routing_type, user)

    def anycast_queue(self, name: str) -> Queue | None:
        """The queue that a subscriber to address ``name`` reads: of several the one with the fewest consumers."""
        address = self._directory.addresses.get(name)
        if address is None:
            return None
        own = [queue for queue in address.queues.values() if queue.attributes.routing_type is ANYCAST]
        for queue in own:
            if queue.name == name:
                return queue
        return min(own, key=lambda queue: len(queue.consumers)) if own else None

    def queue_to_consume(self, name: str, check: PermissionCheck, user: str | None = None) -> Queue:
        """The anycast queue that a subscriber to address ``name`` reads."""
        self._check_address(name, ANYCAST, check)
        queue = self.anycast_queue(name)
        if queue is None and self._directory.settings.lookup(name).auto_create_queues:
            check(PermissionType.CREATE_DURABLE_QUEUE, name)
        address = self._address(name, ANYCAST, user)
        if queue is not None:
            return queue
        if not address.settings.auto_create_queues:
            self._broker.auto_delete.watch_unread(address)
            raise NotFound(f"Queue {name} does not exist, and auto-create-queues is off for it")
        return self._create_queue(address, name, ANYCAST, user)

    def subscription_queue(
        self, configuration: QueueConfiguration, check: PermissionCheck, no_local: object = None
    ) -> Queue:
        """The queue of a multicast subscription: a new one, or the existing one of a durable subscription."""
        check_not_internal(configuration.name)
        self._check_address(configuration.address, MULTICAST, check)
        queue = self._directory.queues.get(configuration.name)
        if queue is None and configuration.durable:
            check(PermissionType.CREATE_DURABLE_QUEUE, configuration.address, configuration.name)
        elif queue is None:
            check(PermissionType.CREATE_NON_DURABLE_QUEUE, configuration.address)
        self._address(configuration.address, MULTICAST, configuration.user)
        if queue is None:
            self._directory.resource_limits.check_queue(configuration.user)
            return self._directory.create_queue(configuration, no_local)
        if queue.address.name != configuration.address or queue.attributes.routing_type is not MULTICAST:
            raise Refused(
                f"Durable subscription {configuration.name} exists on address {queue.address.name}, "
                f"not on {configuration.address}"
            )
        if queue.attributes.filter != configuration.filter:
            if queue.consumers:
                raise Refused(f"Durable subscription {configuration.name} is in use with another selector")
            self._directory.update_queue(queue, {"filter": configuration.filter})
        return queue

    def _check_address(self, name: str, routing_type: RoutingType, check: PermissionCheck) -> None:
        """Check the permission for what `_address` would create or change."""
        address = self._directory.addresses.get(name)
        if address is None or routing_type not in address.routing_types:
            if self._directory.settings.lookup(name).auto_create_addresses:
                check(PermissionType.CREATE_ADDRESS, name)

    def _address(
        self, name: str, routing_type: RoutingType, user: str | None, *, with_queue: bool = True
    ) -> Address:
        """Find or create an address; ``with_queue`` where a queue is about to be created on it as well."""
        address = self._directory.addresses.get(name)
        if address is None:
            settings = self._directory.settings.lookup(name)
            if not settings.auto_create_addresses:
                raise NotFound(f"Destination {name} does not exist, and auto-create-addresses is off for it")
            self._directory.resource_limits.check_address(name)
            if with_queue:
                self._directory.resource_limits.check_queue(user)
            return self._directory.create_address(name, frozenset({routing_type}), auto_created=True)
        if routing_type not in address.routing_types:
            if not address.settings.auto_create_addresses:
                have = " and ".join(sorted(address.routing_types)) or "no routing type"
                raise Refused(
                    f"Not allowed to specify {routing_type} semantics on address {name}, which has {have}"
                )
            self._directory.update_address(address, address.routing_types | {routing_type})
        return address

    def _create_queue(
        self, address: Address, name: str, routing_type: RoutingType, user: str | None
    ) -> Queue:
        self._directory.resource_limits.check_queue(user)
        return self._directory.create_queue(
            QueueConfiguration(
                name=name,
                address=address.name,
                routing_type=routing_type,
                user=user,
                auto_created=True,
                auto_delete=address.settings.auto_delete_queues,
            )
        )
