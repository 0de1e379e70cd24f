"""Cost of the keys of a last-value queue whose messages are in pages: memory, rate, and duration of the start.

    python -m benchmarks.last_value [--keys 1000000] [--rounds 2]

The benchmark sends durable messages of 100 bytes, one for each key, then one more for each, which replaces the first.
The memory limit is small, so that all messages are in pages. Then it kills and starts the broker, whose index is
complete when `keyCount` has its former value.
"""

from __future__ import annotations

import sys
import time

import click

from benchmarks import management
from benchmarks.brokers import Stompring
from benchmarks.client import Client

QUEUE = "values"
BODY = b"x" * 100
TOGETHER = 500
WAIT = 600.0


def _frame(number: int, receipt: bytes = b"") -> bytes:
    head = b"SEND\ndestination:/queue/%b\npersistent:true\n" % QUEUE.encode()
    return b"%b%bcode:key%07d\n\n%b\0" % (head, receipt, number, BODY)


def fill(broker: Stompring, keys: int) -> float:
    """Send one message for each key, and wait until all are on disk. Returns messages per second."""
    client = Client(broker)
    client.connect()
    client.expect("CONNECTED")
    begun = time.perf_counter()
    for first in range(0, keys, TOGETHER):
        stop = min(first + TOGETHER, keys)
        frames = [_frame(number) for number in range(first, stop - 1)]
        client.socket.sendall(b"".join([*frames, _frame(stop - 1, b"receipt:%d\n" % stop)]))
        client.expect("RECEIPT")
    rate = keys / (time.perf_counter() - begun)
    client.close()
    return rate


@click.command()
@click.option("--keys", default=1_000_000, show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1), help="Messages for each key.")
def main(keys: int, rounds: int) -> None:
    """Fill a last-value queue, kill the broker, and measure its start."""
    addresses = {"default-last-value-key": "code", "auto-delete-queues": "false"}
    with Stompring(settings={"global-max-size": "8MB"}, addresses=addresses) as broker:
        management.wait_ready(broker, WAIT)
        empty = broker.rss()
        for _ in range(rounds):
            click.echo(f"{keys:,} keys at {fill(broker, keys):,.0f} /s")
        found = management.queue(broker, QUEUE)
        click.echo(
            f"messages {found['messageCount']:,}, paged {found['pagedCount']:,}, replaced {found['messagesReplaced']:,}"
        )
        used = broker.rss() - empty
        click.echo(
            f"memory {used / 1e6:,.0f} MB beyond an empty broker, {used / keys:,.0f} bytes for each key"
        )
        broker.kill()
        begun = time.perf_counter()
        broker.launch()
        management.wait_ready(broker, WAIT)
        ready, cpu = time.perf_counter() - begun, broker.cpu_seconds()
        management.expect(broker, QUEUE, "keyCount", keys, WAIT)
        complete, cpu = time.perf_counter() - begun, broker.cpu_seconds() - cpu
        left = management.queue(broker, QUEUE)
        click.echo(
            f"after kill -9: ready in {ready:.2f} s, index complete in {complete:.2f} s with {cpu:.2f} s of the "
            f"processor, {broker.rss() / 1e6:,.0f} MB"
        )
        if found["messageCount"] != keys or left["messageCount"] != keys:
            sys.exit(f"{found['messageCount']:,} messages before, {left['messageCount']:,} after")


if __name__ == "__main__":
    main()
