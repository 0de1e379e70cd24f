"""Percentiles from bins, steps of time, depth that is carried on, and numbers for people."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pytest.importorskip("pyspark")

from stompring.pipeline.report import plots
from stompring.pipeline.report.queries import (
    BINS,
    HOUR,
    SAMPLE_VALIDITY,
    SECOND,
    Grid,
    Period,
    SampleTimes,
    forward_filled,
    percentiles,
)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=50),
    st.sampled_from([50.0, 90.0, 99.0, 99.9, 100.0]),
)
def test_percentiles_are_those_of_the_durations_to_one_per_cent(durations, wanted):
    bins = [math.floor(math.log(each) * BINS) if each else -1 for each in durations]
    rank = math.ceil(len(durations) * wanted / 100 - 1e-9)
    exact = sorted(durations)[max(rank, 1) - 1] / 1e6
    assert percentiles(bins, [1] * len(bins), [wanted])[0] == pytest.approx(exact, rel=0.0101)


@given(st.integers(0, 10**16), st.integers(0, 10**16), st.integers(1, 300))
def test_steps_hold_all_that_they_are_for(begin, length, most):
    nice, fine = (make(begin, begin + length, most) for make in (Grid.nice, Grid.fine))
    assert nice.start % nice.step == 0 or nice == fine  # where people expect it
    for grid in (nice, fine):
        assert grid.start <= begin
        assert begin + length < grid.end
        assert 1 <= grid.count <= most


@pytest.mark.parametrize("until", [datetime(2026, 7, 1), datetime(2026, 6, 1, tzinfo=UTC)])
def test_a_period_has_a_length(until):
    with pytest.raises(ValueError, match="until"):
        Period(datetime(2026, 7, 1, tzinfo=UTC), until)


def test_depth_is_carried_on_while_it_is_known():
    grid = Grid(0, HOUR, 8)
    rows = {
        "queue": np.zeros(3, int),
        "step": np.array([3, -1, 1]),
        "time": np.array([3 * HOUR + SECOND, -HOUR, HOUR + SECOND]),
        "last": np.array([2, 5, 1]),
        "most": np.array([9, 0, 3]),
    }
    # 5 from before, to the first sample within step 1; 3 there, then 1 to the one in step 3; 9 there, then 2.
    expected = [5, 5, 1, 9, 2, 2, math.nan, math.nan]
    assert SAMPLE_VALIDITY == 2 * HOUR
    assert forward_filled(rows, grid).tolist() == pytest.approx(expected, nan_ok=True)


def depth_of_one(rows, grid):
    """The same of one queue, step by step."""
    depth = np.full(grid.count, np.nan)
    order = np.argsort(rows["step"])
    steps = rows["step"][order]
    for at, step in enumerate(steps):
        last, known = rows["last"][order[at]], rows["time"][order[at]] + max(SAMPLE_VALIDITY, grid.step)
        if step >= 0:
            depth[step] = np.fmax(depth[step], rows["most"][order[at]])
        # It is that deep up to the next sample, which may be in the middle of its step.
        until = steps[at + 1] + 1 if at + 1 < len(steps) else grid.count
        until = min(until, max(0, (known - grid.start) // grid.step + 1))
        depth[step + 1 : until] = np.fmax(depth[step + 1 : until], last)
    return depth


rows_of_a_queue = st.lists(
    st.tuples(st.integers(-1, 9), st.integers(0, 3599), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=6,
    unique_by=lambda row: row[0],
)


@given(st.lists(rows_of_a_queue, min_size=1, max_size=4))
def test_the_depth_of_several_queues_is_the_sum_of_each(queues):
    grid = Grid(0, HOUR, 10)
    each = [
        {
            "queue": np.full(len(rows), number),
            "step": np.array([step for step, *_ in rows]),
            "time": np.array([step * HOUR + second * SECOND for step, second, *_ in rows]),
            "last": np.array([last for *_, last, _ in rows]),
            "most": np.array([max(last, most) for *_, last, most in rows]),
        }
        for number, rows in enumerate(queues)
    ]
    together = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    alone = np.array([depth_of_one(one, grid) for one in each])
    expected = np.where(np.isnan(alone).all(axis=0), np.nan, np.nansum(alone, axis=0))
    assert forward_filled(together, grid).tolist() == pytest.approx(expected.tolist(), nan_ok=True)


@pytest.mark.parametrize(
    "length, spacing, step",
    [
        (5 * SECOND, SECOND // 4, SECOND // 2),  # a quarter of a second is no step that people read
        (3 * 60 * SECOND, SECOND, SECOND),
        (10 * 60 * SECOND, 10 * SECOND, 10 * SECOND),
        (10 * 60 * SECOND, 1, 5 * SECOND),
        (24 * HOUR, 10 * SECOND, 10 * 60 * SECOND),
        (7 * 24 * HOUR, 10 * SECOND, HOUR),
    ],
)
def test_steps_are_as_short_as_the_period_and_the_samples_are(length, spacing, step):
    assert Grid.nice(0, length, 240, spacing).step == step


def test_the_end_of_a_period_begins_with_a_sample():
    hour = np.arange(0, 3601) * SECOND
    assert SampleTimes.of(hour) == SampleTimes(0, HOUR, HOUR - HOUR // 10)
    assert SampleTimes.of(hour[:121]) == SampleTimes(0, 120 * SECOND, 60 * SECOND)  # a minute at least
    assert SampleTimes.of(hour[:31]) == SampleTimes(0, 30 * SECOND, 0)
    sparse = np.array([0, 3000, 3550, 3600]) * SECOND
    assert SampleTimes.of(sparse) == SampleTimes(0, HOUR, 3000 * SECOND)
    assert SampleTimes.of(hour[5:6]) == SampleTimes(5 * SECOND, 5 * SECOND, 5 * SECOND)


@pytest.mark.parametrize(
    "told, expected",
    [
        (plots.whole_text(1234567), "1,234,567"),
        (plots.count_text(9999), "9,999"),
        (plots.count_text(12345), "12.3 k"),
        (plots.count_text(2_000_000), "2 M"),
        (plots.count_text(0.25), "0.25"),
        (plots.rate_text(1.25), "1.25/s"),
        (plots.size_text(1023), "1023 B"),
        (plots.size_text(1536), "1.5 KiB"),
        (plots.size_text(100 * 2**30), "100 GiB"),
        (plots.span_text(0), "0 s"),
        (plots.span_text(0.0000015), "1.5 µs"),
        (plots.span_text(0.0123), "12 ms"),
        (plots.span_text(0.1234), "120 ms"),
        (plots.span_text(0.9996), "1 s"),
        (plots.span_text(59.9), "1 min"),
        (plots.span_text(1), "1 s"),
        (plots.span_text(5400), "1.5 h"),
        (plots.span_text(math.nan), "–"),
        (plots.share_text(1), "100 %"),
        (plots.share_text(0.99999), ">99.99 %"),
        (plots.share_text(0.00001), "<0.01 %"),
        (plots.share_text(0.125), "12.5 %"),
        (plots.share_text(0), "0 %"),
        (plots.date_text(0), "1970-01-01 00:00:00"),
    ],
)
def test_numbers_for_people(told, expected):
    assert told.replace(plots.NBSP, " ") == expected
