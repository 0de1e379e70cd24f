"""What stands in a message's way: memory, pages, the disk, the store; and what is said about it."""

from dataclasses import dataclass, replace

import pytest

from stompring.broker.limits import MemoryLimit
from stompring.broker.publish import Rejection, check_admission, drop
from stompring.settings.model import DiskFullPolicy, FullPolicy, PageFullPolicy

from .broker_fixture import BrokerFixture

PAGE, BLOCK, DROP, FAIL = FullPolicy.PAGE, FullPolicy.BLOCK, FullPolicy.DROP, FullPolicy.FAIL


@dataclass
class Pages:
    """As much of pages as is asked here."""

    bytes: int = 0
    messages: int = 0


def place(pages=None, held=0, store=True, **settings):
    """A broker (with a store, as far as is asked here) and its address q, which holds some messages."""
    world = BrokerFixture({"q": settings}, persistence_enabled=store)
    if store:
        world.broker.paging = object()
    address = world.address("q")
    for room in (address.memory_limit, address.memory):
        room.bytes, room.messages = held * 100, held
        room.review()
    if pages is not None:
        address.pages = pages
        address.update_slow_path()
    return world, address


HELD = {"held": 2, "max_size_messages": 2}
IN_MEMORY = HELD | {"store": False}
DROPS, FAILS = {"page_full_policy": PageFullPolicy.DROP}, {"page_full_policy": PageFullPolicy.FAIL}
MESSAGES, BYTES = {"page_limit_messages": 5}, {"page_limit_bytes": 900}
LARGE = {"pages": Pages(10**9, 10**9)}

#: What it is about, the place, whether the message is durable, whether the disk is full; policy and room.
CASES = [
    ("room for all", {}, True, False, None),
    ("memory full: BLOCK", HELD | {"address_full_policy": BLOCK}, False, False, (BLOCK, "address")),
    ("memory full: DROP", HELD | {"address_full_policy": DROP}, False, False, (DROP, "address")),
    ("memory full: FAIL", HELD | {"address_full_policy": FAIL}, True, True, (FAIL, "address")),
    ("memory full by bytes", {"held": 2, "max_size_bytes": 200, "address_full_policy": FAIL}, False, False,
     (FAIL, "address")),
    ("memory full: PAGE", HELD, True, False, None),
    ("without a store BLOCK", IN_MEMORY, False, False, (BLOCK, "address")),
    ("PAGE without a store", IN_MEMORY | {"address_full_policy": PAGE}, False, False, (BLOCK, "address")),
    ("a full disk, in memory", {}, False, True, None),
    ("a full disk, durable", {}, True, True, (BLOCK, "disk")),
    ("a full disk, DROP", {"disk_full_policy": DiskFullPolicy.DROP}, True, True, (DROP, "disk")),
    ("a full disk, FAIL", {"disk_full_policy": DiskFullPolicy.FAIL}, True, True, (FAIL, "disk")),
    ("a full disk, would page", HELD, False, True, (BLOCK, "disk")),
    ("a full disk, paging", {"pages": Pages()}, False, True, (BLOCK, "disk")),
    ("paging", LARGE, True, False, None),
    ("page-limit-messages", {"pages": Pages(1, 5)} | MESSAGES | DROPS, False, False, (DROP, "pages")),
    ("page-limit-messages - 1", {"pages": Pages(1, 4)} | MESSAGES | DROPS, False, False, None),
    ("page-limit-bytes", {"pages": Pages(900, 1)} | BYTES | FAILS, True, False, (FAIL, "pages")),
    ("page-limit-bytes - 1", {"pages": Pages(899, 1)} | BYTES | FAILS, True, False, None),
    ("the nearer of both", {"pages": Pages(1, 5)} | BYTES | MESSAGES | FAILS, True, False, (FAIL, "pages")),
    ("a limit without a policy", LARGE | MESSAGES, True, False, None),
    ("a policy without a limit", LARGE | FAILS, True, False, None),
]  # fmt: skip


@pytest.mark.parametrize("what, where, durable, disk_full, expected", CASES, ids=[c[0] for c in CASES])
def test_what_stands_in_the_way(what, where, durable, disk_full, expected):
    world, address = place(**where)
    if disk_full:
        world.broker.disk.set_fault("the disk of /d is full")
    found = check_admission(address, durable)
    rooms = {"address": address.memory_limit, "disk": world.broker.disk, "pages": None}
    assert found == (None if expected is None else Rejection(address, expected[0], rooms[expected[1]]))


def test_the_store_is_waited_for_whatever_the_policies():
    world, address = place(disk_full_policy=DiskFullPolicy.DROP)
    store = world.broker.storage.write_limit
    store.set_fault("cannot write /d/journal/000000001.journal: No space left on device")
    assert check_admission(address, durable=False) is None
    found = check_admission(address, durable=True)
    assert found == Rejection(address, BLOCK, store)
    assert "No space left on device" in found.describe()
    store.set_fault(None)
    store.set_limits(0)
    found = check_admission(address, durable=True)
    assert found.describe().endswith("rejects durable messages: the disk is too slow")


def test_the_reason_says_why_a_message_that_is_not_durable_needs_the_disk():
    world, address = place(pages=Pages())
    world.broker.disk.set_fault("the disk of /d is full")
    found = check_admission(address, durable=False)
    assert found.describe() == (
        "Address q rejects durable messages, and all others while it pages: the disk of /d is full"
    )


def test_the_broker_as_a_whole_is_full():
    world, address = place(held=3, address_full_policy=FAIL)
    world.broker.memory.set_limits(-1, 3)
    found = check_admission(address, durable=False)
    assert found == Rejection(address, FAIL, world.broker.memory)
    assert found.describe() == "Address q is full: global-max-messages 3 is used up"
    world.broker.memory.set_limits(200)
    found = check_admission(address, durable=False)
    assert found.describe() == "Address q is full: global-max-size 200 bytes is used up"


def test_of_two_addresses_the_larger_one_needs_the_disk():
    world, large = place(held=20)
    small = world.address("small")
    world.broker.memory.set_limits(-1, 20)
    world.broker.disk.set_fault("the disk of /d is full")
    assert check_admission(small, durable=False) is None, "it goes on in memory"
    assert check_admission(large, durable=False) == Rejection(large, BLOCK, world.broker.disk)


SAID = [
    ({"page_limit_bytes": 900}, "Address q is full: page-limit-bytes 900"),
    ({"page_limit_messages": 5}, "Address q is full: page-limit-messages 5"),
]


@pytest.mark.parametrize("limit, text", SAID)
def test_dropping_at_a_page_limit_is_said_once(limit, text, caplog):
    caplog.set_level("INFO")
    pages = Pages(900, 5)
    _, address = place(pages, page_full_policy=PageFullPolicy.DROP, **limit)
    for _ in range(3):
        found = check_admission(address, durable=False)
        assert found.describe() == text
        drop(found)
    assert address.dropped_messages == 3
    assert [record.getMessage() for record in caplog.records] == [f"{text}: messages are dropped"]
    pages.bytes, pages.messages = 899, 4
    assert check_admission(address, durable=False) is None
    assert check_admission(address, durable=False) is None
    assert [record.getMessage() for record in caplog.records][1:] == ["address q: pages are no longer full"]


@pytest.mark.parametrize(
    "changed, expected",
    [
        ({}, None),
        (MESSAGES | DROPS, DROP),
        (BYTES | FAILS, FAIL),
        ({"max_size_messages": 2, "address_full_policy": BLOCK}, BLOCK),
        ({"max_size_messages": 2, "address_full_policy": PAGE}, None),
    ],
)
def test_settings_that_change_while_an_address_pages(changed, expected):
    """Where nothing limits the pages that is known beforehand; what comes to limit them counts at once."""
    _, address = place(Pages(10**9, 10**9), held=2)
    assert address.memory_limit.unbounded and check_admission(address, durable=False) is None
    address.apply(replace(address.settings, **changed))
    found = check_admission(address, durable=False)
    assert (None if found is None else found.policy) is expected
    assert address.memory_limit.unbounded is (expected is None)


def test_dropping_because_of_the_disk_is_counted_and_left_to_its_monitor_to_say(caplog):
    world, address = place(disk_full_policy=DiskFullPolicy.DROP)
    world.broker.disk.set_fault("the disk of /d is full")
    found = check_admission(address, durable=True)
    assert found is not None
    drop(found)
    assert address.dropped_messages == 1 and not caplog.records


def test_waiting_for_the_disk_does_not_say_that_the_address_is_full(caplog):
    _, address = place()
    address.block(MemoryLimit())
    assert address.blocked_producers == 1 and not caplog.records
    address.block(address.memory_limit)
    assert len(caplog.records) == 1
