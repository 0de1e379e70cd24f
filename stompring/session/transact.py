"""BEGIN, COMMIT and ABORT (STOMP 1.2, "BEGIN", "COMMIT", "ABORT")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stompring.broker.address import Address
from stompring.broker.admission import Rejection, check, exceeded_by
from stompring.broker.duplicates import count_duplicate, printable_id
from stompring.broker.transaction import Transaction
from stompring.errors import LimitReached, NotFound, ProtocolError, Refused
from stompring.settings.model import FullPolicy
from stompring.stomp.frames import Head

from .backpressure import Blocked
from .text import check_identifier_length, shortened, text_of

if TYPE_CHECKING:
    from .session import Session


def on_BEGIN(session: Session, head: Head, body: bytes) -> None:
    """Open a transaction."""
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
    """Everything in the transaction happens now, or nothing of it. `Blocked` while an address is full."""
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
    """What stands in the way, of each address, or of each message where policies say so of each."""
    of_each = False
    for address in addresses:
        if address.hooks.full is not None:
            of_each = True
            continue
        rejection = check(address, transaction.durable)
        if rejection is None:
            continue
        if rejection.policy is FullPolicy.FAIL and (rejection.limit is None or rejection.of_memory):
            continue  # `exceeded_by` has found that what is acknowledged frees enough
        yield rejection
    for ask in transaction.questions if of_each else ():
        rejection = ask()
        if rejection is not None:
            yield rejection


def _frees_limit(session: Session, rejection: Rejection, frees: set[Address]) -> bool:
    """Whether a transaction acknowledges messages that count for the limit: it must not wait for itself."""
    if rejection.limit is rejection.address.memory_limit:
        return rejection.address in frees
    return bool(frees) and rejection.limit in (session.broker.memory, session.broker.disk)


def on_ABORT(session: Session, head: Head, body: bytes) -> None:
    """Nothing in the transaction happens; what it had acknowledged or refused is unacknowledged as before."""
    transaction = transaction_of(session, head)
    del session.transactions[_name(head)]
    transaction.rollback()
    session.wait_for_work(transaction.when_done, lambda: session.receipt(head))


def transaction_of(session: Session, head: Head) -> Transaction:
    """The open transaction that a frame names. Raises `NotFound`."""
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
