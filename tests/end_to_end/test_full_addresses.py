"""Full addresses: DROP, FAIL, and BLOCK, which is back-pressure and loses nothing."""

import pytest

from .steps import begin, receive, refused, say, silent

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        settings={
            "drop.#": {"max-size-messages": 3, "address-full-policy": "DROP"},
            "fail.#": {"max-size-messages": 3, "address-full-policy": "FAIL"},
            "block.#": {"max-size-messages": 3, "address-full-policy": "BLOCK"},
            "bytes.#": {"max-size-bytes": "10K", "address-full-policy": "FAIL"},
        }
    ),
]


def test_drop_takes_and_forgets(client, version, name, management):
    client.put(f"drop.{name}", *"12345")
    management.expect(f"drop.{name}", messageCount=3, messagesAdded=3)
    management.expect_address(f"drop.{name}", droppedMessageCount=2)
    client.subscribe(f"drop.{name}")
    client.answer("ACK", client.messages(*"123")[0])
    client.put(f"drop.{name}", "6")
    client.message("6")


def test_fail_answers_with_the_limit(client, version, name, management):
    client.put(f"fail.{name}", *"123")
    refused(client, f"fail.{name}", b"4", f"fail.{name}", "full", "max-size-messages", "3")
    management.expect(f"fail.{name}", messageCount=3)


def test_a_limit_in_bytes(client, name):
    client.put(f"bytes.{name}", "x" * 20_000)  # the one that reaches the limit still enters
    refused(client, f"bytes.{name}", b"y", "full", "max-size-bytes", "10240")


def test_a_failing_send_in_a_transaction_fails_its_commit(client, name, management):
    client.put(f"fail.{name}", *"123")
    begin(client)
    client.put(f"fail.{name}", "4", transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})
    client.error("full", receipt="r")
    management.expect(f"fail.{name}", messageCount=3)


def test_block_makes_the_receipt_wait_until_there_is_room(connect, version, name, management):
    producer, consumer = connect(version), connect(version)
    producer.put(f"block.{name}", *"123")
    say(producer, f"block.{name}", b"4", receipt="late")
    silent(producer)
    management.expect_address(f"block.{name}", blockedProducers=1)
    consumer.subscribe(f"block.{name}", prefetch_count=1)
    consumer.answer("ACK", consumer.message("1"))
    producer.expect("RECEIPT", receipt_id="late")
    management.expect_address(f"block.{name}", blockedProducers=0)
    for body in "234":
        consumer.answer("ACK", consumer.message(body))


def test_a_burst_into_a_blocked_address_arrives_whole_and_in_order(connect, name):
    producer, consumer = connect(), connect()
    bodies = [str(n) for n in range(500)]
    for body in bodies:
        say(producer, f"block.{name}", body.encode())
    say(producer, f"block.{name}", b"last", receipt="all")
    silent(producer)
    consumer.subscribe(f"block.{name}", prefetch_count=2)
    for body in [*bodies, "last"]:
        consumer.send("ACK", consumer.reference(consumer.message(body)))
    producer.expect("RECEIPT", receipt_id="all")


def test_a_blocked_connection_still_consumes(connect, name):
    """Messages for its subscriptions flow, and an ACK that came along with the SEND counts."""
    both, other = connect(), connect()
    both.subscribe(f"/queue/{name}", id="other queue", ack="auto")
    both.put(f"block.{name}", *"123")
    say(both, f"block.{name}", b"4", receipt="late")
    silent(both)
    other.put(f"/queue/{name}", "for you")
    both.message("for you")
    receive(other, f"block.{name}", *"1234")
    both.expect("RECEIPT", receipt_id="late")


def test_an_ack_behind_a_blocked_send_makes_the_room_it_waits_for(client, name):
    client.subscribe(f"block.{name}", prefetch_count=1)
    client.put(f"block.{name}", *"123")
    ack = client.reference(client.message("1"))["id"]
    client.raw(
        f"SEND\ndestination:block.{name}\nreceipt:late\n\n4\0ACK\nid:{ack}\nreceipt:ack\n\n\0".encode()
    )
    frames = [client.frame() for _ in range(3)]
    assert {frame.get("receipt-id") for frame in frames if frame.command == "RECEIPT"} == {"late", "ack"}
    assert [frame.body for frame in frames if frame.command == "MESSAGE"] == [b"2"]


def test_a_blocked_producer_that_leaves_is_forgotten(connect, name, management):
    producer, consumer = connect(), connect()
    producer.put(f"block.{name}", *"123")
    say(producer, f"block.{name}", b"4")
    management.expect_address(f"block.{name}", blockedProducers=1)
    producer.kill()
    receive(consumer, f"block.{name}", *"123")
    connect().put(f"block.{name}", "5")
    consumer.message()  # "4" where the broker had read it before the connection was lost, else "5"
    management.expect_address(f"block.{name}", blockedProducers=0)


def test_several_blocked_producers_all_go_on(connect, name, management):
    producers, consumer = [connect() for _ in range(5)], connect()
    producers[0].put(f"block.{name}", *"abc")
    for number, producer in enumerate(producers):
        say(producer, f"block.{name}", str(number).encode(), receipt="r")
    management.expect_address(f"block.{name}", blockedProducers=5)
    consumer.subscribe(f"block.{name}", ack="auto")
    got = {consumer.message().body for _ in range(8)}
    assert got == {b"a", b"b", b"c", b"0", b"1", b"2", b"3", b"4"}
    for producer in producers:
        producer.expect("RECEIPT", receipt_id="r")


def test_a_blocked_client_is_not_cut_off_for_its_silence(connect, name):
    producer = connect(heart_beat="500,0")  # a TTL of 1000 ms
    producer.put(f"block.{name}", *"123")
    say(producer, f"block.{name}", b"4", receipt="late")
    with pytest.raises(TimeoutError):
        producer.frame(patience=1.6)
    connect().subscribe(f"block.{name}", ack="auto")
    producer.expect("RECEIPT", receipt_id="late")


@pytest.mark.broker(
    core="<global-max-size>1MB</global-max-size>", settings={"#": {"address-full-policy": "BLOCK"}}
)
def test_global_max_size_holds_for_all_addresses_together(connect, name, management):
    producer, consumer = connect(), connect()
    for n in range(7):  # the seventh reaches 1 MB
        producer.put(f"{name}.{n}", b"x" * 160_000)
    say(producer, f"{name}.more", b"x", receipt="late")
    management.expect_address(f"{name}.more", blockedProducers=1)
    silent(producer)
    consumer.subscribe(f"{name}.0", ack="auto")
    producer.expect("RECEIPT", receipt_id="late")
    for n in range(1, 7):
        consumer.subscribe(f"{name}.{n}", ack="auto", id=str(n))
    consumer.subscribe(f"{name}.more", ack="auto", id="more")
    assert [len(consumer.message().body) for _ in range(8)] == [160_000] * 7 + [1]
