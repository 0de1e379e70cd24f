"""Texts of values into Python: byte notation, ranges, enumerations."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.session.send import ENDS_HERE
from stompring.settings.model import DeletionPolicy, FullPolicy, RingPolicy, RoutingType
from stompring.settings.urls import PARAMETER_TYPES

READ = {kind: each.read for kind, each in PARAMETER_TYPES.items()}
K = 1024

BYTES = [
    ("0", 0),
    ("-1", -1),
    ("+7", 7),
    ("17 B", 17),
    ("100k", 100 * K),
    ("100kib", 100 * K),
    ("100Ki", 100 * K),
    ("10MiB", 10 * K**2),
    ("10 mb", 10 * K**2),
    ("3 GiB", 3 * K**3),
    ("9223372036854775807", 2**63 - 1),
    ("8388607G", 8388607 * K**3),
]


@pytest.mark.parametrize("text, size", BYTES)
def test_byte_notation_is_that_of_artemis(text, size):
    assert READ["bytesOrNoLimit"](text) == size


@pytest.mark.parametrize(
    "text",
    [
        "", "K", "10X", "10TB", "1.5MB", "-1K", "10 M B", "10MBs", "0x10", "1_000", "ten", "١٠", "10\u00a0K",
        "9223372036854775808", "9999999999G", "9" * 100_000,
    ],
)  # fmt: skip
def test_invalid_sizes_are_rejected(text):
    with pytest.raises(ValueError, match="must"):
        READ["bytesOrNoLimit"](text)


@given(
    st.integers(0, 2**33 - 1),
    st.sampled_from([("", 0), ("K", 1), ("M", 2), ("G", 3)]),
    st.sampled_from(["", "b", "B"]),
)
def test_every_scale_counts_in_1024s(number, scale, ending):
    letter, power = scale
    assert READ["bytesOrNoLimit"](f"{number}{letter}{ending}") == number * 1024**power


@given(st.integers(0, 2**63 - 1))
def test_whole_numbers_come_back(number):
    assert READ["count"](str(number)) == number
    assert READ["milliseconds"](str(number)) == number


@given(st.text(max_size=12))
def test_every_reader_returns_a_value_or_a_reason(text):
    for read in READ.values():
        try:
            read(text.strip())
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize("text", ["10s", "1m", "1.0", "", "PT1S"])
def test_times_have_no_units(text):
    with pytest.raises(ValueError, match="plain number of milliseconds"):
        READ["milliseconds"](text)
    with pytest.raises(ValueError, match="plain number of seconds"):
        READ["positiveSeconds"](text)
    with pytest.raises(ValueError, match="plain number of nanoseconds"):
        READ["nanoseconds"](text)


NUMBER = re.compile(r"(-1 or )?≥ (\d+)")


@pytest.mark.parametrize(
    "kind", [name for name, each in PARAMETER_TYPES.items() if NUMBER.match(each.accepts)]
)
def test_a_number_is_in_the_range_that_is_documented(kind):
    read, (unset, documented) = READ[kind], NUMBER.match(PARAMETER_TYPES[kind].accepts).groups()
    least = int(documented)
    assert (read(str(least)), read(str(least + 7))) == (least, least + 7)
    if unset:
        assert read("-1") == -1
    for wrong in {least - 1, -2} - ({-1} if unset else set()):
        with pytest.raises(ValueError, match=f"at least {least}"):
            read(str(wrong))


RANGES = [
    (
        "multiplier",
        ["0", "1.0", "2.5", ".5", "3."],
        ["-1", "nan", "inf", "1e3", "1_0", "", "x"],
        "must be at least 0",
    ),
    ("share", ["0", "0.15", "1"], ["1.01", "-0.1"], "must be from 0 to 1"),
    ("boolean", ["true", "FALSE", "True"], ["yes", "1", "", "treu"], "must be true or false"),
    ("percentage", ["0", "30", "100"], ["101", "-1", "30%"], "must be from 0 to 100"),
    ("percentageLimit", ["-1", "0", "90", "100"], ["101", "-2"], "must be from 0 to 100, or -1 (no limit)"),
    (
        "fullPolicy",
        ["BLOCK", "drop", "Fail", "page", "my-plugin"],
        ["", "1st", "a b"],
        "must be one of PAGE, DROP, FAIL, BLOCK, or the name of a broker-plugin",
    ),
    (
        "pluginName",
        ["a", "rate-limit", "B_2"],
        ["", "2nd", "a.b", "-a"],
        "must consist of letters, digits,",
    ),
    ("pageFullPolicy", ["DROP", "fail"], ["BLOCK", "PAGE", ""], "must be one of DROP, FAIL"),
    ("diskFullPolicy", ["BLOCK", "drop", "FAIL"], ["PAGE"], "must be one of BLOCK, DROP, FAIL"),
    ("ringPolicy", ["discard", "DEAD_LETTER"], ["dead-letter"], "must be one of DISCARD, DEAD_LETTER"),
    ("deletionPolicy", ["OFF", "force"], ["ON"], "must be one of OFF, FORCE"),
    ("routingType", ["anycast", "MULTICAST"], ["queue"], "must be one of ANYCAST, MULTICAST"),
    ("regularExpression", ["^a|b$"], ["(", ""], ""),
    ("name", ["x", "a.b"], [""], ""),
    ("resourceName", ["a", "a.b/c d"], ["", "a::b"], ""),
    ("character", ["/"], ["", "//"], "must be exactly one character"),
    ("markers", ["()"], ["", "(", "(()"], "must be exactly two characters"),
]


@pytest.mark.parametrize("kind, good, bad, why", RANGES, ids=[row[0] for row in RANGES])
def test_ranges(kind, good, bad, why):
    read = READ[kind]
    for text in good:
        read(text)
    reasons = []
    for text in bad:
        with pytest.raises(ValueError) as caught:
            read(text)
        reasons.append(str(caught.value))
    assert why in reasons[0]


def test_values_have_the_type_of_the_model():
    assert READ["boolean"]("TRUE") is True
    assert READ["multiplier"]("2") == 2.0 and isinstance(READ["multiplier"]("2"), float)
    assert READ["fullPolicy"]("block") is FullPolicy.BLOCK
    assert READ["ringPolicy"]("dead_letter") is RingPolicy.DEAD_LETTER
    assert READ["deletionPolicy"]("force") is DeletionPolicy.FORCE
    assert READ["routingType"]("anycast") is RoutingType.ANYCAST
    assert READ["optionalName"]("") is None


def test_no_header_that_ends_at_the_broker_is_a_key():
    for header in ENDS_HERE:
        with pytest.raises(ValueError, match="must be a header that senders add"):
            READ["keyHeader"](header.decode())
    key_header = READ["keyHeader"]
    assert (key_header("code"), key_header("JMSCorrelationID"), key_header("")) == (
        "code",
        "JMSCorrelationID",
        None,
    )
