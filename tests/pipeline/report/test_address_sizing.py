"""Quantiles over time, and shares of it."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from stompring.pipeline.report.findings import MemoryDemand, address_advice, share_within, weighted_quantile

pieces = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=20)


@given(pieces, st.integers(1, 100))
def test_a_quantile_is_that_of_each_second_by_itself(each, percent):
    values, weights = zip(*each, strict=True)
    seconds = sorted(value for value, weight in each for _ in range(weight))
    rank = -(-percent * len(seconds) // 100)
    assert weighted_quantile(values, weights, [percent / 100]) == [seconds[rank - 1]]


@given(pieces, st.integers(0, 60))
def test_a_share_is_that_of_each_second_by_itself(each, limit):
    values, weights = zip(*each, strict=True)
    within = sum(weight for value, weight in each if value <= limit)
    assert share_within(values, weights, [limit])[0] == pytest.approx(within / sum(weights))


def test_advice_is_on_its_own_curve():
    demand = MemoryDemand("a", np.array([0.0, 1000.0, 9000.5]), np.array([90.0, 9.0, 1.0]), 10.0, 100.0)
    advice = address_advice(demand, 99.0)
    assert (advice.size, advice.enough, advice.paging) == (1000, 9001, 0.1)
    assert advice.unpaged[advice.sizes.tolist().index(1000)] == pytest.approx(0.99)
    assert advice.unpaged[-1] == 1.0
    assert (np.diff(advice.unpaged) >= 0).all()
