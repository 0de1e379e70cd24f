"""SUBSCRIBE and UNSUBSCRIBE: from the headers to a consumer of a queue."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

from stompring.broker.directory import subscription_size
from stompring.broker.message import Matches
from stompring.broker.ports import Subscriber
from stompring.broker.queue import Queue, not_from
from stompring.errors import LimitReached, NotFound, ProtocolError, Refused
from stompring.selector import InvalidSelector, Selector, compile_selector
from stompring.settings.model import PermissionType, QueueConfiguration, RoutingType
from stompring.stomp.frames import Head

from .destination import Destination
from .outbox import check_identifier_length, shortened, text_of
from .session import Session
from .subscription import (
    UNLIMITED,
    AcknowledgedSubscription,
    AutoSubscription,
    BrowserSubscription,
    CumulativeSubscription,
    RecordingAutoSubscription,
    Subscription,
    Terms,
)

#: Headers with the name of a durable subscription; the first one that is present counts.
DURABLE_NAMES = (b"durable-subscription-name", b"durable-subscriber-name", b"activemq.subscriptionName")

#: Headers with the priority of a consumer; the first one that is present counts.
PRIORITY_NAMES = (b"consumer-priority", b"activemq.priority")

#: The highest priority of a consumer, as in Artemis; the lowest is ``-MOST_PRIORITY - 1``.
MOST_PRIORITY: Final = 2**31 - 1

KINDS: dict[str, type[Subscription]] = {
    "auto": AutoSubscription,
    "client": CumulativeSubscription,
    "client-individual": AcknowledgedSubscription,
}


def on_SUBSCRIBE(session: Session, head: Head, body: bytes) -> None:
    """Begin a subscription. Deliveries begin after the receipt, which waits until a durable queue is on disk."""
    subscription = subscribe(session, head)
    if b"receipt" in head.headers and subscription.queue.durable:
        session.broker.storage.when_synced(lambda: _begin(session, head, subscription))
    else:
        _begin(session, head, subscription)


def _begin(session: Session, head: Head, subscription: Subscription) -> None:
    session.receipt(head)
    if (
        session.subscriptions.get(subscription.terms.id) is subscription
    ):  # the subscription may have ended while the disk was busy
        subscription.on_writable()


def subscribe(session: Session, head: Head) -> Subscription:
    """Begin a subscription without deliveries yet. Raises `ProtocolError`, `Refused`."""
    headers = head.headers
    destination = headers.get(b"destination")
    if destination is None:
        raise ProtocolError("SUBSCRIBE needs a destination header")
    allowed = session.acceptor.subscriptions_allowed
    if 0 <= allowed <= len(session.subscriptions):
        raise LimitReached(
            f"More than {allowed} subscriptions on one connection (subscriptionsAllowed)",
            "subscriptionsAllowed",
        )
    identity = _identity(session, headers, destination)
    selector = _selector(headers)
    requested = headers.get(b"subscription-type") or headers.get(b"destination-type")
    target = session.parse_destination(destination, text_of(requested))
    for known_by in (identity, destination):
        stand_in = session.subscriptions.get(known_by)
        if stand_in is not None and stand_in.terms.for_replies:
            session.end_subscription(stand_in)
    wildcard = session.broker.directory.wildcards.is_wildcard(target.address)
    terms = _terms(session, headers, identity, destination, wildcard, selector)
    return _attach(session, terms, target, headers, selector)


def _attach(
    session: Session,
    terms: Terms,
    target: Destination,
    headers: dict[bytes, bytes],
    selector: Selector | None,
) -> Subscription:
    size = subscription_size(terms.selector)
    session.broker.subscription_memory.check(size)
    origin = _no_local(session, headers)
    queue, own_filter = _queue_for(session, terms, target, selector, origin)
    matches: Matches | None = None
    key: object = None
    if not own_filter and (selector is not None or origin is not None):
        matches = selector.matches_lines if selector is not None else None
        matches = matches if origin is None else not_from(origin, matches)
        key = (terms.selector, origin)
    if queue.hooks.subscribed is not None:
        try:
            queue.hooks.subscribed(
                Subscriber(
                    queue.name,
                    text_of(terms.id),
                    session.login.user,
                    session.client_id,
                    session.number,
                    session.peer,
                    terms.selector,
                    {text_of(name): text_of(value) for name, value in headers.items()},
                )
            )
        except Refused:
            session.broker.consider_deleting(queue)
            raise
    subscription = _make(session, terms, matches, key)
    subscription.size = size
    try:
        subscription.attach(queue)
    except Refused:
        session.broker.consider_deleting(queue)
        raise
    session.register(subscription)
    session.notify_consumer("CONSUMER_CREATED", subscription, "began")
    return subscription


def _make(session: Session, terms: Terms, matches: Matches | None, key: object) -> Subscription:
    """Create a subscription with the requested ack mode, and with a consumer name if the store records ACKs."""
    recorded = session.broker.storage.keeps_all and not terms.browser
    kind = BrowserSubscription if terms.browser else KINDS[terms.ack]
    if recorded and kind is AutoSubscription:
        kind = RecordingAutoSubscription
    subscription = kind(terms, session.outbox, session.cancelled, matches, key)
    if recorded:
        subscription.consumer_name = f"{session.origin}/{text_of(terms.id)}"
    subscription.connection_id, subscription.created = session.number, session.broker.clock.now
    return subscription


def _queue_for(
    session: Session, terms: Terms, target: Destination, selector: Selector | None, origin: str | None
) -> tuple[Queue, bool]:
    """Return the queue to subscribe to, and whether the selector becomes the filter of that queue."""
    auto_create, authorizer, user = session.broker.auto_create, session.login.authorizer, session.login.user
    address = target.address
    if target.temporary:
        authorizer.check_consume(None, address, browse=terms.browser)
        if target.queue is not None:
            return session.temporary_queue(target), False
        session.temporary_topic(target)
        if terms.durable_name is not None:
            raise Refused(f"Temporary topic {address} has no durable subscriptions")
    if target.queue is not None:
        authorizer.check_consume(
            target.queue, auto_create.address_of(address, target.queue), browse=terms.browser
        )
        queue = auto_create.queue_for(address, target.queue, target.routing_type, authorizer.check, user)
        return queue, False
    if auto_create.type_for(address, target.routing_type) is RoutingType.ANYCAST:
        found = auto_create.anycast_queue(address)
        authorizer.check_consume(address if found is None else found.name, address, browse=terms.browser)
        return auto_create.queue_to_consume(address, authorizer.check, user), False
    if terms.browser:
        raise Refused(
            f"browser:true needs a queue, and {address} is a MULTICAST address: name one of its queues, as "
            f"{address}::QUEUE"
        )
    durable = terms.durable_name
    name = str(uuid4()) if durable is None else f"{session.client_id}.{durable}"
    authorizer.check_consume(None if durable is None else name, address)
    queue = auto_create.subscription_queue(
        QueueConfiguration(
            name=name,
            address=address,
            routing_type=RoutingType.MULTICAST,
            durable=durable is not None,
            filter=None if selector is None else selector.text,
            user=session.login.user,
            auto_created=True,
            auto_delete=durable is None,
            temporary=durable is None,
        ),
        authorizer.check,
        origin,
    )
    if queue.no_local != origin:
        queue.no_local = origin
        queue.update_filter()
        queue.address.changed()
        session.broker.bind(queue)
    return queue, True


def _identity(session: Session, headers: dict[bytes, bytes], destination: bytes) -> bytes:
    identity = headers.get(b"id")
    if identity is None:
        identity = _unnamed(session, destination)
    else:
        check_identifier_length("id", identity)
    existing = session.subscriptions.get(identity)
    if existing is not None and not existing.terms.for_replies:
        raise Refused(
            f"There already is a subscription for id '{shortened(identity)}'. Either use unique subscription ids or "
            "do not create multiple subscriptions for the same destination"
        )
    return identity


def _unnamed(session: Session, destination: bytes) -> bytes:
    """Return the id of a subscription whose SUBSCRIBE has none: its destination, in 1.0 with Artemis's prefix."""
    return b"subscription/" + destination if session.version == b"1.0" else destination


def _terms(
    session: Session,
    headers: dict[bytes, bytes],
    identity: bytes,
    destination: bytes,
    wildcard: bool,
    selector: Selector | None,
) -> Terms:
    ack = text_of(headers.get(b"ack")) or "auto"
    if ack not in KINDS:
        raise ProtocolError(f"ack must be auto, client or client-individual, not '{ack[:100]}'")
    durable = _durable_name(headers)
    if durable is not None and session.client_id is None:
        raise Refused(f"Durable subscription '{durable}' needs a client-id on CONNECT")
    return Terms(
        identity,
        destination,
        wildcard,
        session.version,
        ack,
        *_windows(session, headers, ack),
        durable_name=durable,
        browser=headers.get(b"browser", b"").lower() == b"true",
        priority=_priority(headers),
        selector=None if selector is None else selector.text,
    )


def _windows(session: Session, headers: dict[bytes, bytes], ack: str) -> tuple[int, int]:
    """Return the credit in bytes (consumer-window-size, as in Artemis) and in messages (prefetch-count or a synonym).

    If the client sets one of these headers, the defaults of the acceptor do not apply.
    """
    acceptor = session.acceptor
    messages = _window(headers, (b"prefetch-count", b"activemq.prefetchSize"), 1)
    size = _window(headers, (b"consumer-window-size",), 0)
    if messages is None and size is None and ack != "auto":
        messages, size = acceptor.stomp_prefetch_count, acceptor.stomp_consumer_window_size
    messages, size = -1 if messages is None else messages, -1 if size is None else size
    if size == 0:  # the client wants one message at a time
        size, messages = -1, 1
    most = acceptor.max_unsettled_messages if ack != "auto" else -1
    if messages > most > 0 or messages < 0:
        messages = most
    return size if size > 0 else UNLIMITED, messages if messages > 0 else UNLIMITED


def _window(headers: dict[bytes, bytes], names: tuple[bytes, ...], least: int) -> int | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            text = value.strip()
            if text == b"-1":
                return -1
            if not text.isdigit() or len(text) > 18 or int(text) < least:
                raise Refused(
                    f"{text_of(name)} must be -1 or a whole number from {least} on, not '{shortened(value)}'"
                )
            return int(text)
    return None


def _priority(headers: dict[bytes, bytes]) -> int:
    for name in PRIORITY_NAMES:
        value = headers.get(name)
        if value is not None:
            text = value.strip()
            digits = text.removeprefix(b"-")
            priority = int(text) if digits.isdigit() and len(digits) <= 10 else MOST_PRIORITY + 1
            if not -MOST_PRIORITY - 1 <= priority <= MOST_PRIORITY:
                raise Refused(
                    f"{text_of(name)} must be a whole number from {-MOST_PRIORITY - 1} to {MOST_PRIORITY}, not "
                    f"'{shortened(value)}'"
                )
            return priority
    return 0


def _durable_name(headers: dict[bytes, bytes]) -> str | None:
    return next((text_of(headers[name]) for name in DURABLE_NAMES if headers.get(name)), None)


def _selector(headers: dict[bytes, bytes]) -> Selector | None:
    text = headers.get(b"selector")
    if text is None:
        return None
    try:
        return compile_selector(text_of(text))
    except InvalidSelector as fault:
        raise Refused(f"Invalid selector '{shortened(text)}': {fault}", status=400) from None


def _no_local(session: Session, headers: dict[bytes, bytes]) -> str | None:
    names = (b"no-local", b"activemq.noLocal")
    return session.origin if any(headers.get(name, b"").lower() == b"true" for name in names) else None


def expect_replies(session: Session, reply_to: bytes) -> None:
    """Subscribe to the temporary queue or topic in the reply-to of a SEND, as in RabbitMQ.

    A subscription of the client itself replaces this one.
    """
    if any(subscription.terms.destination == reply_to for subscription in session.subscriptions.values()):
        return
    terms = Terms(reply_to, reply_to, wildcard=False, version=session.version, for_replies=True)
    _attach(session, terms, session.parse_destination(reply_to, None), {}, None).on_writable()


def on_UNSUBSCRIBE(session: Session, head: Head, body: bytes) -> None:
    """End a subscription, and requeue its unsettled messages. Headers name its id, durable name or destination.

    A durable name also deletes the queue of the durable subscription.
    """
    headers = head.headers
    durable = _durable_name(headers)
    identity = headers.get(b"id")
    if identity is None and b"destination" in headers:
        identity = _unnamed(session, headers[b"destination"])
    subscription = session.subscriptions.get(identity) if identity is not None else None
    if subscription is None and durable is not None:
        subscriptions = session.subscriptions.values()
        subscription = next((one for one in subscriptions if one.terms.durable_name == durable), None)
    if subscription is not None:
        attributes = subscription.queue.attributes
        if attributes.temporary and attributes.routing_type is RoutingType.MULTICAST:
            session.login.authorizer.check(
                PermissionType.DELETE_NON_DURABLE_QUEUE, subscription.queue.address.name
            )
        session.end_subscription(subscription)
    if durable is not None:
        _delete_durable(session, durable)
    elif identity is None:
        raise ProtocolError("UNSUBSCRIBE needs the header id or destination")
    elif subscription is None:
        raise NotFound(f"Cannot unsubscribe as no subscription exists for id '{shortened(identity)}'")
    session.receipt(head, durable=True)


def _delete_durable(session: Session, durable: str) -> None:
    if session.client_id is None:
        raise Refused(f"Durable subscription '{durable}' needs a client-id on CONNECT")
    name = f"{session.client_id}.{durable}"
    queue = session.broker.directory.queue(name)
    session.login.authorizer.check(PermissionType.DELETE_DURABLE_QUEUE, queue.address.name, queue.name)
    if queue.attributes.routing_type is not RoutingType.MULTICAST:
        raise Refused(f"{name} is not a durable subscription but a queue of address {queue.address.name}")
    if queue.consumers:
        raise Refused(f"Durable subscription {name} is in use by another consumer")
    session.broker.directory.delete_queue(name)
