"""Copies of messages on other addresses: dead letters, expired messages, moves by management."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from stompring.settings.model import RoutingType
from stompring.stomp.frames import escape, header_line

from .message import SYSTEM_PROPERTIES, Message, Traits

if TYPE_CHECKING:
    from .address import Address
    from .reference import Reference

#: The headers of a notification.
NOTIFICATION_PROPERTIES = (
    "_AMQ_Address",
    "_AMQ_Binding_ID",
    "_AMQ_Binding_Type",
    "_AMQ_CertSubjectDN",
    "_AMQ_CheckType",
    "_AMQ_BridgeName",
    "_AMQ_Client_ID",
    "_AMQ_ClusterName",
    "_AMQ_ConnectionName",
    "_AMQ_ConsumerCount",
    "_AMQ_ConsumerName",
    "_AMQ_Distance",
    "_AMQ_FilterString",
    "_AMQ_Message_ID",
    "_AMQ_NotifTimestamp",
    "_AMQ_NotifType",
    "_AMQ_Protocol_Name",
    "_AMQ_RemoteAddress",
    "_AMQ_RoutingName",
    "_AMQ_Routing_Type",
    "_AMQ_SessionName",
    "_AMQ_User",
    "_AMQ_ValidatedUser",
)


def notification(
    address: Address, number: int, now: int, kind: str, text: str, properties: Mapping[str, str]
) -> Message:
    """The message of one event: its text as body, its properties as headers."""
    assert all(name in NOTIFICATION_PROPERTIES for name in properties)
    headers = {"_AMQ_NotifType": kind, "_AMQ_NotifTimestamp": str(now), **properties}
    lines = b"".join(header_line(name.encode(), value.encode()) for name, value in headers.items())
    traits = Traits(
        b"priority:4\npersistent:false\n" + lines,
        destination=address.name.encode(),
        routing_type=RoutingType.MULTICAST,
    )
    return Message(number, address, address.mark(traits), text.encode(errors="replace"), now)


#: Whether a management request succeeded: on its reply.
SUCCEEDED = b"_AMQ_OperationSucceeded"


def reply_traits(
    destination: bytes, routing_type: RoutingType | None, headers: Mapping[bytes, bytes]
) -> Traits:
    """What the reply to a management request carries."""
    lines = b"".join(header_line(name, value) for name, value in headers.items())
    return Traits(b"priority:4\npersistent:false\n" + lines, destination, routing_type)


#: Headers that tell where a copy came from (Artemis); an earlier copy's are replaced.
ORIGIN_HEADERS = (
    b"_AMQ_ORIG_ADDRESS",
    b"_AMQ_ORIG_QUEUE",
    b"_AMQ_ORIG_MESSAGE_ID",
    b"_AMQ_ORIG_ROUTING_TYPE",
    b"_AMQ_ORIG_REASON",
    b"_AMQ_ACTUAL_EXPIRY",
)

#: Values of ``_AMQ_ORIG_REASON``: why the broker made a copy. A policy may give a reason of its own.
MAX_DELIVERY_ATTEMPTS, EXPIRED, NO_ROUTE = "max-delivery-attempts", "expired", "no-route"
EVICTED, POLICY, UNKNOWN = "evicted", "policy", "unknown"
DIVERT, RETROACTIVE = "divert", "retroactive"
MANAGEMENT = "management"  # an operator has sent it to the dead letters

#: Headers by which brokers tell something about a message: where a copy came from, what has happened, what selectors
#: know it by, and (JMS leaves these to the broker) who sent it and how often it was delivered. A receiver may rely on
#: them, so that a sender's own are not passed on.
BROKERS_OWN = frozenset(
    {
        *ORIGIN_HEADERS,
        *(name.encode() for name in NOTIFICATION_PROPERTIES),
        *(name.encode() for name in SYSTEM_PROPERTIES if name.startswith("AMQ")),
        b"JMSXDeliveryCount",
        b"JMSXRcvTimestamp",
        b"JMSXUserID",
        b"_AMQ_INGRESS_TIMESTAMP",
        b"_AMQ_VALIDATED_USER",
        SUCCEEDED,
        b"ingress-timestamp",
    }
)

#: On a message that was exported from a broker: what only a broker sets is passed on all the same.
IMPORTED = b"stompring-imported"

ANYCAST_ORIGIN, MULTICAST_ORIGIN = b"1", b"0"


class Transfer(IntEnum):
    """Why the broker has made a copy of a message."""

    DEAD_LETTER = 1
    EXPIRED = 2
    POLICY = 3


class CopiedTraits(Traits):
    """Traits of such a copy."""

    __slots__ = ("transfer",)

    transfer: Transfer


def without_headers(block: bytes, names: tuple[bytes, ...]) -> bytes:
    """A header block without the lines of some headers."""
    if not any(name in block for name in names):
        return block
    unwanted = {escape(name) for name in names}
    return b"".join(
        line for line in block.splitlines(keepends=True) if line.partition(b":")[0] not in unwanted
    )


def copy_for(
    message: Message,
    queue: str,
    target: Address,
    number: int,
    now: int,
    expires: int,
    transfer: Transfer,
    reason: str = POLICY,
) -> Message:
    """The copy of a message of ``queue`` for another address. It has no routing type, and the expiry given here."""
    traits = message.traits
    origin = [
        (b"_AMQ_ORIG_ADDRESS", message.address.name.encode()),
        (b"_AMQ_ORIG_QUEUE", queue.encode()),
        (b"_AMQ_ORIG_MESSAGE_ID", b"%d" % message.number),
        (b"_AMQ_ORIG_REASON", reason.encode()),
    ]
    if traits.routing_type is not None:
        anycast = traits.routing_type == "ANYCAST"
        origin.append((b"_AMQ_ORIG_ROUTING_TYPE", ANYCAST_ORIGIN if anycast else MULTICAST_ORIGIN))
    if transfer is Transfer.EXPIRED:
        origin.append((b"_AMQ_ACTUAL_EXPIRY", b"%d" % message.expires))
    block = without_headers(traits.block, (*ORIGIN_HEADERS, b"destination-type"))
    copied = CopiedTraits(
        block + b"".join(header_line(name, value) for name, value in origin),
        destination=target.name.encode(),
        priority=traits.priority,
        durable=traits.durable,
        group=traits.group,
        group_sequence=traits.group_sequence,
        user=traits.user,
    )
    copied.transfer = transfer
    return Message(number, target, target.mark(copied), message.body, now, expires)


class MessageOrigin(NamedTuple):
    """Where a copy that the broker made came from, and why it was made."""

    address: str
    queue: str
    routing_type: RoutingType | None
    reason: str


def origin_of(message: Message) -> MessageOrigin | None:
    """The origin of a dead letter, an expired message or another copy by its headers; None of any other message.

    The copies of diverts and of retroactive addresses are messages like any other here: nothing has failed.
    """
    address = message.header(b"_AMQ_ORIG_ADDRESS")
    if not address:
        return None
    queue = message.header(b"_AMQ_ORIG_QUEUE") or b""
    reason = message.header(b"_AMQ_ORIG_REASON")
    if reason is None:  # of a version that did not write it
        reason = (EXPIRED if message.header(b"_AMQ_ACTUAL_EXPIRY") is not None else UNKNOWN).encode()
    if reason in (DIVERT.encode(), RETROACTIVE.encode()):
        return None
    kind = message.header(b"_AMQ_ORIG_ROUTING_TYPE")
    routing_type = _ROUTING_TYPES.get(kind) if kind is not None else None
    address_name, queue_name, text = (each.decode("utf-8", "replace") for each in (address, queue, reason))
    return MessageOrigin(address_name, queue_name, routing_type, text)


_ROUTING_TYPES = {ANYCAST_ORIGIN: RoutingType.ANYCAST, MULTICAST_ORIGIN: RoutingType.MULTICAST}


def traits_for(traits: Traits, target: Address) -> Traits:
    """The traits of a message that is moved or copied to another address: the same but for where it was sent."""
    return _traits_sent_to(traits, target, without_headers(traits.block, (b"destination-type",)), None)


def retried_traits(
    traits: Traits, target: Address, routing_type: RoutingType | None, *, keep_origin: bool = False
) -> Traits:
    """The traits of a dead letter that goes back: as it was sent, with the headers of its origin if they are kept."""
    unwanted = (b"destination-type",) if keep_origin else (*ORIGIN_HEADERS, b"destination-type")
    block = without_headers(traits.block, unwanted)
    return _traits_sent_to(traits, target, block, routing_type)


def _traits_sent_to(
    traits: Traits, target: Address, block: bytes, routing_type: RoutingType | None
) -> Traits:
    sent = Traits(
        block,
        destination=target.name.encode(),
        routing_type=routing_type,
        priority=traits.priority,
        durable=traits.durable,
        group=traits.group,
        group_sequence=traits.group_sequence,
        origin=traits.origin,
        user=traits.user,
    )
    return target.mark(sent)


def repeated(ref: Reference, number: int, now: int) -> Message:
    """The next message of a recurring one: the same but for its number and time."""
    message = ref.message
    return Message(number, message.address, message.traits, message.body, now, message.expires)
