"""Cost of creating queues, writing to them and reading their counters, for growing numbers of queues.

python -m benchmarks.many_queues [--brokers a,b] [--sizes 1000,3000,10000]
"""

from __future__ import annotations

import multiprocessing
import time
import urllib.request
from dataclasses import dataclass
from multiprocessing.connection import Connection

import click

from benchmarks.brokers import Broker, Stompring
from benchmarks.choice import each_broker, names_of
from benchmarks.client import Client
from benchmarks.results import markdown

# outstanding receipts: enough to keep the broker busy, so that round trips do not count
WINDOW = 100
BODY = b"x" * 128
# maximum ratio of the cost of the last tenth of the queues to the first tenth that counts as flat
FLAT = 1.5
SCRAPES = 5
LONGEST_STALL = 0.050
# seconds between two pings: frequent enough to see a stall, with little cost for the broker
PING_EVERY = 0.001


class NotRead(Exception):
    """The counters could not be read; the text says why."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One message to each queue: microseconds per queue for all queues, for the first tenth and for the last tenth."""

    mean: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """One GET of /metrics: seconds, bytes, processor seconds of the broker (including the few pings), and the longest
    time from a SEND to its RECEIPT meanwhile, in seconds."""

    seconds: float
    size: int
    cpu: float
    stall: float


def write_each(client: Client, count: int) -> Pass:
    """Send one message with a receipt to each of ``count`` queues."""
    answered = [time.perf_counter()]
    for number in range(count + WINDOW):
        if number < count:
            client.send(f"/queue/many.{number}", BODY, receipt=number)
        if number >= WINDOW:
            client.expect("RECEIPT")
            answered.append(time.perf_counter())
    tenth = max(count // 10, 1)

    def micros(start: int, end: int) -> float:
        return 1e6 * (answered[end] - answered[start]) / (end - start)

    return Pass(micros(0, count), micros(0, tenth), micros(count - tenth, count))


def longest_round_trip(client: Client, seconds: float) -> float:
    """Send and wait for receipts for ``seconds``. Returns the longest round trip in seconds."""
    until = time.perf_counter() + seconds
    longest = 0.0
    while time.perf_counter() < until:
        longest = max(longest, client.round_trip("/queue/many.ping"))
        time.sleep(PING_EVERY)
    return longest


def _get(url: str, answer: Connection) -> None:
    started = time.perf_counter()
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            size = len(response.read())
    except OSError as error:
        answer.send(f"{url}: {error}")
    else:
        answer.send((time.perf_counter() - started, size))


def scrape(broker: Stompring, client: Client) -> Scrape:
    """Read /metrics in another process while ``client`` pings."""
    here, there = multiprocessing.Pipe()
    reader = multiprocessing.get_context("spawn").Process(
        target=_get, args=(f"http://127.0.0.1:{broker.http_port}/metrics", there)
    )
    stall = 0.0
    reader.start()
    there.close()
    cpu = broker.cpu_seconds()
    while not here.poll():
        stall = max(stall, client.round_trip("/queue/many.ping"))
        time.sleep(PING_EVERY)
    cpu = broker.cpu_seconds() - cpu
    answer = here.recv()
    reader.join()
    if isinstance(answer, str):
        raise NotRead(answer)
    seconds, size = answer
    return Scrape(seconds, size, cpu, stall)


def _scrape_report(broker: Stompring, client: Client, count: int) -> None:
    quiet = longest_round_trip(client, 2)
    found = [scrape(broker, client) for _ in range(SCRAPES)]
    seconds = sorted(one.seconds for one in found)[SCRAPES // 2]
    stall, cpu = max(one.stall for one in found), min(one.cpu for one in found)
    click.echo(
        f"/metrics with {count:,} queues: {seconds:.2f} s (median of {SCRAPES}), "
        f"{found[0].size / 1e6:.1f} MB, {cpu:.2f} s of processor time; "
        f"longest SEND to RECEIPT {1000 * stall:.1f} ms meanwhile, {1000 * quiet:.1f} ms without"
    )
    if count == 10_000:
        reached = stall < LONGEST_STALL and cpu <= 1
        click.echo(f"target scrape within 1 s, no stall over 50 ms: {'reached' if reached else 'MISSED'}")


def measure(broker: Broker, count: int) -> list[str]:
    """Measure a broker without queues. Returns a row of the table."""
    client = Client(broker, port=broker.latency_port)
    client.connect()
    client.expect("CONNECTED")
    before = broker.rss()
    created, written = write_each(client, count), write_each(client, count)
    each = (broker.rss() - before) / count
    if isinstance(broker, Stompring):
        try:
            _scrape_report(broker, client, count)
        except NotRead as error:
            click.echo(f"counters not measured: {error}")
    client.close()
    flat = created.last <= FLAT * created.first and written.last <= FLAT * written.first
    return [
        broker.name,
        f"{count:,}",
        *(
            f"{value:,.0f}"
            for value in (
                created.mean,
                created.first,
                created.last,
                written.mean,
                written.first,
                written.last,
            )
        ),
        f"{each / 1000:.1f}",
        "flat" if flat else "GROWS",
    ]


@click.command()
@click.option("--brokers", default="stompring", show_default=True, help="Comma-separated.")
@click.option("--sizes", default="1000,3000,10000", show_default=True, help="Numbers of queues.")
def main(brokers: str, sizes: str) -> None:
    """Create queues by sending to them, write to each again, and read /metrics while a client pings."""
    try:
        counts = [int(size) for size in sizes.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--sizes") from error
    rows = [
        measure(broker, count)
        for name in names_of(brokers)
        for count in counts
        for broker in each_broker(name)
    ]
    head = [
        "broker",
        "queues",
        "create µs",
        "first tenth",
        "last tenth",
        "write µs",
        "first tenth",
        "last tenth",
        "kB each",
        "verdict",
    ]
    click.echo("\n" + markdown(head, rows))


if __name__ == "__main__":
    main()
