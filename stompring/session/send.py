"""SEND (STOMP 1.2, "SEND"): the hot path from a frame to the queues."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from stompring.broker import page_mode
from stompring.broker.address import Address
from stompring.broker.admission import Obstacle, drop, obstacle
from stompring.broker.duplicates import count_duplicate, is_known, lasts, remember
from stompring.broker.hooks import HOOK_EXCEPTIONS, SLOW_HOOK
from stompring.broker.message import Message
from stompring.broker.redelivery import lifetime
from stompring.errors import Refused
from stompring.settings.model import FullPolicy
from stompring.stomp.frames import Head

from .admit import OfferedSend
from .blocked import Blocked
from .send_plan import DUPLICATE_ID, ENTERED, SendPlan, derive, plan_anew
from .transact import transaction_of

if TYPE_CHECKING:
    from .session import Session


def on_SEND(session: Session, head: Head, body: bytes) -> None:
    """Send a message. Raises `Blocked` while its address has no room and BLOCK is its policy."""
    kin = head.base
    plan: SendPlan | None = head.plan if kin is None else kin.plan
    if plan is None or plan.stamp != plan.address.stamp:
        plan = plan_anew(session, head)
    session.messages_in += 1
    offered: OfferedSend | None = None
    if plan.admit is not None:
        reports = plan.reports
        if reports == ENTERED:
            _offer(OfferedSend(session, head, body, plan), session)
            return
        offer = plan.offer
        offer.body = body
        began = perf_counter()
        try:
            answer = plan.admit(offer)
        except HOOK_EXCEPTIONS as fault:
            answer = fault
        seconds = perf_counter() - began
        offer.body = b""  # it may be large, and the plan lasts as long as the connection
        if seconds > SLOW_HOOK:
            plan.address.hooks.slow_admit(seconds)
        if answer is not None or (reports and (plan.gate is None or kin is not None)):
            offered = OfferedSend(session, head, body, plan, answer)
            if reports:
                _offer(offered, session)
                return
            if not _decide(offered, session):
                return
            plan = offered.plan
            if plan.reports:  # where it was redirected to
                _offer(offered, session)
                return
    address = plan.address
    gate = plan.gate
    if gate is not None and kin is None:
        traits = plan.traits
        detour = address.room.detour or gate.full
        if detour and (hindered := obstacle(address, traits.durable, plan.offer, body)) is not None:
            _keep_out(session, hindered, head, body, plan, offered)
            return
        now = session.broker.clock.now
        expires = 0
        if traits.lifetime_end or address.changes_expiry:
            expires = lifetime(address.settings, now, traits.lifetime_end)
        message = Message(session.next_message_number(), address, traits, body, now, expires)
        if not (page_mode.route(address, message) if detour else address.route(message)):
            session.broker.unrouted(message)
    elif plan.alone and kin is None and plan.identifier is not None and offered is None:
        if is_known(address, plan.identifier):
            count_duplicate(address, plan.identifier)
        elif (hindered := obstacle(address, plan.traits.durable, plan.offer, body)) is not None:
            _keep_out(session, hindered, head, body, plan, offered)
        else:
            put(session, plan, body)
    else:
        _enter(session, head, body, plan, offered)


def resume_SEND(session: Session, offered: OfferedSend) -> None:
    """Go on with a message that had to wait: no policy that has decided is asked again. Raises as `on_SEND`."""
    session.messages_in += 1
    _offer(offered, session)


def _decide(offered: OfferedSend, session: Session) -> bool:
    """Let the policies decide that have not yet; False where they have dropped the message."""
    try:
        if offered.decide():
            return True
    except Blocked:
        session.messages_in -= 1
        raise
    except Exception as error:
        offered.refused(str(error))
        raise
    session.receipt(offered.head)
    return False


def _offer(offered: OfferedSend, session: Session) -> None:
    """Let the policies decide that have not yet, and notify them of what becomes of the message."""
    if not _decide(offered, session):
        return
    try:
        _enter(session, offered.head, offered.body, offered.plan, offered)
    except Blocked:
        raise
    except Exception as error:
        offered.refused(str(error))
        raise


def _enter(session: Session, head: Head, body: bytes, plan: SendPlan, offered: OfferedSend | None) -> None:
    """What `on_SEND` does with a message that is in a transaction, wants a receipt, or is more than routed."""
    if b"transaction" in head.headers:
        held = HeldSend(session, head, body, plan, offered)
        transaction_of(session, head).send(
            len(body) + len(plan.traits.block),
            held.address,
            held.go,
            durable=plan.traits.durable,
            ask=held.ask,
            claim=held.claim if DUPLICATE_ID in (plan.head or head).headers else None,
            cancel=None if offered is None else offered.refused,
        )
        session.receipt(head)
        return
    address = plan.address
    if plan.identifier is not None and is_known(address, plan.identifier):
        count_duplicate(address, plan.identifier)
        if offered is not None:
            offered.refused("its _AMQ_DUPL_ID was sent before")
    elif (hindered := obstacle(address, plan.traits.durable, plan.offer, body)) is not None:
        _keep_out(session, hindered, head, body, plan, offered)
    else:
        put(session, plan, body)
        if offered is not None:
            offered.entered()
    session.receipt(head, plan.traits.durable)


def _keep_out(
    session: Session, hindered: Obstacle, head: Head, body: bytes, plan: SendPlan, offered: OfferedSend | None
) -> None:
    """A message may not enter: its producer waits or fails (which is raised), or it is dropped."""
    if offered is None and plan.admit is not None:
        offered = OfferedSend(session, head, body, plan, None)  # its policies have let it pass
    if hindered.policy is FullPolicy.BLOCK:
        session.messages_in -= 1
        raise Blocked(hindered.address, hindered.room, offered=offered)
    if offered is not None:
        offered.refused(hindered.describe())
    if hindered.policy is FullPolicy.FAIL:
        raise Refused(hindered.describe())
    drop(hindered)


def put(session: Session, plan: SendPlan, body: bytes) -> None:
    """Route a message that was admitted, and remember the id by which its address knows duplicates, if it has one."""
    address, identifier = plan.address, plan.identifier
    if identifier is None:
        _route(session, plan, body)
    elif lasts(address, plan.traits.durable):
        paging = session.broker.paging
        if paging is not None and paging.gathered:
            paging.write_gathered()  # what came before is no part of what follows
        storage = session.broker.storage
        storage.begin(len(body) + len(plan.traits.block) + len(identifier))
        try:
            _route(session, plan, body)
            remember(address, identifier, lasting=True)
        finally:
            storage.commit()
    else:
        _route(session, plan, body)
        remember(address, identifier, lasting=False)


def _route(session: Session, plan: SendPlan, body: bytes) -> None:
    """At once, at its time, or into the one queue it names."""
    address, traits, broker = plan.address, plan.traits, session.broker
    now = broker.clock.now
    expires = lifetime(address.settings, now, traits.lifetime_end)
    message = Message(session.next_message_number(), address, traits, body, now, expires)
    timing = plan.timing
    due, recurrence = (0, None) if timing is None else (timing.due_at(now), timing.new_recurrence())
    if due and timing is not None and timing.is_delay:
        due = broker.clock.from_now(due - now)
    if plan.queue is not None:
        broker.send_to_queue(plan.queue, message, due, recurrence)
    else:
        broker.send(message, due, recurrence)


class HeldSend:
    """A SEND that waits for the COMMIT of its transaction. The policies of its address have admitted it already.

    ``offered`` is given where there are such policies.
    """

    __slots__ = ("_body", "_head", "_hindered", "_offered", "_plan", "_session")

    def __init__(
        self, session: Session, head: Head, body: bytes, plan: SendPlan, offered: OfferedSend | None = None
    ) -> None:
        self._session = session
        self._offered = offered
        self._head = head
        self._body = body
        self._plan = plan
        self._hindered: Obstacle | None = None  # what was answered to `ask`

    def address(self) -> Address:
        """Where it goes now, which may have changed since. Raises `Refused` where it cannot be sent any more."""
        plan = self._plan
        if plan.stamp != plan.address.stamp:
            session = self._session
            if plan.head is None:
                plan = plan_anew(session, self._head)
            else:
                plan_anew(session, self._head)  # it must still be allowed to send where it was sent
                plan = derive(session, plan.head, plan.target)
            self._plan = plan
        return plan.address

    def claim(self) -> tuple[Address, bytes | None]:
        """Where it goes, and the id by which duplicates are known there."""
        return self.address(), self._plan.identifier

    def ask(self) -> Obstacle | None:
        """What stands in its way, where a policy says so of each message."""
        address, plan = self.address(), self._plan
        if address.hooks.full is None:
            return None
        self._hindered = obstacle(address, plan.traits.durable, plan.offer, self._body)
        return self._hindered

    def go(self) -> None:
        """It happens: at a COMMIT, which nothing has to wait for any more."""
        address, plan = self.address(), self._plan
        hindered = self._hindered
        if address.hooks.full is None:
            hindered = obstacle(address, plan.traits.durable)
        if hindered is not None and hindered.policy is FullPolicy.DROP:
            if self._offered is not None:
                self._offered.refused(hindered.describe())
            drop(hindered)
        elif plan.identifier is not None and is_known(address, plan.identifier):
            count_duplicate(
                address, plan.identifier
            )  # while the commit was under way another one has sent it
        else:
            put(self._session, plan, self._body)
            if self._offered is not None:
                self._offered.entered()
