"""ACK and NACK (STOMP 1.2, "ACK", "NACK")."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from stompring.broker.reference import Reference
from stompring.broker.transaction import Undo, requeue
from stompring.errors import ProtocolError, Refused
from stompring.stomp.frames import AckHead, Head

from .subscription import AcknowledgedSubscription
from .text import shortened, text_of
from .transact import transaction_of

if TYPE_CHECKING:
    from .session import Session

#: The commands that settle messages.
SETTLING = (b"ACK", b"NACK")


def on_ACK(session: Session, head: Head, body: bytes) -> None:
    """Settle one message, or in ``client`` mode all up to it."""
    subscription = session.only_acknowledged
    if subscription is not None and isinstance(head, AckHead) and head.identifier in subscription.unsettled:
        subscription.settle(head.identifier)
        if not subscription.ready:
            session.credit_freed = subscription  # it goes on once for all ACKs of this read
        return
    headers = head.headers
    key = headers.get(b"id") or headers.get(b"message-id") or _missing(session, head)
    subscription = _owner(session, head, key)
    if b"transaction" in headers:
        transaction = transaction_of(session, head)
        transaction.acknowledge(*subscription.release_revocably(key))
    else:
        subscription.settle(key)
    if not subscription.ready:
        subscription.go_on()
    if b"receipt" in headers:
        _receipt(session, head, subscription)


def on_NACK(session: Session, head: Head, body: bytes) -> None:
    """Put messages back: another consumer first, after the redelivery-delay, in the end the dead letters."""
    headers = head.headers
    key = headers.get(b"id") or headers.get(b"message-id") or _missing(session, head)
    subscription = _owner(session, head, key)
    if b"transaction" in headers:
        transaction = transaction_of(session, head)
        refs, undo = subscription.release_revocably(key)
        subscription.rejected += len(refs)
        transaction.refuse(refs, subscription, partial(_undo_rejection, subscription, len(refs), undo))
    else:
        refs = subscription.release(key)
        subscription.rejected += len(refs)
        requeue(refs, subscription, failed=True)
    subscription.go_on()
    if b"receipt" in headers:
        _receipt(session, head, subscription)


def _undo_rejection(subscription: AcknowledgedSubscription, count: int, undo: Undo) -> list[Reference]:
    subscription.rejected -= count
    return undo()


def _receipt(session: Session, head: Head, subscription: AcknowledgedSubscription) -> None:
    """Once what was asked for has happened; where that is about many messages the next frame waits for it as well."""
    background, queue = session.broker.background, subscription.queue
    if queue in background:
        session.wait_for_work(partial(background.after, queue), lambda: session.receipt(head, durable=True))
    else:
        session.receipt(head, durable=True)


def _missing(session: Session, head: Head) -> bytes:
    wanted = "id" if session.version == b"1.2" else "message-id"
    raise ProtocolError(f"{text_of(head.command)} needs the header {wanted}")


def _owner(session: Session, head: Head, key: bytes) -> AcknowledgedSubscription:
    """Whose delivery ``key`` names: ``id`` (1.2), else ``message-id``; in 1.1 ``subscription`` must agree."""
    for subscription in session.by_queue.get(key[: key.find(b"-")], ()):
        if key in subscription.unsettled:
            if session.version == b"1.1":
                _check_name(head, key, subscription)
            return subscription
    raise Refused(
        f"{text_of(head.command)}: no message with id '{shortened(key)}' awaits acknowledgement on this connection"
    )


def _check_name(head: Head, key: bytes, subscription: AcknowledgedSubscription) -> None:
    named = head.headers.get(b"subscription")
    if named is not None and named != subscription.terms.id:
        raise Refused(
            f"{text_of(head.command)} of message {shortened(key)}: subscription id '{shortened(named)}' does not "
            f"match '{shortened(subscription.terms.id)}'"
        )
