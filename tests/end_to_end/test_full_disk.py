"""Limits of the disk: durable messages are blocked, is dropped or fails; everything else goes on.

The disk is made "full" for real: no disk is less than 0 % used, and none has an exabyte free.
"""

import pytest

from ..broker_document import broker_xml
from ..management import Answered
from .steps import begin, connected, receive, refused, say, silent

pytestmark = pytest.mark.in_memory

SCAN = "<disk-scan-period>50</disk-scan-period>"
ALWAYS = f"<max-disk-usage>0</max-disk-usage>{SCAN}"
NEVER = f"<max-disk-usage>-1</max-disk-usage>{SCAN}"
TOO_LITTLE = f"<min-disk-free>1000000000G</min-disk-free>{SCAN}"

POLICIES = {
    "block.#": {"disk-full-policy": "BLOCK"},
    "drop.#": {"disk-full-policy": "DROP"},
    "fail.#": {"disk-full-policy": "FAIL"},
    "page.#": {"disk-full-policy": "FAIL", "max-size-messages": 1},
}

DURABLE = {"persistent": "true"}


@pytest.mark.parametrize("full", [ALWAYS, TOO_LITTLE], ids=["max-disk-usage", "min-disk-free"])
def test_block_waits_and_goes_on_by_itself(start_broker, full):
    broker = start_broker(core=full, settings=POLICIES)
    management, producer, other = broker.management(), connected(broker), connected(broker)
    say(producer, "block.q", b"1", receipt="late", **DURABLE)
    management.expect_address("block.q", blockedProducers=1)
    silent(producer)
    other.put("block.q", "2")
    receive(other, "block.q", "2")
    broker.reload(broker_xml(core=NEVER, settings=POLICIES))
    producer.expect("RECEIPT", receipt_id="late")
    other.message("1")
    producer.put("block.q", "3", **DURABLE)
    other.message("3")
    management.expect_address("block.q", blockedProducers=0)
    said = [line for line in broker.log if "the disk" in line and "full" in line]
    assert len(said) == 1 and sum("disk no longer full" in line for line in broker.log) == 1


def test_drop_takes_and_forgets(serve):
    _, management, client = serve(core=ALWAYS, settings=POLICIES)
    client.put("drop.q", "1", "2", **DURABLE)
    client.put("drop.q", "3")
    management.expect("drop.q", messageCount=1, messagesAdded=1)
    management.expect_address("drop.q", droppedMessageCount=2)
    receive(client, "drop.q", "3")


def test_fail_says_which_limit(serve):
    broker, _, client = serve(core=ALWAYS, settings=POLICIES)
    client.put("fail.q", "1")
    refused(client, "fail.q", b"2", "fail.q", "rejects durable messages", "max-disk-usage 0 %", **DURABLE)
    broker.management().expect("fail.q", messageCount=1)


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_what_would_be_paged_needs_the_disk_durable_or_not(start_broker, persistent):
    client = connected(start_broker(core=ALWAYS, settings=POLICIES))
    client.put("page.q", "1")  # the one that reaches the limit is still for memory
    refused(
        client,
        "page.q",
        b"2",
        "page.q",
        "rejects durable messages, and all others while it pages",
        persistent=persistent,
    )


@pytest.mark.parametrize("policy", ["block", "drop", "fail"])
def test_commit(start_broker, policy):
    broker = start_broker(core=ALWAYS, settings=POLICIES)
    client, address = connected(broker), f"{policy}.q"
    begin(client)
    for body in (b"1", b"2"):
        client.put(address, body, transaction="t", **DURABLE)
    client.send("COMMIT", {"transaction": "t", "receipt": "done"})
    if policy == "fail":
        client.error("Transaction t is not committed", "rejects durable messages", receipt="done")
        return
    if policy == "block":
        silent(client)
        broker.reload(broker_xml(core=NEVER, settings=POLICIES))
    client.expect("RECEIPT", receipt_id="done")
    broker.management().expect(address, messageCount=2 if policy == "block" else 0)


def test_acknowledgements_go_on(serve):
    broker, _, client = serve(core=NEVER, settings=POLICIES)
    client.put("block.q", *"123", **DURABLE)
    client.subscribe("block.q", ack="client-individual")
    messages = client.messages(*"123")
    broker.reload(broker_xml(core=ALWAYS, settings=POLICIES))
    broker.wait_for_log("the disk of .* is full")
    for message in messages:
        client.ask("ACK", client.reference(message))
    broker.management().expect("block.q", messageCount=0, messagesAcknowledged=3)


def test_health_and_metrics_tell(start_broker):
    broker = start_broker(core=ALWAYS)
    management = broker.management()
    with pytest.raises(Answered) as answered:
        management.text("/health/ready")
    assert answered.value.status == 503 and "max-disk-usage 0 %" in answered.value.problem["diskFault"]
    assert "stompring_disk_full 1.0" in management.text("/metrics")
    shown = management.ask("GET", "/broker")
    assert shown["diskFull"] is True and 0 < shown["diskUsage"] <= 1 and shown["diskFree"] > 0
    broker.reload(broker_xml(core=NEVER))
    broker.wait_for_log("disk no longer full")
    assert management.ask("GET", "/broker")["diskFull"] is False
    assert '"UP"' in management.text("/health/ready")


def test_without_a_store_the_disk_is_of_no_interest(serve):
    _, management, client = serve(core=f"<persistence-enabled>false</persistence-enabled>{ALWAYS}")
    client.put("q", "1", **DURABLE)
    management.expect("q", messageCount=1)
    assert '"UP"' in management.text("/health/ready")
    assert "stompring_disk" not in management.text("/metrics")
    assert management.ask("GET", "/broker")["diskFull"] is None
