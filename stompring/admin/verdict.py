"""Verdicts. A verdict is one sentence about the state of a queue, address, connection or consumer, and the command to
run next.

The functions of this module read the state and change nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import NamedTuple

from stompring.broker.address import Address, as_address
from stompring.broker.history import History
from stompring.broker.publish import check_admission
from stompring.broker.queue import AWAITING_CONSUMERS, PAUSED, REBALANCING, SUSPENDED, Consumer, Queue
from stompring.errors import counted
from stompring.session.session import Session
from stompring.session.subscription import Subscription
from stompring.settings.model import FullPolicy

from .json_schema import Fields, Thing, string, string_or_null
from .sampler import QUEUE_RATES


class Verdict(NamedTuple):
    """A sentence about a state. ``command`` shows more or ends the state; None if there is nothing to do."""

    text: str
    command: str | None = None

    @property
    def sentence(self) -> str:
        """The text with a capital letter and a full stop."""
        return f"{self.text[0].upper()}{self.text[1:]}."


def verdict_fields(judge: Callable[[Thing], Verdict]) -> Fields[Thing]:
    """The fields of an answer that show the verdict of a thing. ``judge`` returns the verdict."""
    return {
        "verdict": string(
            "One sentence: why messages wait, or why the broker blocks or refuses them.",
            lambda thing: judge(thing).sentence,
        ),
        "nextCommand": string_or_null(
            "The command that shows more or ends this state; null: there is nothing to do.",
            lambda thing: judge(thing).command,
        ),
    }


def _command(words: str, name: str) -> str:
    """A command for a shell. A name that looks like an option follows ``--``."""
    return f"stompring {words} {'-- ' if name.startswith('-') else ''}{shlex.quote(name)}"


def _consumers(queue: Queue) -> str:
    return f"stompring consumer list --sort=-deliveringCount --queue={shlex.quote(queue.name)}"


# ---- consumers

#: Obstacles: the reasons why a consumer gets no message.
UNREAD = "the client does not read"
PREFETCH = "prefetch used up, and no ACK"
BRIDGE = "the bridge cannot forward"
STANDS_BY = "stands by for the consumer that an exclusive queue serves"
SELECTOR = "its selector matches none of the messages"
GROUPS = "all waiting messages belong to groups of other consumers"
IDLE = "no message waits for it"

#: Obstacles of consumers that take messages, but slowly; None stands for a consumer without an obstacle.
SLOW = frozenset({None, UNREAD, PREFETCH, BRIDGE})


def _obstacle(consumer: Consumer) -> str | None:
    """Why a consumer gets no message now, None if it gets messages."""
    dispatcher = consumer.queue.dispatcher
    if dispatcher.exclusive not in (None, consumer):
        return STANDS_BY
    if isinstance(consumer, Subscription):
        if consumer.outbox.capacity <= 0:
            return UNREAD
        if consumer.credit == 0:
            return PREFETCH
    elif not consumer.willing:
        return BRIDGE
    if consumer.has_waiting:
        return None
    queue = consumer.queue
    if queue.non_destructive or not (queue.count or queue.paged_count):
        return IDLE
    return SELECTOR if consumer.matches is not None else GROUPS if dispatcher.groups is not None else IDLE


def of_consumer(consumer: Subscription) -> Verdict:
    """Why a consumer gets no messages, or that it gets them."""
    queue, held = consumer.queue, consumer.unsettled_count
    if consumer.terms.browser:
        return Verdict("it gets copies of the messages, which stay in the queue")
    stopped = _stopped(queue)
    if stopped is not None:
        return stopped
    obstacle = _obstacle(consumer)
    connection = _command("connection show", consumer.connection_id)
    if obstacle == UNREAD:
        return Verdict(f"{UNREAD}: its outbox is full", connection)
    if obstacle == PREFETCH:
        return Verdict(f"{PREFETCH} for {counted(held, 'message')}", connection)
    if obstacle == SELECTOR:
        return Verdict(
            f"its selector matches none of {counted(_waiting(queue), 'waiting message')}", _browse(queue)
        )
    if obstacle == IDLE and held:
        return Verdict(f"{IDLE}, and no ACK for {counted(held, 'message')}", connection)
    return Verdict(obstacle or "it gets messages")


# ---- queues


def _waiting(queue: Queue) -> int:
    """The number of messages that wait for a consumer."""
    if queue.non_destructive and not any(consumer.has_waiting for consumer in queue.consumers):
        return 0  # the messages stay in a non-destructive queue, but every consumer has received them
    return queue.count + queue.paged_count


def _browse(queue: Queue) -> str:
    return _command("message browse --headers --limit=5", queue.name)


def _stopped(queue: Queue) -> Verdict | None:
    """Why a queue delivers to no consumer at all, None if it delivers."""
    blocks, attributes = queue.dispatcher.blocks, queue.attributes
    if blocks & PAUSED:
        if as_address(queue.address).paused:
            return Verdict("the address is paused", _command("address resume", queue.address.name))
        return Verdict("the queue is paused", _command("queue resume", queue.name))
    if blocks & SUSPENDED:
        if queue.broker.delivery_suspended:
            return Verdict(
                "the replicated log has not confirmed this broker as active", "stompring ha status"
            )
        return Verdict(
            "a task on its messages runs", f"stompring task list --where queue={shlex.quote(queue.name)}"
        )
    if blocks & AWAITING_CONSUMERS and queue.consumers:
        return Verdict(
            f"delivery begins with {counted(attributes.consumers_before_dispatch, 'consumer')} "
            f"(consumers-before-dispatch), and {len(queue.consumers)} subscribed",
            _command("queue update --consumers-before-dispatch=0", queue.name),
        )
    if blocks & REBALANCING:
        return Verdict(
            f"delivery stops until {counted(queue.delivering, 'delivered message')} are acknowledged "
            "(group-rebalance-pause-dispatch)",
            _consumers(queue),
        )
    return None


def of_queue(queue: Queue) -> Verdict:
    """Why messages wait in a queue, and why its address refuses more."""
    found, refused = _of_messages(queue), _refused(as_address(queue.address))
    if refused is None:
        return found
    return Verdict(f"{found.text}; {refused.text}", found.command or refused.command)


def _of_messages(queue: Queue) -> Verdict:
    waiting, consumers = _waiting(queue), queue.consumers
    stopped = _stopped(queue)
    if not waiting:
        return (
            _of_idle(queue)
            if stopped is None
            else Verdict(f"no message waits; {stopped.text}", stopped.command)
        )
    wait = f"{counted(waiting, 'message')} {'waits' if waiting == 1 else 'wait'}"
    if stopped is not None:
        return Verdict(f"{wait}: {stopped.text}", stopped.command)
    evicted = _rate(queue.history, "evicted")
    ring = f"; the full ring evicts {_per_second(evicted)}" if evicted else ""
    if not consumers:
        return Verdict(f"{wait}, and the queue has no consumers{ring}", _browse(queue))
    obstacles = [_obstacle(consumer) for consumer in consumers]
    added, taken = _rate(queue.history, "added"), _rate(queue.history, "acknowledged")
    if added is not None and taken and not SLOW.isdisjoint(obstacles):
        rates = f"({_per_second(added)} arrive, {_per_second(taken)} are acknowledged)"
        if added > taken:
            return Verdict(f"{wait}: consumers are slower than producers {rates}{ring}", _consumers(queue))
        return Verdict(f"{wait}, and consumers keep up with producers {rates}{ring}")
    if not all(obstacles):
        return Verdict(f"{wait}, and {counted(len(obstacles), 'consumer')} may take them{ring}")
    none = (
        "its consumer takes none"
        if len(obstacles) == 1
        else f"none of its {len(obstacles)} consumers takes one"
    )
    command = _browse(queue) if {*obstacles} == {SELECTOR} else _consumers(queue)
    return Verdict(f"{wait}, and {none}: {_counts(obstacles)}{ring}", command)


def _of_idle(queue: Queue) -> Verdict:
    """The verdict of a queue in which no message waits."""
    if not queue.attributes.enabled:
        return Verdict(
            "the queue is disabled and gets no messages", _command("queue update --enabled", queue.name)
        )
    parts = []
    if queue.scheduled_count:
        parts.append(f"{counted(queue.scheduled_count, 'message')} scheduled and not due")
    unsettled = queue.delivering and not _rate(queue.history, "acknowledged")
    if queue.delivering:
        none = " (no ACK arrives)" if unsettled and queue.history is not None else ""
        parts.append(f"{counted(queue.delivering, 'message')} delivered and not acknowledged{none}")
    if queue.non_destructive and queue.count:
        parts.append(f"{counted(queue.count, 'message')} kept for later consumers")
    command = _command("message browse --scheduled --limit=5", queue.name) if queue.scheduled_count else None
    if unsettled:
        command = _consumers(queue)
    consumers = counted(len(queue.consumers), "consumer") if queue.consumers else "no consumers"
    return Verdict(f"no message waits: {', '.join([*parts, consumers])}", command)


def _counts(obstacles: list[str | None]) -> str:
    """The obstacles of consumers as a text. If the obstacles differ, the number of consumers follows each."""
    kinds = dict.fromkeys(obstacles)
    return ", ".join(f"{kind} ({obstacles.count(kind)})" if len(kinds) > 1 else str(kind) for kind in kinds)


def _rate(history: History | None, name: str) -> float | None:
    return None if history is None else history.rate(QUEUE_RATES.index(name))


def _per_second(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 or not rate else f"{rate:.1f}/s"


# ---- addresses

#: Consequence for messages or producers if an address refuses a message, by address-full-policy.
CONSEQUENCES = {
    FullPolicy.BLOCK: "producers are blocked",
    FullPolicy.FAIL: "messages are rejected",
    FullPolicy.DROP: "messages are dropped",
}


def _refused(address: Address) -> Verdict | None:
    """Why an address takes no durable message now, None if it takes them."""
    memory = address.memory_limit
    full = not memory.unbounded and (memory.full or address.memory.full)
    largest = f"stompring queue list --sort=-persistentSize --address={shlex.quote(address.name)}"
    if full and address.policy is None:
        return Verdict(f"{_inline(address.describe_full())}: a policy decides about each message", largest)
    rejection = check_admission(address, durable=True)
    if rejection is None:
        if address.blocked_producers:
            return Verdict(
                f"{counted(address.blocked_producers, 'producer')} blocked by a policy of the address"
            )
        return None
    text = f"{CONSEQUENCES[rejection.policy]}"
    if address.blocked_producers:
        text += f" ({address.blocked_producers})"
    of_disk = rejection.limit is not None and not rejection.of_memory
    if rejection.of_memory and not memory.full:
        largest = "stompring queue list --sort=-persistentSize"
    return Verdict(f"{text}: {_inline(rejection.describe())}", "stompring status" if of_disk else largest)


def _inline(text: str) -> str:
    """A text with a small first letter, for the middle of a sentence."""
    return text[0].lower() + text[1:]


def of_address(address: Address) -> Verdict:
    """Why an address blocks, rejects or drops messages, or that it takes them."""
    refused = _refused(address)
    if refused is not None:
        return refused
    if address.paused:
        return Verdict("its queues are paused", _command("address resume", address.name))
    of_address = f"--address={shlex.quote(address.name)}"
    if address.pages is not None:
        return Verdict(
            f"it pages: new messages go to disk ({counted(address.pages.count, 'page file')})",
            f"stompring queue list --sort=-pagedCount {of_address}",
        )
    lost = [
        f"{counted(number, 'message')} {verb}"
        for number, verb in ((address.dropped_messages, "dropped"), (address.unrouted_messages, "not routed"))
        if number
    ]
    since = f"; since the start {' and '.join(lost)}" if lost else ""
    if not address.queues and not address.memory_limit.copied:
        return Verdict(
            f"it has no queues: messages go to no consumer{since}",
            _command("queue create", address.name) if lost else None,
        )
    return Verdict(f"it takes messages{since}", f"stompring queue list {of_address}" if lost else None)


# ---- connections


def of_connection(session: Session) -> Verdict:
    """Why the broker does not read from a connection, or why the client gets no messages."""
    address, outbox = session.blocked_by, session.outbox
    consumers = f"stompring consumer list --where connectionID={session.number}"
    if not session.connected:
        return Verdict("it is not logged in yet")
    if address is not None:
        refused = _refused(address)
        why = "a policy of the address delays it" if refused is None else refused.text
        return Verdict(
            f"it is not read, because its SEND to {address.name} waits: {why}",
            _command("address show", address.name),
        )
    if outbox.reading.throttled:
        return Verdict(
            "it is not read, because its client does not read the receipts that it requests",
            _command("connection close", session.number),
        )
    if outbox.capacity <= 0:
        return Verdict(
            f"{UNREAD}: {outbox.size - outbox.capacity:,} bytes wait, and no messages follow", consumers
        )
    used_up = sum(
        _obstacle(each) == PREFETCH for each in session.subscriptions.values() if not each.terms.browser
    )
    if used_up:
        return Verdict(
            f"{PREFETCH}, for {used_up} of {counted(len(session.subscriptions), 'subscription')}", consumers
        )
    return Verdict("it is read, and its client reads")
