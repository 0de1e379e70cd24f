"""Period and repeat, cron expressions, and what summer time does to them."""

import os
import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from stompring.broker.clock import FOREVER, Recurrence
from stompring.errors import Refused

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def in_berlin():
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def epoch(text, fold=0):
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).timestamp() * 1000)


def shown(moment):
    return datetime.fromtimestamp(moment / 1000, BERLIN).isoformat()


def runs(cron, start, number):
    found, now = [], start
    recurrence = Recurrence(cron=cron)
    for _ in range(number):
        following = recurrence.next_cron(now)
        assert following is not None and following > now
        found.append(shown(following))
        now = following
    return found


def test_repeats_are_counted():
    recurrence = Recurrence(period=1000, repeat=2)
    assert recurrence.advance(5000, 5000) == 6000
    assert recurrence.advance(6000, 6000) == 7000
    assert recurrence.advance(7000, 7000) is None


def test_forever_does_not_end():
    recurrence = Recurrence(period=10, repeat=FOREVER)
    due = 0
    for _ in range(100):
        following = recurrence.advance(due, due)
        assert following == due + 10
        due = following


@pytest.mark.parametrize(
    "due, now, following",
    [
        (1000, 1000, 2000),
        (1000, 1999, 2000),
        (1000, 2000, 3000),
        (1000, 9500, 10_000),
        (1000, 10_000, 11_000),
    ],
)
def test_missed_times_are_not_made_up_for(due, now, following):
    assert Recurrence(period=1000, repeat=FOREVER).advance(due, now) == following


def test_cron_is_local_time(in_berlin):
    assert runs("30 9 * * 1-5", epoch("2024-01-05T09:30"), 2) == [
        "2024-01-08T09:30:00+01:00",
        "2024-01-09T09:30:00+01:00",
    ]


def test_cron_over_the_change_to_summer_time(in_berlin):
    assert runs("0 9 * * *", epoch("2024-03-30T10:00"), 2) == [
        "2024-03-31T09:00:00+02:00",
        "2024-04-01T09:00:00+02:00",
    ]


def test_cron_in_the_hour_that_is_left_out_is_not_skipped(in_berlin):
    assert runs("30 2 * * *", epoch("2024-03-30T12:00"), 2) == [
        "2024-03-31T03:00:00+02:00",
        "2024-04-01T02:30:00+02:00",
    ]


def test_cron_in_the_hour_that_is_repeated_is_not_doubled(in_berlin):
    assert runs("30 2 * * *", epoch("2024-10-26T12:00"), 2) == [
        "2024-10-27T02:30:00+02:00",
        "2024-10-28T02:30:00+01:00",
    ]


def test_cron_every_half_hour_goes_on_through_the_repeated_hour(in_berlin):
    assert runs("*/30 * * * *", epoch("2024-10-27T01:30"), 5) == [
        "2024-10-27T02:00:00+02:00",
        "2024-10-27T02:30:00+02:00",
        "2024-10-27T02:00:00+01:00",
        "2024-10-27T02:30:00+01:00",
        "2024-10-27T03:00:00+01:00",
    ]


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "61 * * * *",
        "a b c d e",
        "* * * * * *",
        "0 0 30 2 *",
        "1" * 5001 + " * * * *",
        "1_0 * * * *",
        "\u00b2 * * * *",
        "\u00a01 * * * *",
        "0," * 500 + "0 * * * *",
    ],
)
def test_bad_expressions_are_refused_by_name(cron):
    with pytest.raises(Refused, match="AMQ_SCHEDULED_CRON"):
        Recurrence(cron=cron)


def test_a_cron_time_starts_a_series():
    assert Recurrence(cron="* * * * *").series is None
    assert Recurrence(5, 3, "* * * * *").series == Recurrence(5, 3)
    assert Recurrence(cron="* * * * *", delay=7).series == Recurrence(0, 0)


@pytest.mark.parametrize("cron", ["* * * * *", "0 0 L * *", "59 23 31 12 *"])
def test_there_is_nothing_after_the_year_9999(cron):
    assert Recurrence(cron=cron).next_cron(253_402_300_799_000) is None
