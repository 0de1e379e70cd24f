"""What went through a real broker is in its files afterwards: kept in full, whatever became of it, and over a kill."""

import struct
from collections import Counter

import pytest

from stompring.store.datadir import Position, record_ingested
from stompring.store.record import CONSUMER, MESSAGE, NAME, PAGE_SETTLED, SETTLED, Kind, unpack_runs

from ..broker_document import anycast
from ..store.decoded_files import passed_on, payloads, retained, rows
from .lasting import DURABLE
from .steps import leave, several

pytestmark = pytest.mark.in_memory


SMALL = (
    "<journal-file-size>4KB</journal-file-size><journal-compact-min-files>2</journal-compact-min-files>"
    "<journal-compact-percentage>80</journal-compact-percentage>"
)


def retention(**attributes):
    written = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f"{SMALL}<journal-retention-directory{written}>data/retention</journal-retention-directory>"


def bodies(data):
    """The bodies of all message records in the journal, in pages, and in what is kept of both."""
    found = []
    for path in sorted([*data.rglob("*.journal"), *data.rglob("*.page")]):
        for payload in payloads(path.read_bytes()):
            if payload[0] == Kind.MESSAGE:
                size = MESSAGE.unpack_from(payload)[11]
                found.append(payload[len(payload) - size - 2 : -2])
            elif payload[0] == Kind.RETAINED:
                found += [body for _, body in retained(payload)[1]]
    return found


def settled(data):
    """The numbers of messages that queues gave up in memory."""
    numbers = []
    for path in sorted(data.rglob("*.journal")):
        for payload in payloads(path.read_bytes()):
            if payload[0] == Kind.SETTLED:
                count = (len(payload) - SETTLED.size) // 8
                numbers += struct.unpack_from(f"<{count}Q", payload, SETTLED.size)
            elif payload[0] == Kind.RETAINED:
                numbers += [number for number, _, _ in passed_on(payload)]
    return numbers


def put_by_and_by(client, sent):
    """A few with each write of the journal, so that there are several segments."""
    for at in range(0, len(sent), 5):
        client.put("q", *sent[at : at + 5], **DURABLE)


def test_all_that_came_is_there_whatever_became_of_it(lasting):
    lasting.start(core=retention(sample_period=100), addresses=anycast("q"))
    sent = [f"message {number:03d}" for number in range(400)]
    client, consumer = lasting.connect(), lasting.connect()
    consumer.subscribe("q", ack="auto")  # waits: what comes is consumed as it comes
    put_by_and_by(client, sent[:200])
    lasting.kill()
    lasting.start()
    lasting.drain("q")  # what was consumed without a word may come again
    client, consumer = lasting.connect(), lasting.connect()
    consumer.subscribe("q", ack="auto")
    put_by_and_by(client, sent[200:])
    consumer.messages(*sent[200:])
    metrics = lasting.management.text("/metrics")
    assert "stompring_retention_files " in metrics and "stompring_retention_files 0.0" not in metrics
    lasting.management.expect("q", messageCount=0)
    lasting.stop()
    assert set(bodies(lasting.data)) == {text.encode() for text in sent}
    assert len(set(settled(lasting.data))) >= 200
    kept = sorted((lasting.data / "retention" / "journal").iterdir())
    assert len(kept) > 3
    every = [
        row for path in (lasting.data / "retention" / "samples").iterdir() for row in rows(path.read_bytes())
    ]
    assert every[-1][1] == {} or "q" in {name for _, queues in every for name in queues}
    added = [queues["q"][6] for _, queues in every if "q" in queues]
    assert max(added) >= 200


def test_pages_are_kept_and_limits_hold(lasting):
    settings = {"q": {"max-size-messages": 5, "page-size-bytes": 4096}}
    document = {"addresses": anycast("q"), "settings": settings}
    lasting.start(core=retention(), **document)
    sent = [f"{number:04d}" + "x" * 100 for number in range(300)]
    lasting.connect().put("q", *sent, **DURABLE)
    assert lasting.drain("q") == sent
    lasting.stop()
    pages = list((lasting.data / "retention" / "paging").rglob("*.page"))
    assert len(pages) > 5 and not list((lasting.data / "paging").rglob("*.page"))
    assert {text.encode() for text in sent} == set(bodies(lasting.data))
    lasting.start(core=retention(storage_limit="20KB"), **document)
    found = lasting.management.ask("GET", "/broker")
    assert found["retentionDeleted"] > 0 and found["retentionSize"] <= 20 * 1024
    lasting.stop()
    assert sum(path.stat().st_size for path in (lasting.data / "retention").rglob("*.*")) <= 24 * 1024


@pytest.mark.parametrize("pages", [False, True], ids=["memory", "pages"])
def test_who_acknowledged_is_in_the_files(lasting, pages):
    settings = {"q": {"max-size-messages": 0, "page-size-bytes": 65536}} if pages else {}
    lasting.start(core=retention(), addresses=anycast("q"), settings=settings)
    sender = lasting.connect()
    expected = Counter()
    for name, mode in (("one", "client-individual"), ("two", "client"), ("three", "auto")):
        sender.put("q", *["x"] * 20, **DURABLE)
        consumer = lasting.connect(client_id=name)
        consumer.subscribe("q", id="7", ack=mode)
        taken = several(consumer, 20)
        if mode == "client-individual":
            for message in taken:
                consumer.ask("ACK", consumer.reference(message))
        elif mode == "client":
            consumer.ask("ACK", consumer.reference(taken[-1]))
        leave(consumer, "7")
        expected[f"{name}/7"] = 20
    lasting.management.expect("q", messageCount=0)
    lasting.stop()
    assert acknowledged(lasting.data) == expected


def acknowledged(data):
    """How many messages were acknowledged by whom, of the journal and of pages."""
    found = Counter()
    for path in sorted(data.rglob("*.journal")):
        names = {0: ""}
        for payload in payloads(path.read_bytes()):
            if payload[0] == Kind.NAME and payload[1] == CONSUMER:
                names[NAME.unpack_from(payload)[3]] = payload[NAME.size :].decode()
            elif payload[0] == Kind.SETTLED:
                found[names[SETTLED.unpack_from(payload)[2]]] += (len(payload) - SETTLED.size) // 8
            elif payload[0] == Kind.RETAINED:
                found.update(names[consumer] for _, _, consumer in passed_on(payload))
            elif payload[0] == Kind.PAGE_SETTLED:
                runs = unpack_runs(payload[PAGE_SETTLED.size :])
                found[names[PAGE_SETTLED.unpack_from(payload)[2]]] += sum(count for _, count in runs)
    return found


def test_what_goes_before_it_was_ingested_is_counted(lasting):
    def after_400_more():
        lasting.connect().put("q", *["x" * 100] * 400, **DURABLE)
        lasting.drain("q")
        return lasting.management.ask("GET", "/broker")

    lasting.start(core=retention(storage_limit="20KB"), addresses=anycast("q"))
    lasting.connect().put("q", *["x" * 100] * 200, **DURABLE)
    lasting.drain("q")
    kept = lasting.data / "retention"
    assert lasting.management.ask("GET", "/broker")["retentionDeletedNotIngested"] == 0
    lasting.stop()
    everything = dict.fromkeys(("journal", "samples"), Position(1_000_000, 0))
    record_ingested(kept, "main", "file:///lake", everything)
    lasting.start()
    found = after_400_more()
    assert found["retentionDeleted"] > 0 and found["retentionDeletedNotIngested"] == 0
    metrics = lasting.management.text("/metrics")
    assert "stompring_retention_deleted_not_ingested_files_total 0.0" in metrics
    record_ingested(kept, "main", "file:///lake", {})
    found = after_400_more()
    assert 0 < found["retentionDeletedNotIngested"] < found["retentionDeleted"]
    lasting.running.wait_for_log("before (it was|they were) ingested into file:///lake")


def test_without_it_nothing_is_kept(lasting):
    lasting.start(core=SMALL, addresses=anycast("q"))
    lasting.connect().put("q", *map(str, range(100)), **DURABLE)
    lasting.drain("q")
    assert lasting.management.ask("GET", "/broker")["retentionFiles"] is None
    lasting.stop()
    assert not (lasting.data / "retention").exists()
