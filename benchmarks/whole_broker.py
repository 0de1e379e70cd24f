"""Runs the same cases on stompring and its peers in turn, and prints medians, ratios and targets.

python -m benchmarks.whole_broker [--rounds 3] [--only CASE …] [--brokers a,b] [--seconds S] [--json FILE]
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click

from benchmarks import load
from benchmarks.brokers import BROKERS, Broker, BrokerDied
from benchmarks.cases import CASES, Case
from benchmarks.choice import names_of
from benchmarks.results import Results, Run
from benchmarks.targets import OURS, TARGETS


def _start(names: list[str], stack: ExitStack, results: Results) -> dict[str, Broker]:
    started: dict[str, Broker] = {}
    for name in names:
        reason = BROKERS[name].missing()
        if reason is not None:
            results.skipped[name] = reason
            click.echo(f"{name}: skipped, {reason}")
            continue
        try:
            broker = stack.enter_context(BROKERS[name]())
        except BrokerDied as died:
            if name == OURS:
                raise
            results.skipped[name] = str(died)
            click.echo(f"{name}: skipped, {died}")
            continue
        results.versions[name] = broker.version()
        click.echo(f"{name} {results.versions[name]} listens on port {broker.port}")
        broker.pause()
        started[name] = broker
    return started


def _options(case: Case, seconds: float, run: str) -> list[str]:
    return [*case.options, "-S", f"{seconds:g}", "-d", f"{case.prefix}bench.{case.name}.{run}"]


def _measure(case: Case, broker: Broker, number: int, seconds: float) -> Run:
    broker.resume()
    try:
        if number == 1:
            load.run(broker, *_options(case, broker.warm_seconds, "warm"))
        return Run(case.name, broker.name, number, load.run(broker, *_options(case, seconds, str(number))))
    except load.LoadFailed as failure:
        return Run(case.name, broker.name, number, failure=str(failure))
    finally:
        broker.pause()


def _warm(broker: Broker) -> None:
    # a just-in-time compiler needs far longer for the first case than for the ones after it
    broker.resume()
    load.run(broker, "-S", f"{3 * broker.warm_seconds:g}", "-d", "/queue/bench.first")
    broker.pause()


def _say(run: Run) -> None:
    if run.failure is not None:
        click.echo(f"  {run.broker:10} {run.case:18} FAILED: {run.failure}")
    elif CASES[run.case].latency:
        click.echo(
            f"  {run.broker:10} {run.case:18} p50 {run.numbers['p50_us']:,.0f} µs, "
            f"p99 {run.numbers['p99_us']:,.0f} µs, p99.9 {run.numbers['p999_us']:,.0f} µs"
        )
    else:
        limit = ", the client was the limit" if run.numbers["client_cpu"] > 0.9 else ""
        click.echo(f"  {run.broker:10} {run.case:18} {run.numbers['msgs_per_s']:>10,.0f} /s{limit}")


def measure(names: list[str], cases: list[Case], rounds: int, seconds: float) -> Results:
    """All cases on all brokers. The brokers that are not being measured are stopped (SIGSTOP) meanwhile."""
    results = Results()
    with ExitStack() as stack:
        play(results, _start(names, stack, results), cases, rounds, seconds)
    return results


def play(
    results: Results, started: dict[str, Broker], cases: list[Case], rounds: int, seconds: float
) -> None:
    """Round by round, so that what else the machine does spreads over all brokers.

    They come paused, and in turn: what follows on a busy moment is not always the same one.
    """
    for broker in started.values():
        _warm(broker)
    for number in range(1, rounds + 1):
        click.echo(f"round {number} of {rounds}")
        labels = list(started) if number % 2 else list(started)[::-1]
        for case in cases:
            for label in labels:
                broker = started[label]
                if case.needs_selectors and not broker.selectors:
                    continue
                run = replace(_measure(case, broker, number, seconds), broker=label)
                results.runs.append(run)
                _say(run)


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--only", multiple=True, type=click.Choice(list(CASES)), help="Only this case; repeatable.")
@click.option("--brokers", help="Comma-separated; by default all that are installed.")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write runs here.")
def main(
    rounds: int, only: tuple[str, ...], brokers: str | None, seconds: float, json_file: Path | None
) -> None:
    """Compares stompring with RabbitMQ, ActiveMQ Classic and Artemis, as far as they are installed."""
    cases = [case for case in CASES.values() if not only or case.name in only]
    try:
        results = measure(names_of(brokers), cases, rounds, seconds)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + results.tables(OURS))
    for target in TARGETS:
        if target.case in {case.name for case in cases}:
            click.echo(f"target {target}: {target.verdict(results)}")
    if json_file is not None:
        results.save(json_file)
        click.echo(f"written: {json_file}")
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
