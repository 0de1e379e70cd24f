"""Traffic of all kinds through a real broker, and what its files tell of it afterwards."""

from collections import Counter

from ...broker_document import anycast, multicast
from ...end_to_end.lasting import DURABLE
from ...end_to_end.test_retention import retention
from .. import reference_decoder

SETTINGS = {
    "p": {"max-size-messages": 5, "page-size-bytes": 4096},
    "d": {"max-delivery-attempts": 1, "dead-letter-address": "DLQ"},
    "e": {"expiry-address": "EXP"},
}


def start(lasting):
    """A broker that keeps everything in small segments, so that a few messages fill many and compaction is at work."""
    lasting.start(
        core=retention(sample_period=100),
        addresses="".join(anycast(name) for name in ("q", "p", "d", "e", "DLQ", "EXP"))
        + anycast("r", 'ring-size="10"')
        + multicast("news", queue="news.one", inside="<durable>true</durable>"),
        settings=SETTINGS,
    )


def produce(lasting, mark):
    """Messages to all addresses. Some are consumed, some come back, some go elsewhere."""
    client = lasting.connect()
    for name in ("q", "p", "r"):
        client.put(name, *[f"{mark} {name} {number} ".ljust(80, "x") for number in range(60)], **DURABLE)
    client.put("d", *[f"{mark} d {number}" for number in range(3)], **DURABLE)
    client.put("/topic/news", f"{mark} news", **DURABLE)
    client.put("e", f"{mark} e", expires=1, **DURABLE)
    consumer = lasting.connect()
    consumer.subscribe("d", id="d", ack="client-individual")
    for _ in range(3):
        consumer.answer("NACK", consumer.message())
    consumer.disconnect()
    lasting.drain("q")
    client.disconnect()


def retained_messages(data):
    """A row for each message and queue in the files, the first one where compaction has made more."""
    found = {}
    for folder in (data / "retention", data):
        for path in sorted([*folder.glob("journal/*.journal"), *folder.glob("paging/*/*.page")]):
            for row in reference_decoder.rows(path.read_bytes()):
                found.setdefault((row["message_id"], row["queue"]), row)
    return [found[key] for key in sorted(found)]


def event_counts(events):
    """How many of each event, by queue."""
    found = {}
    for row in events:
        found.setdefault(row["queue"], Counter())[row["event"]] += 1
    return found
