"""Limits of the broker and of users, slow consumers: what a file says about them."""

import pytest

from stompring.settings.broker_xml import parse_broker_xml
from stompring.settings.match import SettingsRepository
from stompring.settings.model import ResourceLimit, SlowConsumerPolicy, ThresholdUnit

from .documents import document, faults


def limits(inside):
    text = f"<resource-limit-settings>{inside}</resource-limit-settings>"
    return parse_broker_xml(document(text), "broker.xml").resource_limits


def setting(user, inside):
    return f'<resource-limit-setting match="{user}">{inside}</resource-limit-setting>'


def test_limits_of_users():
    assert limits("") == ()
    assert limits(
        setting("ann", "<max-sessions>5</max-sessions><max-queues>0</max-queues>")
        + setting("bob", "<max-connections>7</max-connections>")
        + setting("#", "<max-queues>-1</max-queues>")
    ) == (ResourceLimit("ann", 5, 0), ResourceLimit("bob", 7), ResourceLimit("#"))


@pytest.mark.parametrize(
    "inside, expected",
    [
        (setting("ann", "") * 2, "resource-limit-setting 'ann' is already defined at line"),
        (
            setting("ann", "<max-sessions>5</max-sessions><max-connections>5</max-connections>"),
            "<max-connections> is the old name of <max-sessions>, already defined at line",
        ),
        (setting("ann", "<max-queues>-2</max-queues>"), "<max-queues> is '-2'"),
        (setting("ann", "<max-queue>2</max-queue>"), "unknown element <max-queue>"),
        ("<resource-limit-setting/>", "has no attribute 'match'; it is required"),
    ],
)
def test_contradictions_are_reported(inside, expected):
    (found,) = faults(f"<resource-limit-settings>{inside}</resource-limit-settings>")
    assert expected in found


def test_slow_consumers():
    text = """<address-settings><address-setting match="a.#">
    <slow-consumer-threshold>5</slow-consumer-threshold>
    <slow-consumer-threshold-measurement-unit>messages_per_hour</slow-consumer-threshold-measurement-unit>
    <slow-consumer-policy>kill</slow-consumer-policy>
    <slow-consumer-check-period>7</slow-consumer-check-period>
    </address-setting></address-settings>"""
    found = SettingsRepository.of(parse_broker_xml(document(text), "broker.xml")).lookup("a.b")
    assert found.slow_consumer_threshold == 5
    assert found.slow_consumer_threshold_measurement_unit is ThresholdUnit.MESSAGES_PER_HOUR
    assert found.slow_consumer_policy is SlowConsumerPolicy.KILL
    assert found.slow_consumer_check_period == 7


@pytest.mark.parametrize(
    "unit, seconds",
    [
        ("MESSAGES_PER_SECOND", 1),
        ("MESSAGES_PER_MINUTE", 60),
        ("MESSAGES_PER_HOUR", 3600),
        ("MESSAGES_PER_DAY", 86400),
    ],
)
def test_units(unit, seconds):
    assert ThresholdUnit(unit).seconds == seconds
