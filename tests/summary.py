"""What a run of the tests reports at its end: its most expensive cases, what makes it fail besides, and the last line.

pytest leaves its counts in a file (option ``--counts``), trial prints them. A reason of a skip that begins with
``TOOL is not installed`` names a tool. A run fails as well if a case takes too much processor time
(`tests/processor_time.py`) or if a process outlives the run (`tests/leftovers.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from . import leftovers
from .processor_time import EXPENSIVE, LIMIT, Spent, limit

TOOL = re.compile(r"(?:Skipped: )?(?:an? )?(.+?)(?: \d[\d.]*)? is not installed")
TRIAL = re.compile(r"^(?:PASSED|FAILED) \((.*)\)$", re.M)

#: Outcomes as the runners name them, and how each counts.
KINDS = {
    **dict.fromkeys(("passed", "xfailed", "successes", "expectedFailures"), "passed"),
    **dict.fromkeys(("failed", "error", "xpassed", "failures", "errors", "unexpectedSuccesses"), "failed"),
    **dict.fromkeys(("skipped", "skips"), "skipped"),
}

#: Number of cases that are printed with their processor time.
SHOWN = 10


class ProcessorTime:
    """Measures each case in the process that runs it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        before = Spent.now()
        try:
            yield
        finally:
            seconds = Spent.now().since(before)
            item.user_properties.append(("processor time", seconds))
            if seconds > LIMIT and not exempt(item) and seconds > (most := limit()):
                item.user_properties.append(("too expensive", most))


def exempt(item: pytest.Item) -> bool:
    """Whether a case may take any time: also where more examples were asked for than the fixed ones."""
    if os.environ.get("STOMPRING_EXAMPLES") or os.environ.get("STOMPRING_LONG"):
        return True
    return item.get_closest_marker("long") is not None or item.nodeid.partition("::")[0] in EXPENSIVE


class RunReport:
    """Collects and prints what is said at the end, in the process that collects the reports of all."""

    def __init__(self, workers: bool) -> None:
        # without workers the brokers and the Java of this process end with it, after the report
        self.run = leftovers.begin(os.environ) if workers else ""
        self.faults: list[str] = []
        self.costs: dict[str, float] = {}
        self.spark = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        self.spark |= report.passed and "spark" in report.keywords
        said: dict[str, Any] = dict(report.user_properties)
        self.costs[report.nodeid] = said.get("processor time", 0.0)
        if (most := said.get("too expensive")) is not None:
            self.faults.append(
                f"{report.nodeid} took {self.costs[report.nodeid]:.1f} s of processor time, more than {most:.1f} s:"
                " make it cheaper, or mark it `long`"
            )

    @pytest.hookimpl(trylast=True)  # after pytest-xdist, which ends its processes then
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.faults += leftovers.end(self.run) if self.run else []
        if self.faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        dearest = sorted(self.costs.items(), key=lambda each: -each[1])[:SHOWN]
        if dearest and dearest[0][1] > 1:
            terminalreporter.section("most processor time")
            for name, seconds in dearest:
                terminalreporter.line(f"{seconds:6.2f} s {name}")
        if self.faults:
            terminalreporter.section("this run has failed", red=True)
            for fault in self.faults:
                terminalreporter.line(fault)
        if file := config.getoption("counts"):
            counts = counted(terminalreporter.stats) | {"faults": len(self.faults), "spark": self.spark}
            Path(file).write_text(json.dumps(counts))


def counted(stats: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The counts of a run of pytest, by its terminal reporter."""
    counts = {kind: len(reports) for kind, reports in stats.items() if kind in KINDS}
    return {**counts, "reasons": [report.longrepr[2] for report in stats.get("skipped", ())]}


class Totals:
    """The counts of all runners. A runner without counts has failed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: list[str] = []
        self.faults = 0
        self.spark = False

    def add_pytest(self, text: str) -> None:
        """The content of the file of ``--counts``, or nothing."""
        counts: dict[str, Any] = json.loads(text) if text else {"failed": 1}
        self.reasons += counts.pop("reasons", ())
        self.faults += counts.pop("faults", 0)
        self.spark |= counts.pop("spark", False)
        self._add(counts.items())

    def add_trial(self, output: str) -> None:
        """The output of trial."""
        self.reasons += re.findall(r"^\[SKIPPED\]\n(.+)$", output, re.M)
        ended = TRIAL.findall(output)
        self._add(re.findall(r"(\w+)=(\d+)", ended[-1]) if ended else [("failures", "1")])

    def _add(self, counts: Iterable[tuple[str, Any]]) -> None:
        for kind, count in counts:
            self.counts[KINDS[kind]] += int(count)

    def missing(self) -> Counter[str]:
        """The tools that were missing, and how many tests each skips."""
        return Counter(found[1] for reason in self.reasons if (found := TOOL.match(reason)))

    def last_line(self, **built: str) -> str:
        """The line. ``built``: what else was tested or not, and why."""
        counts = self.counts
        parts = [f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped."]
        if self.faults:
            parts.append(f"{self.faults} more faults: see above.")
        if tools := self.missing():
            names = ", ".join(f"{tool} {count}" for tool, count in tools.most_common())
            parts.append(f"Not tested here: {names} (.ci/run installs what it can).")
        parts += [f"{name.capitalize()}: {answer}." for name, answer in built.items()]
        return " ".join(parts)
