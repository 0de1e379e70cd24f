"""``stompring data verify``: nothing to find in what a broker leaves, and everything in what was damaged."""

import json
import random
import re
from zlib import crc32

import pytest

from stompring.store.datadir import DataLock
from stompring.store.page_file import PageSummary
from stompring.store.record import (
    DELIVERED,
    NUMBERS,
    PAGE_SETTLED,
    QUEUE_ADDRESS,
    SETTLED,
    STATE,
    Kind,
    framed,
    pack_numbers,
    pack_runs,
)
from stompring.store.segment import HEADER, JOURNAL, SegmentScan, find_footer, pack_header

from ..store.decoded_files import of_format_2
from .conftest import invoke, told


def findings(data):
    """What is found, as JSON; the exit status must agree."""
    result = invoke(f"verify --json --data {data}", code=None)
    found = json.loads(result.stdout)["findings"]
    assert result.exit_code == (1 if found else 0), result.output
    return list(found)


def newest(data):
    return max((data / "journal").glob("*.journal"))


def oldest(data):
    return min((data / "journal").glob("*.journal"))


def page(data):
    return min((data / "paging").rglob("*.page"))


def test_what_a_broker_leaves_is_in_order(stopped):
    result = invoke(f"verify --data {stopped.filled.data}")
    assert result.stdout == "", result.output
    assert "0 findings" in result.stderr and "broker runs" not in result.stderr
    found = told(f"verify --json --data {stopped.filled.data}")
    assert found["findings"] == [] and found["notes"] == []
    assert found["pages"] > 2 and found["segments"] > 2 and found["queues"] == len(stopped.queues)


def test_a_running_broker_is_no_finding(stopped):
    result = stopped.live["verify",]
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert "while a broker runs on it" in result.stderr


def test_nothing_is_changed(filled):
    def contents():
        return {path: path.read_bytes() for path in filled.data.rglob("*") if path.is_file()}

    newest(filled.data).write_bytes(newest(filled.data).read_bytes()[:-3])
    before = contents()
    assert findings(filled.data)
    assert contents() == before


#: One of so many bytes and cuts is tried, from a random one on.
STEPS = [16, pytest.param(1, marks=pytest.mark.long)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("which", [newest, oldest, page])
def test_every_flipped_byte_is_found(filled, which, step):
    path = which(filled.data)
    whole = path.read_bytes()
    places = [
        *range(HEADER.size + 12),
        *range(HEADER.size + 12, len(whole) - 16, len(whole) // 40),
        *range(len(whole) - 16, len(whole)),
    ]
    for place in places[random.randrange(step) :: step]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        found = findings(filled.data)
        assert [each for each in found if each["file"] == str(path)], place
    path.write_bytes(whole)
    assert findings(filled.data) == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("which", [newest, oldest, page])
def test_every_cut_is_found(filled, which, step):
    """But for one exactly between two records of a file without a footer: nothing is missing there."""
    path = which(filled.data)
    whole = path.read_bytes()
    ends = {HEADER.size, *(end for _, end in SegmentScan(whole))}
    for size in range(random.randrange(step), len(whole), len(whole) * step // 80):
        path.write_bytes(whole[:size])
        found = findings(filled.data)
        assert size in ends or [each for each in found if each["file"] == str(path)], size


def test_a_torn_tail_is_one_line_with_its_place(filled):
    path = newest(filled.data)
    whole = path.read_bytes()
    path.write_bytes(whole + framed(SETTLED.pack(Kind.SETTLED, 0, 0, 1, 0))[:-1])
    (line,) = invoke(f"verify --data {filled.data}", code=1).stdout.splitlines()
    assert line.startswith(f"{path}:{len(whole)}: ")


def test_zeros_that_prefill_the_newest_segment_are_no_finding(filled):
    path = newest(filled.data)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))
    assert findings(filled.data) == []
    path.write_bytes(whole + bytes(4000) + b"x" + bytes(95))
    assert [(each["file"], each["position"]) for each in findings(filled.data)] == [(str(path), len(whole))]
    path.write_bytes(whole)


def test_a_torn_tail_is_being_written_while_a_broker_runs(filled):
    for path in (newest(filled.data), max((filled.data / "paging").rglob("*.page"))):
        data = path.read_bytes()
        footer = find_footer(data)
        path.write_bytes(data[: len(data) if footer is None else footer.size] + b"\x10\0\0\0half")
    assert len(findings(filled.data)) == 2
    lock = DataLock(filled.data)
    try:
        assert findings(filled.data) == []
        oldest_page = page(filled.data)
        oldest_page.write_bytes(oldest_page.read_bytes()[:-1])
        assert len(findings(filled.data)) == 1
    finally:
        lock.release()


@pytest.mark.parametrize(
    "name", ["notes.txt", "journal/7.journal", "paging/x", "paging/{0}/1.page", "journal/a.new"]
)
def test_what_does_not_belong(filled, name):
    folder = page(filled.data).parent.name
    path = filled.data / name.format(folder)
    path.write_text("")
    (found,) = findings(filled.data)
    assert found == {"file": str(path), "position": None, "text": "unknown file"}


def test_what_a_recovery_set_aside_is_only_noted(filled):
    (filled.data / "journal" / "000000001.journal.damaged").write_text("")
    (filled.data / "schema-version.new").write_text("")
    found = told(f"verify --json --data {filled.data}")
    assert found["findings"] == [] and len(found["notes"]) == 2


def test_local_copy_of_a_replicated_log_is_a_data_directory(filled):
    (filled.data / "replicated-log").write_text("{}")
    (filled.data / "replicated-log.new").write_text("{")
    (filled.data / "journal.discarded").mkdir()
    found = told(f"verify --json --data {filled.data}")
    assert found["findings"] == []
    assert found["notes"] == [
        f"{filled.data}/journal.discarded: set aside as a copy of another replicated log",
        f"{filled.data}/replicated-log.new: temporary file left by a killed broker",
    ]


def test_a_segment_that_is_missing(filled):
    segments = sorted((filled.data / "journal").glob("*.journal"))
    segments[1].unlink()
    text = f"segment {int(segments[1].stem)} is missing; number of lost messages unknown"
    assert text in [each["text"] for each in findings(filled.data)]


@pytest.mark.parametrize("which", [newest, oldest])
def test_a_segment_at_an_end_is_missing(filled, which):
    path = which(filled.data)
    path.unlink()
    assert any(
        str(each["text"]).startswith(f"segment {int(path.stem)} is missing") for each in findings(filled.data)
    )


def test_a_page_that_is_missing(filled):
    pages = sorted((filled.data / "paging").rglob("*.page"))
    pages[1].unlink()
    (found,) = findings(filled.data)
    assert found["file"] == str(pages[1])
    assert re.fullmatch(r"the file is missing; messages lost: \d+ of queue pages\.a", str(found["text"]))


@pytest.mark.parametrize("kind", ["journal", "paging"])
@pytest.mark.parametrize("onto", ["over another", "to a new number"])
def test_a_file_that_is_not_what_its_name_says(filled, kind, onto):
    files = sorted((filled.data / kind).rglob("*.journal" if kind == "journal" else "*.page"))
    target = files[1]
    if onto == "to a new number":
        target = files[0].with_name(f"{int(files[-1].stem) + 1:09d}{files[0].suffix}")
    target.write_bytes(files[0].read_bytes())
    found = [str(each["text"]) for each in findings(filled.data) if each["file"] == str(target)]
    what, number = ("segment" if kind == "journal" else "page"), int(target.stem)
    assert found[0] == f"not {what} {number}: it is a copy of file number {int(files[0].stem)}"
    assert len(found) == (2 if target == files[1] and kind == "paging" else 1)


def test_files_of_another_directory(filled):
    identity = filled.data / "identity"
    other = "0123456789abcdef" * 2
    was = identity.read_text().strip()
    identity.write_text(f"{other}\n")
    texts = {str(each["text"]).partition(": ")[2] for each in findings(filled.data)}
    assert f"it belongs to the data directory {was}" in texts


@pytest.mark.parametrize("text", [None, "rubbish\n"])
def test_an_identity_that_cannot_be_read(filled, text):
    identity = filled.data / "identity"
    identity.unlink()
    if text is not None:
        identity.write_text(text)
    (found,) = findings(filled.data)
    assert found["file"] == str(identity)


@pytest.mark.parametrize("text", ["", "2\n", "4\n", "one\n"])
def test_another_schema(filled, text):
    (filled.data / "schema-version").write_text(text)
    (found,) = findings(filled.data)
    assert found["file"] == str(filled.data / "schema-version")


@pytest.mark.parametrize("which", [oldest, page])
def test_files_of_an_older_format(filled, which, tmp_path):
    path = which(filled.data)
    of_format_2(path)
    for command in ("verify", "print", f"export {tmp_path / 'export'}"):
        told = invoke(f"{command} --data {filled.data}", code=1).output
        assert f"{path} at 0: format 2 is of an earlier version" in told, told
        assert "'stompring data export'" in told


@pytest.mark.parametrize(
    "text, expected", [("", "missing or empty"), ("other", "'other', but the pages belong to")]
)
def test_the_name_of_a_folder(filled, text, expected):
    (page(filled.data).parent / "address.txt").write_text(text)
    (found,) = findings(filled.data)
    assert expected in str(found["text"])


def dangling():
    """Facts about what never was, and words of what is to be said of them."""
    never = 10_000_000
    return [
        pytest.param(
            SETTLED.pack(Kind.SETTLED, 0, 0, 1, 0) + pack_numbers([never]), "never existed", id="settled"
        ),
        pytest.param(STATE.pack(Kind.STATE, 0, 0, 1, never, 1, 1, 0, 0), "never existed", id="state"),
        pytest.param(
            DELIVERED.pack(Kind.DELIVERED, 0, 0, 1, 0) + pack_numbers([never]),
            "never existed",
            id="delivered",
        ),
        pytest.param(
            PAGE_SETTLED.pack(Kind.PAGE_SETTLED, 0, 0, 0, 0, 0, 0) + pack_runs([100_000]),
            "the journal has records of 100001 messages",
            id="page",
        ),
        pytest.param(
            SETTLED.pack(Kind.SETTLED, 0, 3, 1, 0),
            "consumer number 3 is used before its NAME record",
            id="consumer",
        ),
        pytest.param(
            QUEUE_ADDRESS.pack(Kind.QUEUE_ADDRESS, 0, 0, never, 1),
            f"queue number {never} is used before its NAME record",
            id="address of a queue",
        ),
        pytest.param(bytes([Kind.QUEUE_ADDRESS]) + b"short", "malformed record", id="cut off"),
        pytest.param(bytes([Kind.STATE]) + b"short", "malformed record", id="malformed"),
        pytest.param(b"\x63what", "malformed record", id="unknown kind"),
    ]


@pytest.mark.parametrize("payload, words", dangling())
def test_facts_about_nothing(filled, payload, words):
    if payload[0] == Kind.PAGE_SETTLED:
        number = int(page(filled.data).stem)
        queue = next(iter(queues_of(filled)))
        payload = (
            PAGE_SETTLED.pack(Kind.PAGE_SETTLED, 0, 0, 0, queue, number, 0) + payload[PAGE_SETTLED.size :]
        )
    path, place = another_segment(filled.data, framed(payload))
    found = findings(filled.data)
    assert [each for each in found if words in str(each["text"])], found
    if payload[0] != Kind.PAGE_SETTLED:
        assert (found[0]["file"], found[0]["position"]) == (str(path), place + 8)


def queues_of(filled):
    """Numbers of queues that have something in the first page."""
    footer = find_footer(page(filled.data).read_bytes())
    assert footer is not None
    return set(PageSummary.of(footer).members)


def another_segment(data, records):
    """One more segment, and where its records begin."""
    last = newest(data)
    path = last.with_name(f"{int(last.stem) + 1:09d}.journal")
    header = pack_header(JOURNAL, 1, 1)
    numbers = framed(NUMBERS.pack(Kind.NUMBERS, 0, 0, 1, 1, 1, 0, 0))
    path.write_bytes(header + numbers + records)
    return path, len(header + numbers)


def test_a_message_in_a_queue_that_is_not_there(filled):
    """Its binding is cut out of all segments; all else stays as it is."""
    for path in sorted((filled.data / "journal").glob("*.journal")):
        data = path.read_bytes()
        footer = find_footer(data)
        stop = len(data) if footer is None else footer.size
        kept, at = data[: HEADER.size], HEADER.size
        while at < stop:
            length = int.from_bytes(data[at : at + 4], "little")
            record = data[at : at + 8 + length]
            assert crc32(record[8:]) == int.from_bytes(record[4:8], "little")
            if not (
                record[8] == Kind.BINDING and b'"name":"together"' in record and b'"attributes"' in record
            ):
                kept += record
            at += 8 + length
        path.write_bytes(kept)
    found = [each["text"] for each in findings(filled.data)]
    assert len(found) == 3 and all("queue together, which does not exist" in str(text) for text in found), (
        found
    )
