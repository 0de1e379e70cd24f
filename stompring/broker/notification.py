"""Management notifications, sent to the address ``activemq.notifications`` as in Artemis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stompring.settings.model import RoutingType
from stompring.stomp.frames import header_line

from .message import Message, Traits

if TYPE_CHECKING:
    from .address import Address

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


def notification(
    address: Address, number: int, now: int, kind: str, properties: Mapping[str, str]
) -> Message:
    """The message of one event: without a body, its properties as headers."""
    assert all(name in NOTIFICATION_PROPERTIES for name in properties)
    headers = {"_AMQ_NotifType": kind, "_AMQ_NotifTimestamp": str(now), **properties}
    lines = b"".join(header_line(name.encode(), value.encode()) for name, value in headers.items())
    traits = Traits(
        b"priority:4\npersistent:false\n" + lines,
        destination=ADDRESS.encode(),
        routing_type=RoutingType.MULTICAST,
    )
    return Message(number, address, address.mark(traits), b"", now)
