"""Record batches of files beside a reader of the documented tables; files that are cut off or damaged."""

import struct
from array import array
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from stompring.pipeline import events
from stompring.pipeline import messages as columns
from stompring.pipeline.files import file_batches
from stompring.pipeline.options import Options, TableScan
from stompring.pipeline.records import Records
from stompring.store.record import MESSAGE, PREFIX, TRAITS, framed
from stompring.store.segment import HEADER, JOURNAL, Footer, find_footer, pack_header

from ..property.profile import EXAMPLES, examples
from . import reference_decoder
from .broker_files import broker_files

FILES = broker_files()
SMALL = broker_files(count=1, paged=12, journal_file_size=1500)
Row = dict[str, Any]


def wanted(**options):
    return Options.of({"path": "/data", **options}).wanted


def rows(data, asked=None):
    found = []
    for batch in file_batches(data, asked or TableScan()):
        batch.validate(full=True)
        for row in batch.to_pylist():
            found.append({**row, "headers": dict(row["headers"])} if "headers" in row else row)
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
    assert Records(data).sealed == (find_footer(data) is not None)  # where it is, no record is walked
    assert rows(data) == reference_decoder.rows(data)
    assert rows(data, wanted(table="events")) == reference_decoder.events(data)
    assert rows(data, wanted(table="samples")) == reference_decoder.samples(data)


@pytest.mark.parametrize("names", [["body"], ["queue", "address"], ["headers", "timestamp"], ["user"]])
def test_columns_are_those_asked_for(names):
    asked = wanted(columns=",".join(names))
    for data in FILES.values():
        every = [{name: row[name] for name in names} for row in reference_decoder.rows(data)]
        assert rows(data, asked) == every
        assert all(batch.schema.names == names for batch in file_batches(data, asked))


def test_addresses_and_times():
    data = max(of(".journal").values(), key=lambda data: len(reference_decoder.rows(data)))
    every = reference_decoder.rows(data)
    middle = sorted(row["timestamp"] for row in every)[len(every) // 2]
    assert rows(data, wanted(addresses="news")) == [row for row in every if row["address"] == "news"]
    assert rows(data, wanted(addresses="n.*, #")) == every
    assert rows(data, wanted(addresses="elsewhere")) == []
    moment = middle.isoformat()
    assert rows(data, wanted(since=moment)) == [row for row in every if row["timestamp"] >= middle]
    assert rows(data, wanted(until=moment)) == [row for row in every if row["timestamp"] < middle]


@pytest.mark.parametrize("limit", [{"ROWS": 1}, {"ROWS": 3}, {"BYTES": 300}, {"SPAN": 256}])
def test_batches_are_cut(limit, monkeypatch):
    for name, value in limit.items():
        monkeypatch.setattr(columns, name, value)
    for data in FILES.values():
        assert rows(data) == reference_decoder.rows(data)
    assert max(len(list(file_batches(data, TableScan()))) for data in FILES.values()) > 3


# ---- damage


def offsets(data):
    """Where to damage a file: here and there, and everywhere when one asks for it by hand."""
    return iter(range(0, len(data), 1 if EXAMPLES else 1 + len(data) // 200))


def other_table(name):
    """What a file has beside messages."""
    return wanted(table="samples" if name.endswith("samples") else "events")


@pytest.mark.parametrize("name", sorted(SMALL))
def test_cut_off_loses_only_what_is_cut(name):
    """What is left is a beginning of what there was."""
    data, asked = SMALL[name], other_table(name)
    whole = rows(data, asked)
    for size in offsets(data):
        found = rows(data[:size], asked)
        assert found == whole[: len(found)], size
        if size >= HEADER.size:
            assert rows(data[:size]) == reference_decoder.rows(data[:size])


@pytest.mark.parametrize("name", sorted(SMALL))
def test_any_byte_changed(name):
    """No row is there that was not before, but for names that cannot be read any more."""
    data = SMALL[name]
    whole, table = rows(data), other_table(name)
    for at in offsets(data):
        broken = bytearray(data)
        broken[at] ^= 0xFF >> (at % 8)
        for row in rows(bytes(broken)):
            same = [row | _names(row, each) for each in whole if each["message_id"] == row["message_id"]]
            assert any(one in whole for one in same), (at, row)
        rows(bytes(broken), table)


def _names(row, other):
    """What a row has no name for, from another one."""
    return {name: other[name] for name in ("address", "queue") if row[name] is None}


@pytest.mark.parametrize("name", sorted(of(".journal", SMALL)))
def test_a_damaged_record_costs_that_record_alone(name):
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
        records = Records(bytes(broken))
        assert len(records.faults) == 1 and not records.sealed
        number = MESSAGE.unpack_from(data, start + 8)[5]
        assert rows(bytes(broken)) == [row for row in whole if row["message_id"] != number]


def open_journal():
    """A segment as it was before its footer."""
    data = next(iter(of(".journal", SMALL).values()))
    footer = find_footer(data)
    return data if footer is None else data[: footer.size]


@pytest.mark.parametrize("end", [b"", bytes(8), bytes(100)], ids=["cut anywhere", "a zero prefix", "zeros"])
def test_an_unfinished_record_at_the_end_of_an_open_file_is_no_fault(end):
    data = open_journal()
    whole = Records(data)
    assert not whole.faults and whole.torn is None and len(whole.begins) > 10
    starts = (whole.begins - PREFIX.size).tolist()
    for at in starts if end else range(HEADER.size, len(data)):
        records = Records(data[:at] + end)
        assert records.faults == [], (at, records.faults)
        assert len(records.begins) <= len(whole.begins)


def test_a_prefilled_segment_has_the_rows_of_its_records():
    for name, data in of(".journal").items():
        records = Records(data + bytes(4096))
        assert records.faults == [] and records.torn is None, name
        assert rows(data + bytes(4096)) == rows(data), name


def test_a_torn_write_into_zeros_is_no_fault():
    data = open_journal()
    last = int(Records(data).begins[-1]) - PREFIX.size
    for at in range(last + 1, len(data)):
        records = Records(data[:at] + bytes(len(data) - at + 500))
        assert records.faults == [] and records.torn is not None and records.torn.at == last, at


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


@examples(120)
@given(messages, st.booleans())
def test_any_messages(given_, seal):
    parts = [struct.pack("<BBHI", 10, 1, 0, 9) + b"address"]
    parts += [struct.pack("<BBHI", 10, 2, 0, number) + b"queue %d" % number for number in range(1, 5)]
    expected = []
    for number, (queues, headers, body, user, expires) in enumerate(given_, 1):
        block = "".join(f"{escaped(name)}:{escaped(value)}\n" for name, value in headers).encode()
        head = b"%d\ncontent-length:%d\n%b\n" % (number, len(body), block)
        who = user.encode()
        traits = TRAITS.pack(len(block), 3, len(who), 0, 2) + b"/q/" + who + b"gr"
        fixed = (
            1,
            1,
            4,
            0,
            9,
            number,
            number * 1000,
            expires,
            0,
            0,
            len(head),
            len(body),
            len(queues),
            len(traits),
        )
        ids = array("I", queues).tobytes()
        parts.append(MESSAGE.pack(*fixed) + ids + traits + head + body + b"\0\n")
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
    records = Records(data)
    assert records.sealed is seal and not records.faults
    found = rows(data)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected if expected else not found
    for row, made_ in zip(found, [m for m in given_ for _ in m[0]], strict=True):
        assert row["expires"] == reference_decoder.time(min(made_[4], 253_402_300_799_999))


def test_the_queue_that_a_copy_came_from_is_unescaped_once():
    """A backslash before a letter in a name is no escape."""
    assert events._header_value(b"x\n_AMQ_ORIG_QUEUE:a\\\\cb\\cd\n\n", b"\n_AMQ_ORIG_QUEUE:") == "a\\cb:d"
    assert events._header_value(b"x\n_AMQ_ORIG_QUEUE:a\\x\n\n", b"\n_AMQ_ORIG_QUEUE:") is None
