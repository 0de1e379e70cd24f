"""Two brokers compared with one: addresses divided between the brokers, and messages that cross a bridge.

    python -m benchmarks.scale_out [--seconds 5] [--rounds 3] [--publish]

All programs, including stompload, run on this machine, so that two brokers have no more processors than one. The rates
show the cost of the division. The brokers' processor time per message shows the gain of a second machine.
`--publish` writes benchmarks/results/scale_out.json, which docs/dev/performance.md shows.
"""

from __future__ import annotations

import datetime
import itertools
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
from lxml import etree

from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST
from benchmarks.brokers.stompring import CORE
from benchmarks.load import Running
from benchmarks.results import machine, markdown
from stompring import build

RESULTS = Path(__file__).parent / "results/scale_out.json"

MEMORY = ("-p", "1", "-c", "1")
DURABLE = ("-p", "4", "-c", "1", "-r", "1", "-R", "50", "-D", "1")
LOADS = {"in memory": MEMORY, "durable, with receipts": DURABLE}
#: The queue of the bridge; stompload adds the number.
BRIDGED = "bridged.0"


class BridgedBroker(Stompring):
    """stompring with a bridge that forwards the queue `BRIDGED` to another broker."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._remote = port

    def _write_config(self, path: Path) -> None:
        super()._write_config(path)
        tree = etree.parse(str(path))
        core = tree.find(f"{CORE}core")
        assert core is not None
        addresses = core.find(f"{CORE}addresses")
        if addresses is None:
            addresses = etree.SubElement(core, f"{CORE}addresses")
        address = etree.SubElement(addresses, f"{CORE}address", name=BRIDGED)
        anycast = etree.SubElement(address, f"{CORE}anycast")
        etree.SubElement(anycast, f"{CORE}queue", name=BRIDGED)
        connectors = etree.SubElement(core, f"{CORE}connectors")
        etree.SubElement(connectors, f"{CORE}connector", name="other").text = f"tcp://{HOST}:{self._remote}"
        bridges = etree.SubElement(core, f"{CORE}bridges")
        bridge = etree.SubElement(bridges, f"{CORE}bridge", name="onward")
        etree.SubElement(bridge, f"{CORE}queue-name").text = BRIDGED
        references = etree.SubElement(bridge, f"{CORE}static-connectors")
        etree.SubElement(references, f"{CORE}connector-ref").text = "other"
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")


@dataclass(frozen=True, slots=True)
class Measured:
    """Messages received per second, and processor time of the brokers per message in µs."""

    rate: float
    cost: float


def measure(brokers: Sequence[Stompring], loads: Sequence[tuple[Stompring, Sequence[str]]]) -> Measured:
    """Run the loads at the same time. Measures the processor time of ``brokers``."""
    before = sum(broker.cpu_seconds() for broker in brokers)
    with ExitStack() as running:
        programs = [running.enter_context(Running(broker, *options)) for broker, options in loads]
        ended = [program.finish() for program in programs]
    spent = sum(broker.cpu_seconds() for broker in brokers) - before
    received = sum(each["received"] for each in ended)
    rate = sum(each["received"] / each["seconds"] for each in ended)
    return Measured(rate, 1e6 * spent / received)


def rounds(count: int, seconds: float) -> Iterator[Mapping[str, Measured]]:
    """Measure every arrangement with every load in turn, ``count`` times after a first round that does not count."""
    numbers = itertools.count()
    with ExitStack() as opened:
        a, b = (opened.enter_context(Stompring()) for _ in range(2))
        gate = opened.enter_context(BridgedBroker(b.port))

        def options(load: Sequence[str]) -> tuple[str, ...]:
            return (*load, "-S", f"{seconds:g}", "-d", f"/queue/scale.{next(numbers)}")

        for number in range(count + 1):
            found = {}
            for name, load in LOADS.items():
                found[f"one broker, {name}"] = measure([a], [(a, options(load)), (a, options(load))])
                found[f"two brokers, {name}"] = measure([a, b], [(a, options(load)), (b, options(load))])
                found[f"one client, one broker, {name}"] = measure([a], [(a, options(load))])
                found[f"one client, over a bridge, {name}"] = bridged(gate, b, load, seconds)
            if number:
                yield found


def bridged(gate: Stompring, target: Stompring, load: Sequence[str], seconds: float) -> Measured:
    """Measure a load that sends to ``gate``, and receives from ``target`` over the bridge."""
    producers = load[load.index("-p") + 1]
    others = load[4:]
    before = sum(broker.cpu_seconds() for broker in (gate, target))
    with ExitStack() as running:
        name = f"/queue/{BRIDGED.removesuffix('.0')}"
        consumer = running.enter_context(
            Running(target, "-m", "consume", "-c", "1", "-S", f"{seconds:g}", "-d", name)
        )
        running.enter_context(
            Running(gate, "-m", "produce", "-p", producers, *(others or ("-r", "1", "-R", "500")),
                    "-S", f"{seconds:g}", "-d", name)
        )  # fmt: skip
        received = consumer.finish()
    spent = sum(broker.cpu_seconds() for broker in (gate, target)) - before
    drain(gate, target, name)
    return Measured(received["received"] / received["seconds"], 1e6 * spent / max(received["received"], 1))


def drain(gate: Stompring, target: Stompring, name: str) -> None:
    """Consume the remaining messages of a run."""
    while True:
        with Running(target, "-m", "consume", "-c", "1", "-S", "0.5", "-d", name) as consumer:
            if not consumer.finish()["received"]:
                return


def medians(results: Sequence[Mapping[str, Measured]]) -> list[list[str]]:
    """Return the medians over the rounds as rows. Each pair of rows has the ratio of the second to the first."""
    rows = []
    cases = list(results[0])
    for first, second in zip(cases[::2], cases[1::2], strict=True):
        for case in (first, second):
            rate = statistics.median(each[case].rate for each in results)
            cost = statistics.median(each[case].cost for each in results)
            ratio = statistics.median(each[case].rate / each[first].rate for each in results)
            rows.append([case, f"{rate:,.0f}", f"{ratio:.2f}", f"{cost:.1f}"])
    return rows


def published(path: Path = RESULTS) -> str:
    """Return the published figures as Markdown: how they were measured, and the table."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return f"{found['note']}\n\n{table(found['rows'])}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format the rows of `medians`."""
    return markdown(["arrangement", "messages/s", "ratio", "µs of the brokers per message"], rows)


@click.command()
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.2), help="Per run.")
@click.option("--rounds", "count", default=3, show_default=True, type=click.IntRange(1))
@click.option("--publish", is_flag=True, help="Write benchmarks/results/scale_out.json.")
def main(seconds: float, count: int, publish: bool) -> None:
    """Compare two brokers with one."""
    here = machine()
    rows = medians(list(rounds(count, seconds)))
    note = (
        f"`python -m benchmarks.scale_out --publish`: {build()}, {here['cpu']}, {here['cores']} cores, which "
        f"brokers and load share, load {here['load_average']} at the start. {datetime.date.today():%Y-%m-%d}, "
        f"medians of {count} runs of {seconds:g} s."
    )
    click.echo(f"{note}\n\n{table(rows)}")
    if publish:
        RESULTS.write_text(
            json.dumps({"note": note, "rows": rows}, indent=1, ensure_ascii=False) + "\n", "utf-8"
        )


if __name__ == "__main__":
    main()
