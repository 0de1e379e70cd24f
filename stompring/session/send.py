"""SEND (STOMP 1.2, "SEND"): from a frame to `publish`, by way of the policies of its address or of a transaction."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from stompring.broker import admission
from stompring.broker.address import Address
from stompring.broker.admission import Rejection
from stompring.broker.policy_hooks import HOOK_EXCEPTIONS, NOT_EVALUATED, SLOW_HOOK
from stompring.broker.publish import publish, publish_committed
from stompring.errors import Refused
from stompring.settings.model import FullPolicy
from stompring.stomp.frames import Head

from .backpressure import Blocked
from .send_plan import DUPLICATE_ID, ENTERED, SendPlan, derive, plan_anew
from .transact import transaction_of

if TYPE_CHECKING:
    from stompring.broker.policy_hooks import Admission, AdmissionResult, Hooks

    from .session import Session


def on_SEND(session: Session, head: Head, body: bytes) -> None:
    """Send a message. Raises `Blocked` while its address is full and BLOCK is its policy."""
    base = head.base
    plan: SendPlan | None = head.plan if base is None else base.plan
    if plan is None or plan.stamp != plan.address.stamp:
        plan = plan_anew(session, head)
    session.messages_in += 1
    if plan.admit is not None:
        reports = plan.reports
        if reports == ENTERED:
            _send_evaluated(session, SendEvaluation(session, head, body, plan))
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
        if answer is not None or (reports and not (plan.plain and base is None)):
            _send_evaluated(session, SendEvaluation(session, head, body, plan, answer))
            return
    if plan.transactional:
        _send_in_transaction(session, head, body, plan, None)
        return
    rejection = publish(session.broker, plan, body)
    if rejection is not None:
        evaluation = None if plan.admit is None else SendEvaluation(session, head, body, plan, None)
        _reject(session, rejection, evaluation)
    if base is not None or plan.receipt:
        session.receipt(head, plan.traits.durable)


def resume_SEND(session: Session, evaluation: SendEvaluation) -> None:
    """Continue with a message that had to wait. Policies that have decided are not called again. See `on_SEND`."""
    session.messages_in += 1
    _send_evaluated(session, evaluation)


def _send_evaluated(session: Session, evaluation: SendEvaluation) -> None:
    """Evaluate the policies that have not decided yet, send the message, and notify them of the outcome."""
    head = evaluation.head
    try:
        if not evaluation.decide():
            session.receipt(head)
            return
    except Blocked:
        session.messages_in -= 1
        raise
    except Exception as error:
        evaluation.refused(str(error))
        raise
    try:
        plan, body = evaluation.plan, evaluation.body
        if b"transaction" in head.headers:
            _send_in_transaction(session, head, body, plan, evaluation)
            return
        rejection = publish(session.broker, plan, body)
        if rejection is None:
            evaluation.entered()
        else:
            _reject(session, rejection, evaluation)
        session.receipt(head, plan.traits.durable)
    except Blocked:
        raise
    except Exception as error:
        evaluation.refused(str(error))
        raise


def _reject(session: Session, rejection: Rejection, evaluation: SendEvaluation | None) -> None:
    """A message was not routed: its producer waits or fails (which is raised), or it was dropped."""
    if rejection.policy is FullPolicy.BLOCK:
        session.messages_in -= 1
        raise Blocked(rejection.address, rejection.limit, offered=evaluation)
    if evaluation is not None:
        evaluation.refused(rejection.describe())
    if rejection.policy is FullPolicy.FAIL:
        raise Refused(rejection.describe())


def _send_in_transaction(
    session: Session, head: Head, body: bytes, plan: SendPlan, evaluation: SendEvaluation | None
) -> None:
    """Add a message to its transaction."""
    deferred = DeferredSend(session, head, body, plan, evaluation)
    transaction_of(session, head).send(
        len(body) + len(plan.traits.block),
        deferred.address,
        deferred.publish,
        durable=plan.traits.durable,
        ask=deferred.rejection,
        claim=deferred.claim if DUPLICATE_ID in (plan.head or head).headers else None,
        cancel=None if evaluation is None else evaluation.refused,
    )
    session.receipt(head)


class DeferredSend:
    """A SEND that waits for the COMMIT of its transaction. The policies of its address have admitted it already.

    ``evaluation`` is given where there are such policies.
    """

    __slots__ = ("_body", "_evaluation", "_head", "_plan", "_rejection", "_session")

    def __init__(
        self, session: Session, head: Head, body: bytes, plan: SendPlan, evaluation: SendEvaluation | None
    ) -> None:
        self._session = session
        self._evaluation = evaluation
        self._head = head
        self._body = body
        self._plan = plan
        self._rejection: Rejection | None = None  # what `rejection` has answered

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

    def rejection(self) -> Rejection | None:
        """Why it may not enter, where a policy decides about each message."""
        address, plan = self.address(), self._plan
        if address.hooks.full is None:
            return None
        self._rejection = admission.check(address, plan.traits.durable, plan.offer, self._body)
        return self._rejection

    def publish(self) -> None:
        """At the COMMIT, which nothing has to wait for any more."""
        self.address()
        rejection = publish_committed(self._session.broker, self._plan, self._body, self._rejection)
        if self._evaluation is None:
            return
        if rejection is None:
            self._evaluation.entered()
        else:
            self._evaluation.refused(rejection.describe())


class SendEvaluation:
    """A SEND from the first policy that evaluates it until it has entered an address or was refused.

    It may wait in between, for a while or for memory: what was decided stays decided. ``answer`` is that of the hooks
    of its address (`Hooks.admit`): None where all have passed it, `NOT_EVALUATED` where they were not called.
    """

    __slots__ = ("_admissions", "_decided", "_hooks", "_offer", "_passed", "_session", "body", "head", "plan")

    def __init__(
        self, session: Session, head: Head, body: bytes, plan: SendPlan, answer: object = NOT_EVALUATED
    ) -> None:
        self._session = session
        self.head = head
        self.body = body
        self._begin(plan, answer)

    def _begin(self, plan: SendPlan, answer: object) -> None:
        self.plan = plan
        self._offer = plan.offer
        self._hooks: Hooks = plan.address.hooks
        self._admissions: list[Admission] = []  # one for each address that it came to
        if plan.admit is not None:
            self._admissions.append(self._hooks.admission(answer))
        self._passed: list[str] | None = None  # addresses that it was redirected from
        self._decided = answer is None or plan.admit is None

    def decide(self) -> bool:
        """Whether it may enter, where ``plan`` says; False where a policy has dropped it.

        The policies of an address that it is redirected to are evaluated as well. Raises `Refused`, or `Blocked` for a
        message that must wait for a while.
        """
        if self.plan.stamp != self.plan.address.stamp:
            self._renew()
        while not self._decided:
            result = self._evaluate()
            if result is None:
                break
            if result.drop:
                self.plan.address.dropped_messages += 1
                self.refused("dropped by a policy")
                return False
            if result.wait:
                raise Blocked(self.plan.address, None, result.wait, self)
            came_from = self.plan.address.name
            self.plan = plan = _derived(self._session, self.plan, self.head, result)
            self._offer = plan.offer
            if result.address is None:
                break
            if self._passed is None:
                self._passed = [came_from]
            if result.address in self._passed:
                raise Refused(f"Policies redirect in a loop: {' to '.join([*self._passed, result.address])}")
            self._passed.append(result.address)
            self._hooks = plan.address.hooks
            if plan.admit is None:
                break
            self._admissions.append(self._hooks.admission(NOT_EVALUATED))
        self._decided = True
        return True

    def _evaluate(self) -> AdmissionResult | None:
        offer = self._offer
        offer.body = self.body
        try:
            return self._admissions[-1].evaluate(offer)
        finally:
            offer.body = b""  # it may be large, and the plan lasts as long as the connection

    def _renew(self) -> None:
        """Time has gone by: plan anew where the address has changed. Raises `Refused` where it cannot be sent now.

        Where a reload has given the address other policies before these had all decided, those are called instead.
        """
        plan, session = self.plan, self._session
        anew = plan_anew(session, self.head)  # it must still be allowed to send where it was sent
        if not self._decided:
            address = session.broker.directory.addresses.get(plan.address.name)
            if address is None or address.hooks is not self._hooks:
                self.refused("the policies of the address have changed")
                self._begin(anew, NOT_EVALUATED)
                return
        self.plan = anew if plan.head is None else derive(session, plan.head, plan.target)

    # ---- the outcome

    def entered(self) -> None:
        """Notify the policies that have let it pass."""
        admissions, self._admissions = self._admissions, []
        offer = self._offer
        offer.body = self.body
        for one in admissions:
            one.entered(offer)
        offer.body = b""

    def refused(self, reason: str) -> None:
        """Notify the policies that have let it pass that it was in vain. Only the first call counts."""
        admissions, self._admissions = self._admissions, []
        offer = self._offer
        offer.body = self.body
        for one in admissions:
            one.refused(offer, reason)
        offer.body = b""


def _derived(session: Session, plan: SendPlan, head: Head, result: AdmissionResult) -> SendPlan:
    """The plan that an admission result makes of another one; the latest one is cached."""
    if plan.derived is not None:
        before, derived = plan.derived
        if before == result and derived.stamp == derived.address.stamp:
            return derived
    base = plan.head or head.base or head
    headers = dict(base.headers)
    for name, value in (result.headers or {}).items():
        if value is None:
            headers.pop(name, None)
        else:
            headers[name] = value
    changed = Head(head.command, headers, head.content_length)
    target = plan.target if result.address is None else result.address
    derived = derive(session, changed, target)
    plan.derived = (result, derived)
    return derived
