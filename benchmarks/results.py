"""Results of a benchmark: the JSON file, medians over rounds, and the tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.cases import CASES

FORMAT = 1
LATENCIES = ("p50_us", "p99_us", "p999_us", "max_us")


def machine() -> dict[str, str | int]:
    """What the numbers depend on and another reader cannot know."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model n")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count() or 0,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "load_average": f"{os.getloadavg()[0]:.2f}",
    }


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one case on one broker: what stompload and the broker's process told, or why it failed."""

    case: str
    broker: str
    round: int
    numbers: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(slots=True)
class Results:
    """Everything one invocation measured. The file format is described in docs/performance.md."""

    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    machine: dict[str, str | int] = field(default_factory=machine)

    def values(self, case: str, broker: str, name: str) -> list[float]:
        """One number of all valid runs."""
        return [
            run.numbers[name]
            for run in self.runs
            if run.case == case and run.broker == broker and name in run.numbers
        ]

    def median(self, case: str, broker: str, name: str) -> float | None:
        """The median over the rounds, None when there is no valid run."""
        found = self.values(case, broker, name)
        return statistics.median(found) if found else None

    def costs(self, case: str, broker: str) -> list[float]:
        """Microseconds of the broker's processor time for a delivery (a SEND where nobody consumes), by run."""
        cpu, received, sent = (
            self.values(case, broker, name) for name in ("broker_cpu_s", "received", "sent")
        )
        return [1e6 * a / max(b or c, 1) for a, b, c in zip(cpu, received, sent, strict=True)]

    def paired(
        self, case: str, before: str, after: str, name: str = "msgs_per_s"
    ) -> tuple[float, float] | None:
        """Medians over the rounds of what ``after`` did as a part of what ``before`` did in the same round.

        Of the number ``name``, and of the processor time; None where not every round has both.
        """
        first, second = (self.values(case, label, name) for label in (before, after))
        if not first or len(first) != len(second):
            return None
        costs = (self.costs(case, label) for label in (before, after))
        return _ratio(first, second), _ratio(*costs)

    def failures(self) -> list[Run]:
        """The runs without a number."""
        return [run for run in self.runs if run.failure is not None]

    def save(self, path: Path) -> None:
        """Writes the JSON file."""
        document = {"format": FORMAT, "taken": datetime.now(UTC).isoformat(timespec="seconds")} | asdict(self)
        path.write_text(json.dumps(document, indent=1) + "\n")

    def tables(self, ours: str) -> str:
        """Rates with ratios, latencies, and what a message costs in processor time, as Markdown."""
        brokers = list(self.versions)
        rates = [name for name in self._cases() if not CASES[name].latency]
        parts = [f"{name} {version}" for name, version in self.versions.items()]
        tables = [", ".join(parts) + "\n"]
        if rates:
            tables.append(self._rates(rates, brokers, ours))
            tables.append(self._costs(rates, brokers))
        tables += [self._latencies(name, brokers) for name in self._cases() if CASES[name].latency]
        return "\n".join(tables)

    def _cases(self) -> list[str]:
        seen = {run.case for run in self.runs}
        return [name for name in CASES if name in seen]

    def _rates(self, cases: list[str], brokers: list[str], ours: str) -> str:
        peers = [name for name in brokers if name != ours] if ours in brokers else []
        head = ["messages per second", *brokers, *(f"{ours} / {peer}" for peer in peers)]
        rows = []
        for case in cases:
            row = [case, *(self._spread(case, broker) for broker in brokers)]
            for peer in peers:
                one, other = self.median(case, ours, "msgs_per_s"), self.median(case, peer, "msgs_per_s")
                row.append(f"{one / other:.2f}" if one and other else "")
            rows.append(row)
        return markdown(head, rows)

    def _spread(self, case: str, broker: str) -> str:
        found = self.values(case, broker, "msgs_per_s")
        if not found:
            return ""
        middle = f"{statistics.median(found):,.0f}"
        return middle if len(found) == 1 else f"{middle} ({min(found):,.0f}–{max(found):,.0f})"

    def _costs(self, cases: list[str], brokers: list[str]) -> str:
        def cost(case: str, broker: str) -> str:
            each = self.costs(case, broker)
            return f"{statistics.median(each):.1f}" if each else ""

        rows = [[case, *(cost(case, broker) for broker in brokers)] for case in cases]
        return markdown(["broker's µs of processor time per delivery", *brokers], rows)

    def _latencies(self, case: str, brokers: list[str]) -> str:
        rows = []
        for broker in brokers:
            found = [self.median(case, broker, name) for name in LATENCIES]
            rows.append([broker, *("" if value is None else f"{value:,.0f}" for value in found)])
        return markdown([f"{case}, µs", "p50", "p99", "p99.9", "max"], rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned for reading as text."""
    table = [head, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in table
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines) + "\n"


def _ratio(before: list[float], after: list[float]) -> float:
    return statistics.median(b / max(a, 1e-9) for a, b in zip(before, after, strict=True))
