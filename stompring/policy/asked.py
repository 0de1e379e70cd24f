"""The hooks that are asked: several policies' as one call that the broker can carry out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import NamedTuple

from stompring.broker.address import Address
from stompring.broker.hooks import FAULTS, NOT_EVALUATED, FullAnswer, Hooks, Ruling, Subscriber
from stompring.broker.message import MESSAGE_OVERHEAD, Message
from stompring.broker.offer import Offer
from stompring.broker.reference import Reference
from stompring.errors import Refused
from stompring.settings.model import FullPolicy

from .address_policy import AddressPolicy
from .bound_policy import BoundPolicy
from .built_in import Ring
from .queue_view import QueueView
from .verdict import ACCEPT, DROP, DROP_OLDEST, ChangeHeaders, Redirect, Refuse, Wait, Word

Full = Callable[[Offer], FullAnswer]

DROPPED = Ruling(drop=True)


class _Step(NamedTuple):
    """A policy that is asked about a message, or notified of what became of it."""

    bound: BoundPolicy
    admit: Callable[[Offer], object]
    entered: bool  # whether it has the hook
    refused: bool


class _Answered(NamedTuple):
    """The first of several policies that has answered more than None, or raised."""

    place: int
    answer: object


def admit_of(policies: Sequence[BoundPolicy], hooks: Hooks) -> None:
    """`AddressPolicy.admit`, `entered` and `refused` of all that have them. One policy is asked without a detour."""
    steps = [
        _Step(bound, bound.admit, bound.has("entered"), bound.has("refused"))
        for bound in policies
        if bound.has("admit") or bound.has("entered") or bound.has("refused")
    ]
    if not steps:
        return
    hooks.reports_entered = any(step.entered for step in steps)
    hooks.reports_refused = any(step.refused for step in steps)
    if len(steps) > 1:
        hooks.admit = _admit_of_several(steps)
    else:
        bound = steps[0].bound
        hooks.admit = steps[0].admit
        hooks.slow_admit = lambda seconds: bound.slow("admit", seconds)
    hooks.admission = partial(MessageAdmission, steps)


def _admit_of_several(steps: Sequence[_Step]) -> Callable[[Offer], _Answered | None]:
    calls = [(step.admit, step.bound.timed) for step in steps]

    def admit(offer: Offer) -> _Answered | None:
        for place, (call, timed) in enumerate(calls):
            began = perf_counter()
            try:
                answer = call(offer)
            except FAULTS as error:
                answer = error
            timed("admit", began)
            if answer is not None:
                return _Answered(place, answer)
        return None

    return admit


class MessageAdmission:
    """See `stompring.broker.hooks.Admission`. ``answer`` is that of the address's ``Hooks.admit``."""

    __slots__ = ("_answer", "_changes", "_passed", "_steps")

    def __init__(self, steps: Sequence[_Step], answer: object) -> None:
        self._steps = steps
        self._passed = 0  # how many have let it pass, from the first one on
        self._changes: dict[bytes, bytes | None] = {}
        self._answer = answer
        if answer is None:
            self._passed = len(steps)
        elif isinstance(answer, _Answered):
            self._passed, self._answer = answer

    def evaluate(self, offer: Offer) -> Ruling | None:
        """See `Admission.evaluate`."""
        if self._changes:  # after a wait
            offer = offer.changed(self._changes)
        if len(self._steps) == 1:
            return self._evaluate_one(offer)
        while self._passed < len(self._steps):
            bound = self._steps[self._passed].bound
            answer = self._asked(offer)
            if answer is ACCEPT:
                self._passed += 1
                break
            ruling = None if answer is None else _ruling(bound, answer)
            if ruling is not None:
                if ruling.drop or ruling.wait:
                    return ruling
                if ruling.headers:
                    self._changes |= ruling.headers
                    if ruling.address is None and self._passed + 1 < len(self._steps):
                        offer = offer.changed(
                            ruling.headers
                        )  # the next one sees what this one has made of it
            self._passed += 1
            if ruling is not None and ruling.address is not None:
                return Ruling(address=ruling.address, headers=self._changes or None)
        return Ruling(headers=self._changes) if self._changes else None

    def _evaluate_one(self, offer: Offer) -> Ruling | None:
        """The usual case, as quickly as can be."""
        answer = self._asked(offer)
        if answer is None or answer is ACCEPT:
            self._passed = 1
            return None
        ruling = _ruling(self._steps[0].bound, answer)
        if not (ruling.drop or ruling.wait):
            self._passed = 1
        return ruling

    def _asked(self, offer: Offer) -> object:
        answer, self._answer = self._answer, NOT_EVALUATED
        if answer is not NOT_EVALUATED:
            return answer
        step = self._steps[self._passed]
        began = perf_counter()
        try:
            return step.admit(offer)
        except FAULTS as error:
            return error
        finally:
            step.bound.timed("admit", began)

    def entered(self, offer: Offer) -> None:
        """See `Admission.entered`."""
        for step in self._steps[: self._passed]:
            if step.entered:
                step.bound.call("entered", offer)

    def refused(self, offer: Offer, reason: str) -> None:
        """See `Admission.refused`."""
        for step in self._steps[: self._passed]:
            if step.refused:
                step.bound.call("refused", offer, reason)


class _Broken:
    """The admission to an address where nobody may send."""

    def __init__(self, reason: Refused) -> None:
        self._reason = reason

    def evaluate(self, offer: Offer) -> Ruling | None:
        """Never."""
        reason = self._reason
        raise Refused(str(reason))

    def entered(self, offer: Offer) -> None:
        """No policy of it works."""

    def refused(self, offer: Offer, reason: str) -> None:
        """No policy of it works."""


def _ruling(bound: BoundPolicy, verdict: object) -> Ruling:
    """What the broker is to do. Raises `Refused`."""
    if isinstance(verdict, FAULTS):
        raise bound.failed("admit", verdict) from verdict
    if verdict is DROP:
        return DROPPED
    if isinstance(verdict, Refuse):
        raise bound.refused(verdict)
    try:
        if isinstance(verdict, Wait):
            return Ruling(wait=max(1, int(verdict.milliseconds)))
        if isinstance(verdict, ChangeHeaders):
            return Ruling(False, 0, None, bound.changes(verdict.headers))
        if isinstance(verdict, Redirect) and isinstance(verdict.address, str) and verdict.address:
            headers = bound.changes(verdict.headers) if verdict.headers else None
            return Ruling(False, 0, verdict.address, headers)
    except (TypeError, ValueError, AttributeError) as error:
        raise bound.failed("admit", error) from error
    raise bound.wrong("admit", verdict)


def constant(policy: AddressPolicy) -> FullPolicy:
    """What a policy always does when its address is full."""
    assert policy.full_answer is not None
    return FullPolicy(policy.full_answer.value)


def full_of(
    policies: Sequence[BoundPolicy], built_in: AddressPolicy, address: Address
) -> tuple[FullPolicy | None, Full | None]:
    """What a full address does: always the same, or to be asked (`AddressPolicy.full`)."""
    asked, last = [], constant(built_in)
    for bound in policies:
        if bound.has("full") or bound.policy.full_answer in (ACCEPT, DROP_OLDEST):
            asked.append(bound)
        elif bound.policy.full_answer is not None:
            last = constant(bound.policy)  # what comes after it is never asked
            break
    if not asked:
        return last, None
    calls = [(bound, bound.policy.full) for bound in asked]

    def full(offer: Offer) -> FullAnswer:
        for bound, call in calls:
            began = perf_counter()
            try:
                verdict = call(offer)
            except FAULTS as error:
                return bound.failed("full", error)
            finally:
                bound.timed("full", began)
            if verdict is not None:
                return _full_answer(bound, verdict, offer, address)
        return last

    return None, full


def _full_answer(bound: BoundPolicy, verdict: object, offer: Offer, address: Address) -> FullAnswer:
    if isinstance(verdict, Refuse):
        return bound.refused(verdict)
    if verdict is ACCEPT:
        return None
    if verdict is DROP_OLDEST:
        return None if _drop_oldest(address, offer.size + MESSAGE_OVERHEAD) else FullPolicy.DROP
    if isinstance(verdict, Word):
        return FullPolicy(verdict.value)
    return bound.wrong("full", verdict)


def _drop_oldest(address: Address, size: int) -> bool:
    """Give up what waits longest until there is room, or as much was given up as comes; False where nothing can be.

    A message in several queues is given up by all of them at once, where it is the oldest of each: else nothing would
    become free, as also where one of them has given it to a consumer.
    """
    wanted = address.room.bytes - size
    dropped = False
    while address.full is not None and (not dropped or address.room.bytes > wanted):
        heads: dict[Message, list[Reference]] = {}
        for queue in address.queues.values():
            head = queue.first()
            if head is not None:
                heads.setdefault(head.message, []).append(head)
        free = [message for message, refs in heads.items() if message.holders == len(refs)]
        if not free:
            return dropped
        for ref in heads[min(free, key=attrgetter("number"))]:
            ref.queue.give_up(ref)
        dropped = True
    return True


def overflow_of(policies: Sequence[BoundPolicy], ring: Ring) -> Callable[[QueueView, bool], None]:
    """`AddressPolicy.overflow` of all that have it, in turn until there is room; the ring itself comes last."""
    calls = [(bound, bound.policy.overflow) for bound in policies if bound.has("overflow")]
    if not calls:
        return ring.overflow

    def overflow(queue: QueueView, returning: bool) -> None:
        for bound, call in calls:
            bound.run("overflow", call, queue, returning)
            if queue.has_room(returning):
                return
        ring.overflow(queue, returning)

    return overflow


def subscribed_of(policies: Sequence[BoundPolicy]) -> Callable[[Subscriber], None] | None:
    """`AddressPolicy.subscribed` of all that have it; raises `Refused`."""
    calls = [(bound, bound.policy.subscribed) for bound in policies if bound.has("subscribed")]
    if not calls:
        return None

    def subscribed(subscriber: Subscriber) -> None:
        for bound, call in calls:
            began = perf_counter()
            try:
                verdict = call(subscriber)
            except FAULTS as error:
                raise bound.failed("subscribed", error) from error
            finally:
                bound.timed("subscribed", began)
            if isinstance(verdict, Refuse):
                raise bound.refused(verdict)
            if verdict is not None:
                raise bound.wrong("subscribed", verdict)

    return subscribed


def refuse_all(hooks: Hooks, reason: Refused) -> None:
    """One of the policies of an address could not begin: nobody may send there or subscribe."""

    def refuse(what: object) -> None:
        raise Refused(str(reason))

    hooks.admit = hooks.subscribed = refuse
    hooks.admission = lambda answer: _Broken(reason)
    hooks.reports_entered = hooks.reports_refused = False
