"""Message groups, priorities of consumers, exclusive and non-destructive queues over STOMP and HTTP."""

import pytest

from ..broker_document import anycast
from .lasting import DURABLE
from .steps import begin, commit, leave, make_queue, several

#: An address pages from its 5th message on.
PAGED = {"max-size-messages": 4, "page-size-bytes": "1K"}

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        settings={
            "marked": {"default-group-first-key": "FIRST"},
            "paged.#": PAGED,
            "paged.exclusive": {"default-exclusive-queue": "true"},
            "paged.kept": {"default-non-destructive": "true"},
            "kept": {"default-non-destructive": "true", "max-delivery-attempts": 2},
            "exclusive": {"default-exclusive-queue": "true"},
            "rebalanced": {
                "default-group-rebalance": "true",
                "default-group-rebalance-pause-dispatch": "true",
            },
        }
    ),
]


def group(client, queue, *bodies, **headers):
    """Send messages, each of the group that its first letter names."""
    for body in bodies:
        client.put(f"/queue/{queue}", body, JMSXGroupID=body[0], **headers)


def bodies(client, count):
    return [client.message().body.decode() for _ in range(count)]


# ---- groups


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_first_message_of_a_group_has_the_header(client, connect, version, ack):
    client.subscribe("/queue/marked", ack=ack)
    group(client, "marked", "a1", "a2", "b1")
    group(client, "marked", "c1", FIRST="from the sender")
    frames = several(client, 4)
    assert [frame.get("FIRST") for frame in frames] == ["true", None, "true", "true"]
    for frame in frames:
        assert frame["subscription"] == "s" and frame["destination"] == "/queue/marked"
    if ack != "auto":
        client.answer("ACK", frames[-1])
        client.send("UNSUBSCRIBE", {"id": "s"})
        other = connect()
        other.subscribe("/queue/marked", ack="auto")
        if ack == "client-individual":
            redelivered = several(other, 3)
            assert [frame["redelivered"] for frame in redelivered] == ["true"] * 3
            assert [frame.get("FIRST") for frame in redelivered] == ["true", None, "true"]


def test_owners_of_groups_are_shown_and_reset(client, connect, management):
    other = connect()
    client.subscribe("/queue/owned", prefetch_count=2)
    group(client, "owned", "a1", "b1", "a2", "c1")
    other.subscribe("/queue/owned")
    assert management.queue("owned")["groupCount"] == 3
    owners = {each["remoteAddress"]: each["groupCount"] for each in management.queue("owned")["consumers"]}
    assert sorted(owners.values()) == [1, 2]
    assert bodies(client, 2) == ["a1", "b1"] and bodies(other, 1) == ["c1"]
    assert management.ask("POST", "/queues/owned/groups/reset", {"group": "a"}) == {"reset": 1}
    assert bodies(other, 1) == ["a2"]
    assert management.ask("POST", "/queues/owned/groups/reset") == {"reset": 3}
    assert management.queue("owned")["groupCount"] == 0


def test_rebalance_waits_for_the_commit_of_what_is_in_delivery(connect, management):
    one, two = connect(), connect()
    one.subscribe("/queue/rebalanced")
    group(one, "rebalanced", "a1", "b1")
    frames = several(one, 2)
    two.subscribe("/queue/rebalanced")
    group(two, "rebalanced", "a2", "b2")
    assert management.queue("rebalanced")["rebalancing"] is True
    begin(one)
    for frame in frames:
        one.answer("ACK", frame, transaction="t")
    assert (one.waiting(), two.waiting()) == (0, 0)
    commit(one)
    assert sorted(bodies(one, 1) + bodies(two, 1)) == ["a2", "b2"]
    assert management.queue("rebalanced")["rebalancing"] is False


# ---- priorities


def test_priority_of_consumers(connect, management):
    producer, low, high = (connect() for _ in range(3))
    low.subscribe("/queue/ranked", consumer_priority=-1)
    high.subscribe("/queue/ranked", **{"activemq.priority": 10, "prefetch-count": 2})
    producer.put("/queue/ranked", *"1234")
    assert bodies(high, 2) == ["1", "2"] and bodies(low, 2) == ["3", "4"]
    assert [each["priority"] for each in management.queue("ranked")["consumers"]] == [-1, 10]


@pytest.mark.parametrize("value", ["high", "1.5", "", "2147483648", "-2147483649", "1e3", "+1", "0x1"])
def test_invalid_priority_gets_an_error(client, value):
    client.send("SUBSCRIBE", {"destination": "/queue/ranked", "id": "s", "consumer-priority": value})
    client.error("consumer-priority must be a whole number from -2147483648 to 2147483647", value)


def test_priority_on_a_paged_queue(connect, management):
    producer, low, high = (connect() for _ in range(3))
    producer.put("/queue/paged.ranked", *(str(number) for number in range(20)), **DURABLE)
    assert management.queue("paged.ranked")["pagedCount"]
    management.update("paged.ranked", paused=True)
    low.subscribe("/queue/paged.ranked", ack="auto", consumer_priority=1)
    high.subscribe("/queue/paged.ranked", consumer_priority=2, prefetch_count=3)
    management.update("paged.ranked", paused=False)
    first = several(high, 3)
    rest = bodies(low, 17)
    assert sorted([*(int(frame.body) for frame in first), *map(int, rest)]) == list(range(20))
    for frame in first:
        high.answer("ACK", frame)
    producer.put("/queue/paged.ranked", "x", "y", "z", **DURABLE)
    assert bodies(high, 3) == ["x", "y", "z"]


# ---- exclusive queues


def settle_some(client, frames):
    """ACK one message, one more in a transaction that stays open, and send in that transaction too."""
    client.answer("ACK", frames[1])
    begin(client)
    client.answer("ACK", frames[0], transaction="t")


@pytest.mark.parametrize("queue", ["exclusive", "paged.exclusive"])
def test_next_consumer_of_an_exclusive_queue_begins_in_order(connect, management, queue):
    producer, first, second, third = (connect() for _ in range(4))
    for client in (first, second, third):
        client.subscribe(f"/queue/{queue}", prefetch_count=6)
    producer.put(f"/queue/{queue}", *(str(number) for number in range(12)), **DURABLE)
    settle_some(first, several(first, 6))
    assert int(first.message().body) == 6
    assert (second.waiting(), third.waiting()) == (0, 0)
    first.kill()
    assert [int(frame.body) for frame in several(second, 6)] == [0, 2, 3, 4, 5, 6]
    leave(second)
    got = []
    for _ in range(11):
        frame = third.message()
        got.append(int(frame.body))
        third.answer("ACK", frame)
    assert got == [0, *range(2, 12)]
    management.expect(queue, messageCount=0)


# ---- non-destructive queues


def test_non_destructive_queue(connect, management):
    one, two = connect(), connect()
    one.put("/queue/kept", "1", "2", colour="red")
    one.put("/queue/kept", "3", colour="blue")
    one.subscribe("/queue/kept")
    two.subscribe("/queue/kept", ack="auto", selector="colour = 'red'")
    frames = several(one, 3)
    for frame in frames[:2]:
        one.answer("ACK", frame)
    assert bodies(two, 2) == ["1", "2"]
    one.answer("NACK", frames[2])
    again = one.message()
    assert (again.body, again["redelivered"]) == (b"3", "true")
    one.answer("NACK", again)
    assert management.queue("kept")["messageCount"] == 2, "a dead letter after two attempts"


def test_non_destructive_queue_on_an_address_that_pages(client):
    sent = [str(number) for number in range(15)]
    client.subscribe("/queue/paged.kept", id="first", ack="auto")
    client.put("/queue/paged.kept", *sent, **DURABLE)
    assert bodies(client, 15) == sent
    client.subscribe("/queue/paged.kept", id="second", ack="auto")
    assert bodies(client, 15) == sent


# ---- restart


def test_after_a_restart(lasting, how):
    attributes = {
        "groupBuckets": 3,
        "groupRebalance": True,
        "groupRebalancePauseDispatch": True,
        "groupFirstKey": "FIRST",
    }
    management = lasting.start(
        addresses=anycast("kept", 'non-destructive="true"') + anycast("alone", 'exclusive="true"')
    ).management
    make_queue(management, "made", routingType="ANYCAST", **attributes)
    client = lasting.connect()
    group(client, "made", "a1", "b1", "a2", "b2", **DURABLE)
    client.put("/queue/kept", *"123", **DURABLE)
    client.put("/queue/alone", *"123", **DURABLE)
    client.subscribe("/queue/made", id="made", prefetch_count=2)
    client.subscribe("/queue/kept", id="kept", ack="client")
    client.subscribe("/queue/alone", id="alone")
    for frame in several(client, 8):
        if frame["subscription"] == "kept" and frame.body == b"3":
            client.answer("ACK", frame)
    management = lasting.again(how).management
    made = management.queue("made")
    assert {name: made[name] for name in attributes} == attributes and made["groupCount"] == 0
    client = lasting.connect()
    for queue, expected in (("made", ["a1", "b1", "a2", "b2"]), ("kept", [*"123"]), ("alone", [*"123"])):
        client.subscribe(f"/queue/{queue}", id=queue)
        assert bodies(client, len(expected)) == expected
    client.nothing()
