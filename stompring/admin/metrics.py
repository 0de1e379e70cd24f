"""``GET /metrics`` in Prometheus's text format or as OpenMetrics. docs/metrics.md has the meaning of each metric.

prometheus_client renders the metrics that exist once (process, build, broker). This module renders the metrics of
addresses and queues itself, in pieces: the objects that prometheus_client creates for each sample would take ten times
as long with ten thousand samples.

The first request imports prometheus_client, in about 10 ms: a broker without such requests needs 1 MB less.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import twisted

import stompring
from stompring.broker.address import Address
from stompring.broker.bridge import Bridge
from stompring.broker.queue import Queue
from stompring.replication.role import Role

from .api import Answer, Call, Parameter, Response, route, view_broker
from .context import ITEMS_PER_STEP, AdminContext
from .counters import (
    ADDRESS,
    BRIDGE,
    BROKER,
    DIVERT,
    QUEUE,
    Counter,
    families_of,
    help_text,
    labelled_families,
)
from .ha import ha_families
from .json_schema import TEXT, Thing

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

#: Sample lines per piece: about 64 KiB, which a transport buffers before it pauses its producer.
LINES_PER_PIECE = 500

PAUSE = b""

#: The labels of a queue, an address or a bridge as text, and its numbers. The garbage collector stops tracking such
#: tuples, because they contain only text and numbers.
Row = tuple[str, tuple[Any, ...]]


def escape_label(value: str) -> str:
    """The value of a label with the escapes of the text format."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def families(
    counters: Sequence[Counter[Thing]],
    wanted: frozenset[str],
    things: Iterable[Thing],
    labels: Callable[[Thing], str],
    openmetrics: bool,
) -> Iterator[bytes]:
    """Yield the lines of all families, or of the ``wanted`` ones. In both formats all samples of a family are adjacent.

    First reads the numbers of all things: those of one thing in one step, so that they are consistent. Then yields the
    lines. A queue or address may be deleted between two steps.
    """
    counters = [counter for counter in counters if not wanted or counter.metric in wanted]
    if not counters:
        return
    reads = [counter.read for counter in counters]
    rows: list[Row] = []
    for index, thing in enumerate(things):
        rows.append((labels(thing), tuple([read(thing) for read in reads])))
        if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
            yield PAUSE
    for column, counter in enumerate(counters):
        name = counter.metric
        kind = "counter" if name.endswith("_total") else "gauge"
        if openmetrics:  # HELP and TYPE name a counter without _total
            name = name.removesuffix("_total")
        yield f"# HELP {name} {help_text(counter)}\n# TYPE {name} {kind}\n".encode()
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


class Families:
    """A collector for prometheus_client: the versions of this process, and the metrics that a function yields."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The families that have a sample."""
        from prometheus_client.core import InfoMetricFamily

        build = {
            "version": stompring.__version__,
            "build": stompring.build(),
            "python": platform.python_version(),
            "twisted": twisted.__version__,
        }
        yield InfoMetricFamily("stompring_build", "Version of stompring and of its runtime.", value=build)
        yield from self._families()


def process_registry(
    families: Callable[[], Iterable[Metric]], *, describe: bool = False
) -> CollectorRegistry:
    """Return a registry of the metrics of this process and of the ``families``.

    ``describe``: whether a request may select families by name.
    """
    from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

    registry = CollectorRegistry(auto_describe=describe)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(cast("Collector", Families(families)))
    return registry


def broker_families(context: AdminContext) -> Iterator[Metric]:
    """The families of the broker that have a sample."""
    policies, diverts = context.broker.policies, context.broker.diverts.by_name
    yield from families_of(context, BROKER)
    yield from labelled_families(
        "stompring_policy_errors_total",
        "Exceptions and invalid results of address policy hooks, by policy and hook. JSON: policyErrors.",
        "policy hook",
        policies.errors.items(),
    )
    yield from labelled_families(
        "stompring_policy_slow_hooks_total",
        "Calls of address policy hooks that took longer than 20 ms, by policy and hook.",
        "policy hook",
        policies.slow_hooks.items(),
    )
    for counter in DIVERT:
        yield from labelled_families(
            counter.metric,
            help_text(counter),
            "divert",
            [(name, counter.read(divert)) for name, divert in diverts.items()],
        )
    yield from ha_families(context.node, Role.ACTIVE)
    listeners = context.listener_stack
    yield from labelled_families(
        "stompring_certificate_expiry_timestamp_seconds",
        "Expiry time of the certificate chain of an acceptor.",
        "acceptor file subject",
        [
            ((acceptor, each.file, each.subject), each.not_after.timestamp())
            for acceptor, each in listeners.identities()
        ],
    )
    yield from labelled_families(
        "stompring_tls_failures_total",
        "Connections closed by a TLS error, most of them in the handshake.",
        "acceptor",
        listeners.tls_failures.items(),
    )
    yield from labelled_families(
        "stompring_proxy_failures_total",
        "Connections closed because their PROXY header is missing, invalid or not allowed.",
        "acceptor",
        listeners.proxy_failures.items(),
    )
    yield from labelled_families(
        "stompring_refusals_total",
        "Connections, frames and requests rejected because a limit was reached, by limit. JSON: refusals.",
        "limit",
        context.broker.rejections.counts.items(),
    )


def _pieces(call: Call, encode: Callable[[Collector], bytes], openmetrics: bool) -> Iterator[bytes]:
    wanted = frozenset(call.query.all(NAMES))
    registry = process_registry(partial(broker_families, call.context), describe=bool(wanted))
    yield encode(registry.restricted_registry(wanted) if wanted else registry).removesuffix(b"# EOF\n")
    directory = call.directory
    addresses = [address for address in directory.addresses.values() if address.settings.enable_metrics]
    yield from families(ADDRESS, wanted, addresses, address_labels, openmetrics)
    yield b""
    queues = [queue for queue in directory.queues.values() if queue.address.settings.enable_metrics]
    yield from families(QUEUE, wanted, queues, queue_labels, openmetrics)
    bridges = list(call.context.bridges.by_name.values())
    if bridges:
        yield from families(BRIDGE, wanted, bridges, bridge_labels, openmetrics)
    if openmetrics:
        yield b"# EOF\n"


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
    {"type": "array", "items": TEXT},
    component="families",
)


@route(
    "GET /metrics",
    view_broker,
    Response(
        "All metrics, or the families given.",
        TEXT,
        ("text/plain", "application/openmetrics-text"),
    ),
    parameters=(FAMILIES,),
)
def show_metrics(call: Call) -> Answer:
    """Show metrics in Prometheus's text format or as OpenMetrics."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(call.accept)
    return Answer(_pieces(call, encode, content_type.startswith(OPENMETRICS)), content_type=content_type)
