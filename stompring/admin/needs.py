"""What each route needs: permissions on the address and queue that it is about.

Looking needs ``view``, changing ``edit``; what STOMP has a permission of its own for needs that as well, and messages
are shown to those who may ``browse``. What is about the broker as a whole goes by the address `MANAGEMENT`, and who
has ``manage`` on that address may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stompring.broker.queue import Queue
from stompring.errors import Refused
from stompring.session.permit import Permit
from stompring.settings.model import PermissionType

from .inputs import flag, required, text
from .routes import Call

#: Stands for the broker as a whole in security-settings, as Artemis's management address does.
MANAGEMENT = "activemq.management"

#: A permission, the address that it must be on, and the queue of that address where it is about one.
Demand = tuple[PermissionType, str, str | None]

Need = Callable[[Call], Iterator[Demand]]

VIEW, EDIT, BROWSE, MANAGE = (
    PermissionType.VIEW,
    PermissionType.EDIT,
    PermissionType.BROWSE,
    PermissionType.MANAGE,
)


def check(permit: Permit, need: Need, call: Call) -> None:
    """Raise `Refused` (403) where a permission is lacking."""
    if permit.is_free or permit.allows(MANAGE, MANAGEMENT):
        return
    for permission, address, queue in need(call):
        permit.check(permission, address, queue)


def nothing(call: Call) -> Iterator[Demand]:
    """For everybody who may ask at all."""
    yield from ()


def view_broker(call: Call) -> Iterator[Demand]:
    """To look at the broker, and at lists of everything in it."""
    yield VIEW, MANAGEMENT, None


def edit_broker(call: Call) -> Iterator[Demand]:
    """To change something about the broker."""
    yield EDIT, MANAGEMENT, None


def view_address(call: Call) -> Iterator[Demand]:
    """To look at the address in the path."""
    yield VIEW, call.names["name"], None


def edit_address(call: Call) -> Iterator[Demand]:
    """To change the address in the path."""
    yield EDIT, call.names["name"], None


def create_address(call: Call) -> Iterator[Demand]:
    """To make the address in the body."""
    name = required(call.body, "name")
    yield EDIT, name, None
    yield PermissionType.CREATE_ADDRESS, name, None


def delete_address(call: Call) -> Iterator[Demand]:
    """To delete the address in the path, and the queues that go with it."""
    name = call.names["name"]
    yield EDIT, name, None
    yield PermissionType.DELETE_ADDRESS, name, None
    address = call.served.broker.directory.addresses.get(name)
    for queue in list(address.queues.values()) if address is not None else ():
        yield _deletion(queue), name, queue.name


def view_queue(call: Call) -> Iterator[Demand]:
    """To look at the queue in the path."""
    yield VIEW, *_queue(call)


def edit_queue(call: Call) -> Iterator[Demand]:
    """To change the queue in the path, or what is in it."""
    yield EDIT, *_queue(call)


def browse_queue(call: Call) -> Iterator[Demand]:
    """To look at the messages of the queue in the path."""
    yield BROWSE, *_queue(call)


def create_queue(call: Call) -> Iterator[Demand]:
    """To make the queue in the body, and its address where that is missing."""
    name = required(call.body, "name")
    address = text("address", call.body["address"]) if "address" in call.body else name
    durable = flag("durable", call.body.get("durable", True))
    yield EDIT, address, name
    if address not in call.served.broker.directory.addresses:
        yield PermissionType.CREATE_ADDRESS, address, None
    made = PermissionType.CREATE_DURABLE_QUEUE if durable else PermissionType.CREATE_NON_DURABLE_QUEUE
    yield made, address, name


def delete_queue(call: Call) -> Iterator[Demand]:
    """To delete the queue in the path."""
    address, name = _queue(call)
    yield EDIT, address, name
    queue = call.served.broker.directory.queues.get(name)
    yield PermissionType.DELETE_DURABLE_QUEUE if queue is None else _deletion(queue), address, name


def _queue(call: Call) -> tuple[str, str]:
    """The queue in the path and its address. One that is not there would most likely be on an address of its name."""
    name = call.names["name"]
    try:
        return call.served.broker.directory.queue(name).address.name, name
    except Refused:
        return name, name


def _deletion(queue: Queue) -> PermissionType:
    durable = PermissionType.DELETE_DURABLE_QUEUE
    return durable if queue.durable else PermissionType.DELETE_NON_DURABLE_QUEUE
