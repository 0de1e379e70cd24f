"""A data directory that version 1 of the store wrote, killed while it was at work: everything in it comes."""

from __future__ import annotations

import tarfile
from pathlib import Path

from stompring.store.datadir import IDENTITY, VERSION
from stompring.store.segment import Header

from ..cli.conftest import invoke
from ..end_to_end.conftest import lasting as lasting
from ..end_to_end.lasting import DURABLE, LastingBroker, numbers, padded, take
from ..end_to_end.test_duplicates import offer

ARCHIVE = Path(__file__).with_name("schema1.tar.gz")

#: What was in its queues: all of it durable, on 3 segments and 39 pages.
CONTENTS = {
    "plain": numbers(7, 25),
    "ring": numbers(3, 5),
    "plain.ids": numbers(1, 5),
    "paged.ids": numbers(1, 5),
    "paged.q": numbers(16, 80),
    "one": numbers(1, 30),
    "reader.sub": numbers(1, 30),
}
SCHEDULED = ("later", "paged.later")
SETTINGS = {"paged.#": {"max-size-messages": 0, "page-size-bytes": "2K"}, "ring": {"default-ring-size": 3}}


def unpack(lasting: LastingBroker) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(lasting.data.parent, filter="data")
    assert (lasting.data / VERSION).read_text() == "1\n" and not (lasting.data / IDENTITY).exists()


def test_all_of_an_old_directory_is_there(lasting: LastingBroker) -> None:
    unpack(lasting)
    for how in ("stop", "kill"):
        lasting.start(settings=SETTINGS)
        for queue, bodies in CONTENTS.items():
            lasting.management.expect(queue, messageCount=len(bodies), deliveringCount=0)
        for queue in SCHEDULED:
            lasting.management.expect(queue, messageCount=1, scheduledCount=1)
        assert not [line for line in lasting.process.log if "ERROR" in line or "WARNING" in line]
        (lasting.stop if how == "stop" else lasting.kill)()
        assert (lasting.data / VERSION).read_text() == "2\n"
        assert invoke("verify", "--data", lasting.data).stdout == ""
    client = lasting.start().connect()
    for queue in ("plain.ids", "paged.ids"):
        offer(client, queue, *"12345", **DURABLE)  # all of them duplicates
    for queue, bodies in CONTENTS.items():
        assert lasting.drain(queue) == bodies, queue


def test_a_start_that_is_killed_at_once_does_no_harm(lasting: LastingBroker) -> None:
    """Old pages are told of by the first start: until all are, none may be taken for one that does not belong."""
    unpack(lasting)
    for _ in range(2):
        lasting.start(settings=SETTINGS)
        lasting.kill()
    lasting.start()
    for queue, bodies in CONTENTS.items():
        assert lasting.drain(queue) == bodies, queue


def test_old_and_new_files_are_one_store(lasting: LastingBroker) -> None:
    unpack(lasting)
    client = lasting.start(settings=SETTINGS).connect()
    client.put("paged.q", *padded(81, 100, 300), **DURABLE)
    client.put("plain", *padded(26, 30), **DURABLE)
    assert take(client, "paged.q", 3) == numbers(16, 18)
    formats = {Header.read(path.read_bytes()).format for path in lasting.pages()}
    assert formats == {1, 2}
    lasting.again()
    assert lasting.drain("paged.q") == numbers(19, 100)
    assert lasting.drain("plain") == numbers(7, 30)
    lasting.again("stop")
    lasting.management.expect("paged.q", messageCount=0)
