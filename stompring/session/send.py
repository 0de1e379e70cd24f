"""SEND (STOMP 1.2, "SEND"): the hot path from a frame to the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.message import Message
from stompring.broker.redelivery import lifetime
from stompring.errors import Refused
from stompring.settings.model import FullPolicy
from stompring.stomp.frame import Head

from .blocked import Blocked
from .send_plan import SendPlan, plan_send
from .transact import transaction_of

if TYPE_CHECKING:
    from .session import Session


def on_SEND(session: Session, head: Head, body: bytes) -> None:
    """Send a message. Raises `Blocked` while its address has no room and BLOCK is its policy."""
    kin = head.kin
    plan: SendPlan | None = head.plan if kin is None else kin.plan
    if plan is None or plan.stamp != plan.address.stamp:
        plan = _plan_anew(session, head)
    session.messages_in += 1
    address = plan.address
    if plan.simple and kin is None and not (address.room.full or address.memory.full):
        traits = plan.traits
        now = session.broker.clock.now
        expires = 0
        if traits.lifetime_end or address.changes_expiry:
            expires = lifetime(address.settings, now, traits.lifetime_end)
        message = Message(session.next_message_number(), address, traits, body, now, expires)
        if not address.route(message):
            session.broker.unrouted(message)
    elif b"transaction" in head.headers:
        transaction_of(session, head).send(
            len(body), lambda: _current_plan(session, head).address, lambda: _put(session, head, body)
        )
        session.receipt(head)
    else:
        _admit(session, plan)
        _put(session, head, body)
        session.receipt(head, plan.traits.durable)


def _admit(session: Session, plan: SendPlan) -> None:
    """Raise where a full address lets its producer wait or fail."""
    address = plan.address
    full = address.full
    if full is None:
        return
    if address.policy is FullPolicy.BLOCK:
        session.messages_in -= 1
        raise Blocked(address, full)
    if address.policy is FullPolicy.FAIL:
        raise Refused(address.describe_full())


def _put(session: Session, head: Head, body: bytes) -> None:
    """Route a message that was admitted: at once, at its time, or into the one queue it names."""
    plan = _current_plan(session, head)
    address, traits, broker = plan.address, plan.traits, session.broker
    if address.full is not None and address.policy is FullPolicy.DROP:
        address.drop()
        return
    now = broker.clock.now
    expires = lifetime(address.settings, now, traits.lifetime_end)
    message = Message(session.next_message_number(), address, traits, body, now, expires)
    timing = plan.timing
    due, recurrence = (0, None) if timing is None else (timing.due_at(now), timing.new_recurrence())
    if plan.queue is not None:
        broker.send_to_queue(plan.queue, message, due, recurrence)
    else:
        broker.send(message, due, recurrence)


def _current_plan(session: Session, head: Head) -> SendPlan:
    """The plan of a header block; made anew when its address has changed since."""
    plan: SendPlan = head.plan if head.kin is None else head.kin.plan
    return plan if plan.stamp == plan.address.stamp else _plan_anew(session, head)


def _plan_anew(session: Session, head: Head) -> SendPlan:
    """Plan for a header block, and for all that are the same but for their receipt."""
    kept = head if head.kin is None else head.kin
    plan = kept.plan = plan_send(session, kept)
    return plan
