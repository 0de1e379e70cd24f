"""What the policies of an address make of a SEND before it may enter, and what they hear of it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompring.broker.hooks import NOT_EVALUATED
from stompring.errors import Refused
from stompring.stomp.frames import Head

from .blocked import Blocked
from .send_plan import SendPlan, derive, plan_anew

if TYPE_CHECKING:
    from stompring.broker.hooks import Admission, AdmissionResult, Hooks

    from .session import Session


class OfferedSend:
    """A SEND from the first policy that is asked about it until it has entered an address or was refused.

    It may wait in between, for a while or for room: what was decided stays decided. ``answer`` is that of the hooks of
    its address (`Hooks.admit`): None where they all have let it pass, `NOT_EVALUATED` where they were not asked yet.
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

        The policies of an address that it is redirected to are asked as well. Raises `Refused`, or `Blocked` for a
        message that must wait for a while.
        """
        if self.plan.stamp != self.plan.address.stamp:
            self._renew()
        while not self._decided:
            ruling = self._evaluate()
            if ruling is None:
                break
            if ruling.drop:
                self.plan.address.dropped_messages += 1
                self.refused("dropped by a policy")
                return False
            if ruling.wait:
                raise Blocked(self.plan.address, None, ruling.wait, self)
            came_from = self.plan.address.name
            self.plan = plan = _derived(self._session, self.plan, self.head, ruling)
            self._offer = plan.offer
            if ruling.address is None:
                break
            if self._passed is None:
                self._passed = [came_from]
            if ruling.address in self._passed:
                raise Refused(f"Policies redirect in a loop: {' to '.join([*self._passed, ruling.address])}")
            self._passed.append(ruling.address)
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

        Where a reload has given the address other policies before these had all decided, those are asked instead.
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

    # ---- what became of it

    def entered(self) -> None:
        """Notify the policies that have let it pass."""
        admissions, self._admissions = self._admissions, []
        offer = self._offer
        offer.body = self.body
        for admission in admissions:
            admission.entered(offer)
        offer.body = b""

    def refused(self, reason: str) -> None:
        """Notify the policies that have let it pass that it was in vain. Only the first call counts."""
        admissions, self._admissions = self._admissions, []
        offer = self._offer
        offer.body = self.body
        for admission in admissions:
            admission.refused(offer, reason)
        offer.body = b""


def _derived(session: Session, plan: SendPlan, head: Head, ruling: AdmissionResult) -> SendPlan:
    """The plan that a ruling makes of another one. One that is like the last one is not made again."""
    if plan.derived is not None:
        before, derived = plan.derived
        if before == ruling and derived.stamp == derived.address.stamp:
            return derived
    base = plan.head or head.base or head
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
