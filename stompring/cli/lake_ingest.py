"""``stompring lake ingest``: what the broker kept, into a lake."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any

import click

from . import lake_options
from .output import echo_json

if TYPE_CHECKING:
    from stompring.pipeline.lake.ingest import Batch, ContinuousIngest, Ingest, IngestMetrics
    from stompring.pipeline.lake.maintenance import Maintenance

#: Seconds between two looks at a batch that is under way: on a terminal, and elsewhere.
REDRAW_SECONDS, LOG_SECONDS = 0.5, 10.0


@click.command()
@click.option(
    "--data",
    required=True,
    metavar="PLACE",
    help="Data directory of the broker, as for 'stompring run', or its URL.",
)
@click.option(
    "--retention",
    metavar="PLACE",
    help="journal-retention-directory of the broker.  [default: retention in the data directory]",
)
@lake_options.lake_option
@click.option("--follow", is_flag=True, help="Continue with new messages until interrupted.")
@click.option(
    "--interval",
    type=lake_options.FiniteRange(min=0.1),
    default=10.0,
    show_default=True,
    help="With --follow: polling interval in seconds.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=1 << 30,
    show_default=True,
    help="Approximate size of a batch in bytes of broker files; a killed ingest repeats its batch.",
)
@click.option(
    "--buckets",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="For a new lake: number of buckets of addresses per day.",
)
@click.option(
    "--as",
    "name",
    default="main",
    show_default=True,
    metavar="NAME",
    help="Name of the broker in the lake: column 'broker' of each row.",
)
@click.option(
    "--compact-files",
    type=click.IntRange(min=0),
    default=64,
    show_default=True,
    metavar="N",
    help="With --follow: compact a day when a bucket has more than N small files; 0: never.",
)
@click.option(
    "--vacuum-hours",
    type=click.IntRange(min=0),
    default=168,
    show_default=True,
    help="With --follow: delete files unreferenced for this many hours, once an hour.",
)
@click.option("--no-vacuum", is_flag=True, help="With --follow: never delete files.")
@click.option(
    "--attempts",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="With --follow: consecutive failures before the command ends; pauses between attempts grow.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="With --follow: port for Prometheus metrics; 0: a free port, which is printed.",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Address for Prometheus metrics.",
)
@click.option(
    "--lease",
    type=lake_options.FiniteRange(min=3),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="For a lake on S3: time after which another ingest takes over from one that was killed.",
)
@click.option("--no-mark", is_flag=True, help="Do not record the ingested positions for the broker.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
@lake_options.with_spark
def ingest(
    data: str,
    retention: str | None,
    lake: str,
    follow: bool,
    interval: float,
    max_bytes: int,
    buckets: int,
    name: str,
    lease: float,
    no_mark: bool,
    compact_files: int,
    vacuum_hours: int,
    no_vacuum: bool,
    attempts: int,
    metrics_port: int | None,
    metrics_host: str,
    as_json: bool,
    master: str | None,
    conf: tuple[str, ...],
) -> None:
    """Ingest new messages, events and samples of a data directory into a lake.

    Works while the broker runs. It may be stopped or killed at any time: the next run continues, and the lake has each
    message once. Creates the lake if it does not exist.

    \b
    Examples:
      stompring lake ingest --data data --lake lake
      stompring lake ingest --data data --lake s3a://lakes/plant --follow
    """
    from stompring.pipeline.backlog import Limit
    from stompring.pipeline.files import DataFiles
    from stompring.pipeline.lake.delta import check_name
    from stompring.pipeline.lake.ingest import Ingest, IngestMetrics
    from stompring.pipeline.lake.maintenance import Maintenance
    from stompring.pipeline.options import OptionError

    locations = [
        _location("--data", data),
        None if retention is None else _location("--retention", retention),
    ]
    files = DataFiles(str(locations[0]), locations[1])
    try:
        files.require()
    except OptionError as reason:
        option = "--data" if reason.option == "path" else f"--{reason.option}"
        raise click.BadParameter(reason.text, param_hint=option) from None
    try:
        check_name(name)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint="--as") from None
    target = lake_options.lake_at(lake)
    lake_options.settings(conf)  # what is needed and cannot be had is told before anything is written
    if metrics_port is not None and not follow:
        raise click.UsageError("--metrics-port requires --follow")
    metrics = IngestMetrics()
    if metrics_port is not None:
        _serve_metrics(metrics, metrics_host, metrics_port)
    target.create(buckets)
    with target.locked(lease):
        target.admit(name, files)  # a refusal need not wait for Spark
        with lake_options.session(master, conf) as spark:
            work = Ingest(spark, files, target, Limit(bytes=max_bytes), mark=not no_mark, name=name)
            run = _Run(work, as_json)
            if follow:
                upkeep = Maintenance(target, compact_files or None, None if no_vacuum else vacuum_hours)
                run.follow(upkeep, interval, attempts, metrics)
            else:
                run.run()


def _serve_metrics(metrics: IngestMetrics, host: str, port: int) -> None:
    try:
        port = metrics.serve(host, port)
    except OSError as fault:
        raise click.ClickException(f"cannot serve metrics on {host}:{port}: {fault}") from None
    click.echo(f"serving metrics on http://{host}:{port}/metrics", err=True)


def _location(option: str, text: str) -> str:
    from stompring.pipeline.storage import resolve_location

    try:
        return resolve_location(text)
    except ValueError as reason:
        raise click.BadParameter(str(reason), param_hint=option) from None


class _Run:
    """Batches until there is nothing more, or until it is told to stop."""

    def __init__(self, work: Ingest, as_json: bool) -> None:
        self._work = work
        self._json = as_json
        self._stop = Event()
        self._rows: dict[str, int] = {}
        self._bytes = self._batches = 0
        self._line = Progress()
        self.following: ContinuousIngest | None = None

    def follow(self, upkeep: Maintenance, interval: float, attempts: int, metrics: IngestMetrics) -> None:
        """Go on with what comes."""
        from stompring.pipeline.lake.ingest import ContinuousIngest

        self.following = ContinuousIngest(
            self._work, upkeep, self._stop, interval, attempts, self._done, metrics=metrics
        )
        notify_systemd("READY=1\nSTATUS=ingesting")
        try:
            self._run(self.following.run)
        finally:
            notify_systemd("STOPPING=1")

    def run(self) -> None:
        """All there is."""

        def all_of_it() -> None:
            before = time.monotonic()
            for batch in self._work.batches(until=self._stop.is_set):
                self._done(batch, time.monotonic() - before)
                before = time.monotonic()

        self._run(all_of_it)

    def _run(self, call: Callable[[], None]) -> None:
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        began = time.monotonic()
        try:
            with self._line.watching(self._progress_line):
                call()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._json:
            self._print_json(time.monotonic() - began)
            return
        ingested = (
            ", ".join(f"{count:,} {name}" for name, count in sorted(self._rows.items())) or "no new rows"
        )
        behind = "" if self.following is None else f"; {self._lag()} left"
        click.echo(
            f"ingested {ingested} in {time.monotonic() - began:.1f} s "
            f"({self._batches:,} batches, {self._bytes / 1e6:,.1f} MB{behind})"
        )

    def _print_json(self, seconds: float) -> None:
        document = {"rows": self._rows, "batches": self._batches, "bytes": self._bytes}
        left = {} if self.following is None else {"left": self.following.left, "lag": self.following.lag}
        echo_json({**document, "seconds": round(seconds, 3), **left})

    def _on_signal(self, number: int, frame: Any) -> None:
        self._line.show("stopping after this batch; a second signal stops at once")
        self._stop.set()
        signal.signal(number, signal.SIG_DFL)

    def _lag(self) -> str:
        following = self.following
        assert following is not None
        return f"{following.left / 1e6:,.1f} MB, {following.lag:,.0f} s"

    def _progress_line(self) -> str | None:
        batch = self._work.batch_progress
        if batch is None:
            return None
        share = f"{batch.read / 1e6:,.1f} of {batch.bytes / 1e6:,.1f} MB, {batch.rows:,} rows"
        behind = f", {self._lag()} behind" if self.following is not None and self.following.left else ""
        return f"batch {batch.number}: {share}{behind}"

    def _done(self, batch: Batch, seconds: float) -> None:
        from stompring.pipeline.lake.views import Views

        self._show_batch(batch, seconds)
        Views(self._work.lake).refresh()

    def _show_batch(self, batch: Batch, seconds: float) -> None:
        for name, count in batch.rows.items():
            self._rows[name] = self._rows.get(name, 0) + count
        self._bytes += batch.bytes
        self._batches += 1
        rate = batch.rows.get("messages", 0) / max(seconds, 1e-3)
        if self.following is not None:
            left, lag = self.following.left, self.following.lag
        else:
            left, lag = self._work.left(), 0.0
        more = f", {left / 1e6:,.1f} MB left" if left else ""
        more += f", {lag:,.0f} s behind" if lag else ""
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(batch.rows.items()))
        faults = f", {len(batch.faults)} unreadable places" if batch.faults else ""
        text = (
            f"batch {batch.number}: {batch.bytes / 1e6:,.1f} MB, {counts or 'no rows'} in {seconds:.1f} s "
            f"({rate:,.0f} messages/s){faults}{more}"
        )
        self._line.show(text)
        notify_systemd(f"STATUS={text}")


class Progress:
    """How far something is: one line that is drawn again on a terminal, else a line every some seconds."""

    def __init__(self, *, terminal: bool | None = None, pause: float | None = None) -> None:
        self._terminal = sys.stderr.isatty() if terminal is None else terminal
        self._pause = pause or (REDRAW_SECONDS if self._terminal else LOG_SECONDS)
        self._drawn = 0  # letters of the line that is on the terminal
        self._lock = RLock()

    def show(self, text: str) -> None:
        """A line that stays."""
        with self._lock:
            self._draw("")
            click.echo(text, err=True)

    @contextmanager
    def watching(self, progress: Callable[[], str | None]) -> Iterator[None]:
        """Show what ``ask`` says from time to time; None where there is nothing to say."""
        over = Event()

        def watch() -> None:
            while not over.wait(self._pause):
                self.look(progress)

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with self._lock:
                self._draw("")

    def look(self, progress: Callable[[], str | None]) -> None:
        """Once."""
        text = progress()
        with self._lock:
            if self._terminal:
                self._draw(text or "")
            elif text is not None:
                click.echo(text, err=True)

    def _draw(self, text: str) -> None:
        if not self._terminal or not (text or self._drawn):
            return
        text = text[: shutil.get_terminal_size().columns - 1]
        blank = " " * max(self._drawn - len(text), 0)
        click.echo(f"\r{text}{blank}" + ("" if text else "\r"), err=True, nl=False)
        self._drawn = len(text)


def notify_systemd(state: str) -> None:
    """Let a service manager that wants to know it (sd_notify of systemd) know what this process does."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    from stompring.server.sd_notify import notify

    try:
        notify(address, state)
    except OSError as fault:
        logging.getLogger(__name__).warning("cannot notify the service manager at %s: %s", address, fault)
