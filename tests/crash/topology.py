"""What the loads run on: the queues, and the broker.xml that makes them."""

from dataclasses import dataclass

from ..broker_document import anycast, broker_xml

DEAD, EXPIRED = "DLQ", "EXP"
GRAVES = {DEAD, EXPIRED}
RING = 7
ATTEMPTS = 3

#: Address-settings of each area: all in memory, paging when it gets full, paging always.
AREAS = {
    "memory": {},
    "paged": {"max-size-bytes": "12K", "page-size-bytes": "3K"},
    "always": {"max-size-messages": 0, "page-size-bytes": "2K"},
}

KINDS = (
    "work",
    "cumulative",
    "transfer",
    "ring",
    "busyring",
    "topic",
    "later",
    "expiring",
    "graded",
    "purged",
    "coloured",
    "grouped",
    "lastvalue",
    "busylastvalue",
    "diverted",
    "exclusive",
    "kept",
)
LAST_VALUES = ("lastvalue", "busylastvalue")
KEYS = tuple(f"k{number}" for number in range(12))
RINGS = ("ring", "busyring")
SUBSCRIBERS = ("a", "b", "c")
#: Message groups, fewer than consumers. Each belongs to one consumer while that is there, or until a message ends it.
LASTING_GROUPS, ENDING_GROUPS = ("g1", "g2"), ("e1",)
CLIENT_ID = "crash"


@dataclass(frozen=True)
class Group:
    """What the audit must know of one queue."""

    queue: str
    ring: int = 0
    consumers: bool = True
    keyed: bool = False


def address(area, kind):
    """Where messages of this kind are sent."""
    return f"{area}.{kind}"


def result(area):
    """Where the transactions of an area put what they make of its messages."""
    return f"{area}.results"


def copies(area):
    """Where a divert sends copies of the area's messages."""
    return f"{area}.copies"


def subscription(area, name):
    """The queue of a durable subscription to the area's topic."""
    return f"{CLIENT_ID}.{area}-{name}"


def groups():
    """All queues that are always there."""
    found = [Group(DEAD), Group(EXPIRED)]
    for area in AREAS:
        found += [Group(subscription(area, name)) for name in SUBSCRIBERS]
        found += [Group(result(area)), Group(copies(area))]
        for kind in KINDS:
            if kind != "topic":
                ring = RING if kind in RINGS else 0
                found.append(
                    Group(
                        address(area, kind),
                        ring,
                        consumers=kind not in ("ring", "purged", "lastvalue", "kept"),
                        keyed=kind in LAST_VALUES,
                    )
                )
    return found


def document(random, *, persistence=True, more=None, secure=False):
    """A broker.xml: queues are always the same, the sizes of files are not. ``more`` are elements of ``<core>``."""
    settings = {
        "#": {
            "dead-letter-address": DEAD,
            "expiry-address": EXPIRED,
            "max-delivery-attempts": ATTEMPTS,
        }
    }
    for grave in GRAVES:  # whose readers hang up too, and nothing moves on from there
        settings[grave] = {"max-delivery-attempts": -1}
    for area, values in AREAS.items():
        if persistence:
            settings[f"{area}.#"] = dict(values)
        settings[address(area, "coloured")] = {"redelivery-delay": 150}
        settings[address(area, "grouped")] = {"max-delivery-attempts": -1}
        settings[address(area, "exclusive")] = {
            "default-exclusive-queue": "true",
            "default-group-first-key": "FIRST",
            "max-delivery-attempts": -1,
        }
        settings[address(area, "kept")] = {"default-non-destructive": "true", "max-delivery-attempts": -1}
        for kind in LAST_VALUES:
            settings[address(area, kind)] = {"default-last-value-key": "code"}
        for kind in RINGS:
            # a ring counts what waits in pages too, so that what it holds is known exactly
            settings[address(area, kind)] = {"default-ring-size": RING, "ring-counts-paged": "true"}
    core = {
        "persistence-enabled": str(persistence).lower(),
        "journal-file-size": random.choice(["4K", "16K", "64K", "10M"]),
        "journal-compact-min-files": random.choice([2, 3, 10]),
        "journal-compact-percentage": random.choice([30, 60, 90]),
        "dispatch-memory": "1M",
        "max-disk-usage": -1,
        **(more or {}),
    }
    # all others are made by who comes first
    written = [*sorted(GRAVES), *(address(area, "purged") for area in AREAS)]
    addresses = "".join(anycast(name) for name in written)
    elements = "".join(f"<{name}>{value}</{name}>" for name, value in core.items())
    diverts = "".join(
        f'<divert name="{area}"><address>{address(area, "diverted")}</address>'
        f"<forwarding-address>{copies(area)}</forwarding-address></divert>"
        for area in AREAS
    )
    elements += f"<diverts>{diverts}</diverts>"
    if persistence and random.random() < 0.5:
        attributes = 'storage-limit="5MB" sample-period="500"'
        elements += f"<journal-retention-directory {attributes}>data/retention</journal-retention-directory>"
    return broker_xml(settings=settings, core=elements, addresses=addresses, secure=secure)
