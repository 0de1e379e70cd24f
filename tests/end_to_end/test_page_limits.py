"""page-limit-bytes, page-limit-messages and page-full-policy (Artemis: PagingLimitTest, PagingSendTest)."""

import pytest

from ..broker_document import broker_xml
from ..broker_process import BrokerProcess
from .steps import begin, commit, connected, leave, receive, say

MESSAGES = {"max-size-messages": 0, "page-limit-messages": 30}
BYTES = {"max-size-bytes": 0, "page-limit-bytes": "64K"}
FAIL, DROP = {"page-full-policy": "FAIL"}, {"page-full-policy": "DROP"}

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.broker(
        settings={
            "mf.#": MESSAGES | FAIL,
            "md.#": MESSAGES | DROP,
            "bf.#": BYTES | FAIL,
            "both.#": {"max-size-messages": 2} | MESSAGES | BYTES | DROP,
            "half.#": {"max-size-messages": 0, "page-limit-messages": 3},
        }
    ),
]

KILO = "x" * 1000


def consume(connect, address, *bodies):
    """Receive and acknowledge exactly these, from a connection of their own."""
    client = connect()
    client.subscribe(address, ack="client-individual", prefetch_count=1)
    for body in bodies:
        client.answer("ACK", client.message(body))
    client.disconnect()


def refused(client, address, body, limit):
    say(client, address, body.encode(), receipt="no")
    client.error(address, "full", limit, receipt="no")


def numbers(start, stop):
    return [str(number) for number in range(start, stop)]


def test_fail_by_number(connect, name, management):
    address = f"mf.{name}"
    producer = connect()
    producer.put(address, *numbers(0, 30))
    management.expect_address(address, paging=True, numberOfPages=1)
    refused(producer, address, "lost", "page-limit-messages 30")
    consume(connect, address, *numbers(0, 10))
    producer = connect()
    producer.put(address, *numbers(30, 40))
    refused(producer, address, "lost", "page-limit-messages 30")
    consume(connect, address, *numbers(10, 25))
    producer = connect()
    producer.put(address, *numbers(40, 55))
    refused(producer, address, "lost", "page-limit-messages 30")
    consume(connect, address, *numbers(25, 55))
    management.expect(address, messageCount=0, messagesAdded=55)
    assert management.address(address)["numberOfPages"] <= 1


def test_drop_by_number(connect, name, management):
    address = f"md.{name}"
    producer = connect()
    producer.put(address, *numbers(0, 30), "lost", "lost too")
    management.expect_address(address, droppedMessageCount=2)
    consume(connect, address, *numbers(0, 12))
    producer.put(address, *numbers(30, 42), "lost again")
    management.expect_address(address, droppedMessageCount=3)
    consume(connect, address, *numbers(12, 42))
    management.expect(address, messageCount=0, messagesAdded=42)


def test_fail_by_bytes(connect, name, management):
    """Files of a quarter of the limit: what is consumed makes room long before all of it is."""
    address = f"bf.{name}"
    producer, sent = connect(), 0
    while True:
        say(producer, address, f"{sent} {KILO}".encode(), receipt=sent)
        answer = producer.frame()
        if answer.command == "ERROR":
            break
        sent += 1
    assert 40 <= sent <= 70 and "page-limit-bytes 65536" in answer["message"]
    assert management.address(address)["numberOfPages"] >= 3
    half = sent // 2
    consume(connect, address, *(f"{number} {KILO}" for number in range(half)))
    connect().put(address, *(f"{number} {KILO}" for number in range(sent, sent + half // 2)))
    consume(connect, address, *(f"{number} {KILO}" for number in range(half, sent + half // 2)))
    management.expect(address, messageCount=0)
    assert management.address(address)["pagesSize"] <= 16 * 1024


def test_of_both_limits_the_nearer_counts(connect, name, management):
    few, large = f"both.{name}.few", f"both.{name}.large"
    connect().put(few, *numbers(0, 40))
    management.expect(few, messageCount=30)
    connect().put(large, *("y" * 10_000 for _ in range(20)))
    assert management.queue(large)["messageCount"] < 10


def test_a_limit_without_a_policy_is_none(connect, name, management):
    connect().put(f"half.{name}", *numbers(0, 20))
    management.expect(f"half.{name}", messageCount=20)


def test_a_transaction_is_checked_as_a_whole(client, name, management):
    address = f"mf.{name}"
    client.put(address, *numbers(0, 10))
    begin(client)
    client.put(address, *numbers(10, 20), transaction="t")
    commit(client)
    management.expect(address, messageCount=20)
    begin(client)
    client.put(address, *numbers(20, 50), transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})
    client.error("Transaction t is not committed", "page-limit-messages 30", receipt="r")
    management.expect(address, messageCount=20)


def test_a_transaction_is_checked_as_a_whole_in_bytes(client, name, management):
    address = f"bf.{name}"
    begin(client)
    client.put(address, *("y" * 10_000 for _ in range(20)), transaction="t")
    client.send("COMMIT", {"transaction": "t", "receipt": "r"})
    client.error("Transaction t is not committed", "page-limit-bytes 65536", receipt="r")
    management.expect(address, messageCount=0)


def test_a_raised_limit_counts_at_once_and_warnings_are_told(serve):
    limited = {"q": {"max-size-messages": 0, "page-limit-messages": 3, "page-full-policy": "DROP"}}
    broker, management, client = serve(settings=limited)
    client.put("q", *"12345")
    management.expect("q", messageCount=3)
    broker.reload(broker_xml(settings={"q": limited["q"] | {"page-limit-messages": 5}}))
    client.put("q", *"678")
    management.expect("q", messageCount=5)
    seen = len(broker.log)
    broker.reload(broker_xml(settings={"q": {"max-size-messages": 0, "page-limit-messages": 5}}))
    assert "no effect without <page-full-policy>" in "\n".join(broker.log[seen:])
    client.put("q", *"9abc")
    management.expect("q", messageCount=9)


@pytest.mark.process
def test_the_limit_holds_after_a_restart(serve):
    settings = {"q": {"max-size-messages": 0, "page-limit-messages": 3, "page-full-policy": "DROP"}}
    broker, _, client = serve(settings=settings)
    client.put("q", *"12345", persistent="true")
    client.close()
    broker.stop()
    with BrokerProcess(broker.config) as again:
        client = connected(again)
        client.put("q", "6", persistent="true")
        again.management().expect("q", messageCount=3)
        client.subscribe("q", ack="client-individual")
        for body in "123":
            client.answer("ACK", client.message(body))
        client.put("q", "7", persistent="true")
        client.message("7")
        client.close()


def test_the_largest_address_pages_first_not_the_unlucky_one(serve):
    broker, management, client = serve(core="<global-max-messages>100</global-max-messages>")
    client.put("large", *numbers(0, 90))
    client.put("small", *numbers(0, 10))
    assert not management.address("large")["paging"]
    client.put("small", *numbers(10, 14))
    assert not management.address("small")["paging"], "the unlucky one, with whom the limit was passed"
    client.put("large", *numbers(90, 100))
    management.expect_address("large", paging=True, timesPaged=1)
    assert not management.address("small")["paging"]
    client.put("small", *numbers(14, 40))
    management.expect_address("small", paging=True)
    assert management.ask("GET", "/broker")["heldMessageCount"] <= 112, "an eighth beyond the limit"
    said = [
        line for line in broker.log if "global-max-messages 100 is used up: new messages go to pages" in line
    ]
    assert len(said) == 2
    receive(client, "large", *numbers(0, 100), id="1")
    receive(client, "small", *numbers(0, 40), id="2")
    for address in ("large", "small"):
        management.expect_address(address, paging=False, numberOfPages=0)
    assert sum("stopped paging" in line for line in broker.log) == 2


def test_bytes_and_number_are_limits_of_their_own(serve):
    """PG-2: either alone is enough, and with global-max-size off the number still counts."""
    broker, management, client = serve(
        core="<global-max-size>-1</global-max-size><global-max-messages>5</global-max-messages>"
    )
    client.put("q", *numbers(0, 5))
    assert not management.address("q")["paging"]
    client.put("q", "5")
    management.expect_address("q", paging=True)
    broker.reload(
        broker_xml(
            core="<global-max-size>100K</global-max-size><global-max-messages>1000</global-max-messages>"
        )
    )
    receive(client, "q", *numbers(0, 6))
    management.expect_address("q", paging=False)
    leave(client)
    client.put("q", *(KILO * 20 for _ in range(8)))
    management.expect_address("q", paging=True)
