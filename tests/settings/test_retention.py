"""``<journal-retention-directory>``: its attributes, and what it cannot be."""

import pytest

from stompring.settings.machine import data_directory
from stompring.settings.match import SettingsRepository
from stompring.settings.model import Retain, Retention

from .documents import faults, parse


def retention(attributes="", directory="data/retention"):
    return f"<journal-retention-directory {attributes}>{directory}</journal-retention-directory>"


@pytest.mark.parametrize(
    "attributes, expected",
    [
        ("", Retention("data/retention")),
        ('period="7"', Retention("data/retention", 7 * 86_400_000)),
        ('period="2" unit="hours"', Retention("data/retention", 7_200_000)),
        ('period="3" unit="MINUTES"', Retention("data/retention", 180_000)),
        ('period="4" unit="SECONDS"', Retention("data/retention", 4000)),
        ('period="5" unit="MILLISECONDS"', Retention("data/retention", 5)),
        ('period="-1" unit="HOURS"', Retention("data/retention")),
        ('storage-limit="1GB" sample-period="-1"', Retention("data/retention", -1, 1024**3, -1)),
    ],
)
def test_attributes(attributes, expected):
    assert parse(retention(attributes)).journal_retention_directory == expected


def test_without_directory_nothing_is_retained():
    assert parse().journal_retention_directory is None
    assert data_directory(parse()).retention is None


def test_where_it_is():
    configuration = parse(retention(directory="expected"))
    assert data_directory(configuration).retention.name == "expected"
    assert str(data_directory(configuration, "/elsewhere").retention) == "/elsewhere/retention"


@pytest.mark.parametrize(
    "lines, fault",
    [
        (
            [retention('period="x"')],
            "3: period of <journal-retention-directory> is 'x': must be a whole number",
        ),
        (
            [retention('unit="YEARS"')],
            "3: unit of <journal-retention-directory> is 'YEARS': must be one of DAYS",
        ),
        ([retention('storage-limit="0"')], "3: storage-limit of <journal-retention-directory> is '0'"),
        ([retention('sample-period="0"')], "3: sample-period of <journal-retention-directory> is '0'"),
        ([retention('days="3"')], "3: unknown attribute 'days' of <journal-retention-directory>"),
        ([retention(directory="")], "3: <journal-retention-directory> is ''"),
        (
            [retention(directory="data/journal"), "<journal-directory>data/journal</journal-directory>"],
            "must differ from",
        ),
        (
            [retention(directory="data/paging"), "<paging-directory>data/paging</paging-directory>"],
            "must differ from",
        ),
        (
            [retention(), "<persistence-enabled>false</persistence-enabled>"],
            "requires <persistence-enabled> to be true",
        ),
    ],
)
def test_contradictions_are_reported(lines, fault):
    (found,) = faults(*lines)
    assert fault in found


def retain(value):
    return (
        f'<address-settings><address-setting match="#">\n<retain>{value}</retain>\n'
        "</address-setting></address-settings>"
    )


@pytest.mark.parametrize("value", Retain)
def test_retain_of_an_address(value):
    configuration = parse(retention(), retain(value.lower()))
    assert configuration.warnings == ()
    assert SettingsRepository.of(configuration).lookup("any").retain is value


def test_durable_messages_are_retained_by_default():
    assert SettingsRepository.of(parse()).lookup("any").retain is Retain.DURABLE


def test_retain_is_one_of_three():
    assert faults(retain("SOME")) == ["4: <retain> is 'SOME': must be one of DURABLE, ALL, NONE"]


def test_retain_without_a_directory_is_a_warning():
    (warning,) = parse(retain("ALL")).warnings
    assert warning.endswith(":4: <retain> has no effect without <journal-retention-directory>")
