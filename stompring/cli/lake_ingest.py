"""``stompring lake ingest``: what the broker kept, into a lake."""

from __future__ import annotations

import signal
import time
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from stompring.cli import lake_option

if TYPE_CHECKING:
    from stompring.pipeline.lake.ingest import Batch, Ingest


@click.command()
@click.option(
    "--data",
    required=True,
    metavar="PLACE",
    help="The data directory of the broker, as for 'stompring run', or a URL of it.",
)
@click.option(
    "--retention",
    metavar="PLACE",
    help="Where journal-retention-directory is.  [default: retention in the data directory]",
)
@lake_option.where
@click.option("--follow", is_flag=True, help="Go on with what comes, until it is interrupted.")
@click.option(
    "--interval",
    type=lake_option.FiniteRange(min=0.1),
    default=10.0,
    show_default=True,
    help="With --follow: seconds between two looks.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=1 << 30,
    show_default=True,
    help="Bytes of the broker's files in one batch, about: what is lost when it is killed, and done again.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="For a new lake: into how many parts addresses are spread in each day.",
)
@click.option(
    "--as",
    "name",
    default="main",
    show_default=True,
    metavar="NAME",
    help="The name of the broker in the lake: column 'broker' of each row.",
)
@click.option("--no-mark", is_flag=True, help="Do not tell the broker what was ingested.")
@lake_option.with_spark
def ingest(
    data: str,
    retention: str | None,
    lake: str,
    follow: bool,
    interval: float,
    max_bytes: int,
    buckets: int,
    name: str,
    no_mark: bool,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Put what is new in a data directory into a lake.

    Works while the broker runs, and may be stopped or killed at any time: the next run goes on where it was, and
    each message is in the lake once. The lake is made where there is none.
    """
    from stompring.pipeline.backlog import Limit
    from stompring.pipeline.files import DataFiles
    from stompring.pipeline.lake.brokers import check_name
    from stompring.pipeline.lake.ingest import Ingest
    from stompring.pipeline.options import OptionError

    places = [_place("--data", data), None if retention is None else _place("--retention", retention)]
    files = DataFiles(str(places[0]), places[1])
    try:
        files.require()
    except OptionError as reason:
        option = "--data" if reason.option == "path" else f"--{reason.option}"
        raise click.BadParameter(reason.text, param_hint=option) from None
    try:
        check_name(name)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint="--as") from None
    target = lake_option.named(lake)
    target.create(buckets)
    with target.locked():
        target.admit(name, files)  # a refusal need not wait for Spark
        with lake_option.session(master, conf) as spark:
            work = Ingest(spark, files, target, Limit(bytes=max_bytes), mark=not no_mark, name=name)
            _Run(work, interval if follow else None).run()


def _place(option: str, text: str) -> str:
    from stompring.pipeline.folder import resolved

    try:
        return resolved(text)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint=option) from None


class _Run:
    """Batches until there is nothing more, or until it is told to stop."""

    def __init__(self, work: Ingest, interval: float | None) -> None:
        self._work = work
        self._interval = interval
        self._stop = Event()
        self._rows: dict[str, int] = {}

    def run(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked)
        began = time.monotonic()
        while True:
            before = time.monotonic()
            for batch in self._work.batches(until=self._stop.is_set):
                self._tell(batch, time.monotonic() - before)
                before = time.monotonic()
            if self._interval is None or self._stop.wait(self._interval):
                break
        told = ", ".join(f"{count:,} {name}" for name, count in sorted(self._rows.items())) or "nothing new"
        click.echo(f"ingested {told} in {time.monotonic() - began:.1f} s")

    def _asked(self, number: int, frame: Any) -> None:
        click.echo("stopping after this batch; once more stops at once", err=True)
        self._stop.set()
        signal.signal(number, signal.SIG_DFL)

    def _tell(self, batch: Batch, seconds: float) -> None:
        for name, count in batch.rows.items():
            self._rows[name] = self._rows.get(name, 0) + count
        left = self._work.left() if self._interval is None else 0
        rate = batch.rows.get("messages", 0) / max(seconds, 1e-3)
        more = f", {left / 1e6:,.1f} MB left" if left else ""
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(batch.rows.items()))
        faults = f", {len(batch.faults)} places could not be read" if batch.faults else ""
        click.echo(
            f"batch {batch.number}: {batch.bytes / 1e6:,.1f} MB, {counts or 'no rows'} in {seconds:.1f} s "
            f"({rate:,.0f} messages/s){faults}{more}",
            err=True,
        )
