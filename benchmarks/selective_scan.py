"""A selective consumer whose message is behind a million messages that its selector rejects.

    python -m benchmarks.selective_scan [--messages 1000000] [--memory 64MB]

A queue receives messages with `color:blue`, and then one with `color:red`. A consumer that selects red receives it. A
second one subscribes while the first is subscribed, then another red message follows. At the end the benchmark drains
the blue messages: all must arrive, in order, as first deliveries.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import click

from benchmarks import load, management
from benchmarks.brokers import Broker, BrokerDied, Stompring
from benchmarks.client import Client
from benchmarks.results import markdown
from benchmarks.targets import verdict

QUEUE = "scan.0"
DESTINATION = f"/queue/{QUEUE}"
RED = "color = 'red'"
TARGET_SECONDS = 5.0
# maximum ratio of the blocks read for the second consumer to those for the first: above it the scan was complete
TARGET_SHARE = 0.1
BLOCKS_READ = "stompring_dispatch_blocks_read_total"
# seconds in which the work of a subscription ends after its answer
REST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Cost of one subscription: seconds to its message, processor seconds of the broker, and blocks that it read."""

    seconds: float
    cpu: float
    blocks: float


def red(client: Client) -> None:
    """Send one red message, and wait until the queue has it."""
    client.send(DESTINATION, b"red", receipt=1, headers={"color": "red"})
    client.expect("RECEIPT")


def subscribed(broker: Stompring, feed: Client, send: bool) -> tuple[Seen, Client]:
    """Measure a new consumer of red. ``send``: send a red message after the broker has completed the SUBSCRIBE."""
    client = Client(broker)
    client.connect()
    client.expect("CONNECTED")
    cpu, blocks = broker.cpu_seconds(), _blocks(broker)
    begun = time.perf_counter()
    client.subscribe(DESTINATION, RED)
    if send:
        time.sleep(REST_SECONDS)
        begun = time.perf_counter()
        red(feed)
    frame = client.expect("MESSAGE")
    taken = time.perf_counter() - begun
    if not frame.endswith(b"red"):
        raise load.LoadFailed(f"a consumer of {RED} got {frame!r}")
    time.sleep(REST_SECONDS)
    return Seen(taken, broker.cpu_seconds() - cpu, _blocks(broker) - blocks), client


def _blocks(broker: Stompring) -> float:
    return management.metrics(broker).get(BLOCKS_READ, 0.0)


def _row(title: str, seen: Seen) -> list[str]:
    return [title, f"{1000 * seen.seconds:,.1f}", f"{seen.cpu:.2f}", f"{seen.blocks:,.0f}"]


def measure(broker: Stompring, messages: int, durable: bool) -> tuple[list[list[str]], list[str]]:
    """Measure a broker. Returns the rows of the table, and the faults."""
    fill = ["-m", "produce", "-C", "1", "-n", str(messages), "-r", "500", "-R", "20", "-x", "color:blue"]
    filled = load.run(broker, *fill, "-D", str(int(durable)), "-d", "/queue/scan", "-T", "60")
    click.echo(f"{messages:,} blue messages in at {filled['msgs_per_s']:,.0f} /s")
    feed = Client(broker)
    feed.connect()
    feed.expect("CONNECTED")
    red(feed)
    paged = management.queue(broker, QUEUE).get("pagedCount", 0)
    click.echo(f"{paged:,} of {messages + 1:,} are in pages")
    first, one = subscribed(broker, feed, send=False)
    one.close()
    second, two = subscribed(broker, feed, send=True)
    third, three = _beside(broker, feed, two)
    for client in (two, three, feed):
        client.close()
    rows = [
        _row("first, the red one behind all", first),
        _row("second, after it, a new red one", second),
        _row("third, beside it, a new red one", third),
    ]
    _targets(first, second, third)
    wrong = [] if paged or messages < 500_000 else ["nothing was paged: less memory is needed (--memory)"]
    return rows, wrong + untouched(broker, messages)


def _beside(broker: Stompring, feed: Client, other: Client) -> tuple[Seen, Client]:
    # the broker alternates between two consumers: send two red messages, one for each
    client = Client(broker)
    client.connect()
    client.expect("CONNECTED")
    cpu, blocks = broker.cpu_seconds(), _blocks(broker)
    client.subscribe(DESTINATION, RED)
    time.sleep(REST_SECONDS)
    begun = time.perf_counter()
    red(feed)
    red(feed)
    client.expect("MESSAGE")
    taken = time.perf_counter() - begun
    other.expect("MESSAGE")
    return Seen(taken, broker.cpu_seconds() - cpu, _blocks(broker) - blocks), client


def _targets(first: Seen, second: Seen, third: Seen) -> None:
    within = verdict(first.seconds, TARGET_SECONDS, below=True)
    click.echo(f"target red within {TARGET_SECONDS:g} s: {within}")
    if not first.blocks:
        click.echo(f"target no second scan: not measured ({BLOCKS_READ} did not move)")
        return
    for title, seen in (("second", second), ("third", third)):
        share = verdict(seen.blocks / first.blocks, TARGET_SHARE, below=True)
        click.echo(f"target blocks read for the {title} at most {TARGET_SHARE} of the first: {share}")


def untouched(broker: Broker, messages: int) -> list[str]:
    """Drain the queue, and describe the faults of the blue messages."""
    assert isinstance(broker, Stompring)
    management.expect(broker, QUEUE, "consumerCount", 0)
    found = management.queue(broker, QUEUE)
    wrong = []
    if found["messageCount"] != messages:
        wrong.append(f"messageCount is {found['messageCount']:,} and not {messages:,}")
    count = str(found["messageCount"])
    drained = load.run(broker, "-m", "consume", "-C", "1", "-n", count, "-d", "/queue/scan", "-T", "60")
    click.echo(f"drained at {drained['msgs_per_s']:,.0f} /s")
    for name, value in (("distinct", messages), ("repeated", 0), ("disordered", 0), ("redelivered", 0)):
        if drained[name] != value:
            wrong.append(f"{name} is {drained[name]:,} and not {value:,}")
    return wrong


@click.command()
@click.option("--messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--memory", default="64MB", show_default=True, help="global-max-size.")
@click.option("--durable", is_flag=True, help="persistent:true on every message.")
def main(messages: int, memory: str, durable: bool) -> None:
    """Measure how long a selective consumer waits for its message behind a deep queue, and the cost of a second one.

    The output has milliseconds to the message, processor seconds of the broker, and blocks that it read from pages,
    from the SUBSCRIBE to two seconds after the message.
    """
    try:
        with Stompring(settings={"global-max-size": memory}) as broker:
            rows, wrong = measure(broker, messages, durable)
    except (BrokerDied, load.LoadFailed, management.NotTold) as failure:
        raise click.ClickException(str(failure)) from failure
    head = ["consumer of color = 'red'", "ms", "processor s", "blocks read"]
    click.echo("\n" + markdown(head, rows))
    click.echo(
        "; ".join(wrong) or f"the {messages:,} blue ones were untouched: all there, in order, not redelivered"
    )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
