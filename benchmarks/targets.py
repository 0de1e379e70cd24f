"""What the benchmark is meant to reach, each as a ratio that is computed from the medians."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.results import Results

OURS = "stompring"


@dataclass(frozen=True, slots=True)
class Target:
    """``field`` of ``case`` on stompring is at least (or below) ``ratio`` times that of the peer."""

    case: str
    peer: str
    ratio: float
    field: str = "msgs_per_s"
    peer_case: str | None = None
    below: bool = False

    def __str__(self) -> str:
        other = self.peer if self.peer_case is None else f"{self.peer_case} on {self.peer}"
        sense = "below" if self.below else "at least"
        return f"{self.case} ({self.field}): {sense} {self.ratio:g} times {other}"

    def verdict(self, results: Results) -> str:
        """Reached, missed with the ratio found, or not measured."""
        ours = results.median(self.case, OURS, self.field)
        theirs = results.median(self.peer_case or self.case, self.peer, self.field)
        if ours is None or theirs is None or not theirs:
            return "not measured"
        found = ours / theirs
        return verdict(found, self.ratio, self.below)


def verdict(found: float, limit: float, below: bool = False) -> str:
    """What a program prints behind a target: the figure, and whether it is within (or at least) the limit."""
    return f"{'reached' if (found <= limit if below else found >= limit) else 'MISSED'}: {found:,.2f}"


TARGETS = (
    Target("auto", "rabbitmq", 5),
    Target("auto", "activemq", 2.5),
    Target("client-individual", "rabbitmq", 4),
    Target("fan-out", "activemq", 3),
    Target("latency", "rabbitmq", 1, field="p99_us", below=True),
    Target("latency", "activemq", 1, field="p99_us", below=True),
    Target("durable-receipts", "rabbitmq", 3),
    Target("durable-receipts", "activemq", 10),
    Target("durable-held", "rabbitmq", 3),
    Target("durable-held", "activemq", 10),
    Target("selector", OURS, 0.5, peer_case="unique-headers"),
)
