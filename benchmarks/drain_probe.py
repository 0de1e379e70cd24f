"""Latency of a pair of connections while another client drains a long queue as fast as it can.

    python -m benchmarks.drain_probe [--rounds 3] [--messages 500000] [--ack auto] [--memory 64MB]

In each round the benchmark fills a queue, subscribes a consumer that does not read yet, and starts a probe (one
producer, one consumer, `--rate` messages per second) on another queue. Then the consumer reads, and the probe measures
latencies until the queue is empty. The probe without a drain is the baseline of the machine. `--memory` sets
``global-max-size``, so that most of the queue is in pages.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import click

from benchmarks import load
from benchmarks.brokers import BrokerDied, Stompring
from benchmarks.brokers.stompring import ROOT
from benchmarks.results import markdown
from benchmarks.targets import verdict

TARGET_P99_MS = 2.0
PILE, PROBE = "/queue/pile", "/queue/probe"
ALONE_SECONDS = 2.0
PULSE = "0.05"
LATENCIES = ("p50_us", "p99_us", "p999_us", "max_us")


def probe_options(rate: int) -> list[str]:
    """Return the options of stompload for the probe."""
    return ["-L", str(rate), "-d", PROBE, "-T", "60"]


def alone(broker: Stompring, rate: int) -> dict[str, float]:
    """Run the probe without a drain."""
    return load.run(broker, *probe_options(rate), "-S", str(ALONE_SECONDS))


def one_round(
    broker: Stompring, messages: int, ack: str, rate: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the numbers of the probe and of the drain."""
    load.run(broker, "-m", "produce", "-n", str(messages), "-d", PILE, "-r", "1000", "-R", "10")
    options = ["-m", "consume", "-k", "1", "-n", str(messages), "-d", PILE, "-a", ack, "-T", "60"]
    with load.Running(broker, *options) as drain:
        next(drain.lines())  # the consumer has subscribed
        with load.Running(broker, *probe_options(rate), "-S", "600", "-I", PULSE) as probe:
            next(probe.lines())  # the probe runs
            drain.release()
            for _ in drain.lines():
                pass
            probe.interrupt()
            noticed = probe.finish()
        drained = drain.finish()
    return noticed, drained


def report(found: list[tuple[str, dict[str, float], float | None]]) -> str:
    """Format the target and the table. ``found``: name, numbers of the probe and rate of the drain of each run."""
    rows = []
    for name in dict.fromkeys(each[0] for each in found):
        runs = [each for each in found if each[0] == name]
        middle = [statistics.median(numbers[key] for _, numbers, _ in runs) for key in LATENCIES]
        rates = [rate for *_, rate in runs if rate is not None]
        drained = f"{statistics.median(rates):,.0f}" if rates else ""
        rows.append([name, *(f"{value / 1000:.2f}" for value in middle), drained])
    p99 = statistics.median(numbers["p99_us"] for name, numbers, _ in found if name != "alone") / 1000
    line = (
        f"target p99 beside the drain at most {TARGET_P99_MS} ms: {verdict(p99, TARGET_P99_MS, below=True)}"
    )
    head = ["probe, ms", "p50", "p99", "p99.9", "max", "drained /s"]
    return f"{line}\n\n{markdown(head, rows)}"


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option(
    "--messages", default=500_000, show_default=True, type=click.IntRange(1000), help="In the queue."
)
@click.option(
    "--ack", default="auto", show_default=True, type=click.Choice(["auto", "client", "client-individual"])
)
@click.option(
    "--rate", default=1000, show_default=True, type=click.IntRange(1), help="Of the probe, a second."
)
@click.option("--memory", help="global-max-size, to have the queue in pages.")
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Trees to compare; by default this one. Each has a broker of its own, one runs at a time.",
)
def main(
    rounds: int, messages: int, ack: str, rate: int, memory: str | None, roots: tuple[Path, ...]
) -> None:
    """Measure a probe while a consumer drains a long queue."""
    settings = {"global-max-size": memory} if memory else {}
    found: list[tuple[str, dict[str, float], float | None]] = []
    try:
        for number in range(1, rounds + 1):
            for root in roots or (ROOT,):
                with Stompring(settings=settings, root=root) as broker:
                    label = f"{root.name}: " if len(roots) > 1 else ""
                    found.append(("alone", alone(broker, rate), None))
                    noticed, drained = one_round(broker, messages, ack, rate)
                    found.append((f"{label}drain", noticed, drained["msgs_per_s"]))
                    click.echo(
                        f"round {number} {label}p99 {noticed['p99_us'] / 1000:.2f} ms, "
                        f"drained {drained['msgs_per_s']:,.0f} /s"
                    )
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + report(found))
    sys.exit(0)


if __name__ == "__main__":
    main()
