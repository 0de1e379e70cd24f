"""The hooks of each address (`stompring.broker.ports`), composed from the policies that are bound to it.

`BoundPolicy` calls the hooks of one policy for one address, measures them, and logs and counts their exceptions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import attrgetter
from time import monotonic, perf_counter, time_ns
from traceback import extract_tb
from typing import ClassVar, NamedTuple

from stompring.broker.address import Address
from stompring.broker.message import (
    EVICTED,
    MESSAGE_OVERHEAD,
    NO_CHANGES,
    HeaderChanges,
    Message,
    sent_headers,
)
from stompring.broker.ports import (
    HOOK_EXCEPTIONS,
    NOT_EVALUATED,
    SLOW_HOOK,
    AdmissionResult,
    FullAnswer,
    Hooks,
    Listener,
    Offer,
    Subscriber,
    both,
)
from stompring.broker.publish import send_dead_letter
from stompring.broker.queue import Queue, as_queue
from stompring.broker.reference import Reference
from stompring.errors import Refused
from stompring.settings.model import FullPolicy, PolicyUse, RingPolicy

from .api import ACCEPT, DROP, DROP_OLDEST, AddressPolicy, ChangeHeaders, Redirect, Refuse, Wait, Word
from .load import Plugins, Ring, SelectedPlugin
from .views import AddressView, MessageView, QueueView, view_of

log = logging.getLogger(__name__)

#: Maximum number of different exceptions that the broker remembers as logged. Above it, the broker forgets all of them,
#: and logs the next ones again.
MAX_LOGGED_ERRORS = 1000

#: Maximum number of characters of an exception's text for management.
MAX_ERROR_TEXT = 300

#: Seconds between two log lines about the same slow hook.
SLOW_LOG_INTERVAL = 10.0


class ErrorEntry(NamedTuple):
    """The last exception of a policy. ``time`` is in ms since the epoch."""

    time: int
    address: str
    hook: str
    text: str


class PolicyErrors:
    """Exceptions and slow calls of all policies of one broker. Each is counted, and each cause is logged once."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # exceptions by policy and hook
        #: called once for each cause, with the text of the exception and the address
        self.on_error: Callable[[str, str], object] | None = None
        self._logged: set[tuple[object, ...]] = set()
        self.last: dict[str, ErrorEntry] = {}  # last exception by policy
        self.slow: Counter[tuple[str, str]] = Counter()  # calls longer than `SLOW_HOOK`, by policy and hook
        self.longest: dict[tuple[str, str], float] = {}  # seconds of the longest slow call
        # by policy and hook: time before which no slow call is logged, and number of slow calls at the last log line
        self._log_after: dict[tuple[str, str], tuple[float, int]] = {}

    def slow_hook(self, policy: str, address: str, hook: str, seconds: float) -> None:
        """Count a hook that blocked the reactor, and log it once in `SLOW_LOG_INTERVAL` for each policy and hook."""
        key = (policy, hook)
        self.slow[key] += 1
        count = self.slow[key]
        self.longest[key] = max(seconds, self.longest.get(key, 0.0))
        now = monotonic()
        until, logged = self._log_after.get(key, (0.0, 0))
        if now < until:
            return
        self._log_after[key] = (now + SLOW_LOG_INTERVAL, count)
        more = f"; {count - logged - 1} more since the last log line" if count - logged > 1 else ""
        log.warning(
            "policy %s of address %s: %s blocked the broker for %.0f ms (limit %.0f ms)%s",
            policy,
            address,
            hook,
            seconds * 1000,
            SLOW_HOOK * 1000,
            more,
            extra={"address": address, "policy": policy, "hook": hook},
        )

    def record(self, policy: str, address: str, hook: str, error: BaseException, location: str) -> Refused:
        """Count and log an exception of a hook. ``location`` is FILE:LINE of broker.xml where the policy is named.

        Returns the error for the client whose operation is refused, if there is one.
        """
        key = (policy, hook)
        self.counts[key] += 1
        frames = extract_tb(error.__traceback__)
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]
        self.last[policy] = ErrorEntry(time_ns() // 1_000_000, address, hook, text)
        where = (frames[-1].filename, frames[-1].lineno) if frames else ()
        fault = (policy, hook, type(error), where)
        if fault not in self._logged:
            if len(self._logged) >= MAX_LOGGED_ERRORS:
                self._logged.clear()
            self._logged.add(fault)
            if self.on_error is not None:
                self.on_error(
                    f"policy {policy} of address {address} failed in {hook}: {type(error).__name__}", address
                )
            log.error(
                "%s: policy %s of address %s failed in %s (logged once; counted in stompring_policy_errors_total)",
                location,
                policy,
                address,
                hook,
                exc_info=error,
                extra={"address": address, "policy": policy, "hook": hook},
            )
        return Refused(f"Policy {policy} of address {address} failed in {hook}: see the broker's log")


#: Headers that `ChangeHeaders` must not change, with the reason.
IMMUTABLE_HEADERS = {
    "destination": "use Redirect",
    "receipt": "it is a header of the frame",
    "transaction": "it is a header of the frame",
    "content-length": "it is a header of the frame",
}


class BoundPolicy:
    """The object of a policy for one address. ``start_error``: the error if the policy could not start, else None."""

    #: Class of the object that the policy gets as ``AddressPolicy.address``.
    view: ClassVar[type[AddressView]] = AddressView

    def __init__(self, selected: SelectedPlugin, address: Address, errors: PolicyErrors) -> None:
        self.selected = selected
        self.start_error: Refused | None = None
        self._errors = errors
        self._address = address.name
        self.policy = selected.make()
        self.policy.address = self.view(address, selected.name, partial(self.run, "timer"))

    @property
    def name(self) -> str:
        """Name of the policy in broker.xml."""
        return self.selected.name

    def start(self, former: BoundPolicy | None) -> None:
        """Call `AddressPolicy.created`, and `AddressPolicy.replaces` if there is a ``former`` object."""
        try:
            self.policy.created()
        except HOOK_EXCEPTIONS as error:
            self.start_error = self.failed("created", error)
            if isinstance(error, ValueError):  # the text of a ValueError is for clients, as in `check`
                self.start_error = Refused(
                    f"Policy {self.name} of address {self._address} cannot start: {error}"
                )
            return
        if former is not None:
            self.call("replaces", former.policy)

    def stop(self) -> None:
        """Call `AddressPolicy.closed`, and cancel its timers."""
        self.call("closed")
        self.policy.address.stop()

    def call(self, hook: str, *arguments: object) -> None:
        """Call a hook without a verdict; log and count an exception."""
        self.run(hook, getattr(self.policy, hook), *arguments)

    def run(self, hook: str, call: Callable[..., object], *arguments: object) -> None:
        """Call ``call`` as the hook ``hook``, without a verdict; log and count an exception."""
        began = perf_counter()
        try:
            call(*arguments)
        except HOOK_EXCEPTIONS as error:
            self.failed(hook, error)
        self.timed(hook, began)

    def ask(self, hook: str, call: Callable[..., object], argument: object) -> object:
        """Call a hook. Return its verdict, or the exception that it raised."""
        began = perf_counter()
        try:
            verdict = call(argument)
        except HOOK_EXCEPTIONS as error:
            verdict = error
        self.timed(hook, began)
        return verdict

    def timed(self, hook: str, began: float) -> None:
        """Record a call as slow if it took longer than `SLOW_HOOK`. ``began``: `perf_counter` before the call."""
        seconds = perf_counter() - began
        if seconds > SLOW_HOOK:
            self.slow(hook, seconds)

    def slow(self, hook: str, seconds: float) -> None:
        """Record a call longer than `SLOW_HOOK`."""
        self._errors.slow_hook(self.name, self._address, hook, seconds)

    @property
    def admit(self) -> Callable[[Offer], object]:
        """The method `AddressPolicy.admit` of the policy."""
        return self.policy.admit

    def has(self, hook: str) -> bool:
        """Whether the policy overrides a hook."""
        return getattr(type(self.policy), hook) is not getattr(AddressPolicy, hook)

    # ---- verdicts

    def failed(self, hook: str, error: BaseException) -> Refused:
        """Record an exception of a hook. Returns the error for the client."""
        return self._errors.record(self.name, self._address, hook, error, self.selected.location)

    def refused(self, verdict: Refuse) -> Refused:
        """Return the error that the client gets for a verdict `Refuse`."""
        return Refused(f"{verdict.reason} (policy {self.name} of address {self._address})")

    def wrong(self, hook: str, answer: object) -> Refused:
        """Record a result that is not a verdict of the hook. Returns the error for the client."""
        return self.failed(hook, TypeError(f"{answer!r} is not a verdict of {hook}"))

    def changes(self, headers: Mapping[str, str | None]) -> Mapping[bytes, bytes | None]:
        """Return the headers of a verdict as bytes. Raises `TypeError` or `ValueError` for invalid headers."""
        changes: dict[bytes, bytes | None] = {}
        for name, value in headers.items():
            if name in IMMUTABLE_HEADERS:
                raise ValueError(f"header {name} cannot be changed: {IMMUTABLE_HEADERS[name]}")
            if not name or not (value is None or isinstance(value, str)):
                raise TypeError(f"header {name!r} must be a str with a str or None, not {value!r}")
            changes[name.encode()] = None if value is None else value.encode()
        return changes


#: The hooks with a message as their only argument and no verdict.
NOTIFICATION_HOOKS = ("enqueued", "evicted", "expired", "killed", "dead_lettered", "delivered", "settled")


def _dead_letter(ref: Reference) -> None:
    """Send a message that a ring evicts to the dead-letter-address (``ring-policy`` DEAD_LETTER)."""
    send_dead_letter(ref, EVICTED)


def _listener(bound: BoundPolicy, hook: str) -> Listener:
    call, run = getattr(bound.policy, hook), bound.run

    def notify(ref: Reference) -> None:
        run(hook, call, MessageView(ref))

    return notify


Full = Callable[[Offer], FullAnswer]

DROPPED = AdmissionResult(drop=True)


class _Step(NamedTuple):
    """A policy that evaluates a message, or is notified of the outcome."""

    bound: BoundPolicy
    admit: Callable[[Offer], object]
    entered: bool  # whether the policy overrides `AddressPolicy.entered`
    refused: bool  # whether the policy overrides `AddressPolicy.refused`


class _Answer(NamedTuple):
    """The first verdict or exception of several policies, and the position of its policy among them."""

    position: int
    answer: object


def compose_admission(policies: Sequence[BoundPolicy], hooks: Hooks) -> None:
    """Set the attributes of ``hooks`` that call `AddressPolicy.admit`, `entered` and `refused`. The hook of a single
    policy is called without a function in between.
    """
    steps = [
        _Step(bound, bound.admit, bound.has("entered"), bound.has("refused"))
        for bound in policies
        if bound.has("admit") or bound.has("entered") or bound.has("refused")
    ]
    if not steps:
        return
    hooks.reports_entered = any(step.entered for step in steps)
    hooks.reports_refused = any(step.refused for step in steps)
    hooks.admission = partial(MessageAdmission, steps)
    if len(steps) == 1:
        hooks.admit = steps[0].admit
        hooks.slow_admit = partial(steps[0].bound.slow, "admit")
        return

    def admit(offer: Offer) -> _Answer | None:
        for position, step in enumerate(steps):
            answer = step.bound.ask("admit", step.admit, offer)
            if answer is not None:
                return _Answer(position, answer)
        return None

    hooks.admit = admit


class MessageAdmission:
    """Implements `broker.ports.Admission`. ``answer`` is the result of ``Hooks.admit`` of the address.

    ``steps`` is empty if a policy of the address could not start: every message is refused, with ``answer`` as reason.
    """

    __slots__ = ("_answer", "_changes", "_passed", "_steps")

    def __init__(self, steps: Sequence[_Step], answer: object) -> None:
        self._steps = steps
        self._passed = 0  # number of policies that have accepted the message, from the first one
        self._changes: dict[bytes, bytes | None] = {}
        self._answer = answer
        if answer is None:
            self._passed = len(steps)
        elif isinstance(answer, _Answer):
            self._passed, self._answer = answer

    def evaluate(self, offer: Offer) -> AdmissionResult | None:
        if self._changes:  # a call after a `Wait`: policies before the waiting one have changed headers
            offer = offer.changed(self._changes)
        if len(self._steps) == 1:
            return self._evaluate_one(offer)
        if not self._steps:
            raise Refused(str(self._answer))
        while self._passed < len(self._steps):
            bound = self._steps[self._passed].bound
            answer = self._next_answer(offer)
            if answer is ACCEPT:
                self._passed += 1
                break
            result = None if answer is None else _admission_result(bound, answer)
            if result is not None:
                if result.drop or result.wait:
                    return result
                if result.headers:
                    self._changes |= result.headers
                    if result.address is None and self._passed + 1 < len(self._steps):
                        # the next policy gets the changed headers
                        offer = offer.changed(result.headers)
            self._passed += 1
            if result is not None and result.address is not None:
                return AdmissionResult(address=result.address, headers=self._changes or None)
        return AdmissionResult(headers=self._changes) if self._changes else None

    def _evaluate_one(self, offer: Offer) -> AdmissionResult | None:
        """Evaluate the only policy of the address: a fast `evaluate` for the usual case."""
        answer = self._next_answer(offer)
        if answer is None or answer is ACCEPT:
            self._passed = 1
            return None
        result = _admission_result(self._steps[0].bound, answer)
        if not (result.drop or result.wait):
            self._passed = 1
        return result

    def _next_answer(self, offer: Offer) -> object:
        answer, self._answer = self._answer, NOT_EVALUATED
        if answer is not NOT_EVALUATED:
            return answer
        step = self._steps[self._passed]
        return step.bound.ask("admit", step.admit, offer)

    def entered(self, offer: Offer) -> None:
        for step in self._steps[: self._passed]:
            if step.entered:
                step.bound.call("entered", offer)

    def refused(self, offer: Offer, reason: str) -> None:
        for step in self._steps[: self._passed]:
            if step.refused:
                step.bound.call("refused", offer, reason)


def _admission_result(bound: BoundPolicy, verdict: object) -> AdmissionResult:
    """Convert the verdict or exception of one policy to a result for the broker. Raises `Refused`."""
    if isinstance(verdict, HOOK_EXCEPTIONS):
        raise bound.failed("admit", verdict) from verdict
    if verdict is DROP:
        return DROPPED
    if isinstance(verdict, Refuse):
        raise bound.refused(verdict)
    try:
        if isinstance(verdict, Wait):
            return AdmissionResult(wait=max(1, int(verdict.milliseconds)))
        if isinstance(verdict, ChangeHeaders):
            return AdmissionResult(False, 0, None, bound.changes(verdict.headers))
        if isinstance(verdict, Redirect) and isinstance(verdict.address, str) and verdict.address:
            headers = bound.changes(verdict.headers) if verdict.headers else None
            return AdmissionResult(False, 0, verdict.address, headers)
    except (TypeError, ValueError, AttributeError) as error:
        raise bound.failed("admit", error) from error
    raise bound.wrong("admit", verdict)


def compose_full(
    policies: Sequence[BoundPolicy], last: FullPolicy, address: Address
) -> tuple[FullPolicy | None, Full | None]:
    """Return how the policies of an address decide if it is full: a constant answer, or None and a function that calls
    `AddressPolicy.full` of each policy for a message.

    ``last``: answer if no policy has one.
    """
    calls: list[tuple[BoundPolicy, Callable[[Offer], object]]] = []
    for bound in policies:
        answer = bound.policy.full_answer
        if bound.has("full") or answer in (ACCEPT, DROP_OLDEST):
            calls.append((bound, bound.policy.full))
        elif answer is not None:
            last = FullPolicy(answer.value)  # later policies are never called
            break
    if not calls:
        return last, None

    def full(offer: Offer) -> FullAnswer:
        for bound, call in calls:
            verdict = bound.ask("full", call, offer)
            if verdict is None:
                continue
            if isinstance(verdict, HOOK_EXCEPTIONS):
                return bound.failed("full", verdict)
            if isinstance(verdict, Refuse):
                return bound.refused(verdict)
            if verdict is ACCEPT:
                return None
            if verdict is DROP_OLDEST:
                return None if _drop_oldest(address, offer.size + MESSAGE_OVERHEAD) else FullPolicy.DROP
            if isinstance(verdict, Word):
                return FullPolicy(verdict.value)
            return bound.wrong("full", verdict)
        return last

    return None, full


def _drop_oldest(address: Address, size: int) -> bool:
    """Evict the oldest messages until the address is below its limit, or ``size`` bytes are free. Return False if the
    address is full and no message can be evicted.

    A message in several queues is evicted from all of them together, if it is the oldest of each. Otherwise, or while a
    queue is delivering it, no memory would become free.
    """
    wanted = address.memory_limit.bytes - size
    dropped = False
    while address.full is not None and (not dropped or address.memory_limit.bytes > wanted):
        heads: dict[Message, list[Reference]] = {}
        for queue in address.queues.values():
            head = queue.dispatcher.first()
            if head is not None:
                heads.setdefault(head.message, []).append(head)
        free = [message for message, refs in heads.items() if message.holders == len(refs)]
        if not free:
            return dropped
        for ref in heads[min(free, key=attrgetter("number"))]:
            as_queue(ref.queue).evict_message(ref)
        dropped = True
    return True


def compose_overflow(policies: Sequence[BoundPolicy], ring: Ring) -> Callable[[QueueView, bool], None]:
    """Return a function that calls `AddressPolicy.overflow` of each policy, then the built-in ring, until the ring is
    within its size.
    """
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


def compose_subscribed(policies: Sequence[BoundPolicy]) -> Callable[[Subscriber], None] | None:
    """Return a function that calls `AddressPolicy.subscribed` of each policy, and raises `Refused` for a refusal. None:
    no policy has this hook.
    """
    calls = [(bound, bound.policy.subscribed) for bound in policies if bound.has("subscribed")]
    if not calls:
        return None

    def subscribed(subscriber: Subscriber) -> None:
        for bound, call in calls:
            verdict = bound.ask("subscribed", call, subscriber)
            if isinstance(verdict, HOOK_EXCEPTIONS):
                raise bound.failed("subscribed", verdict) from verdict
            if isinstance(verdict, Refuse):
                raise bound.refused(verdict)
            if verdict is not None:
                raise bound.wrong("subscribed", verdict)

    return subscribed


def refuse_all(hooks: Hooks, reason: Refused) -> None:
    """Refuse all messages and subscriptions of an address with a policy that could not start."""

    def refuse(what: object) -> None:
        raise Refused(str(reason))

    hooks.admit = hooks.subscribed = refuse
    hooks.admission = lambda answer: MessageAdmission((), reason)
    hooks.reports_entered = hooks.reports_refused = False


class PolicyTransformer:
    """A policy as a transformer (`broker.transformer.Transformer`): its `admit` decides about each copy.

    The broker does not send a copy that the policy refuses or drops, or for which it raises an exception.
    """

    def __init__(self, bound: BoundPolicy) -> None:
        self._bound = bound
        bound.start(None)

    def changes(self, message: Message) -> HeaderChanges | None:
        bound = self._bound
        if bound.start_error is not None:
            return None
        offer = Offer(message.address.name, message.traits, sent_headers(message))
        offer.body = message.body
        verdict = bound.ask("admit", bound.admit, offer)
        if verdict is None or verdict is ACCEPT:
            return NO_CHANGES
        try:
            result = _admission_result(bound, verdict)
        except Refused:
            return None
        if result.wait or result.address is not None:
            bound.wrong("admit", verdict)  # a transformer cannot delay or redirect a copy
            return None
        return None if result.drop else result.headers or NO_CHANGES

    def stop(self) -> None:
        self._bound.stop()


class Policies:
    """Implements `stompring.broker.ports.Policies`: creates the `Hooks` of each address.

    ``plugins`` are the policies that broker.xml names. Without them the address-policy elements of address-settings
    have no effect.
    """

    #: The class that binds a policy to an address.
    binding: ClassVar[type[BoundPolicy]] = BoundPolicy

    def __init__(self, plugins: Plugins | None = None) -> None:
        self.recorded = PolicyErrors()
        #: Number of exceptions so far, by policy and hook (``stompring_policy_errors_total``).
        self.errors = self.recorded.counts
        #: Number of slow calls so far, by policy and hook (``stompring_policy_slow_hooks_total``).
        self.slow_hooks = self.recorded.slow
        self._plugins = plugins
        self._ring = Ring()
        self._bound: dict[Address, tuple[BoundPolicy, ...]] = {}
        self._built_in: dict[str, Hooks] = {name: Hooks(name, self._ring.overflow) for name in FullPolicy}

    def use(self, plugins: Plugins) -> None:
        """Replace the plugins. An address gets its new policies when its settings are applied next."""
        self._plugins = plugins

    @property
    def kinds(self) -> Mapping[str, type[AddressPolicy]]:
        """The classes of the policies that broker.xml names, by the name of the broker-plugin."""
        return {} if self._plugins is None else self._plugins.kinds

    def address_counts(self) -> Counter[str]:
        """Number of addresses of each policy, by name."""
        return Counter(bound.name for policies in self._bound.values() for bound in policies)

    def names_for(self, address: Address) -> list[str]:
        """Names of the policies of an address without the built-in ones, in the order of their calls."""
        return [bound.name for bound in self._bound.get(address, ())]

    def policies_for(self, address: Address) -> list[AddressPolicy]:
        """Return the policies whose names `names_for` returns."""
        return [bound.policy for bound in self._bound.get(address, ())]

    # ---- implementation of stompring.broker.ports.Policies

    def hooks_for(self, address: Address) -> Hooks:
        before = {bound.name: bound for bound in self._bound.pop(address, ())}
        bound = tuple(self._bind(address, selected, before) for selected in self._selected(address))
        for one in before.values():
            one.stop()
        built_in = self._built_in.get(address.settings.address_full_policy, self._built_in[FullPolicy.PAGE])
        if not bound:
            return built_in
        self._bound[address] = bound
        assert built_in.answer is not None
        answer, full = compose_full(bound, built_in.answer, address)
        hooks = Hooks(answer, compose_overflow(bound, self._ring))
        hooks.full = full
        compose_admission(bound, hooks)
        hooks.subscribed = compose_subscribed(bound)
        for hook in NOTIFICATION_HOOKS:
            listeners: list[Listener | None] = [_listener(one, hook) for one in bound if one.has(hook)]
            setattr(hooks, hook, reduce(both, listeners, None))
        hooks.deleted = lambda: self._deleted(address)
        for one in bound:
            if one.start_error is not None:
                refuse_all(hooks, one.start_error)
        return hooks

    def _selected(self, address: Address) -> list[SelectedPlugin]:
        """Return the policies that the settings of an address name; the ``address-full-policy`` is last."""
        if self._plugins is None:
            return []
        settings = address.settings
        uses = [use for use in settings.address_policy if use.enabled]
        if settings.address_full_policy not in self._built_in:
            uses.append(PolicyUse(settings.address_full_policy))
        return [self._plugins.selected(use) for use in uses]

    def _bind(
        self, address: Address, selected: SelectedPlugin, before: dict[str, BoundPolicy]
    ) -> BoundPolicy:
        """Return the policy for an address: its object in ``before``, the policies of the address so far, if neither
        parameters nor code have changed; else a new object.
        """
        former = before.get(selected.name)
        if former is not None and former.start_error is not None:
            former = None
        if former is not None and former.selected == selected:
            del before[selected.name]
            return former
        bound = self.binding(selected, address, self.recorded)
        bound.start(former)
        return bound

    def _deleted(self, address: Address) -> None:
        for one in self._bound.pop(address, ()):
            one.call("deleted")
            one.stop()

    def evicted(self, queue: Queue) -> Listener | None:
        is_dead = queue.attributes.ring_policy is RingPolicy.DEAD_LETTER
        return both(queue.hooks.evicted, _dead_letter if is_dead else None)

    view_of = staticmethod(view_of)

    def transformer(self, use: PolicyUse, address: Address) -> PolicyTransformer:
        assert self._plugins is not None
        return PolicyTransformer(self.binding(self._plugins.selected(use), address, self.recorded))

    def stop(self) -> None:
        for bound in self._bound.values():
            for one in bound:
                one.stop()
        self._bound.clear()
