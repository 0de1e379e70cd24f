"""Processes that outlive a run."""

import subprocess
import sys

from .leftovers import VARIABLE, begin, end, processes


def test_a_process_that_is_left_is_named_and_killed():
    environment = {}
    run = begin(environment)
    with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE) as child:
        assert list(processes(run)) == [child.pid]
        (line,) = end(run, grace=0)
        assert line == f"process {child.pid} has outlived the run: {sys.executable} -c input()"
        assert child.wait() < 0
    assert end(run) == []


def test_a_run_within_a_run_leaves_it_to_the_other():
    assert begin({VARIABLE: "other"}) == ""
