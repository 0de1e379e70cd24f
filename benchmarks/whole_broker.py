"""Benchmark of stompring and its peers: runs each case on all brokers in turn, and prints medians, ratios and targets.

    python -m benchmarks.whole_broker [--minutes 12] [--rounds 3] [--only CASE …] [--brokers a,b] [--seconds S]
                                      [--json FILE] [--publish]

--publish writes benchmarks/results/bench.json, and the plots of docs/dev/performance.md from it.
The duration of a run follows from --minutes: all runs share the time without the parts, the starts and the warm-ups.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from benchmarks import disk, load, management
from benchmarks.brokers import BROKERS, FLOORS, Broker, BrokerDied, Stompring
from benchmarks.cases import CASES, Case
from benchmarks.choice import names_of
from benchmarks.parts import PARTS, Limits
from benchmarks.results import Results, Run
from benchmarks.targets import OURS, TARGETS
from benchmarks.variants import VARIANTS, compiled

# seconds of each run beyond its duration: connecting, and receiving the last messages
RUN_OVERHEAD = 0.6
# seconds for starting and stopping all brokers
STARTS = 45.0
# maximum seconds of a JVM's warm-up before the first measured run of a case, if the total duration is limited
WARM_CASE = 2.0
DISK_SECONDS = 0.3
SHORTEST = 0.5


def makers(names: Sequence[str], variants: bool) -> dict[str, Callable[[], Broker]]:
    """Return the function that starts each broker, by the label of its row. ``variants``: all builds of stompring."""
    found: dict[str, Callable[[], Broker]] = {}
    for name in names:
        if name == OURS:
            found.update(VARIANTS if variants else {OURS: VARIANTS[OURS]})
        else:
            found[name] = (BROKERS | FLOORS)[name]
    return found


def start_all(
    makers: Mapping[str, Callable[[], Broker]], stack: ExitStack, results: Results
) -> dict[str, Broker]:
    """Start and pause (SIGSTOP) the installed brokers. Record the others in ``results`` with the reason."""
    started: dict[str, Broker] = {}
    for label, maker in makers.items():
        kind = (BROKERS | FLOORS).get(label, Stompring)
        reason = kind.missing()
        if reason is not None:
            results.skipped[label] = reason
            click.echo(f"{label}: skipped, {reason}")
            continue
        try:
            broker = stack.enter_context(maker())
        except BrokerDied as died:
            if label == OURS:
                raise
            lines = [line for line in str(died).splitlines() if line.strip()]
            results.skipped[label] = " ".join(dict.fromkeys((lines[0], lines[-1])))
            click.echo(f"{label}: skipped, {died}")
            continue
        results.versions[label] = broker.version()
        click.echo(f"{label} {results.versions[label]} listens on port {broker.port}")
        broker.pause()
        started[label] = broker
    return started


def runs_on(case: Case, label: str, kind: type[Broker]) -> bool:
    """Return whether a case is measured on a broker with this label and kind."""
    if kind.protocol != "stomp":
        return kind.name in case.floors
    if label in VARIANTS and label != OURS:
        return case.variants
    if case.ours:
        return issubclass(kind, Stompring)
    return kind.selectors or not case.needs_selectors


def _options(case: Case, seconds: float, run: str) -> list[str]:
    return [*case.options, "-S", f"{seconds:g}", "-d", f"{case.prefix}bench.{case.name}.{run}"]


def _measure(case: Case, broker: Broker, number: int, seconds: float, warm: float) -> Run:
    broker.resume()
    try:
        if number == 1:
            load.run(broker, *_options(case, min(broker.warm_seconds, warm), "warm"))
        alone = [disk.sync_time(broker.directory, DISK_SECONDS)] if case.beside_disk else []
        numbers = load.run(broker, *_options(case, seconds, str(number)))
        if case.beside_disk:
            alone.append(disk.sync_time(broker.directory, DISK_SECONDS))
            numbers["disk_us"] = 1e6 * sum(one.mean for one in alone) / 2
            numbers["round_trip_us"] = 1e6 * numbers["seconds"] / max(numbers["receipts"], 1)
            numbers["disk_ratio"] = numbers["round_trip_us"] / numbers["disk_us"]
        return Run(case.name, broker.name, number, numbers)
    except load.LoadFailed as failure:
        return Run(case.name, broker.name, number, failure=str(failure))
    finally:
        broker.pause()


def _warm(broker: Broker, seconds: float) -> None:
    # a just-in-time compiler needs much more time for the first case than for later ones
    broker.resume()
    load.run(broker, "-S", f"{3 * min(broker.warm_seconds, seconds):g}", "-d", "/queue/bench.first")
    broker.pause()


def _say(run: Run) -> None:
    numbers = run.numbers
    if run.failure is not None:
        click.echo(f"  {run.broker:12} {run.case:18} FAILED: {run.failure}")
    elif CASES[run.case].latency:
        click.echo(
            f"  {run.broker:12} {run.case:18} p50 {numbers['p50_us']:,.0f} µs, "
            f"p99 {numbers['p99_us']:,.0f} µs, p99.9 {numbers['p999_us']:,.0f} µs"
        )
    else:
        limit = ", the client was the limit" if numbers["client_cpu"] > 0.9 else ""
        if "disk_us" in numbers:
            limit = (
                f", {numbers['round_trip_us']:,.0f} µs each where the disk takes {numbers['disk_us']:,.0f}"
            )
        click.echo(f"  {run.broker:12} {run.case:18} {numbers['msgs_per_s']:>10,.0f} /s{limit}")


def measure(names: Sequence[str], cases: list[Case], rounds: int, seconds: float) -> Results:
    """Measure all cases on all brokers. Only one broker runs at a time, the others are paused (SIGSTOP)."""
    results = Results()
    with ExitStack() as stack:
        play(results, start_all(makers(names, False), stack, results), cases, rounds, seconds)
    return results


def play(
    results: Results,
    started: dict[str, Broker],
    cases: list[Case],
    rounds: int,
    seconds: float,
    warm: float = math.inf,
    deadline: float = math.inf,
) -> int:
    """Run all cases round by round, so that other load of the machine is spread over all brokers. Returns the rounds.

    The brokers are paused at the beginning, and every second round reverses their order. A warm-up takes at most
    ``warm`` seconds before a case, and three times as long before the first case. A round that would end after
    ``deadline`` (of the monotonic clock) is left out.
    """
    for broker in started.values():
        _warm(broker, warm)
    last = 0.0
    for number in range(1, rounds + 1):
        begun = time.monotonic()
        if begun + last > deadline:
            click.echo(f"round {number} of {rounds} is left out: there is no time for it")
            return number - 1
        click.echo(f"round {number} of {rounds}")
        labels = list(started) if number % 2 else list(started)[::-1]
        for case in cases:
            for label in labels:
                if not runs_on(case, label, type(started[label])):
                    continue
                run = replace(_measure(case, started[label], number, seconds, warm), broker=label)
                results.runs.append(run)
                _say(run)
        last = time.monotonic() - begun
    return rounds


def run_parts(results: Results, names: Sequence[str], limits: Limits) -> None:
    """Run the parts that only stompring runs, each on a new broker."""
    for name in names:
        part = PARTS[name]
        click.echo(name)
        try:
            with Stompring(settings=part.settings, addresses=part.addresses, code=compiled()) as broker:
                numbers = part.measure(broker, limits)
        except (BrokerDied, load.LoadFailed, management.NotTold) as failure:
            click.echo(f"  FAILED: {failure}")
            failed = [name, "held-memory"] if name == "drain" else [name]
            results.runs += [Run(one, OURS, 1, failure=str(failure)) for one in failed]
            continue
        click.echo("  " + ", ".join(f"{key} {value:,.6g}" for key, value in numbers.items()))
        overhead = numbers.pop("overhead_bytes", None)
        results.runs.append(Run(name, OURS, 1, numbers))
        if overhead is not None:
            results.runs.append(Run("held-memory", OURS, 1, {"overhead_bytes": overhead}))


@dataclass(frozen=True, slots=True)
class Plan:
    """The number of runs, and the seconds of warm-ups and parts."""

    runs: int
    warm: float
    parts: float

    @classmethod
    def of(cls, labels: Sequence[str], cases: Sequence[Case], rounds: int, parts: float) -> Plan:
        """Count the runs of all rounds, including brokers that may not be installed."""
        kinds = {label: (BROKERS | FLOORS).get(label, Stompring) for label in labels}
        pairs = [
            (case, kind) for case in cases for label, kind in kinds.items() if runs_on(case, label, kind)
        ]
        warm = sum(min(kind.warm_seconds, WARM_CASE) + RUN_OVERHEAD for _, kind in pairs)
        warm += sum(3 * min(kind.warm_seconds, WARM_CASE) for kind in kinds.values()) + STARTS
        return cls(len(pairs) * rounds, warm if pairs else 0.0, parts)

    def seconds_of_a_run(self, minutes: float) -> float:
        """Return the seconds for each run within ``minutes``, at least `SHORTEST`."""
        left = 60 * minutes - self.warm - self.parts - self.runs * RUN_OVERHEAD
        return max(left / max(self.runs, 1), SHORTEST)

    def minutes(self, seconds: float) -> float:
        """Return the total duration in minutes with runs of ``seconds``."""
        return (self.warm + self.parts + self.runs * (seconds + RUN_OVERHEAD)) / 60


def goals(results: Results) -> str:
    """Return a line for each target."""
    return "\n".join(f"goal {target}: {target.verdict(results)}" for target in TARGETS)


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option(
    "--only", multiple=True, type=click.Choice([*CASES, *PARTS]), help="Only this case or part; repeatable."
)
@click.option("--brokers", help="Comma-separated; by default all that are installed.")
@click.option("--minutes", default=12.0, show_default=True, type=click.FloatRange(0.5), help="All in all.")
@click.option("--seconds", type=click.FloatRange(0.1), help="Per run, whatever --minutes says.")
@click.option("--deep-messages", default=10_000_000, show_default=True, type=click.IntRange(1000))
@click.option("--variants/--no-variants", default=True, show_default=True, help="Other builds and reactors.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write runs here.")
@click.option("--publish", is_flag=True, help="Write benchmarks/results/bench.json and the plots.")
def main(
    rounds: int,
    only: tuple[str, ...],
    brokers: str | None,
    minutes: float,
    seconds: float | None,
    deep_messages: int,
    variants: bool,
    json_file: Path | None,
    publish: bool,
) -> None:
    """Compare stompring with RabbitMQ, ActiveMQ Classic, Artemis, nats-server and a relay, as far as installed."""
    cases = [case for case in CASES.values() if not only or case.name in only]
    names = names_of(brokers, floors=True)
    parts = [name for name in PARTS if OURS in names and (not only or name in only)]
    limits = Limits(deep_messages=deep_messages)
    started = makers(names, variants) if cases else {}
    times = limits.seconds()
    plan = Plan.of(list(started), cases, rounds, sum(times[name] for name in parts))
    length = plan.seconds_of_a_run(minutes) if seconds is None else seconds
    click.echo(
        f"{plan.runs} runs of {length:.2f} s, warm-ups and starts {plan.warm:.0f} s, parts {plan.parts:.0f} s: "
        f"at most {plan.minutes(length):.1f} minutes"
    )
    results = Results()
    if OURS in names:
        compiled()
    begun = time.monotonic()
    results.setup = {"rounds": rounds, "seconds": round(length, 2)}
    chosen = {case.name for case in cases} | set(parts)
    results.left_out = {name: "left out by --only" for name in (*CASES, *PARTS) if name not in chosen}
    if "drain" not in chosen:
        results.left_out["held-memory"] = "it is measured with drain, left out by --only"
    try:
        results.setup["generator_per_s"] = load.alone("-S", f"{length:g}")["msgs_per_s"]
        click.echo(f"stompload alone: {results.setup['generator_per_s']:,.0f} messages a second")
        with ExitStack() as stack:
            running = start_all(started, stack, results)
            if running:
                # allow 5 % of overtime: the first round, from which the duration is estimated, includes the warm-ups
                deadline = begun + 63 * minutes - plan.parts if seconds is None else math.inf
                results.setup["rounds"] = play(results, running, cases, rounds, length, WARM_CASE, deadline)
        run_parts(results, parts, limits)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    results.setup["took_seconds"] = round(time.monotonic() - begun)
    click.echo("\n" + results.tables(OURS))
    click.echo(goals(results))
    click.echo(f"took {results.setup['took_seconds'] / 60:.1f} minutes")
    if json_file is not None:
        results.save(json_file)
        click.echo(f"written: {json_file}")
    if publish:
        from benchmarks import document

        results.save(document.BENCH)
        for path in document.write():
            click.echo(f"written: {path}")
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
