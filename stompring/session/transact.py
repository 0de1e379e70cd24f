"""BEGIN, COMMIT, ABORT, ACK and NACK (STOMP 1.2, sections of these names)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from stompring.broker.address import Address, count_duplicate, printable_id
from stompring.broker.message import AddressBase
from stompring.broker.publish import Rejection, Transaction, Undo, check_admission, exceeded_by, requeue
from stompring.broker.reference import Reference
from stompring.errors import LimitReached, NotFound, ProtocolError, Refused
from stompring.settings.model import FullPolicy
from stompring.stomp.frames import Head
from stompring.stomp.parser import AckHead

from .outbox import Blocked, check_identifier_length, shortened, text_of
from .session import Session
from .subscription import AcknowledgedSubscription


def on_BEGIN(session: Session, head: Head, body: bytes) -> None:
    name = _name(head)
    allowed = session.acceptor.transactions_allowed
    if name in session.transactions:
        raise Refused(f"Transaction already started: {shortened(name)}")
    if 0 <= allowed <= len(session.transactions):
        raise LimitReached(
            f"More than {allowed} open transactions on one connection (transactionsAllowed)",
            "transactionsAllowed",
        )
    session.transactions[check_identifier_length("transaction", name)] = Transaction(
        session.broker, session.transaction_bytes
    )
    session.receipt(head)


def on_COMMIT(session: Session, head: Head, body: bytes) -> None:
    """Commit a transaction as a whole. Raises `Blocked` while an address is full, `Refused` if that is impossible."""
    transaction = transaction_of(session, head)
    if transaction.claims and (duplicate := transaction.duplicate()) is not None:
        address, identifier = duplicate
        count_duplicate(address, identifier)
        raise Refused(
            f"Transaction {shortened(_name(head))} is not committed: "
            f"duplicate _AMQ_DUPL_ID '{printable_id(identifier)}' on address {address.name}"
        )
    frees = {ref.message.address for ref in transaction.returns}
    loads = transaction.loads()
    exceeded = exceeded_by(loads, transaction.acknowledged)
    if exceeded is not None:
        raise Refused(f"Transaction {shortened(_name(head))} is not committed: {exceeded}")
    for rejection in _rejections(transaction, loads):
        if rejection.policy is FullPolicy.FAIL:
            raise Refused(f"Transaction {shortened(_name(head))} is not committed: {rejection.describe()}")
        if rejection.policy is FullPolicy.BLOCK and not _frees_limit(session, rejection, frees):
            raise Blocked(rejection.address, rejection.limit)
    del session.transactions[_name(head)]
    transaction.commit()
    session.wait_for_work(
        transaction.when_done, lambda: session.receipt(head, durable=True, transactional=True)
    )


def _rejections(transaction: Transaction, addresses: Iterable[Address]) -> Iterator[Rejection]:
    """Yield the rejections of a COMMIT: one for each address, or for each message if policies decide about messages."""
    of_each = False
    for address in addresses:
        if address.hooks.full is not None:
            of_each = True
            continue
        rejection = check_admission(address, transaction.durable)
        if rejection is None:
            continue
        if rejection.policy is FullPolicy.FAIL and (rejection.limit is None or rejection.of_memory):
            # `exceeded_by` has already checked this limit, with the memory that the ACKs of the transaction free
            continue
        yield rejection
    for ask in transaction.questions if of_each else ():
        rejection = ask()
        if rejection is not None:
            yield rejection


def _frees_limit(session: Session, rejection: Rejection, frees: set[AddressBase]) -> bool:
    """Return whether the ACKs of a transaction free memory or disk space for which its messages would wait."""
    if rejection.limit is rejection.address.memory_limit:
        return rejection.address in frees
    return bool(frees) and rejection.limit in (session.broker.memory, session.broker.disk)


def on_ABORT(session: Session, head: Head, body: bytes) -> None:
    """Roll a transaction back: its messages are not sent, and its ACKs and NACKs are undone."""
    transaction = transaction_of(session, head)
    del session.transactions[_name(head)]
    transaction.rollback()
    session.wait_for_work(transaction.when_done, lambda: session.receipt(head))


def transaction_of(session: Session, head: Head) -> Transaction:
    """Return the open transaction that a frame names. Raises `NotFound`, `ProtocolError`."""
    name = _name(head)
    transaction = session.transactions.get(name)
    if transaction is None:
        raise NotFound(
            f"{text_of(head.command)}: no transaction '{shortened(name)}' is open on this connection"
        )
    return transaction


def _name(head: Head) -> bytes:
    name = head.headers.get(b"transaction")
    if name is None:
        raise ProtocolError(f"{text_of(head.command)} needs the header transaction")
    return name


#: The commands that settle messages.
SETTLING = (b"ACK", b"NACK")


def on_ACK(session: Session, head: Head, body: bytes) -> None:
    """Settle one message, or with ``ack:client`` all messages up to it."""
    subscription = session.only_acknowledged
    if subscription is not None and isinstance(head, AckHead) and head.identifier in subscription.unsettled:
        subscription.settle(head.identifier)
        if not subscription.ready:
            session.credit_freed = subscription  # the subscription resumes once, after all ACKs of this read
        return
    headers = head.headers
    subscription, key = _owner(session, head)
    if b"transaction" in headers:
        transaction_of(session, head).acknowledge(*subscription.release_revocably(key))
    else:
        subscription.settle(key)
    if not subscription.ready:
        subscription.on_writable()
    if b"receipt" in headers:
        _receipt(session, head, subscription)


def on_NACK(session: Session, head: Head, body: bytes) -> None:
    """Requeue the rejected messages. They are delivered again after the redelivery-delay, if possible to other
    consumers, and become dead letters after max-delivery-attempts.
    """
    headers = head.headers
    subscription, key = _owner(session, head)
    if b"transaction" in headers:
        transaction = transaction_of(session, head)
        refs, undo = subscription.release_revocably(key)
        transaction.refuse(refs, subscription, partial(_undo_rejection, subscription, len(refs), undo))
    else:
        refs = subscription.release(key)
        requeue(refs, subscription, failed=True)
    subscription.rejected += len(refs)
    subscription.on_writable()
    if b"receipt" in headers:
        _receipt(session, head, subscription)


def _undo_rejection(subscription: AcknowledgedSubscription, count: int, undo: Undo) -> list[Reference]:
    subscription.rejected -= count
    return undo()


def _receipt(session: Session, head: Head, subscription: AcknowledgedSubscription) -> None:
    """Send the receipt when the work on the queue is complete. Work on many messages also delays the next frame."""
    background, queue = session.broker.background, subscription.queue
    if queue in background:
        session.wait_for_work(partial(background.after, queue), lambda: session.receipt(head, durable=True))
    else:
        session.receipt(head, durable=True)


def _owner(session: Session, head: Head) -> tuple[AcknowledgedSubscription, bytes]:
    """Return the subscription with the unsettled message of an ACK or NACK, and the message id.

    The header is ``id`` (1.2) or ``message-id``; in 1.1 ``subscription`` must agree. Raises `ProtocolError`, `Refused`.
    """
    key = head.headers.get(b"id") or head.headers.get(b"message-id")
    if not key:
        wanted = "id" if session.version == b"1.2" else "message-id"
        raise ProtocolError(f"{text_of(head.command)} needs the header {wanted}")
    for subscription in session.by_queue.get(key[: key.find(b"-")], ()):
        if key in subscription.unsettled:
            named, name = head.headers.get(b"subscription"), subscription.terms.id
            if session.version == b"1.1" and named is not None and named != name:
                raise Refused(
                    f"{text_of(head.command)} of message {shortened(key)}: subscription id '{shortened(named)}' does "
                    f"not match '{shortened(name)}'"
                )
            return subscription, key
    raise Refused(
        f"{text_of(head.command)}: no message with id '{shortened(key)}' awaits acknowledgement on this connection"
    )
