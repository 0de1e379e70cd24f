"""Management notifications, sent to the address ``activemq.notifications`` as in Artemis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompring.settings.model import RoutingType
from stompring.stomp.frames import header_line

from .message import Message, Traits

if TYPE_CHECKING:
    from .broker import Broker

#: The management-notification-address of Artemis.
ADDRESS = "activemq.notifications"

#: The headers of a notification.
NOTIFICATION_PROPERTIES = (
    "_AMQ_Address",
    "_AMQ_ConsumerCount",
    "_AMQ_ConsumerName",
    "_AMQ_NotifTimestamp",
    "_AMQ_NotifType",
    "_AMQ_RemoteAddress",
    "_AMQ_RoutingName",
)


def notify(broker: Broker, kind: str, properties: Mapping[str, str]) -> bool:
    """Send a notification. Returns whether a subscription received it.

    Nothing is sent without the address or without a queue of it, nor while the address is full.
    """
    address = broker.directory.addresses.get(ADDRESS)
    if address is None or not address.queues or address.full is not None:
        return False
    assert all(name in NOTIFICATION_PROPERTIES for name in properties)
    now = broker.clock.now
    headers = {"_AMQ_NotifType": kind, "_AMQ_NotifTimestamp": str(now), **properties}
    lines = b"".join(header_line(name.encode(), value.encode()) for name, value in headers.items())
    traits = Traits(
        b"priority:4\npersistent:false\n" + lines,
        destination=ADDRESS.encode(),
        routing_type=RoutingType.MULTICAST,
    )
    return address.route(Message(broker.next_message_number(), address, address.mark(traits), b"", now)) > 0
