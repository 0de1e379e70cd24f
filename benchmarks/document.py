"""The tables of docs/dev/performance.md, and its plots, from the results in benchmarks/results.

``python -m benchmarks.document`` writes the plots. The tables are made when the site is built
(tests/docs/performance_results.py).
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import scale_out, scaling
from benchmarks.cases import CASES
from benchmarks.parts import STARTS
from benchmarks.results import Results, markdown
from benchmarks.targets import OURS, TARGETS
from benchmarks.variants import VARIANTS

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
BENCH = Path(__file__).parent / "results/bench.json"
SCALING = Path(__file__).parent / "results/scaling.json"

#: Programs that others run.
HELPERS = {"benchmarks.collected", "benchmarks.document", "benchmarks.relay", "benchmarks.sampled"}

PARTS = {
    "deep-queue": (
        "depth",
        "in_per_s",
        "out_per_s",
        "in_cpu_us",
        "out_cpu_us",
        "peak_mb",
        "disk_mb",
    ),
    "stuck-subscriber": (
        "without_per_s",
        "stuck_ratio",
        "stuck_cost_ratio",
        "draining_ratio",
        "draining_cost_ratio",
        "paged",
    ),
    "drain": ("p50_us", "p99_us", "max_us"),
    "held-memory": ("overhead_bytes",),
    "idle": ("rest_mb", "idle_mb"),
} | dict.fromkeys(STARTS, ("messages", "start_s", "start_cpu_s", "rss_mb"))

NAMES = {
    "rest_mb": "memory at rest, MB",
    "idle_mb": "memory with 10,000 idle connections, MB",
    "depth": "messages in the queue",
    "in_per_s": "in, messages per second",
    "out_per_s": "out, messages per second",
    "in_cpu_us": "processor time of one in, µs",
    "out_cpu_us": "processor time of one out, µs",
    "peak_mb": "peak memory, MB",
    "disk_mb": "on disk, MB",
    "without_per_s": "deliveries per second to nine subscribers alone",
    "stuck_ratio": "their rate while the tenth is stuck",
    "stuck_cost_ratio": "processor time of a delivery then",
    "draining_ratio": "their rate while it drains",
    "draining_cost_ratio": "processor time of a delivery then",
    "paged": "paged for the tenth",
    "p50_us": "probe, p50 µs",
    "p99_us": "probe, p99 µs",
    "max_us": "probe, max µs",
    "overhead_bytes": "bytes for a held message beyond its frame",
    "messages": "durable messages",
    "start_s": "seconds until ready",
    "start_cpu_s": "processor seconds until ready",
    "rss_mb": "memory then, MB",
}


def provenance(results: Results, command: str) -> str:
    """Describe versions, machine, duration and command of a measurement in a paragraph."""
    of = results.machine
    versions = ", ".join(
        f"{name} {version}" for name, version in results.versions.items() if name not in _others()
    )
    skipped = "".join(f" {name} was skipped: {reason}." for name, reason in sorted(results.skipped.items()))
    busy = " The machine was busy with other work: only ratios mean something." if _busy(results) else ""
    setup = results.setup
    alone = setup.get("generator_per_s")
    limit = (
        f" The load generator without a broker: {alone / 1e6:.2g} million messages a second." if alone else ""
    )
    return (
        f"`{command} BENCH_OPTIONS=--publish`: {versions}. {of['cpu']}, {of['cores']} cores, "
        f"{int(of['memory_bytes']) / 2**30:.0f} GB, "
        f"Linux {of['kernel']}, load {of['load_average']} at the start. {results.taken[:10]}, {setup['rounds']:g} "
        f"rounds of {setup['seconds']:g} s, {setup['took_seconds'] / 60:.1f} minutes in all.{limit}{busy}{skipped}\n"
    )


def _others() -> set[str]:
    return set(VARIANTS) - {OURS}


def _busy(results: Results) -> bool:
    return float(results.machine["load_average"]) > 0.5 * float(results.machine["cores"])


def goals(results: Results) -> str:
    """Return a table of goals, figures and verdicts."""
    rows = []
    for target in TARGETS:
        found = target.found(results)
        if found is None:
            rows.append([str(target), "", f"not measured: {target.reason(results)}"])
        else:
            figure = f"{found:,.0f}" if found >= 100 else f"{found:,.2f}"
            rows.append([str(target), figure, "reached" if target.reached(results) else "**missed**"])
    reached = sum(bool(target.reached(results)) for target in TARGETS)
    return f"{reached} of {len(TARGETS)} goals are reached.\n\n" + markdown(["goal", "measured", ""], rows)


def _peers(results: Results) -> list[str]:
    return [name for name in results.brokers() if name not in _others()]


def variants(results: Results) -> str:
    """Compare builds and reactors: the rate (or median latency) of each, and its ratio to stompring's."""
    columns = [name for name in VARIANTS if name in results.brokers()]
    rows = []
    for name, case in CASES.items():
        field = "p50_us" if case.latency else "msgs_per_s"
        ours = results.median(name, OURS, field)
        if not case.variants or not ours:
            continue
        found = [results.median(name, column, field) for column in columns]
        cells = ["" if value is None else f"{value:,.0f} ({value / ours:.2f})" for value in found]
        rows.append([name + (", p50 µs" if case.latency else ""), *cells])
    return markdown(["messages per second (beside the first)", *columns], rows)


def durable_one(results: Results) -> str:
    """Compare one durable producer with the disk."""
    rows = []
    for broker in _peers(results):
        found = [
            results.median("durable-one", broker, name) for name in ("disk_us", "round_trip_us", "disk_ratio")
        ]
        if all(found):
            disk, trip, ratio = (value or 0.0 for value in found)
            rows.append([broker, f"{disk:,.0f}", f"{trip:,.0f}", f"{ratio:.2f}"])
    return markdown(["µs a message", "disk alone", "round trip", "round trip / disk"], rows)


def parts(results: Results) -> str:
    """Return the table of the parts that only stompring runs."""
    rows = []
    for case, names in PARTS.items():
        numbers = next(
            (dict(run.numbers) for run in results.runs if run.case == case and not run.failure), None
        )
        if numbers is None:
            rows.append([case, "not measured", results.reason(case, OURS)])
            continue
        for way, count in (("in", "depth"), ("out", "drained")):
            if f"{way}_cpu_s" in numbers:
                numbers[f"{way}_cpu_us"] = 1e6 * numbers[f"{way}_cpu_s"] / max(numbers[count], 1)
        for name in names:
            value = numbers[name]
            rows.append([case, NAMES[name], f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"])
    return markdown(["part", "figure", ""], rows)


def _image(name: str, text: str) -> str:
    return f"![{text}](../images/performance-{name}.svg)\n"


def axis_block(axis: scaling.Axis) -> Callable[[Results], str]:
    """Return the function that renders the plot and the table of an axis."""

    def block(results: Results) -> str:
        left = [
            f"- {run.broker}, {run.case.partition(':')[2]} {axis.label}: {run.failure.splitlines()[0]}\n"
            for run in results.runs
            if run.failure is not None and run.case.partition(":")[0] == axis.name
        ]
        text = f"{axis.title}: rate and processor time"
        head = _image(axis.name, text) + f"\n{axis.rate_label}:\n\n" + scaling.table(results, axis)
        return head + ("\n" + "".join(left) if left else "")

    return block


#: Name of a block → its file of results, and the function that renders it.
BLOCKS: dict[str, tuple[Path, Callable[[Results], str]]] = {
    "machine": (BENCH, lambda r: provenance(r, "make bench")),
    "goals": (BENCH, goals),
    "rates": (
        BENCH,
        lambda r: _image("rates", "Messages per second by case and broker") + "\n" + r.rates(_peers(r)),
    ),
    "ratios": (BENCH, lambda r: r.ratios(OURS, _peers(r))),
    "processor-times": (BENCH, lambda r: r.processor_times(_peers(r))),
    "latencies": (BENCH, lambda r: r.latencies(_peers(r))),
    "variants": (BENCH, variants),
    "durable-one": (BENCH, durable_one),
    "parts": (BENCH, parts),
    "scaling-machine": (SCALING, lambda r: provenance(r, "make scaling")),
} | {f"scaling-{axis.name}": (SCALING, axis_block(axis)) for axis in scaling.AXES.values()}


def programs() -> str:
    """Return a table of all programs with the first sentence of their docstrings."""
    rows = []
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        name, text = ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text and name not in HELPERS:
            first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            rows.append([f"`{name}`", first.partition(": ``")[0].rstrip(".")])
    return markdown(["`python -m`", "measures"], rows)


#: Name of a block that does not come from a file of runs → the function that renders it.
OTHER_BLOCKS: dict[str, Callable[[], str]] = {
    "programs": programs,
    "cases": lambda: markdown(["case", "load"], [[f"`{name}`", case.what] for name, case in CASES.items()]),
    "scale-out": scale_out.published,
}


def block(name: str) -> str:
    """Return a block of the page."""
    if name in OTHER_BLOCKS:
        return OTHER_BLOCKS[name]()
    path, made = BLOCKS[name]
    return made(Results.load(path))


def write() -> Iterator[Path]:
    """Write the plots. Yields the written files."""
    if BENCH.exists():
        yield _rates_plot(Results.load(BENCH))
    if SCALING.exists():
        results = Results.load(SCALING)
        for axis in scaling.AXES.values():
            if any(run.case.startswith(f"{axis.name}:") for run in results.runs):
                yield _axis_plot(results, axis)


COLORS = {
    OURS: "#d62728",
    "rabbitmq": "#ff7f0e",
    "activemq": "#9467bd",
    "artemis": "#1f77b4",
    "nats-server": "#2ca02c",
    "relay": "#7f7f7f",
}


def _figure(width: float, height: float, columns: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    # make the file depend on the results only
    matplotlib.rcParams.update({"svg.hashsalt": "stompring", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    return pyplot.subplots(1, columns, figsize=(width, height), squeeze=False)


def _save(figure: Any, name: str) -> Path:
    from matplotlib import pyplot

    path = IMAGES / f"performance-{name}.svg"
    figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Date": None})
    pyplot.close(figure)
    # remove spaces at the ends of lines
    path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
    return path


def _rates_plot(results: Results) -> Path:
    brokers = _peers(results)
    cases = [name for name in results.cases() if not CASES[name].ours]
    figure, ((axes,),) = _figure(10, 4.2, 1)
    width = 0.8 / max(len(brokers), 1)
    for place, broker in enumerate(brokers):
        found = [results.median(case, broker, "msgs_per_s") for case in cases]
        at = [number + (place - (len(brokers) - 1) / 2) * width for number in range(len(cases))]
        axes.bar(at, [value or 0 for value in found], width, label=broker, color=COLORS.get(broker))
    axes.set_yscale("log")
    axes.set_xticks(range(len(cases)), cases, rotation=30, ha="right")
    axes.set_ylabel("messages per second")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=3, fontsize=8, loc="upper right")
    return _save(figure, "rates")


def _axis_plot(results: Results, axis: scaling.Axis) -> Path:
    figure, ((rate_axes, cost_axes),) = _figure(10, 3.4, 2)
    for broker in results.brokers():
        points, rates, costs = [], [], []
        for point in axis.points:
            case = scaling.case_name(axis, point)
            rate, cost = results.median(case, broker, "msgs_per_s"), results.costs(case, broker)
            if rate is not None:
                points.append(point)
                rates.append(axis.rate(point, {"msgs_per_s": rate}))
                costs.append(max(statistics.median(cost), 0.01))
        style = {"marker": "o", "markersize": 3, "label": broker, "color": COLORS.get(broker)}
        style["linestyle"] = "--" if broker == "nats-server" else "-"
        rate_axes.plot(points, rates, **style)
        cost_axes.plot(points, costs, **style)
    for axes, label in ((rate_axes, axis.rate_label), (cost_axes, "broker's µs per delivery")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(axis.label)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    rate_axes.legend(fontsize=7)
    return _save(figure, axis.name)


@click.command()
def main() -> None:
    """Write the plots of docs/dev/performance.md from benchmarks/results."""
    for path in write():
        click.echo(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
