"""How long the property tests run: the same examples each time, or new ones, so many times as many as one asks for."""

import os

import pytest
from hypothesis import HealthCheck, settings

#: Set to run so many times as many examples of each property, at random, instead of the fixed ones.
EXAMPLES = int(os.environ.get("STOMPRING_EXAMPLES", "0"))
#: `make test-long` runs all examples of tests that are quick otherwise.
LONG = bool(os.environ.get("STOMPRING_LONG"))
#: `make test-quick` runs the first third of the examples of `make test`.
QUICK = bool(os.environ.get("STOMPRING_QUICK"))


def examples(fixed, steps=40, quick=0):
    """Settings for a test that runs ``fixed`` examples, or ``quick`` ones (0: all) if STOMPRING_LONG is not set."""
    number = fixed if LONG else quick or fixed
    return settings(
        max_examples=max(number // 3, 1) if QUICK else number * max(EXAMPLES, 1),
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def ends(seconds=120):
    """A limit for a test whose examples may never end, so many times ``seconds`` as STOMPRING_EXAMPLES says.

    It ends the process: hypothesis takes an exception in an example for its failure and runs the example again, now
    without a limit.
    """
    return pytest.mark.timeout(seconds * max(EXAMPLES, 1), method="thread")
