"""Which actors belong together: each plot loads the queues of one kind in one area."""

from . import topology
from .administrator import PLAIN
from .connection import within
from .consumers import ConsumerProfile, consume, read
from .producers import ProducerProfile, produce
from .topology import DEAD, EXPIRED, SUBSCRIBERS, address, result, subscription
from .transactions import Transfer


def _send(world, area, kind, count=1, **load):
    """Producers for the queue of a kind."""
    queue = address(area, kind)
    produce(world, ProducerProfile(queue, (queue,), **load), f"{area}-{kind}", count)


def _take(world, area, kind, count=1, **diet):
    """Consumers of the queue of a kind."""
    _take_of(world, address(area, kind), count, **diet)


def _take_of(world, queue, count=1, **diet):
    consume(world, ConsumerProfile(queue, queue, **diet), f"reader of {queue}", count)


def work(world, area):
    """Producers and consumers of one queue; refused messages become dead letters."""
    _send(world, area, "work", 2)
    _take(world, area, "work", 2, priorities=(0, 0, 7))


def cumulative(world, area):
    """Acknowledgements that settle all before them."""
    _send(world, area, "cumulative")
    _take(world, area, "cumulative", ack="client")


def transfer(world, area):
    """Transactions that take here and put there, also into other areas."""
    _send(world, area, "transfer", durable=1.0)
    queue = address(area, "transfer")
    results = tuple(result(other) for other in topology.AREAS)
    world.start(Transfer(world, ConsumerProfile(queue, queue), results, f"{area}-transferer").run())
    _take_of(world, result(area))


def ring(world, area):
    """A ring that nobody reads: what it holds is known exactly."""
    _send(world, area, "ring", durable=1.0, transactions=0.0, most=1000)


def busy_ring(world, area):
    """A ring with a consumer."""
    _send(world, area, "busyring", durable=1.0, transactions=0.0)
    _take(world, area, "busyring")


def last_value(world, area):
    """A table of values that nobody reads."""
    _send(world, area, "lastvalue", durable=1.0, keyed=True, most=1000)


def busy_last_value(world, area):
    """The same with consumers that acknowledge, refuse and leave."""
    _send(world, area, "busylastvalue", durable=1.0, keyed=True, most=1000)
    _take(world, area, "busylastvalue", 2, leaves=0.05)


def topic(world, area):
    """Durable subscriptions: one message in several queues. One subscriber is often away."""
    destination = f"/topic/{address(area, 'topic')}"
    queues = tuple(subscription(area, name) for name in SUBSCRIBERS)
    produce(world, ProducerProfile(destination, queues, identified=0.4), f"{area}-topic")
    for name, queue in zip(SUBSCRIBERS, queues, strict=True):
        if name != "c" or world.chance(0.3):
            diet = ConsumerProfile(
                destination,
                queue,
                subscription=f"{area}-{name}",
                client_id=topology.CLIENT_ID,
                refused=0.02,
            )
            consume(world, diet, f"{area}-subscriber-{name}")


def diverted(world, area):
    """Messages that a divert copies: all of one SEND or COMMIT is there, or nothing of it."""
    queue, copied = address(area, "diverted"), topology.copies(area)
    produce(world, ProducerProfile(queue, (queue, copied), identified=0.4), f"{area}-diverted")
    for each in (queue, copied):
        _take_of(world, each)


def later(world, area):
    """Scheduled messages."""
    _send(world, area, "later", durable=1.0, delay=(1, 4000), most=200)
    _take(world, area, "later", ordered=False)


def expiring(world, area):
    """Messages that expire unless they are read in time."""
    _send(world, area, "expiring", durable=1.0, lifetime=(100, 4000), most=200)
    _take(world, area, "expiring", slowness=0.05)


def graded(world, area):
    """Priorities."""
    _send(world, area, "graded", 2, priorities=(0, 2, 4, 4, 9))
    _take(world, area, "graded")


def purged(world, area):
    """A queue that nobody but the administrator empties."""
    _send(world, area, "purged", identified=0.4)


def coloured(world, area):
    """A consumer with a selector, and now and then one without. What is refused comes again a little later."""
    _send(world, area, "coloured", coloured=True)
    _take(world, area, "coloured", selector="colour = 'red'", refused=0.3)
    if world.chance(0.5):
        _take(world, area, "coloured")


def grouped(world, area):
    """Message groups, more than their consumers can have at a time; these refuse, give up and hang up."""
    produce(world, grouped_load(area), f"{area}-grouped", 2)
    _take(world, area, "grouped", 4, refused=0.2, aborted=0.1, leaves=0.03)


def exclusive(world, area):
    """One consumer at a time gets everything; these refuse, leave and hang up, and the next one goes on in order."""
    _send(world, area, "exclusive", durable=1.0, most=300)
    _take(world, area, "exclusive", 3, leaves=0.1, aborted=0.1, priorities=(0, 3))


def kept(world, area):
    """A non-destructive queue: its readers take nothing away, only the administrator does."""
    _send(world, area, "kept", most=150)
    queue = address(area, "kept")
    read(world, ConsumerProfile(queue, queue, refused=0.0, leaves=0.1), f"{area}-reader", 2)


def grouped_load(area):
    """More than is kept in memory for the owner of a group."""
    queue = address(area, "grouped")
    return ProducerProfile(queue, (queue,), grouped=True, most=500)


PLOTS = (
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
FIRST_PLOTS = (grouped, purged, transfer, work)


async def establish(world, bindings):
    """Make the durable subscriptions, in the first life; they must be there in all that follow."""
    if world.ledger.life > 2:
        return
    wire = await world.open(topology.CLIENT_ID)
    for area in topology.AREAS:
        for name in SUBSCRIBERS:
            durable = f"{area}-{name}"
            headers = {"destination": f"/topic/{address(area, 'topic')}", "id": durable}
            headers |= {"ack": "client", "durable-subscription-name": durable}
            await within(wire.ask("SUBSCRIBE", headers))
            bindings.promised(subscription(area, name), PLAIN)
    await wire.leave()


def settle(world):
    """Read what died and what expired, sometimes."""
    for grave in (DEAD, EXPIRED):
        if world.chance(0.5):
            _take_of(world, grave, refused=0.0, ordered=False, moved=True)
