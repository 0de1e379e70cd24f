"""Record batches of files beside a reader of the documented tables; files that are cut off or damaged."""

import logging
import struct
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline import messages as columns
from stompring.store.record import DEAD_LETTER, MESSAGE, PREFIX, TRAITS, framed
from stompring.store.segment import HEADER, JOURNAL, Footer, SegmentScan, find_footer, pack_header

from ..property.profile import EXAMPLES, examples
from . import reference_decoder
from .broker_files import broker_files, write_files
from .spark_formats import reader, table

FILES = broker_files()
SMALL = broker_files(count=1, paged=12, journal_file_size=1500)


def rows(data, name="journal/000000001.journal", **options):
    """The rows of a file that is alone in its directory."""
    with TemporaryDirectory() as root:
        found = table(write_files(Path(root), {"schema-version": b"3", name: data}), **options)
    for row in found:
        if "headers" in row:
            pairs, row["headers"] = row["headers"], dict(row["headers"])
            assert len(pairs) == len(row["headers"])
    return found


def of(suffix, files=FILES):
    return {name: data for name, data in files.items() if name.endswith(suffix)}


def test_the_files_have_all_there_is():
    assert len(of(".journal")) > 4 and len(of(".page")) > 2 and len(of(".samples")) == 1
    assert any(map(find_footer, of(".page").values())) and not all(map(find_footer, FILES.values()))
    every = [row for data in FILES.values() for row in reference_decoder.rows(data)]
    for column in ("user", "due", "expires", "durable"):
        assert len({row[column] for row in every}) > 1, column
    assert {row["body"] for row in every} >= {b"within", b"a transaction"}
    assert {"a:b": "one\ntwo\\n", "a": "x:y:z"} in [row["headers"] for row in every]


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_row_of_a_file(name):
    data = FILES[name]
    assert rows(data, name) == reference_decoder.rows(data)
    assert rows(data, name, table="events") == reference_decoder.events(data)
    assert rows(data, name, table="samples") == reference_decoder.samples(data)


@pytest.mark.parametrize("names", [["body"], ["queue", "address"], ["headers", "timestamp"], ["user"]])
def test_columns_are_those_asked_for(names):
    for file, data in FILES.items():
        every = [{name: row[name] for name in names} for row in reference_decoder.rows(data)]
        found = rows(data, file, columns=",".join(names))
        assert found == every
        assert all(list(row) == names for row in found)


def test_addresses_and_times():
    name, data = max(of(".journal").items(), key=lambda file: len(reference_decoder.rows(file[1])))
    every = reference_decoder.rows(data)
    middle = sorted(row["timestamp"] for row in every)[len(every) // 2]
    assert rows(data, name, addresses="news") == [row for row in every if row["address"] == "news"]
    assert rows(data, name, addresses="n.*, #") == every
    assert rows(data, name, addresses="elsewhere") == []
    moment = middle.isoformat()
    assert rows(data, name, since=moment) == [row for row in every if row["timestamp"] >= middle]
    assert rows(data, name, until=moment) == [row for row in every if row["timestamp"] < middle]


@pytest.mark.parametrize("limit", [{"ROWS": 1}, {"ROWS": 3}, {"BYTES": 300}, {"SPAN": 256}])
def test_batches_are_cut(limit, tmp_path, monkeypatch):
    source = reader(write_files(tmp_path, FILES))
    few = [len(list(source.read(part))) for part in source.partitions()]
    for name, value in limit.items():
        monkeypatch.setattr(columns, name, value)
    for name, data in FILES.items():
        assert rows(data, name) == reference_decoder.rows(data)
    assert sum(len(list(source.read(part))) for part in source.partitions()) > sum(few) + 3


# ---- damage


def offsets(data):
    """Where to damage a file: here and there, and everywhere when one asks for it by hand."""
    return iter(range(0, len(data), 1 if EXAMPLES else 1 + len(data) // 100))


def other_table(name):
    """What a file has beside messages."""
    return "samples" if name.endswith("samples") else "events"


@pytest.mark.parametrize("name", sorted(SMALL))
def test_cut_off_loses_only_what_is_cut(name):
    """What is left is a beginning of what there was."""
    data, other = SMALL[name], other_table(name)
    whole = rows(data, name, table=other)
    for size in offsets(data):
        found = rows(data[:size], name, table=other)
        assert found == whole[: len(found)], size
        if size >= HEADER.size:
            assert rows(data[:size], name) == reference_decoder.rows(data[:size])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_any_byte_changed(name):
    """No row is there that was not before, but for names that cannot be read any more."""
    data = SMALL[name]
    whole, other = rows(data, name), other_table(name)
    for at in offsets(data):
        broken = bytearray(data)
        broken[at] ^= 0xFF >> (at % 8)
        for row in rows(bytes(broken), name):
            same = [row | _names(row, each) for each in whole if each["message_id"] == row["message_id"]]
            assert any(one in whole for one in same), (at, row)
        rows(bytes(broken), name, table=other)


def _names(row, other):
    """What a row has no name for, from another one."""
    return {name: other[name] for name in ("address", "queue") if row[name] is None}


@pytest.mark.parametrize("name", sorted(of(".journal", SMALL)))
def test_a_damaged_record_costs_that_record_alone(name, caplog):
    data = SMALL[name]
    footer = find_footer(data)
    if footer is None:
        pytest.skip("not sealed: it is read up to the damage")
    whole = reference_decoder.rows(data)
    for start in footer.starts:
        if data[start + 8] != 1:
            continue
        broken = bytearray(data)
        broken[start + 20] ^= 1
        number = MESSAGE.unpack_from(data, start + 8)[5]
        caplog.clear()
        assert rows(bytes(broken), name) == [row for row in whole if row["message_id"] != number]
        assert caplog.text.count("; skipped") == 1


def open_journal():
    """A segment as it was before its footer."""
    data = next(iter(of(".journal", SMALL).values()))
    footer = find_footer(data)
    return data if footer is None else data[: footer.size]


def warned(caplog):
    """What was logged as a fault."""
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


def record_starts(data):
    """Where the records of an open file begin, and where the last of them ends."""
    spans = list(SegmentScan(data))
    return [begin - PREFIX.size for begin, _ in spans] + [spans[-1][1]]


@pytest.mark.parametrize("end", [b"", bytes(8), bytes(100)], ids=["cut anywhere", "a zero prefix", "zeros"])
def test_an_unfinished_record_at_the_end_of_an_open_file_is_no_fault(end, caplog):
    data = open_journal()
    *starts, whole = record_starts(data)
    assert whole == len(data) and len(starts) > 10
    around = {start + more for start in starts for more in (0, 1, 7, 8, 9, 30)} | {*offsets(data)}
    for at in starts if end else sorted(at for at in around if at >= starts[0]):
        assert rows(data[:at] + end, columns="body") == rows(data[:at], columns="body"), at
    assert not warned(caplog)


def test_a_prefilled_segment_has_the_rows_of_its_records(caplog):
    for name, data in of(".journal").items():
        assert rows(data + bytes(4096), name) == rows(data, name), name
    assert not warned(caplog)


def test_a_torn_write_into_zeros_is_no_fault(caplog):
    data = open_journal()
    last = record_starts(data)[-2]
    before = rows(data[:last])
    for at in range(last + 1, len(data)):
        assert rows(data[:at] + bytes(len(data) - at + 500)) == before, at
    assert not warned(caplog)


def test_what_is_no_file_of_a_broker():
    for data in (b"", b"STOMPRNG", bytes(100), b"x" * 1000, FILES[sorted(FILES)[0]][32:]):
        assert rows(data) == []


# ---- records made of anything

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
messages = st.lists(
    st.tuples(
        st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True),
        st.lists(st.tuples(texts.filter(bool), texts), max_size=4),
        st.binary(max_size=40),
        texts,
        st.integers(0, 2**64 - 1),
    ),
    max_size=8,
)


def escaped(text):
    for plain, code in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), (":", "\\c")):
        text = text.replace(plain, code)
    return text


#: Of an address and of four queues.
NAMES = [struct.pack("<BBHI", 10, 1, 0, 9) + b"address"]
NAMES += [struct.pack("<BBHI", 10, 2, 0, number) + b"queue %d" % number for number in range(1, 5)]


def message(number, queues, headers, body=b"", user="", expires=0, flags=1):
    """A record with header lines as they are written."""
    who = user.encode()
    head = b"%d\ncontent-length:%d\n%b\n" % (number, len(body), headers)
    traits = TRAITS.pack(len(headers), 3, len(who), 0, 2) + b"/q/" + who + b"gr"
    times = number * 1000, expires, 0, 0
    lengths = len(head), len(body), len(queues), len(traits)
    ids = array("I", queues).tobytes()
    return MESSAGE.pack(1, flags, 4, 0, 9, number, *times, *lengths) + ids + traits + head + body + b"\0\n"


@pytest.mark.parametrize("part", range(5), ids=["block", "destination", "user", "origin", "group"])
def test_a_part_longer_than_its_record_costs_that_record_alone(part, caplog):
    """Its checksum is good: nobody should have written it."""
    wrong = bytearray(message(2, [1], b"a:b\n", user="anna"))
    struct.pack_into("<I", wrong, MESSAGE.size + 4 + 4 * part, 2**32 - 1)
    parts = [*NAMES, message(1, [1], b"a:b\n"), bytes(wrong), message(3, [1], b"a:b\n")]
    data = pack_header(JOURNAL, 1, 1) + b"".join(map(framed, parts))
    assert [row["message_id"] for row in rows(data)] == [1, 3]
    assert caplog.text.count("; skipped") == 1


@examples(120)
@given(messages, st.booleans())
def test_any_messages(given_, seal):
    parts, expected = [*NAMES], []
    for number, (queues, headers, body, user, expires) in enumerate(given_, 1):
        block = "".join(f"{escaped(name)}:{escaped(value)}\n" for name, value in headers)
        parts.append(message(number, queues, block.encode(), body, user, expires))
        first = dict(reversed(headers))
        for queue in queues:
            about = {"message_id": number, "queue": f"queue {queue}", "body": body, "user": user or None}
            expected.append({**about, "headers": first, "address": "address"})
    data, starts = pack_header(JOURNAL, 1, 1), array("I")
    for part in parts:
        starts.append(len(data))
        data += framed(part)
    if seal:
        data += Footer(starts).ending(data)
    found = rows(data)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected if expected else not found
    for row, made_ in zip(found, [m for m in given_ for _ in m[0]], strict=True):
        assert row["expires"] == reference_decoder.time(min(made_[4], 253_402_300_799_999))


@pytest.mark.parametrize("written, queue", [("a\\\\cb\\cd", "a\\cb:d"), ("a\\x", None)])
def test_the_queue_that_a_copy_came_from_is_unescaped_once(written, queue):
    """A backslash before a letter in a name is no escape."""
    block = f"_AMQ_ORIG_QUEUE:{written}\n_AMQ_ORIG_MESSAGE_ID:5\n"
    data = pack_header(JOURNAL, 1, 1) + b"".join(
        map(framed, [*NAMES, message(1, [1], block.encode(), flags=1 | DEAD_LETTER)])
    )
    found = [row["queue"] for row in rows(data, table="events") if row["event"] == "dead-lettered"]
    assert found == ([queue] if queue else [])
