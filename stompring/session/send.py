"""SEND (STOMP 1.2, "SEND"): from the headers of a frame to a publication.

The session computes a `SendPlan` once for each header block and stores it with the block. Producers whose headers
repeat find the plan there. If header blocks differ, `plan_anew` is fast, because similar blocks share a plan.

A SEND to the management-address is a management request (Artemis, "Using management via messages"). The session checks
the permission `manage`; a `RequestHandler` carries out the request, sends the reply and calls back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from stompring.broker.address import Address, as_address, cache_size
from stompring.broker.clock import FOREVER, Recurrence, Schedule
from stompring.broker.directory import allow_all
from stompring.broker.message import BROKERS_OWN, IMPORTED, VALIDATED_USER, Message, Traits
from stompring.broker.ports import (
    HOOK_EXCEPTIONS,
    NOT_EVALUATED,
    SLOW_HOOK,
    Admission,
    AdmissionResult,
    Hooks,
    Offer,
)
from stompring.broker.publish import (
    NO_OFFER,
    Rejection,
    ReplyTo,
    check_admission,
    depends_on_message,
    forwarding_addresses,
    publish,
    publish_committed,
    send_entered,
)
from stompring.errors import LimitReached, ProtocolError, Refused
from stompring.settings.model import FullPolicy, PermissionType
from stompring.stomp.frames import Head, header_line
from stompring.stomp.parser import CutHead, HeaderUse

from .connect import ManagementRequest
from .destination import OWN, Destination, remote_form
from .outbox import Blocked, check_identifier_length, shortened, text_of
from .session import ENTERED, Route, SendPlan, Session
from .subscribe import expect_replies
from .transact import transaction_of

RESOURCE, ATTRIBUTE, OPERATION = b"_AMQ_ResourceName", b"_AMQ_Attribute", b"_AMQ_OperationName"


def on_request(session: Session, head: Head, body: bytes, plan: SendPlan) -> None:
    """Process a SEND to the management-address. In a transaction the COMMIT carries out the request."""
    address = session.broker.management.name
    session.login.authorizer.check(PermissionType.MANAGE, address)
    handler = session.requests
    if handler is None:
        raise Refused(f"Address {address} takes requests over STOMP only: use the HTTP API", status=400)
    headers = head.headers
    reply_to = _reply_to(session, headers.get(b"reply-to"))
    transactional = b"transaction" in headers

    def done(changed: bool) -> None:
        if not (transactional or session.closed):
            session.receipt(head, durable=changed)

    request = ManagementRequest(headers, body, session.login, session.number, session.peer, reply_to, done)
    if not transactional:
        handler.handle(request)
        return
    transaction_of(session, head).send(
        len(body) + sum(map(len, headers.values())),
        lambda: plan.address,
        lambda: handler.handle(request),
        durable=False,
    )
    session.receipt(head)


def _reply_to(session: Session, destination: bytes | None) -> ReplyTo | None:
    """Return the target of the reply; it is created if a SEND would create it. Raises `Refused`, `NotFound`."""
    if not destination:
        return None
    target = session.parse_destination(destination, None)
    session.broker.directory.check_concrete(target.address)
    shown = destination
    if target.temporary:
        if destination.startswith(OWN):
            expect_replies(session, destination)
        else:
            session.login.authorizer.check(PermissionType.SEND, target.address, target.queue)
        shown = remote_form(text_of(destination), session.number).encode()
    elif target.address == session.broker.management.name:
        raise Refused(f"reply-to must not be {target.address}: replies are not requests", status=400)
    route = _find_or_create(session, target)
    queue = None if route.queue is None else route.queue.name
    return ReplyTo(route.address.name, queue, route.routing_type, shown)


#: The header with the id for duplicate detection. Receivers get this header, too.
DUPLICATE_ID: Final = b"_AMQ_DUPL_ID"

#: The address on which a client needs the permission `manage` to set the broker's own headers on an imported message.
MANAGEMENT: Final = "activemq.management"

#: Headers that schedule the delivery of a SEND (Artemis, ActiveMQ Classic).
DELAY, TIME = b"AMQ_SCHEDULED_DELAY", b"AMQ_SCHEDULED_TIME"
PERIOD, REPEAT, CRON = b"AMQ_SCHEDULED_PERIOD", b"AMQ_SCHEDULED_REPEAT", b"AMQ_SCHEDULED_CRON"
SCHEDULING: Final = frozenset((DELAY, TIME, PERIOD, REPEAT, CRON))

#: Epoch ms at the end of the year 9999: larger numbers are mistakes, and overflow the time types of clients.
LATEST: Final = 253_402_300_799_999

#: Headers that have a meaning for the broker: a message with one of them needs more than routing.
MEANINGFUL: Final = SCHEDULING | {
    DUPLICATE_ID,
    IMPORTED,
    b"_AMQ_GROUP_ID",
    b"_AMQ_GROUP_SEQUENCE",
    b"JMSXGroupID",
    b"JMSXGroupSeq",
    b"expires",
    b"persistent",
    b"priority",
    b"reply-to",
}

#: Headers of SEND that the broker consumes, and headers of MESSAGE that it sets for each subscription or message.
ENDS_HERE: Final = SCHEDULING | {
    IMPORTED,
    b"_AMQ_ROUTING_TYPE",
    b"ack",
    b"browser",
    b"content-length",
    b"destination",
    b"expires",
    b"message-id",
    b"persistent",
    b"priority",
    b"receipt",
    b"redelivered",
    b"selector",
    b"subscription",
    b"timestamp",
    b"transaction",
}

#: Headers that are not passed on, including those that receivers trust as set by the broker.
NOT_PASSED_ON: Final = ENDS_HERE | BROKERS_OWN

#: How native code splits header blocks of SENDs (`CutHead`). ``special``: headers that change more than the `Traits`.
HEADER_USE = HeaderUse(
    read=(MEANINGFUL - SCHEDULING)
    | {b"destination", b"destination-type", b"_AMQ_ROUTING_TYPE", b"transaction", b"content-length"},
    hidden=NOT_PASSED_ON,
    special=SCHEDULING | {IMPORTED, b"reply-to", b"transaction"},
)

#: Headers that the broker reads. SENDs with equal values of all of them share one plan.
KEY = tuple(sorted(HEADER_USE.read - HEADER_USE.special - {b"content-length", DUPLICATE_ID}))

#: Maximum number of entries in a session's cache of routes, and in that of shared plans; a full cache is emptied.
ROUTES: Final = 1000


def plan_send(session: Session, head: Head) -> SendPlan:
    """Create a plan from the headers of a SEND. Raises `ProtocolError` or `Refused`, which name the wrong header."""
    headers = head.headers
    destination = headers.get(b"destination")
    if destination is None:
        raise ProtocolError("SEND needs a destination header")
    key = (destination, headers.get(b"destination-type"), headers.get(b"_AMQ_ROUTING_TYPE"))
    route = session.routes.get(key)
    if route is None or route.stamp != route.address.stamp:
        if len(session.routes) >= ROUTES:
            session.routes.clear()
        route = session.routes[key] = _route(session, destination, _asked_type(headers))
    return _plan(session, head, route, destination)


def plan_anew(session: Session, head: Head) -> SendPlan:
    """Return a current plan for a header block. Blocks that differ only in their receipt share one plan."""
    if isinstance(head, CutHead):
        return _shared_plan(session, head, head.key)
    kept = head if head.base is None else head.base
    if not kept.kept:
        headers = kept.headers
        if HEADER_USE.special.isdisjoint(headers):
            key = [headers.get(name) for name in KEY]
            return _shared_plan(session, kept, (*key, b"receipt" in headers, bool(headers.get(DUPLICATE_ID))))
    plan = kept.plan = plan_send(session, kept)
    return plan


def _shared_plan(session: Session, head: Head, key: object) -> SendPlan:
    """Return the plan that SENDs with this ``key`` share, prepared for the message of ``head``. The messages differ
    only in the header lines that are passed on, and in the duplicate id.
    """
    shared = session.shared_plans.get(key)
    if shared is None or shared[0].stamp != shared[0].address.stamp:
        plan = plan_send(session, head)
        if plan.admit is None and plan.offer is NO_OFFER and plan.carry_out is None:
            if len(session.shared_plans) >= ROUTES:
                session.shared_plans.clear()
            traits, durable = plan.traits, b"true" if plan.traits.durable else b"false"
            standard = b"priority:%d\npersistent:%b\n%b" % (traits.priority, durable, validated_user(session))
            session.shared_plans[key] = plan, traits, standard
        return plan
    plan, traits, standard = shared
    if isinstance(head, CutHead):
        rest, identifier = head.rest, head.identifier
    else:
        rest, identifier = user_block(head.headers, head.block), head.headers.get(DUPLICATE_ID)
    if plan.identifier is not None and identifier is not None:
        plan.identifier = check_identifier_length("_AMQ_DUPL_ID", identifier)
    plan.traits = traits.with_block(standard + rest)
    return plan


def derive(session: Session, head: Head, target: str | None) -> SendPlan:
    """Return the plan of a SEND that policies have changed: headers of ``head``, and the address ``target`` if given.

    The client needs no permission on ``target``, only on the address to which it sends.
    """
    if target is None:
        plan = plan_send(session, head)
    else:
        address = session.broker.auto_create.address_for_send(target, None, allow_all, session.login.user)
        plan = _plan(session, head, Route(address, None, None), target.encode())
    plan.head, plan.target = head, target
    if plan.offer is NO_OFFER:  # notifying policies of the outcome of the message needs an offer
        plan.offer = _offer(session, plan, head.headers)
    return plan


def _plan(session: Session, head: Head, route: Route, destination: bytes) -> SendPlan:
    headers, broker, address = head.headers, session.broker, route.address
    if address is broker.management:
        plan = SendPlan(route, REQUEST, None, headers)
        plan.carry_out, plan.admit, plan.plain = on_request, None, False
        return plan
    schedule = None
    if MEANINGFUL.isdisjoint(headers):
        block = PLAIN + validated_user(session) + user_block(headers, head.block)
        traits = Traits(
            block, destination, route.routing_type, origin=session.origin, user=session.login.user
        )
    else:
        traits = _traits(session, head, destination, route)
        if not SCHEDULING.isdisjoint(headers):
            schedule = schedule_of(headers)
            if schedule.recurrence is not None and schedule.recurrence.repeat:
                least = address.settings.min_scheduled_period
                if schedule.recurrence.period < least:
                    raise LimitReached(
                        f"AMQ_SCHEDULED_PERIOD is {schedule.recurrence.period} ms, and the shortest at address "
                        f"{address.name} is {least} ms (min-scheduled-period)",
                        "min-scheduled-period",
                        400,
                    )
    plan = SendPlan(route, traits, schedule, headers)
    identifier = headers.get(DUPLICATE_ID)
    if identifier and cache_size(address):
        plan.identifier = check_identifier_length("_AMQ_DUPL_ID", identifier)
        plan.direct = plan.plain = False
    if b"transaction" in headers:
        plan.carry_out = _send_in_transaction
    if plan.admit is not None or address.hooks.full is not None:
        plan.offer = _offer(session, plan, headers)
    return plan


def _offer(session: Session, plan: SendPlan, headers: Mapping[bytes, bytes]) -> Offer:
    return Offer(plan.address.name, plan.traits, headers, session.number, session.client_id, session.peer)


def _route(session: Session, destination: bytes, requested: str | None) -> Route:
    target = session.parse_destination(destination, requested)
    session.broker.directory.check_concrete(target.address)
    if target.address == session.broker.management.name:
        return Route(session.broker.management, None, None)
    if target.temporary:
        session.login.authorizer.check(PermissionType.SEND, target.address)
    return _find_or_create(session, target)


def _find_or_create(session: Session, target: Destination) -> Route:
    """Return the route of a SEND. Raises `Refused`, `NotFound`. The caller checks SEND to a temporary destination."""
    auto_create, check, user = session.broker.auto_create, session.login.authorizer.check, session.login.user
    name, routing_type = target.address, target.routing_type
    if target.queue is None:
        if target.temporary:
            return Route(session.temporary_topic(target), None, routing_type)
        check(PermissionType.SEND, name)
        return Route(auto_create.address_for_send(name, routing_type, check, user), None, routing_type)
    if target.temporary:
        queue = session.temporary_queue(target)
    else:
        check(PermissionType.SEND, auto_create.address_of(name, target.queue), target.queue)
        queue = auto_create.queue_for(name, target.queue, routing_type, check, user)
    return Route(as_address(queue.address), queue, routing_type)


def _traits(session: Session, head: Head, destination: bytes, route: Route) -> Traits:
    headers, block = head.headers, head.block
    priority = number(headers, b"priority", 0, 9, default=4)
    durable = headers.get(b"persistent", b"").lower() == b"true"
    reply_to = headers.get(b"reply-to", b"")
    if reply_to.startswith(OWN):
        expect_replies(session, reply_to)
        headers = headers | {b"reply-to": remote_form(text_of(reply_to), session.number).encode()}
        block = b""  # do not use the block: it has reply-to as the client wrote it
    left_out = NOT_PASSED_ON
    if headers.get(IMPORTED, b"").lower() == b"true":
        session.login.authorizer.check(PermissionType.MANAGE, MANAGEMENT)
        left_out = ENDS_HERE
    # only -1 has a meaning: the message is the last one of its group
    sequence = headers.get(b"JMSXGroupSeq") or headers.get(b"_AMQ_GROUP_SEQUENCE") or b"0"
    standard = b"priority:%d\npersistent:%b\n" % (priority, b"true" if durable else b"false")
    if VALIDATED_USER not in headers or VALIDATED_USER in left_out:
        standard += validated_user(session)
    return Traits(
        standard + user_block(headers, block, left_out),
        destination,
        route.routing_type,
        priority,
        durable,
        number(headers, b"expires", 0, LATEST),
        headers.get(b"JMSXGroupID") or headers.get(b"_AMQ_GROUP_ID") or None,
        -1 if sequence.strip() == b"-1" else 0,
        session.origin,
        session.login.user,
    )


def validated_user(session: Session) -> bytes:
    """Return the header line with the verified user of the session. Empty if the session has no verified user, or if
    ``populate-validated-user`` is off.
    """
    login = session.login
    if login.user is None or not (login.verified and session.broker.configuration.populate_validated_user):
        return b""
    return header_line(VALIDATED_USER, login.user.encode())


PLAIN: Final = b"priority:4\npersistent:false\n"

#: The traits of management requests, which are not stored as messages.
REQUEST = Traits(PLAIN)


def user_block(
    headers: Mapping[bytes, bytes], block: bytes = b"", left_out: frozenset[bytes] = NOT_PASSED_ON
) -> bytes:
    """Return the header lines that every receiver gets, with the escapes of STOMP 1.2.

    ``block`` is a SEND's header block without escapes (`Head.block`), or empty. Removing lines from a block takes half
    the time of joining all other lines.
    """
    left_out = left_out.intersection(headers)
    if block:
        lines = block[len(b"SEND") :] + b"\n"
        for name in left_out:
            lines = lines.replace(b"\n%b:%b\n" % (name, headers[name]), b"\n", 1)
        # each line has only one colon: no value has a colon that must be escaped
        if lines.count(b":") == len(headers) - len(left_out):
            return lines[1:]
    return b"".join([header_line(name, value) for name, value in headers.items() if name not in left_out])


def _asked_type(headers: Mapping[bytes, bytes]) -> str | None:
    requested = headers.get(b"destination-type")
    if requested is None:
        native = headers.get(b"_AMQ_ROUTING_TYPE")
        requested = {b"0": b"MULTICAST", b"1": b"ANYCAST"}.get(native or b"", native)
    return text_of(requested)


def schedule_of(headers: Mapping[bytes, bytes]) -> Schedule:
    """Return the schedule in the AMQ_SCHEDULED_… headers. Raises `Refused` naming an invalid header."""
    due = number(headers, TIME, -LATEST, LATEST)
    delay = number(headers, DELAY, -LATEST, LATEST)
    cron = text_of(headers.get(CRON, b"").strip())
    period = number(headers, PERIOD, 0, LATEST)
    forever = headers.get(REPEAT, b"").strip() == b"-1"
    repeat = FOREVER if forever else number(headers, REPEAT, 0, 2**31 - 1)
    if repeat and not period:
        raise Refused("AMQ_SCHEDULED_REPEAT needs an AMQ_SCHEDULED_PERIOD of at least 1 ms", status=400)
    recurs = cron or repeat
    return Schedule(due, delay, Recurrence(period, repeat, cron or None, max(0, delay)) if recurs else None)


def number(headers: Mapping[bytes, bytes], name: bytes, least: int, most: int, default: int = 0) -> int:
    """Return the value of a numeric header. Raises `Refused` naming the header, its value and the valid range."""
    value = headers.get(name)
    if value is None:
        return default
    text = value.strip()
    digits = text[1:] if text.startswith(b"-") else text
    if digits.isdigit() and len(digits) < 20 and least <= (found := int(text)) <= most:
        return found
    raise Refused(
        f"{text_of(name)} must be a whole number from {max(least, 0)} to {most}, not '{shortened(value)}'",
        status=400,
    )


def on_SEND(session: Session, head: Head, body: bytes) -> None:
    """Send a message. Raises `Blocked` if its address is full with the policy BLOCK, or if a policy delays it."""
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
        offer.body = b""  # the body may be large, and the plan lives as long as the connection
        if seconds > SLOW_HOOK:
            plan.address.hooks.slow_admit(seconds)
        if answer is not None or (reports and not (plan.plain and base is None)):
            _send_evaluated(session, SendEvaluation(session, head, body, plan, answer))
            return
    if plan.carry_out is not None:
        plan.carry_out(session, head, body, plan)
        return
    rejection = publish(session.broker, plan, body)
    if rejection is not None:
        evaluated = plan.admit is not None
        _reject(session, rejection, SendEvaluation(session, head, body, plan, None) if evaluated else None)
    if base is not None or plan.receipt:
        session.receipt(head, plan.traits.durable)


def resume_SEND(session: Session, evaluation: SendEvaluation) -> None:
    """Continue with a blocked message, as `on_SEND` does. Policies that have decided are not called again."""
    session.messages_in += 1
    _send_evaluated(session, evaluation)


def _send_evaluated(session: Session, evaluation: SendEvaluation) -> None:
    """Evaluate the policies that have not decided yet, send the message, and notify the policies of the outcome."""
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
        broker = session.broker
        if evaluation.reports_entered:
            broker.write_gathered()  # write earlier messages first: they are not part of this transaction
            with broker.together(len(body) + len(plan.traits.block)):
                rejection = publish(broker, plan, body)
                if rejection is None:
                    evaluation.entered()
        else:
            rejection = publish(broker, plan, body)
        if rejection is not None:
            _reject(session, rejection, evaluation)
        session.receipt(head, plan.traits.durable)
    except Blocked:
        raise
    except Exception as error:
        evaluation.refused(str(error))
        raise


def _reject(session: Session, rejection: Rejection, evaluation: SendEvaluation | None) -> None:
    """Handle a message that was not routed: raise `Blocked` or `Refused` for its producer, unless it was dropped."""
    if rejection.policy is FullPolicy.BLOCK:
        session.messages_in -= 1
        raise Blocked(rejection.address, rejection.limit, offered=evaluation)
    if evaluation is not None:
        evaluation.refused(rejection.describe())
    if rejection.policy is FullPolicy.FAIL:
        raise Refused(rejection.describe())


def _send_in_transaction(
    session: Session, head: Head, body: bytes, plan: SendPlan, evaluation: SendEvaluation | None = None
) -> None:
    deferred = SendEvaluation(session, head, body, plan, None) if evaluation is None else evaluation
    transaction_of(session, head).send(
        len(body) + len(plan.traits.block),
        deferred.address,
        deferred.publish,
        durable=plan.traits.durable,
        ask=deferred.rejection,
        claim=deferred.claim if DUPLICATE_ID in (plan.head or head).headers else None,
        cancel=None if evaluation is None else evaluation.refused,
        diverted=deferred.diverted if plan.address.diverts else None,
    )
    session.receipt(head)


class SendEvaluation:
    """The state of a SEND while policies evaluate it, until the message has entered an address or was refused.

    The SEND may wait in between: for a delay, for memory, or for the COMMIT of its transaction (`address` and the
    methods after it). A policy that has decided is not called again. ``answer`` is the result of `Hooks.admit`: None if
    all policies accept the message, `NOT_EVALUATED` if the hook was not called.
    """

    __slots__ = (
        "_admissions",
        "_decided",
        "_hooks",
        "_offer",
        "_passed",
        "_rejection",
        "_session",
        "body",
        "head",
        "plan",
        "reports_entered",
    )

    def __init__(
        self, session: Session, head: Head, body: bytes, plan: SendPlan, answer: object = NOT_EVALUATED
    ) -> None:
        self._session = session
        self.head = head
        self.body = body
        self._rejection: Rejection | None = None  # cached result of `rejection`
        self._begin(plan, answer)

    def _begin(self, plan: SendPlan, answer: object) -> None:
        self.plan = plan
        self._offer = plan.offer
        self._hooks: Hooks = plan.address.hooks
        self.reports_entered = (
            self._hooks.reports_entered
        )  # whether a policy may copy the message in `entered`
        #: evaluations by policies: one for each address of the message that has policies, in the order of the redirects
        self._admissions: list[Admission] = []
        if plan.admit is not None:
            self._admissions.append(self._hooks.admission(answer))
        self._passed: list[str] | None = None  # addresses from which policies have redirected the message
        self._decided = answer is None or plan.admit is None

    def decide(self) -> bool:
        """Return whether the message may enter the address of ``plan``; False if a policy has dropped the message.

        If policies redirect the message, those of the new address evaluate it as well. Raises `Refused`, or `Blocked`
        if a policy delays the message.
        """
        self.address()
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
            self.reports_entered |= self._hooks.reports_entered
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
            offer.body = b""  # the body may be large, and the plan lives as long as the connection

    def _renew(self) -> None:
        """Plan again after a change of the address. Raises `Refused` if the message cannot be sent now. If a reload has
        replaced the policies of the address before all of them decided, the new policies evaluate the message.
        """
        plan, session = self.plan, self._session
        anew = plan_anew(session, self.head)  # checks the permission on the address to which the client sends
        if not self._decided:
            address = session.broker.directory.addresses.get(plan.address.name)
            if address is None or address.hooks is not self._hooks:
                self.refused("the policies of the address have changed")
                self._begin(anew, NOT_EVALUATED)
                return
        self.plan = anew if plan.head is None else derive(session, plan.head, plan.target)

    # ---- in a transaction

    def address(self) -> Address:
        """Return the current address of the message. Raises `Refused` if it cannot be sent now."""
        if self.plan.stamp != self.plan.address.stamp:
            self._renew()
        return self.plan.address

    def claim(self) -> tuple[Address, bytes | None]:
        """Return the address of the message, and its duplicate id."""
        return self.address(), self.plan.identifier

    def diverted(self) -> Iterable[Address]:
        """Return the addresses to which diverts copy the message."""
        address, broker = self.address(), self._session.broker
        message = None
        if depends_on_message(address):
            message = Message(0, address, self.plan.traits, self.body, broker.clock.now)
        return forwarding_addresses(address, message)

    def rejection(self) -> Rejection | None:
        """Return the rejection by a policy that decides on each message to a full address, None without one."""
        address, plan = self.address(), self.plan
        if address.hooks.full is None:
            return None
        self._rejection = check_admission(address, plan.traits.durable, plan.offer, self.body)
        return self._rejection

    def publish(self) -> None:
        """Send the message at the COMMIT. It can no longer wait or fail, but is dropped if it is a duplicate, or if its
        address is full with the policy DROP.
        """
        self.address()
        rejection = publish_committed(self._session.broker, self.plan, self.body, self._rejection)
        if rejection is None:
            self.entered()
        else:
            self.refused(rejection.describe())

    # ---- the outcome

    def entered(self) -> None:
        """Notify the policies that have accepted the message: it has entered an address."""
        self._end(None)

    def refused(self, reason: str) -> None:
        """Notify the policies that have accepted the message: it enters no address. Later calls have no effect."""
        self._end(reason)

    def _end(self, reason: str | None) -> None:
        admissions, self._admissions = self._admissions, []
        if not admissions:
            return
        offer = self._offer
        offer.body = self.body
        if reason is None and self.reports_entered:
            offer.copier = partial(send_entered, self.plan.address, self.plan.traits, self.body)
        for one in admissions:
            if reason is None:
                one.entered(offer)
            else:
                one.refused(offer, reason)
        offer.body, offer.copier = b"", None


def _derived(session: Session, plan: SendPlan, head: Head, result: AdmissionResult) -> SendPlan:
    """Apply an admission result to a plan. The latest derived plan is cached."""
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
    derived = derive(session, changed, plan.target if result.address is None else result.address)
    plan.derived = (result, derived)
    return derived
