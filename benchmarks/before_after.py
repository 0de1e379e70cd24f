"""Comparison of the speed of this tree with an earlier one, for cases that both support.

python -m benchmarks.before_after --tag COMMIT [--rounds 10] [--seconds 3] [--only CASE …]

The benchmark unpacks the files of the tag or commit into a temporary directory, and runs the two trees in turn, round
by round, each with its shipped configuration. The ratio is the median over the rounds of the ratio within a round, so
that a busy machine slows both trees.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks import load
from benchmarks.brokers import Broker, BrokerDied, Stompring
from benchmarks.brokers.stompring import ROOT
from benchmarks.cases import CASES, Case
from benchmarks.results import Results, markdown
from benchmarks.targets import verdict
from benchmarks.whole_broker import play

BEFORE, AFTER = "before", "after"
# target: fraction of the earlier rate
KEPT = 0.95
# the cases that do not wait for a disk
MEMORY_CASES = [name for name, case in CASES.items() if not case.disk]


def unpack(tag: str, directory: Path) -> None:
    """Write the files of a tag or commit into a directory, without a change of the repository."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", tag], capture_output=True)
    if packed.returncode:
        raise click.ClickException(f"git archive {tag}: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")


def compare(tag: str, cases: list[Case], rounds: int, seconds: float) -> Results:
    """Measure all cases on both trees."""
    results = Results()
    with ExitStack() as stack:
        tree = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tree-")))
        unpack(tag, tree)
        started: dict[str, Broker] = {}
        for label, root in ((BEFORE, tree), (AFTER, ROOT)):
            broker = stack.enter_context(Stompring(root=root, tls=True))
            results.versions[label] = broker.version()
            broker.pause()
            started[label] = broker
        play(results, started, cases, rounds, seconds)
    return results


def table(results: Results, cases: list[Case]) -> str:
    """Return a row for each case: before, after, the ratios, the verdict."""
    rows = []
    for case in cases:
        name = "p50_us" if case.latency else "msgs_per_s"
        found = results.paired(case.name, BEFORE, AFTER, name)
        if found is None:
            rows.append([case.name, *[""] * 6, "not measured"])
            continue
        rate, cost = found
        values = [results.median(case.name, label, name) or 0.0 for label in (BEFORE, AFTER)]
        costs = [statistics.median(results.costs(case.name, label)) for label in (BEFORE, AFTER)]
        judged = "" if case.latency else verdict(rate, KEPT).partition(":")[0]
        rows.append(
            [
                case.name + (" (p50 µs)" if case.latency else ""),
                *(f"{value:,.0f}" for value in values),
                f"{rate:.3f}",
                *(f"{value:.1f}" for value in costs),
                f"{cost:.3f}",
                judged,
            ]
        )
    head = ["case", "before /s", "after /s", "ratio", "before µs", "after µs", "ratio", f"target {KEPT}"]
    return markdown(head, rows)


@click.command()
@click.option("--tag", required=True, help="The earlier tree: a tag or commit, such as HEAD~1.")
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--only", multiple=True, type=click.Choice(MEMORY_CASES), help="Only this case; repeatable.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write runs here.")
def main(tag: str, rounds: int, seconds: float, only: tuple[str, ...], json_file: Path | None) -> None:
    """Run the cases that need no store on an earlier tree and on this one, and print ratios.

    The columns in µs are the broker's processor time for a delivery, which varies less than the rates.
    """
    cases = [CASES[name] for name in MEMORY_CASES if not only or name in only]
    try:
        results = compare(tag, cases, rounds, seconds)
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + table(results, cases))
    if json_file is not None:
        results.save(json_file)
        click.echo(f"written: {json_file}")
    sys.exit(1 if results.failures() else 0)


if __name__ == "__main__":
    main()
