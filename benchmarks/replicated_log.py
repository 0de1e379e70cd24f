"""Cost of a replicated log: rate of receipts with three NATS nodes, compared with the local disk.

python -m benchmarks.replicated_log [--engine nats] [--rounds 3] [--seconds 3] [--only CASE …]

``--engine postgresql`` uses a primary with a synchronous standby instead. A broker without and a broker with
``<replicated-log>`` run in turn on this machine. The nodes of the engine run here too, and their syncs share one disk,
unlike nodes on separate machines. The ratio is the median over the rounds of the ratio within a round. There is no
standby broker, which would only read.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from lxml import etree

from benchmarks import disk, load
from benchmarks.brokers import BrokerDied, Stompring
from benchmarks.brokers.stompring import CORE
from benchmarks.results import markdown
from stompring.replication.engines import create_log
from stompring.settings.model import ReplicatedLogSettings
from tests import postgres_server
from tests.nats_cluster import NatsCluster, nats_server

RECEIPTS = ("-m", "produce", "-r", "1", "-D", "1")
#: Producers, receipts outstanding for each, bytes of the body.
CASES = {
    "8 × 50": (8, 50, 100),
    "8 × 50, 4 KiB": (8, 50, 4096),
    "8 × 1": (8, 1, 100),
    "1 × 1": (1, 1, 100),
}
STREAM = "benchmark"


class Replicated(Stompring):
    """stompring with a replicated log on a NATS cluster or in PostgreSQL."""

    name = "replicated log"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def _write_config(self, path: Path) -> None:
        super()._write_config(path)
        tree = etree.parse(str(path))
        core = tree.find(f"{CORE}core")
        assert core is not None
        policy = etree.SubElement(core, f"{CORE}ha-policy")
        attributes = {"url": self._url, "stream": STREAM, "confirmed-sync": "true"}
        if self._url.startswith("postgresql"):
            attributes["user"] = "stompring"
        etree.SubElement(policy, f"{CORE}replicated-log", attributes)
        tree.write(str(path), xml_declaration=True, encoding="UTF-8")


def missing(engine: str) -> str | None:
    """Return why an engine cannot be started on this machine, None if it can."""
    if engine == "postgresql":
        return postgres_server.missing()
    return None if nats_server() is not None else "nats-server is not installed"


@contextmanager
def engine_url(engine: str) -> Iterator[str]:
    """Context manager: run an engine, and yield its URL."""
    if engine == "postgresql":
        with postgres_server.postgres_pair() as pair:
            yield pair.url().replace("stompring@", "")
    else:
        with tempfile.TemporaryDirectory(prefix="bench-log-") as folder, NatsCluster(Path(folder)) as cluster:
            yield ",".join([node.url for node in cluster.nodes])


def rate(broker: Stompring, case: str, number: int, seconds: float) -> float:
    """Measure receipts per second."""
    producers, outstanding, size = CASES[case]
    options = ["-p", str(producers), "-R", str(outstanding), "-s", str(size), "-S", f"{seconds:g}"]
    numbers = load.run(broker, *RECEIPTS, *options, "-d", f"/queue/bench.{number}")
    return numbers["receipts"] / numbers["seconds"]


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often.")
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1), help="Per run.")
@click.option("--only", type=click.Choice(list(CASES)), multiple=True, help="Only these cases.")
@click.option("--engine", default="nats", show_default=True, type=click.Choice(["nats", "postgresql"]))
def main(rounds: int, seconds: float, only: tuple[str, ...], engine: str) -> None:
    """Compare receipts with a replicated log and with the local disk."""
    if reason := missing(engine):
        raise click.ClickException(reason)
    where = Path(tempfile.gettempdir())
    if disk.file_system(where).startswith(("tmpfs", "ramfs")):
        raise click.ClickException(f"{where} is in memory, where syncing costs nothing; set TMPDIR")
    rows = []
    try:
        with engine_url(engine) as url:
            settings = ReplicatedLogSettings(url, STREAM, user="stompring", confirmed_sync=True)
            create_log(settings if engine == "postgresql" else replace(settings, user=None), -1)
            with Stompring() as local, Replicated(url) as replicated:
                for broker in (local, replicated):
                    rate(broker, "8 × 50", 0, 1.0)
                for number, case in enumerate(only or CASES, 1):
                    rows.append(_compare(local, replicated, case, number, rounds, seconds))
    except (BrokerDied, load.LoadFailed) as failure:
        raise click.ClickException(str(failure)) from failure
    head = [
        "producers × receipts outstanding",
        "local disk, /s",
        "replicated log, /s",
        "ratio",
        "ms a receipt",
    ]
    click.echo(markdown(head, rows))


def _compare(
    local: Stompring, replicated: Stompring, case: str, number: int, rounds: int, seconds: float
) -> list[str]:
    pairs = []
    for again in range(rounds):
        queue = number * 100 + again
        pairs.append((rate(local, case, queue, seconds), rate(replicated, case, queue, seconds)))
    plain, logged = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(after / before for before, after in pairs)
    producers, outstanding, _ = CASES[case]
    return [
        case,
        f"{plain:,.0f}",
        f"{logged:,.0f}",
        f"{ratio:.2f}",
        f"{1000 * producers * outstanding / logged:.1f}",
    ]


if __name__ == "__main__":
    main()
