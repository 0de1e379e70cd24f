"""The readers of records: journal, pages, and the arrays of the pipeline.

The first byte of an input chooses what the rest is:

- a whole file, as it is;
- payloads, each after its length (u16), which get a header and good checksums: what a journal says must not be
  believed only because it was written without a fault;
- damage to a file that a broker wrote: places (u16) and what is done to the byte there, the last place being where
  the file is cut off. What is read then is what was written, or is told as a fault.
"""

import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from struct import unpack_from

from stompring.errors import StoreError
from stompring.store.page_file import PageScan, transactions_at
from stompring.store.record import framed
from stompring.store.segment import (
    FORMAT,
    HEADER,
    JOURNAL,
    PAGE,
    Header,
    SegmentScan,
    find_footer,
    pack_header,
)

from ..broker.broker_fixture import bodies
from ..store.memory_files import MemoryFiles
from ..store.stored_broker import JOURNAL as DIRECTORY
from ..store.stored_broker import StoredBroker
from .oracle import expect

LONGEST = 4096
MODULES = ["stompring.store", "stompring.pipeline.records", "stompring.pipeline.messages"]
TOKENS = [
    *(bytes([kind, 0, 0, 0]) for kind in range(1, 16)),
    b"STOMPRNG",
    b"SEAL",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x01\0\0\0\0\0\0\0",
    b"destination:q\n",
    b"\n\n\0\n",
    b'{"name": "q"',
    b', "address": "q"',
    b"}",
    b"ANYCAST",
    b"[",
    b"null",
]

FIRST = DIRECTORY / "000000001.journal"
WRITTEN = Path(__file__).parent / "corpus" / "record"
FAULTY = 20  # of a fault's text: enough to be one

PIPELINE = find_spec("pyspark") is not None and find_spec("pyarrow") is not None


def check(data):
    """See the module."""
    if len(data) < 2:
        return
    logging.disable(logging.CRITICAL)  # recovery tells what it finds
    try:
        mode, rest = data[0] % 3, data[1:]
        if mode == 0:
            read(rest)
            recovered(rest)
        elif mode == 1:
            kind = JOURNAL if data[0] & 128 else PAGE
            made = pack_header(kind, 1, 1) + b"".join(framed(part) for part in parts(rest))
            read(made)
            recovered(pack_header(JOURNAL, 1, 1) + made[HEADER.size :])
        else:
            names = [path.name for path in written()]
            original = written()[WRITTEN / names[data[0] // 3 % len(names)]]
            found = read(damage(original, rest))
            expect(found <= set(payloads(original)), "a record was read that nobody wrote")
    finally:
        logging.disable(logging.NOTSET)


@cache
def written():
    """What a broker wrote: the seeds that are whole files, without the byte that says so."""
    return {path: path.read_bytes()[1:] for path in sorted(WRITTEN.glob("written-*"))}


def parts(data):
    """Pieces of an input, each after its length; none of them is empty."""
    found, at = [], 0
    while at + 2 < len(data):
        (length,) = unpack_from("<H", data, at)
        part = data[at + 2 : at + 2 + length]
        if part:
            found.append(part)
        at += 2 + length
    return found


def damage(original, how):
    """A file with some of its bytes changed and maybe its end missing."""
    data = bytearray(original)
    for at in range(0, len(how) - 2, 3):
        (place,) = unpack_from("<H", how, at)
        data[place % len(data)] ^= how[at + 2]
    if len(how) % 3 == 2:
        del data[unpack_from("<H", how, len(how) - 2)[0] % (len(original) + 1) :]
    return bytes(data)


def payloads(data):
    """All payloads of a file, those of transactions too."""
    return [data[begin:end] for begin, end in SegmentScan(data)]


def read(data):
    """The payloads that all readers but recovery see in a file, each with its own idea of where they are."""
    header, footer, walk = Header.read(data), find_footer(data), SegmentScan(data)
    expect(header.fault is None or len(header.fault) >= FAULTY, "a fault of a header says nothing")
    found = list(walk)
    expect(all(HEADER.size < begin < end <= len(data) for begin, end in found), "a record is outside")
    expect(all(before[1] < after[0] for before, after in zip(found, found[1:], strict=False)), "they overlap")
    expect(walk.whole or all(fault.reason for fault in walk.faults), "a fault without a reason")
    seen = {data[begin:end] for begin, end in found}
    contents = PageScan(data).contents
    for start, kind in zip(contents.starts, contents.kinds, strict=True):
        if kind:
            length = int.from_bytes(data[start : start + 4], "little")
            expect(start + 8 + length <= len(data), "a message of a page is outside")
            seen.add(data[start + 8 : start + 8 + length])
    if footer is not None:
        transactions_at(data, footer.starts)
    if PIPELINE and header.fault is None and header.format == FORMAT:
        _as_arrays(data)
    return seen


def _as_arrays(data):
    """All that a query for messages finds in the file; none of it may raise."""
    from stompring.pipeline.messages import Records, TableScan, message_batches

    records = Records(data)
    ends = records.ends
    expect(not len(ends) or int(ends.max()) <= len(data), "an array has a record that is outside")
    for _, batch in message_batches(records, TableScan()):
        batch.validate(full=True)
        expect(max(map(len, batch.column("body").to_pylist())) <= len(data), "a body is longer than the file")


def recovered(journal):
    """A broker that starts on it has messages, or says what it could not understand."""
    try:
        world = StoredBroker(MemoryFiles({FIRST: journal}))
        world.turn()
    except StoreError:
        return
    for queue in list(world.directory.queues.values()):
        bodies(queue)
    again = world.again()
    again.turn()
    for name, queue in list(world.directory.queues.items()):
        other = again.directory.queues.get(name)
        if not queue.attributes.durable:
            continue
        expect(other is not None, f"queue {name} is gone after another start")
        assert other is not None
        expect(bodies(other) == bodies(queue), f"queue {name} has other messages after another start")
