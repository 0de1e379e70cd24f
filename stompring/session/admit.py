"""What the policies of an address make of a SEND before it may enter: see `Hooks.admit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.hooks import FAULTS
from stompring.errors import Refused
from stompring.stomp.frame import Head

from .blocked import Blocked
from .send_plan import SendPlan, derive

if TYPE_CHECKING:
    from stompring.broker.hooks import Ruling

    from .session import Session


def judged(session: Session, plan: SendPlan, head: Head, body: bytes, answer: object) -> SendPlan | None:
    """How a message goes on after an answer (or a fault) of its address's policies; None where it was dropped.

    The policies of an address that it is redirected to are asked as well. Raises `Refused`, or `Blocked` for a message
    that comes too early.
    """
    passed = [plan.address.name]
    while True:
        ruling = plan.address.hooks.judge(answer)
        if ruling is None:
            return plan
        if ruling.drop:
            plan.address.dropped_messages += 1
            return None
        if ruling.wait:
            session.messages_in -= 1
            raise Blocked(plan.address, None, ruling.wait)
        plan = _derived(session, plan, head, ruling)
        if ruling.address is None:
            return plan
        if ruling.address in passed:
            raise Refused(f"Policies redirect in a circle: {' to '.join([*passed, ruling.address])}")
        passed.append(ruling.address)
        answer = _ask(plan, body)
        if answer is None:
            return plan


def _ask(plan: SendPlan, body: bytes) -> object:
    if plan.admit is None:
        return None
    plan.offer.body = body
    try:
        return plan.admit(plan.offer)
    except FAULTS as fault:
        return fault
    finally:
        plan.offer.body = b""


def _derived(session: Session, plan: SendPlan, head: Head, ruling: Ruling) -> SendPlan:
    """The plan that a ruling makes of another one. One that is like the last one is not made again."""
    if plan.derived is not None:
        before, derived = plan.derived
        if before == ruling and derived.stamp == derived.address.stamp:
            return derived
    base = plan.head or head.kin or head
    headers = dict(base.headers)
    for name, value in (ruling.headers or {}).items():
        if value is None:
            headers.pop(name, None)
        else:
            headers[name] = value
    changed = Head(head.command, headers, head.content_length)
    target = plan.target if ruling.address is None else ruling.address
    derived = derive(session, changed, target)
    plan.derived = (ruling, derived)
    return derived
