"""Log lines of one kind: so many in an interval, and one line about the others."""

import logging

import pytest

from stompring.broker.limits import INTERVAL, LINES

from .broker_fixture import BrokerFixture

log = logging.getLogger("stompring.test")


@pytest.fixture
def world(caplog):
    caplog.set_level(logging.INFO, log.name)
    return BrokerFixture()


def say(world, number, kind="storm"):
    for each in range(number):
        world.broker.log_limit.info(log, kind, "line %d", each, fields={"queue": f"q{each}"})


def lines(caplog):
    found = [record.getMessage() for record in caplog.records if record.name == log.name]
    caplog.clear()
    return found


def test_lines_beyond_the_limit_are_suppressed_and_counted(world, caplog):
    say(world, LINES + 7)
    assert lines(caplog) == [f"line {number}" for number in range(LINES)]
    world.pass_time(INTERVAL)
    assert lines(caplog) == [f"7 storm lines suppressed: more than {LINES} in {INTERVAL // 1000} s"]
    say(world, 1)
    assert lines(caplog) == ["line 0"]


def test_nothing_is_reported_and_no_timer_runs_below_the_limit(world, caplog):
    for _ in range(3):
        before = len(world.clock.getDelayedCalls())
        say(world, LINES)
        assert len(world.clock.getDelayedCalls()) == before
        assert len(lines(caplog)) == LINES
        world.pass_time(INTERVAL)
    assert not lines(caplog)


def test_kinds_have_limits_of_their_own(world, caplog):
    say(world, LINES + 1)
    lines(caplog)
    say(world, 1, "rare")
    assert lines(caplog) == ["line 0"]


def test_a_stop_reports_what_was_suppressed(world, caplog):
    say(world, LINES + 2)
    lines(caplog)
    world.broker.log_limit.stop()
    assert lines(caplog) == [f"2 storm lines suppressed: more than {LINES} in {INTERVAL // 1000} s"]
    world.pass_time(INTERVAL)
    assert not lines(caplog)


def test_lines_that_nobody_reads_are_not_counted(world, caplog):
    caplog.set_level(logging.WARNING, log.name)
    say(world, LINES + 2)
    caplog.set_level(logging.INFO, log.name)
    say(world, LINES)
    assert len(lines(caplog)) == LINES
