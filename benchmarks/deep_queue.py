"""Millions of messages into one queue without a consumer, then out again through one consumer.

    python -m benchmarks.deep_queue [--messages 10000000] [--memory 64MB] [--durable]
                                    [--brokers a,b] [--peer-messages 1000000]

The output has the rate of every step of messages, the broker's memory and disk usage, and whether all messages arrived
once and in order: stompload compares the numbers in the bodies.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

import click

from benchmarks import disk, load
from benchmarks.brokers import BROKERS, Broker, BrokerDied, Stompring
from benchmarks.choice import names_of
from benchmarks.results import markdown
from benchmarks.targets import OURS, verdict

DESTINATION = "/queue/deep"
# few enough to avoid waiting for receipts, frequent enough to know that the messages have arrived
RECEIPT_EVERY = 500
TARGET_IN, TARGET_OUT = 200_000, 150_000
TARGET_BYTES = 160_000_000
# target: rate of the slowest step as a fraction of the first
TARGET_FLAT = 0.8
# maximum seconds for the deletion of files
GONE_SECONDS = 30.0
# maximum bytes of the remaining files: the newest segment, directories
LEFT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Step:
    """Messages per second since the step before, and bytes of memory and of disk at the end of this step."""

    done: int
    rate: float
    memory: int
    disk: int


@dataclass(slots=True)
class Passage:
    """The results of one direction: all messages in, or all out."""

    numbers: dict[str, float] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    peak: int = 0

    @property
    def flatness(self) -> float:
        """The rate of the slowest complete step as a fraction of the rate of the first."""
        return min(step.rate for step in self.steps) / self.steps[0].rate if self.steps else 1.0


def passage(broker: Broker, title: str, step: int, *options: str) -> Passage:
    """Run stompload, and measure the broker after every ``step`` messages."""
    found = Passage()
    broker.reset_peak()
    done, seconds = 0.0, 0.0
    with load.Running(broker, "-C", "1", "-i", str(step), "-d", DESTINATION, "-T", "60", *options) as running:
        for told in running.lines():
            rate = (told["done"] - done) / (told["seconds"] - seconds)
            done, seconds = told["done"], told["seconds"]
            found.steps.append(Step(int(done), rate, broker.rss(), disk.used(broker.directory)))
            click.echo(_line(title, found.steps[-1]))
        found.numbers = running.finish()
    found.peak = broker.peak_rss()
    return found


def _line(title: str, step: Step) -> str:
    return (
        f"  {title} {step.done:>12,}  {step.rate:>9,.0f} /s  memory {step.memory / 1e6:>6,.0f} MB"
        f"  disk {step.disk / 1e6:>7,.0f} MB"
    )


def leftover(broker: Broker) -> tuple[int, int]:
    """Wait until the page files are deleted, at most `GONE_SECONDS`. Returns bytes on disk and number of page files."""
    deadline = time.monotonic() + GONE_SECONDS
    while True:
        pages = len(disk.files(broker.data / "paging", "*.page")) if isinstance(broker, Stompring) else 0
        left = disk.used(broker.directory)
        if (pages == 0 and left <= LEFT_BYTES) or time.monotonic() > deadline:
            return left, pages
        time.sleep(0.2)


def faults(messages: int, filled: Passage, drained: Passage) -> list[str]:
    """Describe the differences between the sent and the received messages."""
    wanted = {"sent": (filled, messages), "received": (drained, messages), "distinct": (drained, messages)}
    wanted |= {"repeated": (drained, 0), "disordered": (drained, 0)}
    return [
        f"{name} is {of.numbers[name]:,.0f} and not {value:,}"
        for name, (of, value) in wanted.items()
        if of.numbers[name] != value
    ]


def measure(broker: Broker, messages: int, durable: bool) -> tuple[list[str], list[str]]:
    """Measure a broker, and print the verdicts. Returns a row of the table, and the faults."""
    step = max(messages // 10, 1)
    size = ["-n", str(messages), "-s", "128"]
    send = ["-m", "produce", "-r", str(RECEIPT_EVERY), "-R", "20", "-D", str(int(durable))]
    filled = passage(broker, "in ", step, *size, *send)
    full = disk.used(broker.directory)
    drained = passage(broker, "out", step, *size, "-m", "consume")
    left, pages = leftover(broker)
    wrong = faults(messages, filled, drained)
    if pages:
        wrong.append(f"{pages} page files are left")
    rates = [one.numbers["msgs_per_s"] for one in (filled, drained)]
    peak = max(filled.peak, drained.peak)
    if broker.name == OURS:
        _targets(rates, [filled.flatness, drained.flatness], peak, left)
    cpu = [1e6 * one.numbers["broker_cpu_s"] / messages for one in (filled, drained)]
    columns = [f"{messages:,}", f"{rates[0]:,.0f}", f"{filled.flatness:.2f}", f"{cpu[0]:.1f}"]
    columns += [f"{rates[1]:,.0f}", f"{drained.flatness:.2f}", f"{cpu[1]:.1f}"]
    columns += [f"{peak / 1e6:,.0f}", f"{full / 1e6:,.0f}", f"{left / 1e6:,.1f}"]
    return [broker.name, *columns, "; ".join(wrong) or "all once, in order"], wrong


def _targets(rates: list[float], flat: list[float], peak: int, left: int) -> None:
    for title, target, rate, even in zip(("in", "out"), (TARGET_IN, TARGET_OUT), rates, flat, strict=True):
        click.echo(f"target {title} at {target:,}/s or more: {verdict(rate, target)}")
        what = f"target {title} flat, slowest step at least {TARGET_FLAT} of the first"
        click.echo(f"{what}: {verdict(even, TARGET_FLAT)}")
    for what, found, most in (("memory", peak, TARGET_BYTES), ("files gone, left", left, LEFT_BYTES)):
        click.echo(f"target {what} below {most / 1e6:.0f} MB: {verdict(found / 1e6, most / 1e6, True)}")


def _fresh(name: str, memory: str) -> Broker:
    return Stompring(settings={"global-max-size": memory}) if name == OURS else BROKERS[name]()


HEAD = ["broker", "messages", "in /s", "flat", "µs each", "out /s", "flat", "µs each", "peak MB", "disk MB"]


@click.command()
@click.option("--messages", default=10_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--memory", default="64MB", show_default=True, help="global-max-size of stompring.")
@click.option("--durable", is_flag=True, help="persistent:true on every message.")
@click.option("--brokers", default=OURS, show_default=True, help="Comma-separated.")
@click.option("--peer-messages", default=1_000_000, show_default=True, type=click.IntRange(1000))
def main(messages: int, memory: str, durable: bool, brokers: str, peer_messages: int) -> None:
    """Fill one queue with messages of 128 bytes without a consumer, then drain it with one consumer.

    `flat` is the rate of the slowest tenth of the messages as a fraction of the rate of the first tenth. The broker
    writes to the directory for temporary files: TMPDIR selects the disk.
    """
    rows, wrong = [], []
    for name in names_of(brokers):
        if reason := BROKERS[name].missing():
            click.echo(f"{name}: skipped, {reason}")
            continue
        try:
            with _fresh(name, memory) as broker:
                click.echo(f"{name}, on {disk.file_system(broker.directory)}")
                row, faulty = measure(broker, messages if name == OURS else peer_messages, durable)
        except (BrokerDied, load.LoadFailed) as failure:
            click.echo(f"{name} FAILED: {failure}")
            wrong.append(str(failure))
            continue
        rows.append(row)
        wrong += faulty if name == OURS else []
    if rows:
        click.echo("\n" + markdown([*HEAD, "left MB", "received"], rows))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
