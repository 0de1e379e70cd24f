"""The columns of a page, and what of them stands in its footer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.store.page_file import (
    DURABLE_BIT,
    PAGE_FOOTER,
    SCHEDULED_BIT,
    PageColumns,
    PageSummary,
    pack_bits,
    unpack_bits,
)
from stompring.store.segment import Footer

KINDS = st.builds(
    lambda level, lasting, delayed: level + 1 | lasting | delayed,
    st.integers(0, 9),
    st.sampled_from([0, DURABLE_BIT]),
    st.sampled_from([0, SCHEDULED_BIT]),
)
MESSAGES = st.lists(st.tuples(KINDS, st.sets(st.sampled_from([3, 70_000, 2**32 - 1]))), max_size=40)


def contents_of(messages):
    contents = PageColumns()
    for index, (kind, queues) in enumerate(messages):
        contents.starts.append(100 * index)
        contents.numbers.append(7 + index)
        contents.timestamps.append(100_000 - index)
        contents.kinds.append(kind)
        ids = b"".join(queue.to_bytes(4, "little") for queue in sorted(queues))
        if not contents.memberships or contents.memberships[-1][1] != ids:
            contents.memberships.append((index, ids))
    return contents


def read_back(contents):
    parsed = Footer.parse(contents.footer(5).payload())
    assert parsed is not None
    return parsed, PageSummary.of(parsed)


@given(st.lists(st.booleans(), max_size=70))
def test_bits_come_back(bits):
    mask = bytes(255 * bit for bit in bits)
    packed = pack_bits(mask)
    assert len(packed) == (len(bits) + 7) // 8
    assert unpack_bits(packed, len(bits)) == mask
    assert [bool(packed[at // 8] >> at % 8 & 1) for at in range(len(bits))] == bits


@given(MESSAGES)
def test_a_durable_queue_has_its_durable_messages(messages):
    contents = contents_of(messages)
    _, summary = read_back(contents)
    assert summary.count == len(messages)
    for queue in {queue for _, queues in messages for queue in queues}:
        states = summary.states(queue)
        assert list(states) == [
            0 if queue not in queues or not kind & DURABLE_BIT else 12 if kind & SCHEDULED_BIT else kind & 15
            for kind, queues in messages
        ]
        assert contents.summary().states(queue) == states
    assert set(summary.members) == {queue for _, queues in messages for queue in queues}


def test_footer_has_least_and_greatest_values():
    contents = contents_of([(5, {1}), (5, {1}), (5, {1})])
    contents.soonest_expiry, contents.soonest_due, contents.greatest_transaction = 11, 12, 13
    footer, summary = read_back(contents)
    assert (footer.least_number, footer.greatest_number) == (7, 9)
    assert (footer.least_timestamp, footer.greatest_timestamp) == (99_998, 100_000)
    assert list(footer.starts) == [0, 100, 200]
    assert footer.addresses == (5,)
    assert (summary.soonest_expiry, summary.soonest_due, summary.greatest_transaction) == (11, 12, 13)
    assert (summary.least_number, summary.greatest_number) == (7, 9)


def test_footer_stores_a_common_kind_once():
    many = contents_of([(5 | DURABLE_BIT, {1})] * 8000)
    assert len(many.footer(1).more) < 50
    one_differs = contents_of([(5 | DURABLE_BIT, {1})] * 7999 + [(6 | DURABLE_BIT, {1, 2})])
    assert len(one_differs.footer(1).more) < 8000 + 1000 + 50


@pytest.mark.parametrize("cut", [0, 1, PAGE_FOOTER.size, PAGE_FOOTER.size + 2, -1])
def test_a_footer_that_is_too_short_is_none(cut):
    footer = contents_of([(5, {1}), (6, {2})]).footer(1)
    footer.more = footer.more[:cut]
    assert PageSummary.of(footer) is None


def test_a_footer_that_is_too_long_is_none():
    footer = contents_of([(5, {1}), (6, {2})]).footer(1)
    footer.more += b"\0"
    assert PageSummary.of(footer) is None
