"""Headers, footers, and walks over damaged segments."""

from array import array
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompring.store.record import Kind, framed
from stompring.store.segment import (
    BLOCK,
    HEADER,
    JOURNAL,
    NO_IDENTITY,
    PAGE,
    READ_AT_ONCE,
    Footer,
    Header,
    SegmentScan,
    find_footer,
    footer_offset,
    pack_header,
)

from ..property.profile import examples

PAYLOADS = [b"\x02first", b"\x02the second", b"\x02" + b"x" * 300]


def unsealed(payloads=PAYLOADS):
    """A segment, and where its records begin."""
    data, starts = pack_header(JOURNAL, 7, 1234), []
    for payload in payloads:
        starts.append(len(data))
        data += framed(payload)
    return data, starts


def sealed(payloads=PAYLOADS):
    data, starts = unsealed(payloads)
    return data + Footer(array("I", starts), 1, 9, 100, 200, (3, 4), more=b"more").ending(data)


def walked(data):
    walk = SegmentScan(data)
    return [data[begin:end] for begin, end in walk], walk


# ---- headers


IDENTITY = bytes(range(16))


def test_header():
    data = pack_header(PAGE, 2**40, 1_700_000_000_000, 17, IDENTITY, 5, 2**33)
    assert len(data) == HEADER.size == 72 and data[:8] == b"STOMPRNG"
    assert Header.read(data) == Header(3, PAGE, 2**40, 1_700_000_000_000, 17, IDENTITY, 5, 2**33)


def test_a_header_of_format_1_which_was_shorter():
    data = b"STOMPRNG\1\0\1\0" + bytes(20)
    data = data[:12] + crc32(data).to_bytes(4, "little") + data[16:]
    assert Header.read(data) == Header.read(data + bytes(100)) == Header(1, JOURNAL)


def test_records_behind_a_damaged_header_are_found():
    header = pack_header(JOURNAL, 7, 1234)
    for at in range(len(header)):
        data = bytearray(header + b"".join(map(framed, PAYLOADS)))
        data[at] ^= 0x03
        assert Header.read(bytes(data)).fault == "the header is damaged"
        assert walked(bytes(data))[0] == PAYLOADS


def test_a_file_in_another_ones_place():
    header = Header.read(pack_header(JOURNAL, 1, 1, 17, IDENTITY))
    assert header.misplaced(17, IDENTITY) == header.misplaced(17, NO_IDENTITY) == ""
    assert "number 17" in header.misplaced(18, IDENTITY)
    assert IDENTITY.hex() in header.misplaced(17, IDENTITY[::-1])


def test_something_else_altogether():
    data = b"NOTATALL" + pack_header(JOURNAL, 7, 1234)[8:12] + bytes(60)
    data = data[:12] + crc32(data).to_bytes(4, "little") + data[16:]
    assert Header.read(data).fault == "not a segment file"


# ---- footers


def test_footer():
    data, starts = unsealed()
    whole = sealed()
    footer = find_footer(whole)
    assert list(footer.starts) == starts
    assert (footer.least_number, footer.greatest_number) == (1, 9)
    assert (footer.least_timestamp, footer.greatest_timestamp) == (100, 200)
    assert (footer.addresses, footer.more, footer.size) == ((3, 4), b"more", len(data))
    assert footer.blocks == (crc32(data),)
    assert footer_offset(whole[-16:]) == len(data) and whole.endswith(b"SEAL")


def test_every_block_has_its_checksum():
    data, _ = unsealed([b"\x02" + bytes(BLOCK), b"\x02" + b"y" * BLOCK])
    footer = find_footer(data + Footer(array("I")).ending(data))
    assert footer.blocks == (crc32(data[:BLOCK]), crc32(data[BLOCK : 2 * BLOCK]), crc32(data[2 * BLOCK :]))


def test_a_footer_with_a_flipped_byte_is_not_believed():
    data, _ = unsealed()
    whole = sealed()
    for at in range(len(data), len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert find_footer(bytes(damaged)) is None, at
        payloads, _ = walked(bytes(damaged))
        assert payloads == PAYLOADS, "the records are found without it"


@pytest.mark.parametrize("payload", [b"", b"\x0b", b"\x0b" + bytes(60), b"\x01" + bytes(200)])
def test_invalid_footer_is_rejected(payload):
    good = Footer(array("I", [32]), addresses=(1,)).payload()
    assert Footer.parse(good) is not None
    assert Footer.parse(payload) is None or payload == b"\x0b" + bytes(60)
    assert Footer.parse(good[:-1]) is None


# ---- walks


def test_cut_off_anywhere_all_before_is_there():
    data, starts = unsealed()
    ends = [*starts[1:], len(data)]
    for size in range(HEADER.size, len(data)):
        payloads, walk = walked(data[:size])
        whole = sum(end <= size for end in ends)
        assert payloads == PAYLOADS[:whole]
        assert walk.end == max([end for end in ends if end <= size], default=HEADER.size)
        assert walk.whole is (size in ends or size == HEADER.size)


def test_a_flipped_byte_anywhere_all_before_is_there():
    data, starts = unsealed()
    for at in range(HEADER.size, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        payloads, walk = walked(bytes(damaged))
        hit = max(place for place, start in enumerate(starts) if start <= at)
        assert payloads[:hit] == PAYLOADS[:hit] and walk.end == starts[hit], at
        assert walk.faults[0].at == starts[hit]


def test_the_footer_leads_over_damage():
    data, starts = unsealed()
    whole = sealed()
    for at in range(HEADER.size, len(data)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        payloads, walk = walked(bytes(damaged))
        hit = max(place for place, start in enumerate(starts) if start <= at)
        assert payloads == PAYLOADS[:hit] + PAYLOADS[hit + 1 :], at
        assert [fault.at for fault in walk.faults] == [starts[hit]]


@pytest.mark.parametrize("tail", [bytes(40) + b"\x01", b"\x01\0\0\0", b"\xff" * 50])
def test_rubbish_at_the_end(tail):
    data, _ = unsealed()
    payloads, walk = walked(data + tail)
    assert payloads == PAYLOADS and walk.end == len(data) and len(walk.faults) == 1


@examples(200)
@given(st.binary(max_size=400))
def test_anything_can_be_walked(rubbish):
    data = pack_header(JOURNAL, 1, 1) + rubbish
    payloads, walk = walked(data)
    assert walk.end <= len(data)
    assert all(payload[0] != Kind.FOOTER for payload in payloads)
    Header.read(rubbish)
    find_footer(rubbish)


def test_a_footer_of_another_segment_is_not_believed():
    """Its checksums of blocks are of other bytes: each record is looked at."""
    data, starts = unsealed()
    other, _ = unsealed([payload[::-1] for payload in PAYLOADS])
    ending = Footer(array("I", starts)).ending(other)
    payloads, walk = walked(data + ending)
    assert payloads == PAYLOADS and walk.whole
    payloads, walk = walked(data[:100] + b"X" + data[101:] + ending)
    assert len(payloads) == 2 and not walk.whole


@pytest.mark.parametrize("starts", [[], [80], [73, 100]])
def test_a_footer_that_does_not_begin_at_the_beginning(starts):
    data, _ = unsealed()
    payloads, _ = walked(data + Footer(array("I", starts)).ending(data))
    assert payloads == PAYLOADS


# ---- prefilled segments


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 5000])
def test_zeros_after_the_last_record_are_no_fault(count):
    data, _ = unsealed()
    found, walk = walked(data + bytes(count))
    assert (found, walk.whole) == (PAYLOADS, True)
    assert walk.size == walk.end == len(data)


def test_records_that_end_with_zeros_are_whole_before_zeros():
    payloads = [b"\x02" + bytes(count) for count in range(1, 20)]
    data, _ = unsealed(payloads)
    found, walk = walked(data + bytes(64))
    assert (found, walk.whole, walk.size) == (payloads, True, len(data))


@pytest.mark.parametrize("at", [0, 3, 4, 8, 40, 99])
def test_another_byte_among_the_zeros_is_a_torn_write(at):
    data, _ = unsealed()
    zeros = bytearray(100)
    zeros[at] = 1
    found, walk = walked(data + bytes(zeros))
    assert found == PAYLOADS and walk.end == len(data) and walk.size == len(data) + 100
    assert [(fault.at, fault.incomplete) for fault in walk.faults] == [(len(data), True)]


def test_every_part_of_a_record_before_zeros_is_a_torn_write():
    data, starts = unsealed()
    last = starts[-1]
    for size in range(last + 1, len(data)):
        found, walk = walked(data[:size] + bytes(len(data) - size + 50))
        assert (found, walk.end) == (PAYLOADS[:-1], last), size
        assert [fault.at for fault in walk.faults] == [last], size


def test_zeros_after_the_trailer_are_not_part_of_a_sealed_segment():
    whole = sealed()
    found, walk = walked(whole + bytes(500))
    assert (found, walk.whole, walk.size) == (PAYLOADS, True, len(whole))
    assert walk.footer is not None


def test_zeros_at_the_end_of_a_page_are_a_fault():
    """Pages are not prefilled: there a hole means that something is lost."""
    data = pack_header(PAGE, 7, 1234) + framed(PAYLOADS[0])
    _, walk = walked(data + bytes(50))
    assert [fault.at for fault in walk.faults] == [len(data)]


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK, READ_AT_ONCE - 1, READ_AT_ONCE, READ_AT_ONCE + 1, 3 * READ_AT_ONCE - BLOCK]
)
def test_a_footer_made_from_parts_of_a_file_is_that_of_the_whole(size):
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    most = 0

    def read(start, stop):
        nonlocal most
        most = max(most, stop - start)
        return data[start:stop]

    made = Footer(array("I")).ending_of(read, size)
    assert made == Footer(array("I")).ending(data) and most <= READ_AT_ONCE
    footer = find_footer(data + made) if size else None
    assert size < 64 or (footer is not None and len(footer.blocks) == -(-size // BLOCK))
