"""Duration of the start of a broker with many stored messages.

    python -m benchmarks.restart [--in-memory 1000000] [--paged 10000000] [--how kill|stop] [--rounds 3] [--warm]
                                 [--kinds plain,ring,last-value,non-destructive]

There are two stores: durable messages that fit into memory, and durable messages in pages. For each the benchmark fills
a broker, ends it, and starts it again. It measures the time from the start of the process until /health/ready reports
a ready broker. Before the start it drops the files from the system's cache (not with --warm). At the end it drains all
messages and compares them. `--kinds` selects the kinds of the queue whose messages fit into memory.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import click

from benchmarks import disk, load, management
from benchmarks.brokers import BrokerDied, Stompring
from benchmarks.results import markdown
from benchmarks.targets import verdict
from benchmarks.variants import compiled

QUEUE = "restart.0"
PREFIX = "/queue/restart"
#: Targets in seconds for a million messages in memory, and for any number in pages.
TARGET_IN_MEMORY, TARGET_PAGED = 2.0, 10.0
# time limit of a start in seconds
READY_SECONDS = 600.0
PLENTY, LITTLE = "8GB", "64MB"


#: The address settings of each kind of queue. A ring is full. Each message in a last-value queue has another key.
KINDS: dict[str, dict[str, str]] = {
    "plain": {},
    "ring": {"default-ring-size": "1000000"},
    "last-value": {"default-last-value-key": "code"},
    "non-destructive": {"default-non-destructive": "true"},
}


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds until the broker is ready; processor seconds, resident bytes and their maximum until then."""

    seconds: float
    cpu: float
    memory: int
    peak: int


def start(broker: Stompring) -> Start:
    """Start an ended broker again, and measure."""
    begun = time.perf_counter()
    broker.launch()
    management.wait_ready(broker, READY_SECONDS)
    seconds = time.perf_counter() - begun
    return Start(seconds, broker.cpu_seconds(), broker.rss(), broker.peak_rss())


def fill(broker: Stompring, messages: int, kind: str = "plain") -> float:
    """Send durable messages, and wait until all are on disk. Returns messages per second."""
    options = ["-m", "produce", "-D", "1", "-C", "1", "-r", "500", "-R", "20", "-T", "60"]
    if kind == "last-value":
        options += ["-X", "code"]
    return load.run(broker, *options, "-n", str(messages), "-d", PREFIX)["msgs_per_s"]


def restarts(broker: Stompring, how: str, rounds: int, warm: bool) -> list[Start]:
    """End and start the broker ``rounds`` times."""
    found = []
    for _ in range(rounds):
        if how == "kill":
            broker.kill()
        else:
            broker.end()
        if not warm:
            disk.forget(broker.data)
        found.append(start(broker))
        click.echo(f"  ready after {found[-1].seconds:.2f} s, {found[-1].memory / 1e6:,.0f} MB")
    return found


def compare(broker: Stompring, messages: int) -> list[str]:
    """Drain the queue, and describe missing, repeated and disordered messages."""
    count = management.queue(broker, QUEUE)["messageCount"]
    wrong = [] if count == messages else [f"messageCount is {count:,} and not {messages:,}"]
    drained = load.run(broker, "-m", "consume", "-C", "1", "-n", str(count), "-d", PREFIX, "-T", "60")
    for name, value in (("distinct", messages), ("repeated", 0), ("disordered", 0)):
        if drained[name] != value:
            wrong.append(f"{name} is {drained[name]:,} and not {value:,}")
    return wrong


def measure(
    title: str, messages: int, memory: str, how: str, rounds: int, warm: bool, kind: str = "plain"
) -> tuple[list[str], list[str]]:
    """Measure one store. Returns a row of the table, and the faults."""
    with Stompring(settings={"global-max-size": memory}, addresses=KINDS[kind], code=compiled()) as broker:
        click.echo(f"{messages:,} {title}, on {disk.file_system(broker.directory)}")
        if messages:
            click.echo(f"  filled at {fill(broker, messages, kind):,.0f} /s")
            paged = management.queue(broker, QUEUE)["pagedCount"]
            click.echo(f"  in pages: {paged:,}")
        taken = disk.used(broker.data)
        found = restarts(broker, how, rounds, warm)
        wrong = compare(broker, messages) if messages else []
    if messages and bool(paged) != (memory == LITTLE):
        wrong.append(f"{paged:,} of {messages:,} were in pages")
    seconds = [one.seconds for one in found]
    if messages:
        target = TARGET_PAGED if memory == LITTLE else TARGET_IN_MEMORY
        found_or_not = verdict(statistics.median(seconds), target, below=True)
        click.echo(f"target {title} serving within {target:g} s: {found_or_not}")
    columns = [f"{messages:,}", f"{taken / 1e6:,.0f}"]
    columns += [f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}"]
    columns.append(f"{statistics.median(one.cpu for one in found):.2f}")
    columns += [f"{found[-1].memory / 1e6:,.0f}", f"{max(one.peak for one in found) / 1e6:,.0f}"]
    return [title, *columns, "; ".join(wrong) or "all once, in order"], wrong


HEAD = ["store", "messages", "disk MB", "seconds", "longest", "processor s", "MB", "peak MB", "drained"]


@click.command()
@click.option(
    "--in-memory", default=1_000_000, show_default=True, type=click.IntRange(0), help="0: leave out."
)
@click.option("--paged", default=10_000_000, show_default=True, type=click.IntRange(0), help="0: leave out.")
@click.option(
    "--how", default="kill", show_default=True, type=click.Choice(["kill", "stop"]), help="The end."
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--warm", is_flag=True, help="Let the system keep what it remembers of the files.")
@click.option("--kinds", default=",".join(KINDS), show_default=True, help="Comma-separated kinds of queues.")
def main(in_memory: int, paged: int, how: str, rounds: int, warm: bool, kinds: str) -> None:
    """Measure seconds from the start of the process to /health/ready, with durable messages in memory and in pages."""
    rows, wrong = [], []
    if unknown := set(kinds.split(",")).difference(KINDS):
        raise click.BadParameter(f"unknown kinds: {', '.join(sorted(unknown))}", param_hint="--kinds")
    stores = [("nothing stored", 0, PLENTY, "plain")]
    stores += [(f"durable, in memory, {kind}", in_memory, PLENTY, kind) for kind in kinds.split(",")]
    stores.append(("durable, in pages", paged, LITTLE, "plain"))
    try:
        for title, messages, memory, kind in stores:
            if messages or title == "nothing stored":
                row, faulty = measure(title, messages, memory, how, rounds, warm, kind)
                rows.append(row)
                wrong += faulty
    except (BrokerDied, load.LoadFailed, management.NotTold) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + markdown(HEAD, rows))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
