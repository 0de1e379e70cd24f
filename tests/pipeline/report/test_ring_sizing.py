"""Rings of other sizes, beside a simulation message by message."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from stompring.pipeline.report.sizing import Flow, candidates, evicted, least_sizes

from .reference_broker import simulated

buckets = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


def flow(pairs, depth=0):
    came, went = np.array(pairs, np.int64).T
    return Flow(came[None], went[None], np.array([depth]))


@given(buckets, st.integers(0, 30))
def test_it_is_what_a_simulation_message_by_message_gives(pairs, depth):
    sizes = [1, 2, 3, 4, 5, 8, 13, 40]
    assert evicted(flow(pairs, depth), [sizes])[0].tolist() == [
        simulated(pairs, size, depth) for size in sizes
    ]


@given(buckets, st.integers(0, 30), st.integers(1, 12))
def test_who_emptied_a_ring_empties_a_larger_one(pairs, depth, now):
    left: list[int] = []
    simulated(pairs, now, depth, left=left)
    emptied = [not here and went > 0 for here, (_, went) in zip(left, pairs, strict=True)]
    known = flow(pairs, depth).with_sizes([now])
    assert known.emptied[0].tolist() == emptied
    sizes = [now, now + 1, now + 2, now + 10, now + 100]
    lost = evicted(known, [sizes])[0].tolist()
    assert lost == [simulated(pairs, size, depth, emptied) for size in sizes]
    assert lost == sorted(lost, reverse=True) and lost[0] == evicted(flow(pairs, depth), [[now]])[0, 0]


def test_a_dashboard_that_reads_all_there_is_now_and_then():
    known = flow([(60, 0), (0, 10)] * 24).with_sizes([10])
    assert evicted(known, [[10, 35, 60]]).tolist() == [[1200, 600, 0]]


@given(buckets, st.integers(0, 30))
def test_a_larger_ring_never_evicts_more(pairs, depth):
    lost = evicted(flow(pairs, depth), [list(range(1, 60))])[0]
    assert (np.diff(lost) <= 0).all()


@given(buckets, st.integers(0, 30))
def test_one_that_has_room_for_all_evicts_nothing(pairs, depth):
    room = depth + sum(came for came, _ in pairs)
    assert evicted(flow(pairs, depth), [[max(1, room), room + 1, room + 1000]]).tolist() == [[0, 0, 0]]


@given(buckets, st.integers(1, 5), st.integers(0, 20))
def test_the_least_size_is_the_least(pairs, size, allowed):
    found = int(least_sizes(flow(pairs), [size], [allowed])[0])
    assert found >= size
    assert simulated(pairs, found, 0) <= allowed
    assert found == size or simulated(pairs, found - 1, 0) > allowed


def test_rings_do_not_mix():
    first, second = [(5, 0), (3, 3), (0, 2)], [(1, 0), (50, 10), (7, 1)]
    came = np.array([[a for a, _ in one] for one in (first, second)])
    went = np.array([[b for _, b in one] for one in (first, second)])
    both = Flow(came, went, np.array([1, 2]))
    sizes = [[1, 4], [3, 30]]
    assert evicted(both, sizes).tolist() == [
        [simulated(first, size, 1) for size in sizes[0]],
        [simulated(second, size, 2) for size in sizes[1]],
    ]
    least = least_sizes(both, [1, 3], [0, 5]).tolist()
    assert least == [
        next(size for size in range(1, 99) if simulated(first, size, 1) <= 0),
        next(size for size in range(3, 99) if simulated(second, size, 2) <= 5),
    ]


def test_buckets_in_which_nothing_happens_change_nothing():
    full = flow([(4, 0), (0, 0), (3, 1), (0, 0)])
    assert full.busy().came.tolist() == [[4, 3]]
    assert evicted(full, [[2]]).tolist() == evicted(full.busy(), [[2]]).tolist() == [[5]]


@pytest.mark.parametrize(("low", "high"), [(1, 2), (5, 5), (1, 10**9), (100, 130)])
def test_candidates_go_from_one_end_to_the_other(low, high):
    found: Any = candidates(low, high, 33).tolist()
    assert (found[0], found[-1], len(found)) == (low, high, 33)
    assert found == sorted(found)
