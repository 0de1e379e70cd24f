"""Which actors belong together: each plot loads the queues of one kind in one area."""

from __future__ import annotations

from collections.abc import Callable

from . import topology
from .administrator import PLAIN, Bindings
from .connection import within
from .consumers import ConsumerProfile, consume, read
from .context import Context
from .producers import ProducerProfile, produce
from .topology import DEAD, EXPIRED, SUBSCRIBERS, address, result, subscription
from .transactions import Transfer

Plot = Callable[[Context, str], None]


def work(world: Context, area: str) -> None:
    """Producers and consumers of one queue; refused messages become dead letters."""
    queue = address(area, "work")
    produce(world, ProducerProfile(queue, (queue,)), f"{area}-work", 2)
    consume(world, ConsumerProfile(queue, queue, priorities=(0, 0, 7)), f"{area}-worker", 2)


def cumulative(world: Context, area: str) -> None:
    """Acknowledgements that settle all before them."""
    queue = address(area, "cumulative")
    produce(world, ProducerProfile(queue, (queue,)), f"{area}-cumulative")
    consume(world, ConsumerProfile(queue, queue, ack="client"), f"{area}-accumulator")


def transfer(world: Context, area: str) -> None:
    """Transactions that take here and put there, also into other areas."""
    queue = address(area, "transfer")
    produce(world, ProducerProfile(queue, (queue,), durable=1.0), f"{area}-transfer")
    results = tuple(result(other) for other in topology.AREAS)
    name = f"{area}-transferer"
    world.start(Transfer(world, ConsumerProfile(queue, queue), results, name).run())
    consume(world, ConsumerProfile(result(area), result(area)), f"{area}-results")


def ring(world: Context, area: str) -> None:
    """A ring that nobody reads: what it holds is known exactly."""
    queue = address(area, "ring")
    produce(world, ProducerProfile(queue, (queue,), durable=1.0, transactions=0.0, most=1000), f"{area}-ring")


def busy_ring(world: Context, area: str) -> None:
    """A ring with a consumer."""
    queue = address(area, "busyring")
    produce(world, ProducerProfile(queue, (queue,), durable=1.0, transactions=0.0), f"{area}-busyring")
    consume(world, ConsumerProfile(queue, queue), f"{area}-ringer")


def last_value(world: Context, area: str) -> None:
    """A table of values that nobody reads."""
    queue = address(area, "lastvalue")
    produce(world, ProducerProfile(queue, (queue,), durable=1.0, keyed=True, most=1000), f"{area}-lastvalue")


def busy_last_value(world: Context, area: str) -> None:
    """The same with consumers that acknowledge, refuse and leave."""
    queue = address(area, "busylastvalue")
    load = ProducerProfile(queue, (queue,), durable=1.0, keyed=True, most=1000)
    produce(world, load, f"{area}-busylastvalue")
    consume(world, ConsumerProfile(queue, queue, leaves=0.05), f"{area}-valuer", 2)


def topic(world: Context, area: str) -> None:
    """Durable subscriptions: one message in several queues. One subscriber is often away."""
    destination = address(area, "topic")
    queues = tuple(subscription(area, name) for name in SUBSCRIBERS)
    produce(world, ProducerProfile(f"/topic/{destination}", queues, identified=0.4), f"{area}-topic")
    for name, queue in zip(SUBSCRIBERS, queues, strict=True):
        if name != "c" or world.chance(0.3):
            diet = ConsumerProfile(
                f"/topic/{destination}",
                queue,
                subscription=f"{area}-{name}",
                client_id=topology.CLIENT_ID,
                refused=0.02,
            )
            consume(world, diet, f"{area}-subscriber-{name}")


def diverted(world: Context, area: str) -> None:
    """Messages that a divert copies: all of one SEND or COMMIT is there, or nothing of it."""
    queue, copied = address(area, "diverted"), topology.copies(area)
    produce(world, ProducerProfile(queue, (queue, copied), identified=0.4), f"{area}-diverted")
    for each in (queue, copied):
        consume(world, ConsumerProfile(each, each), f"{area}-reader-of-{each}")


def later(world: Context, area: str) -> None:
    """Scheduled messages."""
    queue = address(area, "later")
    load = ProducerProfile(queue, (queue,), durable=1.0, delay=(1, 4000), most=200)
    produce(world, load, f"{area}-later")
    consume(world, ConsumerProfile(queue, queue, ordered=False), f"{area}-later")


def expiring(world: Context, area: str) -> None:
    """Messages that expire unless they are read in time."""
    queue = address(area, "expiring")
    load = ProducerProfile(queue, (queue,), durable=1.0, lifetime=(100, 4000), most=200)
    produce(world, load, f"{area}-expiring")
    consume(world, ConsumerProfile(queue, queue, slowness=0.05), f"{area}-expiring")


def graded(world: Context, area: str) -> None:
    """Priorities."""
    queue = address(area, "graded")
    produce(world, ProducerProfile(queue, (queue,), priorities=(0, 2, 4, 4, 9)), f"{area}-graded", 2)
    consume(world, ConsumerProfile(queue, queue), f"{area}-graded")


def purged(world: Context, area: str) -> None:
    """A queue that nobody but the administrator empties."""
    queue = address(area, "purged")
    produce(world, ProducerProfile(queue, (queue,), identified=0.4), f"{area}-purged")


def coloured(world: Context, area: str) -> None:
    """A consumer with a selector, and now and then one without. What is refused comes again a little later."""
    queue = address(area, "coloured")
    produce(world, ProducerProfile(queue, (queue,), coloured=True), f"{area}-coloured")
    consume(world, ConsumerProfile(queue, queue, selector="colour = 'red'", refused=0.3), f"{area}-red")
    if world.chance(0.5):
        consume(world, ConsumerProfile(queue, queue), f"{area}-any")


def grouped(world: Context, area: str) -> None:
    """Message groups, more than their consumers can have at a time; these refuse, give up and hang up."""
    queue = address(area, "grouped")
    produce(world, grouped_load(area), f"{area}-grouped", 2)
    consume(world, ConsumerProfile(queue, queue, refused=0.2, aborted=0.1, leaves=0.03), f"{area}-grouped", 4)


def exclusive(world: Context, area: str) -> None:
    """One consumer at a time gets everything; these refuse, leave and hang up, and the next one goes on in order."""
    queue = address(area, "exclusive")
    produce(world, ProducerProfile(queue, (queue,), durable=1.0, most=300), f"{area}-exclusive")
    diet = ConsumerProfile(queue, queue, leaves=0.1, aborted=0.1, priorities=(0, 3))
    consume(world, diet, f"{area}-exclusive", 3)


def kept(world: Context, area: str) -> None:
    """A non-destructive queue: its readers take nothing away, only the administrator does."""
    queue = address(area, "kept")
    produce(world, ProducerProfile(queue, (queue,), most=150), f"{area}-kept")
    read(world, ConsumerProfile(queue, queue, refused=0.0, leaves=0.1), f"{area}-reader", 2)


def grouped_load(area: str) -> ProducerProfile:
    """More than is kept in memory for the owner of a group."""
    queue = address(area, "grouped")
    return ProducerProfile(queue, (queue,), grouped=True, most=500)


PLOTS: tuple[Plot, ...] = (
    work,
    cumulative,
    transfer,
    ring,
    busy_ring,
    topic,
    later,
    expiring,
    graded,
    purged,
    coloured,
    grouped,
    last_value,
    busy_last_value,
    diverted,
    exclusive,
    kept,
)

#: Those that together do each kind of thing: a few, so that it is soon done on a slow machine too.
FIRST_PLOTS: tuple[Plot, ...] = (grouped, purged, transfer, work)


async def establish(world: Context, bindings: Bindings) -> None:
    """Make the durable subscriptions, in the first life; they must be there in all that follow."""
    if world.ledger.life > 2:
        return
    wire = await world.open(topology.CLIENT_ID)
    for area in topology.AREAS:
        for name in SUBSCRIBERS:
            headers: dict[str, object] = {"destination": f"/topic/{address(area, 'topic')}"}
            headers |= {
                "id": f"{area}-{name}",
                "ack": "client",
                "durable-subscription-name": f"{area}-{name}",
            }
            await within(wire.ask("SUBSCRIBE", headers))
            bindings.promised(subscription(area, name), PLAIN)
    await wire.leave()


def settle(world: Context) -> None:
    """Read what died and what expired, sometimes."""
    for grave in (DEAD, EXPIRED):
        if world.chance(0.5):
            consume(
                world,
                ConsumerProfile(grave, grave, refused=0.0, ordered=False, moved=True),
                f"reader of {grave}",
            )
