"""What a run reports at its end."""

import json
from types import SimpleNamespace

import pytest

from .summary import RunReport, Totals, counted

STATS = {
    "passed": [None] * 17000,
    "failed": [None],
    "error": [None],
    "warnings": [None],
    "skipped": [
        SimpleNamespace(longrepr=("test.py", 1, f"Skipped: {reason}"))
        for reason in (
            "a C compiler is not installed",
            "takes long",
            *["Artemis 2.44.0 is not installed: run it"] * 2,
        )
    ],
}
TRIAL = "[SKIPPED]\nphp is not installed\n\nserver.test\n\nRan 9 tests\n\nFAILED (skips=1, failures=1, successes=7)\n"


@pytest.mark.parametrize(
    "stats, trial, line",
    [
        ({"passed": [None]}, "PASSED (successes=204)\n", "205 passed, 0 failed, 0 skipped."),
        (
            STATS,
            TRIAL,
            "17007 passed, 3 failed, 5 skipped. Not tested here: Artemis 2, C compiler 1, php 1"
            " (.ci/run installs what it can).",
        ),
        ({}, "Traceback", "0 passed, 1 failed, 0 skipped."),
        (None, "PASSED (successes=204)\n", "204 passed, 1 failed, 0 skipped."),
    ],
)
def test_both_runners_are_counted(stats, trial, line):
    totals = Totals()
    totals.add_pytest("" if stats is None else json.dumps(counted(stats)))
    totals.add_trial(trial)
    assert totals.last_line() == line


def test_faults_and_builds_are_named():
    totals = Totals()
    totals.add_pytest(json.dumps({"passed": 3, "faults": 2, "spark": True, "reasons": []}))
    assert totals.spark
    line = "3 passed, 0 failed, 0 skipped. 2 more faults: see above. Compiled: yes. Spark: no."
    assert totals.last_line(compiled="yes", spark="no") == line


def test_an_expensive_case_fails_the_run():
    report = RunReport(workers=True)
    properties = [("processor time", 9.04), ("too expensive", 6.0)]
    case = SimpleNamespace(
        when="call", passed=True, keywords={"spark": 1}, nodeid="a", user_properties=properties
    )
    report.pytest_runtest_logreport(case)
    assert report.spark
    assert report.faults == [
        "a took 9.0 s of processor time, more than 6.0 s: make it cheaper, or mark it `long`"
    ]
