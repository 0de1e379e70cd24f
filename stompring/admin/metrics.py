"""``GET /metrics`` in Prometheus's text format or as OpenMetrics. docs/metrics.md has the meaning of each metric.

prometheus_client renders the metrics that exist once (process, build, broker). Those of addresses and queues are
rendered here in pieces, because a Python object for each of ten thousand samples would cost ten times as much.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import twisted
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

import stompring
from stompring.broker.address import Address
from stompring.broker.bridge import Bridge
from stompring.broker.queue import Queue
from stompring.replication.role import Role

from .api import Answer, Call, Parameter, Response, Route, view_broker
from .context import ITEMS_PER_STEP, AdminContext, Listeners
from .counters import ADDRESS, BRIDGE, BROKER, COUNTER, DIVERT, GAUGE, QUEUE, Counter
from .ha import ha_families, role_families

Thing = TypeVar("Thing")

#: Sample lines per piece: about 64 KiB, which a transport buffers before it pauses its producer.
LINES_PER_PIECE = 500

PAUSE = b""

#: The labels of a thing and its numbers: tuples, which the garbage collector untracks.
Row = tuple[str, tuple[Any, ...]]


def escape_label(value: str) -> str:
    """The value of a label with the escapes of the text format."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def help_text(*counters: Counter[Any]) -> str:
    """HELP of the family of these counters: the meaning, and the names in JSON."""
    return f"{counters[0].help} JSON: {', '.join(counter.json for counter in counters)}."


def help_and_type_lines(counter: Counter[Any], openmetrics: bool) -> str:
    """The HELP and TYPE lines of a family. OpenMetrics names a counter without its ``_total``."""
    name, kind = counter.metric, counter.kind
    if openmetrics and kind == COUNTER:
        name = name.removesuffix("_total")
    return f"# HELP {name} {help_text(counter)}\n# TYPE {name} {kind}\n"


def families(
    counters: Sequence[Counter[Thing]],
    things: Iterable[Thing],
    labels: Callable[[Thing], str],
    openmetrics: bool,
) -> Iterator[bytes]:
    """All families, each with the samples of all things together, as the formats require.

    All things are read first, each at once, so that the numbers of one thing are consistent; things that are deleted
    meanwhile do no harm. Then the lines are written.
    """
    if not counters:
        return
    reads = [counter.read for counter in counters]
    rows: list[Row] = []
    for index, thing in enumerate(things):
        rows.append((labels(thing), tuple([read(thing) for read in reads])))
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield PAUSE
    for column, counter in enumerate(counters):
        yield help_and_type_lines(counter, openmetrics).encode()
        for start in range(0, len(rows), LINES_PER_PIECE):
            yield _lines(counter, column, rows[start : start + LINES_PER_PIECE])


def _lines(counter: Counter[Any], column: int, rows: list[Row]) -> bytes:
    name, scale = counter.metric, counter.scale
    if scale == 1:
        lines = [f"{name}{labels} {int(values[column])}\n" for labels, values in rows]
    else:
        lines = [f"{name}{labels} {(values[column] or 0) * scale:.3f}\n" for labels, values in rows]
    return "".join(lines).encode("utf-8", "replace")


OPENMETRICS = "application/openmetrics-text"
NAMES = "name[]"

POLICY_ERRORS = "stompring_policy_errors_total"
POLICY_ERRORS_HELP = (
    "Exceptions and invalid results of address policy hooks, by policy and hook. JSON: policyErrors."
)
SLOW_HOOKS = "stompring_policy_slow_hooks_total"
SLOW_HOOKS_HELP = "Calls of address policy hooks that took longer than 20 ms, by policy and hook."

REFUSALS = "stompring_refusals_total"
REFUSALS_HELP = (
    "Connections, frames and requests rejected because a limit was reached, by limit. JSON: refusals."
)

EXPIRY = "stompring_certificate_expiry_timestamp_seconds"
EXPIRY_HELP = "Expiry time of the certificate chain of an acceptor."
TLS_FAILURES = "stompring_tls_failures_total"
TLS_FAILURES_HELP = "Connections closed by a TLS error, most of them in the handshake."
PROXY_FAILURES = "stompring_proxy_failures_total"
PROXY_FAILURES_HELP = "Connections closed because their PROXY header is missing, invalid or not allowed."


class BrokerCollector(Collector):
    """The counters of the broker, for prometheus_client."""

    def __init__(self, context: AdminContext) -> None:
        self._context = context

    def collect(self) -> Iterable[Metric]:
        """The families that have a sample."""
        build = {
            "version": stompring.__version__,
            "build": stompring.build(),
            "python": platform.python_version(),
            "twisted": twisted.__version__,
        }
        yield InfoMetricFamily("stompring_build", "Version of stompring and of its runtime.", value=build)
        for _, alike in groupby(BROKER, key=lambda counter: counter.metric):
            family = _family(list(alike), self._context)
            if family.samples:
                yield family
        errors = CounterMetricFamily(POLICY_ERRORS, POLICY_ERRORS_HELP, labels=("policy", "hook"))
        for labels, number in self._context.broker.policies.errors.items():
            errors.add_metric(labels, number)
        if errors.samples:
            yield errors
        slow = CounterMetricFamily(SLOW_HOOKS, SLOW_HOOKS_HELP, labels=("policy", "hook"))
        for labels, number in self._context.broker.policies.slow_hooks.items():
            slow.add_metric(labels, number)
        if slow.samples:
            yield slow
        for counter in DIVERT:
            family = CounterMetricFamily(counter.metric, help_text(counter), labels=("divert",))
            for name, divert in self._context.broker.diverts.by_name.items():
                family.add_metric((name,), counter.read(divert))
            if family.samples:
                yield family
        node = self._context.node
        yield from role_families(Role.ACTIVE.value) if node is None else ha_families(node.status())
        yield from listener_families(self._context.listener_stack)
        refusals = CounterMetricFamily(REFUSALS, REFUSALS_HELP, labels=("limit",))
        for limit, number in self._context.broker.rejections.counts.items():
            refusals.add_metric((limit,), number)
        yield refusals


def _family(counters: list[Counter[AdminContext]], context: AdminContext) -> Metric:
    """One family, with a sample for each of its counters that has a value."""
    first = counters[0]
    kind = GaugeMetricFamily if first.kind == GAUGE else CounterMetricFamily
    family: Metric = kind(first.metric, help_text(*counters))
    for counter in counters:
        value = counter.read(context)
        if value is not None:
            family.add_sample(first.metric, dict(counter.labels), value * counter.scale)
    return family


def listener_families(listeners: Listeners) -> Iterator[Metric]:
    """The families of certificates, TLS and the PROXY protocol that have a sample."""
    expiry = GaugeMetricFamily(EXPIRY, EXPIRY_HELP, labels=("acceptor", "file", "subject"))
    for acceptor, certificate in listeners.identities():
        labels = (acceptor, certificate.file, certificate.subject)
        expiry.add_metric(labels, certificate.not_after.timestamp())
    tls = CounterMetricFamily(TLS_FAILURES, TLS_FAILURES_HELP, labels=("acceptor",))
    proxy = CounterMetricFamily(PROXY_FAILURES, PROXY_FAILURES_HELP, labels=("acceptor",))
    for family, failures in ((tls, listeners.tls_failures), (proxy, listeners.proxy_failures)):
        for acceptor, number in failures.items():
            family.add_metric((acceptor,), number)
    yield from (family for family in (expiry, tls, proxy) if family.samples)


def scrape(call: Call) -> Answer:
    """All metrics, or with ``name[]`` those of the families named, as prometheus_client has it."""
    encode, content_type = choose_encoder(call.accept)
    openmetrics = content_type.startswith(OPENMETRICS)
    return Answer(_pieces(call, encode, openmetrics), content_type=content_type)


def _pieces(call: Call, encode: Callable[[Collector], bytes], openmetrics: bool) -> Iterator[bytes]:
    wanted = frozenset(call.query.all(NAMES))
    registry = CollectorRegistry(auto_describe=bool(wanted))  # names are needed for the selection only
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(BrokerCollector(call.context))
    source = registry.restricted_registry(wanted) if wanted else registry
    yield encode(source).removesuffix(b"# EOF\n")
    directory = call.context.broker.directory
    addresses = [address for address in directory.addresses.values() if address.settings.enable_metrics]
    yield from families(_selected(ADDRESS, wanted), addresses, address_labels, openmetrics)
    yield b""
    queues = [queue for queue in directory.queues.values() if queue.address.settings.enable_metrics]
    yield from families(_selected(QUEUE, wanted), queues, queue_labels, openmetrics)
    bridges = list(call.context.bridges.by_name.values())
    if bridges:
        yield from families(_selected(BRIDGE, wanted), bridges, bridge_labels, openmetrics)
    if openmetrics:
        yield b"# EOF\n"


def _selected(counters: tuple[Counter, ...], wanted: frozenset[str]) -> list[Counter]:  # type: ignore[type-arg]
    return [counter for counter in counters if not wanted or counter.metric in wanted]


def address_labels(address: Address) -> str:
    """The labels of an address, as text."""
    return f'{{address="{escape_label(address.name)}"}}'


def queue_labels(queue: Queue) -> str:
    """The labels of a queue, as text."""
    address, name = escape_label(queue.address.name), escape_label(queue.name)
    return f'{{address="{address}",queue="{name}",routing_type="{queue.attributes.routing_type}"}}'


def bridge_labels(bridge: Bridge) -> str:
    """The labels of a bridge, as text."""
    name, queue = escape_label(bridge.name), escape_label(bridge.configuration.queue_name)
    return f'{{bridge="{name}",queue="{queue}"}}'


FAMILIES = Parameter(
    NAMES,
    "Names of families; without it all families.",
    {"type": "array", "items": {"type": "string"}},
    component="families",
)
ROUTES = (
    Route(
        "GET",
        "/metrics",
        scrape,
        view_broker,
        "metrics",
        "Show metrics in Prometheus's text format or as OpenMetrics.",
        {
            200: Response(
                "All metrics, or the families given.",
                {"type": "string"},
                ("text/plain", "application/openmetrics-text"),
            )
        },
        parameters=(FAMILIES,),
    ),
)
