"""Results of a benchmark: the JSON file, medians over rounds, and the tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from benchmarks.cases import CASES

FORMAT = 2
LATENCIES = ("p50_us", "p99_us", "p999_us", "max_us")


def machine() -> dict[str, str | int]:
    """Return the properties of the machine that the numbers depend on."""
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
    """One run of one case on one broker: the numbers of stompload and of the broker's process, or a failure."""

    case: str
    broker: str
    round: int
    numbers: dict[str, float] = field(default_factory=dict)
    failure: str | None = None


@dataclass(slots=True)
class Results:
    """All measurements of one invocation. docs/dev/performance.md describes the file format."""

    versions: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    # case → reason for leaving it out
    left_out: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    machine: dict[str, str | int] = field(default_factory=machine)
    # the options that determine the duration, and the duration in seconds
    setup: dict[str, float] = field(default_factory=dict)
    taken: str = ""

    def values(self, case: str, broker: str, name: str) -> list[float]:
        """Return one number of all valid runs."""
        return [
            run.numbers[name]
            for run in self.runs
            if run.case == case and run.broker == broker and name in run.numbers
        ]

    def median(self, case: str, broker: str, name: str) -> float | None:
        """Return the median over the rounds, None if there is no valid run."""
        found = self.values(case, broker, name)
        return statistics.median(found) if found else None

    def costs(self, case: str, broker: str) -> list[float]:
        """Return the broker's processor time in µs per delivery (per SEND in a case without consumers), by run."""
        cpu, received, sent = (
            self.values(case, broker, name) for name in ("broker_cpu_s", "received", "sent")
        )
        return [1e6 * a / max(b or c, 1) for a, b, c in zip(cpu, received, sent, strict=True)]

    def paired(
        self, case: str, before: str, after: str, name: str = "msgs_per_s"
    ) -> tuple[float, float] | None:
        """Return the medians over the rounds of the ratio of ``after`` to ``before`` within a round.

        The first is the ratio of the number ``name``, the second of the processor time. None: a round lacks a run.
        """
        first, second = (self.values(case, label, name) for label in (before, after))
        if not first or len(first) != len(second):
            return None
        costs = (self.costs(case, label) for label in (before, after))
        return _ratio(first, second), _ratio(*costs)

    def reason(self, case: str, broker: str) -> str:
        """Return why a broker has no figure for a case."""
        if broker in self.skipped:
            return f"{broker}: {self.skipped[broker]}"
        for run in self.runs:
            if run.case == case and run.broker == broker and run.failure is not None:
                return f"{case} on {broker} failed: {run.failure.splitlines()[0]}"
        return self.left_out.get(case, f"{case} was not run on {broker}")

    def failures(self) -> list[Run]:
        """Return the failed runs."""
        return [run for run in self.runs if run.failure is not None]

    def save(self, path: Path) -> None:
        """Write the JSON file."""
        self.taken = datetime.now(UTC).isoformat(timespec="seconds")
        document = asdict(self)
        # one line for each run makes a diff of two files readable
        lines = ",\n".join(f"  {json.dumps(run)}" for run in document.pop("runs"))
        head = json.dumps({"format": FORMAT} | document, indent=1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{head[:-2]},\n "runs": [\n{lines}\n ]\n}}\n')

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of `save`. Raises `ValueError` for another format."""
        document = json.loads(path.read_text())
        if document.get("format") != FORMAT:
            raise ValueError(f"{path}: format {document.get('format')} is not {FORMAT}")
        document["runs"] = [Run(**run) for run in document["runs"]]
        return cls(**{one.name: document[one.name] for one in fields(cls)})

    def tables(self, ours: str) -> str:
        """Return all tables as Markdown: rates, ratios, processor time, latency."""
        parts = [f"{name} {version}" for name, version in self.versions.items()]
        tables = (self.rates(), self.ratios(ours), self.processor_times(), self.latencies())
        return "\n".join([", ".join(parts) + "\n", *filter(None, tables)])

    def brokers(self) -> list[str]:
        """Return the brokers with a run, in the order of their start."""
        return [name for name in self.versions if any(run.broker == name for run in self.runs)]

    def cases(self, latency: bool = False) -> list[str]:
        """Return the cases with runs, in the order of `CASES`."""
        seen = {run.case for run in self.runs}
        return [name for name, case in CASES.items() if name in seen and case.latency == latency]

    def rates(self, brokers: Sequence[str] | None = None, cases: Sequence[str] | None = None) -> str:
        """Return the table of messages per second: the median, the minimum and the maximum."""
        return self._table("messages per second", self._spread, brokers, cases)

    def ratios(self, ours: str, brokers: Sequence[str] | None = None) -> str:
        """Return the table of the ratios of ``ours`` to each other broker."""
        peers = [name for name in (self.brokers() if brokers is None else brokers) if name != ours]
        if ours not in self.versions or not peers or not self.cases():
            return ""
        rows = []
        for case in self.cases():
            one = self.median(case, ours, "msgs_per_s")
            others = [self.median(case, peer, "msgs_per_s") for peer in peers]
            if any(others):
                rows.append([case, *(f"{one / other:.2f}" if one and other else "" for other in others)])
        return markdown([f"{ours} / other", *peers], rows)

    def processor_times(
        self, brokers: Sequence[str] | None = None, cases: Sequence[str] | None = None
    ) -> str:
        """Return the table of the broker's processor time per delivery: medians in µs."""

        def cost(case: str, broker: str) -> str:
            each = self.costs(case, broker)
            return f"{statistics.median(each):.2f}" if each else ""

        return self._table("broker's µs of processor time per delivery", cost, brokers, cases)

    def latencies(self, brokers: Sequence[str] | None = None) -> str:
        """Return the tables of latency percentiles at a fixed rate."""
        tables = []
        for case in self.cases(latency=True):
            rows = []
            for broker in self.brokers() if brokers is None else brokers:
                found = [self.median(case, broker, name) for name in LATENCIES]
                if any(found):
                    rows.append([broker, *("" if value is None else f"{value:,.0f}" for value in found)])
            tables.append(markdown([f"{case}, µs", "p50", "p99", "p99.9", "max"], rows))
        return "\n".join(tables)

    def _spread(self, case: str, broker: str) -> str:
        found = self.values(case, broker, "msgs_per_s")
        if not found:
            return ""
        middle = f"{statistics.median(found):,.0f}"
        return middle if len(found) == 1 else f"{middle} ({min(found):,.0f}–{max(found):,.0f})"

    def _table(
        self,
        title: str,
        cell: Callable[[str, str], str],
        brokers: Sequence[str] | None,
        cases: Sequence[str] | None,
    ) -> str:
        columns = self.brokers() if brokers is None else brokers
        rows = []
        for case in self.cases() if cases is None else cases:
            cells = [cell(case, broker) for broker in columns]
            if any(cells):
                rows.append([case, *cells])
        return markdown([title, *columns], rows) if rows else ""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table with aligned columns."""
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
