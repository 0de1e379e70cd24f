"""SENDs that come in one read are paged together; what comes between them must not notice."""

import pytest

from ..stomp_client import frame_bytes
from .lasting import numbers, padded, take, texts
from .steps import abort, several

#: Hardly anything is read ahead, so that something waits on disk before each burst.
FEW = {"max-size-messages": 5, "prefetch-page-messages": 2}
SETTINGS = {
    "five.#": {**FEW, "page-size-bytes": "1K"},
    "wide.#": {**FEW, "page-size-bytes": "1M"},
    "limit.#": {
        "max-size-messages": 5,
        "page-size-bytes": "1M",
        "page-full-policy": "FAIL",
        "page-limit-messages": 100,
    },
}
pytestmark = [pytest.mark.in_memory, pytest.mark.broker(settings=SETTINGS)]
KINDS = pytest.mark.parametrize("kind", ["five", "wide"])


def sends(destination, first, last, **headers):
    return [
        frame_bytes("SEND", {"destination": destination, **headers}, body.encode())
        for body in padded(first, last)
    ]


def together(client, *frames):
    """All of it in one piece, and a receipt behind it."""
    client.raw(b"".join(frames))
    client.ask("BEGIN", {"transaction": "behind"})
    abort(client, "behind")


@KINDS
def test_all_of_a_burst_is_there_in_order(client, name, management, kind):
    queue = f"{kind}.{name}"
    together(client, *sends(queue, 1, 200))
    management.expect(queue, messageCount=200, messagesAdded=200)
    together(client, *sends(queue, 201, 300))
    assert take(client, queue, 300) == numbers(1, 300)
    management.expect_address(queue, paging=False)


@KINDS
def test_priorities_and_headers_change_within_a_burst(client, name, kind):
    queue = f"{kind}.{name}"
    low, high = sends(queue, 1, 60), sends(queue, 61, 90, priority=9)
    coloured = sends(queue, 91, 120, colour="red")
    together(client, *low[:30], *high[:10], *low[30:], *high[10:], *coloured)
    assert take(client, queue, 120) == numbers(61, 90) + numbers(1, 60) + numbers(91, 120)


@KINDS
def test_acknowledgements_amid_a_burst(client, name, kind):
    """A consumer that can take more only when it has acknowledged, on the connection that sends."""
    queue = f"{kind}.{name}"
    together(client, *sends(queue, 1, 40))
    client.subscribe(queue, prefetch_count=2)
    got = [client.message(), client.message()]
    ack = frame_bytes("ACK", client.reference(got[0]))
    nack = frame_bytes("NACK", client.reference(got[1]))
    together(client, *sends(queue, 41, 80), ack, *sends(queue, 81, 120), nack, *sends(queue, 121, 160))
    got += [client.message(), client.message()]
    # the credit that an ACK frees is used at the end of the read: the NACK may have come by then
    assert texts(got) in (["1", "2", "2", "3"], ["1", "2", "3", "2"])
    for message in got[2:]:
        client.answer("ACK", message)
    rest = []
    while len(rest) < 157:
        message = client.message()
        rest.append(message)
        client.answer("ACK", message)
    assert texts(rest) == numbers(4, 160)


@KINDS
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_a_transaction_amid_a_burst(client, name, kind, end):
    queue = f"{kind}.{name}"
    begin, over = (frame_bytes(command, {"transaction": "t"}) for command in ("BEGIN", end))
    inside = sends(queue, 41, 80, transaction="t")
    together(client, *sends(queue, 1, 20), begin, *inside[:20], *sends(queue, 21, 40), *inside[20:], over,
             *sends(queue, 81, 100))  # fmt: skip
    expected = numbers(1, 40) + (numbers(41, 80) if end == "COMMIT" else []) + numbers(81, 100)
    assert take(client, queue, len(expected)) == expected


def test_a_limit_of_pages_holds_within_a_burst(client, name, management):
    queue = f"limit.{name}"
    client.raw(b"".join(sends(queue, 1, 200)))
    client.error("page-limit-messages 100")
    management.expect(queue, messageCount=105)


def test_the_connection_that_ends_a_burst_badly(client, connect, name, management):
    """What came before the bad frame was sent."""
    queue = f"wide.{name}"
    client.raw(b"".join(sends(queue, 1, 50)) + frame_bytes("ACK", {"id": "nobody"}))
    client.error("nobody")
    management.expect(queue, messageCount=50)
    assert take(connect(), queue, 50) == numbers(1, 50)


def test_durable_ones_among_others_over_a_restart(lasting):
    lasting.start(settings=SETTINGS)
    client, queue = lasting.connect(), "wide.mixed"
    passing, durable = sends(queue, 1, 40), sends(queue, 41, 80, persistent="true")
    client.put(queue, "0", persistent="true")
    mixed = [frame for pair in zip(passing, durable, strict=True) for frame in pair]
    client.raw(b"".join(mixed))
    client.put(queue, "81", persistent="true")
    lasting.again("kill")
    assert lasting.drain(queue) == ["0", *numbers(41, 80), "81"]


@pytest.mark.broker(settings={"five.#": {**SETTINGS["five.#"], "default-exclusive-queue": "true"}})
def test_the_next_consumer_gets_what_a_failing_connection_sent_last(client, connect, name):
    """It becomes the one in turn because the connection ends whose last SENDs are still being put together."""
    heir, queue = connect(), f"five.{name}"
    client.subscribe(queue, prefetch_count=1)
    heir.subscribe(queue, ack="auto")
    together(client, *sends(queue, 1, 30))
    bad = frame_bytes("SEND", {"priority": "x", "destination": queue})
    client.raw(b"".join([*sends(queue, 31, 60), bad]))
    assert texts(several(heir, 60)) == numbers(1, 60)


def test_a_failing_connection_takes_its_subscription_along(lasting):
    """With what it sent to itself last, which is still being put together when it fails."""
    lasting.start(settings=SETTINGS)
    client, other, topic = lasting.connect(), lasting.connect(), "/topic/wide.t"
    other.subscribe(topic, ack="auto")
    client.subscribe(topic, prefetch_count=1)
    together(client, *sends(topic, 1, 30))
    other.put("elsewhere", "x", persistent="true")  # what was told before is in files with it
    assert lasting.pages()
    bad = frame_bytes("SEND", {"destination": topic, "priority": "x"})
    client.raw(b"".join([*sends(topic, 31, 60), bad]))
    assert texts(several(other, 60)) == numbers(1, 60)
    lasting.management.expect_address("wide.t", paging=False)
    for _ in range(100):  # files go with a batch
        other.put("elsewhere", "x", persistent="true")
    assert not lasting.pages()
