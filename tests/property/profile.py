"""How long the property tests run: the same examples each time in CI, as many new ones as one asks for by hand."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

#: Set to run that many new random examples of each property instead of the fixed ones.
EXAMPLES = int(os.environ.get("STOMPRING_EXAMPLES", "0"))
#: `make test-long` runs all examples of tests that are quick otherwise.
LONG = bool(os.environ.get("STOMPRING_LONG"))


def examples(fixed, steps=40, quick=0):
    """Settings for a test that runs ``fixed`` examples, or ``quick`` ones (0: all) if STOMPRING_LONG is not set."""
    return settings(
        max_examples=EXAMPLES or (fixed if LONG else quick or fixed),
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def ends(seconds=120, each=1):
    """A limit for a test whose examples may never end: ``seconds``, and ``each`` for each of STOMPRING_EXAMPLES.

    It ends the process: hypothesis takes an exception in an example for its failure and runs the example again, now
    without a limit.
    """
    return pytest.mark.timeout(seconds + EXAMPLES * each, method="thread")
