"""Patience grows with the load of the machine."""

import os
import subprocess
import sys

import pytest

from .waiting import Deadline, children, delays, until


class Machine:
    """A clock, and the delays of two processes."""

    def __init__(self):
        self.now = 0.0
        self.lost = {1: 5.0}

    def deadline(self, seconds):
        return Deadline(seconds, lambda: self.now, lambda: self.lost)


@pytest.mark.parametrize(
    "now, lost, left",
    [
        (9, {1: 5}, 1),
        (10, {1: 5}, 0),
        (10, {1: 8}, 3),
        (10, {1: 6, 2: 4}, 4),
        (30, {1: 1000}, 20),
        (50, {1: 1000}, 0),
        (12, {}, -2),
    ],
)
def test_a_deadline_moves_by_the_time_that_a_process_lost(now, lost, left):
    machine = Machine()
    deadline = machine.deadline(10)
    machine.now, machine.lost = now, lost
    assert deadline.left() == left
    assert deadline.passed() == (left <= 0)


def test_this_process_and_its_children_are_looked_at():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children()
        assert {os.getpid(), child.pid} <= set(delays())


def test_a_condition_is_awaited():
    turns = iter([False, False, True])
    until(lambda: next(turns), "never")
    with pytest.raises(AssertionError, match="still 7"):
        until(lambda: False, lambda: "still 7", 0.01)
