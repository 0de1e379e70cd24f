"""The cases of the whole-broker benchmark: the options of stompload, and the figure to read from its result."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.brokers import FLOORS

# seven fixed headers and, by -X, one that changes with every message
HEADERS = tuple(
    word
    for line in (
        "color:red",
        "kind:order",
        "region:north",
        "source:till-17",
        "currency:EUR",
        "weight:12.5",
        "retry:0",
    )
    for word in ("-x", line)
) + ("-X", "serial")

DURABLE = ("-p", "8", "-r", "1", "-R", "50", "-D", "1")


@dataclass(frozen=True, slots=True)
class Case:
    """One load; bodies have 128 bytes by default. The runner appends the destination, a new one for each run."""

    name: str
    what: str
    options: tuple[str, ...]
    topic: bool = False
    # measured in microseconds at percentiles instead of messages per second
    latency: bool = False
    needs_selectors: bool = False
    # the store writes to the disk before the broker confirms a message
    disk: bool = False
    # compared with the disk's own time for the same writes
    beside_disk: bool = False
    # measured on stompring alone
    ours: bool = False
    # servers that do not speak STOMP, on which it is also measured
    floors: tuple[str, ...] = ()
    # also measured on the other builds and reactors of stompring
    variants: bool = False

    @property
    def prefix(self) -> str:
        """The destination prefix that every broker under test understands."""
        return "/topic/" if self.topic else "/queue/"


CASES = {
    case.name: case
    for case in (
        Case("auto", "1 producer, 1 consumer, ack auto", (), floors=tuple(FLOORS), variants=True),
        Case("websocket", "the same over WebSocket, a message for each frame", ("-E", "ws"), ours=True),
        Case("tls", "the same over TLS", ("-E", "tls"), ours=True, floors=("relay",)),
        Case(
            "unique-headers",
            "as auto, 8 user headers, one of which always changes",
            HEADERS,
        ),
        Case(
            "client-individual",
            "1 producer, 1 consumer, an ACK for each message",
            ("-a", "client-individual"),
            variants=True,
        ),
        Case("client", "1 producer, 1 consumer, cumulative ACK of every 20", ("-a", "client", "-b", "20")),
        Case(
            "fan-out",
            "1 producer, 10 subscribers of a topic; deliveries",
            ("-t", "1", "-c", "10", "-W", "2000"),
            topic=True,
            floors=tuple(FLOORS),
        ),
        Case(
            "receipts",
            "8 producers, each waits for the RECEIPT of each SEND; 1 consumer",
            ("-p", "8", "-r", "1"),
            variants=True,
        ),
        Case(
            "receipt-one",
            "1 producer, waits for the RECEIPT of each SEND; 1 consumer",
            ("-r", "1"),
        ),
        Case("tls-receipts", "as receipts, over TLS", ("-p", "8", "-r", "1", "-E", "tls"), ours=True),
        Case(
            "body-100k",
            "as auto, bodies of 100 kB, at most 200 of them unread",
            ("-s", "100000", "-W", "200"),
        ),
        Case("body-1m", "as auto, bodies of 1 MB, at most 20 of them unread", ("-s", "1000000", "-W", "20")),
        Case("persistent", "as receipts, with persistent:true", ("-p", "8", "-r", "1", "-D", "1"), disk=True),
        Case(
            "durable-receipts",
            "8 producers, persistent:true and a RECEIPT for each SEND, 50 outstanding for each; 1 consumer",
            DURABLE,
            disk=True,
        ),
        Case(
            "durable-held",
            "the same without the consumer: nothing can be skipped because it was consumed meanwhile",
            (*DURABLE, "-m", "produce"),
            disk=True,
        ),
        Case(
            "durable-one",
            "1 producer, persistent:true, waits for the RECEIPT of each SEND; no consumer",
            ("-m", "produce", "-r", "1", "-D", "1"),
            disk=True,
            beside_disk=True,
        ),
        Case(
            "selector",
            "as unique-headers; the consumer selects color = 'red' (all match)",
            (*HEADERS, "-y", "selector:color = 'red'"),
            needs_selectors=True,
        ),
        Case(
            "latency",
            "1 producer at 5,000 messages per second, 1 consumer, ack auto",
            ("-L", "5000"),
            latency=True,
            floors=tuple(FLOORS),
            variants=True,
        ),
    )
}
