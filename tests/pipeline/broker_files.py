"""Files of a store to read: of a broker in memory, with all that a message record can have in it."""

from pathlib import Path

from stompring.broker import publish
from stompring.broker.publish import Transaction
from stompring.settings.model import Retain
from stompring.settings.model import Retention as Settings
from stompring.store.segment import NO_IDENTITY

from ..broker.broker_fixture import MULTICAST, join
from ..store.paged_broker import SETTINGS, PagedBroker

KEPT = Path("/data/retention")

#: Escapes, a name that comes twice, an empty value, letters of more than one byte.
HEADERS = [
    {},
    {"colour": "red", "size": "10"},
    {"a\\cb": "one\\ntwo\\\\n", "a": "x:y:z"},
    {"empty": "", "größe": "5 €"},
]


def broker_files(**more):
    """Name and bytes of each file of a small history: segments (sealed, and the newest), pages, samples."""
    world = PagedBroker(
        journal_file_size=more.pop("journal_file_size", 1500),
        journal_compact_min_files=0,
        journal_retention_directory=Settings(str(KEPT), sample_period=1000),
        settings={**SETTINGS, "all": {"retain": Retain.ALL}, "none": {"retain": Retain.NONE}},
        identity=more.pop("identity", NO_IDENTITY),
    )
    queue = world.queue("q")
    for name in ("news.one", "news.two"):
        world.queue(name, "news", MULTICAST)
    consumer = join(queue, 3)
    for name, more_of_it in (("all.ring", {"ring_size": 2, "durable": False}), ("all.taken", {})):
        world.queue(name, "all", MULTICAST, **more_of_it)
    join(world.directory.queues["all.taken"], auto=True)
    join(world.queue("none"), 1)
    join(world.queue("taken"), auto=True)
    world.persistence.take_samples(world.broker)
    for number in range(more.pop("count", 12)):
        headers = HEADERS[number % len(HEADERS)]
        world.durable("q", b"body %d\0\n" % number, headers=headers, priority=number % 10)
        world.durable("news", bytes(number), user="änna" if number % 3 else None, headers=headers)
        for address in ("all", "none", "taken"):
            world.send(address, b"%d" % number, durable=number % 3 > 0, headers=headers)
        world.durable("q", due=world.now + 60_000, expires=world.now + 90_000 + number, headers=headers)
        world.pass_time(1000)
    world.broker.clock.refresh()
    transaction = Transaction(world.broker)
    consumer.ack_in(transaction)
    for body in (b"within", b"a transaction"):
        message = world.message("q", body, durable=True)
        transaction.send(0, lambda: world.address("q"), lambda m=message: publish.send(m), durable=True)  # type: ignore[misc]
    transaction.commit()
    first, second = world.queues("a.one", "a.two")
    for number in range(more.pop("paged", 40)):
        members = [first, second][number % 2 :]
        world.page(members, b"paged %d" % number, durable=number % 4 > 0, headers=HEADERS[number % 4])
    world.turn()
    world.drain(first)
    world.turn()
    world.persistence.samples.stop()
    world.turn()
    return {
        str(path.relative_to("/data")): data
        for path, data in sorted(world.memory.data.items())
        if path.suffix in (".journal", ".page", ".samples")
    }


def write_files(root, files):
    """The same files on a disk."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_identified(root, files, identity):
    """The same with what a broker puts beside them."""
    write_files(root, files).mkdir(parents=True, exist_ok=True)
    (root / "schema-version").write_text("2\n")
    (root / "identity").write_text(f"{identity.hex()}\n")
    return root
