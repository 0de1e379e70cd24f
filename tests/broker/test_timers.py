"""What falls due has one timer; seen by messages that expire."""

import pytest

from .broker_fixture import BrokerFixture, bodies, join


class Book:
    """A broker whose expired messages are kept."""

    def __init__(self):
        self.world = BrokerFixture({"#": {"expiry_address": "old", "auto_delete_queues": False}})
        self.queue, self.old = self.world.queue("q"), self.world.queue("old")
        self.world.settle_down()

    def enter(self, body, due):
        self.world.send("q", body, expires=self.world.now + due)

    @property
    def rang(self):
        return bodies(self.old)


def test_soonest_first_and_never_early():
    book = Book()
    idle = len(book.world.clock.calls)
    for body, due in ((b"1", 500), (b"2", 250), (b"3", 750)):
        book.enter(body, due)
    assert len(book.world.clock.calls) == idle + 1, "one timer"
    found = []
    for _ in range(8):
        book.world.pass_time(125)
        found.append(len(book.rang))
    assert found == [0, 1, 1, 2, 2, 3, 3, 3] and book.rang == [b"2", b"1", b"3"]
    assert len(book.world.clock.calls) == idle


def test_same_time_keeps_the_order_of_entering():
    book = Book()
    for body in (b"5", b"3", b"9", b"1"):
        book.enter(body, 250)
    book.world.pass_time(250)
    assert book.rang == [b"5", b"3", b"9", b"1"]


def test_a_late_timer_takes_everything_that_is_due():
    book = Book()
    for body, due in ((b"1", 500), (b"2", 250), (b"3", 10_000)):
        book.enter(body, due)
    book.world.clock.advance(5)
    assert book.rang == [b"2", b"1"]


def test_the_unwanted_are_passed_over():
    book = Book()
    book.enter(b"1", 250)
    book.enter(b"2", 250)
    taker = join(book.queue, 1)
    book.queue.settle(*taker.release())
    taker.close()
    book.world.clock.advance(1)
    assert taker.bodies == [b"1"] and book.rang == [b"2"]


def test_a_heap_of_unwanted_entries_does_not_grow():
    book = Book()
    for _ in range(2000):
        book.enter(b"", 3_600_000)
        book.queue.purge()
        assert len(book.world.broker.expiry) <= 130
    book.enter(b"kept", 1000)
    book.world.clock.advance(1)
    assert book.rang == [b"kept"]


def test_an_error_of_one_batch_does_not_stop_the_clock():
    book = Book()
    book.enter(b"1", 250)
    book.enter(b"2", 500)
    taker = join(book.old, matches=lambda message: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        book.world.clock.advance(0.25)
    taker.close()
    book.world.clock.advance(0.25)
    assert book.rang[-1] == b"2" and book.queue.messages_expired == 2


def test_stop_leaves_no_timer():
    book = Book()
    idle = len(book.world.clock.calls)
    book.enter(b"1", 250)
    book.world.broker.stop()
    assert len(book.world.clock.calls) <= idle
    book.world.broker.stop()
