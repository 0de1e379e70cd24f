"""Cost of an open page of the console for the broker.

    python -m benchmarks.console_cost [--queues 10000] [--active 100] [--seconds 60] [--page '#/']

A broker has many queues. Some of them receive and deliver a message per second. A probe process sends 200 messages per
second over one connection and receives them on another. Phases of equal length alternate: without a page, and with one
page in a headless Chromium. The output has the broker's processor time as a share of one core, and the largest gap and
the 99.9th percentile of the gaps between two messages of the probe, without and with the page. On an idle machine a gap
is slightly more than 5 ms. The browser uses the processors of the same machine and may cause gaps: for comparison
``--burn`` runs a process in its place that only uses a processor.
"""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import click

from benchmarks.brokers import Stompring
from benchmarks.brokers.process import HOST
from benchmarks.choice import each_broker
from benchmarks.client import Client
from benchmarks.many_queues import write_each
from benchmarks.results import markdown
from benchmarks.stalls import probe

BODY = b"x" * 100

#: Seconds in which a page loads and a broker becomes idle.
SETTLE = 5.0

CHROMIUM = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync "
    "--disable-component-update --disable-dev-shm-usage --no-proxy-server --remote-debugging-port=0"
).split()


@dataclass(frozen=True, slots=True)
class Turn:
    """One phase: the share of a core that the broker used, and gaps of the probe in seconds."""

    core: float
    longest: float
    p999: float


def _traffic(broker: Stompring, pipe: Connection, active: int) -> None:
    """Send one message per second through each of ``active`` queues, evenly spread, until the pipe has data."""
    producer, consumer = Client(broker), Client(broker)
    for client in (producer, consumer):
        client.connect()
        client.expect("CONNECTED")
    for number in range(active):
        consumer.subscribe(f"/queue/many.{number}", identifier=number)
    threading.Thread(target=_receive_forever, args=(consumer,), daemon=True).start()
    due = time.perf_counter()
    number = 0
    while not pipe.poll():
        producer.send(f"/queue/many.{number}", BODY)
        number = (number + 1) % active
        due += 1 / active
        time.sleep(max(0.0, due - time.perf_counter()))


def _receive_forever(consumer: Client) -> None:
    while True:
        consumer.expect("MESSAGE")


@contextmanager
def _process(target: object, *arguments: object) -> Iterator[Connection]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context(
        "fork"
    ).Process(
        target=target,  # type: ignore[arg-type]
        args=(arguments[0], theirs, *arguments[1:]),
        daemon=True,
    )
    process.start()
    try:
        yield ours
    finally:
        process.terminate()
        process.join()


def _burn(_: Stompring, pipe: Connection) -> None:
    while not pipe.poll():
        sum(range(100_000))


@contextmanager
def open_page(broker: Stompring, page: str) -> Iterator[None]:
    """Context manager: open a page of the console in a new browser, and close the browser at the end."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise click.ClickException("no chromium is installed")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        url = f"http://{HOST}:{broker.http_port}/{page}"
        process = subprocess.Popen(
            [chromium, *CHROMIUM, f"--user-data-dir={profile}", url],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def turn(broker: Stompring, seconds: float) -> Turn:
    """Measure one phase of ``seconds``."""
    time.sleep(SETTLE)
    with _process(probe, broker) as pipe:
        time.sleep(1)
        cpu, started = broker.cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        core = (broker.cpu_seconds() - cpu) / (time.perf_counter() - started)
        pipe.send("stop")
        gaps = sorted(pipe.recv())
    return Turn(core, gaps[-1], gaps[int(len(gaps) * 0.999)])


def _row(name: str, turns: list[Turn]) -> list[str]:
    return [
        name,
        f"{100 * statistics.median(one.core for one in turns):.2f} %",
        *(f"{1000 * one:.1f}" for one in (max(each.longest for each in turns), max(t.p999 for t in turns))),
    ]


@click.command()
@click.option("--queues", default=10_000, show_default=True)
@click.option("--active", default=100, show_default=True, help="Queues with a message a second.")
@click.option("--seconds", default=60.0, show_default=True, help="Length of one turn.")
@click.option("--rounds", default=2, show_default=True, help="Turns of each kind.")
@click.option("--page", default="#/", show_default=True, help="Route of the page.")
@click.option("--burn", is_flag=True, help="A process that only uses the processor, in place of the browser.")
def main(queues: int, active: int, seconds: float, rounds: int, page: str, burn: bool) -> None:
    """Measure a broker without and with an open page of the console."""
    for broker in each_broker("stompring"):
        assert isinstance(broker, Stompring)
        client = Client(broker, port=broker.latency_port)
        client.connect()
        client.expect("CONNECTED")
        write_each(client, queues)
        without, opened = [], []
        with _process(_traffic, broker, active):
            for _ in range(rounds):
                without.append(turn(broker, seconds))
                with _process(_burn, broker) if burn else open_page(broker, page):
                    opened.append(turn(broker, seconds))
        client.close()
        added = statistics.median(t.core for t in opened) - statistics.median(t.core for t in without)
        rows = [_row("no page", without), _row("processor in use" if burn else f"page {page}", opened)]
        click.echo(markdown(["", "broker, of a core", "longest gap ms", "p99.9 gap ms"], rows))
        click.echo(f"the page costs {100 * added:.2f} % of a core with {queues:,} queues, {active} active")


if __name__ == "__main__":
    main()
