"""SEND (STOMP 1.2, "SEND"): the hot path from a frame to the queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker import page_mode
from stompring.broker.admission import Obstacle, drop, obstacle
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
    gate = plan.gate
    if gate is not None and kin is None:
        traits = plan.traits
        detour = address.room.detour or gate.full
        if detour and (hindered := obstacle(address, traits.durable)) is not None:
            _keep_out(session, hindered)
            return
        now = session.broker.clock.now
        expires = 0
        if traits.lifetime_end or address.changes_expiry:
            expires = lifetime(address.settings, now, traits.lifetime_end)
        message = Message(session.next_message_number(), address, traits, body, now, expires)
        if not (page_mode.route(address, message) if detour else address.route(message)):
            session.broker.unrouted(message)
    elif b"transaction" in head.headers:
        transaction_of(session, head).send(
            len(body),
            lambda: _current_plan(session, head).address,
            lambda: _put_or_drop(session, head, body),
            durable=plan.traits.durable,
        )
        session.receipt(head)
    else:
        if (hindered := obstacle(address, plan.traits.durable)) is not None:
            _keep_out(session, hindered)
        else:
            _put(session, plan, body)
        session.receipt(head, plan.traits.durable)


def _keep_out(session: Session, hindered: Obstacle) -> None:
    """A message may not enter: its producer waits or fails (which is raised), or it is dropped."""
    if hindered.policy is FullPolicy.BLOCK:
        session.messages_in -= 1
        raise Blocked(hindered)
    if hindered.policy is FullPolicy.FAIL:
        raise Refused(hindered.describe())
    drop(hindered)


def _put_or_drop(session: Session, head: Head, body: bytes) -> None:
    """At a COMMIT, which nothing has to wait for any more."""
    plan = _current_plan(session, head)
    hindered = obstacle(plan.address, plan.traits.durable)
    if hindered is not None and hindered.policy is FullPolicy.DROP:
        drop(hindered)
    else:
        _put(session, plan, body)


def _put(session: Session, plan: SendPlan, body: bytes) -> None:
    """Route a message that was admitted: at once, at its time, or into the one queue it names."""
    address, traits, broker = plan.address, plan.traits, session.broker
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
