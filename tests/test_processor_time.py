"""Processor time of a case."""

import subprocess
import sys
import time

import pytest

from .processor_time import LIMIT, Spent, limit

BUSY = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def process():
    return subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize("ends", [True, False])
def test_processes_that_a_case_started_count(ends):
    before = Spent.now()
    with process() as child:
        child.stdout.readline()
        if ends:
            child.communicate(b"\n")
        assert 0.25 < Spent.now().since(before) < 3


def test_shared_processes_and_waiting_do_not():
    with process() as child:
        child.stdout.readline()
        before = Spent.now()
        time.sleep(0.5)
        assert Spent.now().since(before) < 0.2
        child.communicate(b"\n")
        assert -0.1 < Spent.now().since(before) < 0.25


def test_a_slow_processor_has_more():
    assert LIMIT <= limit() < 100 * LIMIT
