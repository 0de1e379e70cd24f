"""Latency caused by the garbage collector with many messages in the broker.

    python -m benchmarks.gc_pauses [--settings default,tuned] [--messages 500000] [--seconds 10]

Each setting runs on a new broker with this value in the environment variable `STOMPRING_GC` (`default`: Python's own
settings; any other value: the broker's). There are three phases: a queue grows at a fixed rate, stays full, and is
consumed. In each phase another pair of connections exchanges 1,000 messages per second over another queue. The output
has percentiles of their latency.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import click

from benchmarks import load
from benchmarks.brokers import Broker
from benchmarks.choice import each_broker
from benchmarks.results import LATENCIES, markdown

PILE = "/queue/pile"


def beside(broker: Broker, options: Sequence[str], probe: Sequence[str]) -> dict[str, float]:
    """Run the probe while a second stompload with ``options`` loads the broker. Returns the probe's numbers."""
    with subprocess.Popen(
        load.command(broker, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as loader:
        measured = load.run(broker, *probe)
        out, err = loader.communicate()
    load.result_of(loader.returncode, out.splitlines()[-1] if out else "", err)
    return measured


def phases(
    broker: Broker, messages: int, fill_rate: int, seconds: float
) -> list[tuple[str, dict[str, float]]]:
    """Run the three phases. Returns the probe's numbers of each."""

    def probe(length: float) -> list[str]:
        return ["-L", "1000", "-S", f"{length:g}", "-d", "/queue/probe"]

    fill = ["-m", "produce", "-n", str(messages), "-L", str(fill_rate), "-d", PILE]
    drain = ["-m", "consume", "-n", str(messages), "-d", PILE]
    load.run(broker, *probe(1))
    return [
        ("growing", beside(broker, fill, probe(messages / fill_rate))),
        ("resting", load.run(broker, *probe(seconds))),
        ("draining", beside(broker, drain, probe(seconds))),
    ]


@click.command()
@click.option("--settings", default="default,tuned", show_default=True, help="Values of STOMPRING_GC.")
@click.option("--broker", default="stompring", show_default=True, help="A peer ignores the settings.")
@click.option("--messages", default=500_000, show_default=True, type=click.IntRange(1))
@click.option("--fill-rate", default=20_000, show_default=True, type=click.IntRange(1), help="Messages/s.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(1), help="Later phases.")
def main(settings: str, broker: str, messages: int, fill_rate: int, seconds: float) -> None:
    """Print latency percentiles and memory for each setting of the garbage collector."""
    rows = []
    for setting in settings.split(","):
        for started in each_broker(broker, {"STOMPRING_GC": setting}):
            try:
                measured = phases(started, messages, fill_rate, seconds)
            except load.LoadFailed as failure:
                raise click.ClickException(f"{setting}: {failure}\n{started.tail()}") from failure
            rows += [
                [
                    setting,
                    phase,
                    *(f"{numbers[name]:,.0f}" for name in LATENCIES),
                    f"{numbers['broker_rss'] / 1e6:,.0f}",
                ]
                for phase, numbers in measured
            ]
    head = ["STOMPRING_GC", "pile", "p50 µs", "p99 µs", "p99.9 µs", "max µs", "RSS MB"]
    click.echo("\n" + markdown(head, rows))


if __name__ == "__main__":
    main()
