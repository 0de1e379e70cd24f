"""Cost of a message that must be on disk before its RECEIPT.

python -m benchmarks.durable_receipts [--brokers a,b] [--rounds 3] [--seconds 5] [--only many|one]

`many` is the cases `durable-receipts` and `durable-held` of `make bench`: 8 producers with 50 receipts outstanding
each. `one` compares a single producer that waits for each RECEIPT with the disk's own time for the same writes.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import click

from benchmarks import disk, load
from benchmarks.brokers import Broker, BrokerDied
from benchmarks.cases import CASES
from benchmarks.choice import each_broker, names_of
from benchmarks.results import markdown
from benchmarks.targets import OURS, TARGETS, verdict
from benchmarks.whole_broker import measure

MANY = ("durable-receipts", "durable-held")
# target: multiple of the disk's own time
NEAR = 1.6
ONE = ("-m", "produce", "-r", "1", "-R", "1")
WARM_RUNS = 2


def _micros(broker: Broker, seconds: float, name: str, *options: str) -> float:
    numbers = load.run(broker, *ONE, *options, "-S", f"{seconds:g}", "-d", f"/queue/bench.{name}")
    return 1e6 * numbers["seconds"] / numbers["receipts"]


def one(broker: Broker, rounds: int, seconds: float) -> list[float]:
    """Measure microseconds per message, medians over rounds: the disk alone, not durable, durable; and two ratios.

    The ratios are durable / disk, and (durable - not durable) / disk, the store's share of a round trip.
    """
    for number in range(WARM_RUNS):
        _micros(broker, max(broker.warm_seconds, 1), f"warm.{number}", "-D", "1")
    rows = []
    for number in range(rounds):
        before = disk.sync_time(broker.directory, seconds / 2)
        memory = _micros(broker, seconds, f"memory.{number}", "-D", "0")
        durable = _micros(broker, seconds, f"durable.{number}", "-D", "1")
        after = disk.sync_time(broker.directory, seconds / 2)
        alone = 1e6 * (before.mean + after.mean) / 2
        rows.append([alone, memory, durable, durable / alone, (durable - memory) / alone])
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def _many(brokers: str | None, rounds: int, seconds: float) -> bool:
    results = measure(names_of(brokers), [CASES[name] for name in MANY], rounds, seconds)
    click.echo("\n" + results.tables(OURS))
    for target in TARGETS:
        if target.case in MANY:
            click.echo(f"target {target}: {target.verdict(results)}")
    return not results.failures()


def _one(brokers: str | None, rounds: int, seconds: float) -> None:
    rows = []
    for broker in each_broker(brokers):
        found = one(broker, rounds, seconds)
        rows.append(
            [broker.name, *(f"{value:,.0f}" for value in found[:3]), *(f"{v:.2f}" for v in found[3:])]
        )
        where = disk.file_system(broker.directory)
        if broker.name == OURS:
            click.echo(
                f"target durable within {NEAR} times of the disk: {verdict(found[3], NEAR, below=True)}"
            )
    head = ["µs a message", "disk alone", "not durable", "durable", "durable / disk", "what is added / disk"]
    click.echo("\n" + markdown(head, rows))
    if rows:
        click.echo(f"written to {where}")


@click.command()
@click.option("--brokers", help="Comma-separated; by default all that are installed.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--only", type=click.Choice(["many", "one"]), help="Only this part.")
def main(brokers: str | None, rounds: int, seconds: float, only: str | None) -> None:
    """Measure durable messages with receipts: many outstanding ones on all brokers, and one compared with the disk.

    The brokers write to the directory for temporary files: TMPDIR selects the disk.
    """
    where = Path(tempfile.gettempdir())
    if disk.file_system(where).startswith(("tmpfs", "ramfs")):
        raise click.ClickException(f"{where} is in memory, where syncing costs nothing; set TMPDIR")
    valid = True
    try:
        if only != "one":
            valid = _many(brokers, rounds, seconds)
        if only != "many":
            _one(brokers, rounds, seconds)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    sys.exit(0 if valid else 1)


if __name__ == "__main__":
    main()
