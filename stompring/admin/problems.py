"""What is wrong with the broker now: why it is not ready, full addresses, memory, disk, policies, certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stompring.broker.address import Address
from stompring.broker.queue import Queue
from stompring.session.subscription import Subscription
from stompring.settings.model import FullPolicy

from .context import AdminContext
from .json_schema import Component, string, structure

ERROR, WARNING = "error", "warning"

#: Problems that are listed.
MAX_PROBLEMS = 100

#: Percentage of a limit from which its usage is a problem.
HIGH_USAGE = 80

#: Percentage points below max-disk-usage from which the usage of the disk is a problem.
DISK_MARGIN = 5

#: Milliseconds before its expiry from which a certificate is a problem.
EXPIRY = 30 * 86_400_000

PROBLEM = Component(
    "BrokerProblem",
    structure(
        {
            "severity": string("How bad it is.", enum=[ERROR, WARNING]),
            "text": string("What is wrong."),
            "address": string("Address."),
            "queue": string("Queue."),
        },
        required=("severity", "text"),
    ),
)


def problems(context: AdminContext) -> list[dict[str, Any]]:
    """The problems of now, errors first; at most `MAX_PROBLEMS`."""
    found = sorted(_problems(context), key=lambda problem: problem["severity"])
    more = len(found) - MAX_PROBLEMS
    if more > 0:
        found[MAX_PROBLEMS:] = [_problem(WARNING, f"{more} more problems")]
    return found


def _problem(severity: str, text: str, **names: str) -> dict[str, Any]:
    return {"severity": severity, "text": text, **names}


def _problems(context: AdminContext) -> Iterator[dict[str, Any]]:
    if context.stopping:
        yield _problem(WARNING, "the broker is stopping")
    if context.drain.since is not None:
        yield _problem(WARNING, "the broker is draining: it refuses new connections")
    yield from _of_log(context)
    yield from _of_listeners(context)
    yield from _of_disk(context)
    yield from _of_memory(context)
    for address in context.broker.directory.addresses.values():
        if address.memory_limit.full or address.pages is not None or address.blocked_producers:
            yield _of_address(address)
    yield from _of_consumers(context)
    for (policy, hook), count in context.broker.policies.errors.items():
        yield _problem(WARNING, f"policy {policy} failed {count} times in {hook}: see the log")


def _of_log(context: AdminContext) -> Iterator[dict[str, Any]]:
    """Of a replicated log. One that is full counts as a full disk."""
    if context.node is None:
        return
    fault, log = context.replication_fault, context.node.status().log
    if fault is not None:
        yield _problem(ERROR, f"nothing is delivered: {fault}")
    elif log is not None and not log.healthy:
        yield _problem(
            WARNING, "too few nodes of the replicated log answer: one more that is lost stops the broker"
        )


def _of_listeners(context: AdminContext) -> Iterator[dict[str, Any]]:
    bound = {
        getattr(port.getHost(), "port", None) for port in context.ports if getattr(port, "connected", True)
    }
    for name, host, port in context.listening:
        if port not in bound and not context.stopping:
            yield _problem(ERROR, f"acceptor {name} does not listen on {host}:{port}")
    limit = context.connections.global_limit.limit
    if 0 < limit * HIGH_USAGE <= len(context.connections) * 100:
        text = f"{len(context.connections)} of {limit} connections are open (global-max-connections)"
        yield _problem(WARNING, text)
    now = context.broker.clock.now
    for name, certificate in context.listener_stack.identities():
        left = certificate.not_after.timestamp() * 1000 - now
        if left < EXPIRY:
            subject = f"certificate {certificate.subject} of acceptor {name}"
            when = f"{certificate.not_after:%Y-%m-%d %H:%M} UTC"
            if left < 0:
                yield _problem(ERROR, f"{subject} expired on {when}")
            else:
                yield _problem(WARNING, f"{subject} expires on {when}")


def _of_disk(context: AdminContext) -> Iterator[dict[str, Any]]:
    broker, configuration = context.broker, context.configuration
    store_fault = broker.storage.write_limit.fault
    if store_fault is not None:
        yield _problem(ERROR, store_fault)
    reading = None if context.disk_monitor is None else context.disk_monitor.reading
    if broker.disk.fault is not None:
        yield _problem(ERROR, broker.disk.fault)
    elif reading is not None and configuration.min_disk_free < 0:
        most = configuration.max_disk_usage
        if most >= 0 and reading.usage * 100 >= most - DISK_MARGIN:
            text = f"the disk is {reading.usage * 100:.1f} % full, max-disk-usage is {most} %"
            yield _problem(WARNING, text)


def _of_memory(context: AdminContext) -> Iterator[dict[str, Any]]:
    memory = context.broker.memory
    for used, limit, name in (
        (memory.bytes, memory.max_bytes, "global-max-size"),
        (memory.messages, memory.max_messages, "global-max-messages"),
    ):
        if limit > 0 and used * 100 >= limit * HIGH_USAGE:
            full = "memory is full: " if used >= limit else ""
            severity = ERROR if used >= limit else WARNING
            yield _problem(severity, f"{full}{used * 100 // limit} % of {name} ({limit}) is in use")


def _of_consumers(context: AdminContext) -> Iterator[dict[str, Any]]:
    """One for each queue with stalled consumers, which names the one that has held a message for the longest time."""
    by_queue: dict[Queue, tuple[int, int, Subscription]] = {}
    for consumer, seconds in context.sampler.stalled().items():
        count, longest, worst = by_queue.get(consumer.queue, (0, -1, consumer))
        if seconds > longest:
            longest, worst = seconds, consumer
        by_queue[consumer.queue] = count + 1, longest, worst
    for queue, (count, seconds, worst) in by_queue.items():
        text = (
            f"queue {queue.name}: consumer {worst.connection_id}/{worst.identifier} ({worst.remote}) has held messages "
            f"unacknowledged for {seconds} seconds while more wait"
        )
        more = f", and {count - 1} other consumers do the same" if count > 1 else ""
        yield _problem(WARNING, f"{text}{more}", address=queue.address.name, queue=queue.name)


def _of_address(address: Address) -> dict[str, Any]:
    name, blocked = address.name, address.blocked_producers
    if blocked:
        many = "1 producer is" if blocked == 1 else f"{blocked} producers are"
        return _problem(ERROR, f"address {name}: {many} blocked", address=name)
    if address.pages is not None:
        return _problem(WARNING, f"address {name} is paging", address=name)
    consequence = {
        FullPolicy.DROP: "messages are dropped",
        FullPolicy.FAIL: "messages are rejected",
        FullPolicy.BLOCK: "producers are blocked",
    }.get(address.policy or FullPolicy.PAGE, "a policy decides about messages")
    return _problem(WARNING, f"{address.describe_full()}: {consequence}", address=name)
