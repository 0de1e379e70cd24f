"""The last line of ``make test``."""

import json
from types import SimpleNamespace

import pytest

from .summary import counted, last_line

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
    ("stats", "trial", "line"),
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
    assert last_line("" if stats is None else json.dumps(counted(stats)), trial) == line
