"""The last line of ``make test``: the counts of both runners, and the missing tools with the tests that each skips.

pytest leaves its counts in a file (option ``--counts``), trial prints them. A reason of a skip that begins with
``TOOL is not installed`` names a tool.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TOOL = re.compile(r"(?:Skipped: )?(?:an? )?(.+?)(?: \d[\d.]*)? is not installed")
TRIAL = re.compile(r"^(?:PASSED|FAILED) \((.*)\)$", re.M)

#: Outcomes as the runners name them, and how each counts.
KINDS = {
    **dict.fromkeys(("passed", "xfailed", "successes", "expectedFailures"), "passed"),
    **dict.fromkeys(("failed", "error", "xpassed", "failures", "errors", "unexpectedSuccesses"), "failed"),
    **dict.fromkeys(("skipped", "skips"), "skipped"),
}


def counted(stats: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The counts of a run of pytest, by its terminal reporter."""
    counts = {kind: len(reports) for kind, reports in stats.items() if kind in KINDS}
    return {**counts, "reasons": [report.longrepr[2] for report in stats.get("skipped", ())]}


def last_line(pytest: str, trial: str) -> str:
    """The line, from the counts of pytest and the output of trial. A runner without counts has failed."""
    counts: dict[str, Any] = json.loads(pytest) if pytest else {"failed": 1}
    reasons = [*counts.pop("reasons", ()), *re.findall(r"^\[SKIPPED\]\n(.+)$", trial, re.M)]
    ended = TRIAL.findall(trial)
    of_trial = re.findall(r"(\w+)=(\d+)", ended[-1]) if ended else [("failures", "1")]
    total: Counter[str] = Counter()
    for kind, count in (*counts.items(), *of_trial):
        total[KINDS[kind]] += int(count)
    line = f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped."
    tools = Counter(found[1] for reason in reasons if (found := TOOL.match(reason)))
    if not tools:
        return line
    missing = ", ".join(f"{tool} {count}" for tool, count in tools.most_common())
    return f"{line} Not tested here: {missing} (.ci/run installs what it can)."


if __name__ == "__main__":
    print(last_line(*(Path(file).read_text(encoding="utf-8") for file in sys.argv[1:3])))
