"""Notifications: all events of the broker pass through this module. Each goes to the list of recent events, to the
listeners, and as a message to the management-notification-address (Artemis, "Management notifications").

Single messages only cause events if the configuration requests it. Types that Artemis has are named as there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from stompring.settings.model import BrokerConfiguration

from .clock import Clock
from .message import ROUTING_TYPE_CODES, AddressBase
from .ports import Hooks, hooks_with_notifications
from .reference import Reference

#: Maximum number of listed events of each type: frequent types do not displace rare ones.
MAX_EVENTS: Final = 200

#: Maximum number of events whose messages wait to be sent; further events send no message.
MAX_WAITING: Final = 1000

#: Every type, with its meaning.
TYPES = {
    "CONNECTION_CREATED": "A client has logged in.",
    "CONNECTION_DESTROYED": "The connection of a client has ended.",
    "CONSUMER_CREATED": "A subscription has begun.",
    "CONSUMER_CLOSED": "A subscription has ended.",
    "CONSUMER_SLOW": "A consumer is below slow-consumer-threshold.",
    "BINDING_ADDED": "A queue was created.",
    "BINDING_REMOVED": "A queue was deleted.",
    "ADDRESS_ADDED": "An address was created.",
    "ADDRESS_REMOVED": "An address was deleted.",
    "SECURITY_AUTHENTICATION_VIOLATION": "A login has failed.",
    "SECURITY_PERMISSION_VIOLATION": "A user lacked a permission.",
    "ADDRESS_FULL": "An address is full.",
    "ADDRESS_NOT_FULL": "An address is no longer full.",
    "ADDRESS_PAGING": "An address has started paging.",
    "ADDRESS_NOT_PAGING": "An address has stopped paging.",
    "DISK_FULL": "The disk counts as full.",
    "DISK_NOT_FULL": "The disk no longer counts as full.",
    "STORE_FAILED": "Writes to the store fail.",
    "STORE_RECOVERED": "The store is writable again.",
    "POLICY_ERROR": "A hook of an address policy failed; once for each cause.",
    "BRIDGE_STARTED": "A bridge was started.",
    "BRIDGE_STOPPED": "A bridge was stopped, or has failed.",
    "BRIDGE_CONNECTED": "A bridge has connected to the remote broker.",
    "BRIDGE_DISCONNECTED": "A bridge has lost its connection.",
    "MANAGEMENT": "The HTTP API or a management request changed something.",
    "RELOADED": "The configuration was reloaded, or a reload was rejected.",
    "DRAIN": "The broker refuses new connections.",
    "UNDRAIN": "The broker accepts new connections again.",
    "TAKEOVER": "The broker has become active in its replicated log, and accepts clients.",
    "SUSPENDED": "The replicated log does not store: nothing is delivered.",
    "RESUMED": "The replicated log stores again: messages are delivered.",
    "SHUTDOWN": "The broker is stopping.",
}

#: The fields of events, with their headers in the message (Artemis).
HEADERS = {
    "queue": "_AMQ_RoutingName",
    "address": "_AMQ_Address",
    "routingType": "_AMQ_Routing_Type",
    "filter": "_AMQ_FilterString",
    "consumer": "_AMQ_ConsumerName",
    "consumerCount": "_AMQ_ConsumerCount",
    "connectionID": "_AMQ_ConnectionName",
    "clientID": "_AMQ_Client_ID",
    "user": "_AMQ_User",
    "remoteAddress": "_AMQ_RemoteAddress",
    "bridge": "_AMQ_BridgeName",
}

Value = str | int


class Event(NamedTuple):
    """One event. Its fields have the names of `HEADERS`."""

    id: int
    time: int  # epoch ms
    type: str
    text: str
    fields: tuple[tuple[str, Value], ...]
    headers: tuple[tuple[str, str], ...] = ()  # additional headers of the event's message


#: Types of events about sessions. These events are sent as messages and not listed: the list has the events of
#: connections, which contain the same facts.
SESSION_TYPES = {
    "SESSION_CREATED": "A client has logged in.",
    "SESSION_CLOSED": "The connection of a client has ended.",
}

#: Headers with a constant value in all messages of a type, as in Artemis without a cluster.
_CONSTANT = {
    **dict.fromkeys(("BINDING_ADDED", "BINDING_REMOVED"), {"_AMQ_Binding_Type": "0", "_AMQ_Distance": "0"}),
    **dict.fromkeys(("CONSUMER_CREATED", "CONSUMER_CLOSED"), {"_AMQ_Distance": "0"}),
    **dict.fromkeys(
        SESSION_TYPES, {"_AMQ_Distance": "0", "_AMQ_Protocol_Name": "STOMP", "_AMQ_Client_ID": ""}
    ),
}

#: Types whose messages have a header with the certificate of the client, or "unavailable".
_WITH_CERTIFICATE: Final = frozenset(
    (
        "CONNECTION_CREATED",
        "CONNECTION_DESTROYED",
        "CONSUMER_CREATED",
        "CONSUMER_CLOSED",
        "SECURITY_AUTHENTICATION_VIOLATION",
    )
)

#: Types whose messages have a second header with the name of the queue, or with the number of the connection (Artemis).
_WITH_CLUSTER_NAME: Final = frozenset(
    ("BINDING_ADDED", "BINDING_REMOVED", "CONSUMER_CREATED", "CONSUMER_CLOSED")
)
_WITH_SESSION: Final = frozenset(("CONSUMER_CREATED", "CONSUMER_CLOSED", "CONSUMER_SLOW", *SESSION_TYPES))


def message_headers(event: Event) -> dict[str, str]:
    """Return the headers of an event's message, without type and time. Names and values are those of Artemis."""
    fields = dict(event.fields)
    headers = dict(_CONSTANT.get(event.type, {}))
    for name, value in event.fields:
        text = str(value)
        headers[HEADERS[name]] = ROUTING_TYPE_CODES[text].decode() if name == "routingType" else text
    if event.type in _WITH_CERTIFICATE:
        headers["_AMQ_CertSubjectDN"] = "unavailable"
    if event.type in _WITH_CLUSTER_NAME:
        headers["_AMQ_ClusterName"] = str(fields.get("queue", ""))
    if event.type in _WITH_SESSION and "connectionID" in fields:
        headers["_AMQ_SessionName"] = str(fields["connectionID"])
    if event.type == "CONSUMER_CREATED" and "user" in fields:
        headers["_AMQ_ValidatedUser"] = str(fields["user"])
    headers.update(event.headers)
    return headers


class Notifications:
    """The recent events. ``last_id`` is the id of the last event; ids of a later run of the broker are higher. ``sent``
    counts messages about events that a queue accepted since the start, ``dropped`` the messages dropped beyond
    `MAX_WAITING`.
    """

    is_observed: Callable[[], bool]  # whether a queue receives messages of events
    send_message: Callable[[Event], bool]  # sends the message of an event; False if no queue accepts it

    def __init__(self, configuration: Callable[[], BrokerConfiguration], clock: Clock) -> None:
        """``configuration`` returns the current configuration, which a reload replaces."""
        self._last_dropped = 0  # id of the latest event removed from the list
        self._configuration = configuration
        self._clock = clock
        self.address = configuration().management_notification_address
        self._by_type: dict[str, deque[Event]] = {}
        self.listeners: dict[Callable[[Event], None], None] = {}
        self.last_id = self._begun = clock.now
        self._waiting: deque[Event] = deque()
        self.sent = self.dropped = 0

    def notify(
        self, kind: str, text: str, headers: Mapping[str, str] | None = None, /, **fields: Value | None
    ) -> None:
        """Add an event of one of `TYPES`. Omits fields that are None. ``headers``: additional headers of the
        notification.
        """
        assert kind in TYPES and HEADERS.keys() >= fields.keys()
        event = self._event(kind, text, headers, fields)
        recent = self._by_type.setdefault(kind, deque(maxlen=MAX_EVENTS))
        if len(recent) == MAX_EVENTS:
            self._last_dropped = max(self._last_dropped, recent[0].id)
        recent.append(event)
        for listener in list(self.listeners):
            listener(event)
        self._enqueue(event)

    def notify_session(self, kind: str, text: str, **fields: Value | None) -> None:
        """Send the message of one of `SESSION_TYPES`, unless suppress-session-notifications is set."""
        if self.is_observed() and not self._configuration().suppress_session_notifications:
            self._enqueue(self._event(kind, text, {"_AMQ_Address": self.address}, fields))

    def _event(
        self, kind: str, text: str, headers: Mapping[str, str] | None, fields: Mapping[str, Value | None]
    ) -> Event:
        self.last_id = number = self.last_id + 1
        given = tuple((name, value) for name, value in fields.items() if value is not None)
        more = () if headers is None else tuple(headers.items())
        return Event(number, self._clock.now, kind, text, given, more)

    def _enqueue(self, event: Event) -> None:
        """Queue the message of an event, if a queue receives it. Events of the notification address have no message."""
        if not self.is_observed() or ("address", self.address) in event.fields:
            return
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        if not self._waiting:
            self._clock.soon(self._send)
        self._waiting.append(event)

    def observe(self, address: AddressBase, hooks: Hooks) -> Hooks:
        """Return the hooks of an address, with notifications of delivered or expired messages if configured."""
        kinds = self._configuration().notified
        if not kinds or address.name == self.address:
            return hooks
        delivered, expired = (
            partial(self._notify_message, kind) if kind in kinds else None
            for kind in ("MESSAGE_DELIVERED", "MESSAGE_EXPIRED")
        )
        return hooks_with_notifications(hooks, delivered, expired)

    def _notify_message(self, kind: str, ref: Reference) -> None:
        if not self.is_observed():
            return
        queue, number = ref.queue, ref.message.number
        self._enqueue(
            self._event(
                kind,
                f"message {number} of queue {queue.name} {kind.removeprefix('MESSAGE_').lower()}",
                {"_AMQ_Message_ID": str(number)},
                {
                    "queue": queue.name,
                    "address": queue.address.name,
                    "routingType": queue.attributes.routing_type,
                },
            )
        )

    @property
    def events(self) -> list[Event]:
        """All listed events, the newest last."""
        return self.since(0)

    def since(self, number: int) -> list[Event]:
        """Return the listed events after an id, the newest last."""
        return sorted(event for recent in self._by_type.values() for event in recent if event.id > number)

    def has_lost(self, number: int) -> bool:
        """Return whether events after the id ``number`` left the list, or the id is of another run. False for 0."""
        return 0 < number < max(self._last_dropped, self._begun) or number > self.last_id

    def _send(self) -> None:
        """Send the waiting messages. Called in a later reactor turn, as an event may happen within an operation."""
        waiting, self._waiting = self._waiting, deque()
        for event in waiting:
            self.sent += self.send_message(event)
