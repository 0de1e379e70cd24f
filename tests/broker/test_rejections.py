"""What is refused by limits: counted each time, and logged so that nobody can flood the log."""

from stompring.broker.limits import LIMITS, QUIET
from stompring.errors import LimitReached, ProtocolError, Refused

from .broker_fixture import BrokerFixture


def lines(caplog):
    found = [record.getMessage() for record in caplog.records if record.name == "stompring.broker.limits"]
    caplog.clear()
    return found


def test_each_is_counted_and_the_first_is_logged(caplog):
    world = BrokerFixture()
    refusals = world.broker.rejections
    assert refusals.counts == dict.fromkeys(LIMITS, 0)
    for number in range(1000):
        refusals.add("maxHeaders", f"client {number}", "too many")
    refusals.add("max-queues", "ann", "too many queues")
    assert refusals.counts["maxHeaders"] == 1000 and refusals.counts["max-queues"] == 1
    assert lines(caplog) == ["client 0: too many", "ann: too many queues"]
    world.pass_time(QUIET)
    assert lines(caplog) == ["rejected 999 more times within 10 s by maxHeaders"]


def test_while_it_goes_on_there_is_a_line_in_ten_seconds(caplog):
    world = BrokerFixture()
    for _ in range(100):
        world.broker.rejections.add("maxHeaders", "a client", "too many")
        world.pass_time(1000)
    assert len(lines(caplog)) <= 11
    world.pass_time(10 * QUIET)
    lines(caplog)
    assert not world.clock.calls, "no timer is left once it is quiet"
    world.broker.rejections.add("maxHeaders", "a client", "again")
    assert lines(caplog) == ["a client: again"]


def test_what_was_not_told_is_told_at_the_end(caplog):
    world = BrokerFixture()
    for _ in range(3):
        world.broker.rejections.add("maxHeaders", "a client", "too many")
    lines(caplog)
    world.broker.rejections.stop()
    assert lines(caplog) == ["rejected 2 more times by maxHeaders"]
    assert not world.clock.calls


def test_only_limits_are_counted():
    refusals = BrokerFixture().broker.rejections
    assert not refusals.add_error(Refused("no"), "ann", "no")
    assert not refusals.add_error(ProtocolError("no"), "ann", "no")
    assert not refusals.add_error(ValueError(), "ann", "no")
    assert refusals.add_error(ProtocolError("no", limit="maxBodyLength"), "ann", "no")
    assert refusals.add_error(LimitReached("no", "max-queues"), "ann", "no")
    assert {limit for limit, number in refusals.counts.items() if number} == {"maxBodyLength", "max-queues"}
