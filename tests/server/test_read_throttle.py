"""Connections whose reads are dear rest, while others have something to say."""

from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from stompring.server.protocol import CHECK_INTERVAL, IDLE_FRACTION, MAX_PAUSE, ReadThrottle
from stompring.session.outbox import Reading

from ..session.session_fixture import RecordingWire


class FairnessTest(TestCase):
    def setUp(self):
        self.clock = Clock()
        self.read_throttle = ReadThrottle()

    def tired(self, spent):
        wire = RecordingWire()
        self.read_throttle.throttle(Reading(wire), spent, self.clock)
        assert not wire.reading
        return wire

    def work(self, seconds):
        """Others are busy for so long."""
        for _ in range(round(seconds / CHECK_INTERVAL)):
            self.read_throttle.reads += 1
            self.clock.advance(CHECK_INTERVAL)

    def test_it_rests_as_long_as_it_took(self):
        wire = self.tired(0.2)
        self.work(0.19)
        assert not wire.reading
        self.work(0.02)
        assert wire.reading

    def test_not_for_ever(self):
        wire = self.tired(60)
        self.work(MAX_PAUSE + 0.01)
        assert wire.reading

    def test_it_goes_on_when_nobody_else_has_anything_to_say(self):
        wire = self.tired(0.2)
        self.work(0.05)
        for _ in range(9):
            self.clock.advance(CHECK_INTERVAL)
            assert not wire.reading
        self.clock.pump([CHECK_INTERVAL] * 2)
        assert wire.reading

    def test_who_speaks_now_and_then_is_waited_for(self):
        wire = self.tired(0.2)
        for _ in range(9):
            self.read_throttle.reads += 1
            self.clock.pump([CHECK_INTERVAL] * round(0.2 * IDLE_FRACTION / CHECK_INTERVAL - 1))
            assert not wire.reading

    def test_all_of_them_rest_one_after_the_other(self):
        wires = [self.tired(0.1) for _ in range(3)]
        for rested in range(1, 4):
            self.work(0.104)
            assert [wire.reading for wire in wires] == [place < rested for place in range(3)]

    def test_no_timer_is_left(self):
        self.tired(0.1)
        self.clock.pump([CHECK_INTERVAL] * 6)
        assert self.clock.getDelayedCalls() == []
        wire = self.tired(0.1)
        self.clock.pump([CHECK_INTERVAL] * 6)
        assert wire.reading
