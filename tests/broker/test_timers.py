"""The heap of due times and its one timer."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock as TwistedClock

from stompring.broker.clock import Background, Clock
from stompring.broker.lifetime import TimerQueue
from stompring.broker.reference import GONE, PENDING, Reference

from .broker_fixture import BEGIN, BrokerFixture


class Book:
    """An agenda whose entries are wanted while they are pending."""

    def __init__(self):
        self.twisted = TwistedClock()
        self.twisted.advance(BEGIN)
        self.clock = Clock(self.twisted)
        self.begin = self.clock.now
        self.sweeps: list[tuple[int, list[Reference]]] = []
        self.background = Background(self.clock, self.twisted.seconds)
        self.agenda = TimerQueue(
            self.clock, self.background, lambda ref, due: ref.state == PENDING, lambda: self.sweep().append
        )
        self.message = BrokerFixture().message("a")

    def sweep(self):
        refs: list[Reference] = []
        self.sweeps.append((self.clock.now - self.begin, refs))
        return refs

    @property
    def rang(self):
        return [(at, [ref.sequence for ref in refs]) for at, refs in self.sweeps if refs]

    def enter(self, sequence, due):
        ref = Reference(self.message, cast(Any, None), sequence, PENDING)
        self.agenda.enter(ref, self.begin + due)
        return ref


def test_soonest_first_and_never_early():
    book = Book()
    for sequence, due in ((1, 500), (2, 250), (3, 750)):
        book.enter(sequence, due)
    assert len(book.twisted.calls) == 1, "one timer"
    for _ in range(8):
        book.twisted.advance(0.125)
    assert book.rang == [(250, [2]), (500, [1]), (750, [3])]
    assert not book.twisted.calls


def test_same_time_keeps_the_order_of_entering():
    book = Book()
    for sequence in (5, 3, 9, 1):
        book.enter(sequence, 250)
    book.twisted.advance(0.25)
    assert book.rang == [(250, [5, 3, 9, 1])]


def test_a_late_timer_takes_everything_that_is_due():
    book = Book()
    for sequence, due in ((1, 500), (2, 250), (3, 10_000)):
        book.enter(sequence, due)
    book.twisted.advance(5)
    assert book.rang == [(5000, [2, 1])]


def test_the_unwanted_are_passed_over():
    book = Book()
    ref = book.enter(1, 250)
    book.enter(2, 250)
    ref.state = GONE
    book.agenda.forget()
    book.twisted.advance(1)
    assert book.rang == [(1000, [2])]


def test_a_heap_of_unwanted_entries_does_not_grow():
    book = Book()
    for sequence in range(10_000):
        book.enter(sequence, 3_600_000).state = GONE
        book.agenda.forget()
        assert len(book.agenda) <= 130
    keep = book.enter(10_001, 1000)
    book.twisted.advance(1)
    assert book.rang == [(1000, [keep.sequence])]


def test_an_error_of_one_batch_does_not_stop_the_clock():
    book = Book()
    book.enter(1, 250)
    book.enter(2, 500)
    fine, book.agenda._fall_due = book.agenda._fall_due, cast(Any, lambda: lambda ref: 1 / 0)
    try:
        book.twisted.advance(0.25)
    except ZeroDivisionError:
        pass
    book.agenda._fall_due = fine
    book.twisted.advance(0.25)
    assert book.rang == [(500, [2])]


def test_stop_leaves_no_timer():
    book = Book()
    book.enter(1, 250)
    book.agenda.stop()
    assert not book.twisted.calls
    book.agenda.stop()
