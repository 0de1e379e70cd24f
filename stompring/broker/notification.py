"""What the broker tells those who listen at ``activemq.notifications`` (Artemis, management notifications)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompring.settings.model import RoutingType
from stompring.stomp.frames import header_line

from .message import Message, Traits

if TYPE_CHECKING:
    from .broker import Broker

#: Where Artemis sends them.
ADDRESS = "activemq.notifications"

#: The headers of one.
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
    """Send a notification to those who subscribe there, and say whether there was anybody.

    Without that address, or without a subscription of its own kind on it, nothing happens; nor while there is no room.
    """
    address = broker.directory.addresses.get(ADDRESS)
    if address is None or not address.queues or address.full is not None:
        return False
    assert all(name in NOTIFICATION_PROPERTIES for name in properties)
    now = broker.clock.now
    told = {"_AMQ_NotifType": kind, "_AMQ_NotifTimestamp": str(now), **properties}
    lines = b"".join(header_line(name.encode(), value.encode()) for name, value in told.items())
    traits = Traits(
        b"priority:4\npersistent:false\n" + lines,
        destination=ADDRESS.encode(),
        routing_type=RoutingType.MULTICAST,
    )
    return address.route(Message(broker.next_message_number(), address, address.mark(traits), b"", now)) > 0
