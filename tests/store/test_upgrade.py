"""Data directories that older versions of the store wrote, killed while they were at work: everything in them comes."""

import tarfile
from pathlib import Path

import pytest

from stompring.store.datadir import IDENTITY, VERSION
from stompring.store.segment import Header

from ..cli.conftest import invoke
from ..end_to_end.conftest import lasting as lasting
from ..end_to_end.lasting import DURABLE, numbers, padded, take
from ..end_to_end.test_duplicates import offer

#: What was in their queues: all of it durable, on some segments and many pages.
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


#: What else version 2 had: deliveries and failed ones of each message, its due time, how often it recurs.
COUNTS = {
    "again": [(0, 0, None, None)] * 3 + [(4, 2, None, None)],
    "paged.again": [(0, 0, None, None)] * 3 + [(3, 2, None, None)],
    "slow": [(1, 1, 1835355376798, None)],
    "often": [(0, 0, 4102444800000, 7)],
}


def unpack(lasting, schema):
    with tarfile.open(Path(__file__).with_name(f"schema{schema}.tar.gz")) as archive:
        archive.extractall(lasting.data.parent, filter="data")
    assert (lasting.data / VERSION).read_text() == f"{schema}\n"
    assert (lasting.data / IDENTITY).exists() is (schema > 1)


def counts(lasting, queue):
    return sorted(
        (
            message["deliveryCount"],
            message["failedAttempts"],
            message["dueTime"],
            message["recurrence"] and message["recurrence"]["repeat"],
        )
        for message in lasting.management.messages(queue)
    )


@pytest.mark.parametrize("schema", [1, 2])
def test_all_of_an_old_directory_is_there(lasting, schema):
    unpack(lasting, schema)
    for how in ("stop", "kill"):
        lasting.start(settings=SETTINGS)
        for queue, bodies in CONTENTS.items():
            lasting.management.expect(queue, messageCount=len(bodies), deliveringCount=0)
        for queue in SCHEDULED:
            lasting.management.expect(queue, messageCount=1, scheduledCount=1)
        if schema == 2:
            assert {queue: counts(lasting, queue) for queue in COUNTS} == COUNTS
        assert not [line for line in lasting.process.log if "ERROR" in line or "WARNING" in line]
        (lasting.stop if how == "stop" else lasting.kill)()
        assert (lasting.data / VERSION).read_text() == "3\n"
        assert invoke("verify", "--data", lasting.data).stdout == ""
    client = lasting.start().connect()
    for queue in ("plain.ids", "paged.ids"):
        offer(client, queue, *"12345", **DURABLE)  # all of them duplicates
    for queue, bodies in CONTENTS.items():
        assert lasting.drain(queue) == bodies, queue


@pytest.mark.parametrize("schema", [1, 2])
def test_a_start_that_is_killed_at_once_does_no_harm(lasting, schema):
    """Old pages are told of by the first start: until all are, none may be taken for one that does not belong."""
    unpack(lasting, schema)
    for _ in range(2):
        lasting.start(settings=SETTINGS)
        lasting.kill()
    lasting.start()
    for queue, bodies in CONTENTS.items():
        assert lasting.drain(queue) == bodies, queue


@pytest.mark.parametrize("schema", [1, 2])
def test_old_and_new_files_are_one_store(lasting, schema):
    unpack(lasting, schema)
    client = lasting.start(settings=SETTINGS).connect()
    client.put("paged.q", *padded(81, 100, 300), **DURABLE)
    client.put("plain", *padded(26, 30), **DURABLE)
    assert take(client, "paged.q", 3) == numbers(16, 18)
    formats = {Header.read(path.read_bytes()).format for path in lasting.pages()}
    assert formats == {schema, 3}
    lasting.again()
    assert lasting.drain("paged.q") == numbers(19, 100)
    assert lasting.drain("plain") == numbers(7, 30)
    lasting.again("stop")
    lasting.management.expect("paged.q", messageCount=0)
