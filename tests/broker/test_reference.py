"""The lazy lists of a queue."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompring.broker.message import Message, Traits
from stompring.broker.reference import DELIVERING, GONE, PENDING, PendingList, Reference, ReferenceRun

from .broker_fixture import BrokerFixture

ADDRESS = BrokerFixture().address("a")


def reference(sequence, priority=4):
    message = Message(sequence, ADDRESS, Traits(b"", priority=priority), b"", 0)
    return Reference(message, None, PENDING)


def sequences(pending):
    return [ref.sequence for ref in pending]


def filled(*sequences):
    pending, refs = PendingList(), {}
    for sequence in sequences:
        refs[sequence] = reference(sequence)
        pending.append(refs[sequence])
    return pending, refs


def test_highest_priority_first_then_oldest():
    pending = PendingList()
    for sequence, priority in enumerate([4, 9, 0, 9, 4]):
        pending.append(reference(sequence, priority))
    assert sequences(pending) == [1, 3, 0, 4, 2]
    assert pending.head().sequence == 1


def test_sweep_drops_references_that_are_not_pending():
    pending, refs = filled(*range(1000))
    for sequence in range(0, 1000, 2):
        refs[sequence].state = GONE
    pending.sweep(500)
    assert pending.size == 1000, "not more than half are leftovers yet"
    for sequence in range(1, 1000, 4):
        refs[sequence].state = GONE
    pending.sweep(250)
    assert pending.size == 250
    assert sequences(pending) == list(range(3, 1000, 4))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=80))
def test_any_order_of_leaving_and_coming_back(moves):
    pending, refs = filled(*range(31))
    here = set(refs)
    for sequence, comes in moves:
        ref = refs[sequence]
        if comes and sequence not in here:
            ref.state = PENDING
            pending.restore(ref)
            here.add(sequence)
        elif not comes and sequence in here:
            ref.state = DELIVERING
            if pending.head() is not None and sequence % 2:
                pending.sweep(len(here))
            here.discard(sequence)
        assert sequences(pending) == sorted(here)
        head = pending.head()
        assert (None if head is None else head.sequence) == (min(here) if here else None)


@settings(deadline=None)
@given(
    listed=st.lists(st.integers(0, 300), unique=True, max_size=120),
    returning=st.lists(st.integers(0, 300), unique=True, max_size=200),
)
def test_restoring_many_at_once_is_as_restoring_each(listed, returning):
    refs = {sequence: reference(sequence, sequence % 3) for sequence in {*listed, *returning}}
    together, one_by_one = PendingList(), PendingList()
    for sequence in sorted(listed):
        together.append(refs[sequence])
        one_by_one.append(refs[sequence])
    back = sorted((refs[sequence] for sequence in returning), key=lambda ref: ref.order)
    for ref in back:
        one_by_one.restore(ref)
    together.restore_all(back)
    assert list(together) == list(one_by_one)
    assert (together.size, together.mask) == (one_by_one.size, one_by_one.mask)


def run_of(refs):
    return ReferenceRun(refs[0].sequence, refs[-1].sequence, len(refs), lambda _: refs)


def test_a_run_counts_as_its_references_and_makes_them_once():
    pending, made = PendingList(), []

    def make(run):
        made.append(run)
        return [reference(sequence) for sequence in range(10, 20)]

    pending.append_run(ReferenceRun(10, 19, 10, make), 4)
    pending.append(reference(20))
    assert (pending.size, made) == (11, [])
    assert [ref.sequence for ref in pending.snapshot()] == [*range(10, 21)]
    head = pending.head()
    assert head is not None and head is next(iter(pending)) and head.sequence == 10
    assert (pending.size, len(made)) == (11, 1)


@pytest.mark.parametrize("runs", [3, 60])  # a list that is swept at once, and one that is swept in parts
def test_a_sweep_drops_stale_references_of_runs_that_made_them(runs):
    pending = PendingList()
    made = []
    for first in range(0, runs * 100, 100):
        refs = [reference(sequence) for sequence in range(first, first + 100)]
        run = run_of(refs)
        pending.append_run(run, 4)
        if first:
            run.references()
            for ref in refs[1:]:
                ref.state = GONE
            made.append(refs[0])
    for _ in range(runs):
        pending.sweep(0)
    assert pending.size == 100 + len(made)
    assert list(pending)[100:] == made


MOVES = st.lists(
    st.sampled_from(
        ["pop", "newest", "latest", "lowest", "heads", "restore", "restore all", "insert", "list", "sweep"]
    ),
    max_size=25,
)


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=8), MOVES)
def test_runs_are_as_the_references_they_stand_for(data, lengths, moves):
    """One list has runs, another one the references: whatever is done, both have the same."""
    runs, plain = PendingList(), PendingList()
    of_runs, of_plain = {}, {}  # references by sequence
    sequence = 0
    for length in lengths:
        numbers = range(sequence, sequence + 2 * length, 2)  # with gaps, in which others find their places
        sequence += 2 * length
        for number in numbers:
            of_runs[number], of_plain[number] = reference(number), reference(number)
            plain.append(of_plain[number])
        if length == 1:
            runs.append(of_runs[numbers[0]])
        else:
            runs.append_run(run_of([of_runs[number] for number in numbers]), 4)
    out = []  # in no list

    def leave(found, other):
        assert (None if found is None else found.sequence) == (None if other is None else other.sequence)

    def come_back(numbers, how):
        for pending, refs in ((runs, of_runs), (plain, of_plain)):
            for number in numbers:
                refs.setdefault(number, reference(number)).state = PENDING
            if how == "restore all":
                pending.restore_all([refs[number] for number in sorted(numbers)])
            else:
                for number in numbers:
                    (pending.insert if how == "insert" else pending.restore)(refs[number])
        out[:] = [number for number in out if number not in numbers]

    for move in moves:
        if move in ("pop", "newest"):
            found, other = (
                (pending.head() if move == "pop" else pending.newest()) for pending in (runs, plain)
            )
            leave(found, other)
            if found is not None and other is not None:
                if move == "pop":
                    runs.pop_head(found)
                    plain.pop_head(other)
                found.state = other.state = DELIVERING
                out.append(found.sequence)
        elif move in ("latest", "lowest"):
            leave(
                *((pending.latest() if move == "latest" else pending.lowest()) for pending in (runs, plain))
            )
        elif move == "heads":
            assert [ref.sequence for ref in runs.heads()] == [ref.sequence for ref in plain.heads()]
        elif move == "list":
            assert sequences(runs) == sequences(plain)
        elif move == "sweep":
            for pending in (runs, plain):
                pending.sweep(0)
        elif move == "insert":  # what was not there before, as from pages
            number = data.draw(st.integers(0, sequence // 2)) * 2 + 1
            if number not in of_runs:
                come_back([number], move)
        elif out:
            come_back(data.draw(st.lists(st.sampled_from(out), unique=True, min_size=1)), move)
    assert [ref.sequence for ref in runs.snapshot()] == sequences(runs) == sequences(plain)
    assert [ref.sequence for ref in runs.detach()] == sequences(plain)
