"""The hooks that are asked: several policies' as one call that the broker can carry out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from stompring.broker.address import Address
from stompring.broker.hooks import FAULTS, FullAnswer, Hooks, Ruling, Subscriber
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

Admit = Callable[[Offer], object]
Judge = Callable[[object], Ruling | None]
Full = Callable[[Offer], FullAnswer]

DROPPED = Ruling(drop=True)


def admit_of(policies: Sequence[BoundPolicy]) -> tuple[Admit | None, Judge]:
    """`AddressPolicy.admit` of all that have it, and what their answers mean. One policy is asked without a detour."""
    asked = [bound for bound in policies if bound.has("admit")]
    if not asked:
        return None, _already_judged
    if len(asked) > 1:
        return _admit_of_several(asked), _already_judged
    bound = asked[0]

    def judge(answer: object) -> Ruling | None:
        if isinstance(answer, FAULTS):
            raise bound.failed("admit", answer) from answer
        return _ruling(bound, answer)

    return bound.policy.admit, judge


def _already_judged(answer: object) -> Ruling | None:
    if isinstance(answer, FAULTS):
        raise answer
    assert answer is None or isinstance(answer, Ruling)
    return answer


def _admit_of_several(policies: Sequence[BoundPolicy]) -> Admit:
    calls = [(bound, bound.policy.admit) for bound in policies]

    def admit(offer: Offer) -> Ruling | None:
        changes: dict[bytes, bytes | None] = {}
        for bound, call in calls:
            try:
                verdict = call(offer)
            except FAULTS as error:
                raise bound.failed("admit", error) from error
            if verdict is None:
                continue
            ruling = _ruling(bound, verdict)
            if ruling is None:
                break
            if ruling.headers is None:
                return ruling._replace(headers=changes) if ruling.address and changes else ruling
            changes |= ruling.headers
            offer = offer.changed(ruling.headers)  # the next one sees what this one has made of it
        return Ruling(headers=changes) if changes else None

    return admit


def _ruling(bound: BoundPolicy, verdict: object) -> Ruling | None:
    """What the broker is to do. Raises `Refused`."""
    if verdict is ACCEPT:
        return None
    if verdict is DROP:
        return DROPPED
    if isinstance(verdict, Refuse):
        raise bound.refused(verdict)
    if isinstance(verdict, Wait):
        return Ruling(wait=max(1, int(verdict.milliseconds)))
    if isinstance(verdict, Redirect) and isinstance(verdict.address, str) and verdict.address:
        return Ruling(address=verdict.address)
    if isinstance(verdict, ChangeHeaders):
        try:
            return Ruling(headers=bound.changes(verdict))
        except (TypeError, ValueError) as error:
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
            try:
                verdict = call(offer)
            except FAULTS as error:
                return bound.failed("full", error)
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
            try:
                call(queue, returning)
            except FAULTS as error:
                bound.failed("overflow", error)
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
            try:
                verdict = call(subscriber)
            except FAULTS as error:
                raise bound.failed("subscribed", error) from error
            if isinstance(verdict, Refuse):
                raise bound.refused(verdict)
            if verdict is not None:
                raise bound.wrong("subscribed", verdict)

    return subscribed


def refuse_all(hooks: Hooks, reason: Refused) -> None:
    """One of the policies of an address could not begin: nobody may send there or subscribe."""

    def refuse(what: object) -> None:
        raise Refused(str(reason))

    hooks.admit, hooks.judge, hooks.subscribed = refuse, _already_judged, refuse
