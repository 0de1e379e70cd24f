"""The message index has what a dictionary would have, in columns where records are alike."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stompring.broker.message import Traits
from stompring.store.record import StoredMessage, message_head
from stompring.store.replay import MessageIndex, ReadSegment
from stompring.store.segment import Header

from ..broker.broker_fixture import BrokerFixture

WORLD = BrokerFixture()
ADDRESS = WORLD.address("a")
TRAITS = [
    Traits(b"", durable=True),
    Traits(b"colour:red\n", durable=True, destination=b"/queue/a"),
    Traits(b"", durable=True, priority=9, user="someone"),
    Traits(b"", durable=True, group=b"g"),
]


def record(number, traits=0, body=b"x", expires=0, queues=1, due=0):
    message = WORLD.message("a", body, durable=True)
    message.number, message.traits, message.expires = number, TRAITS[traits], expires
    ids = b"".join(each.to_bytes(4, "little") for each in range(7, 7 + queues))
    return message_head(message, 3, ids, due) + message.tail


def indexed(segments):
    """As a replay does it; returns how many are in columns too."""
    index, greatest, columnar = MessageIndex(), 0, 0
    for number, payloads in enumerate(segments, 1):
        data = b"".join(payloads)
        segment = ReadSegment(number, Path(), len(data), Header())
        columns, at = index.open(segment, data), 0
        for payload in payloads:
            end = at + len(payload)
            found = columns.add(at, end, greatest)
            key = StoredMessage(data, at).number
            if found < 0:
                index.forget(key)
                index.put(key, (segment, data, at))
            else:
                if key in index.others:
                    index.forget(key)
                greatest = found
                columnar += 1
            at = end
        index.close()
    return index, columnar


RECORDS = st.builds(
    record,
    st.integers(1, 30),
    st.integers(0, len(TRAITS) - 1),
    st.binary(max_size=3),
    st.sampled_from([0, 0, 0, 5]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 9]),
)


@given(st.lists(st.lists(RECORDS, max_size=12), max_size=5), st.lists(st.integers(0, 31), max_size=10))
def test_the_index_is_as_a_dictionary(segments, forgotten):
    index, _ = indexed(segments)
    known = {}
    for number, payloads in enumerate(segments, 1):
        for payload in payloads:
            key = StoredMessage(payload).number
            known.pop(key, None)
            known[key] = (number, payload)
    for number in forgotten:
        index.forget(number)
        known.pop(number, None)
    assert list(index) == sorted(known)
    assert len(index) == len(known)
    for number in range(32):
        assert (number in index) == (number in known)
        place = index.get(number)
        if place is not None:
            segment, data, at = place
            payload = known[number][1]
            assert (segment.number, data[at : at + len(payload)]) == known[number]


def test_messages_that_are_alike_have_columns_alone():
    payloads = [record(number, number % 4, bytes(number % 7)) for number in range(1, 200)]
    index, columnar = indexed([payloads[:100], payloads[100:]])
    assert columnar == 199 and not index.others
    kinds = index.segments[0].kinds[1:]
    assert [each.grouped for each in kinds if each is not None] == [False, False, True, False]
    assert {each.queue for each in kinds if each is not None} == {7}
    assert index.segments[1].sizes[0] == len(payloads[100]) - 68 - tail_at(payloads[100])


def tail_at(payload):
    return StoredMessage(payload).traits_length


def test_a_record_that_does_not_fit_is_not_taken():
    payload = record(5)
    index, columnar = indexed([[payload]])
    assert columnar == 1
    for faulty in (payload[:2] + b"\x0c" + payload[3:], payload[:-1], payload[:40], payload + b"x"):
        columns = MessageIndex().open(ReadSegment(1, Path(), len(faulty), Header()), faulty)
        assert columns.add(0, len(faulty), 0) == -1
    columns = index.segments[0]
    faulty = payload + payload[:-1]  # behind one that fits
    columns = MessageIndex().open(ReadSegment(1, Path(), len(faulty), Header()), faulty)
    assert columns.add(0, len(payload), 0) == 5
    assert columns.add(len(payload), len(faulty), 4) == -1


def test_numbers_that_do_not_ascend_are_for_the_others():
    index, columnar = indexed([[record(5), record(5), record(4), record(6)], [record(4), record(7)]])
    assert columnar == 3 and list(index) == [4, 5, 6, 7]
    assert index.others.keys() == {4, 5}
