"""Rings of other sizes, beside a simulation message by message."""

# ruff: noqa: E402 - modules are imported where their libraries are installed

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from stompring.pipeline.report.findings import Flow, candidates, evicted, least_sizes

from .reference_broker import simulated

buckets = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


def flow(pairs, depth=0):
    came, went = np.array(pairs, np.int64).T
    return Flow(came[None], went[None], np.array([depth]))


@given(buckets, st.integers(0, 30))
def test_it_is_what_a_simulation_message_by_message_gives(pairs, depth):
    sizes = [1, 2, 3, 4, 5, 8, 13, 40, 1000]
    lost = [simulated(pairs, size, depth) for size in sizes]
    whole = flow(pairs, depth)
    assert evicted(whole, [sizes])[0].tolist() == evicted(whole.busy(), [sizes])[0].tolist() == lost


@given(st.lists(st.tuples(*[st.tuples(st.integers(0, 9), st.integers(0, 9))] * 2), min_size=1, max_size=9))
def test_rings_do_not_mix(pairs):
    both = [*zip(*pairs, strict=True)]
    came, went = np.array(both).transpose(2, 0, 1)
    rings = Flow(came, went, np.array([1, 2]))
    first, second = flow(both[0], 1), flow(both[1], 2)
    assert evicted(rings, [[1, 4], [3, 30]]).tolist() == [
        *evicted(first, [[1, 4]]).tolist(),
        *evicted(second, [[3, 30]]).tolist(),
    ]
    assert [*least_sizes(rings, [1, 3], [0, 5])] == [
        *least_sizes(first, [1], [0]),
        *least_sizes(second, [3], [5]),
    ]


@given(buckets, st.integers(0, 30), st.integers(1, 12))
def test_who_emptied_a_ring_empties_a_larger_one(pairs, depth, now):
    left = []
    simulated(pairs, now, depth, left=left)
    emptied = [not here and went > 0 for here, (_, went) in zip(left, pairs, strict=True)]
    known = flow(pairs, depth).with_sizes([now])
    assert known.emptied[0].tolist() == emptied
    sizes = [now, now + 1, now + 2, now + 10, now + 100]
    lost = evicted(known, [sizes])[0].tolist()
    assert lost == [simulated(pairs, size, depth, emptied) for size in sizes]
    assert lost == sorted(lost, reverse=True) and lost[0] == evicted(flow(pairs, depth), [[now]])[0, 0]


@given(buckets, st.integers(1, 5), st.integers(0, 20))
def test_the_least_size_is_the_least(pairs, size, allowed):
    found = int(least_sizes(flow(pairs), [size], [allowed])[0])
    assert found >= size
    assert simulated(pairs, found, 0) <= allowed
    assert found == size or simulated(pairs, found - 1, 0) > allowed


@pytest.mark.parametrize("low, high", [(1, 2), (5, 5), (1, 10**9), (100, 130)])
def test_candidates_go_from_one_end_to_the_other(low, high):
    found = candidates(low, high, 33).tolist()
    assert (found[0], found[-1], len(found)) == (low, high, 33)
    assert found == sorted(found)
