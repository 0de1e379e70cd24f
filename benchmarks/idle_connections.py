"""Memory of a broker for many idle connections.

python -m benchmarks.idle_connections [--brokers a,b] [--connections 10000] [--subscribe]
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass

import click

from benchmarks.brokers import Broker
from benchmarks.brokers.process import HOST
from benchmarks.choice import each_broker
from benchmarks.client import Client
from benchmarks.results import markdown

LIMIT_BYTES = 300_000_000
BATCH = 100
# connections per source address: well below its number of ephemeral ports
PER_ADDRESS = 20_000
# seconds in which a broker frees the memory of the handshakes
SETTLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Resident bytes of the broker before and after, and the seconds of all handshakes."""

    before: int
    after: int
    seconds: float


def allow_files(wanted: int) -> None:
    """Raise the limit of open files, for this process and the brokers that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError) as error:
        raise click.ClickException(
            f"{wanted} open files are needed and the hard limit is {hard} (raise it with ulimit -Hn): {error}"
        ) from error


def measure(broker: Broker, connections: int, subscribe: bool) -> Cost:
    """Open the connections in batches, keep them open, and read the broker's memory before and after."""
    Client(broker).close()
    time.sleep(SETTLE_SECONDS)
    before = broker.rss()
    started = time.perf_counter()
    clients: list[Client] = []
    try:
        while len(clients) < connections:
            batch = [_dial(broker, len(clients) + i) for i in range(min(BATCH, connections - len(clients)))]
            for client in batch:
                client.connect()
            for client in batch:
                client.expect("CONNECTED")
                if subscribe:
                    client.subscribe("/topic/idle")
            clients += batch
        seconds = time.perf_counter() - started
        time.sleep(SETTLE_SECONDS)
        after = broker.rss()
        # check that the broker has not closed them
        for client in clients:
            client.round_trip("/queue/idle.alive")
        return Cost(before, after, seconds)
    finally:
        for client in clients:
            client.close()


def _dial(broker: Broker, number: int) -> Client:
    source = HOST if number < PER_ADDRESS else f"127.0.0.{1 + number // PER_ADDRESS}"
    return Client(broker, source=source)


@click.command()
@click.option("--brokers", default="stompring", show_default=True, help="Comma-separated.")
@click.option("--connections", default=10_000, show_default=True, type=click.IntRange(1, 1_000_000))
@click.option("--subscribe", is_flag=True, help="Each connection subscribes to a topic.")
def main(brokers: str, connections: int, subscribe: bool) -> None:
    """Open idle connections, and print the growth of the broker's memory."""
    allow_files(connections + 1000)
    # ActiveMQ's default connector would start a thread for each connection
    os.environ.setdefault("ACTIVEMQ_TRANSPORT", "stomp+nio")
    rows = []
    for broker in each_broker(brokers):
        cost = measure(broker, connections, subscribe)
        each = (cost.after - cost.before) / connections
        rows.append(
            [
                f"{broker.name} {broker.version()}",
                f"{cost.before / 1e6:,.0f}",
                f"{cost.after / 1e6:,.0f}",
                f"{each / 1000:.1f}",
                f"{connections / cost.seconds:,.0f}",
            ]
        )
        if broker.name == "stompring" and connections == 10_000:
            verdict = "reached" if cost.after < LIMIT_BYTES else "MISSED"
            click.echo(f"target 10,000 idle connections below {LIMIT_BYTES / 1e6:.0f} MB: {verdict}")
    head = [f"{connections:,} connections", "MB before", "MB after", "kB each", "handshakes/s"]
    click.echo("\n" + markdown(head, rows))


if __name__ == "__main__":
    main()
