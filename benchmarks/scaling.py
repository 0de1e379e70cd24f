"""Rate and cost for growing numbers of connections, queues, subscribers and bytes per body; stompring and its peers.

    python -m benchmarks.scaling [--minutes 10] [--rounds 1] [--only AXIS …] [--brokers a,b] [--seconds S]
                                 [--json FILE] [--publish]

--publish writes benchmarks/results/scaling.json, and the plots of docs/dev/performance.md from it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks import load
from benchmarks.brokers import BROKERS, FLOORS, Broker, BrokerDied
from benchmarks.choice import names_of
from benchmarks.results import Results, Run, markdown
from benchmarks.targets import OURS
from benchmarks.variants import VARIANTS, compiled
from benchmarks.whole_broker import start_all

# maximum lead of producers over consumers: messages or deliveries, and bytes
AHEAD, AHEAD_BYTES = 20_000, 64_000_000
# time limit in seconds for connecting and subscribing: points above it are left out
READY_SECONDS = 40.0
RUN_OVERHEAD = 0.7
WARM_SECONDS = 2.0
STARTS = 45.0
# seconds for the largest points, 1,000 connections and 10,000 queues, of all brokers together
READY_ALLOWANCE = 110.0


@dataclass(frozen=True, slots=True)
class Axis:
    """Points of one kind of work, and the options of stompload at each."""

    name: str
    title: str
    label: str
    points: tuple[int, ...]
    options: Callable[[int], list[str]]
    topic: bool = False
    # the rate is of bytes in bodies
    in_bytes: bool = False

    @property
    def rate_label(self) -> str:
        """The unit of the rate."""
        return (
            "MB/s in bodies" if self.in_bytes else f"{'deliveries' if self.topic else 'messages'} per second"
        )

    def rate(self, point: int, numbers: dict[str, float]) -> float:
        """Return the figure for a plot."""
        return numbers["msgs_per_s"] * (point / 1e6 if self.in_bytes else 1)


def _ahead(most: int) -> list[str]:
    return ["-W", str(max(most, 4))]


def _connections(point: int) -> list[str]:
    half = str(point // 2)
    return ["-p", half, "-c", half, "-q", half, *_ahead(AHEAD)]


AXES = {
    axis.name: axis
    for axis in (
        Axis(
            "connections",
            "Connections: half produce, half consume, a queue for each pair",
            "connections",
            (2, 10, 30, 100, 300, 1000),
            _connections,
        ),
        Axis(
            "bodies",
            "Size of bodies: 1 producer, 1 consumer",
            "bytes in a body",
            (100, 1000, 10_000, 100_000, 1_000_000),
            lambda point: ["-s", str(point), *_ahead(min(AHEAD, AHEAD_BYTES // point))],
            in_bytes=True,
        ),
        Axis(
            "subscribers",
            "Subscribers of a topic: 1 producer",
            "subscribers",
            (1, 3, 10, 30, 100, 300, 1000),
            lambda point: ["-t", "1", "-c", str(point), *_ahead(AHEAD // point)],
            topic=True,
        ),
        Axis(
            "queues",
            "Queues: 1 producer sends to all in turn, 1 consumer subscribes to all",
            "queues",
            (1, 10, 100, 1000, 10_000, 100_000),
            lambda point: ["-Q", str(point), "-O", f"{READY_SECONDS:g}", *_ahead(AHEAD)],
        ),
    )
}


def case_name(axis: Axis, point: int) -> str:
    """Return the name of a point in `Run.case`."""
    return f"{axis.name}:{point}"


def obstacle(results: Results, axis: Axis, point: int, broker: str) -> str | None:
    """Return why a point is left out: a smaller one has failed, or connecting would take too long. None: it is not."""
    smaller = [other for other in axis.points if other < point]
    for other in smaller:
        for run in results.runs:
            if (run.case, run.broker) != (case_name(axis, other), broker):
                continue
            if run.failure is not None:
                return f"left out: {other:,} {axis.label} had failed"
            expected = run.numbers["ready_seconds"] * point / other
            if other == smaller[-1] and other >= 100 and expected > 1.25 * READY_SECONDS:
                return f"left out: subscribing would take about {expected:,.0f} s"
    return None


def _run(axis: Axis, point: int, broker: Broker, seconds: float, tag: str) -> dict[str, float]:
    prefix = "/topic/" if axis.topic else "/queue/"
    destination = f"{prefix}scale.{axis.name}.{point}.{tag}"
    return load.run(broker, *axis.options(point), "-S", f"{seconds:g}", "-T", "30", "-d", destination)


def measure_point(
    results: Results, axis: Axis, point: int, label: str, broker: Broker, seconds: float, number: int
) -> Run:
    """Measure one point on one broker. The first point of an axis has a warm-up."""
    case = case_name(axis, point)
    if (reason := obstacle(results, axis, point, label)) is not None:
        return Run(case, label, number, failure=reason)
    broker.resume()
    try:
        if number == 1 and point == axis.points[0]:
            _run(axis, point, broker, min(broker.warm_seconds, WARM_SECONDS), "warm")
        return Run(case, label, number, _run(axis, point, broker, seconds, str(number)))
    except load.LoadFailed as failure:
        return Run(case, label, number, failure=str(failure))
    finally:
        broker.pause()


def table(results: Results, axis: Axis) -> str:
    """Return rates by point and broker as Markdown."""
    brokers = [name for name in results.versions if name in results.brokers()]
    rows = []
    for point in axis.points:
        case = case_name(axis, point)
        rates = [results.median(case, broker, "msgs_per_s") for broker in brokers]
        rows.append(
            [
                f"{point:,}",
                *("" if rate is None else _figure(axis.rate(point, {"msgs_per_s": rate})) for rate in rates),
            ]
        )
    return markdown([axis.label, *brokers], rows)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:,.1f}"


def estimate(labels: Sequence[str], axes: Sequence[Axis], rounds: int) -> tuple[int, float]:
    """Return the number of runs, and the seconds of everything besides the runs."""
    runs = len(labels) * sum(len(axis.points) for axis in axes) * rounds
    fixed = STARTS + len(labels) * len(axes) * (WARM_SECONDS + RUN_OVERHEAD) + runs * RUN_OVERHEAD
    return runs, fixed + (
        READY_ALLOWANCE * rounds if {"queues", "connections"} & {a.name for a in axes} else 0
    )


@click.command()
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--only", multiple=True, type=click.Choice(list(AXES)), help="Only this axis; repeatable.")
@click.option("--brokers", help="Comma-separated; by default all that are installed, and nats-server.")
@click.option("--minutes", default=10.0, show_default=True, type=click.FloatRange(0.5), help="All in all.")
@click.option("--seconds", type=click.FloatRange(0.1), help="Per run, whatever --minutes says.")
@click.option("--most", type=click.IntRange(1), help="Leave out points above this.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write runs here.")
@click.option("--publish", is_flag=True, help="Write benchmarks/results/scaling.json and the plots.")
def main(
    rounds: int,
    only: tuple[str, ...],
    brokers: str | None,
    minutes: float,
    seconds: float | None,
    most: int | None,
    json_file: Path | None,
    publish: bool,
) -> None:
    """Measure rate and processor time for growing numbers of connections, bytes per body, subscribers and queues."""
    axes = [axis for axis in AXES.values() if not only or axis.name in only]
    names = [name for name in names_of(brokers, floors=True) if name != "relay"]
    makers = {name: VARIANTS[OURS] if name == OURS else (BROKERS | FLOORS)[name] for name in names}
    runs, fixed = estimate(names, axes, rounds)
    length = max((60 * minutes - fixed) / runs, 0.5) if seconds is None else seconds
    click.echo(
        f"{runs} runs of {length:.2f} s, all else {fixed:.0f} s: at most {(fixed + runs * length) / 60:.1f} minutes"
    )
    results = Results()
    if OURS in names:
        compiled()
    begun = time.monotonic()
    results.setup = {"rounds": rounds, "seconds": round(length, 2)}
    try:
        with ExitStack() as stack:
            started = start_all(makers, stack, results)
            for number in range(1, rounds + 1):
                for axis in axes:
                    click.echo(f"round {number} of {rounds}: {axis.title}")
                    for point in axis.points:
                        if most is not None and point > most:
                            continue
                        for label, broker in started.items():
                            if seconds is None and time.monotonic() - begun > 60 * minutes:
                                run = Run(
                                    case_name(axis, point), label, number, failure="left out: no time left"
                                )
                            else:
                                run = measure_point(results, axis, point, label, broker, length, number)
                            results.runs.append(run)
                            click.echo(_line(axis, point, run))
    except BrokerDied as failure:
        raise click.ClickException(str(failure)) from failure
    results.setup["took_seconds"] = round(time.monotonic() - begun)
    for axis in axes:
        click.echo(f"\n{axis.title}, {axis.rate_label}\n\n{table(results, axis)}")
    click.echo(f"took {results.setup['took_seconds'] / 60:.1f} minutes")
    if json_file is not None:
        results.save(json_file)
        click.echo(f"written: {json_file}")
    if publish:
        from benchmarks import document

        results.save(document.SCALING)
        for path in document.write():
            click.echo(f"written: {path}")
    failed = [run for run in results.failures() if run.broker == OURS]
    sys.exit(1 if failed else 0)


def _line(axis: Axis, point: int, run: Run) -> str:
    head = f"  {run.broker:12} {point:>9,} {axis.label:16}"
    if run.failure is not None:
        return f"{head} {run.failure.splitlines()[0]}"
    cost = 1e6 * run.numbers["broker_cpu_s"] / max(run.numbers["received"], 1)
    return f"{head} {run.numbers['msgs_per_s']:>10,.0f} /s  {cost:>8.2f} µs"


if __name__ == "__main__":
    main()
