"""`_AMQ_DUPL_ID` as producers use it that do not know what has arrived: a real broker that is killed."""

from contextlib import suppress

import pytest

from ..stomp_client import frame_bytes
from .lasting import DURABLE, numbers
from .steps import abort, commit, receive

pytestmark = pytest.mark.in_memory


#: All that is sent goes to pages.
PAGED = {"paged.#": {"max-size-messages": 0, "page-size-bytes": "2K"}}

#: Messages that are on their way when the broker is killed.
IN_FLIGHT = 60


def offer(client, queue, *identifiers, **headers):
    """Each with the id as its body, and a receipt."""
    for identifier in identifiers:
        client.put(queue, identifier.encode(), _AMQ_DUPL_ID=identifier, **headers)


def test_what_is_sent_twice_is_routed_once(client, connect, version, name, management):
    offer(client, name, "1", "2", "1", "3", "2")
    offer(connect(version), name, "3", "4")
    management.expect(name, messageCount=4)
    management.expect_address(name, duplicateMessageCount=3, routedMessageCount=4)
    client.subscribe(name, ack="auto")
    assert [message["_AMQ_DUPL_ID"] for message in client.messages(*"1234")] == list("1234")


@pytest.mark.broker(settings={"small.#": {"id-cache-size": 2}, "off.#": {"id-cache-size": 0}})
def test_the_size_of_the_cache(client, name, management):
    for prefix, count in (("small", 4), ("off", 5), ("other", 3)):
        offer(client, f"{prefix}.{name}", *"12131")
        management.expect(f"{prefix}.{name}", messageCount=count)


@pytest.mark.parametrize("prefix", ["plain", "paged"])
def test_ids_with_receipts_are_known_again(lasting, how, prefix):
    queue = f"{prefix}.q"
    client = lasting.start(settings=PAGED).connect()
    offer(client, queue, *numbers(1, 30), **DURABLE)
    offer(client, queue, "passing")
    lasting.again(how)
    client = lasting.connect()
    offer(client, queue, *numbers(1, 31), "passing", **DURABLE)
    lasting.management.expect(queue, messageCount=32)
    lasting.management.expect_address(queue, duplicateMessageCount=30)
    assert lasting.drain(queue) == [*numbers(1, 31), "passing"]
    lasting.again(how)
    offer(lasting.connect(), queue, *numbers(20, 32), **DURABLE)  # also of what was consumed
    assert lasting.drain(queue) == ["32"]


def forget(lasting, queue):
    found = lasting.management.ask("POST", f"/addresses/{queue}/forget-duplicates")
    return int(found["forgotten"])


@pytest.mark.parametrize("prefix", ["plain", "paged"])
def test_ids_are_forgotten_by_hand_for_good(lasting, how, prefix):
    queue, other = f"{prefix}.q", f"{prefix}.other"
    client = lasting.start(settings=PAGED).connect()
    for name in (queue, other):
        offer(client, name, *numbers(1, 20), **DURABLE)
    offer(client, queue, "passing")
    assert forget(lasting, queue) == 21 and forget(lasting, queue) == 0
    lasting.again(how)
    client = lasting.connect()
    for name in (queue, other):
        offer(client, name, *numbers(15, 25), *numbers(24, 25), **DURABLE)
    lasting.management.expect_address(queue, duplicateMessageCount=2)
    lasting.management.expect_address(other, duplicateMessageCount=8)
    lasting.again(how)
    offer(lasting.connect(), queue, *numbers(14, 25), **DURABLE)
    assert lasting.drain(queue) == [*numbers(1, 20), *numbers(15, 25), "14"]
    assert lasting.drain(other) == numbers(1, 25)


@pytest.mark.parametrize("prefix", ["plain", "paged"])
def test_transactions(lasting, prefix):
    queue = f"{prefix}.q"
    client = lasting.start(settings=PAGED).connect()

    def begin(client, *identifiers):
        client.ask("BEGIN", {"transaction": "t"})
        offer(client, queue, *identifiers, transaction="t", **DURABLE)

    begin(client, "1", "2")
    commit(client)
    begin(client, "3", "4")
    abort(client)
    begin(client, "5", "2")
    client.send("COMMIT", {"transaction": "t", "receipt": "c"})
    client.error("is not committed", f"address {queue}", "_AMQ_DUPL_ID '2'", receipt="c")
    begin(lasting.connect(), "6")
    lasting.again()
    client = lasting.connect()
    offer(client, queue, *numbers(1, 6), **DURABLE)
    assert lasting.drain(queue) == numbers(1, 6)
    lasting.management.expect_address(queue, duplicateMessageCount=2)


@pytest.mark.parametrize("prefix", ["plain", "paged"])
@pytest.mark.parametrize("size", [1, 7])
def test_killed_while_much_is_sent(lasting, prefix, size):
    """Sent again until every receipt came, each is there exactly once. ``size`` of them are in one transaction."""
    queue, most = f"{prefix}.q", 1200
    core = (
        "<journal-file-size>50K</journal-file-size><journal-compact-min-files>3</journal-compact-min-files>"
    )
    lasting.start(settings=PAGED, core=core)
    sure = 0
    for kill_at in (150, 400, 800, None):
        if size > 1:
            sure = find_out(lasting, queue, sure, most, size)
        producer, sent, alive = lasting.connect(), sure, True
        with suppress(OSError, AssertionError):  # that the connection is closed
            for batch in batches(queue, sure + 1, most, size):
                producer.raw(batch)
                sent = min(sent + size, most)
                while sent - sure > (IN_FLIGHT if sent < most else 0):
                    sure = int(producer.expect("RECEIPT")["receipt-id"])
                    if alive and kill_at is not None and sure >= kill_at:
                        alive = False
                        lasting.kill()
        assert alive == (kill_at is None)
        if not alive:
            lasting.start()
    assert sure == most
    client = lasting.connect()
    receive(client, queue, *numbers(1, most))
    client.nothing()


def find_out(lasting, queue, sure, most, size):
    """Send transactions again, one at a time, up to the first that had not come; returns the last number of it."""
    while sure < most:
        client = lasting.connect()
        client.raw(next(batches(queue, sure + 1, most, size)))
        sure = min(sure + size, most)
        frame = client.frame()
        client.close()
        if frame.command == "RECEIPT":
            break
        assert "is not committed" in frame["message"] and "_AMQ_DUPL_ID" in frame["message"], frame.raw
    return sure


def batches(queue, first, last, size):
    """SENDs with these numbers as ids; a receipt for each, or for each transaction of ``size`` of them."""
    for begin in range(first, last + 1, size):
        end = min(begin + size - 1, last)
        frames = [frame_bytes("BEGIN", {"transaction": end})] if size > 1 else []
        more = {"transaction": end} if size > 1 else {"receipt": end}
        for number in range(begin, end + 1):
            headers = {"destination": queue, "_AMQ_DUPL_ID": number, **DURABLE, **more}
            frames.append(frame_bytes("SEND", headers, b"%d" % number))
        if size > 1:
            frames.append(frame_bytes("COMMIT", {"transaction": end, "receipt": end}))
        yield b"".join(frames)
