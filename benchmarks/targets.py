"""The targets of the benchmark: ratios of medians over the rounds, or limits of a figure."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.results import Results

OURS = "stompring"


@dataclass(frozen=True, slots=True)
class Target:
    """A minimum (or maximum) ``ratio`` of ``field`` in ``case`` between stompring and a peer.

    Without a peer ``ratio`` is the limit of the figure itself, in ``unit``.
    """

    case: str
    peer: str | None
    ratio: float
    field: str = "msgs_per_s"
    peer_case: str | None = None
    below: bool = False
    unit: str = ""

    def __str__(self) -> str:
        sense = "at most" if self.below else "at least"
        what = f"{self.case} ({FIELDS.get(self.field, self.field)})"
        if self.peer is None:
            return f"{what}: {sense} {self.ratio:,g}{self.unit and ' ' + self.unit}"
        other = self.peer if self.peer_case is None else f"{self.peer_case} on {self.peer}"
        return f"{what}: {sense} {self.ratio:.3g} times {other}"

    def found(self, results: Results) -> float | None:
        """Return the ratio, or the figure; None: not measured."""
        ours = results.median(self.case, OURS, self.field)
        if self.peer is None or ours is None:
            return ours
        theirs = results.median(self.peer_case or self.case, self.peer, self.field)
        return ours / theirs if theirs else None

    def reached(self, results: Results) -> bool | None:
        """Return whether the target is reached; None: not measured."""
        found = self.found(results)
        return None if found is None else (found <= self.ratio if self.below else found >= self.ratio)

    def reason(self, results: Results) -> str:
        """Return why there is no figure."""
        for broker, case in ((OURS, self.case), (self.peer, self.peer_case or self.case)):
            if broker is not None and results.median(case, broker, self.field) is None:
                return results.reason(case, broker)
        return ""

    def verdict(self, results: Results) -> str:
        """Return reached or missed with the figure, or not measured with the reason."""
        found = self.found(results)
        if found is None:
            return f"not measured: {self.reason(results)}"
        return verdict(found, self.ratio, self.below)


def verdict(found: float, limit: float, below: bool = False) -> str:
    """Format a figure, and whether it is at least the limit (``below``: at most)."""
    return f"{'reached' if (found <= limit if below else found >= limit) else 'MISSED'}: {found:,.2f}"


FIELDS = {
    "msgs_per_s": "rate",
    "p50_us": "p50",
    "p99_us": "p99",
    "p999_us": "p99.9",
    "disk_ratio": "round trip / disk",
    "in_per_s": "in",
    "out_per_s": "out",
    "peak_mb": "peak memory",
    "rest_mb": "memory at rest",
    "stuck_ratio": "others while stuck",
    "draining_ratio": "others while it drains",
    "start_s": "start",
    "overhead_bytes": "memory beyond the frame",
}

THIRD = 1 / 3

TARGETS = (
    Target("auto", "relay", 0.5),
    Target("auto", "artemis", 10),
    Target("auto", "nats-server", 1),
    Target("client-individual", "artemis", 5),
    Target("unique-headers", "artemis", 5),
    Target("selector", "artemis", 5),
    Target("fan-out", "artemis", 12),
    Target("fan-out", "nats-server", 1),
    Target("receipts", "artemis", 1.8),
    Target("receipts", "activemq", 1.8),
    Target("receipt-one", "artemis", 1.2),
    Target("body-100k", "rabbitmq", 1.2),
    Target("body-1m", "rabbitmq", 1.2),
    Target("persistent", "rabbitmq", 3),
    Target("durable-held", "artemis", 3),
    Target("durable-one", "artemis", 1.2),
    Target("durable-one", None, 1.5, field="disk_ratio", below=True),
    Target("latency", None, 50, field="p50_us", below=True, unit="µs"),
    Target("latency", "rabbitmq", THIRD, field="p99_us", below=True),
    Target("latency", "activemq", THIRD, field="p99_us", below=True),
    Target("latency", "artemis", THIRD, field="p99_us", below=True),
    Target("latency", "nats-server", 2, field="p999_us", below=True),
    Target("deep-queue", None, 200_000, field="in_per_s", unit="/s"),
    Target("deep-queue", None, 150_000, field="out_per_s", unit="/s"),
    Target("deep-queue", None, 160, field="peak_mb", below=True, unit="MB"),
    Target("websocket", OURS, 0.9, peer_case="auto"),
    Target("tls", OURS, 0.85, peer_case="auto"),
    Target("tls", "relay", 0.95),
    Target("idle", None, 60, field="rest_mb", below=True, unit="MB"),
    Target("stuck-subscriber", None, 0.9, field="stuck_ratio"),
    Target("stuck-subscriber", None, 0.9, field="draining_ratio"),
    Target("drain", None, 2000, field="p99_us", below=True, unit="µs"),
    Target("start", None, 2, field="start_s", below=True, unit="s"),
    Target("start-ring", None, 2, field="start_s", below=True, unit="s"),
    Target("start-last-value", None, 2, field="start_s", below=True, unit="s"),
    Target("start-non-destructive", None, 2, field="start_s", below=True, unit="s"),
    Target("held-memory", None, 400, field="overhead_bytes", below=True, unit="bytes"),
    # earlier targets that no later one includes
    Target("durable-receipts", "rabbitmq", 3),
    Target("durable-receipts", "activemq", 10),
    Target("durable-held", "rabbitmq", 3),
    Target("durable-held", "activemq", 10),
    Target("selector", OURS, 0.5, peer_case="unique-headers"),
)
