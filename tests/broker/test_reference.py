"""The lazy lists of a queue."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import Message, Traits
from stompring.broker.reference import DELIVERING, GONE, PENDING, PendingList, Reference

from .broker_fixture import BrokerFixture

ADDRESS = BrokerFixture().address("a")


def reference(sequence: int, priority: int = 4) -> Reference:
    message = Message(sequence, ADDRESS, Traits(b"", priority=priority), b"", 0)
    return Reference(message, cast(Any, None), sequence, PENDING)


def sequences(pending: PendingList) -> list[int]:
    return [ref.sequence for ref in pending]


def filled(*sequences: int) -> tuple[PendingList, dict[int, Reference]]:
    pending, refs = PendingList(), {}
    for sequence in sequences:
        refs[sequence] = reference(sequence)
        pending.append(refs[sequence])
    return pending, refs


def test_highest_priority_first_then_oldest() -> None:
    pending = PendingList()
    for sequence, priority in enumerate([4, 9, 0, 9, 4]):
        pending.append(reference(sequence, priority))
    assert sequences(pending) == [1, 3, 0, 4, 2]
    head = pending.head()
    assert head is not None and head.sequence == 1


def test_head_drops_references_that_are_not_pending() -> None:
    pending, refs = filled(1, 2, 3)
    refs[1].state, refs[2].state = GONE, DELIVERING
    assert pending.head() is refs[3]
    assert pending.size == 1
    refs[3].state = GONE
    assert pending.head() is None
    assert pending.size == 0


def test_restore_puts_a_reference_at_its_old_position() -> None:
    pending, refs = filled(1, 2, 3, 4)
    for sequence in (1, 2, 3):
        pending.head()
        pending.pop_head(refs[sequence])
    for sequence in (3, 1, 2):
        pending.restore(refs[sequence])
    assert sequences(pending) == [1, 2, 3, 4]


def test_restore_of_what_is_still_listed_does_nothing() -> None:
    pending, refs = filled(1, 2, 3)
    for ref in refs.values():
        pending.restore(ref)
    assert sequences(pending) == [1, 2, 3]
    assert pending.size == 3


def test_restore_after_a_level_became_empty() -> None:
    pending, refs = filled(1)
    pending.head()
    pending.pop_head(refs[1])
    assert pending.head() is None
    pending.restore(refs[1])
    assert pending.head() is refs[1]


def test_sweep_drops_references_that_are_not_pending() -> None:
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


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=80))
def test_any_order_of_leaving_and_coming_back(moves: list[tuple[int, bool]]) -> None:
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


@given(
    listed=st.lists(st.integers(0, 300), unique=True, max_size=120),
    returning=st.lists(st.integers(0, 300), unique=True, max_size=200),
)
def test_restoring_many_at_once_is_as_restoring_each(listed: list[int], returning: list[int]) -> None:
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
