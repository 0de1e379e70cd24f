"""Records with good checksums that nobody should have written: they are left out, and the rest is there."""

import json
from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import Message, Traits
from stompring.store.encoder import unpack_recurrence
from stompring.store.record import (
    GREATEST_ID,
    MESSAGE,
    NAME,
    NUMBERS,
    PAGE_FILE,
    STATE,
    TRANSACTION,
    Kind,
    encode_traits,
    fits,
    framed,
    message_head,
    message_records,
)
from stompring.store.segment import HEADER, SegmentScan, build_footer

from .memory_files import MemoryFiles
from .stored_broker import StoredBroker, held, reported
from .test_recovery_damage import FIRST


def journal():
    """Three messages, and the payloads of the records that tell of them."""
    world = StoredBroker()
    world.queue("q")
    for number in range(3):
        world.keep("q", b"m%d" % number)
    data = world.memory.data[FIRST]
    return world, [data[begin:end] for begin, end in SegmentScan(data)]


def start(world, payloads):
    header = world.memory.data[FIRST][: HEADER.size]
    return world.again(MemoryFiles({FIRST: header + b"".join(map(framed, payloads))}))


def changed(payload, layout, at, value):
    copy = bytearray(payload)
    pack_into(layout, copy, at, value)
    return bytes(copy)


LENGTHS = MESSAGE.size - 16
TRAITS_AT = MESSAGE.size + 4
WRONG = {
    "cut off": lambda payload: payload[:-1],
    "cut off in its prologue": lambda payload: payload[:30],
    "something behind it": lambda payload: payload + b"x",
    "a longer head": lambda payload: changed(payload, "<I", LENGTHS, 2**32 - 1),
    "a longer body": lambda payload: changed(payload, "<I", LENGTHS + 4, 1000),
    "more queues": lambda payload: changed(payload, "<I", LENGTHS + 8, 2**30),
    "shorter traits": lambda payload: changed(payload, "<I", LENGTHS + 12, 3),
    "a longer block": lambda payload: changed(payload, "<I", TRAITS_AT, 1000),
    "a longer destination": lambda payload: changed(payload, "<I", TRAITS_AT + 4, 2**32 - 1),
    "a longer user": lambda payload: changed(payload, "<I", TRAITS_AT + 8, 1000),
    "a priority that is none": lambda payload: changed(payload, "<B", 2, 10),
    "a routing type that is none": lambda payload: changed(payload, "<B", 1, payload[1] | 6),
    "a number without a next one": lambda payload: changed(payload, "<Q", 8, 2**64 - 1),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_message_that_is_none(wrong):
    world, payloads = journal()
    place = next(place for place, each in enumerate(payloads) if b"m1\0" in each)
    assert fits(payloads[place], 0, len(payloads[place]))
    payloads[place] = WRONG[wrong](payloads[place])
    assert not fits(payloads[place], 0, len(payloads[place]))
    again = start(world, payloads)
    assert held(again) == [b"m0", b"m2"]
    assert "skipped malformed record" in reported(again)[0]
    again.keep("q", b"m3")
    assert held(again.again()) == [b"m0", b"m2", b"m3"]


OTHERS = {
    "the greatest id": NAME.pack(Kind.NAME, 2, 0, 2**32 - 1) + b"last",
    "the greatest numbers": NUMBERS.pack(Kind.NUMBERS, 0, 0, 2**32 - 1, 2**64 - 1, 2**64 - 1, 0, 0),
    "the greatest transaction": TRANSACTION.pack(Kind.TRANSACTION, 0, 0, 0, 2**64 - 1),
    "a transaction cut off": TRANSACTION.pack(Kind.TRANSACTION, 0, 0, 2, 0) + b"\5",
    "a transaction of nothing": bytes([Kind.TRANSACTION, 0]),
    "a name cut off": bytes([Kind.NAME, 1]),
    "a binding that is a deep nest": bytes([Kind.BINDING, 2, 0, 0, 1, 0, 0, 0]) + b"[" * 100_000,
    "a page of queues that are cut off": PAGE_FILE.pack(Kind.PAGE_FILE, 0, 0, 1, 1, 0, 1),
    "an operation on pages that is none": PAGE_FILE.pack(Kind.PAGE_FILE, 9, 0, 1, 1, 0, 0),
    "the greatest page": PAGE_FILE.pack(Kind.PAGE_FILE, 0, 0, 1, 2**64 - 1, 0, 0),
    "a kind that is none": b"\xc8 and more",
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_records_that_are_none(other):
    world, payloads = journal()
    again = start(world, [*payloads, OTHERS[other]])
    assert held(again) == [b"m0", b"m1", b"m2"]
    assert reported(again)
    again.keep("q", b"m3")
    assert held(again.again())[-1] == b"m3"


def test_the_greatest_queue_that_there_can_be():
    world, payloads = journal()
    again = start(world, [*payloads, NUMBERS.pack(Kind.NUMBERS, 0, 0, GREATEST_ID, 1, 1, 0, 0)])
    assert held(again) == [b"m0", b"m1", b"m2"] and reported(again) == []


RECURRENCES = {
    "no JSON": b"{",
    "no object": b"[1]",
    "an unknown name": b'{"x": 1}',
    "text for a number": b'{"period": "1"}',
    "a number for text": b'{"cron": 5}',
    "a cron expression that is none": b'{"cron": "x"}',
}


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_a_recurrence_that_is_none(recurrence):
    with pytest.raises(ValueError):
        unpack_recurrence(RECURRENCES[recurrence])
    world, payloads = journal()
    number = world.directory.queues["q"].number
    first = int.from_bytes(next(each for each in payloads if b"m0\0" in each)[8:16], "little")
    state = STATE.pack(Kind.STATE, 0, 0, number, first, 1, 1, 0, 0) + RECURRENCES[recurrence]
    again = start(world, [*payloads, state])
    assert held(again) == [b"m0", b"m1", b"m2"] and reported(again)


def test_a_recurrence():
    fields = {"period": 5, "repeat": -1, "cron": "* * * * *", "delay": 0}
    found = unpack_recurrence(json.dumps(fields).encode())
    assert (found.period, found.repeat, found.cron) == (5, -1, "* * * * *")
    assert unpack_recurrence(b"") is None


def test_scan_skips_malformed_payloads():
    world, payloads = journal()
    header = world.memory.data[FIRST][: HEADER.size]
    wrong = [changed(payloads[-1], "<I", LENGTHS, 5), *list(OTHERS.values())]
    footer = build_footer(header + b"".join(map(framed, [*payloads, *wrong])))
    assert len(footer.starts) == len(payloads) + len(wrong)
    numbers = sorted(int.from_bytes(each[8:16], "little") for each in payloads if each[0] == Kind.MESSAGE)
    assert (footer.least_number, footer.greatest_number) == (numbers[0], numbers[-1])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([9, 10, 2**40]), st.binary(max_size=3), st.integers(1, 2), st.integers(0, 1)
        )
    )
)
def test_messages_encoded_together_are_as_those_encoded_one_by_one(messages):
    traits = Traits(b"color:red\n", b"/queue/q")
    address = StoredBroker().queue("q").address
    made = [Message(number, address, traits, *values) for number, *values in messages]
    queues = b"\1\0\0\0"
    records = message_records(made, traits, 7, queues + encode_traits(traits)[2:])
    assert records == [framed(message_head(message, 7, queues) + message.tail) for message in made]
