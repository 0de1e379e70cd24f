"""Three reasons not to read, any of which is enough."""

import pytest

from stompring.session.outbox import Reading

from .session_fixture import RecordingWire

PAIRS = [
    (Reading.pause, Reading.resume),
    (Reading.throttle, Reading.unthrottle),
    (Reading.suspend, Reading.unsuspend),
]


@pytest.mark.parametrize("one", PAIRS)
@pytest.mark.parametrize("other", PAIRS)
def test_each_reason_lasts_whatever_becomes_of_the_others(one, other):
    wire = RecordingWire()
    reading = Reading(wire)
    one[0](reading)
    assert not wire.reading
    if one is not other:
        other[0](reading)
        other[1](reading)
        assert not wire.reading
    one[1](reading)
    assert wire.reading


@pytest.mark.parametrize("reason", PAIRS)
def test_what_is_closed_is_not_read_again(reason):
    wire = RecordingWire()
    reading = Reading(wire)
    reason[0](reading)
    reading.end()
    if reason is not PAIRS[0]:  # the session, which knows that it is closed
        reason[1](reading)
    assert not wire.reading


def test_who_is_not_heard_is_not_silent():
    reading = Reading(RecordingWire())
    assert not reading.stopped
    reading.suspend()
    assert reading.stopped
    reading.unsuspend()
    reading.throttle()
    assert reading.stopped
