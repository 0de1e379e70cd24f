"""Effect of a subscriber that stops reading, and later catches up, on the rate of the other subscribers.

    python -m benchmarks.stuck_subscriber [--rounds 3] [--seconds 20] [--stuck-seconds 60] [--subscribers 10]

One producer and all subscribers of a topic except one run without pause. Each round has three phases: `without` the
last subscriber, `stuck` (it has subscribed, and does not read), and `draining` (it reads its backlog as fast as it
can). The benchmark compares the rates of the other subscribers in the phases of a round.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from dataclasses import dataclass

import click

from benchmarks import disk, load, management
from benchmarks.brokers import BrokerDied, Stompring
from benchmarks.results import markdown
from benchmarks.targets import verdict

ADDRESS = "stuck.0"
DESTINATION = "/topic/stuck"
TARGET_STUCK = 0.9
TARGET_DRAINING = 0.9
# seconds at the beginning of a phase that do not count
SETTLE_SECONDS = 1.0
PULSE_SECONDS = 0.25
# far below the bytes in the sockets of the subscribers, so that the address pages
MEMORY = "16MB"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase: deliveries to the other subscribers per second, processor seconds of the broker per second, and the
    number of paged messages at the end."""

    name: str
    seconds: float
    rate: float
    cpu: float
    paged: int
    pages: int
    memory: int

    @property
    def each(self) -> float:
        """The broker's total processor time in µs per delivery to the others."""
        return 1e6 * self.cpu / max(self.rate, 1)


class Others:
    """The producer and all subscribers except the stuck one, with the number of deliveries so far."""

    def __init__(self, running: load.Running, broker: Stompring) -> None:
        self._running = running
        self._broker = broker
        self._delivered: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._read, name="the others", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for told in self._running.lines():
            self._delivered.append((told["seconds"], told["done"]))

    def watch(self, name: str, seconds: float, until: threading.Event | None = None) -> Phase:
        """Measure a phase until ``seconds`` are over or ``until`` is set, whichever is first."""
        time.sleep(SETTLE_SECONDS)
        first, cpu = self._now(), self._broker.cpu_seconds()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (until is not None and until.is_set()):
            time.sleep(PULSE_SECONDS)
        last = self._now()
        passed = max(last[0] - first[0], PULSE_SECONDS)
        paged, pages = _in_pages(self._broker)
        cpu = (self._broker.cpu_seconds() - cpu) / passed
        return Phase(name, passed, (last[1] - first[1]) / passed, cpu, paged, pages, self._broker.rss())

    def _now(self) -> tuple[float, float]:
        known = len(self._delivered)
        deadline = time.monotonic() + 20
        while len(self._delivered) == known:
            if not self._thread.is_alive():
                self._running.finish()
                raise load.LoadFailed("the other subscribers ended too early")
            if time.monotonic() > deadline:
                raise load.LoadFailed("the other subscribers get nothing more")
            time.sleep(0.01)
        return self._delivered[-1]

    def end(self) -> dict[str, float]:
        """Stop the producer. Returns the numbers of the whole run."""
        self._running.interrupt()
        self._thread.join()
        return self._running.finish()


def _in_pages(broker: Stompring) -> tuple[int, int]:
    queues = management.queues(broker, address=ADDRESS)
    return sum(queue["pagedCount"] for queue in queues), len(disk.files(broker.data / "paging", "*.page"))


def drained(running: load.Running, caught_up: threading.Event, backlog: int) -> None:
    """Follow the stuck subscriber, and set ``caught_up`` when it has received its backlog."""
    for told in running.lines():
        if told.get("done", 0) >= backlog:
            caught_up.set()


def one_round(broker: Stompring, others: Others, seconds: float, stuck_seconds: float) -> list[Phase]:
    """Measure the phases without, stuck and draining."""
    phases = [others.watch("without", seconds)]
    options = ["-m", "consume", "-k", "1", "-t", "1", "-C", "1", "-I", "0.25", "-T", "600", "-d", DESTINATION]
    with load.Running(broker, *options) as running:
        told = running.lines()
        next(told)
        phases.append(others.watch("stuck", stuck_seconds))
        backlog = max(queue["messageCount"] for queue in management.queues(broker, address=ADDRESS))
        caught_up = threading.Event()
        reader = threading.Thread(target=drained, args=(running, caught_up, backlog), daemon=True)
        reader.start()
        running.release()
        phases.append(others.watch("draining", 2 * stuck_seconds, until=caught_up))
        running.interrupt()
        reader.join()
        numbers = running.finish()
    click.echo(
        f"  kept for the stuck one: {backlog:,}; it drained {numbers['received']:,.0f} at "
        f"{numbers['msgs_per_s']:,.0f} /s, {numbers['repeated']:,.0f} twice, {numbers['disordered']:,.0f} out of order"
    )
    if numbers["repeated"] or numbers["disordered"]:
        raise load.LoadFailed("the stuck subscriber got messages twice or out of order")
    if not caught_up.is_set():
        click.echo("  it did not catch up with what was kept for it")  # plain: ok
    return phases


def _say(phase: Phase) -> None:
    click.echo(
        f"  {phase.name:9} {phase.seconds:6.1f} s  {phase.rate:>9,.0f} deliveries/s  "
        f"processor {phase.cpu:.2f} ({phase.each:.2f} µs each)  "
        f"paged {phase.paged:>9,} in {phase.pages} pages  memory {phase.memory / 1e6:,.0f} MB"
    )


def measure(
    broker: Stompring, subscribers: int, rounds: int, seconds: float, stuck_seconds: float
) -> list[list[Phase]]:
    """Measure all rounds."""
    found = []
    options = ["-t", "1", "-c", str(subscribers - 1), "-I", str(PULSE_SECONDS), "-T", "60", "-C", "1"]
    length = rounds * (seconds + 4 * stuck_seconds + 60)
    with load.Running(broker, *options, "-d", DESTINATION, "-S", f"{length:g}") as running:
        others = Others(running, broker)
        others.watch("warm", 3)
        for number in range(1, rounds + 1):
            click.echo(f"round {number} of {rounds}")
            found.append(one_round(broker, others, seconds, stuck_seconds))
            for phase in found[-1]:
                _say(phase)
        numbers = others.end()
    if numbers["repeated"] or numbers["disordered"] or numbers["distinct"] != numbers["received"]:
        raise load.LoadFailed(f"the others got messages twice or out of order: {numbers}")
    return found


def report(found: list[list[Phase]]) -> str:
    """Format the table, and the verdicts on the targets."""
    rows, lines = [], []
    for index, name in enumerate(("without", "stuck", "draining")):
        rates = [phases[index].rate for phases in found]
        ratios = [phases[index].rate / phases[0].rate for phases in found]
        rows.append(
            [
                name,
                f"{statistics.median(rates):,.0f}",
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
                f"{statistics.median(phases[index].each for phases in found):.2f}",
                f"{max(phases[index].paged for phases in found):,}",
                f"{max(phases[index].memory for phases in found) / 1e6:,.0f}",
            ]
        )
        target = {"stuck": TARGET_STUCK, "draining": TARGET_DRAINING}.get(name)
        if target:
            lines.append(
                f"target {name} / without at least {target}: {verdict(statistics.median(ratios), target)}"
            )
    head = ["stuck subscriber", "deliveries/s to the others", "ratio", "µs each", "paged", "MB"]
    return "\n".join([*lines, "", markdown(head, rows)])


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1), help="Without it.")
@click.option("--stuck-seconds", default=60.0, show_default=True, type=click.FloatRange(1), help="Stuck.")
@click.option(
    "--subscribers", default=10, show_default=True, type=click.IntRange(2), help="With the stuck one."
)
@click.option("--memory", default=MEMORY, show_default=True, help="global-max-size.")
def main(rounds: int, seconds: float, stuck_seconds: float, subscribers: int, memory: str) -> None:
    """Measure subscribers of a topic while one of them does not read, and then drains its backlog."""
    try:
        with Stompring(settings={"global-max-size": memory}) as broker:
            found = measure(broker, subscribers, rounds, seconds, stuck_seconds)
    except (BrokerDied, load.LoadFailed, management.NotTold) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo("\n" + report(found))
    if not any(phases[1].paged for phases in found):
        raise click.ClickException("nothing was paged: less memory is needed (--memory), or a longer time")
    sys.exit(0)


if __name__ == "__main__":
    main()
